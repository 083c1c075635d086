"""The Spark writer: rows become events; a repeated task or query writes none of them twice.

A task gathers rows into record batches for each partition, and batches into segments. A segment's producer id is
derived from its writer (query, epoch and task), its number and its bytes. So the partition's log drops a repeat of the
same rows, and different rows are never taken for a repeat: delivery is exactly once for rows that are the same when
they are computed again, and at least once otherwise.

1. A task writes every full segment as soon as it is full.
2. When its rows end, the last segment may be incomplete: if the computation of the rows fails, Spark ends the input of
   the writer as if it were complete. So the task writes the last segment only when Spark has marked its input as
   complete (`worker_files`).
3. Without such a mark, the last segment is sent to the driver, whose commit writes it. Its size is bounded,
   but all of them together must fit `spark.driver.maxResultSize`; with the mark a task sends a few bytes.

Events that a failed job has written are not removed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from hubmere.client.connection import Client
from hubmere.client.consumer import HubReader
from hubmere.client.pool import pooled_client
from hubmere.client.producer import HubProducer, producer_id_of
from hubmere.model.extras import missing_for_spark
from hubmere.pipeline.encode import RowGroup, Spread, UnwritableRows, group_rows, new_segment, writable_columns
from hubmere.pipeline.options import Options
from hubmere.pipeline.ranges import settle
from hubmere.pipeline.worker_files import is_input_complete
from hubmere.records.header import HEADER_BYTES

try:
    from xxhash import xxh3_128
except ModuleNotFoundError as missing:
    raise ImportError(missing_for_spark("xxhash")) from missing

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 passes rows instead of Arrow batches
    from pyspark.sql.datasource import (  # type: ignore[assignment]
        DataSourceStreamWriter as DataSourceStreamArrowWriter,
    )

# What a task buffers before it writes: small enough for a worker's memory, large enough that logs do not have to track
# many producers.
SEGMENT_BYTES: Final = 4 * 1024 * 1024
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
# Partition and size, before the records of a batch in what identifies a segment.
_BATCH_START: Final = Struct(">IQ")


@dataclass
class Gathered(WriterCommitMessage):
    """Result of one task: the number of events, and its last segment if the driver has to write it."""

    events: int
    name: str = ""
    batches: list[tuple[int, bytearray]] = field(default_factory=list)


def write_rows(
    options: Options, writer: str, groups: Iterable[RowGroup], is_complete: Callable[[], bool] = is_input_complete
) -> Gathered:
    """Write one task's rows; the last segment is left to the driver unless the rows are known to be complete."""
    settle()
    with pooled_client(options.account) as client:
        count = HubReader(client, options.hub).partition_count()
        # Rows without partition are distributed in turn; tasks start at different partitions.
        spread = Spread(count, producer_id_of([writer.encode()]) % count)
        events = number = 0
        output = _Output(client, options.hub)
        segment = new_segment(_now_ms())
        for group in groups:
            while moved := group.move_to(segment, spread, SEGMENT_BYTES):
                events += moved
                if segment.size_bytes >= SEGMENT_BYTES:
                    output.send(f"{writer}/{number}", segment.close_all())
                    segment, number = new_segment(_now_ms()), number + 1
        name, batches = f"{writer}/{number}", segment.close_all()
        is_last_written = is_complete()
        if is_last_written:
            output.send(name, batches)
        output.flush()
        return Gathered(events) if is_last_written else Gathered(events, name, batches)


def write_last_segments(options: Options, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Write the segments that the tasks have left; returns when they are on disk."""
    left = [message for message in messages if isinstance(message, Gathered) and message.batches]
    if left:
        with Client(options.account) as client:
            output = _Output(client, options.hub)
            for message in left:
                output.send(message.name, message.batches)
            output.flush()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Output:
    """Writes segments one after another. The next one is encoded while the node stores the one before."""

    def __init__(self, client: Client, hub: str) -> None:
        self._client = client
        self._hub = hub
        self._producer: HubProducer | None = None

    def send(self, name: str, batches: list[tuple[int, bytearray]]) -> None:
        """Send a segment when the one before is on disk, so that events keep their order."""
        producer_id = producer_id_of([name.encode(), _digest(batches)])
        self.flush()
        self._producer = HubProducer(self._client, self._hub, producer_id)
        self._producer.send_all(batches)

    def flush(self) -> None:
        """Wait until everything that was sent is on disk."""
        if self._producer is not None:
            self._producer.flush()


def _digest(batches: Iterable[tuple[int, bytearray]]) -> bytes:
    """Identifies the content of a segment: the records of each batch, and their partition.

    The header has the time of this attempt; the records after it are the same for the same rows. The hash need not be
    cryptographic: it only tells rows of one task from other rows of the same task.
    """
    digest = xxh3_128()
    for partition, batch in batches:
        digest.update(_BATCH_START.pack(partition, len(batch)))
        digest.update(memoryview(batch)[HEADER_BYTES:])
    return digest.digest()


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
        return write_rows(self._options, writer, group_rows(iterator, self._columns))

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
        return write_rows(self._options, writer, group_rows(iterator, self._columns))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """All tasks of a micro-batch have succeeded."""
        write_last_segments(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Nothing to undo: the repeat of the micro-batch adds what is missing."""


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "writers write inside tasks"
    return task
