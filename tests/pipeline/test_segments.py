"""The sink's tasks on a real node: rows become batches and segments, and repeats are stored once."""

import gc
import itertools
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from client.hubs import Hubs
from hubmere.client.connection import Account, Connection, KafkaAddress
from hubmere.model.errors import InvalidArgument
from hubmere.pipeline import ranges, sink
from hubmere.pipeline.encode import Row, RowGroup, Segment, UnwritableRows, read_rows, writable_columns
from hubmere.pipeline.options import read_options
from hubmere.pipeline.sink import write_last_segments, write_rows
from hubmere.records.records import decode_records
from hubmere.translate import EventView, events
from pipeline.queries import conf

KEYED = Row(b"keyed", "device", None, (("a", "1"),))


def plain(count: int, name: str = "row") -> list[Row]:
    return [Row(f"{name} {number}".encode(), None, None, ()) for number in range(count)]


def stored(hubs: Hubs, hub: str) -> list[EventView]:
    """All events of a hub, partition by partition."""
    reader = hubs.reader(hub)
    found = []
    for partition, (first, end) in reader.bounds(range(reader.partition_count())).items():
        for fetched in reader.read_range(partition, first, end):
            found += events(fetched.data, 0, first, 1_000_000)
    return found


def write(hubs: Hubs, hub: str, rows: Iterator[Row] | list[Row], writer: str = "query/0/0") -> int:
    """Write rows as a task and then the driver do."""
    options = read_options(conf(hubs, hub))
    gathered = write_rows(options, writer, [RowGroup(rows)])
    write_last_segments(options, [None, gathered])
    return gathered.events


def test_rows_are_distributed_by_partition_by_key_and_in_turn(hubs: Hubs) -> None:
    """A row has a named partition, or the partition of its key, or the next one in turn."""
    hub = hubs.new(partitions=4)
    named = [Row(b"named", None, 2, ())]

    written = write(hubs, hub, [*named, KEYED, KEYED, *plain(8)])

    bounds = hubs.reader(hub).bounds(range(4))
    assert written == 11
    assert sum(end for _, end in bounds.values()) == 11
    assert all(end >= 2 for _, end in bounds.values())
    keyed = [view for view in stored(hubs, hub) if view.body == b"keyed"]
    assert [(view.partition_key, view.properties["a"].value) for view in keyed] == [("device", "1")] * 2


def test_repeated_rows_are_not_stored_again(hubs: Hubs) -> None:
    """A task is retried, or the micro-batch of a restarted query is repeated."""
    hub = hubs.new(partitions=2)
    rows = [*plain(50), KEYED]
    write(hubs, hub, rows)

    write(hubs, hub, rows)

    assert len(stored(hubs, hub)) == 51


@pytest.mark.parametrize("other", ["query/1/0", "query/0/1", "other/0/0"])
def test_equal_rows_of_another_writer_are_stored(hubs: Hubs, other: str) -> None:
    """Another micro-batch, task or query may have equal rows."""
    hub = hubs.new(partitions=2)
    write(hubs, hub, plain(5), "query/0/0")

    write(hubs, hub, plain(5), other)

    assert len(stored(hubs, hub)) == 10


def test_task_that_dies_is_completed_by_its_repeat(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written segments are recognised, the others are added; no row is lost or duplicated."""
    hub = hubs.new(partitions=2)
    monkeypatch.setattr(sink, "SEGMENT_BYTES", 2_000)
    rows = plain(500)

    def dying() -> Iterator[Row]:
        yield from rows[:400]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        write(hubs, hub, dying())
    before = len(stored(hubs, hub))
    write(hubs, hub, rows)

    assert 0 < before < 500
    assert sorted(view.body or b"" for view in stored(hubs, hub)) == sorted(row.body or b"" for row in rows)


def test_rows_of_a_task_with_incomplete_input_are_not_duplicated(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark ends the input of a writer when an earlier step fails; the task ends, but is never committed."""
    hub = hubs.new(partitions=2)
    monkeypatch.setattr(sink, "SEGMENT_BYTES", 2_000)
    rows = plain(500)

    write_rows(read_options(conf(hubs, hub)), "query/0/0", [RowGroup(rows[:333])])
    write(hubs, hub, rows)

    assert len(stored(hubs, hub)) == 500


def test_task_with_complete_input_leaves_nothing_to_the_driver(hubs: Hubs) -> None:
    """Commit messages are task results, whose size Spark limits; it must not grow with the data."""
    hub = hubs.new(partitions=2)

    gathered = write_rows(read_options(conf(hubs, hub)), "query/0/0", [RowGroup(plain(50))], lambda: True)

    assert len(stored(hubs, hub)) == gathered.events == 50
    assert len(pickle.dumps(gathered)) < 256


def test_next_task_of_a_worker_writes_on_the_same_connection(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting and signing in takes longer than a small task."""
    hub = hubs.new(partitions=2)
    opened: list[Account] = []
    connect = Connection.open

    def counted(account: Account, address: KafkaAddress | None = None) -> Connection:
        opened.append(account)
        return connect(account, address)

    monkeypatch.setattr(Connection, "open", counted)
    options = read_options(conf(hubs, hub))
    for task in range(3):
        write_rows(options, f"query/0/{task}", [RowGroup(plain(50))], lambda: True)

    assert opened == [options.account]
    assert len(stored(hubs, hub)) == 150


def test_second_task_of_a_worker_exempts_modules_from_collection(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark collects garbage after every task, those that write too."""
    options = read_options(conf(hubs, hubs.new(partitions=2)))
    monkeypatch.setattr(ranges, "_tasks", itertools.count(1))
    gc.unfreeze()
    frozen = []
    try:
        for task in range(2):
            write_rows(options, f"query/0/{task}", [RowGroup(plain(5))], lambda: True)
            frozen.append(gc.get_freeze_count())
    finally:
        gc.unfreeze()

    assert frozen[0] == 0
    assert frozen[1] > 10_000


def test_concurrent_attempts_of_one_task_store_its_rows_once(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts a slow task a second time (speculation) and uses the attempt that ends first."""
    hub = hubs.new(partitions=2)
    monkeypatch.setattr(sink, "SEGMENT_BYTES", 2_000)
    options, rows = read_options(conf(hubs, hub)), plain(500)
    meeting = Barrier(4)

    def attempt() -> int:
        meeting.wait()
        return write_rows(options, "query/0/0", [RowGroup(rows)], lambda: True).events

    with ThreadPoolExecutor(4) as pool:
        attempts = [pool.submit(attempt) for _ in range(4)]

    assert [each.result() for each in attempts] == [500] * 4
    assert sorted(view.body or b"" for view in stored(hubs, hub)) == sorted(row.body or b"" for row in rows)


def test_rows_of_a_failed_attempt_are_not_duplicated_by_a_complete_one(
    hubs: Hubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt was incomplete and not committed; the second one is complete, but its executor is lost."""
    hub = hubs.new(partitions=2)
    monkeypatch.setattr(sink, "SEGMENT_BYTES", 2_000)
    options, rows = read_options(conf(hubs, hub)), plain(500)

    write_rows(options, "query/0/0", [RowGroup(rows[:333])], lambda: False)
    for _ in range(2):
        write_rows(options, "query/0/0", [RowGroup(rows)], lambda: True)

    assert len(stored(hubs, hub)) == 500


def test_rows_in_another_order_are_never_lost(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a fixed order a repeat may store rows twice, but must not drop any."""
    hub = hubs.new(partitions=2)
    monkeypatch.setattr(sink, "SEGMENT_BYTES", 2_000)
    rows = plain(300)
    write(hubs, hub, rows[:200])

    write(hubs, hub, rows[::-1])

    assert {view.body for view in stored(hubs, hub)} == {row.body for row in rows}


def test_batches_fit_the_smallest_tier() -> None:
    """The events of a partition are divided into publications; a larger event is published alone."""
    segment = Segment(0)
    for size in (100_000, 100_000, 100_000, 500_000, 10):
        segment.add(0, Row(bytes(size), None, None, ()))

    batches = [decode_records(batch) for _, batch in segment.close_all()]

    assert [[len(record.value or b"") for record in batch] for batch in batches] == [
        [100_000, 100_000],
        [100_000],
        [500_000],
        [10],
    ]
    assert all([record.sequence_number for record in batch] == list(range(len(batch))) for batch in batches)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"body": "x", "partition": "1", "partitionKey": "k"}, "both a partition"),
        ({"body": "x", "partition": "first"}, "not a partition"),
    ],
)
def test_row_with_a_contradicting_partition_is_refused(row: dict[str, str], why: str) -> None:
    """Microsoft's connector does the same."""
    with pytest.raises(UnwritableRows, match=why):
        list(read_rows([row], tuple(row)))


def test_unknown_partition_is_refused(hubs: Hubs) -> None:
    """The message has the number of partitions."""
    with pytest.raises(UnwritableRows, match="no partition 7; the hub has 2"):
        write(hubs, hubs.new(partitions=2), [Row(b"x", None, 7, ())])


def test_partition_key_that_is_too_long_is_refused() -> None:
    """The service's limit applies to every protocol."""
    with pytest.raises(InvalidArgument, match="partition key"):
        list(read_rows([{"body": "x", "partitionKey": "k" * 129}], ("body", "partitionKey")))


TEXT, MAP = StringType(), MapType(StringType(), StringType())


def a_schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        (a_schema(body=TEXT), ("body",)),
        (a_schema(other=IntegerType(), body=BinaryType(), partitionKey=TEXT), ("body", "partitionKey")),
        (a_schema(properties=MAP, partitionId=IntegerType(), body=TEXT), ("body", "partitionId", "properties")),
    ],
    ids=["body", "others", "all"],
)
def test_columns_of_an_event_are_accepted(schema: StructType, columns: tuple[str, ...]) -> None:
    """Other columns are not written."""
    assert writable_columns(schema) == columns


@pytest.mark.parametrize(
    "schema",
    [a_schema(text=TEXT), a_schema(body=IntegerType()), a_schema(body=TEXT, properties=TEXT)],
    ids=["no body", "number as body", "text as properties"],
)
def test_columns_without_an_event_are_refused(schema: StructType) -> None:
    """They are refused before the first row is computed."""
    with pytest.raises(UnwritableRows):
        writable_columns(schema)
