"""Names in order: a page of a long list is found without sorting the list.

Adding a name costs a binary search; a removed name is skipped, and the list is rebuilt when half of it is removed.
Thread rule: the owner's thread only.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Key = tuple[str | int, ...]


class NameIndex:
    """The names of the items with one parent."""

    __slots__ = ("_names", "_removed")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        self._removed: set[str] = set()

    def add(self, name: str) -> None:
        """Add a name; one that is known stays where it is."""
        at = bisect_left(self._names, name)
        if at < len(self._names) and self._names[at] == name:
            self._removed.discard(name)
        else:
            self._names.insert(at, name)

    def remove(self, name: str) -> None:
        """Remove a name that was added."""
        self._removed.add(name)
        if len(self._removed) * 2 > len(self._names):
            self._names = [each for each in self._names if each not in self._removed]
            self._removed.clear()

    def names_from(self, first: str) -> Iterator[str]:
        """The names from `first` on, in order. Names must not be added or removed meanwhile."""
        for at in range(bisect_left(self._names, first), len(self._names)):
            if self._names[at] not in self._removed:
                yield self._names[at]


class NameIndexes:
    """The indexes of all parents of some kinds of items: made by the first list of a parent, then kept up to date."""

    __slots__ = ("_indexes",)

    def __init__(self, *kinds: type[Any]) -> None:
        self._indexes: dict[type[Any], dict[Key, NameIndex]] = {kind: {} for kind in kinds}

    def add(self, item: Any) -> None:
        """Follow an item that was added or replaced."""
        if (index := self._find(item)) is not None:
            index.add(item.name)

    def remove(self, item: Any) -> None:
        """Follow an item that was removed."""
        if (index := self._find(item)) is not None:
            index.remove(item.name)

    def drop(self, item: Any) -> None:
        """Forget the index of an item's parent, which has no items any more."""
        self._indexes.get(type(item), {}).pop(item.parent, None)

    def keys_from(self, kind: type[Any], parent: Key, siblings: Mapping[Key, Any], first: str) -> Iterator[Key]:
        """The keys of a parent's items from a name on, in order."""
        if not siblings:
            return iter(())
        index = self._indexes[kind].get(parent)
        if index is None:
            index = self._indexes[kind][parent] = NameIndex(item.name for item in siblings.values())
        return ((*parent, name) for name in index.names_from(first))

    def _find(self, item: Any) -> NameIndex | None:
        return self._indexes.get(type(item), {}).get(item.parent)
