"""Runs of batches for one partition: checked one by one, then written and committed together.

A run is for small batches that arrive faster than they can be handled singly. It accepts only ordinary batches: without
a transaction, with a valid header and checksum and readable records; those of an idempotent producer must have
contiguous sequence numbers. A run with any other batch is rejected without a reason; the caller then offers its batches
one by one, each for its own answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from hubmere.records.compression import LAST_CODEC
from hubmere.records.header import (
    APPEND_TIME,
    CHECKED_FROM,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NUMBER_PART,
    PRODUCER_SEQUENCE_MASK,
    TIME_PART,
)
from hubmere.records.validate import first_fault, is_readable

_ORDINARY = CODEC_MASK | APPEND_TIME

_unpack_header, _pack_number, _pack_times = HEADER.unpack_from, NUMBER_PART.pack_into, TIME_PART.pack_into


class BatchRun(NamedTuple):
    """Batches for one partition, one behind the other, with the fields of their headers in wire order.

    `first_of_producers` are the indexes of the first batch of each idempotent producer.
    """

    data: bytearray
    sizes: Sequence[int]
    headers: Sequence[tuple[int, ...]]
    events: int
    first_of_producers: Sequence[int] = ()


def check_run(data: bytearray, sizes: Sequence[int], newest_ms: int) -> BatchRun | None:
    """The run if each of its batches is ordinary and none is newer than `newest_ms`, otherwise None."""
    view, at, events = memoryview(data), 0, 0
    headers: list[tuple[int, ...]] = []
    # The epoch and sequence number that the next batch of a producer must have; the first may have any.
    expected: dict[int, tuple[int, int]] = {}
    first_of_producers: list[int] = []
    for size in sizes:
        if size < HEADER_BYTES:
            return None
        fields = _unpack_header(data, at)
        _, length, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, epoch, first, count = fields
        end = at + size
        # `validate.HEADER_RULES`, inline, and what else makes a batch ordinary.
        if (
            length + LENGTH_PREFIX_BYTES != size
            or magic != MAGIC
            or last_delta + 1 != count
            or not 0 < count <= size
            or attributes & ~_ORDINARY
            or attributes & CODEC_MASK > LAST_CODEC
            or (producer_id >= 0 and (first < 0 or epoch < 0))
            or max_ms > newest_ms
            or base_ms > newest_ms
            or not crc
            or crc32c(view[at + CHECKED_FROM : end]) != crc
            or (
                first_fault(data, at + HEADER_BYTES, end, count, False) is not None
                if not attributes & CODEC_MASK
                else not is_readable(data, at + HEADER_BYTES, end, attributes & CODEC_MASK, count)
            )
        ):
            return None
        if producer_id >= 0:
            known = expected.get(producer_id)
            if known is None:
                first_of_producers.append(len(headers))
            elif known != (epoch, first):
                return None
            expected[producer_id] = (epoch, (first + count) & PRODUCER_SEQUENCE_MASK)
        headers.append(fields)
        events += count
        at = end
    return BatchRun(data, sizes, headers, events, first_of_producers)


def stamp_run(run: BatchRun, sequence: int, leader_epoch: int, append_ms: int | None) -> None:
    """Number the batches from `sequence` on, and stamp the time of their append unless `append_ms` is None."""
    data, view, at = run.data, memoryview(run.data), 0
    for size, fields in zip(run.sizes, run.headers, strict=True):
        _, length, _, _, crc, attributes, last_delta, base_ms, max_ms, _, _, _, count = fields
        if append_ms is not None:
            _pack_times(data, at + CHECKED_FROM, attributes | APPEND_TIME, last_delta, base_ms, append_ms)
            crc = crc32c(view[at + CHECKED_FROM : at + size])
        elif attributes & APPEND_TIME:
            _pack_times(data, at + CHECKED_FROM, attributes & ~APPEND_TIME, last_delta, base_ms, max_ms)
            crc = crc32c(view[at + CHECKED_FROM : at + size])
        _pack_number(data, at, sequence, length, leader_epoch, MAGIC, crc)
        sequence += count
        at += size
