"""Throughput units shrink after a quiet time if a minimum is configured; in the service they only grow (service 5)."""

from dataclasses import replace

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.broker.quotas.auto_inflate import QUIET_SECONDS
from hubmere.model.errors import InvalidArgument, ServerBusy
from hubmere.model.spec import NamespaceSpec
from hubmere.model.tier import Profile
from manual_clock import ManualClock

MB = 1024 * 1024


class Load:
    """Traffic on a standard namespace that may grow to 4 units, second by second on a manual clock."""

    def __init__(self, *, capacity: int, minimum: int) -> None:
        self.clock = ManualClock()
        self.broker_harness = BrokerHarness(profile=Profile.STANDARD, capacity=capacity, auto_inflate_to=4)
        self.change(minimum_throughput_units=minimum)
        self._publisher = self.broker_harness.broker.open_publisher(self.broker_harness.hub)

    @property
    def capacity(self) -> int:
        """The units that the namespace has now."""
        return self.broker_harness.broker._namespace("hubmere").entity.capacity

    def change(self, **wishes: int) -> None:
        """Change some settings of the namespace."""
        spec = replace(NamespaceSpec.of(self.broker_harness.catalog.planned_view.namespace("hubmere")), **wishes)  # type: ignore[arg-type]
        broker_harness = self.broker_harness
        broker_harness.do(
            lambda done: broker_harness.manager.update_namespace("hubmere", spec, broker_harness.actor(), done)
        )

    def flow(self, seconds: int, mb_per_s: int = 0) -> list[int]:
        """Offer some traffic for some seconds; returns the capacity after each second."""
        return [self._one_second(mb_per_s) for _ in range(seconds)]

    def _one_second(self, mb: int) -> int:
        now = self.broker_harness.now = self.clock.monotonic()
        for _ in range(mb):
            try:
                self._publisher.publish(
                    a_batch(), count=1, size_bytes=MB, key=None, now=now, now_ms=NOW_MS, callback=lambda _: None
                )
            except ServerBusy:
                break
        self.broker_harness.broker.upkeep.tick(self.broker_harness.actor())
        self.broker_harness.catalog.apply()
        self.broker_harness.turn.run()
        self.clock.advance(1.0)
        return self.capacity


@pytest.fixture
def quiet_s() -> int:
    """The quiet time in whole seconds, plus one second for the first measurement."""
    return int(QUIET_SECONDS) + 1


def test_namespace_without_a_minimum_never_shrinks(quiet_s: int) -> None:
    """As in the service, added units stay."""
    load = Load(capacity=3, minimum=0)

    load.flow(2 * quiet_s)

    assert load.capacity == 3
    load.broker_harness.close()


def test_quiet_namespace_loses_one_unit_per_quiet_time_down_to_its_minimum(quiet_s: int) -> None:
    """It shrinks step by step."""
    load = Load(capacity=4, minimum=2)

    seen = load.flow(4 * quiet_s)

    assert [seen.count(units) for units in (4, 3, 2)] == [quiet_s - 1, quiet_s, 2 * quiet_s + 1]
    load.broker_harness.close()


def test_units_that_the_traffic_needs_are_kept(quiet_s: int) -> None:
    """The traffic is not throttled, but would be with one unit less."""
    load = Load(capacity=3, minimum=1)

    load.flow(2 * quiet_s, mb_per_s=3)

    assert load.capacity == 3
    load.broker_harness.close()


def test_busy_second_restarts_the_quiet_time(quiet_s: int) -> None:
    """The quiet time must be uninterrupted."""
    load = Load(capacity=3, minimum=1)

    load.flow(quiet_s - 10)
    load.flow(1, mb_per_s=3)
    before = load.flow(quiet_s - 10)[-1]
    after = load.flow(10)[-1]

    assert (before, after) == (3, 2)
    load.broker_harness.close()


def test_namespace_that_has_shrunk_grows_again_under_load(quiet_s: int) -> None:
    """Shrinking does not prevent growing."""
    load = Load(capacity=2, minimum=1)

    fallen = load.flow(2 * quiet_s)[-1]
    risen = load.flow(10, mb_per_s=8)[-1]

    assert (fallen, risen) == (1, 4)
    load.broker_harness.close()


@pytest.mark.parametrize("wishes", [{"minimum_throughput_units": 3}, {"auto_inflate": False}])
def test_invalid_minimum_is_refused(wishes: dict[str, int]) -> None:
    """It must not be above the capacity, and needs auto-inflate."""
    load = Load(capacity=2, minimum=1)

    with pytest.raises(InvalidArgument):
        load.change(**wishes)

    load.broker_harness.close()


def test_namespace_without_throttling_is_not_scaled() -> None:
    """Units have no effect without throttling."""
    broker_harness = BrokerHarness(capacity=2, auto_inflate_to=4)
    broker_harness.now = 10 * QUIET_SECONDS

    broker_harness.broker.upkeep.tick(broker_harness.actor())

    assert broker_harness.broker._namespace("hubmere").entity.capacity == 2
    broker_harness.close()
