"""Joins waiting batches of a gateway into one: a broker accepts one batch per partition and request.

Only batches that the gateway built itself are joined: not compressed, without a producer. Records are copied as they
are; only their distances from the first record of the batch change.
"""

from collections.abc import Sequence
from typing import Final

from hubmere.records.header import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    NO_PRODUCER,
    TRANSACTIONAL,
    UNSEALED,
    read_header,
    write_header,
)
from hubmere.records.varint import read_varint, read_varlong, write_varint

Batch = bytearray | memoryview

# As large as the largest publication of the service; larger batches are sent alone.
MAX_JOINED_BYTES: Final = 1024 * 1024


def can_join(batch: Batch) -> bool:
    """Whether a batch may share a request with others."""
    header = read_header(batch)
    is_plain = not header.attributes & (CODEC_MASK | CONTROL | TRANSACTIONAL)
    return is_plain and header.producer_id == NO_PRODUCER and header.crc == UNSEALED


def join_batches(batches: Sequence[Batch]) -> bytearray:
    """One unsealed batch with the records of all, in order."""
    first = read_header(batches[0])
    out = bytearray(HEADER_BYTES)
    count, newest_ms = 0, first.max_time_ms
    for batch in batches:
        header = read_header(batch)
        _copy_records(out, bytes(batch), count, header.base_time_ms - first.base_time_ms)
        count += header.record_count
        newest_ms = max(newest_ms, header.max_time_ms)
    length = len(out) - LENGTH_PREFIX_BYTES
    write_header(out, first._replace(length=length, last_delta=count - 1, max_time_ms=newest_ms, record_count=count))
    return out


def _copy_records(out: bytearray, data: bytes, delta: int, delta_ms: int) -> None:
    at, end = HEADER_BYTES, len(data)
    while at < end:
        size, at = read_varint(data, at, end)
        stop = at + size
        time_delta, after_time = read_varlong(data, at + 1, end)
        _, rest = read_varint(data, after_time, end)
        body = bytearray(data[at : at + 1])
        write_varint(body, time_delta + delta_ms)
        write_varint(body, delta)
        body += data[rest:stop]
        write_varint(out, len(body))
        out += body
        delta += 1
        at = stop
