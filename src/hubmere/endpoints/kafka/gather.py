"""Gather: collects the parts of a response that complete in any order."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def duplicates_of(keys: Iterable[K]) -> frozenset[K]:
    """The keys that occur more than once."""
    return frozenset(key for key, count in Counter(keys).items() if count > 1)


class Gather(Generic[T]):
    """Collects a known number of parts, then calls back once with all of them in order.

    Thread rule: the loop's thread only.
    """

    __slots__ = ("_missing", "_on_done", "_parts")

    def __init__(self, count: int, on_done: Callable[[list[T]], None]) -> None:
        self._parts: dict[int, T] = {}
        self._missing = count
        self._on_done = on_done
        if not count:
            on_done([])

    def put(self, index: int, part: T) -> None:
        """Add one part."""
        assert index not in self._parts
        self._parts[index] = part
        self._missing -= 1
        if not self._missing:
            self._on_done([self._parts[index] for index in sorted(self._parts)])
