"""Throughput units that follow the load: up while clients are held back, down again after a quiet time.

Up is the service's auto-inflate: one unit a second while somebody was throttled, to the namespace's maximum. Down is an
option that the service has not: a namespace with a minimum loses a unit each time its traffic would have fitted the
smaller capacity for the whole quiet time, so that it does not swing. Called once a second; time is an argument.
"""

from dataclasses import dataclass

from hubmere.broker.counters import Counters
from hubmere.broker.live import LiveNamespace
from hubmere.model.names import fold
from hubmere.model.tier import Limits

# How long traffic must have fitted fewer units before one is given back, unless the node is set otherwise.
QUIET_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """What all hubs of a namespace had taken in and given out at a time."""

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
        """How many units were in use, by the pool that was used most; a hub that went away counts nothing."""
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
    """What was last seen of a namespace, and since when it has been too quiet for its capacity."""

    flow: _Flow
    capacity: int
    quiet_since: float


class AutoInflate:
    """Decides the capacity of each namespace.

    Thread rule: the owner's thread only.
    """

    def __init__(self, quiet_s: float = QUIET_SECONDS) -> None:
        self._quiet_s = quiet_s
        self._watches: dict[str, _Watch] = {}

    def new_capacity(self, namespace: LiveNamespace, now: float) -> int | None:
        """The capacity that a namespace should have from now on; None when it should stay."""
        throughput, entity = namespace.throughput, namespace.entity
        was_pressed = throughput is not None and throughput.was_pressed
        if throughput is not None:
            throughput.was_pressed = False
        if throughput is None or not entity.auto_inflate:
            self._watches.pop(fold(entity.name), None)
            return None
        is_quiet = self._is_quiet(namespace, now, was_pressed=was_pressed)
        if was_pressed:
            return entity.capacity + 1 if entity.capacity < entity.maximum_throughput_units else None
        return entity.capacity - 1 if is_quiet and 0 < entity.minimum_throughput_units < entity.capacity else None

    def _is_quiet(self, namespace: LiveNamespace, now: float, *, was_pressed: bool) -> bool:
        """Whether one unit less would have been enough for the whole quiet time, at this capacity."""
        entity = namespace.entity
        flow = _Flow.of(namespace, now)
        watch = self._watches.get(fold(entity.name))
        if watch is None or watch.capacity != entity.capacity:
            self._watches[fold(entity.name)] = _Watch(flow, entity.capacity, now)
            return False
        if flow.at > watch.flow.at:
            if was_pressed or flow.units_since(watch.flow, namespace.limits) > entity.capacity - 1:
                watch.quiet_since = now
            watch.flow = flow
        return now - watch.quiet_since >= self._quiet_s
