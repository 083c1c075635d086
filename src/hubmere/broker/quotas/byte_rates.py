"""Bytes per second of each partition, in and out, as the service shows them of a partition (reference: service 4.1).

What comes in is how much a log grew, what goes out is counted at delivery; both are looked at about once a second, and
not at all while a hub is silent. Time is an argument, in monotonic seconds.
"""

from collections.abc import Mapping
from typing import NamedTuple


class ByteRate(NamedTuple):
    """What one partition did per second."""

    incoming: float = 0.0
    outgoing: float = 0.0


_SILENCE = ByteRate()


class PartitionRates:
    """The partitions of one hub over the time between the last two looks.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_delivered", "_rates", "_seen_at", "_seen_delivered", "_seen_sizes")

    def __init__(self) -> None:
        self._delivered: dict[int, int] = {}
        self._seen_delivered: dict[int, int] = {}
        self._seen_sizes: Mapping[int, int] = {}
        self._seen_at: float | None = None
        self._rates: dict[int, ByteRate] = {}

    def delivered(self, partition: int, size_bytes: int) -> None:
        """Count what went out."""
        self._delivered[partition] = self._delivered.get(partition, 0) + size_bytes

    def look(self, sizes: Mapping[int, int], now: float) -> None:
        """Work the rates out anew from the sizes of the logs that are open; one that was just opened begins at 0."""
        seconds = 0.0 if self._seen_at is None else now - self._seen_at
        if seconds > 0:
            self._rates = {
                partition: ByteRate(
                    max(size - self._seen_sizes.get(partition, size), 0) / seconds,
                    (self._delivered.get(partition, 0) - self._seen_delivered.get(partition, 0)) / seconds,
                )
                for partition, size in sizes.items()
            }
        self._seen_at, self._seen_sizes, self._seen_delivered = now, sizes, dict(self._delivered)

    def rest(self, now: float) -> None:
        """Nothing came or went since the last look."""
        self._seen_at = now
        self._rates = {}

    def of(self, partition: int) -> ByteRate:
        """The rates of one partition."""
        return self._rates.get(partition, _SILENCE)
