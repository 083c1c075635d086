"""The hubs that a caller uses: its cached publishers, the hubs that it may read, and the names of both."""

from collections.abc import Mapping, Set
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.publish import Publisher

# Hubs for which a caller caches its publisher and its right to read.
MAX_CACHED_HUBS: Final = 10_000
# Callers that have used the same few hubs share one set of names: there are thousands of idle connections.
_MAX_SHARED_NAMES: Final = 8
_SHARED_SETS: Final = 4096
_NO_HUBS: Final[Mapping[str, LiveHub]] = MappingProxyType({})
_NO_PUBLISHERS: Final[Mapping[str, Publisher]] = MappingProxyType({})
_NO_NAMES: Final[frozenset[str]] = frozenset()


@lru_cache(maxsize=_SHARED_SETS)
def _with_name(names: frozenset[str], name: str) -> frozenset[str]:
    return names | {name}


class UsedHubs:
    """What one caller keeps of its hubs, so that a right is checked once and not for every request."""

    __slots__ = ("names", "publishers", "readable")

    def __init__(self) -> None:
        self.publishers: Mapping[str, Publisher] = _NO_PUBLISHERS
        self.readable: Mapping[str, LiveHub] = _NO_HUBS
        # Folded names of hubs that the caller has used: with a rotated key, only these can still be used.
        self.names: Set[str] = _NO_NAMES

    def add_publisher(self, hub: str, publisher: Publisher) -> None:
        """Cache the publisher to a hub."""
        publishers = self.publishers
        if not isinstance(publishers, dict):
            self.publishers = publishers = {}
        elif len(publishers) >= MAX_CACHED_HUBS:
            publishers.clear()
        publishers[hub] = publisher

    def add_readable(self, hub: str, live: LiveHub) -> None:
        """Remember that the caller may read a hub."""
        readable = self.readable
        if not isinstance(readable, dict):
            self.readable = readable = {}
        elif len(readable) >= MAX_CACHED_HUBS:
            readable.clear()
        readable[hub] = live

    def add_name(self, name: str) -> None:
        """Remember that the caller has used a hub."""
        names = self.names
        if name in names or len(names) >= MAX_CACHED_HUBS:
            return
        if isinstance(names, set):
            names.add(name)
        elif isinstance(names, frozenset) and len(names) < _MAX_SHARED_NAMES:
            self.names = _with_name(names, name)
        else:
            self.names = {*names, name}

    def clear(self) -> None:
        """Forget everything: each right is checked again at its next use."""
        self.publishers, self.readable, self.names = _NO_PUBLISHERS, _NO_HUBS, _NO_NAMES
