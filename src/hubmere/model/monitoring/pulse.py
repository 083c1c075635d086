"""What a gateway of a cluster reports about itself twice a second, and what is known of each gateway from it.

The records are bounded: a gateway reports its busiest namespaces and hubs, and one that has neither is still short.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

# Namespaces and hubs with traffic that one record has; the busiest ones.
MAX_NAMESPACES: Final = 200
MAX_HUBS: Final = 200


class Flow(NamedTuple):
    """Amounts per second: bytes and events that were published and delivered."""

    ingress_bytes: float = 0.0
    ingress_events: float = 0.0
    egress_bytes: float = 0.0
    egress_events: float = 0.0


_NO_FLOW: Final = Flow()


class Limited(NamedTuple):
    """Of which amounts clients want more than the gateway's share."""

    ingress_bytes: bool = False
    ingress_events: bool = False
    egress_bytes: bool = False
    egress_events: bool = False


NOT_LIMITED: Final = Limited()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePulse:
    """The traffic of one namespace on one gateway.

    `units` is the demand in throughput units: those that the traffic needs, or at least one more if it is limited.
    """

    name: str
    flow: Flow
    limited: Limited = NOT_LIMITED
    units: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubPulse:
    """The traffic of one hub on one gateway."""

    namespace: str
    hub: str
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPulse:
    """One report. `number` grows with each report of a session; `applied` is the next entry of the control log."""

    session: str
    number: int
    address: str
    version: str
    applied: int
    connections: int
    namespaces: tuple[NamespacePulse, ...] = ()
    hubs: tuple[HubPulse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """A gateway of the cluster, as another one sees it.

    `lag` is the number of entries of the control log that it has not read; it, `connections` and `silent_s` (the time
    since its last report) are None if no report of it was read. `flow` is the traffic of all its namespaces.
    """

    session: str
    address: str
    version: str
    roles: tuple[str, ...] = ()
    connections: int | None = None
    lag: int | None = None
    silent_s: float | None = None
    flow: Flow = _NO_FLOW
    is_self: bool = False
    # Whether it has died, without stopping in order. It is shown for some minutes.
    is_gone: bool = False
    # The time of its last sign of life, in Unix milliseconds, and the name of the machine that it runs on.
    last_seen_ms: int | None = None
    machine: str = ""
