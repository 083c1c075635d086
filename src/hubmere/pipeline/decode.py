"""Decodes record batches to Arrow columns: the rows of `format("eventhubs")`, in bulk.

Takes batches as they were fetched and gives Arrow record batches with the requested columns in the requested order.
Control batches, aborted transactions and events outside the range are skipped; a batch whose records cannot be decoded
is skipped with a warning. `Columns` is the inner loop; `_decode.pyx` has a compiled version of it, which gives the same
arrays and is used if it was built.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

import pyarrow as pa

from hubmere.client.consumer import UNKNOWN_POSITION, Fetched
from hubmere.records import kernels
from hubmere.records.header import HEADER_BYTES, BatchHeader
from hubmere.records.records import read_marker
from hubmere.translate.columns import BARE, Headers, Row, row_of
from hubmere.translate.deliver import batches_from
from hubmere.translate.slices import uncompressed_records

log = logging.getLogger("hubmere.spark")

_MAP: Final = pa.map_(pa.string(), pa.string())

# The columns of Microsoft's connector with their Arrow types, exactly as Spark expects them (reference: service 10).
SCHEMA: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("partition", pa.string()),
        ("offset", pa.string()),
        ("sequenceNumber", pa.int64()),
        ("enqueuedTime", pa.timestamp("us", tz="UTC")),
        ("publisher", pa.string()),
        ("partitionKey", pa.string()),
        ("properties", _MAP),
        ("systemProperties", _MAP),
    ]
)
# Columns that need a record's key and headers.
FROM_HEADERS: Final = frozenset({"publisher", "partitionKey", "properties", "systemProperties"})
# Uncompressed records that are collected into one Arrow batch: far below the 2 GiB that its offsets can address, since
# one more batch of at most 64 MiB may follow.
MAX_OPENED_BYTES: Final = 64 * 1024 * 1024
# The largest number of milliseconds whose microseconds fit 64 bits.
_MOST_MS: Final = 0x7FFF_FFFF_FFFF_FFFF // 1000

Record = tuple[int, int, bytes | None, bytes | None, Headers]
# Uncompressed records: a whole batch that is not compressed, or the decompressed records of one that is.
Opened = bytes | memoryview
# A batch as it was fetched: its header, its offset and its bytes.
ClosedBatch = tuple[BatchHeader, int, memoryview]


class Columns:
    """The requested columns, filled batch by batch. Times are in microseconds.

    `expected_bytes` is about the size of all bodies, for the compiled twin.
    """

    def __init__(self, partition: str, wanted: Collection[str], expected_bytes: int = 0) -> None:
        self._partition = partition
        self._wants_rows = not FROM_HEADERS.isdisjoint(wanted)
        self._bodies: list[bytes | None] = []
        self._sequences: list[int] = []
        self._offsets: list[str] = []
        self._times_us: list[int] = []
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def add(self, header: BatchHeader, position: int, opened: Opened, at: int, low: int, high: int) -> None:
        """Add the events of a batch with deltas from `low` up to, not including, `high`; adds nothing if it raises.

        `opened` has the uncompressed records from `at` on; `position` is the offset of the batch. Raises Malformed.
        """
        records: Sequence[Record] = kernels.read_records(bytes(opened), at, header.record_count)
        check_deltas(records, header.last_delta)
        if low > 0 or high <= header.last_delta:
            records = events_between(records, low, high)
        base = header.base_sequence_number
        self._bodies += [value for _, _, _, value, _ in records]
        self._sequences += [base + delta for _, delta, _, _, _ in records]
        if position == UNKNOWN_POSITION:
            self._offsets += [str(base + delta) for _, delta, _, _, _ in records]
        else:
            # model.offsets.spread_offset, without a call for each event.
            size_bytes, count = header.size_bytes, header.last_delta + 1
            self._offsets += [str(position + delta * size_bytes // count) for _, delta, _, _, _ in records]
        if header.is_append_time:
            self._times_us += [microseconds(header.max_time_ms)] * len(records)
        else:
            base_ms = header.base_time_ms
            self._times_us += [microseconds(base_ms + time_delta) for time_delta, _, _, _, _ in records]
        if self._wants_rows:
            self._rows += [
                BARE if key is None and not headers else row_of(key, value, headers)
                for _, _, key, value, headers in records
            ]

    def add_event(self, body: bytes | None, sequence: int, offset: str, time_us: int, row: Row) -> None:
        """Add one event that was read elsewhere than in a batch of the log."""
        self._bodies.append(body)
        self._sequences.append(sequence)
        self._offsets.append(offset)
        self._times_us.append(time_us)
        self._rows.append(row)

    def build(self, schema: pa.Schema) -> pa.RecordBatch:
        """The columns of a schema, in its order."""
        return pa.RecordBatch.from_arrays([_BUILDERS[name](self) for name in schema.names], schema=schema)


def microseconds(time_ms: int) -> int:
    """A time in microseconds, limited to 64 bits: a producer may write any time."""
    return min(max(time_ms, -_MOST_MS), _MOST_MS) * 1000


def check_deltas(records: Sequence[Record], last_delta: int) -> None:
    """Raise Malformed unless sequence numbers increase (with gaps after compaction) and stay inside their batch."""
    deltas = [delta for _, delta, _, _, _ in records]
    if deltas and (deltas[0] < 0 or deltas[-1] > last_delta):
        raise kernels.Malformed("an offset delta is outside its batch")
    if any(later <= earlier for earlier, later in pairwise(deltas)):
        raise kernels.Malformed("offset deltas do not increase")


def events_between(records: Sequence[Record], low: int, high: int) -> Sequence[Record]:
    deltas = [delta for _, delta, _, _, _ in records]
    return records[bisect_left(deltas, low) : bisect_left(deltas, high)]


def _texts(texts: list[str | None]) -> pa.Array:
    return pa.array(texts, pa.string())


def _maps(maps: list[dict[str, str]]) -> pa.Array:
    ends = [0]
    names: list[str] = []
    values: list[str] = []
    for each in maps:
        if each:
            names += each
            values += each.values()
        ends.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )


_BUILDERS: Final[Mapping[str, Callable[[Columns], pa.Array]]] = {
    "body": lambda columns: pa.array(columns._bodies, pa.binary()),
    "partition": lambda columns: pa.repeat(pa.scalar(columns._partition, pa.string()), len(columns)),
    "offset": lambda columns: pa.array(columns._offsets, pa.string()),
    "sequenceNumber": lambda columns: pa.array(columns._sequences, pa.int64()),
    "enqueuedTime": lambda columns: pa.array(columns._times_us, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
    "publisher": lambda columns: _texts([row.publisher for row in columns._rows]),
    "partitionKey": lambda columns: _texts([row.partition_key for row in columns._rows]),
    "properties": lambda columns: _maps([row.properties for row in columns._rows]),
    "systemProperties": lambda columns: _maps([row.system_properties for row in columns._rows]),
}


def _find_compiled() -> Any:
    """The compiled twin of `Columns`, or None if it was not built."""
    try:
        from hubmere.pipeline import _decode  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _decode.Columns


columns_of_twin: Final[Callable[[str, Collection[str], int], Columns]] = _find_compiled() or Columns


def decode(
    fetched: Fetched,
    partition: int,
    start: int,
    end: int,
    schema: pa.Schema = SCHEMA,
    *,
    columns_of: Callable[[str, Collection[str], int], Columns] = columns_of_twin,
) -> Iterator[pa.RecordBatch]:
    """The events from `start` up to, not including, `end`; nothing if the batches have none of them."""
    expected_bytes = min(len(fetched.data), MAX_OPENED_BYTES)
    columns, opened_bytes = columns_of(str(partition), schema.names, expected_bytes), 0
    for batch in visible_batches(fetched, start, end):
        opened_bytes += add_batch(columns, batch, partition, start, end)
        if opened_bytes >= MAX_OPENED_BYTES:
            yield columns.build(schema)
            columns, opened_bytes = columns_of(str(partition), schema.names, expected_bytes), 0
    if len(columns):
        yield columns.build(schema)


class Gatherer(Protocol):
    """Collects the events of one batch after another."""

    def add(self, header: BatchHeader, position: int, opened: Opened, at: int, low: int, high: int) -> None:
        """See `Columns.add`."""


def add_batch(gatherer: Gatherer, batch: ClosedBatch, partition: int, start: int, end: int) -> int:
    """Decode a batch and collect its events in the range; returns its uncompressed bytes, 0 if it was skipped."""
    header, position, closed = batch
    base = header.base_sequence_number
    # Uncompressed records are read in place: copying would cost a tenth of the time of a large event.
    opened = uncompressed_records(header, closed) if header.codec else (closed, HEADER_BYTES)
    try:
        if opened is None:
            raise kernels.Malformed("records do not decompress")
        gatherer.add(header, position, opened[0], opened[1], start - base, end - base)
    except kernels.Malformed as why:
        last = header.next_sequence_number - 1
        log.warning("partition %d: skipping the batch with sequence numbers %d to %d: %s", partition, base, last, why)
        return 0
    return len(opened[0])


def visible_batches(fetched: Fetched, start: int, end: int) -> Iterator[ClosedBatch]:
    """The batches with events of the range that readers see, each with its offset."""
    aborted = AbortedTransactions(fetched.aborted)
    has_positions = fetched.position != UNKNOWN_POSITION
    # Without offsets the positions are not used, so any start will do.
    for header, offset, closed in batches_from(fetched.data, fetched.position if has_positions else 0, 0):
        if header.is_control:
            aborted.on_control_batch(header, closed)
        elif header.base_sequence_number >= end:
            return
        elif not aborted.covers(header) and header.next_sequence_number > start:
            yield header, offset if has_positions else UNKNOWN_POSITION, closed


class AbortedTransactions:
    """Finds the batches of one response that belong to aborted transactions (Kafka's rule for `read_committed`).

    An aborted transaction begins at the sequence number that the response names, and ends with its marker.
    """

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._waiting = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
        self._producers: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        self._advance(header)
        return header.is_transactional and header.producer_id in self._producers

    def on_control_batch(self, header: BatchHeader, closed: memoryview) -> None:
        """The marker of an abort ends the transaction of its producer."""
        self._advance(header)
        if header.producer_id not in self._producers:
            return
        marker = read_marker(closed)
        if marker is not None and not marker.is_commit:
            self._producers.discard(header.producer_id)

    def _advance(self, header: BatchHeader) -> None:
        while self._waiting and self._waiting[-1][1] <= header.base_sequence_number:
            self._producers.add(self._waiting.pop()[0])
