"""One query over captured files and the log: every event once, whatever retention has deleted from the log."""

import pickle
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable

from client.hubs import bodies
from hubmere.client.consumer import HubReader
from hubmere.pipeline.capture.destinations import DestinationFailed
from hubmere.pipeline.decode import SCHEMA
from hubmere.pipeline.history.files import CapturedFiles
from hubmere.pipeline.history.hub import HistoryReader
from hubmere.pipeline.history.location import NoCapturedFiles
from hubmere.pipeline.offsets import DataLost, HubRecreated
from hubmere.pipeline.options import InvalidOption, read_options
from hubmere.pipeline.positions import instant_ms
from hubmere.pipeline.source import FilteredHubReader, HubBatchReader, HubStreamReader, RangesPartition
from pipeline.batches import rows
from pipeline.captured_hubs import PATIENCE_S, CapturedHubs, a_capturing_node, set_config
from pipeline.queries import conf, position

Row = dict[str, Any]
ENCODINGS = ["Avro", "AvroDeflate", "Parquet", "Delta"]


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedHubs]:
    """The hubs of a node that captures into a folder."""
    with a_capturing_node(tmp_path_factory.mktemp("captured")) as hubs:
        yield hubs


def read_batch(hubs: CapturedHubs, hub: str, filters: list[Filter] | None = None, **options: str) -> list[Row]:
    """The rows of a batch with history; each task uses a copy of the reader, as on an executor."""
    given = read_options(conf(hubs, hub, **{"capture": "auto", **options}))
    reader = HubBatchReader(given, SCHEMA) if filters is None else FilteredHubReader(given, SCHEMA)
    if isinstance(reader, FilteredHubReader):
        list(reader.pushFilters(filters or []))
    found: list[Row] = []
    for task in reader.partitions():
        copy, task = pickle.loads(pickle.dumps((reader, task)))
        found += rows(copy.read(task))
    return found


def texts(found: list[Row]) -> list[str]:
    return [row["body"].decode() for row in found]


def numbered(count: int, name: str = "event") -> list[str]:
    return [body.decode() for body in bodies(count, name)]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_files_and_log_give_the_same_rows_as_the_log(hubs: CapturedHubs, encoding: str) -> None:
    """All nine columns are equal, wherever the log begins."""
    hub = hubs.new_captured(partitions=2, encoding=encoding)
    for run in range(3):
        hubs.publish(hub, 0, *(bodies(20, f"{run} {part}") for part in range(3)))
        hubs.publish(hub, 1, bodies(10, f"other {run}"))
        hubs.capture(hub)
    hubs.publish(hub, 0, bodies(20, "new"))
    expected = read_batch(hubs, hub)
    assert len(expected) == 230

    for first in (35, 60, 180, 200):
        hubs.trim(hub, 0, min(first, 180))
        hubs.trim(hub, 1, min(first // 7, 30))
        assert read_batch(hubs, hub) == expected


@pytest.mark.parametrize("last", ENCODINGS)
def test_encoding_may_change_midway(hubs: CapturedHubs, last: str) -> None:
    """Files of every encoding belong to the history, in and beside the folder of a Delta table."""
    hub = hubs.new_captured()
    for run, encoding in enumerate(("Avro", "Parquet", "Delta", "AvroDeflate", "Delta", "Parquet", last)):
        hubs.enable(hub, 1, encoding=encoding)
        hubs.publish(hub, 0, bodies(10, f"{run} {encoding}"))
        hubs.capture(hub)
    expected = read_batch(hubs, hub)
    assert len(expected) == 70

    hubs.trim(hub, 0, 70)

    assert read_batch(hubs, hub) == expected
    for number in (5, 15, 25, 35, 45, 55, 65):
        by_offset = read_batch(hubs, hub, startingPosition=position(offset=expected[number]["offset"]))
        assert by_offset == expected[number:]


def test_location_can_be_given(hubs: CapturedHubs, tmp_path: Path) -> None:
    """Executors may see the folder of the node under another path, or files were moved."""
    hub = hubs.new_captured()
    hubs.publish(hub, 0, bodies(9))
    hubs.capture(hub)
    hubs.trim(hub, 0, 9)
    for file in hubs.files(hub):
        moved = tmp_path / file.relative_to(hubs.folder)
        moved.parent.mkdir(parents=True, exist_ok=True)
        file.rename(moved)

    assert texts(read_batch(hubs, hub, capture=tmp_path.as_uri())) == numbered(9)
    assert texts(read_batch(hubs, hub, capture=str(tmp_path))) == numbered(9)


def test_hub_without_a_destination_is_refused(hubs: CapturedHubs) -> None:
    """`auto` must not read only the log."""
    with pytest.raises(NoCapturedFiles, match="no capture destination"):
        read_batch(hubs, hubs.new())


def test_location_that_cannot_be_read_is_refused(hubs: CapturedHubs) -> None:
    """The error lists the supported forms."""
    with pytest.raises(InvalidOption, match="file:///folder"):
        read_batch(hubs, hubs.new(), capture="ftp://somewhere")


def test_missing_folder_is_refused(hubs: CapturedHubs, tmp_path: Path) -> None:
    """A disk that is not mounted must not look like a history without files."""
    hub = hubs.new_captured()
    hubs.publish(hub, 0, bodies(9))
    hubs.capture(hub)
    hubs.trim(hub, 0, 9)
    hubs.publish(hub, 0, bodies(5, "new"))

    for fails in ("true", "false"):
        with pytest.raises(DestinationFailed, match="nowhere is not a folder of this machine"):
            read_batch(hubs, hub, capture=str(tmp_path / "nowhere"), failOnDataLoss=fails)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_file_that_ends_early_is_named(hubs: CapturedHubs, encoding: str) -> None:
    """Whatever the library for the format raises, the error says which file it is."""
    hub = hubs.new_captured(encoding=encoding)
    hubs.publish(hub, 0, bodies(1000))
    hubs.capture(hub)
    hubs.trim(hub, 0, 1000)
    (file,) = (each for each in hubs.files(hub) if each.suffix in (".avro", ".parquet"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    with pytest.raises(DestinationFailed, match=rf"{file.name}.* is damaged"):
        read_batch(hubs, hub)


def test_starting_positions_may_be_in_files_or_in_the_log(hubs: CapturedHubs) -> None:
    """They are sequence numbers, offsets and times, before and after the start of the log."""
    hub = hubs.new_captured()
    for run in range(4):
        hubs.publish(hub, 0, bodies(10, f"{run}"), bodies(10, f"{run} again"))
        time.sleep(0.005)
        hubs.capture(hub)
    hubs.publish(hub, 0, bodies(10, "new"))
    every = read_batch(hubs, hub)
    hubs.trim(hub, 0, 55)

    for number in (0, 1, 9, 10, 25, 54, 55, 56, 79, 85):
        row = every[number]
        by_sequence = read_batch(hubs, hub, startingPosition=position(seqNo=number))
        by_offset = read_batch(hubs, hub, startingPosition=position(offset=row["offset"]))
        behind = read_batch(hubs, hub, startingPosition=position(offset=row["offset"], isInclusive=False))
        by_time = read_batch(hubs, hub, startingPosition=position(enqueuedTime=row["enqueuedTime"].isoformat()))
        first_of_time = next(each for each in every if each["enqueuedTime"] >= row["enqueuedTime"])
        assert by_sequence == by_offset == every[number:]
        assert behind == every[number + 1 :]
        assert by_time == every[first_of_time["sequenceNumber"] :]
    up_to = read_batch(hubs, hub, endingPosition=position(seqNo=30))
    assert up_to == every[:30]


@pytest.mark.parametrize("encoding", ["Avro", "Parquet"])
def test_positions_are_found_beside_empty_windows(hubs: CapturedHubs, encoding: str) -> None:
    """Capture writes files without events, unless its setting is to skip them."""
    hub = hubs.new_captured(encoding=encoding)
    for run in range(3):
        hubs.publish(hub, 0, bodies(10, f"{run}"))
        time.sleep(0.005)
    every = read_batch(hubs, hub)
    hubs.write_windows(hub, [(0, 0), (0, 0), (0, 10), (10, 10), (10, 10), (10, 20), (20, 20), (20, 30), (30, 30)])

    for first in (1, 10, 15, 30):
        hubs.trim(hub, 0, first)
        assert read_batch(hubs, hub) == every
        for number in (0, 4, 9, 10, 14, 20, 29):
            row = every[number]
            by_time = read_batch(hubs, hub, startingPosition=position(enqueuedTime=row["enqueuedTime"].isoformat()))
            assert read_batch(hubs, hub, startingPosition=position(offset=row["offset"])) == every[number:]
            assert by_time == every[number // 10 * 10 :]


@pytest.mark.parametrize(("first", "then"), [(20, 30), (40, 40)])
def test_time_is_found_in_files_while_the_log_changes(
    hubs: CapturedHubs, monkeypatch: pytest.MonkeyPatch, first: int, then: int
) -> None:
    """Retention deletes, or events arrive in an empty log, between two requests."""
    hub = hubs.new_captured()
    for run in range(4):
        hubs.publish(hub, 0, bodies(10, f"{run}"))
        time.sleep(0.005)
        hubs.capture(hub)
    every = read_batch(hubs, hub)
    hubs.trim(hub, 0, first)
    first_at = HubReader.first_at
    changes = iter([True])

    def change_behind(self: HubReader, times_ms: dict[int, int]) -> dict[int, int | None]:
        found = first_at(self, times_ms)
        if next(changes, False):
            hubs.trim(hub, 0, then)
            hubs.publish(hub, 0, bodies(5, "new"))
        return found

    reader = HistoryReader(hubs.client, hub, CapturedFiles(hubs.location(hub), hubs.reader(hub).describe().id))
    monkeypatch.setattr(HubReader, "first_at", change_behind)
    assert reader.first_at({0: instant_ms(every[10]["enqueuedTime"])}) == {0: 10}


@pytest.mark.parametrize("first", [0, 5, 10])
def test_filters_keep_events_whose_times_are_not_in_order(hubs: CapturedHubs, first: int) -> None:
    """Producers give the times of a hub with CreateTime."""
    hub = hubs.new_captured()
    set_config(hubs, hub, {"message.timestamp.type": "CreateTime"})
    base_ms = int(time.time() * 1000) - 100_000
    producer = Producer(hubs.node.kafka_config())
    for at in (0, 5, 2, 9, 1, 3, 8, 7, 4, 6):
        producer.produce(hub, str(at), partition=0, timestamp=base_ms + at * 1000)
        assert producer.flush(PATIENCE_S) == 0
        if at in (9, 8):
            hubs.capture(hub)
    hubs.capture(hub)
    every = read_batch(hubs, hub)
    hubs.trim(hub, 0, first)

    for low, high in ((0, 2), (0, 6), (2, 2), (3, 7), (4, 8), (9, 9)):
        start, end = (datetime.fromtimestamp(base_ms / 1000 + at, UTC) for at in (low, high))
        found = read_batch(
            hubs, hub, [GreaterThanOrEqual(("enqueuedTime",), start), LessThanOrEqual(("enqueuedTime",), end)]
        )
        expected = [row for row in every if low <= int(row["body"]) <= high]
        assert [row for row in found if start <= row["enqueuedTime"] <= end] == expected


def test_filters_select_files(hubs: CapturedHubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of times or numbers opens only the files that contain it."""
    hub = hubs.new_captured()
    for run in range(8):
        hubs.publish(hub, 0, bodies(10, f"{run}"))
        time.sleep(0.005)
        hubs.capture(hub)
    every = read_batch(hubs, hub)
    hubs.trim(hub, 0, 80)
    low, high = every[30]["enqueuedTime"], every[40]["enqueuedTime"]
    opened: list[str] = []
    monkeypatch.setattr("hubmere.pipeline.history.hub.read_rows", record_reads(opened))

    by_time = read_batch(hubs, hub, [GreaterThanOrEqual(("enqueuedTime",), low), LessThan(("enqueuedTime",), high)])
    by_number = read_batch(hubs, hub, [EqualTo(("sequenceNumber",), 42)])

    # A time is rounded outwards to the next millisecond.
    assert every[30:40] == [row for row in by_time if row["enqueuedTime"] < high]
    assert by_number == [every[42]]
    assert len(set(opened)) < 8


def record_reads(opened: list[str]) -> Any:
    from hubmere.pipeline.history.rows import read_rows

    def read(name: str, *rest: Any) -> Any:
        opened.append(name)
        return read_rows(name, *rest)

    return read


def test_events_in_no_file_and_not_in_the_log_are_reported(
    hubs: CapturedHubs, caplog: pytest.LogCaptureFixture
) -> None:
    """Capture was disabled for a while, and retention has deleted those events."""
    hub = hubs.new_captured()
    hubs.publish(hub, 0, bodies(10))
    hubs.capture(hub)
    hubs.enable(hub, 1, enabled=False)
    hubs.publish(hub, 0, bodies(10, "unseen"))
    hubs.enable(hub, 1)
    hubs.publish(hub, 0, bodies(10, "seen"))
    hubs._reached.pop(hub)
    hubs.capture(hub)
    hubs.trim(hub, 0, 25)

    with pytest.raises(DataLost, match="partition 0: 10 to 19"):
        read_batch(hubs, hub)
    assert texts(read_batch(hubs, hub, failOnDataLoss="false")) == numbered(10) + numbered(10, "seen")
    assert "partition 0: 10 to 19" in caplog.text


def test_events_of_a_deleted_file_are_reported(hubs: CapturedHubs) -> None:
    """At the beginning the history is shorter; in the middle there is a gap."""
    hub = hubs.new_captured()
    for run in range(4):
        hubs.publish(hub, 0, bodies(10, f"{run}"))
        hubs.capture(hub)
    hubs.trim(hub, 0, 40)
    first, _, third, _ = hubs.files(hub)
    first.unlink()
    assert texts(read_batch(hubs, hub)) == numbered(10, "1") + numbered(10, "2") + numbered(10, "3")

    third.unlink()
    with pytest.raises(DataLost, match="partition 0: 20 to 29"):
        read_batch(hubs, hub)


def test_files_of_a_deleted_hub_are_not_those_of_the_new_one(hubs: CapturedHubs) -> None:
    """Names are the same and sequence numbers start again; the id of the hub in each file distinguishes them."""
    hub = hubs.new_captured()
    hubs.publish(hub, 0, bodies(10, "old"))
    hubs.capture(hub)
    hubs.make_again(hub, partitions=1)
    hubs.enable(hub, 1)
    hubs._reached.pop(hub)
    hubs.publish(hub, 0, bodies(10, "new"))
    time.sleep(1.1)
    hubs.capture(hub)
    hubs.trim(hub, 0, 10)

    assert len(hubs.files(hub)) == 2
    assert texts(read_batch(hubs, hub)) == numbered(10, "new")


# --- streams ---


@pytest.fixture
def stream(hubs: CapturedHubs) -> Iterator["Streams"]:
    streams = Streams(hubs)
    yield streams
    streams.stop()


class Streams:
    """Creates stream readers with history, and stops them as Spark does when a query ends."""

    def __init__(self, hubs: CapturedHubs) -> None:
        self._hubs = hubs
        self._made: list[HubStreamReader] = []

    def __call__(self, hub: str, **options: str) -> HubStreamReader:
        given = read_options(conf(self._hubs, hub, capture="auto", **options))
        self._made.append(HubStreamReader(given, SCHEMA))
        return self._made[-1]

    def stop(self) -> None:
        for reader in self._made:
            reader.stop()


def read_micro_batch(reader: HubStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    found: list[Row] = []
    for task in reader.partitions(start, end):
        copy, task = pickle.loads(pickle.dumps((reader, task)))
        found += rows(copy.read(task))
    return found


def test_stream_moves_from_files_to_the_log_while_retention_deletes(hubs: CapturedHubs, stream: Streams) -> None:
    """At each micro-batch the log begins at another event, also between planning and reading."""
    hub = hubs.new_captured()
    hubs.publish(hub, 0, *(bodies(10, f"{part}") for part in range(10)))
    hubs.capture(hub)
    hubs.trim(hub, 0, 20)
    reader = stream(hub, maxEventsPerTrigger="15")
    offset, limit = reader.initialOffset(), reader.getDefaultReadLimit()

    found: list[Row] = []
    sizes: list[int] = []
    trimmed = 20
    while (reached := reader.latestOffset(offset, limit)) != offset:
        tasks = reader.partitions(offset, reached)
        trimmed = min(trimmed + 13, 100)
        hubs.trim(hub, 0, trimmed)
        micro_batch = [row for task in tasks for row in rows(reader.read(task))]
        sizes.append(len(micro_batch))
        found += micro_batch
        offset = reached
    hubs.publish(hub, 0, bodies(5, "live"))
    reached = reader.latestOffset(offset, limit)
    found += read_micro_batch(reader, offset, reached)

    assert [row["sequenceNumber"] for row in found] == list(range(105))
    assert texts(found)[:100] == [body for part in range(10) for body in numbered(10, f"{part}")]
    assert sizes == [15] * 6 + [10]


def test_byte_limit_of_a_trigger_applies_to_files_too(hubs: CapturedHubs, stream: Streams) -> None:
    """In files their size counts, in the log its bytes."""
    hub = hubs.new_captured()
    hubs.publish(hub, 0, *([b"%d " % part + b"x" * 1000] * 10 for part in range(10)))
    hubs.capture(hub)
    hubs.trim(hub, 0, 50)
    reader = stream(hub, maxBytesPerTrigger="25000")
    offset, sizes = reader.initialOffset(), []

    while (reached := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        sizes.append(len(read_micro_batch(reader, offset, reached)))
        offset = reached

    assert sum(sizes) == 100
    assert max(sizes) <= 25
    assert len(sizes) <= 7


def test_events_of_one_task_come_from_files_and_log(hubs: CapturedHubs, stream: Streams) -> None:
    """A range may include the start of the log; the start is determined when the task runs."""
    hub = hubs.new_captured(partitions=2)
    hubs.publish(hub, 0, bodies(30))
    hubs.publish(hub, 1, bodies(30))
    hubs.capture(hub)
    hubs.trim(hub, 0, 11)
    reader = stream(hub)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())

    (task,) = reader.partitions(start, end)
    assert isinstance(task, RangesPartition)
    hubs.trim(hub, 1, 30)

    assert texts(rows(reader.read(task))) == numbered(30) * 2


def test_recreated_hub_stops_the_stream(hubs: CapturedHubs, stream: Streams) -> None:
    """Files of the old hub still exist, but are not the history of the new one."""
    hub = hubs.new_captured()
    hubs.publish(hub, 0, bodies(10, "old"))
    hubs.capture(hub)
    reader = stream(hub)
    start = reader.initialOffset()
    hubs.make_again(hub, partitions=1)
    hubs.enable(hub, 1)
    hubs.publish(hub, 0, bodies(3, "new"))

    with pytest.raises(HubRecreated):
        stream(hub).latestOffset(start, ReadAllAvailable())


def test_time_before_all_events_is_the_beginning_of_the_files(hubs: CapturedHubs, stream: Streams) -> None:
    """The time is years ago; a time in the future is the end."""
    hub = hubs.new_captured()
    hubs.publish(hub, 0, bodies(10))
    hubs.capture(hub)
    hubs.trim(hub, 0, 10)
    old, future = "2001-01-01T00:00:00Z", datetime.fromtimestamp(time.time() + 9999, UTC).isoformat()

    assert stream(hub, startingPosition=position(enqueuedTime=old)).initialOffset()[hub] == {"0": 0}
    assert stream(hub, startingPosition=position(enqueuedTime=future)).initialOffset()[hub] == {"0": 10}
    assert stream(hub, startingPosition="latest").initialOffset()[hub] == {"0": 10}
