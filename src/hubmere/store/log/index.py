"""Sparse indexes of one segment: by sequence number and file position, and by time; entries as Kafka writes them.

Offset index, 8 bytes: i32 last sequence number of a batch relative to the segment's base, i32 position of that batch.
Time index, 12 bytes: i64 time, i32 relative sequence number up to which no event is newer; times strictly increase.
Aborted transactions, 34 bytes: i16 version, i64 producer, i64 first, i64 last, i64 last stable sequence number.
One entry per more than 4,096 bytes appended, so a look-up bisects here and then walks a few batch headers. An index
is never the truth: whatever is in doubt is rebuilt from the batches.
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
        """Note a batch: its last sequence number and where it begins."""
        self.sequences.append(relative_sequence)
        self.positions.append(position)

    def floor_of_sequence(self, relative_sequence: int) -> int:
        """Where to start walking for a sequence number: a batch's beginning at or before the one that holds it."""
        at = bisect_right(self.sequences, relative_sequence)
        return self.positions[at - 1] if at else 0

    def entry_of_sequence(self, relative_sequence: int) -> tuple[int, int]:
        """The entry behind `floor_of_sequence`: relative last sequence number and position; -1 and 0 for none."""
        at = bisect_right(self.sequences, relative_sequence)
        return (self.sequences[at - 1], self.positions[at - 1]) if at else (-1, 0)

    def entry_of_position(self, position: int) -> tuple[int, int]:
        """The entry behind `floor_of_position`: relative last sequence number and position; -1 and 0 for none."""
        at = bisect_right(self.positions, position)
        return (self.sequences[at - 1], self.positions[at - 1]) if at else (-1, 0)

    def floor_of_position(self, position: int) -> int:
        """The last noted batch that begins at or before a position; 0 is the beginning of the first."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def cut(self, entries: int) -> None:
        """Forget all entries after the first few."""
        del self.sequences[entries:]
        del self.positions[entries:]

    def to_bytes(self, start: int = 0, end: int | None = None) -> bytes:
        """Entries from one number to another, as they stand in the file."""
        both = array("i", bytes(4 * 2 * len(self.positions[start:end])))
        both[0::2] = self.sequences[start:end]
        both[1::2] = self.positions[start:end]
        return _big_endian(both)

    @classmethod
    def from_bytes(cls, data: bytes) -> "OffsetIndex":
        """The entries of a file; a broken last entry is left out."""
        both = array("i", data[: len(data) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        if _SWAPS_BYTES:
            both.byteswap()
        index = cls()
        index.sequences, index.positions = both[0::2], both[1::2]
        return index

    def is_plausible(self, segment_bytes: int) -> bool:
        """Whether the ends fit the segment and both columns increase; zeros and most flipped bits do not."""
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
        """Note the newest time so far, unless it is noted already."""
        if not self.times or time_ms > self.times[-1]:
            self.times.append(time_ms)
            self.sequences.append(relative_sequence)

    def floor(self, time_ms: int) -> int:
        """A relative sequence number before which (itself included) every event is older than a time; -1 for none."""
        at = bisect_left(self.times, time_ms)
        return self.sequences[at - 1] if at else -1

    def cut(self, entries: int) -> None:
        """Forget all entries after the first few."""
        del self.times[entries:]
        del self.sequences[entries:]

    def to_bytes(self, start: int = 0, end: int | None = None) -> bytes:
        """Entries from one number to another, as they stand in the file."""
        pairs = zip(self.times[start:end], self.sequences[start:end], strict=True)
        return b"".join(_TIME_ENTRY.pack(time_ms, sequence) for time_ms, sequence in pairs)

    @classmethod
    def from_bytes(cls, data: bytes) -> "TimeIndex":
        """The entries of a file; a broken last entry is left out."""
        index = cls()
        for time_ms, sequence in _TIME_ENTRY.iter_unpack(data[: len(data) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES]):
            index.times.append(time_ms)
            index.sequences.append(sequence)
        return index

    def is_plausible(self, last_relative_sequence: int) -> bool:
        """Whether the ends fit the segment and times increase."""
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
        """The entry as it stands in the file."""
        return _ABORTED_ENTRY.pack(0, *self)


def aborted_from_bytes(data: bytes) -> list[AbortedEntry]:
    """The entries of a file; a broken last entry is left out."""
    whole = data[: len(data) // ABORTED_ENTRY_BYTES * ABORTED_ENTRY_BYTES]
    return [AbortedEntry(*entry[1:]) for entry in _ABORTED_ENTRY.iter_unpack(whole)]


def _increases(numbers: "array[int]") -> bool:
    return all(map(lt, numbers, numbers[1:]))


def _big_endian(numbers: "array[int]") -> bytes:
    if _SWAPS_BYTES:
        numbers.byteswap()
    return numbers.tobytes()
