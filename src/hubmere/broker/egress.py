"""Egress: counts what a client reads, and charges it to the quotas.

What was delivered is counted for the hub and charged to the throughput units of its namespace and to the client's
application group. What the capture job of a hub reads costs nothing (reference: service 6). Nothing here waits:
`delay` says for how long a reader that has used its quota should pause.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubmere.broker.monitoring.tracing import Tracer
from hubmere.broker.quotas.application_groups import FREE, ClientQuota

if TYPE_CHECKING:
    from hubmere.broker.hubs.live import LiveHub


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client that reads: its quotas and its tracer."""

    client_quota: ClientQuota = FREE
    # The uid of the hub whose capture job the client is.
    captures_hub: str = ""
    tracer: Tracer | None = None


NOBODY = Client()


class Egress:
    """Counts what one client reads from one partition and charges it to the quotas.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_client_quota", "_group", "_is_capture_job", "_partition", "_tracer", "hub")

    def __init__(self, hub: "LiveHub", partition: int, client: Client, group: str = "") -> None:
        self.hub = hub
        self._partition = partition
        self._client_quota = client.client_quota
        self._is_capture_job = client.captures_hub == hub.entity.uid
        self._tracer = client.tracer
        self._group = group

    @property
    def tracer(self) -> Tracer | None:
        """The tracer that records spans of deliveries."""
        return self._tracer

    def charge(self, events: int, size_bytes: int, now: float) -> None:
        """Count what was delivered."""
        hub = self.hub
        if self._is_capture_job and hub.entity.is_captured:
            return
        hub.counters.outgoing_messages += events
        hub.counters.outgoing_bytes += size_bytes
        hub.rates.count_delivered(self._partition, size_bytes)
        throughput, limits = hub.namespace.throughput, self._client_quota.limits
        if throughput is not None:
            throughput.charge_egress(hub.entity.uid, size_bytes, events, now)
        if limits is not None:
            limits.charge_egress(size_bytes, events, now)

    @property
    def is_free(self) -> bool:
        """Whether no quota limits what the client reads, and no tracer records it."""
        has_limits = self.hub.namespace.throughput is not None or self._client_quota.limits is not None
        return not has_limits and self._tracer is None

    def delay(self, now: float) -> float:
        """Seconds to wait before the next delivery so that egress stays within the quotas; usually 0."""
        hub, limits = self.hub, self._client_quota.limits
        if self._is_capture_job and hub.entity.is_captured:
            return 0.0
        throughput = hub.namespace.throughput
        delay_s = 0.0 if throughput is None else throughput.egress_delay(hub.entity.uid, now)
        return delay_s if limits is None else max(delay_s, limits.egress_delay(now))

    def trace(self, data: memoryview, first_sequence: int, next_sequence: int) -> None:
        """Record a delivery, if there is a tracer."""
        if self._tracer is not None:
            namespace, hub = self.hub.namespace.entity.name, self.hub.name
            self._tracer.record_delivery(
                namespace, hub, self._partition, self._group, data, first_sequence, next_sequence
            )
