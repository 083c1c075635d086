"""Rows of the sink to record batches, in bulk.

Columns of an Arrow batch become Python values once, and the pieces of a record are joined once, when its batch is
closed. The bytes are those of `records.encode_batch` for the same records. `Segment` and `RowGroup` are the inner loop;
`_encode.pyx` has compiled versions, which give the same bytes and are used for Arrow batches if they were built.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from hubmere.model.keys import check_partition_key, partition_of_key
from hubmere.records.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER,
    UNSEALED,
    BatchHeader,
    write_header,
)
from hubmere.records.kernels.record_layout import DELTAS, KEYLESS, NULL, TABLE_SIZE, length_of, with_length
from hubmere.translate.columns import encode_headers

# A batch is a publication: below the 256 KB limit of the smallest tier.
BATCH_BYTES: Final = 240 * 1024
# Overhead of a record besides its key, value and headers.
_RECORD_BYTES: Final = 16
_NO_HEADERS: Final = b"\x00"

_BODY_TYPES: Final = ("string", "binary")
# Columns and their allowed types; `partition` and `partitionId` mean the same.
_OPTIONAL: Final = {
    "partitionKey": ("string",),
    "partition": ("string", "int", "bigint"),
    "partitionId": ("string", "int", "bigint"),
    "properties": ("map<string,string>",),
}

# Arrow types that the compiled encoder reads.
_USUAL_TYPES: Final[Mapping[str, tuple[pa.DataType, ...]]] = {
    "body": (pa.binary(), pa.string()),
    "partitionKey": (pa.string(),),
    "properties": (pa.map_(pa.string(), pa.string()),),
}

Properties = Sequence[tuple[str, str | None]]


class UnwritableRows(ValueError):
    """Rows that cannot be written as events."""


class Row(NamedTuple):
    """One row to write."""

    body: bytes | None
    partition_key: str | None
    partition: int | None
    properties: Properties


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
            yield from map(_row, *_values(batch, columns))
        else:
            given = (batch[name] if name in columns else None for name in ("body", *_OPTIONAL))
            yield _row(*given)


def _values(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[Iterable[Any]]:
    """The values of every column that `_row` takes; None for those that the rows do not have."""
    for name in ("body", *_OPTIONAL):
        if name not in columns:
            yield repeat(None, batch.num_rows)
        elif name == "properties":
            yield _maps(batch.column(name))
        else:
            yield batch.column(name).to_pylist()


def _maps(maps: pa.MapArray) -> Iterable[Properties | None]:
    """The entries of each map: keys and items are converted in one go, which takes a fraction of the time."""
    if maps.null_count:
        found: Iterable[Properties | None] = maps.to_pylist()
        return found
    ends = maps.offsets.to_pylist()
    first, last = ends[0], ends[-1]
    entries = list(
        zip(
            maps.keys.slice(first, last - first).to_pylist(),
            maps.items.slice(first, last - first).to_pylist(),
            strict=True,
        )
    )
    return [entries[start - first : end - first] for start, end in pairwise(ends)]


def _row(body: Any, key: str | None, named: object, numbered: object, properties: Any) -> Row:
    if key is not None:
        check_partition_key(key)
    partition = named if named is not None else numbered
    if key is not None and partition is not None:
        refuse_two_targets(partition, key)
    if type(body) is not bytes and body is not None:
        body = body.encode() if isinstance(body, str) else bytes(body)
    return Row(
        body,
        key,
        None if partition is None else partition_number(partition),
        tuple(properties.items()) if isinstance(properties, dict) else properties or (),
    )


def partition_number(value: object) -> int:
    """The number of a partition that a row names."""
    text = str(value)
    if not text.isdecimal():
        raise UnwritableRows(f"'{text}' is not a partition")
    return int(text)


def refuse_two_targets(partition: object, key: str) -> NoReturn:
    """Refuse a row that has both."""
    raise UnwritableRows(f"a row has both a partition ('{partition}') and a partition key ('{key}')")


def refuse_partition(partition: int, count: int) -> NoReturn:
    """Refuse a row for a partition that the hub does not have."""
    raise UnwritableRows(f"there is no partition {partition}; the hub has {count}")


class Spread:
    """Chooses the partition of each row: the one that it names, that of its key, or the next one in turn."""

    def __init__(self, count: int, turn: int) -> None:
        self.count = count
        self.turn = turn

    def partition_of(self, row: Row) -> int:
        """The partition of the next row."""
        if row.partition is not None:
            if row.partition >= self.count:
                refuse_partition(row.partition, self.count)
            return row.partition
        if row.partition_key is not None:
            return partition_of_key(row.partition_key, self.count)
        turn, self.turn = self.turn, (self.turn + 1) % self.count
        return turn


# --- rows to batches to segments -------------------------------------------------------------------------------------


class _Lane:
    """The events of one partition that are not in a batch yet: the pieces of their records."""

    __slots__ = ("count", "pieces", "size_bytes")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.count = 0
        self.size_bytes = 0


class Segment:
    """Batches for the partitions of a hub, in the order in which they will be written.

    All records of a segment get its time: their deltas are 0, and the same rows give the same bytes.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._lanes: dict[int, _Lane] = {}
        self._batches: list[tuple[int, bytearray]] = []
        self.size_bytes = 0

    def add(self, partition: int, row: Row) -> None:
        """Append an event to its partition."""
        body, text, _, properties = row
        key = None if text is None else text.encode()
        tail, size_bytes = _NO_HEADERS, _RECORD_BYTES + len(body or b"") + len(key or b"")
        if properties or key is not None:
            tail, headers_bytes = encode_headers(properties, has_body=body is not None)
            size_bytes += headers_bytes
        lane = self._lanes.get(partition)
        if lane is not None and lane.size_bytes + size_bytes > BATCH_BYTES:
            self._close(partition)
            lane = None
        if lane is None:
            lane = self._lanes[partition] = _Lane()
        head = _record_head(lane.count, key)
        if body is None:
            lane.pieces += (length_of(len(head) + len(tail) + 1), head, NULL, tail)
        else:
            head += length_of(len(body))
            lane.pieces += (length_of(len(head) + len(body) + len(tail)), head, body, tail)
        lane.count += 1
        lane.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def close_all(self) -> list[tuple[int, bytearray]]:
        """Close the open batches and return all batches; their checksums are added when they are sent."""
        for partition in sorted(self._lanes):
            self._close(partition)
        return self._batches

    def _close(self, partition: int) -> None:
        lane = self._lanes.pop(partition)
        batch = bytearray(HEADER_BYTES)
        batch += b"".join(lane.pieces)
        write_batch_header(batch, lane.count, self._now_ms)
        self._batches.append((partition, batch))


def write_batch_header(batch: bytearray, count: int, now_ms: int) -> None:
    """Write the header of a batch of so many records, which follow the space for it; without number and checksum."""
    header = BatchHeader(
        base_sequence_number=0,
        length=len(batch) - LENGTH_PREFIX_BYTES,
        leader_epoch=-1,
        magic=MAGIC,
        crc=UNSEALED,
        attributes=0,
        last_delta=count - 1,
        base_time_ms=now_ms,
        max_time_ms=now_ms,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        producer_sequence=-1,
        record_count=count,
    )
    write_header(batch, header)


def _record_head(index: int, key: bytes | None) -> bytes:
    """A record after its length and before its value: attributes, deltas and key."""
    if key is None:
        return KEYLESS[index] if index < TABLE_SIZE else b"\x00\x00" + length_of(index) + NULL
    return (DELTAS[index] if index < TABLE_SIZE else b"\x00\x00" + length_of(index)) + with_length(key)


class RowGroup:
    """Rows that are not in a segment yet."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = iter(rows)

    def move_to(self, segment: Segment, spread: Spread, full_bytes: int) -> int:
        """Add rows until the segment is full; returns how many, 0 if there are none left."""
        count = 0
        while segment.size_bytes < full_bytes and (row := next(self._rows, None)) is not None:
            segment.add(spread.partition_of(row), row)
            count += 1
        return count


class Encoder(Protocol):
    """The twins of a module: `Segment`, and `RowGroup` for an Arrow batch."""

    Segment: Callable[[int], Segment]
    RowGroup: Callable[[pa.RecordBatch, tuple[str, ...]], RowGroup]


def _find_compiled() -> Any:
    """The compiled twins, or None if they were not built."""
    try:
        from hubmere.pipeline import _encode  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _encode


compiled: Final[Encoder | None] = _find_compiled()


def new_segment(now_ms: int, encoder: Encoder | None = compiled) -> Segment:
    """An empty segment."""
    return Segment(now_ms) if encoder is None else encoder.Segment(now_ms)


def group_rows(
    batches: Iterable[Any], columns: tuple[str, ...], encoder: Encoder | None = compiled
) -> Iterator[RowGroup]:
    """The rows of Arrow record batches, or Spark's own rows, in groups."""
    if encoder is None:
        yield RowGroup(read_rows(batches, columns))
        return
    for batch in batches:
        if isinstance(batch, pa.RecordBatch) and _is_usual(batch, columns):
            yield encoder.RowGroup(batch, columns)
        else:
            yield RowGroup(read_rows([batch], columns))


def _is_usual(batch: pa.RecordBatch, columns: tuple[str, ...]) -> bool:
    """Whether the columns have offsets of 32 bits, as usual; a setting of Spark makes them 64."""
    return all(batch.schema.field(name).type in _USUAL_TYPES[name] for name in columns if name in _USUAL_TYPES)
