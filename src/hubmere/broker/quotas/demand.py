"""DemandMeter: what flows through a gateway and what its clients want, for its reports to the other gateways.

Namespaces with throughput units are measured at each report. Hubs, of which there may be thousands, are measured every
two seconds. Only what has traffic is reported. Nothing waits or reads a clock: time is an argument, in monotonic
seconds.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.quotas.metered import MeteredThroughput
from hubmere.model.monitoring.pulse import NOT_LIMITED, Flow, HubPulse, Limited, NamespacePulse
from hubmere.model.tier import Limits

# Rates are measured over this time, so that single publications do not make them jump. A longer one would keep a share
# for clients that have left.
_WINDOW_SECONDS: Final = 0.8
_HUB_SECONDS: Final = 2.0
_NOTHING: Final = Flow()


class DemandMeter:
    """The traffic of one broker. Thread rule: the owner's thread only."""

    def __init__(self, namespaces: Mapping[str, LiveNamespace]) -> None:
        self._namespaces = namespaces
        self._flows: dict[str, deque[tuple[float, Flow]]] = {}
        # What the last report said: which pools are limited, and which namespaces have traffic.
        self._reported: dict[str, Limited] = {}
        self._flowing: set[str] = set()
        self._totals: dict[str, Flow] = {}
        self._totals_at: float | None = None
        self._hubs: tuple[HubPulse, ...] = ()

    def is_urgent(self, now: float) -> bool:
        """Whether the other gateways should know at once; to be asked some times between two reports.

        Since the last report clients are limited or no longer limited, or the traffic of a namespace has ended.
        """
        return any(self._has_changed(name, live, now) for name, live in self._namespaces.items())

    def _has_changed(self, key: str, live: LiveNamespace, now: float) -> bool:
        throughput = live.throughput
        if not isinstance(throughput, MeteredThroughput):
            return False
        if _limited(live, throughput, now) != self._reported.get(key, NOT_LIMITED):
            return True
        return key in self._flowing and self._flow(key, throughput.total_flow, now) == _NOTHING

    def measure(self, now: float) -> tuple[tuple[NamespacePulse, ...], tuple[HubPulse, ...]]:
        """The namespaces and hubs with traffic or demand."""
        if self._totals_at is None or now - self._totals_at >= _HUB_SECONDS:
            self._measure_hubs(now)
        self._reported = {}
        self._flowing.clear()
        self._flows = {name: seen for name, seen in self._flows.items() if name in self._namespaces}
        found = [self._measure_namespace(name, live, now) for name, live in self._namespaces.items()]
        return tuple(each for each in found if each.flow != _NOTHING or any(each.limited)), self._hubs

    def _measure_namespace(self, key: str, live: LiveNamespace, now: float) -> NamespacePulse:
        throughput = live.throughput
        if not isinstance(throughput, MeteredThroughput):
            flows = [hub.flow for hub in self._hubs if hub.namespace == live.entity.name]
            return NamespacePulse(name=live.entity.name, flow=Flow(*map(sum, zip(*flows, strict=True))))
        flow = self._flow(key, throughput.total_flow, now)
        if flow != _NOTHING:
            self._flowing.add(key)
        limited = self._reported[key] = _limited(live, throughput, now)
        units = units_of(flow, live.limits) + (1.0 if any(limited) else 0.0)
        return NamespacePulse(name=live.entity.name, flow=flow, limited=limited, units=round(units, 2))

    def _flow(self, key: str, spent: Flow, now: float) -> Flow:
        seen = self._flows.setdefault(key, deque())
        # The first one that is kept is at least as old as the window.
        while len(seen) > 1 and now - seen[1][0] >= _WINDOW_SECONDS:
            seen.popleft()
        seen.append((now, spent))
        return _per_second(seen[0][1], spent, now - seen[0][0])

    def _measure_hubs(self, now: float) -> None:
        seconds = 0.0 if self._totals_at is None else now - self._totals_at
        totals: dict[str, Flow] = {}
        hubs: list[HubPulse] = []
        for namespace in self._namespaces.values():
            for hub in namespace.hubs.values():
                counters = hub.counters
                total = totals[hub.entity.uid] = Flow(
                    counters.incoming_bytes,
                    counters.incoming_messages,
                    counters.outgoing_bytes,
                    counters.outgoing_messages,
                )
                before = self._totals.get(hub.entity.uid, _NOTHING)
                if seconds and total != before:
                    flow = _per_second(before, total, seconds)
                    hubs.append(HubPulse(namespace=namespace.entity.name, hub=hub.name, flow=flow))
        self._totals, self._totals_at, self._hubs = totals, now, tuple(hubs)


def _limited(live: LiveNamespace, throughput: MeteredThroughput, now: float) -> Limited:
    return throughput.limited_pools(now, has_connections=live.counters.active_connections > 0)


def _per_second(before: Flow, after: Flow, seconds: float) -> Flow:
    if seconds <= 0:
        return _NOTHING
    return Flow(*(max(new - old, 0.0) / seconds for old, new in zip(before, after, strict=True)))


def units_of(flow: Flow, limits: Limits) -> float:
    """The throughput units that a traffic needs, by the most used pool."""
    per_unit = (
        limits.ingress_bytes_per_unit,
        limits.ingress_events_per_unit,
        limits.egress_bytes_per_unit,
        limits.egress_events_per_unit,
    )
    return max((amount / unit for amount, unit in zip(flow, per_unit, strict=True) if unit), default=0.0)
