"""Counters become rates while a page is open."""

from hubmere.portal.history.sampler import COUNTERS, HISTORY_SAMPLES, NO_RATES
from portal.builders import PortalHarness

_IN = COUNTERS.index("incoming_messages")


def test_rate_covers_the_time_since_the_last_sample(harness: PortalHarness) -> None:
    """Ten events in two seconds are five per second."""
    namespace = harness.broker._namespace("hubmere").view
    harness.sampler.sample(namespace)
    harness.publish(*[b"x"] * 10)
    harness.clock.advance(2.0)

    track = harness.sampler.sample(namespace)

    assert harness.sampler.rates(harness.hub.view)[_IN] == 5.0
    assert [sample.rate("incoming_messages") for sample in track.samples] == [5.0]


def test_several_pages_share_one_sample(harness: PortalHarness) -> None:
    """A page that refreshes a moment later uses the same sample."""
    namespace = harness.broker._namespace("hubmere").view
    harness.sampler.sample(namespace)
    harness.clock.advance(1.0)
    harness.sampler.sample(namespace)
    harness.publish(b"x")
    harness.clock.advance(0.1)

    harness.sampler.sample(namespace)

    assert harness.sampler.rates(harness.hub.view) == NO_RATES


def test_history_is_bounded(harness: PortalHarness) -> None:
    """A page that is open for a week keeps five minutes."""
    namespace = harness.broker._namespace("hubmere").view

    for _ in range(HISTORY_SAMPLES + 10):
        harness.sampler.sample(namespace, harness.hub.view)
        harness.clock.advance(1.0)

    assert len(harness.sampler.history(namespace)) == HISTORY_SAMPLES
    assert len(harness.sampler.history(namespace, harness.hub.view)) == HISTORY_SAMPLES


def test_history_restarts_after_a_pause(harness: PortalHarness) -> None:
    """The average over an hour without samples would look like the current rate."""
    namespace = harness.broker._namespace("hubmere").view
    for _ in range(3):
        harness.sampler.sample(namespace)
        harness.clock.advance(1.0)
    harness.publish(*[b"x"] * 100)
    harness.clock.advance(3600.0)

    harness.sampler.sample(namespace)

    assert len(harness.sampler.history(namespace)) == 0
    assert harness.sampler.rates(harness.hub.view) == NO_RATES


def test_open_hub_page_gets_partition_rates(harness: PortalHarness) -> None:
    """The page of a hub shows the rate of each partition."""
    namespace, hub = harness.broker._namespace("hubmere").view, harness.hub.view
    harness.sampler.sample(namespace, hub)
    harness.publish(b"a", b"b", partition="1")
    harness.clock.advance(1.0)

    track = harness.sampler.sample(namespace, hub).hubs[hub.uid]

    assert track.partition_rates == (0.0, 2.0, 0.0, 0.0)


def test_deleted_hub_is_forgotten(harness: PortalHarness) -> None:
    """An open page must not open its logs again."""
    namespace, hub = harness.broker._namespace("hubmere").view, harness.hub.view
    harness.sampler.sample(namespace, hub)
    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))
    harness.clock.advance(1.0)

    track = harness.sampler.sample(namespace)

    assert track.hubs == {}
    assert hub.open_partition_count == 0
