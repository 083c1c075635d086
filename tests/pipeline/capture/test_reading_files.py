"""Captured files read by the portal: the same events as other readers find, and nothing outside of the folder."""

import io
from contextlib import closing, suppress
from pathlib import Path

import fastavro
import pytest

from hubmere.capture import browse
from hubmere.capture.browse import CapturedFolders
from hubmere.model.capture.files import CapturedEvent, CapturedHub, FileFilter
from hubmere.model.entity import CaptureDescription, CaptureEncoding
from hubmere.model.errors import InvalidArgument, NotFound, NotSupported
from hubmere.pipeline.capture.files.content import content_of
from hubmere.pipeline.decode import visible_batches
from hubmere.records.records import Record
from pipeline.batches import NOW_MS, fetched, kafka_batch

FILES = CapturedFolders()
AVRO = "shop/orders/0/2023/11/14/22/13/20.avro"
PARQUET = "shop/orders/1/2023/11/14/22/13/20.parquet"


def a_hub(folder: Path, **changes: str) -> CapturedHub:
    described = CaptureDescription(enabled=True)
    return CapturedHub(
        namespace="shop", hub="orders", described=described, url=changes.get("url", folder.as_uri())
    )  # fmt: skip


def a_content(encoding: CaptureEncoding, name: str, count: int = 1000) -> bytes:
    """A file of several blocks: each event has a key, a header and a body, except one without a body."""
    sink = io.BytesIO()
    content = content_of(encoding, sink, name, "f00/0/0-5", 0)
    for first in range(0, count, 100):
        records = [
            Record(number, NOW_MS + number, f"key {number}".encode(), None if number == 7 else b"x" * 1000,
                   (("level", str(number).encode()),))
            for number in range(100)
        ]  # fmt: skip
        for batch in visible_batches(fetched(kafka_batch(records, base=first)), 0, 1 << 40):
            content.add(batch, 0, 0, 1 << 40)
    content.close()
    return sink.getvalue()


def a_file(folder: Path, name: str, content: bytes) -> CapturedHub:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return a_hub(folder)


def read_all(hub: CapturedHub, name: str, first: int = 0, limit: int = 100) -> list[CapturedEvent]:
    with closing(FILES.open_file(hub, name, first)) as opened:
        found = list[CapturedEvent]()
        while part := opened.read(limit):
            found += part
        assert opened.position == opened.total
    return found


@pytest.mark.parametrize("encoding", [CaptureEncoding.AVRO, CaptureEncoding.AVRO_DEFLATE])
def test_avro_events_equal_those_of_another_reader(tmp_path: Path, encoding: CaptureEncoding) -> None:
    """Every field is compared, with each codec, in blocks of several hundred events."""
    content = a_content(encoding, AVRO)
    hub = a_file(tmp_path, AVRO, content)

    found = read_all(hub, AVRO)

    expected = list(fastavro.reader(io.BytesIO(content)))
    assert [(event.sequence, event.offset, event.system, event.properties, event.body) for event in found] == [
        tuple(row[name] for name in ("SequenceNumber", "Offset", "SystemProperties", "Properties", "Body"))
        for row in expected
        if isinstance(row, dict)
    ]
    assert {event.enqueued_ms for event in found} == {NOW_MS // 1000 * 1000}


def test_parquet_events_have_the_same_fields(tmp_path: Path) -> None:
    """Properties are texts in Parquet."""
    hub = a_file(tmp_path, PARQUET, a_content(CaptureEncoding.PARQUET, PARQUET))

    found = read_all(hub, PARQUET)

    assert [event.sequence for event in found] == list(range(1000))
    assert found[7].body is None
    assert found[8].body == b"x" * 1000
    assert found[8].system == {"x-opt-kafka-key": "key 8"}
    assert found[8].properties == {"level": "8"}
    assert found[8].enqueued_ms == NOW_MS


@pytest.mark.parametrize(("name", "encoding"), [(AVRO, CaptureEncoding.AVRO), (PARQUET, CaptureEncoding.PARQUET)])
def test_reading_can_start_at_any_event(tmp_path: Path, name: str, encoding: CaptureEncoding) -> None:
    """A page that is shown again starts at the same event."""
    hub = a_file(tmp_path, name, a_content(encoding, name))

    for first in (0, 1, 255, 256, 257, 999):
        assert read_all(hub, name, first)[0].sequence == first
    assert read_all(hub, name, 1000) == []


def test_files_are_listed_newest_first_by_partition_and_time(tmp_path: Path) -> None:
    """Other files, links and files of other hubs are not listed."""
    for partition in (0, 1):
        for minute in range(3):
            a_file(tmp_path, f"shop/orders/{partition}/2023/11/14/22/0{minute}/20.avro", b"x" * minute)
    for stranger in ("shop/orders/notes.txt", "shop/orders2/0/2023/11/14/22/13/20.avro", "other/o/0/1.avro"):
        a_file(tmp_path, stranger, b"")
    (tmp_path / "shop/orders/0/2023/11/14/22/09").mkdir()
    (tmp_path / "shop/orders/0/2023/11/14/22/09/20.avro").symlink_to("/etc/hostname")
    hub = a_hub(tmp_path)

    everything = FILES.list_files(hub, FileFilter())
    first_minute = 1_699_999_220
    some = FILES.list_files(hub, FileFilter(partition=1, from_s=first_minute, until_s=first_minute + 60))

    assert everything.is_complete
    assert [(file.partition, file.second - first_minute, file.size_bytes) for file in everything.files] == [
        (1, 120, 2), (0, 120, 2), (1, 60, 1), (0, 60, 1), (1, 0, 0), (0, 0, 0),
    ]  # fmt: skip
    assert [file.name for file in some.files] == [
        "shop/orders/1/2023/11/14/22/01/20.avro", "shop/orders/1/2023/11/14/22/00/20.avro",
    ]  # fmt: skip


def test_listing_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with years of files costs no more than a small one, and the answer says that it is incomplete."""
    for minute in range(20):
        a_file(tmp_path, f"shop/orders/0/2023/11/14/22/{minute:02}/20.avro", b"")
    hub = a_hub(tmp_path)

    monkeypatch.setattr(browse, "MAX_FILES", 5)
    few = FILES.list_files(hub, FileFilter())
    monkeypatch.setattr(browse, "MAX_ENTRIES", 10)
    fewer = FILES.list_files(hub, FileFilter())

    assert [file.name[-11:] for file in few.files] == [f"/{minute:02}/20.avro"[-11:] for minute in (19, 18, 17, 16, 15)]
    assert not few.is_complete
    assert not fewer.is_complete


@pytest.mark.parametrize(
    "name",
    [
        "../secret.avro",
        "/etc/passwd",
        "shop/orders/0/2023/11/14/22/13/../13/20.avro",
        "shop/orders/notes.txt",
        "shop/other/0/2023/11/14/22/13/20.avro",
        "shop/orders/0/2023/11/14/22/13/21.avro",
        "shop/orders/0/2023/11/14/22/99/20.avro",
    ],
)
def test_only_files_of_the_hub_are_opened(tmp_path: Path, name: str) -> None:
    """The name comes from the address bar of a browser."""
    hub = a_file(tmp_path, AVRO, a_content(CaptureEncoding.AVRO, AVRO, 100))
    a_file(tmp_path, "shop/other/0/2023/11/14/22/13/20.avro", b"")
    a_file(tmp_path, "shop/orders/notes.txt", b"")

    with pytest.raises(NotFound):
        FILES.open_file(hub, name, 0)


def test_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """This holds for a link to a file and to a folder in the path."""
    outside = tmp_path / "outside" / "13"
    outside.mkdir(parents=True)
    (outside / "20.avro").write_bytes(a_content(CaptureEncoding.AVRO, AVRO, 100))
    (tmp_path / "files/shop/orders/0/2023/11/14/22").mkdir(parents=True)
    (tmp_path / "files/shop/orders/0/2023/11/14/22/13").symlink_to(outside)

    with pytest.raises(NotFound):
        FILES.open_file(a_hub(tmp_path / "files"), AVRO, 0)


def test_other_destinations_are_refused(tmp_path: Path) -> None:
    """Object stores have their own viewers, and only the job has their credentials."""
    with pytest.raises(NotSupported):
        FILES.list_files(a_hub(tmp_path, url="az://account/container"), FileFilter())


@pytest.mark.parametrize("name", [AVRO, PARQUET])
@pytest.mark.parametrize("kept", [0, 3, 200, 5000, -1])
def test_damaged_file_is_refused_with_its_name(tmp_path: Path, name: str, kept: int) -> None:
    """A truncated file gives an error with its name, and never a wrong event or a traceback."""
    encoding = CaptureEncoding.PARQUET if name == PARQUET else CaptureEncoding.AVRO
    hub = a_file(tmp_path, name, a_content(encoding, name)[:kept])

    with pytest.raises(InvalidArgument, match="captured file"):
        read_all(hub, name)


def test_flipped_bytes_never_cause_another_error(tmp_path: Path) -> None:
    """Lengths in a damaged file may have any value."""
    content = bytearray(a_content(CaptureEncoding.AVRO, AVRO, 100))
    for at in range(0, 3000, 7):
        damaged = bytes(content[:at]) + bytes((content[at] ^ 0xFF,)) + bytes(content[at + 1 :])
        hub = a_file(tmp_path, AVRO, damaged)
        with suppress(InvalidArgument):
            read_all(hub, AVRO)
