"""The contract of destinations: no incomplete file is visible, a repeat changes nothing, nothing is overwritten."""

from urllib.parse import urlsplit

import pytest
from azure.storage.blob import ContainerClient

from hubmere.pipeline.capture.destinations import DestinationFailed, InvalidDestination, NameTaken, destination_of
from hubmere.pipeline.capture.files.names import NameFormat, Span
from hubmere.pipeline.capture.files.schema import SPAN_KEY, file_header
from pipeline.capture.stores import ACCOUNT, Store

NAME = "shop/orders/0/2026/01/02/03/04/05.avro"
SPAN = Span("f00", 0, 0, 5)
# More than one part in any store, and not a multiple of the part size.
LARGE = 20_000_001


def content(span: Span, size: int = 0) -> bytes:
    """A file that contains its span."""
    return file_header("null", {SPAN_KEY: span.text()}, bytes(16)) + b"x" * size


def written(store: Store, span: Span = SPAN, attempt: str = "0-0", size: int = 0) -> dict[str, object]:
    """Write a file to the staging area."""
    upload = store.opened().upload(NAME, span, attempt)
    upload.write(memoryview(content(span)))
    upload.write(b"x" * size)
    return dict(upload.finish())


def a_format(hub: str) -> NameFormat:
    """The name format of a hub's files."""
    text = "shop/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}"
    return NameFormat(text=text, namespace="shop", hub=hub, extension="avro")


def names(store: Store) -> list[str]:
    return [each.name for each in store.opened().files("shop/")]


def test_file_becomes_visible_completely_when_it_is_published(store: Store) -> None:
    """A reader never sees a part of it."""
    token = written(store, size=LARGE)
    destination = store.opened()

    before = names(store), destination.span_of(NAME)
    destination.publish(NAME, SPAN, token)

    assert before == ([], None)
    (found,) = destination.files("shop/orders/")
    assert (found.name, found.size_bytes) == (NAME, len(content(SPAN)) + LARGE)
    assert destination.span_of(NAME) == SPAN
    with destination.open(NAME) as file:
        assert file.read() == content(SPAN, LARGE)
    assert NAME in destination.url_of(NAME)


def test_publishing_twice_changes_nothing(store: Store) -> None:
    """A driver that died after publishing repeats it, and so may a second attempt of the task."""
    first, second = written(store, attempt="0-0"), written(store, attempt="0-1")
    store.opened().publish(NAME, SPAN, first)

    store.opened().publish(NAME, SPAN, first)
    store.opened().publish(NAME, SPAN, written(store, attempt="0-2") if store.url.startswith("az") else second)

    assert names(store) == [NAME]


def test_existing_name_is_refused(store: Store) -> None:
    """Files of an earlier capture, or of other programs, are never overwritten."""
    store.opened().publish(NAME, SPAN, written(store))
    other = SPAN._replace(end=9)

    with pytest.raises(NameTaken, match="already exists with other content"):
        store.opened().publish(NAME, other, written(store, other, "0-1"))

    assert store.opened().span_of(NAME) == SPAN


def test_abandoned_attempts_are_deleted_by_the_sweep(store: Store) -> None:
    """Files of a killed task are deleted at the next start."""
    abandoned = store.opened().upload(NAME, SPAN, "0-0")
    abandoned.write(content(SPAN))
    abandoned.abandon()
    written(store, attempt="0-1")

    store.opened().sweep(SPAN.hub_id, a_format("orders"))

    assert names(store) == []
    store.opened().publish(NAME, SPAN, written(store, attempt="0-2"))
    assert names(store) == [NAME]


def test_sweep_of_one_hub_does_not_affect_another(store: Store) -> None:
    """Its files may be written at the same time."""
    other = SPAN._replace(hub_id="b00")
    token = written(store, other)

    store.opened().sweep(SPAN.hub_id, a_format("others"))
    store.opened().publish(NAME, other, token)

    assert names(store) == [NAME]


def test_files_are_listed_by_a_prefix(store: Store) -> None:
    """The prefix may end in the middle of a name."""
    store.opened().publish(NAME, SPAN, written(store))

    found = [[each.name for each in store.opened().files(prefix)] for prefix in ("", "shop/ord", NAME, "shop/other")]

    assert found == [[NAME], [NAME], [NAME], []]


def test_error_for_a_wrong_credential_does_not_contain_it(azurite: str) -> None:
    """Errors are written to logs and shown in the portal."""
    wrong = "d3Jvbmcta2V5LXRoYXQtbm9ib2R5LXNob3dz"
    destination = destination_of(f"az://{ACCOUNT}/captured", {"endpoint": azurite, "account_key": wrong})

    with pytest.raises(DestinationFailed) as failure:
        destination.span_of(NAME)

    assert wrong not in str(failure.value)
    assert "403" in str(failure.value)


def test_captured_file_of_a_node_is_read_by_the_storage_library(own_store: Store) -> None:
    """Code that reads captured blobs through azure-storage-blob works against the node: lists, whole and in ranges."""
    own_store.opened().publish(NAME, SPAN, written(own_store, size=LARGE))
    container = urlsplit(own_store.url).path.strip("/").partition("/")[0]
    credential = {"account_name": ACCOUNT, "account_key": own_store.options["account_key"]}

    with ContainerClient(own_store.options["endpoint"], container, credential=credential) as client:
        folders = [item.name for item in client.walk_blobs("below/shop/")]
        (found,) = client.list_blobs(name_starts_with="below/shop/orders/0/2026/")
        body = client.download_blob(found.name).readall()
        middle = client.download_blob(found.name, offset=9_000_000, length=3).readall()

    assert folders == ["below/shop/orders/"]
    assert found.name == f"below/{NAME}"
    assert body == content(SPAN) + b"x" * LARGE
    assert middle == b"xxx"


@pytest.mark.parametrize("url", ["ftp://x/y", "az://account", "s3://", "file://elsewhere/x", "file:relative"])
def test_invalid_url_is_refused(url: str) -> None:
    """It is refused before anything is captured."""
    with pytest.raises(InvalidDestination):
        destination_of(url, {})
