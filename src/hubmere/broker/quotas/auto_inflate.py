"""Auto-inflate: throughput units grow while clients are throttled, and shrink again after a quiet time.

Growing is the service's auto-inflate: one unit a second while a client was throttled, up to the namespace's maximum.
Shrinking is an option that the service does not have: a namespace with a minimum loses a unit each time its traffic
would have fitted the smaller capacity for the whole quiet time, which prevents oscillation. Called once a second; time
is an argument. On a cluster one gateway decides, by the traffic of all gateways.
"""

from dataclasses import dataclass

from hubmere.broker.hubs.counters import Counters
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.quotas.sharing import Sharing
from hubmere.model.names import fold
from hubmere.model.tier import Limits

# Default of `deflate_after_s`: how long traffic must fit fewer units before one is given back.
QUIET_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """Ingress and egress totals of all hubs of a namespace at one time."""

    at: float
    bytes_in: int
    events_in: int
    bytes_out: int
    events_out: int

    @classmethod
    def of(cls, namespace: LiveNamespace, now: float) -> "_Flow":
        counters: list[Counters] = [hub.counters for hub in namespace.hubs.values()]
        return cls(
            at=now,
            bytes_in=sum(one.incoming_bytes for one in counters),
            events_in=sum(one.incoming_messages for one in counters),
            bytes_out=sum(one.outgoing_bytes for one in counters),
            events_out=sum(one.outgoing_messages for one in counters),
        )

    def units_since(self, before: "_Flow", limits: Limits) -> float:
        """Units in use since `before`, by the most used pool; a deleted hub counts nothing."""
        seconds = self.at - before.at
        used = (
            (self.bytes_in - before.bytes_in, limits.ingress_bytes_per_unit),
            (self.events_in - before.events_in, limits.ingress_events_per_unit),
            (self.bytes_out - before.bytes_out, limits.egress_bytes_per_unit),
            (self.events_out - before.events_out, limits.egress_events_per_unit),
        )
        return max((max(amount, 0) / (seconds * per_unit) for amount, per_unit in used if per_unit), default=0.0)


@dataclass(slots=True)
class _Watch:
    """The last measurement of a namespace, and since when its traffic has fitted one unit less."""

    flow: _Flow
    capacity: int
    quiet_since: float


class AutoInflate:
    """Decides the capacity of each namespace.

    Thread rule: the owner's thread only.
    """

    def __init__(self, quiet_s: float = QUIET_SECONDS, sharing: Sharing | None = None) -> None:
        """`sharing` knows the traffic of all gateways of a cluster."""
        self._quiet_s = quiet_s
        self._sharing = sharing
        self._watches: dict[str, _Watch] = {}

    def new_capacity(self, namespace: LiveNamespace, now: float) -> int | None:
        """The capacity that a namespace should change to; None if it should stay."""
        throughput, entity = namespace.throughput, namespace.entity
        was_throttled = throughput is not None and throughput.was_throttled
        if throughput is not None:
            throughput.was_throttled = False
        decides = self._sharing is None or self._sharing.decides
        if throughput is None or not entity.auto_inflate or not decides:
            self._watches.pop(fold(entity.name), None)
            return None
        if self._sharing is not None:
            was_throttled = self._sharing.is_used_up(namespace)
        is_quiet = self._is_quiet(namespace, now, was_throttled=was_throttled)
        if was_throttled:
            return entity.capacity + 1 if entity.capacity < entity.maximum_throughput_units else None
        return entity.capacity - 1 if is_quiet and 0 < entity.minimum_throughput_units < entity.capacity else None

    def _is_quiet(self, namespace: LiveNamespace, now: float, *, was_throttled: bool) -> bool:
        """Whether one unit less would have been enough during the whole quiet time."""
        entity = namespace.entity
        flow = _Flow.of(namespace, now)
        watch = self._watches.get(fold(entity.name))
        if watch is None or watch.capacity != entity.capacity:
            self._watches[fold(entity.name)] = _Watch(flow, entity.capacity, now)
            return False
        if flow.at > watch.flow.at:
            used = flow.units_since(watch.flow, namespace.limits)
            if self._sharing is not None:
                used = self._sharing.units_in_use(namespace)
            if was_throttled or used > entity.capacity - 1:
                watch.quiet_since = now
            watch.flow = flow
        return now - watch.quiet_since >= self._quiet_s
