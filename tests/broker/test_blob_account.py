"""Blobs of an account: conditions, concurrent claims, bodies in rows and in files, and failed writes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hubmere.broker.blobs.conditions import RequestConditions
from hubmere.broker.blobs.listing import ListRequest, read_page
from hubmere.broker.blobs.processors import processor_partitions
from hubmere.broker.blobs.records import BlobHeaders, decode_metadata
from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.broker.blobs.service import INLINE_BYTES, BlobAccount
from hubmere.model.errors import Refusal
from hubmere.store.blob_files import BlobFiles, MemoryBodies
from hubmere.store.catalog.blob_records import BlobRecord
from hubmere.store.catalog.name_index import NameIndex
from hubmere.store.catalog.sqlite import SqliteCatalog

NO_CONDITIONS = RequestConditions()
_NOW = 1_700_000_000_000
BLOB: dict[str, Any] = {"account": "account", "container": "box", "etag": "", "created_ms": 0, "modified_ms": 0}


class Storage:
    """An account on a catalog in memory; every call waits for its result."""

    def __init__(self) -> None:
        self.catalog = SqliteCatalog.open()
        self.bodies = MemoryBodies()
        self.account = BlobAccount("account", self.catalog, self.bodies)
        self.call("create_container", "box", {}, _NOW)

    def call(self, name: str, *arguments: object) -> Any:
        """The result of an operation; raises its refusal."""
        pending = self.begin(name, *arguments)
        self.catalog.apply()
        (result,) = pending
        if isinstance(result, Refusal):
            raise result
        return result

    def begin(self, name: str, *arguments: object) -> list[Any]:
        """Start an operation; its result is appended to the returned list when the catalog has written it."""
        results: list[Any] = []
        getattr(self.account, name)(*arguments, results.append)
        return results

    def put(
        self, name: str, body: bytes = b"", conditions: RequestConditions = NO_CONDITIONS, **metadata: str
    ) -> BlobRecord:
        record: BlobRecord = self.call("put_blob", "box", name, body, BlobHeaders(), metadata, conditions, _NOW)
        return record

    def read(self, name: str) -> bytes:
        record = self.account.blob("box", name, NO_CONDITIONS, _NOW)
        results: list[Any] = []
        self.account.read(record, 0, record.size_bytes, results.append)
        body: bytes = results[0]
        return body


@pytest.fixture
def storage() -> Iterator[Storage]:
    opened = Storage()
    yield opened
    opened.catalog.close()


def test_of_two_claims_with_the_same_etag_one_wins(storage: Storage) -> None:
    """Two processors that claim a partition in the same moment must not both own it."""
    etag = storage.put("ownership/0", ownerid="").etag
    claim = RequestConditions(if_match=etag)

    first = storage.begin("set_metadata", "box", "ownership/0", {"ownerid": "a"}, claim, _NOW)
    with pytest.raises(BlobRefused) as refusal:
        storage.begin("set_metadata", "box", "ownership/0", {"ownerid": "b"}, claim, _NOW)
    storage.catalog.apply()

    assert refusal.value.code is BlobErrorCode.CONDITION_NOT_MET
    assert decode_metadata(first[0]) == {"ownerid": "a"}


def test_a_blob_that_must_not_exist_is_created_once(storage: Storage) -> None:
    """The first processor of a hub creates its ownership blob with If-None-Match: *."""
    storage.put("ownership/0", conditions=RequestConditions(if_none_match="*"))

    with pytest.raises(BlobRefused) as refusal:
        storage.put("ownership/0", conditions=RequestConditions(if_none_match="*"))
    assert refusal.value.code is BlobErrorCode.BLOB_ALREADY_EXISTS


def test_blob_is_readable_only_when_it_is_durable(storage: Storage) -> None:
    """A checkpoint that a crash could still undo must not be visible to another processor."""
    storage.begin("put_blob", "box", "b", b"x", BlobHeaders(), {}, NO_CONDITIONS, _NOW)

    with pytest.raises(BlobRefused) as refusal:
        storage.account.blob("box", "b", NO_CONDITIONS, _NOW)
    assert refusal.value.code is BlobErrorCode.BLOB_NOT_FOUND


@pytest.mark.parametrize("size_bytes", [0, INLINE_BYTES, INLINE_BYTES + 1])
def test_a_body_of_any_size_is_read_back(storage: Storage, size_bytes: int) -> None:
    """Small bodies are in the row, larger ones in a file; a reader sees no difference."""
    body = b"x" * size_bytes

    storage.put("b", body)

    assert storage.read("b") == body


def test_an_overwritten_body_is_deleted(storage: Storage) -> None:
    """Files of old bodies would fill the disk."""
    storage.put("b", b"x" * (INLINE_BYTES + 1))
    storage.put("b", b"y" * (INLINE_BYTES + 1))

    assert list(storage.bodies._bodies.values()) == [b"y" * (INLINE_BYTES + 1)]


def test_refused_upload_leaves_no_file(storage: Storage) -> None:
    """The body is written before the final check of the conditions."""
    storage.put("b", b"first")
    late = RequestConditions(if_match=storage.account.blob("box", "b", NO_CONDITIONS, _NOW).etag)
    saved = []
    storage.bodies.save, save = (lambda body, on_saved: saved.append((body, on_saved))), storage.bodies.save  # type: ignore[method-assign]
    results = storage.begin("put_blob", "box", "b", b"z" * (INLINE_BYTES + 1), BlobHeaders(), {}, late, _NOW)
    storage.put("b", b"second")

    save(*saved[0])

    assert isinstance(results[0], BlobRefused)
    assert storage.bodies._bodies == {}
    assert storage.read("b") == b"second"


def test_blocks_become_a_blob_in_the_order_of_the_list(storage: Storage) -> None:
    """Large uploads and Capture write blocks; staged ones that the list leaves out are dropped."""
    for block_id, body in (("MQ==", b"1"), ("Mg==", b"22"), ("Mw==", b"333")):
        storage.call("stage_block", "box", "b", block_id, body, NO_CONDITIONS, _NOW)

    wanted = [("Latest", "Mw=="), ("Uncommitted", "MQ==")]
    storage.call("commit_blocks", "box", "b", wanted, BlobHeaders(), {}, NO_CONDITIONS, _NOW)

    assert storage.read("b") == b"3331"
    assert storage.account.staged_blocks("box", "b") == []
    assert sorted(storage.bodies._bodies.values()) == [b"1", b"333"]


def test_a_block_list_with_an_unknown_block_changes_nothing(storage: Storage) -> None:
    """The old blob is unchanged."""
    storage.put("b", b"old")

    with pytest.raises(BlobRefused) as refusal:
        storage.begin("commit_blocks", "box", "b", [("Latest", "MQ==")], BlobHeaders(), {}, NO_CONDITIONS, _NOW)
    assert refusal.value.code is BlobErrorCode.INVALID_BLOCK_LIST
    assert storage.read("b") == b"old"


def test_uncommitted_blocks_are_deleted_after_a_week(storage: Storage) -> None:
    """The service does the same; the blocks of an interrupted upload would stay for ever."""
    storage.call("stage_block", "box", "b", "MQ==", b"1", NO_CONDITIONS, _NOW)
    storage.account.drop_old_blocks(_NOW + 7 * 24 * 3600 * 1000 + 1)
    storage.catalog.apply()

    assert storage.account.staged_blocks("box", "b") == []
    assert storage.bodies._bodies == {}


def test_deleting_a_container_deletes_its_blobs(storage: Storage) -> None:
    """A new container of the same name is empty."""
    storage.put("b", b"x" * (INLINE_BYTES + 1))
    storage.call("stage_block", "box", "other", "MQ==", b"1", NO_CONDITIONS, _NOW)

    storage.call("delete_container", "box", NO_CONDITIONS, _NOW)
    storage.call("create_container", "box", {}, _NOW)

    assert storage.account.list_blobs("box", ListRequest()).records == []
    assert storage.bodies._bodies == {}


def test_a_container_that_was_just_deleted_can_be_deleted_again(storage: Storage) -> None:
    """The service removes a container in the background, and accepts a deletion until it is gone."""
    storage.call("delete_container", "box", NO_CONDITIONS, _NOW)
    storage.call("delete_container", "box", NO_CONDITIONS, _NOW + 29_000)

    with pytest.raises(BlobRefused) as late:
        storage.call("delete_container", "box", NO_CONDITIONS, _NOW + 30_001)
    with pytest.raises(BlobRefused):
        storage.call("delete_container", "other", NO_CONDITIONS, _NOW)
    assert late.value.code is BlobErrorCode.CONTAINER_NOT_FOUND


def test_a_container_that_was_created_again_is_deleted_by_its_own_rules(storage: Storage) -> None:
    """The earlier deletion says nothing about it."""
    storage.call("delete_container", "box", NO_CONDITIONS, _NOW)
    storage.call("create_container", "box", {}, _NOW)
    storage.put("b", b"x")

    with pytest.raises(BlobRefused):
        storage.call("delete_container", "box", RequestConditions(lease_id="no-lease"), _NOW)
    assert storage.read("b") == b"x"


@pytest.mark.parametrize("name", ["ab", "Upper", "two--dashes", "-first", "x" * 64])
def test_a_container_name_must_fit_the_rules(storage: Storage, name: str) -> None:
    """The rules are those of the service, so that data can be moved there."""
    with pytest.raises(BlobRefused):
        storage.begin("create_container", name, {}, _NOW)


def test_metadata_names_are_identifiers(storage: Storage) -> None:
    """Other names could not be written as XML elements in a list."""
    with pytest.raises(BlobRefused) as refusal:
        storage.begin("put_blob", "box", "b", b"", BlobHeaders(), {"not-an-identifier": "x"}, NO_CONDITIONS, _NOW)
    assert refusal.value.code is BlobErrorCode.INVALID_METADATA


def test_checkpoints_and_owners_are_found(storage: Storage) -> None:
    """The node can read what processors store: the owner of a partition, and its checkpoint."""
    storage.put("ns.example.org/orders/$default/ownership/1", ownerid="worker-a")
    storage.put("ns.example.org/orders/$default/checkpoint/1", sequencenumber="41", offset="4100")
    storage.put("ns.example.org/orders/$default/checkpoint/0", sequencenumber="none", offset="")
    storage.put("something/else", b"x")

    zero, one = processor_partitions(storage.catalog.view.all_blobs())

    assert (zero.partition, zero.owner, zero.sequence) == ("0", None, None)
    assert (one.hub, one.group, one.owner, one.sequence, one.offset) == ("orders", "$default", "worker-a", 41, "4100")


def test_files_without_a_row_are_deleted_at_start(tmp_path: Path) -> None:
    """A crash between the body and its row leaves a file that nothing names."""
    files = BlobFiles(tmp_path / "blobs", lambda call: call())
    saved: list[Any] = []
    files.save(b"kept", saved.append)
    files.save(b"lost", saved.append)
    files.close()

    BlobFiles(tmp_path / "blobs", lambda call: call()).delete_unused(saved[:1])

    assert [path.read_bytes() for path in (tmp_path / "blobs").iterdir()] == [b"kept"]


def test_a_body_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A full or read-only disk leads to an error response, not to a crash."""
    (tmp_path / "blobs").write_text("in the way")
    files = BlobFiles(tmp_path / "blobs", lambda call: call())
    results: list[Any] = []

    files.save(b"x", results.append)
    files.close()

    assert isinstance(results[0], Refusal)


def test_pages_of_a_list_contain_every_entry_once(storage: Storage) -> None:
    """This holds for any page size; a folder is listed once, and both blobs and folders count."""
    names = ["a", "b/1", "b/2", "b/c/1", "b0", "c/1", "d", "e/" + chr(0x10FFFF), "f"]
    for name in names:
        storage.put(name)
    for size in range(1, len(names) + 1):
        assert pages(storage, size) == (names, [])
        assert pages(storage, size, delimiter="/") == (["a", "b0", "d", "f"], ["b/", "c/", "e/"])
        assert pages(storage, size, prefix="b/", delimiter="/") == (["b/1", "b/2"], ["b/c/"])
        assert pages(storage, size, delimiter=chr(0x10FFFF)) == ([*names[:7], "f"], ["e/" + chr(0x10FFFF)])


def test_list_follows_every_change(storage: Storage) -> None:
    """The sorted list is updated with each change, not sorted again."""
    kept = {f"{number:03}" for number in range(0, 100, 2)}
    for name in kept:
        storage.put(name)
    for number in range(100):
        name = f"{number:03}"
        if name in kept and number % 4:
            storage.call("delete_blob", "box", name, NO_CONDITIONS, _NOW)
            kept.discard(name)
        else:
            storage.put(name)
            kept.add(name)

        assert pages(storage, 7) == (sorted(kept), [])


def pages(storage: Storage, size: int, **wanted: str) -> tuple[list[str], list[str]]:
    """The names of the blobs and folders on all pages."""
    names: list[str] = []
    folders: list[str] = []
    marker = ""
    while True:
        page = storage.account.list_blobs("box", ListRequest(marker=marker, max_results=size, **wanted))
        assert len(page.records) + len(page.folders) <= size
        names += [record.name for record in page.records]
        folders += page.folders
        marker = page.next_marker
        if not marker:
            return names, folders


def test_page_of_a_long_list_reads_only_its_own_entries(storage: Storage) -> None:
    """A million blobs in a folder are one entry, and a page in the middle starts at its own entry."""
    asked: list[str] = []
    names = [f"folder/{number:06}" for number in range(1000)] + ["x", "y"]
    index = NameIndex(names)
    records = {name: BlobRecord(name=name, size_bytes=0, **BLOB) for name in names}

    def records_from(first: str) -> Iterator[BlobRecord]:
        for name in index.names_from(first):
            asked.append(name)
            yield records[name]

    folded = read_page(records_from, ListRequest(delimiter="/"))
    middle = read_page(records_from, ListRequest(marker="folder/000500", max_results=10))

    assert (folded.folders, [record.name for record in folded.records]) == (["folder/"], ["x", "y"])
    assert middle.next_marker == "folder/000510"
    assert len(asked) == 1 + 2 + 11
