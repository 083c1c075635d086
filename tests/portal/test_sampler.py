"""Counters become rates while somebody looks, and cost nothing otherwise."""

from hubmere.portal.sampler import FLOWS, HISTORY_SAMPLES, NO_RATES
from portal.builders import Desktop

_IN = FLOWS.index("incoming_messages")


def test_rate_is_what_came_since_the_last_look(desktop: Desktop) -> None:
    """Two seconds and ten events are five a second."""
    namespace = desktop.broker.namespace("hubmere")
    desktop.sampler.look(namespace)
    desktop.publish(*[b"x"] * 10)
    desktop.clock.advance(2.0)

    track = desktop.sampler.look(namespace)

    assert desktop.sampler.rates(desktop.hub)[_IN] == 5.0
    assert [sample.rate("incoming_messages") for sample in track.samples] == [5.0]


def test_several_pages_share_one_sample(desktop: Desktop) -> None:
    """Who comes a moment later gets the sample that is there."""
    namespace = desktop.broker.namespace("hubmere")
    desktop.sampler.look(namespace)
    desktop.clock.advance(1.0)
    desktop.sampler.look(namespace)
    desktop.publish(b"x")
    desktop.clock.advance(0.1)

    desktop.sampler.look(namespace)

    assert desktop.sampler.rates(desktop.hub) == NO_RATES


def test_history_is_bounded(desktop: Desktop) -> None:
    """A page that is left open for a week holds five minutes."""
    namespace = desktop.broker.namespace("hubmere")

    for _ in range(HISTORY_SAMPLES + 10):
        desktop.sampler.look(namespace, desktop.hub)
        desktop.clock.advance(1.0)

    assert len(desktop.sampler.history(namespace)) == HISTORY_SAMPLES
    assert len(desktop.sampler.history(namespace, desktop.hub)) == HISTORY_SAMPLES


def test_history_begins_anew_after_a_pause(desktop: Desktop) -> None:
    """A rate over an hour in which nobody looked would be drawn as if it were now."""
    namespace = desktop.broker.namespace("hubmere")
    for _ in range(3):
        desktop.sampler.look(namespace)
        desktop.clock.advance(1.0)
    desktop.publish(*[b"x"] * 100)
    desktop.clock.advance(3600.0)

    desktop.sampler.look(namespace)

    assert len(desktop.sampler.history(namespace)) == 0
    assert desktop.sampler.rates(desktop.hub) == NO_RATES


def test_partitions_and_lags_of_a_hub_in_sight_are_followed(desktop: Desktop) -> None:
    """The hub's page draws what each partition takes and how far behind each group is."""
    namespace, hub = desktop.broker.namespace("hubmere"), desktop.hub
    desktop.a_reader("1")
    desktop.sampler.look(namespace, hub)
    desktop.publish(b"a", b"b", partition="1")
    desktop.clock.advance(1.0)

    track = desktop.sampler.look(namespace, hub).hubs[hub.entity.uid]

    assert track.partition_rates == (0.0, 2.0, 0.0, 0.0)
    assert [lag for _, lag in track.lags["$Default"]] == [0, 2]


def test_deleted_hub_is_forgotten(desktop: Desktop) -> None:
    """Its logs must not be opened again by whoever still looks."""
    namespace, hub = desktop.broker.namespace("hubmere"), desktop.hub
    desktop.sampler.look(namespace, hub)
    desktop.do(lambda done: desktop.manager.delete_hub("hubmere", "orders", desktop.actor(), done))
    desktop.clock.advance(1.0)

    track = desktop.sampler.look(namespace)

    assert track.hubs == {}
    assert hub.open_logs() == []
