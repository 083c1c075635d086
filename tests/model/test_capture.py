"""Where captured files go: destinations of hubs against the places that the operator has named."""

from pathlib import Path

import pytest

from hubmere.model.capture import CapturePlace, CaptureTargets, is_path_inside, normalize_url
from hubmere.model.entity import CaptureDestination
from hubmere.model.errors import InvalidArgument

FOLDER = "file:///srv/events/capture/files"
BLOB = CapturePlace(url="az://account", options={"account_key": "a-secret"})
BUCKET = CapturePlace(url="s3://bucket/events", options={"secret_access_key": "another"})
RESOURCE_ID = "/subscriptions/0/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/{}"


def targets(*, has_account_folders: bool = False, **named: CapturePlace) -> CaptureTargets:
    folder = Path("/srv/events/capture/files")
    return CaptureTargets.in_folder(folder, named, has_account_folders=has_account_folders)


@pytest.mark.parametrize(
    ("account", "container", "url"),
    [
        ("", "", FOLDER),
        ("", "box", FOLDER + "/box"),
        ("account", "box", FOLDER + "/account/box"),
        (RESOURCE_ID.format("account"), "box", FOLDER + "/account/box"),
        (FOLDER + "/below", "", FOLDER + "/below"),
        (FOLDER + "/below", "box", FOLDER + "/below/box"),
    ],
)
def test_accounts_can_be_folders(account: str, container: str, url: str) -> None:
    """With the setting for it, files for an Azure account are in a folder of the same name."""
    place = targets(has_account_folders=True).place_of(CaptureDestination(storage_account=account, container=container))

    assert place == CapturePlace(url=url)


@pytest.mark.parametrize(
    ("account", "container", "place"),
    [
        ("Blob", "box", CapturePlace(url="az://account/box", options=BLOB.options)),
        (RESOURCE_ID.format("blob"), "box/orders", CapturePlace(url="az://account/box/orders", options=BLOB.options)),
        ("account", "box", CapturePlace(url="az://account/box", options=BLOB.options)),
        (RESOURCE_ID.format("ACCOUNT"), "box", CapturePlace(url="az://account/box", options=BLOB.options)),
        ("bucket", "", BUCKET),
        ("bucket", "bucket", BUCKET),
        ("s3://bucket/events/orders", "", CapturePlace(url="s3://bucket/events/orders", options=BUCKET.options)),
        ("", "", CapturePlace(url=FOLDER)),
    ],
)
def test_a_target_is_found_by_name_resource_id_or_url(account: str, container: str, place: CapturePlace) -> None:
    """The credential comes with the place, from the settings alone."""
    found = targets(blob=BLOB, bucket=BUCKET).place_of(CaptureDestination(storage_account=account, container=container))

    assert found == place
    assert "secret" not in repr(found)


def test_storage_account_that_is_no_target_is_refused_with_the_setting_that_allows_it() -> None:
    """Files for an account must not end unnoticed in a folder of the node."""
    wish = CaptureDestination(storage_account=RESOURCE_ID.format("lake"), container="box")

    for known in (targets(), targets(bucket=BUCKET)):
        with pytest.raises(InvalidArgument) as refusal:
            known.place_of(wish)

        assert '[capture.targets.lake] with url = "az://lake"' in refusal.value.text()
        assert "capture_account_folders" in refusal.value.text()


@pytest.mark.parametrize(
    ("account", "url", "setting"),
    [
        ("lake", "az://account/captured", 'url = "az://account/other"'),
        ("account", "az://account/captured/events", 'url = "az://account/other"'),
        ("az://account/captured", "az://account/captured", 'url = "az://account/other"'),
        ("lake", "s3://captured/events", 'url = "s3://other"'),
    ],
)
def test_container_is_never_a_folder_of_another_one(account: str, url: str, setting: str) -> None:
    """The target has a container of its own; the request names another."""
    wish = CaptureDestination(storage_account=account, container="other")

    with pytest.raises(InvalidArgument) as refusal:
        targets(lake=CapturePlace(url=url)).place_of(wish)

    assert setting in refusal.value.text()


@pytest.mark.parametrize(
    ("container", "url"),
    [
        ("", "az://account/captured/events"),
        ("captured", "az://account/captured/events"),
        ("captured/orders", "az://account/captured/events/orders"),
        ("other", "az://account/other"),
    ],
)
def test_container_decides_between_targets_of_one_account(container: str, url: str) -> None:
    """Each container may have its own credential."""
    known = targets(one=CapturePlace(url="az://account/captured/events"), two=CapturePlace(url="az://account/other"))

    assert known.place_of(CaptureDestination(storage_account="account", container=container)).url == url


def test_a_target_called_default_takes_hubs_that_name_none() -> None:
    """An operator can send everything to a bucket without touching the hubs."""
    assert targets(default=BUCKET).place_of(CaptureDestination()) == BUCKET


def test_the_old_data_lake_fields_name_a_target_too() -> None:
    """ARM still has them for the destination EventHubArchive.AzureDataLake."""
    wish = CaptureDestination(
        name="EventHubArchive.AzureDataLake", data_lake_account="blob", data_lake_folder="/box/orders"
    )

    assert targets(blob=BLOB).place_of(wish).url == "az://account/box/orders"


@pytest.mark.parametrize(
    ("account", "container"),
    [
        ("unknown", "box"),
        ("blob", ""),
        ("blob", "../other"),
        ("blob", "box/%2e%2e/other"),
        ("file:///etc", ""),
        (FOLDER + "-of-others", ""),
        (FOLDER + "/../../keys", ""),
        (FOLDER + "/%2e%2e/keys", ""),
        ("s3://bucket/other", ""),
        ("az://stranger/box", ""),
        ("ftp://host/files", ""),
        ("https://user:word@host/files?sig=secret", ""),
    ],
)
def test_files_never_go_where_the_operator_did_not_point(account: str, container: str) -> None:
    """The manager of a hub is not always the operator of the machine."""
    with pytest.raises(InvalidArgument) as refusal:
        targets(blob=BLOB, bucket=BUCKET).place_of(CaptureDestination(storage_account=account, container=container))

    assert "secret" not in refusal.value.text()
    assert "word" not in refusal.value.text()


def test_account_that_is_a_folder_cannot_leave_the_folder() -> None:
    """The name of an account becomes a folder's name."""
    with pytest.raises(InvalidArgument):
        targets(has_account_folders=True).place_of(CaptureDestination(storage_account=".."))


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/srv/files/", "file:///srv/files"),
        ("file:///srv/files/", "file:///srv/files"),
        ("az://account", "az://account"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
    ],
)
def test_a_url_has_one_spelling(text: str, url: str) -> None:
    """Places are compared by their text."""
    assert normalize_url(text) == url


@pytest.mark.parametrize("text", ["", "files", "file:///", "az://", "s3:///x", "az://a/c?sig=1", "s3://k:s@bucket"])
def test_what_is_no_place_is_refused(text: str) -> None:
    """Credentials in a URL would end up in logs."""
    with pytest.raises(InvalidArgument):
        normalize_url(text)


@pytest.mark.parametrize(
    ("path", "is_inside"),
    [("a/b", True), ("", True), ("a..b", True), ("../a", False), ("a/./b", False), ("/a", False), ("a\\b", False)],
)
def test_a_path_stays_below_what_it_is_joined_to(path: str, is_inside: bool) -> None:
    """Name formats and containers come from managers of hubs."""
    assert is_path_inside(path) is is_inside
