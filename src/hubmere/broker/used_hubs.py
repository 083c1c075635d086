"""The hubs that a caller uses: its cached publishers, the hubs that it may read, and the names of both."""

from typing import Final

from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.publish import Publisher

# Hubs for which a caller caches its publisher and its right to read.
MAX_CACHED_HUBS: Final = 10_000


class UsedHubs:
    """What one caller keeps of its hubs, so that a right is checked once and not for every request."""

    __slots__ = ("names", "publishers", "readable")

    def __init__(self) -> None:
        self.publishers: dict[str, Publisher] = {}
        self.readable: dict[str, LiveHub] = {}
        # Folded names of hubs that the caller has used: with a rotated key, only these can still be used.
        self.names: set[str] = set()

    def add_publisher(self, hub: str, publisher: Publisher) -> None:
        """Cache the publisher to a hub."""
        if len(self.publishers) >= MAX_CACHED_HUBS:
            self.publishers.clear()
        self.publishers[hub] = publisher

    def add_readable(self, hub: str, live: LiveHub) -> None:
        """Remember that the caller may read a hub."""
        if len(self.readable) >= MAX_CACHED_HUBS:
            self.readable.clear()
        self.readable[hub] = live

    def add_name(self, name: str) -> None:
        """Remember that the caller has used a hub."""
        if len(self.names) < MAX_CACHED_HUBS:
            self.names.add(name)

    def clear(self) -> None:
        """Forget everything: each right is checked again at its next use."""
        self.publishers.clear()
        self.readable.clear()
        self.names.clear()
