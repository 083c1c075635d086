"""A stored batch with uncompressed records, in slices that are cheap to decode.

A small batch of a Kafka producer can hold millions of events. Such a batch is never decoded as a whole:

1. `open_small` opens a batch on the event loop, if its records are at most `SMALL_BYTES` when they are uncompressed.
2. `open_batch` opens any batch, in a thread: decompression takes up to 100 ms and releases the interpreter lock.
3. Opening finds where the slices begin, by the lengths of the records. Decoding a slice takes about a millisecond.

An ordinary batch is one slice, and its records are not looked at here.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from hubmere.records import kernels
from hubmere.records.compression import decompress
from hubmere.records.faults import RecordsTooLarge, UnreadableRecords
from hubmere.records.header import HEADER_BYTES, BatchHeader

# Records that are uncompressed on the event loop: about a millisecond.
SMALL_BYTES: Final = 1024 * 1024
# A batch with more events, or with larger records, is cut into slices.
WHOLE_EVENTS: Final = 2048
# One slice: a millisecond of encoding, and 4 MB of messages at most unless one event is larger.
SLICE_EVENTS: Final = 1024
SLICE_BYTES: Final = 256 * 1024
# Memory of the three numbers for each slice.
_SLICE_OVERHEAD_BYTES: Final = 120

# Time delta, offset delta, key, value, headers.
Record = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


class Slice(NamedTuple):
    """Consecutive records of a batch."""

    records: bytes
    at: int  # position of the first record in `records`, which end with the last one
    first: int  # records of the batch before it
    record_count: int
    sequence: int
    next_sequence: int


class OpenBatch:
    """A batch whose records are uncompressed; `is_readable` is False if that is not possible. Immutable."""

    __slots__ = ("_firsts", "_positions", "_records", "_sequences", "header", "is_readable", "size_bytes")

    def __init__(self, header: BatchHeader, records: bytes | None, at: int = 0) -> None:
        self.header = header
        self._records = records or b""
        # Of each slice, and at last of the end of the batch: records before it, position, sequence number.
        self._firsts = [0, header.record_count]
        self._positions = [at, len(self._records)]
        self._sequences = [header.base_sequence_number, header.next_sequence_number]
        self.is_readable = records is not None
        is_whole = header.record_count <= WHOLE_EVENTS and len(self._records) <= SMALL_BYTES + HEADER_BYTES
        if self.is_readable and not is_whole:
            self.is_readable = self._find_slices(at)
        self.size_bytes = len(self._records) + _SLICE_OVERHEAD_BYTES * len(self._firsts)

    @property
    def is_whole(self) -> bool:
        """Whether the batch is one slice."""
        return len(self._firsts) == 2

    def slice_from(self, sequence: int) -> Slice:
        """The slice with the first event at or after a sequence number, which is before the end of the batch."""
        index = max(bisect_right(self._sequences, sequence, hi=len(self._sequences) - 1) - 1, 0)
        first, following = self._firsts[index : index + 2]
        at, stop = self._positions[index : index + 2]
        records = self._records
        if not self.is_whole:
            records, at = records[at:stop], 0
        return Slice(records, at, first, following - first, self._sequences[index], self._sequences[index + 1])

    def _find_slices(self, at: int) -> bool:
        """Find where the slices begin; False if the records do not fill the batch, or their numbers do not increase."""
        header, records = self.header, self._records
        firsts, positions, sequences = [0], [at], [header.base_sequence_number]
        try:
            while firsts[-1] < header.record_count:
                limit = min(SLICE_EVENTS, header.record_count - firsts[-1])
                count, at = kernels.skip_records(records, positions[-1], limit, SLICE_BYTES)
                firsts.append(firsts[-1] + count)
                positions.append(at)
                is_end = firsts[-1] == header.record_count
                number = header.last_delta + 1 if is_end else kernels.offset_delta(records, at)
                sequences.append(header.base_sequence_number + number)
                if not count or not firsts[-1] <= number <= header.last_delta + 1 or sequences[-1] <= sequences[-2]:
                    return False
        except kernels.Malformed:
            return False
        self._firsts, self._positions, self._sequences = firsts, positions, sequences
        return positions[-1] == len(records)


def open_batch(header: BatchHeader, closed: memoryview) -> OpenBatch:
    """Open a batch of any size."""
    return OpenBatch(header, *(uncompressed_records(header, closed) or (None,)))


def open_small(header: BatchHeader, closed: memoryview) -> OpenBatch | None:
    """Open a small batch; None if the batch is larger than that."""
    if header.codec == 0:
        return OpenBatch(header, bytes(closed), HEADER_BYTES) if len(closed) <= SMALL_BYTES else None
    try:
        return OpenBatch(header, decompress(header.codec, closed[HEADER_BYTES:], SMALL_BYTES))
    except RecordsTooLarge:
        return None
    except UnreadableRecords:
        return OpenBatch(header, None)


def uncompressed_records(header: BatchHeader, batch: memoryview) -> tuple[bytes, int] | None:
    """The uncompressed records of a batch, and the position at which they begin; None if they do not decompress."""
    if header.codec == 0:
        return bytes(batch), HEADER_BYTES
    try:
        return decompress(header.codec, batch[HEADER_BYTES:]), 0
    except UnreadableRecords:
        return None
