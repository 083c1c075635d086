"""The Spark writer: rows become events; a repeated task or query writes none of them twice.

A task gathers rows into record batches for each partition, and batches into segments. A segment's producer id is
derived from its writer (query, epoch and task), its number and its bytes. So the partition's log drops a repeat of the
same rows, and different rows are never taken for a repeat: delivery is exactly once for rows that are the same when
they are computed again, and at least once otherwise.

1. A task writes every full segment as soon as it is full.
2. When its rows end, the last segment may be incomplete: if the computation of the rows fails, Spark ends the input of
   the writer as if it were complete. So the task writes the last segment only when Spark has marked its input as
   complete (`task_input`).
3. Without such a mark, the last segment is sent to the driver, whose commit writes it. Its size is bounded,
   but all of them together must fit `spark.driver.maxResultSize`; with the mark a task sends a few bytes.

Events that a failed job has written are not removed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from hubmere.client.connection import Client
from hubmere.client.consumer import HubReader
from hubmere.client.producer import HubProducer, Record, encode_batch, producer_id_of
from hubmere.model.keys import check_partition_key, partition_of_key
from hubmere.pipeline.options import Options
from hubmere.pipeline.task_input import is_input_complete
from hubmere.records.header import HEADER_BYTES
from hubmere.translate.columns import record_of

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 passes rows instead of Arrow batches
    from pyspark.sql.datasource import (  # type: ignore[assignment]
        DataSourceStreamWriter as DataSourceStreamArrowWriter,
    )

# A batch is a publication: below the 256 KB limit of the smallest tier.
BATCH_BYTES: Final = 240 * 1024
# What a task buffers before it writes: small enough for a worker's memory, large enough that logs do not have to track
# many producers.
SEGMENT_BYTES: Final = 4 * 1024 * 1024
# Overhead of a record besides its key, value and headers.
_RECORD_BYTES: Final = 16
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"

_BODY_TYPES: Final = ("string", "binary")
# Columns and their allowed types; `partition` and `partitionId` mean the same.
_OPTIONAL: Final = {
    "partitionKey": ("string",),
    "partition": ("string", "int", "bigint"),
    "partitionId": ("string", "int", "bigint"),
    "properties": ("map<string,string>",),
}


class UnwritableRows(ValueError):
    """Rows that cannot be written as events."""


class Row(NamedTuple):
    """One row to write."""

    body: bytes | None
    partition_key: str | None
    partition: int | None
    properties: tuple[tuple[str, str | None], ...]


@dataclass
class Gathered(WriterCommitMessage):
    """Result of one task: the number of events, and its last segment if the driver has to write it."""

    events: int
    name: str = ""
    batches: list[tuple[int, bytearray]] = field(default_factory=list)


def writable_columns(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema that are written; others are ignored, as in Microsoft's connector."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if types.get("body") not in _BODY_TYPES:
        raise UnwritableRows("a column 'body' of type string or binary is needed")
    for name, allowed in _OPTIONAL.items():
        if name in types and types[name] not in allowed:
            raise UnwritableRows(f"column '{name}' is of type {types[name]}; {' or '.join(allowed)} is needed")
    return ("body", *(name for name in _OPTIONAL if name in types))


# --- rows ------------------------------------------------------------------------------------------------------------


def read_rows(batches: Iterable[Any], columns: tuple[str, ...]) -> Iterator[Row]:
    """The rows of Arrow record batches, or Spark's own rows."""
    for batch in batches:
        if isinstance(batch, pa.RecordBatch):
            values = [batch.column(name).to_pylist() for name in columns]
            for row in zip(*values, strict=True):
                yield _row(dict(zip(columns, row, strict=True)))
        else:
            yield _row({name: batch[name] for name in columns})


def _row(values: dict[str, Any]) -> Row:
    body = values["body"]
    key = values.get("partitionKey")
    check_partition_key(key)
    named = values.get("partition")
    partition = named if named is not None else values.get("partitionId")
    if key is not None and partition is not None:
        raise UnwritableRows(f"a row has both a partition ('{partition}') and a partition key ('{key}')")
    properties = values.get("properties") or ()
    return Row(
        body.encode() if isinstance(body, str) else None if body is None else bytes(body),
        key,
        None if partition is None else _partition_number(partition),
        tuple(properties.items() if isinstance(properties, dict) else properties),
    )


def _partition_number(value: object) -> int:
    text = str(value)
    if not text.isdecimal():
        raise UnwritableRows(f"'{text}' is not a partition")
    return int(text)


# --- rows to batches to segments -------------------------------------------------------------------------------------


class _Lane:
    """The events of one partition that are not in a batch yet."""

    __slots__ = ("records", "size_bytes")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.size_bytes = 0


class Segment:
    """Batches for the partitions of a hub, in the order in which they will be written."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._lanes: dict[int, _Lane] = {}
        self._batches: list[tuple[int, bytearray]] = []
        self.size_bytes = 0

    def add(self, partition: int, row: Row) -> None:
        """Append an event to its partition."""
        lane = self._lanes.setdefault(partition, _Lane())
        record = record_of(len(lane.records), row.body, row.partition_key, row.properties)
        size_bytes = _size_of(record)
        if lane.records and lane.size_bytes + size_bytes > BATCH_BYTES:
            self._close(partition)
            lane = self._lanes[partition] = _Lane()
            record = record._replace(sequence_number=0)
        lane.records.append(record)
        lane.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def close_all(self) -> list[tuple[int, bytearray]]:
        """Close the open batches and return all batches."""
        for partition in sorted(self._lanes):
            self._close(partition)
        return self._batches

    def _close(self, partition: int) -> None:
        records = self._lanes.pop(partition).records
        # All records get the same time: their deltas are 0, and the same rows give the same bytes.
        self._batches.append((partition, encode_batch([record._replace(time_ms=self._now_ms) for record in records])))


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def write_rows(
    options: Options, writer: str, rows: Iterable[Row], is_complete: Callable[[], bool] = is_input_complete
) -> Gathered:
    """Write one task's rows; the last segment is left to the driver unless the rows are known to be complete."""
    with Client(options.account) as client:
        count = HubReader(client, options.hub).partition_count()
        # Rows without partition are distributed in turn; tasks start at different partitions.
        turn = producer_id_of([writer.encode()]) % count
        events = number = 0
        segment = Segment(_now_ms())
        for row in rows:
            partition, turn = _partition_of(row, count, turn)
            segment.add(partition, row)
            events += 1
            if segment.size_bytes >= SEGMENT_BYTES:
                _write_segment(client, options.hub, f"{writer}/{number}", segment.close_all())
                segment, number = Segment(_now_ms()), number + 1
        name, batches = f"{writer}/{number}", segment.close_all()
        if not is_complete():
            return Gathered(events, name, batches)
        _write_segment(client, options.hub, name, batches)
        return Gathered(events)


def write_last_segments(options: Options, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Write the segments that the tasks have left; returns when they are on disk."""
    left = [message for message in messages if isinstance(message, Gathered) and message.batches]
    if left:
        with Client(options.account) as client:
            for message in left:
                _write_segment(client, options.hub, message.name, message.batches)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _partition_of(row: Row, count: int, turn: int) -> tuple[int, int]:
    """The partition of a row, and the next partition in turn."""
    if row.partition is not None:
        if row.partition >= count:
            raise UnwritableRows(f"there is no partition {row.partition}; the hub has {count}")
        return row.partition, turn
    if row.partition_key is not None:
        return partition_of_key(row.partition_key, count), turn
    return turn, (turn + 1) % count


def _write_segment(client: Client, hub: str, name: str, batches: list[tuple[int, bytearray]]) -> None:
    parts = [name.encode()]
    for partition, batch in batches:
        # The header has the time of this attempt; the records after it are the same for the same rows.
        parts += (str(partition).encode(), bytes(memoryview(batch)[HEADER_BYTES:]))
    producer = HubProducer(client, hub, producer_id_of(parts))
    for partition, batch in batches:
        producer.send(partition, batch)
    producer.flush()


# --- called by Spark --------------------------------------------------------------------------------------------------


class HubBatchWriter(DataSourceArrowWriter):
    """Writes a batch. Created once per write and copied to its tasks, so that repeats have the same identity.

    A write with an id (`writeId`) is recognized when all of it is repeated, as `foreachBatch` does.
    """

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise UnwritableRows('events cannot be overwritten; use mode("append")')
        self._options = options
        self._columns = writable_columns(schema)
        self._name = options.write_id or uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task."""
        writer = f"{self._name}/{_task().partitionId()}"
        return write_rows(self._options, writer, read_rows(iterator, self._columns))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have succeeded."""
        write_last_segments(self._options, messages)


class HubStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream; the writer is identified by query id, micro-batch and task."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = writable_columns(schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task of one micro-batch."""
        task = _task()
        query, epoch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        assert query is not None, "every task of a stream has a query id"
        assert epoch is not None, "and its micro-batch"
        writer = f"{query}/{epoch}/{task.partitionId()}"
        return write_rows(self._options, writer, read_rows(iterator, self._columns))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """All tasks of a micro-batch have succeeded."""
        write_last_segments(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Nothing to undo: the repeat of the micro-batch adds what is missing."""


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "writers write inside tasks"
    return task
