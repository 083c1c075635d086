"""Incoming and outgoing bytes per second of each partition, as the service reports them (reference: service 4.1).

Incoming bytes are the growth of a log, outgoing bytes are counted at delivery. Rates are computed about once a second,
and not at all while a hub is idle. Time is an argument, in monotonic seconds.
"""

from collections.abc import Mapping
from typing import NamedTuple


class ByteRate(NamedTuple):
    """Bytes per second of one partition."""

    incoming: float = 0.0
    outgoing: float = 0.0


_SILENCE = ByteRate()


class PartitionRates:
    """Rates of the partitions of one hub between the last two updates.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_delivered", "_rates", "_seen_at", "_seen_delivered", "_seen_sizes")

    def __init__(self) -> None:
        self._delivered: dict[int, int] = {}
        self._seen_delivered: dict[int, int] = {}
        self._seen_sizes: Mapping[int, int] = {}
        self._seen_at: float | None = None
        self._rates: dict[int, ByteRate] = {}

    def count_delivered(self, partition: int, size_bytes: int) -> None:
        """Count delivered bytes."""
        self._delivered[partition] = self._delivered.get(partition, 0) + size_bytes

    def update(self, sizes: Mapping[int, int], now: float) -> None:
        """Compute the rates from the sizes of the open logs; a log that was just opened starts at 0."""
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

    def clear(self, now: float) -> None:
        """Reset all rates to 0: the hub was idle since the last update."""
        self._seen_at = now
        self._rates = {}

    def of(self, partition: int) -> ByteRate:
        """The rates of one partition."""
        return self._rates.get(partition, _SILENCE)
