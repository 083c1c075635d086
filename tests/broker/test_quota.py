"""Throughput units of a namespace, on a manual clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.broker.quotas.throughput import FairBucket, Rates, Throughput
from hubmere.model.errors import ServerBusy

KB = 1024
MB = 1024 * KB


def units(count: int) -> Rates:
    """The rates of a number of throughput units of the standard tier."""
    return Rates(
        ingress_bytes=count * MB, ingress_events=count * 1000, egress_bytes=count * 2 * MB, egress_events=count * 4096
    )


def admit(pool: Throughput, hub: str, size_bytes: int, events: int, now: float) -> None:
    """Publish as AMQP and HTTP clients do: over the limit it is refused, otherwise it is charged."""
    pool.require_ingress(hub, size_bytes, events, now)
    pool.charge_ingress(hub, size_bytes, events, now)


def charge(pool: Throughput, hub: str, size_bytes: int, events: int, now: float) -> float:
    """Publish as Kafka clients do: it is always charged; returns how long the client has to pause."""
    pool.charge_ingress(hub, size_bytes, events, now)
    return pool.ingress_delay(hub, now)


def offer(
    pool: Throughput, hub: str, size_bytes: int, *, events: int = 1, times: int, start: float, step: float
) -> int:
    """The number of admitted publications of `times` equal ones at a steady rate."""
    admitted = 0
    for i in range(times):
        try:
            admit(pool, hub, size_bytes, events, start + i * step)
        except ServerBusy:
            continue
        admitted += 1
    return admitted


def test_traffic_of_twice_the_limit_is_refused_by_half() -> None:
    """1 TU and 2 MB/s for 10 s: about 1 MB/s passes, plus the one-second burst."""
    pool = Throughput(units(1), 0.0)

    admitted = offer(pool, "a", 16 * KB, times=1280, start=0.0, step=10 / 1280)

    assert 10 * MB <= admitted * 16 * KB <= 11.1 * MB


def test_small_events_are_limited_by_their_number() -> None:
    """One unit and 1,500 small events/s: about 1,000/s are admitted."""
    pool = Throughput(units(1), 0.0)

    admitted = offer(pool, "a", 10, times=15_000, start=0.0, step=1 / 1500)

    assert 10_000 <= admitted <= 11_100


def test_two_hubs_share_one_pool() -> None:
    """The sum of both hubs is limited, not each of them."""
    pool = Throughput(units(1), 0.0)
    admitted = 0

    for i in range(2000):
        now = i * 0.005
        admitted += offer(pool, "a", 16 * KB, times=1, start=now, step=0)
        admitted += offer(pool, "b", 16 * KB, times=1, start=now, step=0)

    assert admitted * 16 * KB <= 11.1 * MB


def test_hub_within_its_share_is_never_refused_because_of_another() -> None:
    """A sender that uses less than half of the unit is always admitted, whatever the other hub does."""
    pool = Throughput(units(1), 0.0)
    modest_admitted = 0

    for tick in range(1, 1001):
        now = tick * 0.01
        offer(pool, "flood", 64 * KB, times=20, start=now, step=0)
        modest_admitted += offer(pool, "modest", 4 * KB, times=1, start=now, step=0)

    assert modest_admitted >= 990


def test_only_active_hub_gets_the_whole_unit() -> None:
    """Only active hubs have a share, so idle hubs do not reduce it."""
    pool = Throughput(units(1), 0.0)
    offer(pool, "gone", 1, times=1, start=0.0, step=0)

    admitted = offer(pool, "a", 16 * KB, times=640, start=10.0, step=10 / 640)

    assert admitted == 640


def test_hub_that_becomes_active_is_admitted_at_once() -> None:
    """Half of the bucket is reserved for it, although another hub was alone before."""
    pool = Throughput(units(1), 0.0)
    for tick in range(300):
        admit(pool, "first", KB, 1, tick * 0.01)

    assert offer(pool, "late", 16 * KB, times=20, start=3.0, step=0) == 20


def test_publication_larger_than_the_bucket_is_admitted_when_the_bucket_is_full() -> None:
    """Otherwise a 1.5 MB publication could never be sent with one unit."""
    pool = Throughput(units(1), 0.0)

    admit(pool, "a", 3 * MB, 1, 0.0)

    with pytest.raises(ServerBusy):
        admit(pool, "a", 1, 1, 0.5)
    admit(pool, "a", 10, 1, 2.5)


def test_refused_publication_is_not_charged() -> None:
    """A refusal because of the number of events must not use up bytes."""
    pool = Throughput(units(1), 0.0)
    admit(pool, "a", 10, 1000, 0.0)

    with pytest.raises(ServerBusy):
        admit(pool, "a", MB // 2, 1000, 0.0)

    assert pool.was_throttled
    assert pool.ingress_delay("a", 1.0) == 0.0


def test_overload_of_ingress_does_not_slow_readers() -> None:
    """Ingress and egress are separate pools."""
    pool = Throughput(units(1), 0.0)
    offer(pool, "a", MB, times=50, start=0.0, step=0)

    assert pool.egress_delay("a", 0.0) == 0.0


def test_egress_is_limited_to_two_megabytes_a_second() -> None:
    """Delivery slows down, without an error."""
    pool = Throughput(units(1), 0.0)
    delivered, now = 0, 0.0

    while now < 10.0:
        now += pool.egress_delay("a", now)
        pool.charge_egress("a", 64 * KB, 64, now)
        delivered += 64 * KB

    assert 20 * MB <= delivered <= 22.5 * MB


def test_added_units_apply_at_once() -> None:
    """Scaling needs no restart."""
    pool = Throughput(units(1), 0.0)
    offer(pool, "a", MB, times=2, start=0.0, step=0)

    pool.change_rates(units(4), 0.0)

    assert offer(pool, "a", 16 * KB, times=2560, start=0.0, step=10 / 2560) * 16 * KB >= 38 * MB


def test_kafka_producers_are_delayed_and_lose_nothing() -> None:
    """A publication is always charged; the delay says how long the producer has to wait."""
    pool = Throughput(units(1), 0.0)

    delays = [charge(pool, "a", MB, 1, 0.0) for _ in range(4)]

    assert delays[0] <= 0.01
    assert 1.9 <= delays[-1] - delays[0] <= 3.1


@given(st.lists(st.tuples(st.integers(1, 400_000), st.integers(1, 300)), min_size=1, max_size=8), st.floats(0, 1))
def test_publications_that_fit_together_are_not_delayed_one_by_one(
    pieces: list[tuple[int, int]], before: float
) -> None:
    """Charging publications together must give the same result as charging each of them."""
    pool = Throughput(units(1), 0.0)
    charge(pool, "a", int(MB * before), int(1000 * before), 0.0)

    has_room = pool.has_ingress("a", sum(size for size, _ in pieces), sum(events for _, events in pieces), 0.0)
    delays = [charge(pool, "a", size, events, 0.0) for size, events in pieces]

    assert has_room == (max(delays) == 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5000), st.floats(0, 0.2)), min_size=1, max_size=200))
def test_admitted_total_never_exceeds_rate_and_burst(offers: list[tuple[str, int, float]]) -> None:
    """In any order and with any sizes, the total is at most rate x time, one burst, and one last publication."""
    bucket = FairBucket(1000.0, 0.0)
    now, taken = 0.0, 0

    for hub, amount, pause in offers:
        now += pause
        if bucket.missing(hub, amount, now) == 0:
            bucket.spend(hub, amount, now)
            taken += amount

    assert taken <= 1000 * now + 1000 + 5000
