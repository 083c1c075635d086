"""Views have the queries of monitoring and expose no live state."""

from collections.abc import Iterator

import pytest

from broker.builders import NOW_MS, Bench, a_batch
from hubmere.broker import HubView, Traffic
from hubmere.model.errors import Refusal
from hubmere.model.tier import Profile


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def publish(bench: Bench, partition: str = "0") -> None:
    """One event of one byte."""
    publisher = bench.broker.administrator().open_publisher("orders", 0, partition=partition)
    publisher.publish(a_batch(), count=1, size_bytes=1, now=bench.now, now_ms=NOW_MS)
    bench.turn.run()


def test_view_of_a_hub_is_always_the_same_object(bench: Bench) -> None:
    """Callers may compare views and use them as keys of caches."""
    assert bench.hub.view is bench.broker._namespace("hubmere").view.hubs()[0]


def test_traffic_is_a_snapshot(bench: Bench) -> None:
    """A rate is the difference of two snapshots, so the first must not change afterwards."""
    namespace, uid = bench.broker._namespace("hubmere").view, bench.hub.view.uid
    before = namespace.traffic_by_hub()

    publish(bench)

    assert before == {uid: Traffic()}
    assert namespace.traffic_by_hub()[uid].incoming_messages == 1
    assert namespace.traffic() == Traffic()


def test_traffic_has_the_counters_of_its_fields(bench: Bench) -> None:
    """The snapshot is taken by name; a renamed counter must not be lost."""
    counters = bench.hub.counters
    for number, name in enumerate(Traffic._fields, 1):
        if name != "successful_requests":
            setattr(counters, name, number)

    traffic = counters.traffic

    assert traffic.user_errors == Traffic._fields.index("user_errors") + 1
    assert traffic.successful_requests == counters.incoming_requests - counters.refused_requests


def test_size_is_known_once_all_logs_are_open(bench: Bench) -> None:
    """Logs are opened a few at a time, so that a page over many hubs does not block the node."""
    view: HubView = bench.hub.view
    publish(bench, "3")
    assert (view.open_partition_count, view.is_fully_open) == (1, False)

    opened = [view.open_partitions(2), view.open_partitions(2), view.open_partitions(2)]

    assert opened == [2, 1, 0]
    assert view.is_fully_open
    assert view.size_bytes == bench.hub.log(3).state.size_bytes


def test_offline_partition_has_no_size(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unreadable disk must not hide the sizes of the other partitions."""
    publish(bench)
    whole = bench.hub.view.size_bytes
    bench.hub.view.open_partitions(1)

    class Offline:
        @property
        def state(self) -> None:
            raise Refusal

    monkeypatch.setitem(bench.hub._logs, 1, Offline())

    assert bench.hub.view.size_bytes == whole


def test_publishing_links_are_listed_by_name(bench: Bench) -> None:
    """Monitoring counts links and names publishers; it cannot close them through a view."""
    caller = bench.broker.administrator()
    publishers = [
        caller.open_publisher("orders", 0, publisher=name, on_closed=lambda _: None) for name in ("Device-7", None)
    ]

    names = bench.hub.view.publisher_names()
    for publisher in publishers:
        publisher.close()

    assert names == ["device-7", None]
    assert bench.hub.view.publisher_names() == []


def test_limits_follow_the_throughput_units() -> None:
    """The Scale page draws the limit that the broker enforces."""
    bench = Bench(profile=Profile.STANDARD, capacity=2)
    rates = bench.broker._namespace("hubmere").view.rates

    assert rates is not None
    assert (rates.ingress_bytes, rates.ingress_events) == (2 * 1024 * 1024, 2000)
    bench.close()


def test_kafka_groups_are_described_before_and_after_a_coordinator_exists(bench: Bench) -> None:
    """A group that only has committed offsets is listed too, also directly after a start."""
    assert bench.broker.coordinators.describe_groups("hubmere", 10) == []

    coordinator = bench.broker.coordinators.of(bench.broker._namespace("hubmere"), bench.now, NOW_MS)

    assert coordinator.groups.list() == []
    assert bench.broker.coordinators.describe_groups("Hubmere", 10) == []
