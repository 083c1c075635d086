"""Record batches become AMQP transfers for the reader of a partition.

Decides which records a reader sees (no control batches, no aborted transactions, no batch that cannot be decoded) and
caches decoded batches. The kernels do the encoding, of a slice at a time for large batches (`slices`). Nothing here
knows links or credit: the caller states limits and gets bytes, a count and the sequence number to continue from.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from hubmere.records import kernels
from hubmere.records.header import HEADER_BYTES, BatchHeader, Buffer, read_header
from hubmere.translate.decoded import DecodedBatch, DecodedCache, Key
from hubmere.translate.slices import SMALL_BYTES, WHOLE_EVENTS, OpenBatch, Slice, open_small

# Links whose frame layout is cached; a layout has under 200 bytes.
_TEMPLATES = 4_096

# Producer id, first and last sequence number of an aborted transaction.
AbortedRange = tuple[int, int, int]
# Offsets of the events of each batch by its base sequence number; None if they follow from the batch's position.
OwnOffsets = Mapping[int, Sequence[int]] | None

_frame_template = lru_cache(maxsize=_TEMPLATES)(kernels.frame_template)


class RuntimeInfo(NamedTuple):
    """The state of a partition, sent with each event to a receiver that enabled runtime metrics."""

    last_sequence: int
    last_offset: int
    last_enqueued_ms: int
    retrieved_ms: int


class ClosedBatch(NamedTuple):
    """A large batch, which the caller opens outside the loop: `open` gives what `cache.opened` needs under `key`."""

    key: Key
    header: BatchHeader
    data: memoryview


@dataclass(slots=True)
class Emission:
    """The result of `emit_transfers`, and where the next call continues. Not frozen, which takes a microsecond less."""

    frames: bytes
    count: int
    next_sequence: int
    # The message of the next event if it does not fit one frame: the caller splits it.
    long_message: bytes | None = None
    # The batch with the next event if it has to be opened first.
    closed: ClosedBatch | None = None
    # Batches that were skipped because they cannot be decoded: their first and their next sequence number.
    unreadable: tuple[tuple[int, int], ...] = ()


def emit_transfers(
    data: Buffer,
    offset: int,
    from_sequence: int,
    *,
    limit: int,
    max_bytes: int,
    channel: int,
    handle: int,
    next_delivery_id: int,
    max_frame_size: int,
    cache: DecodedCache,
    log: str,
    runtime: RuntimeInfo | None = None,
    offsets_are_sequences: bool = False,
    offsets: OwnOffsets = None,
    skip: Sequence[AbortedRange] = (),
) -> Emission:
    """Events from a sequence number on, as settled single-frame transfers with contiguous delivery-ids.

    `data` are whole batches, `offset` is the offset of the first, `log` the partition they belong to. `offsets` has the
    offsets of events that do not follow from it. Writes at most
    `limit` events and about `max_bytes` (one frame is always allowed); stops before an event that needs several frames
    and before a batch that has to be opened.
    """
    template = _frame_template(channel, handle)
    annotations = delivery_annotations(runtime) if runtime else b""
    room = max(max_bytes, max_frame_size)
    frames: list[bytes] = []
    unreadable: list[tuple[int, int]] = []
    count = 0
    sequence = from_sequence
    for header, batch_offset, closed in batches_from(data, offset, from_sequence):
        if not is_visible(header, skip):
            sequence = header.next_sequence_number
            continue
        end = header.next_sequence_number
        while count < limit and sequence < end:
            batch = _find_or_decode(header, batch_offset, closed, sequence, cache, log, offsets_are_sequences, offsets)
            if batch is None:
                waiting = ClosedBatch((log, header.base_sequence_number, header.crc), header, closed)
                return Emission(b"".join(frames), count, sequence, closed=waiting, unreadable=tuple(unreadable))
            if not batch.is_readable:
                unreadable.append((batch.base_sequence, batch.next_sequence))
            index = batch.index_from(sequence)
            delivery_id = next_delivery_id + count
            pieces, written, filled = kernels.frame_messages(
                batch.messages, index, limit - count, room, max_frame_size, template, delivery_id, annotations
            )
            frames += pieces
            count += written
            room -= filled
            index += written
            sequence = batch.sequence_at(index)
            if index < len(batch.messages):
                message = annotations + batch.messages[index] if count < limit else b""
                is_long = template[0].size + len(message) > max_frame_size
                long_message = message if is_long else None
                return Emission(b"".join(frames), count, sequence, long_message, unreadable=tuple(unreadable))
        if count >= limit:
            break
    return Emission(b"".join(frames), count, sequence, unreadable=tuple(unreadable))


_RUNTIME_LEAD = b"\xa3\x23last_enqueued_sequence_number_epoch\x54\xff\xa3\x1dlast_enqueued_sequence_number\x81"
_RUNTIME_OFFSET = b"\xa3\x14last_enqueued_offset\xa1"
_RUNTIME_ENQUEUED = b"\xa3\x16last_enqueued_time_utc\x83"
_RUNTIME_RETRIEVED = b"\xa3\x1fruntime_info_retrieval_time_utc\x83"
_I64 = Struct(">q")


def delivery_annotations(info: RuntimeInfo) -> bytes:
    """The delivery-annotations section for a receiver with runtime metrics: all five keys, typed as clients need."""
    digits = b"%d" % info.last_offset
    entries = b"".join(
        (
            _RUNTIME_LEAD,
            _I64.pack(info.last_sequence),
            _RUNTIME_OFFSET,
            bytes((len(digits),)),
            digits,
            _RUNTIME_ENQUEUED,
            _I64.pack(info.last_enqueued_ms),
            _RUNTIME_RETRIEVED,
            _I64.pack(info.retrieved_ms),
        )
    )
    return bytes((0, 0x53, kernels.DELIVERY_ANNOTATIONS, 0xC1, len(entries) + 1, 10)) + entries


def batches_from(data: Buffer, offset: int, from_sequence: int) -> Iterator[tuple[BatchHeader, int, memoryview]]:
    """The batches in `data` that end after `from_sequence`: header, offset and bytes of each."""
    view = memoryview(data)
    at = 0
    while at + HEADER_BYTES <= len(view):
        header = read_header(view, at)
        stop = at + header.size_bytes
        if header.size_bytes < HEADER_BYTES or stop > len(view):
            return
        if header.next_sequence_number > from_sequence:
            yield header, offset + at, view[at:stop]
        at = stop


def is_visible(header: BatchHeader, skip: Sequence[AbortedRange] = ()) -> bool:
    """Whether readers see the events of a batch: it is no transaction marker and not part of an aborted transaction."""
    if header.is_control:
        return False
    if not skip or not header.is_transactional:
        return True
    base = header.base_sequence_number
    return not any(producer == header.producer_id and first <= base <= last for producer, first, last in skip)


def _find_or_decode(
    header: BatchHeader,
    offset: int,
    closed: memoryview,
    sequence: int,
    cache: DecodedCache,
    log: str,
    offsets_are_sequences: bool,
    offsets: OwnOffsets,
) -> DecodedBatch | None:
    """The batch, or its slice with a sequence number; None if the batch has to be opened first."""
    key = (log, header.base_sequence_number, header.crc)
    batch = cache.get(key)
    # The key of a batch is also the key of its first slice.
    if batch is not None and batch.next_sequence > sequence:
        return batch
    is_whole = header.codec == 0 and header.record_count <= WHOLE_EVENTS and len(closed) <= SMALL_BYTES
    if is_whole:
        found = Slice(
            bytes(closed),
            HEADER_BYTES,
            0,
            header.record_count,
            header.base_sequence_number,
            header.next_sequence_number,
        )
    else:
        opened = _find_or_open(header, closed, key, cache)
        if opened is None:
            return None
        found = opened.slice_from(sequence)
        key = (log, found.sequence, header.crc)
        batch = cache.get(key) if found.first else None
        if batch is not None:
            return batch
    decoded = _encode_messages(header, found, offset, offsets_are_sequences, offsets)
    # Behind a slice that cannot be decoded, the rest of the batch is not delivered.
    following = header.next_sequence_number if decoded is None else found.next_sequence
    batch = DecodedBatch(found.sequence, following, decoded)
    cache.put(key, batch)
    return batch


def _find_or_open(header: BatchHeader, closed: memoryview, key: Key, cache: DecodedCache) -> OpenBatch | None:
    """The open batch; None if it is large and not opened yet."""
    opened = cache.opened.get(key)
    if opened is None:
        opened = open_small(header, closed)
        if opened is not None and not opened.is_whole:
            cache.opened.put(key, opened)
    return opened


def _encode_messages(
    header: BatchHeader, found: Slice, offset: int, offsets_are_sequences: bool, offsets: OwnOffsets
) -> tuple[list[bytes], list[int]] | None:
    """The messages of a slice and their sequence numbers; None if its records cannot be decoded."""
    records, at, first, count, _, _ = found
    is_append_time = header.is_append_time
    own = None
    if offsets is not None:
        own = list(offsets.get(header.base_sequence_number, ())[first : first + count])
    try:
        return kernels.encode_messages(
            records,
            at,
            count,
            header.last_delta,
            header.base_sequence_number,
            offset,
            0 if offsets_are_sequences or offsets is not None else header.size_bytes,
            header.max_time_ms if is_append_time else header.base_time_ms,
            is_append_time,
            own,
            first,
        )
    except kernels.Malformed:
        return None
