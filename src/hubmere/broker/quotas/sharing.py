"""Shares of a namespace's throughput units: every gateway computes the same ones from the same reports. Pure.

1. Each gateway that serves the cluster has a floor, so that its next client can begin: FLOOR of the whole over all
   gateways together.
2. Gateways that want less than an equal part get what they want. The rest is divided equally among the others.
3. If all have what they want, what remains is divided equally.
4. A gateway that does not report has an equal part of the whole: it allows itself the same when it does not read its
   own reports. Equal parts never add up to more than the whole.
5. A gateway that neither reports nor beats in the control log has probably died: it has the floor.

A share that shrinks applies at once, one that grows when RAISE_SECONDS have passed: by then the other gateways have
read the same reports and have reduced theirs.
"""

from collections import deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Final

from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.quotas.demand import units_of
from hubmere.broker.quotas.throughput import Rates
from hubmere.model.monitoring.pulse import Flow, GatewayPulse, NamespacePulse
from hubmere.model.names import fold

FLOOR: Final = 0.05
# A traffic that is not limited may grow by this factor until the next report.
_HEADROOM: Final = 1.25
RAISE_SECONDS: Final = 0.6
UNBOUNDED: Final = float("inf")
# From this part of the whole on, a limited gateway shows that the namespace needs more units.
_USED_UP: Final = 0.8
_POOLS: Final = range(len(Flow._fields))


def divide(wanted: Mapping[str, float | None]) -> dict[str, float]:
    """The part of one pool for each gateway, which add up to 1. `wanted` is a part of the whole; None: no report."""
    count = len(wanted)
    parts = {session: 1.0 / count for session, want in wanted.items() if want is None}
    known = sorted((want, session) for session, want in wanted.items() if want is not None)
    if not known:
        return parts
    floor = FLOOR / count
    left = len(known) / count - floor * len(known)
    for number, (want, session) in enumerate(known):
        part = min(max(want - floor, 0.0), left / (len(known) - number))
        parts[session] = floor + part
        left -= part
    for _, session in known:
        parts[session] += left / len(known)
    return parts


def namespace_shares(
    whole: Rates, members: Sequence[str], reports: Mapping[str, NamespacePulse], known: Container[str]
) -> dict[str, Flow]:
    """The parts of a namespace's pools that each gateway may use.

    `reports` are those of gateways with traffic in the namespace. `known` are all gateways whose demand is known: those
    that report at all, and those that have probably died.
    """
    rates = _pools(whole)
    pools = [
        divide(
            {
                session: _demand_of(reports.get(session), pool, rates[pool]) if session in known else None
                for session in members
            }
        )
        for pool in _POOLS
    ]
    return {session: Flow(*(pool[session] for pool in pools)) for session in members}


def _demand_of(report: NamespacePulse | None, pool: int, rate: float) -> float:
    if report is None:
        return 0.0
    return UNBOUNDED if report.limited[pool] else report.flow[pool] * _HEADROOM / rate


def _pools(whole: Rates) -> Flow:
    return Flow(whole.ingress_bytes, whole.ingress_events, whole.egress_bytes, whole.egress_events)


def _by_namespace(pulses: Mapping[str, GatewayPulse]) -> dict[str, dict[str, NamespacePulse]]:
    """The reports of each namespace, by session."""
    found: dict[str, dict[str, NamespacePulse]] = {}
    for session, pulse in pulses.items():
        for report in pulse.namespaces:
            found.setdefault(fold(report.name), {})[session] = report
    return found


class Sharing:
    """Applies the shares of this gateway, and gives auto-inflate the traffic of the whole cluster.

    Thread rule: the owner's thread only.
    """

    def __init__(self, namespaces: Mapping[str, LiveNamespace]) -> None:
        self._namespaces = namespaces
        self._session = ""
        self._members: Sequence[str] = ()
        self._reports: dict[str, dict[str, NamespacePulse]] = {}
        self._known: set[str] = set()
        self._computed: dict[str, deque[tuple[float, Flow]]] = {}

    def update(
        self,
        *,
        session: str,
        members: Sequence[str],
        pulses: Mapping[str, GatewayPulse],
        silent: Collection[str] = (),
        now: float,
    ) -> None:
        """Compute and apply the shares. `members` are the gateways of the cluster, in the order of their start.

        `silent` are those that neither report nor beat.
        """
        pulses = {sender: pulse for sender, pulse in pulses.items() if sender not in silent}
        self._session, self._reports = session, _by_namespace(pulses)
        self._known = {*pulses, *silent}
        # Before the control log has the session of this gateway, it counts itself.
        self._members = members if session in members else (*members, session)
        self._computed = {name: seen for name, seen in self._computed.items() if name in self._namespaces}
        equal = 1.0 / len(self._members)
        for name, live in self._namespaces.items():
            if live.throughput is not None:
                live.apply_share(self._lowest_share(name, self._share(name, live), now), equal, now)

    def _share(self, name: str, live: LiveNamespace) -> Flow:
        if self._session not in self._known or name not in self._reports or live.rates is None:
            # Without its own reports, or if nobody uses the namespace.
            equal = 1.0 / len(self._members)
            return Flow(equal, equal, equal, equal)
        return namespace_shares(live.rates, self._members, self._reports[name], self._known)[self._session]

    def _lowest_share(self, name: str, share: Flow, now: float) -> Flow:
        """The smallest share of the last moments, for each pool."""
        seen = self._computed.setdefault(name, deque())
        if len(seen) != 1 or seen[0][1] != share:
            seen.append((now, share))
            # One that is older than the window stays until a newer one is as old.
            while len(seen) > 1 and now - seen[1][0] >= RAISE_SECONDS:
                seen.popleft()
        return Flow(*map(min, zip(*(old for _, old in seen), strict=True)))

    # --- auto-inflate

    @property
    def decides(self) -> bool:
        """Whether this gateway changes the throughput units of namespaces: the one that began first."""
        return bool(self._members) and self._members[0] == self._session

    def is_used_up(self, live: LiveNamespace) -> bool:
        """Whether clients are limited although the whole of a pool is used, over all gateways."""
        if live.rates is None:
            return False
        rates, reports = _pools(live.rates), self._reports.get(fold(live.entity.name), {})
        total = _total(reports.values())
        return any(
            total[pool] >= _USED_UP * rates[pool] and any(report.limited[pool] for report in reports.values())
            for pool in _POOLS
        )

    def units_in_use(self, live: LiveNamespace) -> float:
        """The throughput units that the traffic of all gateways needs."""
        return units_of(_total(self._reports.get(fold(live.entity.name), {}).values()), live.limits)


def _total(reports: Iterable[NamespacePulse]) -> Flow:
    flows = [report.flow for report in reports]
    return Flow(*(sum(flow[pool] for flow in flows) for pool in _POOLS))
