"""Throughput units as a namespace sees them, on a clock that the test turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.broker.quotas.throughput import FairBucket, Rates, Throughput
from hubmere.model.errors import ServerBusy

KB = 1024
MB = 1024 * KB


def units(count: int) -> Rates:
    """The rates of so many throughput units of the standard tier."""
    return Rates(
        ingress_bytes=count * MB, ingress_events=count * 1000, egress_bytes=count * 2 * MB, egress_events=count * 4096
    )


def admit(pool: Throughput, hub: str, size_bytes: int, events: int, now: float) -> None:
    """Publish as AMQP and HTTP clients do: refused when it is too much, else charged."""
    pool.require_ingress(hub, size_bytes, events, now)
    pool.charge_ingress(hub, size_bytes, events, now)


def charge(pool: Throughput, hub: str, size_bytes: int, events: int, now: float) -> float:
    """Publish as Kafka clients do: charged in any case; how long the client should pause then."""
    pool.charge_ingress(hub, size_bytes, events, now)
    return pool.ingress_delay(hub, now)


def offer(
    pool: Throughput, hub: str, size_bytes: int, *, events: int = 1, times: int, start: float, step: float
) -> int:
    """How many of `times` equal publications at a steady pace were admitted."""
    admitted = 0
    for i in range(times):
        try:
            admit(pool, hub, size_bytes, events, start + i * step)
        except ServerBusy:
            continue
        admitted += 1
    return admitted


def test_twice_the_bytes_of_a_unit_are_half_refused() -> None:
    """1 TU and 2 MB/s for 10 s: about 1 MB/s passes, plus the one-second burst."""
    pool = Throughput(units(1), 0.0)

    admitted = offer(pool, "a", 16 * KB, times=1280, start=0.0, step=10 / 1280)

    assert 10 * MB <= admitted * 16 * KB <= 11.1 * MB


def test_tiny_events_are_bounded_by_their_number() -> None:
    """1 TU and 1,500 tiny events/s: about 1,000/s pass."""
    pool = Throughput(units(1), 0.0)

    admitted = offer(pool, "a", 10, times=15_000, start=0.0, step=1 / 1500)

    assert 10_000 <= admitted <= 11_100


def test_two_hubs_share_one_pool() -> None:
    """The sum of both is bounded, not each alone."""
    pool = Throughput(units(1), 0.0)
    admitted = 0

    for i in range(2000):
        now = i * 0.005
        admitted += offer(pool, "a", 16 * KB, times=1, start=now, step=0)
        admitted += offer(pool, "b", 16 * KB, times=1, start=now, step=0)

    assert admitted * 16 * KB <= 11.1 * MB


def test_a_flooding_hub_cannot_starve_another_below_its_share() -> None:
    """A modest sender inside half of the unit is always admitted, whatever its neighbour does."""
    pool = Throughput(units(1), 0.0)
    modest_admitted = 0

    for tick in range(1, 1001):
        now = tick * 0.01
        offer(pool, "flood", 64 * KB, times=20, start=now, step=0)
        modest_admitted += offer(pool, "modest", 4 * KB, times=1, start=now, step=0)

    assert modest_admitted >= 990


def test_a_lone_hub_gets_everything() -> None:
    """Only active hubs have a share, so idle ones cost nothing."""
    pool = Throughput(units(1), 0.0)
    offer(pool, "gone", 1, times=1, start=0.0, step=0)

    admitted = offer(pool, "a", 16 * KB, times=640, start=10.0, step=10 / 640)

    assert admitted == 640


def test_a_hub_that_comes_late_is_admitted_at_once() -> None:
    """A hub that was alone has saved up the whole bucket; half of it is the newcomer's."""
    pool = Throughput(units(1), 0.0)
    for tick in range(300):
        admit(pool, "first", KB, 1, tick * 0.01)

    assert offer(pool, "late", 16 * KB, times=20, start=3.0, step=0) == 20


def test_a_publication_larger_than_the_bucket_passes_when_it_is_full() -> None:
    """Otherwise a 1.5 MB publication could never be sent with one unit."""
    pool = Throughput(units(1), 0.0)

    admit(pool, "a", 3 * MB, 1, 0.0)

    with pytest.raises(ServerBusy):
        admit(pool, "a", 1, 1, 0.5)
    admit(pool, "a", 10, 1, 2.5)


def test_refused_publication_takes_nothing() -> None:
    """Check, then change: a refusal by events leaves the bytes alone."""
    pool = Throughput(units(1), 0.0)
    admit(pool, "a", 10, 1000, 0.0)

    with pytest.raises(ServerBusy):
        admit(pool, "a", MB // 2, 1000, 0.0)

    assert pool.was_throttled
    assert pool.ingress_delay("a", 1.0) == 0.0


def test_ingress_overload_does_not_slow_readers() -> None:
    """Ingress and egress are separate pools."""
    pool = Throughput(units(1), 0.0)
    offer(pool, "a", MB, times=50, start=0.0, step=0)

    assert pool.egress_delay("a", 0.0) == 0.0


def test_egress_is_paced_to_two_megabytes_a_second() -> None:
    """Delivery slows down without an error."""
    pool = Throughput(units(1), 0.0)
    delivered, now = 0, 0.0

    while now < 10.0:
        now += pool.egress_delay("a", now)
        pool.charge_egress("a", 64 * KB, 64, now)
        delivered += 64 * KB

    assert 20 * MB <= delivered <= 22.5 * MB


def test_more_units_are_effective_at_once() -> None:
    """Scaling needs no restart."""
    pool = Throughput(units(1), 0.0)
    offer(pool, "a", MB, times=2, start=0.0, step=0)

    pool.change_rates(units(4), 0.0)

    assert offer(pool, "a", 16 * KB, times=2560, start=0.0, step=10 / 2560) * 16 * KB >= 38 * MB


def test_kafka_producers_are_delayed_and_lose_nothing() -> None:
    """A charge is always taken; the delay says how long to hold the producer."""
    pool = Throughput(units(1), 0.0)

    delays = [charge(pool, "a", MB, 1, 0.0) for _ in range(4)]

    assert delays[0] <= 0.01
    assert 1.9 <= delays[-1] - delays[0] <= 3.1


@given(st.lists(st.tuples(st.integers(1, 400_000), st.integers(1, 300)), min_size=1, max_size=8), st.floats(0, 1))
def test_what_there_is_room_for_as_a_whole_delays_nobody_piece_by_piece(
    pieces: list[tuple[int, int]], before: float
) -> None:
    """Publications that are charged together must get the same result as one by one."""
    pool = Throughput(units(1), 0.0)
    charge(pool, "a", int(MB * before), int(1000 * before), 0.0)

    has_room = pool.has_ingress("a", sum(size for size, _ in pieces), sum(events for _, events in pieces), 0.0)
    delays = [charge(pool, "a", size, events, 0.0) for size, events in pieces]

    assert has_room == (max(delays) == 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5000), st.floats(0, 0.2)), min_size=1, max_size=200))
def test_no_pattern_of_senders_gets_more_than_rate_and_burst(offers: list[tuple[str, int, float]]) -> None:
    """Whatever the order and sizes, the admitted total stays within rate x time + one burst (+ one last overshoot)."""
    bucket = FairBucket(1000.0, 0.0)
    now, taken = 0.0, 0

    for hub, amount, pause in offers:
        now += pause
        if bucket.missing(hub, amount, now) == 0:
            bucket.spend(hub, amount, now)
            taken += amount

    assert taken <= 1000 * now + 1000 + 5000
