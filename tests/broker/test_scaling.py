"""Units that follow the load: they shrink after a quiet time if configured (service 5 only grows)."""

from dataclasses import replace

import pytest

from broker.builders import NOW_MS, Bench, a_batch
from hubmere.broker.quotas.auto_inflate import QUIET_SECONDS
from hubmere.model.errors import InvalidArgument, ServerBusy
from hubmere.model.spec import NamespaceSpec
from hubmere.model.tier import Profile
from hubmere.testing import ManualClock

MB = 1024 * 1024


class Load:
    """Traffic on a namespace of the standard tier that may grow to 4 units, second by second with a manual clock."""

    def __init__(self, *, capacity: int, minimum: int) -> None:
        self.clock = ManualClock()
        self.bench = Bench(profile=Profile.STANDARD, capacity=capacity, auto_inflate_to=4)
        self.change(minimum_throughput_units=minimum)
        self._publisher = self.bench.broker.open_publisher(self.bench.hub)

    @property
    def capacity(self) -> int:
        """The units that the namespace has now."""
        return self.bench.broker._namespace("hubmere").entity.capacity

    def change(self, **wishes: int) -> None:
        """Change some settings of the namespace."""
        spec = replace(NamespaceSpec.of(self.bench.catalog.planned.namespace("hubmere")), **wishes)  # type: ignore[arg-type]
        bench = self.bench
        bench.do(lambda done: bench.manager.update_namespace("hubmere", spec, bench.actor(), done))

    def flow(self, seconds: int, mb_per_s: int = 0) -> list[int]:
        """Offer so much for a while; the capacity after each second."""
        return [self._one_second(mb_per_s) for _ in range(seconds)]

    def _one_second(self, mb: int) -> int:
        now = self.bench.now = self.clock.monotonic()
        for _ in range(mb):
            try:
                self._publisher.publish(
                    a_batch(), count=1, size_bytes=MB, key=None, now=now, now_ms=NOW_MS, callback=lambda _: None
                )
            except ServerBusy:
                break
        self.bench.broker.upkeep.tick(self.bench.actor())
        self.bench.catalog.apply()
        self.bench.turn.run()
        self.clock.advance(1.0)
        return self.capacity


@pytest.fixture
def quiet_s() -> int:
    """The quiet time in whole seconds, and one for the first measurement."""
    return int(QUIET_SECONDS) + 1


def test_a_namespace_without_a_minimum_never_falls(quiet_s: int) -> None:
    """As in the service: what auto-inflate has raised stays."""
    load = Load(capacity=3, minimum=0)

    load.flow(2 * quiet_s)

    assert load.capacity == 3
    load.bench.close()


def test_a_quiet_namespace_falls_one_unit_per_quiet_time_to_its_minimum(quiet_s: int) -> None:
    """Step by step, down to the minimum."""
    load = Load(capacity=4, minimum=2)

    seen = load.flow(4 * quiet_s)

    assert [seen.count(units) for units in (4, 3, 2)] == [quiet_s - 1, quiet_s, 2 * quiet_s + 1]
    load.bench.close()


def test_traffic_that_needs_the_units_keeps_them(quiet_s: int) -> None:
    """Not throttled, yet too much for one unit less: falling would only mean to rise again."""
    load = Load(capacity=3, minimum=1)

    load.flow(2 * quiet_s, mb_per_s=3)

    assert load.capacity == 3
    load.bench.close()


def test_a_busy_second_begins_the_quiet_time_anew(quiet_s: int) -> None:
    """The quiet time must not be interrupted."""
    load = Load(capacity=3, minimum=1)

    load.flow(quiet_s - 10)
    load.flow(1, mb_per_s=3)
    before = load.flow(quiet_s - 10)[-1]
    after = load.flow(10)[-1]

    assert (before, after) == (3, 2)
    load.bench.close()


def test_a_namespace_that_has_fallen_rises_again_under_load(quiet_s: int) -> None:
    """Down and up are one cycle."""
    load = Load(capacity=2, minimum=1)

    fallen = load.flow(2 * quiet_s)[-1]
    risen = load.flow(10, mb_per_s=8)[-1]

    assert (fallen, risen) == (1, 4)
    load.bench.close()


@pytest.mark.parametrize("wishes", [{"minimum_throughput_units": 3}, {"auto_inflate": False}])
def test_a_minimum_lies_within_what_it_bounds(wishes: dict[str, int]) -> None:
    """Neither above the capacity nor without auto-inflate, which would raise it again."""
    load = Load(capacity=2, minimum=1)

    with pytest.raises(InvalidArgument):
        load.change(**wishes)

    load.bench.close()


def test_a_namespace_that_is_not_throttled_has_nothing_to_scale() -> None:
    """Units mean nothing where no limit is on them."""
    bench = Bench(capacity=2, auto_inflate_to=4)
    bench.now = 10 * QUIET_SECONDS

    bench.broker.upkeep.tick(bench.actor())

    assert bench.broker._namespace("hubmere").entity.capacity == 2
    bench.close()
