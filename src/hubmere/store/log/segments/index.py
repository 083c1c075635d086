"""Sparse indexes of one segment: by sequence number and file position, and by time; entries as Kafka writes them.

Offset index, 8 bytes: i32 last sequence number of a batch relative to the segment's base, i32 position of that batch.
Time index, 12 bytes: i64 time, i32 relative sequence number up to which no event is newer; times strictly increase.
Aborted transactions, 34 bytes: i16 version, i64 producer, i64 first, i64 last, i64 last stable sequence number.
There is an entry for every 4,096 bytes appended, so a look-up bisects here and then reads a few batch headers. An index
is derived data: one that looks wrong is rebuilt from the batches.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt
from struct import Struct
from typing import NamedTuple

# Kafka's log.index.interval.bytes: more than this much data between two entries.
INTERVAL_BYTES = 4096

OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY = Struct(">qi")
TIME_ENTRY_BYTES = _TIME_ENTRY.size
_ABORTED_ENTRY = Struct(">hqqqq")
ABORTED_ENTRY_BYTES = _ABORTED_ENTRY.size

_SWAPS_BYTES = sys.byteorder == "little"


class OffsetIndex:
    """Relative last sequence numbers and positions of some batches, both increasing."""

    __slots__ = ("positions", "sequences")

    def __init__(self) -> None:
        self.sequences = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, relative_sequence: int, position: int) -> None:
        """Add a batch: its last sequence number and its position."""
        self.sequences.append(relative_sequence)
        self.positions.append(position)

    def entry_of_sequence(self, relative_sequence: int) -> tuple[int, int]:
        """The entry at or before a sequence number: relative last sequence number and position; (-1, 0) if none."""
        at = bisect_right(self.sequences, relative_sequence)
        return (self.sequences[at - 1], self.positions[at - 1]) if at else (-1, 0)

    def entry_of_position(self, position: int) -> tuple[int, int]:
        """The index entry at or before a position: relative last sequence number and position; (-1, 0) if none."""
        at = bisect_right(self.positions, position)
        return (self.sequences[at - 1], self.positions[at - 1]) if at else (-1, 0)

    def floor_of_position(self, position: int) -> int:
        """The last indexed batch that begins at or before a position; 0 if there is none."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def truncate(self, entries: int) -> None:
        """Keep only the first `entries` entries."""
        del self.sequences[entries:]
        del self.positions[entries:]

    def to_bytes(self, start: int = 0, end: int | None = None) -> bytes:
        """Entries `start` to `end` in the format of the file."""
        both = array("i", bytes(4 * 2 * len(self.positions[start:end])))
        both[0::2] = self.sequences[start:end]
        both[1::2] = self.positions[start:end]
        return _big_endian(both)

    @classmethod
    def from_bytes(cls, data: bytes) -> "OffsetIndex":
        """The entries of a file; an incomplete last entry is ignored."""
        both = array("i", data[: len(data) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        if _SWAPS_BYTES:
            both.byteswap()
        index = cls()
        index.sequences, index.positions = both[0::2], both[1::2]
        return index

    def is_plausible(self, segment_bytes: int) -> bool:
        """Whether both columns increase and fit the segment; fails for zeros and for most flipped bits."""
        if not self.positions:
            return True
        first, last = self.positions[0], self.positions[-1]
        is_inside = 0 < first <= last < segment_bytes and self.sequences[0] >= 0
        return is_inside and _increases(self.positions) and _increases(self.sequences)


class TimeIndex:
    """Times and the relative sequence number up to which no event is newer; both increasing."""

    __slots__ = ("sequences", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.sequences = array("i")

    def __len__(self) -> int:
        return len(self.times)

    def append(self, time_ms: int, relative_sequence: int) -> None:
        """Add the newest time so far, unless it has an entry already."""
        if not self.times or time_ms > self.times[-1]:
            self.times.append(time_ms)
            self.sequences.append(relative_sequence)

    def floor(self, time_ms: int) -> int:
        """The last relative sequence number up to which every event is older than a time; -1 if none."""
        at = bisect_left(self.times, time_ms)
        return self.sequences[at - 1] if at else -1

    def truncate(self, entries: int) -> None:
        """Keep only the first `entries` entries."""
        del self.times[entries:]
        del self.sequences[entries:]

    def to_bytes(self, start: int = 0, end: int | None = None) -> bytes:
        """Entries `start` to `end` in the format of the file."""
        pairs = zip(self.times[start:end], self.sequences[start:end], strict=True)
        return b"".join(_TIME_ENTRY.pack(time_ms, sequence) for time_ms, sequence in pairs)

    @classmethod
    def from_bytes(cls, data: bytes) -> "TimeIndex":
        """The entries of a file; an incomplete last entry is ignored."""
        index = cls()
        for time_ms, sequence in _TIME_ENTRY.iter_unpack(data[: len(data) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES]):
            index.times.append(time_ms)
            index.sequences.append(sequence)
        return index

    def is_plausible(self, last_relative_sequence: int) -> bool:
        """Whether both columns increase and fit the segment."""
        if not self.times:
            return True
        is_inside = 0 <= self.sequences[0] <= self.sequences[-1] <= last_relative_sequence
        return is_inside and _increases(self.times) and _increases(self.sequences)


class AbortedEntry(NamedTuple):
    """One aborted transaction; `last_stable` is the last stable sequence number once it was aborted."""

    producer_id: int
    first_sequence: int
    last_sequence: int
    last_stable: int

    def to_bytes(self) -> bytes:
        """The entry in the format of the file."""
        return _ABORTED_ENTRY.pack(0, *self)


def aborted_from_bytes(data: bytes) -> list[AbortedEntry]:
    """The entries of a file; an incomplete last entry is ignored."""
    whole = data[: len(data) // ABORTED_ENTRY_BYTES * ABORTED_ENTRY_BYTES]
    return [AbortedEntry(*entry[1:]) for entry in _ABORTED_ENTRY.iter_unpack(whole)]


def _increases(numbers: "array[int]") -> bool:
    return all(map(lt, numbers, numbers[1:]))


def _big_endian(numbers: "array[int]") -> bytes:
    if _SWAPS_BYTES:
        numbers.byteswap()
    return numbers.tobytes()
