"""Readers that keep their own position (Kafka): following a partition from one fetch to the next, and what is charged.

They take no reader's place and know no epochs; whoever asks has been found to have the right to listen.
"""

from collections.abc import Callable

from hubmere.broker.live import LiveHub
from hubmere.broker.quotas.application_groups import FREE, ClientQuota
from hubmere.store.engine import PartitionLog


class Follow:
    """One partition that is read again and again; `moved` is called on each move of it, until the follow is closed.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_moved", "hub", "log")

    def __init__(self, hub: LiveHub, partition: int, moved: Callable[[], None]) -> None:
        self.hub = hub
        self.log: PartitionLog = hub.log(partition)
        self._moved = moved
        self.log.watch(moved)

    def close(self) -> None:
        """Call nobody any more; closing twice is harmless."""
        self.log.unwatch(self._moved)


def charge_fetch(
    hub: LiveHub, partition: int, events: int, size_bytes: int, now: float, client_quota: ClientQuota = FREE
) -> float:
    """Count what a reader was given; the seconds for which it should be held back then, usually 0."""
    hub.counters.outgoing_messages += events
    hub.counters.outgoing_bytes += size_bytes
    hub.rates.delivered(partition, size_bytes)
    throughput, limits, delay_s = hub.namespace.throughput, client_quota.limits, 0.0
    if throughput is not None:
        throughput.charge_egress(hub.entity.uid, size_bytes, events, now)
        delay_s = throughput.egress_delay(hub.entity.uid, now)
    if limits is not None:
        limits.charge_egress(size_bytes, events, now)
        delay_s = max(delay_s, limits.egress_delay(now))
    return delay_s
