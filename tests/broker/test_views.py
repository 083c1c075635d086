"""Views answer the queries of monitoring and expose no live state."""

from collections.abc import Iterator

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.broker import HubView, Traffic
from hubmere.model.errors import Refusal
from hubmere.model.tier import Profile


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    made = BrokerHarness()
    yield made
    made.close()


def publish(harness: BrokerHarness, partition: str = "0") -> None:
    """Publish one event of one byte."""
    publisher = harness.broker.administrator().open_publisher("orders", 0, partition=partition)
    publisher.publish(a_batch(), count=1, size_bytes=1, now=harness.now, now_ms=NOW_MS)
    harness.turn.run()


def test_view_of_a_hub_is_always_the_same_object(harness: BrokerHarness) -> None:
    """Callers may compare views and use them as keys of caches."""
    assert harness.hub.view is harness.broker._namespace("hubmere").view.hubs()[0]


def test_traffic_is_a_snapshot(harness: BrokerHarness) -> None:
    """A rate is the difference of two snapshots, so the first must not change afterwards."""
    namespace, uid = harness.broker._namespace("hubmere").view, harness.hub.view.uid
    before = namespace.traffic_by_hub()

    publish(harness)

    assert before == {uid: Traffic()}
    assert namespace.traffic_by_hub()[uid].incoming_messages == 1
    assert namespace.traffic() == Traffic()


def test_traffic_has_the_counters_of_its_fields(harness: BrokerHarness) -> None:
    """Fields are copied by name; a renamed counter must not be lost."""
    counters = harness.hub.counters
    for number, name in enumerate(Traffic._fields, 1):
        if name != "successful_requests":
            setattr(counters, name, number)

    traffic = counters.traffic

    assert traffic.user_errors == Traffic._fields.index("user_errors") + 1
    assert traffic.successful_requests == counters.incoming_requests - counters.refused_requests


def test_size_is_known_once_all_logs_are_open(harness: BrokerHarness) -> None:
    """Logs are opened a few at a time, so that a page over many hubs does not block the node."""
    view: HubView = harness.hub.view
    publish(harness, "3")
    assert (view.open_partition_count, view.is_fully_open) == (1, False)

    opened = [view.open_partitions(2), view.open_partitions(2), view.open_partitions(2)]

    assert opened == [2, 1, 0]
    assert view.is_fully_open
    assert view.size_bytes == harness.hub.log(3).state.size_bytes


def test_offline_partition_has_no_size(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unreadable disk must not hide the sizes of the other partitions."""
    publish(harness)
    whole = harness.hub.view.size_bytes
    harness.hub.view.open_partitions(1)

    class Offline:
        @property
        def state(self) -> None:
            raise Refusal

    monkeypatch.setitem(harness.hub._logs, 1, Offline())

    assert harness.hub.view.size_bytes == whole


def test_publishing_links_are_listed_by_name(harness: BrokerHarness) -> None:
    """Monitoring counts links and names publishers; it cannot close them through a view."""
    caller = harness.broker.administrator()
    publishers = [
        caller.open_publisher("orders", 0, publisher=name, on_closed=lambda _: None) for name in ("Device-7", None)
    ]

    names = harness.hub.view.publisher_names()
    for publisher in publishers:
        publisher.close()

    assert names == ["device-7", None]
    assert harness.hub.view.publisher_names() == []


def test_limits_follow_the_throughput_units() -> None:
    """The Scale page draws the limit that the broker enforces."""
    harness = BrokerHarness(profile=Profile.STANDARD, capacity=2)
    rates = harness.broker._namespace("hubmere").view.rates

    assert rates is not None
    assert (rates.ingress_bytes, rates.ingress_events) == (2 * 1024 * 1024, 2000)
    harness.close()


def test_kafka_groups_are_described_before_and_after_a_coordinator_exists(harness: BrokerHarness) -> None:
    """A group that only has committed offsets is listed too, also directly after a start."""
    assert harness.broker.coordinators.describe_groups("hubmere", 10) == []

    coordinator = harness.broker.coordinators.of(harness.broker._namespace("hubmere"), harness.now, NOW_MS)

    assert coordinator.groups.list() == []
    assert harness.broker.coordinators.describe_groups("Hubmere", 10) == []
