"""Throughput units of a gateway: as on one node, and in addition they measure what is used and what is refused.

Only gateways use these classes, so one node does not pay for the measurement. Time is an argument.
"""

from typing import ClassVar, Final

from hubmere.broker.quotas.throughput import RETRY_AFTER_SECONDS, FairBucket, Rates, Throughput
from hubmere.model.monitoring.pulse import Flow, Limited

# A delayed client sends again as soon as the delay has passed. A refused one waits for the time in the refusal; if no
# connection is open, it counts as gone earlier.
_RETURN_SECONDS: Final = 0.5
_REFUSED_SECONDS: Final = RETRY_AFTER_SECONDS + 1.0


class MeteredBucket(FairBucket):
    """A bucket that counts what is taken from it, and knows until when clients count as limited by it.

    `expected_rate` is the rate that the gateway gets soon if clients are limited: nobody is delayed for longer.
    `refused_until` is the time until which refused clients may wait, and is later than `limited_until`.
    """

    __slots__ = ("expected_rate", "limited_until", "refused_until", "spent")

    def __init__(self, rate_per_s: float, now: float) -> None:
        super().__init__(rate_per_s, now)
        self.expected_rate = rate_per_s
        self.spent = 0.0
        self.limited_until = self.refused_until = float("-inf")

    def missing(self, hub: str, amount: float, now: float) -> float:
        """As in the base class; what is refused is recorded."""
        missing = super().missing(hub, amount, now)
        if missing > 0:
            self.limited_until = max(self.limited_until, now + _RETURN_SECONDS)
            self.refused_until = now + _REFUSED_SECONDS
        return missing

    def debt_seconds(self, hub: str, now: float) -> float:
        """As in the base class; what is delayed is recorded."""
        seconds = super().debt_seconds(hub, now) * self._rate / max(self._rate, self.expected_rate)
        if seconds > 0:
            self.limited_until = max(self.limited_until, now + seconds + _RETURN_SECONDS)
        return seconds

    def spend(self, hub: str, amount: float, now: float) -> None:
        """As in the base class; what is taken is counted."""
        super().spend(hub, amount, now)
        self.spent += amount


class MeteredThroughput(Throughput):
    """The pools of one namespace on one gateway."""

    __slots__ = ()
    bucket_type: ClassVar[type[FairBucket]] = MeteredBucket

    @property
    def _pools(self) -> tuple[MeteredBucket, ...]:
        pools = (self._in_bytes, self._in_events, self._out_bytes, self._out_events)
        return tuple(pool for pool in pools if isinstance(pool, MeteredBucket))

    def expect(self, rates: Rates) -> None:
        """Set the rates that this gateway gets soon if its clients are limited."""
        expected = (rates.ingress_bytes, rates.ingress_events, rates.egress_bytes, rates.egress_events)
        for pool, rate in zip(self._pools, expected, strict=True):
            pool.expected_rate = rate

    @property
    def total_flow(self) -> Flow:
        """What was published and delivered since the start."""
        return Flow(*(pool.spent for pool in self._pools))

    def limited_pools(self, now: float, *, has_connections: bool) -> Limited:
        """For each pool, whether clients want more than this gateway may use."""
        if has_connections:
            return Limited(*(now < max(pool.limited_until, pool.refused_until) for pool in self._pools))
        return Limited(*(now < pool.limited_until for pool in self._pools))


def scale_rates(rates: Rates, fractions: Flow) -> Rates:
    """A part of the rates of a namespace."""
    return Rates(
        ingress_bytes=rates.ingress_bytes * fractions.ingress_bytes,
        ingress_events=rates.ingress_events * fractions.ingress_events,
        egress_bytes=rates.egress_bytes * fractions.egress_bytes,
        egress_events=rates.egress_events * fractions.egress_events,
    )
