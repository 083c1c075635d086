"""Walks over stored batches and collects the state of a log: for recovery, which may have to read millions of batches.

The walk verifies each batch and stops before the first one that is not ordinary: not intact, not the next in sequence,
larger than 16 KB, or part of a transaction. The caller handles that one by itself and walks on behind it.

The walk is compiled if a C compiler was available (`_walk.pyx`) and then runs without the interpreter's lock, so that
the event loop continues. `walk_batches_interpreted` is the same walk in Python, used without a compiler and as the
reference in tests.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from hubmere.records.header import (
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    is_intact,
    read_header,
)

# Larger batches are few per megabyte, and their checksum is faster in the library that the log uses.
MAX_WALKED_BYTES: Final = 16 * 1024
# More than this much data lies between two index entries (Kafka's log.index.interval.bytes).
_INTERVAL_BYTES: Final = 4096
# Batches that a log remembers of each producer.
_REMEMBERED: Final = 5


class IndexedBatch(NamedTuple):
    """A batch that gets an index entry: its last sequence number and position, and the newest time up to it."""

    last: int
    position: int
    max_time_ms: int
    max_time_sequence: int


class NumberedBatch(NamedTuple):
    """A batch of an idempotent producer."""

    producer_id: int
    epoch: int
    first: int  # producer sequence of its first event
    last_delta: int
    last: int  # sequence number of its last event
    time_ms: int


class WalkResult(NamedTuple):
    """What a walk has found; everything is as before the walk if `batches` is 0."""

    size_bytes: int  # of the walked batches
    batches: int
    next_sequence: int
    unindexed_bytes: int
    max_time_ms: int
    max_time_sequence: int
    first_time_ms: int  # of the batch at position 0; -1 if the walk began behind it
    newest_ms: int  # of the walked batches
    last_at: int  # position of the last batch with events, -1 if there is none
    last_size: int
    last_count: int
    indexed: list[IndexedBatch]
    numbered: list[NumberedBatch]  # without those that five later ones of the same producer follow


def walk_batches_interpreted(
    data: Buffer,
    next_sequence: int,
    end_before: int,
    is_sparse: bool,
    position: int,
    unindexed_bytes: int,
    max_time_ms: int,
    max_time_sequence: int,
) -> WalkResult:
    """Walk over the batches of `data`, which begin at `position` of their segment.

    `end_before` bounds the sequence numbers; with `is_sparse` they may have gaps. The other arguments are the state of
    the segment's indexes before the walk.
    """
    view, at, count = memoryview(data), 0, 0
    first_time_ms = newest_ms = last_at = -1
    last_size = last_count = 0
    indexed: list[IndexedBatch] = []
    numbered: list[NumberedBatch] = []
    while (header := _ordinary_batch(view, at, next_sequence, end_before, is_sparse)) is not None:
        last, time_ms = header.next_sequence_number - 1, header.max_time_ms
        if time_ms > max_time_ms:
            max_time_ms, max_time_sequence = time_ms, last
        newest_ms = max(newest_ms, time_ms)
        if unindexed_bytes > _INTERVAL_BYTES:
            indexed.append(IndexedBatch(last, position, max_time_ms, max_time_sequence))
            unindexed_bytes = 0
        if not position:
            first_time_ms = time_ms
        if header.record_count:
            last_at, last_size, last_count = position, header.size_bytes, header.record_count
        if header.producer_id >= 0:
            _remember(numbered, header)
        unindexed_bytes += header.size_bytes
        position += header.size_bytes
        at += header.size_bytes
        next_sequence = last + 1
        count += 1
    return WalkResult(
        at, count, next_sequence, unindexed_bytes, max_time_ms, max_time_sequence, first_time_ms, newest_ms,
        last_at, last_size, last_count, indexed, numbered,
    )  # fmt: skip


def _ordinary_batch(
    view: memoryview, at: int, next_sequence: int, end_before: int, is_sparse: bool
) -> BatchHeader | None:
    """The header of the batch at a position; None if the walk ends before it."""
    if len(view) - at < HEADER_BYTES:
        return None
    header = read_header(view, at)
    if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= min(len(view) - at, MAX_WALKED_BYTES):
        return None
    base = header.base_sequence_number
    is_next = base >= next_sequence if is_sparse else base == next_sequence
    if not is_next or header.last_delta < 0 or header.record_count < 0 or base + header.last_delta >= end_before:
        return None
    if header.attributes & (TRANSACTIONAL | CONTROL) or not is_intact(view[at : at + header.size_bytes]):
        return None
    return header


def _remember(numbered: list[NumberedBatch], header: BatchHeader) -> None:
    batch = NumberedBatch(
        header.producer_id,
        header.producer_epoch,
        header.producer_sequence,
        header.last_delta,
        header.next_sequence_number - 1,
        header.max_time_ms,
    )
    recent = numbered[-_REMEMBERED:]
    if len(recent) == _REMEMBERED and all(each[:2] == batch[:2] for each in recent):
        del numbered[-_REMEMBERED]
    numbered.append(batch)


_Walk = Callable[[Buffer, int, int, bool, int, int, int, int], WalkResult]


def _find_compiled() -> _Walk | None:
    try:
        from hubmere.records import _walk  # type: ignore[attr-defined]
    except ImportError:
        return None
    compiled = _walk.walk_batches

    def walk(*arguments: object) -> WalkResult:
        walked = WalkResult._make(compiled(*arguments))
        return walked._replace(
            indexed=[IndexedBatch(*each) for each in walked.indexed],
            numbered=[NumberedBatch(*each) for each in walked.numbered],
        )

    return walk


walk_batches: _Walk = _find_compiled() or walk_batches_interpreted
