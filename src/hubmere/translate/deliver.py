"""Record batches become AMQP transfers for the reader of a partition.

Decides which records a reader sees (no control batches, no aborted transactions, no batch that cannot be decoded) and
caches decoded batches. The kernels do the encoding. Nothing here knows links or credit: the caller states limits and
gets bytes, a count and the sequence number to continue from.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from hubmere.records import kernels
from hubmere.records.compression import decompress
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import HEADER_BYTES, BatchHeader, Buffer, read_header

# Cache for decoded batches of all partitions: some 25,000 small events. Readers at the tails of a busy namespace are
# woken together and share one decoding; readers far behind evict it and lose only the sharing. A larger cache is
# slower: with 64 MB, new messages no longer fit the processor's caches, and an event took a third more time than with
# 8 MB (measured with one reader of 100-byte events).
DECODED_CACHE_BYTES = 8 * 1024 * 1024
# Memory of a message besides its bytes: the header of the object and its entry in a list.
_MESSAGE_OVERHEAD_BYTES = 48
# Memory of a batch, even without events: the object, its lists, its key and its entry in the cache.
_BATCH_OVERHEAD_BYTES = 512
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


@dataclass(frozen=True, slots=True)
class Emission:
    """The result of `emit_transfers`, and where the next call continues."""

    frames: bytes
    count: int
    next_sequence: int
    needs_split: bool  # the next event does not fit one frame: take it from `message_at`
    # Batches that were skipped because they cannot be decoded: their first and their next sequence number.
    unreadable: tuple[tuple[int, int], ...] = ()


class DecodedBatch:
    """The events of one batch as encoded AMQP messages, without transfer headers. Immutable."""

    __slots__ = ("base_sequence", "is_readable", "messages", "next_sequence", "numbers", "size_bytes")

    def __init__(self, header: BatchHeader, decoded: tuple[list[bytes], list[int]] | None) -> None:
        self.base_sequence = header.base_sequence_number
        self.next_sequence = header.next_sequence_number
        self.is_readable = decoded is not None
        self.messages, self.numbers = decoded or ([], [])
        content = sum(map(len, self.messages)) + len(self.messages) * _MESSAGE_OVERHEAD_BYTES
        self.size_bytes = content + _BATCH_OVERHEAD_BYTES

    def index_from(self, sequence: int) -> int:
        """The index of the first event at or after a sequence number; compaction leaves gaps."""
        if not self.numbers:
            return max(0, sequence - self.base_sequence)
        return bisect_left(self.numbers, sequence)

    def sequence_at(self, index: int) -> int:
        """The sequence number of the event at an index; past the end, that of the next batch."""
        if index >= len(self.messages):
            return self.next_sequence
        return self.numbers[index] if self.numbers else self.base_sequence + index


class DecodedCache:
    """Recently decoded batches, by log and position, so that many readers of the tail share one decoding.

    Holds at most `max_bytes`, or one batch if that alone is larger. Thread rule: the thread of the event loop only.
    """

    __slots__ = ("_batches", "_max_bytes", "_used_bytes")

    def __init__(self, max_bytes: int = DECODED_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._batches: OrderedDict[tuple[str, int, int], DecodedBatch] = OrderedDict()

    @property
    def used_bytes(self) -> int:
        """Bytes of messages held."""
        return self._used_bytes

    def get(self, log: str, header: BatchHeader) -> DecodedBatch | None:
        """A cached batch; the checksum in the key distinguishes a batch from its compacted successor."""
        key = (log, header.base_sequence_number, header.crc)
        found = self._batches.get(key)
        if found is not None:
            self._batches.move_to_end(key)
        return found

    def put(self, log: str, header: BatchHeader, batch: DecodedBatch) -> None:
        """Add a batch, and evict the least recently used ones."""
        self._batches[log, header.base_sequence_number, header.crc] = batch
        self._used_bytes += batch.size_bytes
        while self._used_bytes > self._max_bytes and len(self._batches) > 1:
            _, evicted = self._batches.popitem(last=False)
            self._used_bytes -= evicted.size_bytes


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
    `limit` events and about `max_bytes` (one frame is always allowed); stops before an event that needs several frames.
    """
    template = _frame_template(channel, handle)
    annotations = delivery_annotations(runtime) if runtime else b""
    extra = template[0].size + len(annotations)
    room = max(max_bytes, max_frame_size)
    frames: list[bytes] = []
    unreadable: list[tuple[int, int]] = []
    count = 0
    sequence = from_sequence
    for header, batch_offset, closed in batches_from(data, offset, from_sequence):
        if not is_visible(header, skip):
            sequence = header.next_sequence_number
            continue
        if count >= limit:
            break
        batch = _find_or_decode(header, batch_offset, closed, cache, log, offsets_are_sequences, offsets)
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
            needs_split = count < limit and extra + len(batch.messages[index]) > max_frame_size
            return Emission(b"".join(frames), count, sequence, needs_split, tuple(unreadable))
    return Emission(b"".join(frames), count, sequence, False, tuple(unreadable))


def message_at(
    data: Buffer,
    offset: int,
    sequence: int,
    *,
    cache: DecodedCache,
    log: str,
    runtime: RuntimeInfo | None = None,
    offsets_are_sequences: bool = False,
    offsets: OwnOffsets = None,
) -> bytes | None:
    """The encoded message of one event, for the engine to split over frames; None if there is no such event."""
    for header, batch_offset, closed in batches_from(data, offset, sequence):
        batch = _find_or_decode(header, batch_offset, closed, cache, log, offsets_are_sequences, offsets)
        index = batch.index_from(sequence)
        if index >= len(batch.messages) or batch.sequence_at(index) != sequence:
            return None
        message = batch.messages[index]
        return message if runtime is None else delivery_annotations(runtime) + message
    return None


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


def uncompressed_records(header: BatchHeader, batch: memoryview) -> tuple[bytes, int] | None:
    """The uncompressed records of a batch, and the position at which they begin; None if they do not decompress."""
    if header.codec == 0:
        return bytes(batch), HEADER_BYTES
    try:
        return decompress(header.codec, batch[HEADER_BYTES:]), 0
    except UnreadableRecords:
        return None


def _find_or_decode(
    header: BatchHeader,
    offset: int,
    closed: memoryview,
    cache: DecodedCache,
    log: str,
    offsets_are_sequences: bool,
    offsets: OwnOffsets,
) -> DecodedBatch:
    """The batch from the cache; decodes and caches it if necessary."""
    batch = cache.get(log, header)
    if batch is None:
        batch = DecodedBatch(header, _encode_messages(header, offset, closed, offsets_are_sequences, offsets))
        cache.put(log, header, batch)
    return batch


def _encode_messages(
    header: BatchHeader, offset: int, closed: memoryview, offsets_are_sequences: bool, offsets: OwnOffsets
) -> tuple[list[bytes], list[int]] | None:
    """The messages of a batch and their sequence numbers; None if its records cannot be decoded."""
    opened = uncompressed_records(header, closed)
    if opened is None:
        return None
    is_append_time = header.is_append_time
    batch = (
        opened[0],
        opened[1],
        header.record_count,
        header.last_delta,
        header.base_sequence_number,
        offset,
        0 if offsets_are_sequences or offsets is not None else header.size_bytes,
        header.max_time_ms if is_append_time else header.base_time_ms,
        is_append_time,
    )
    try:
        if offsets is None:
            return kernels.encode_messages(*batch)
        return kernels.encode_messages(*batch, list(offsets.get(header.base_sequence_number, ())))
    except kernels.Malformed:
        return None
