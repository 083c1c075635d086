"""Run-time state of a namespace: its hubs, its throughput units and its application groups."""

from typing import TYPE_CHECKING

from hubmere.broker.hubs.counters import Counters
from hubmere.broker.hubs.views import NamespaceView
from hubmere.broker.quotas.application_groups import ApplicationGroups
from hubmere.broker.quotas.metered import MeteredThroughput, scale_rates
from hubmere.broker.quotas.throughput import Rates, Throughput
from hubmere.model.entity import Namespace
from hubmere.model.errors import HubNotFound
from hubmere.model.monitoring.pulse import Flow
from hubmere.model.names import fold
from hubmere.model.tier import Limits

if TYPE_CHECKING:
    from hubmere.broker.hubs.live import LiveHub

# A rate that no machine reaches, for a limit that is not set; finite, because buckets calculate with it.
_UNBOUNDED = 1e18


def rates_of(limits: Limits, capacity: int) -> Rates | None:
    """Bytes and events per second that a namespace of this capacity may use; None when it is not throttled."""
    numbers = (
        limits.ingress_bytes_per_unit,
        limits.ingress_events_per_unit,
        limits.egress_bytes_per_unit,
        limits.egress_events_per_unit,
    )
    if all(number is None for number in numbers):
        return None
    per_second = [_UNBOUNDED if number is None else float(number * capacity) for number in numbers]
    return Rates(
        ingress_bytes=per_second[0],
        ingress_events=per_second[1],
        egress_bytes=per_second[2],
        egress_events=per_second[3],
    )


# All of a namespace's throughput: on one node, and on a gateway that has no share yet.
_WHOLE = Flow(1.0, 1.0, 1.0, 1.0)


class LiveNamespace:
    """Run-time state of one namespace."""

    __slots__ = (
        "_equal_share",
        "_share",
        "_throughput_type",
        "application_groups",
        "counters",
        "entity",
        "hub_revision",
        "hubs",
        "limits",
        "throughput",
        "view",
    )

    def __init__(self, entity: Namespace, limits: Limits, now: float, *, is_shared: bool = False) -> None:
        """`is_shared`: other gateways serve the namespace too, and its throughput units are shared with them."""
        self._share, self._equal_share = _WHOLE, 1.0
        self._throughput_type = MeteredThroughput if is_shared else Throughput
        self.entity = entity
        self.limits = limits
        self.counters = Counters()
        self.application_groups = ApplicationGroups()
        self.hubs: dict[str, LiveHub] = {}
        # Grows whenever a hub is created, changed or deleted.
        self.hub_revision = 0
        rates = self.rates
        self.throughput = None if rates is None else self._throughput_type(rates, now)
        self.view = NamespaceView(self)

    def update(self, entity: Namespace, limits: Limits, now: float) -> None:
        """Apply changed settings; throughput limits follow at once."""
        self.entity = entity
        self.limits = limits
        self._update_throughput(now)

    def apply_share(self, fractions: Flow, equal: float, now: float) -> None:
        """Allow this gateway a part of the namespace's throughput units, effective at once.

        `equal` is the part that each gateway has if all want more.
        """
        if (fractions, equal) != (self._share, self._equal_share):
            self._share, self._equal_share = fractions, equal
            self._update_throughput(now)

    def _update_throughput(self, now: float) -> None:
        whole = self.rates
        if whole is None:
            self.throughput = None
            return
        rates = scale_rates(whole, self._share)
        if self.throughput is None:
            self.throughput = self._throughput_type(rates, now)
        else:
            self.throughput.change_rates(rates, now)
        if isinstance(self.throughput, MeteredThroughput):
            self.throughput.expect(scale_rates(whole, Flow(*[self._equal_share] * len(_WHOLE))))

    @property
    def rates(self) -> Rates | None:
        """Bytes and events per second that the namespace may use; None when it is not throttled."""
        return rates_of(self.limits, self.entity.capacity)

    def hub(self, name: str) -> "LiveHub":
        """A hub by its name in any case; refused with the service's text when there is none."""
        live = self.hubs.get(fold(name))
        if live is None:
            raise HubNotFound(self.resource(name))
        return live

    def resource(self, *path: str) -> str:
        """How the service names something below this namespace in its texts."""
        return "/".join((f"sb://{self.entity.name}", *path))
