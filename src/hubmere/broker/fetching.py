"""Readers that keep their own position (Kafka): what waits for several partitions at once, and what they are charged.

They take no reader's place and know no epochs; whoever asks has been found to have the right to listen.
"""

from collections.abc import Callable, Iterable

from hubmere.broker.live import LiveHub
from hubmere.store.engine import PartitionLog


class Watch:
    """Calls `wake` whenever one of several partitions has moved, until it is closed.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_logs", "_size_bytes", "_wake")

    def __init__(self, places: Iterable[tuple[LiveHub, int]], wake: Callable[[], None]) -> None:
        self._logs: tuple[PartitionLog, ...] = tuple(hub.log(partition) for hub, partition in places)
        self._wake = wake
        self._size_bytes = self._all_bytes()
        for log in self._logs:
            log.watch(wake)

    def grown_bytes(self) -> int:
        """About how many bytes have come since the watch began: cheap, to see whether a look is worth it."""
        return self._all_bytes() - self._size_bytes

    def close(self) -> None:
        """Wake nobody any more; closing twice is harmless."""
        for log in self._logs:
            log.unwatch(self._wake)
        self._logs = ()

    def _all_bytes(self) -> int:
        return sum(log.state.size_bytes for log in self._logs)


def charge_fetch(hub: LiveHub, events: int, size_bytes: int, now: float) -> float:
    """Count what a reader was given; the seconds for which it should be held back then, usually 0."""
    hub.counters.outgoing_messages += events
    hub.counters.outgoing_bytes += size_bytes
    throughput = hub.namespace.throughput
    if throughput is None:
        return 0.0
    throughput.charge_egress(hub.entity.uid, size_bytes, events, now)
    return throughput.egress_delay(hub.entity.uid, now)
