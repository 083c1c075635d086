"""Records inside a batch, for the few places of the store that must open one: compaction, keys, the producer's time.

Record layout (Kafka record v2, zig-zag varints): length, attributes i8, time delta, sequence delta, key length and key,
value length and value, headers. Interpreted and plain: none of this is on the path of an ordinary event.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from hubmere.model.errors import CorruptBatch
from hubmere.records.compression import decompress
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import (
    CONTROL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    seal,
    write_header,
)

_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")


class Record(NamedTuple):
    """One record: its place in the opened batch and what compaction asks of it."""

    start: int
    end: int
    time_delta: int
    sequence_delta: int
    key: bytes | None
    has_value: bool


def opened(batch: memoryview, header: BatchHeader) -> bytes:
    """The records of a batch, uncompressed."""
    try:
        return decompress(header.codec, batch[HEADER_BYTES:])
    except UnreadableRecords as fault:
        raise CorruptBatch(fault.why) from None


def records(body: bytes, count: int) -> Iterator[Record]:
    """Each record in order; raises CorruptBatch when they do not fill the body exactly."""
    at = 0
    try:
        for _ in range(count):
            record = _record(body, at)
            yield record
            at = record.end
    except IndexError as error:
        raise CorruptBatch("a record runs past the end of its batch") from error
    if at != len(body):
        raise CorruptBatch("the records do not fill their batch")


def control_type(batch: memoryview) -> int:
    """What a transaction marker says: 0 abort, 1 commit."""
    header = read_header(batch)
    for record in records(opened(batch, header), header.record_count):
        if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
            return int(_CONTROL_KEY.unpack_from(record.key)[1])
    raise CorruptBatch("a control batch without a control key")


def marker(producer_id: int, producer_epoch: int, now_ms: int, *, commit: bool) -> bytearray:
    """A transaction marker as a closed batch of one record: key (version, type), value (version, coordinator epoch)."""
    key, value = _CONTROL_KEY.pack(0, int(commit)), _CONTROL_VALUE.pack(0, 0)
    body = (
        bytes([2 * (len(key) + len(value) + 6), 0, 0, 0, 2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\0"
    )
    attributes = TRANSACTIONAL | CONTROL
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    header = BatchHeader(0, length, 0, MAGIC, 0, attributes, 0, now_ms, now_ms, producer_id, producer_epoch, -1, 1)
    batch = bytearray(HEADER_BYTES + len(body))
    write_header(batch, header)
    batch[HEADER_BYTES:] = body
    seal(batch)
    return batch


def _record(body: bytes, start: int) -> Record:
    length, at = _varint(body, start)
    end = at + length
    if length < 0 or end > len(body):
        raise IndexError
    time_delta, at = _varint(body, at + 1)
    sequence_delta, at = _varint(body, at)
    key_length, at = _varint(body, at)
    key = None if key_length < 0 else body[at : at + key_length]
    value_length, _ = _varint(body, at + max(key_length, 0))
    return Record(start, end, time_delta, sequence_delta, key, value_length >= 0)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
