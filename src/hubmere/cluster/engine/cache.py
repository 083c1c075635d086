"""Fetched batches in memory, shared by all readers of a gateway, and bounded in bytes over all partitions."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from hubmere.records.header import CONTROL, HEADER_BYTES, LENGTH_PREFIX_BYTES, read_header
from hubmere.store.engine import AbortedTransaction, Chunk

# Fifty readers of a tail share it; readers of the past fetch again what has been dropped.
DEFAULT_CACHE_BYTES: Final = 64 * 1024 * 1024
# How long batches of a compacted log are kept: less than the pause between two passes of Kafka's cleaner.
COMPACTED_S: Final = 10.0


class FetchedBatches(NamedTuple):
    """The result of a fetch for a partition: whole batches, their positions, and ranges that readers must skip."""

    data: memoryview
    starts: list[int]  # byte positions of the batches
    sequences: list[int]  # the first sequence number of each batch
    next_sequence: int
    last_time_ms: int
    aborted: Sequence[AbortedTransaction]
    # What the fetch covers begins here: numbers before the first batch may have been compacted away.
    first_sequence: int


def parse_fetched(
    data: memoryview, aborted: Sequence[tuple[int, int]], asked: int | None = None
) -> FetchedBatches | None:
    """Find the whole batches of a response; a last batch that is cut off is dropped. None if there is no whole one.

    `asked` is the position of the request: the first batch may begin before it, or, after compaction, behind it.
    """
    starts: list[int] = []
    sequences: list[int] = []
    markers: list[tuple[int, int]] = []
    at, next_sequence, last_ms = 0, 0, -1
    while at + HEADER_BYTES <= len(data):
        header = read_header(data, at)
        end = at + header.length + LENGTH_PREFIX_BYTES
        if end > len(data):
            break
        starts.append(at)
        sequences.append(header.base_sequence_number)
        if header.attributes & CONTROL:
            markers.append((header.producer_id, header.base_sequence_number))
        else:
            last_ms = max(last_ms, header.max_time_ms)
        next_sequence = header.base_sequence_number + header.last_delta + 1
        at = end
    if not starts:
        return None
    ranges = [_aborted_range(producer, first, markers, next_sequence) for producer, first in aborted]
    first = sequences[0] if asked is None else min(asked, sequences[0])
    return FetchedBatches(data[:at], starts, sequences, next_sequence, last_ms, ranges, first)


def _aborted_range(producer: int, first: int, markers: Sequence[tuple[int, int]], end: int) -> AbortedTransaction:
    """Kafka gives the begin of an aborted transaction; it ends at its marker, or continues after these batches."""
    last = next((at for marked, at in markers if marked == producer and at >= first), end - 1)
    return AbortedTransaction(producer, first, last)


class FetchCache:
    """The cache of all partitions of a gateway; the least recently used batches are dropped first."""

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self.size_bytes = 0
        self._order: OrderedDict[tuple[int, int], PartitionCache] = OrderedDict()

    def partition(self) -> "PartitionCache":
        """The part of one partition."""
        return PartitionCache(self)

    def note(self, partition: "PartitionCache", fetched: FetchedBatches) -> None:
        """Count added batches, and drop the least recently used ones above the limit."""
        self._order[id(partition), fetched.first_sequence] = partition
        self.size_bytes += len(fetched.data)
        while self.size_bytes > self._max_bytes and len(self._order) > 1:
            (_, first), oldest = self._order.popitem(last=False)
            self.size_bytes -= oldest.discard(first)

    def touch(self, partition: "PartitionCache", first_sequence: int) -> None:
        """Mark a batch as used."""
        self._order.move_to_end((id(partition), first_sequence))

    def forget(self, partition: "PartitionCache", first_sequence: int, size_bytes: int) -> None:
        """A batch was removed."""
        if self._order.pop((id(partition), first_sequence), None) is not None:
            self.size_bytes -= size_bytes


class PartitionCache:
    """The cached batches of one partition, by sequence number."""

    __slots__ = ("_all", "_cleared_at", "_firsts", "_shared")

    def __init__(self, shared: FetchCache) -> None:
        self._shared = shared
        self._firsts: list[int] = []
        self._all: list[FetchedBatches] = []
        self._cleared_at = 0.0

    def add(self, fetched: FetchedBatches) -> None:
        """Add fetched batches; they replace an entry that begins with the same batch."""
        first = fetched.first_sequence
        self._shared.forget(self, first, self.discard(first))
        at = bisect_right(self._firsts, first)
        self._firsts.insert(at, first)
        self._all.insert(at, fetched)
        self._shared.note(self, fetched)

    def discard(self, first_sequence: int) -> int:
        """Drop the entry that begins at a sequence number; returns its size."""
        at = bisect_right(self._firsts, first_sequence) - 1
        if at < 0 or self._firsts[at] != first_sequence:
            return 0
        del self._firsts[at]
        return len(self._all.pop(at).data)

    def clear(self) -> None:
        """Drop everything."""
        for first in list(self._firsts):
            self._shared.forget(self, first, self.discard(first))

    def expire(self, now: float) -> None:
        """Drop everything at intervals. Brokers compact the log, and do not report it.

        Without this, a reader could get an old value from here, but not its tombstone, which the brokers have deleted.
        """
        if now - self._cleared_at >= COMPACTED_S:
            self.clear()
            self._cleared_at = now

    def _find(self, sequence: int) -> FetchedBatches | None:
        # Two fetches may overlap: the one that began last reaches furthest as a rule.
        at = bisect_right(self._firsts, sequence) - 1
        while at >= 0:
            found = self._all[at]
            if sequence < found.next_sequence:
                self._shared.touch(self, found.first_sequence)
                return found
            if at and self._all[at - 1].next_sequence <= found.first_sequence:
                return None
            at -= 1
        return None

    def read(self, sequence: int, max_bytes: int) -> Chunk | None:
        """Whole batches from the one that contains `sequence`: at least one, at most about `max_bytes`."""
        found = self._find(sequence)
        if found is None:
            return None
        first = max(bisect_right(found.sequences, sequence) - 1, 0)
        start = found.starts[first]
        last = first + 1
        while last < len(found.starts) and self._end_of(found, last) - start <= max_bytes:
            last += 1
        stop = self._end_of(found, last - 1)
        next_sequence = found.sequences[last] if last < len(found.sequences) else found.next_sequence
        base = found.sequences[first]
        return Chunk(found.data[start:stop], base, base, next_sequence)

    def missing_after(self, sequence: int) -> int | None:
        """Where the fetched batches around `sequence` end, unless what follows them is here too."""
        found = self._find(sequence)
        if found is None or self._find(found.next_sequence) is not None:
            return None
        return found.next_sequence

    @staticmethod
    def _end_of(found: FetchedBatches, batch: int) -> int:
        return found.starts[batch + 1] if batch + 1 < len(found.starts) else len(found.data)

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> list[AbortedTransaction]:
        """Aborted ranges that overlap a range which was just read."""
        found = self._find(first_sequence)
        ranges = () if found is None else found.aborted
        return [r for r in ranges if r.last_sequence >= first_sequence and r.first_sequence < end_sequence]
