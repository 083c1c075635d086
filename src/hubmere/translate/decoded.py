"""Recently decoded batches: readers at the tail of a partition are woken together and share one decoding.

Batches of up to `slices.WHOLE_EVENTS` events are cached as a whole, larger ones as slices, together with their
uncompressed records.
"""

from bisect import bisect_left
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from hubmere.translate.slices import OpenBatch

# Cache for decoded batches of all partitions: some 25,000 small events. Readers at the tails of a busy namespace are
# woken together and share one decoding; readers far behind evict it and lose only the sharing. A larger cache is
# slower: with 64 MB, new messages no longer fit the processor's caches, and an event took a third more time than with
# 8 MB (measured with one reader of 100-byte events).
DECODED_CACHE_BYTES = 8 * 1024 * 1024
# Cache for uncompressed batches whose slices are delivered: one of the largest that a Kafka producer may write with the
# standard limit of 1 MB.
OPENED_CACHE_BYTES = 16 * 1024 * 1024
# Memory of a message besides its bytes: the header of the object and its entry in a list.
_MESSAGE_OVERHEAD_BYTES = 48
# Memory of a batch, even without events: the object, its lists, its key and its entry in the cache.
_BATCH_OVERHEAD_BYTES = 512

# Log, first sequence number, and checksum of the batch: that distinguishes a batch from its compacted successor.
Key = tuple[str, int, int]


class DecodedBatch:
    """The events of a batch, or of a slice of it, as encoded AMQP messages without transfer headers. Immutable."""

    __slots__ = ("base_sequence", "is_readable", "messages", "next_sequence", "numbers", "size_bytes")

    def __init__(self, base_sequence: int, next_sequence: int, decoded: tuple[list[bytes], list[int]] | None) -> None:
        self.base_sequence = base_sequence
        self.next_sequence = next_sequence
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


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""


_T = TypeVar("_T", bound=_Sized)


class _RecentlyUsed(Generic[_T]):
    """Holds at most `max_bytes`, or one item if that alone is larger."""

    __slots__ = ("_items", "_max_bytes", "_used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._items: OrderedDict[Key, _T] = OrderedDict()

    @property
    def used_bytes(self) -> int:
        """Bytes held."""
        return self._used_bytes

    def get(self, key: Key) -> _T | None:
        """A cached item."""
        found = self._items.get(key)
        if found is not None:
            self._items.move_to_end(key)
        return found

    def put(self, key: Key, item: _T) -> None:
        """Add an item that is not cached, and evict the least recently used ones."""
        self._items[key] = item
        self._used_bytes += item.size_bytes
        while self._used_bytes > self._max_bytes and len(self._items) > 1:
            _, evicted = self._items.popitem(last=False)
            self._used_bytes -= evicted.size_bytes


class DecodedCache(_RecentlyUsed[DecodedBatch]):
    """Decoded batches and slices, and in `opened` the batches that have slices.

    Thread rule: the thread of the event loop only.
    """

    __slots__ = ("opened",)

    def __init__(self, max_bytes: int = DECODED_CACHE_BYTES, *, opened_bytes: int = OPENED_CACHE_BYTES) -> None:
        super().__init__(max_bytes)
        self.opened = _RecentlyUsed[OpenBatch](opened_bytes)
