"""Deadlines: which of many things is due next, with one timer for all of them.

A heap of moments; a key that was moved or dropped leaves a stale entry, which is skipped later.
When most entries are stale, the heap is built again without them.
"""

import heapq
from typing import Final

# A heap may have this many entries more than twice its keys before it is built again.
_SPARE_ENTRIES: Final = 64


class Deadlines:
    """The next moment of each key. Thread rule: the owner's thread only."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, key: str, at: float) -> None:
        """Set the deadline of a key."""
        if self._at.get(key) != at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))
            if len(self._heap) > 2 * len(self._at) + _SPARE_ENTRIES:
                self._heap = [(moment, one) for one, moment in self._at.items()]
                heapq.heapify(self._heap)

    def set_earlier(self, key: str, at: float) -> None:
        """Set the deadline of a key, unless it has an earlier one."""
        if at < self._at.get(key, float("inf")):
            self.set(key, at)

    def drop(self, key: str) -> None:
        """Remove the deadline of a key."""
        self._at.pop(key, None)

    def next(self) -> float | None:
        """The earliest deadline."""
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, now: float, limit: int | None = None) -> list[str]:
        """Remove and return the keys that are due, the earliest first; at most `limit` of them."""
        due: list[str] = []
        while len(due) != limit and (at := self.next()) is not None and at <= now:
            key = heapq.heappop(self._heap)[1]
            del self._at[key]
            due.append(key)
        return due
