"""Publishing: checks, choice of the partition, and append; a publication is stored in one partition or not at all."""

from collections import Counter
from functools import partial
from math import inf

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.broker.publish import OverLimit, Publisher
from hubmere.model.entity import Status
from hubmere.model.errors import (
    EntityDisabled,
    HubNotFound,
    InvalidArgument,
    PartitionKeyMismatch,
    PartitionNotFound,
    PublicationTooLarge,
    PublisherRevoked,
    Refusal,
    SequenceGap,
    ServerBusy,
    ThrottledTooLong,
)
from hubmere.model.keys import partition_of_key
from hubmere.model.names import publisher_name
from hubmere.model.receipt import Receipt
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Profile

MB = 1024 * 1024


def send(
    publisher: Publisher,
    *,
    count: int = 1,
    size_bytes: int = 100,
    key: str | None = None,
    now: float = 0.0,
    batch: bytearray | None = None,
) -> Receipt:
    """Publish one batch."""
    return publisher.publish(
        batch or a_batch(count), count=count, size_bytes=size_bytes, key=key, now=now, now_ms=NOW_MS
    )


def send_delayed(publisher: Publisher, *, count: int, max_delay_s: float = inf) -> None:
    """Publish one batch to partition 1 as a Kafka client does."""
    batch = a_batch(count)
    publisher.publish(
        batch,
        count=count,
        size_bytes=len(batch),
        partition=1,
        now=0.0,
        now_ms=NOW_MS,
        over_limit=OverLimit.DELAY,
        max_delay_s=max_delay_s,
    )


def ends(harness: BrokerHarness) -> list[int]:
    """The number of events in each partition."""
    harness.turn.run()
    return [log.state.committed for log in harness.hub.logs()]


def test_a_publication_goes_to_one_partition_as_a_unit(harness: BrokerHarness) -> None:
    """A publication is atomic and keeps its order."""
    receipt = send(harness.broker.open_publisher(harness.hub), count=7)

    assert sorted(ends(harness)) == [0, 0, 0, 7]
    assert receipt.is_done
    assert (receipt.sequence_number, receipt.error) == (0, None)


def test_publications_without_a_key_are_distributed_in_turn(harness: BrokerHarness) -> None:
    """Each partition gets the same number of events."""
    publisher = harness.broker.open_publisher(harness.hub)

    for _ in range(20):
        send(publisher)

    assert ends(harness) == [5, 5, 5, 5]


def test_events_with_the_same_key_are_stored_in_the_same_partition(harness: BrokerHarness) -> None:
    """Order is kept for each key."""
    publisher = harness.broker.open_publisher(harness.hub)

    for _ in range(10):
        send(publisher, key="device-7")

    assert Counter(ends(harness)) == {0: 3, 10: 1}
    assert ends(harness)[partition_of_key("device-7", 4)] == 10


def test_publication_to_a_partition_id_is_stored_there(harness: BrokerHarness) -> None:
    """Such a publication does not use the hash of a key."""
    send(harness.broker.open_publisher(harness.hub, partition="2"))

    assert ends(harness) == [0, 0, 1, 0]


def test_key_and_partition_id_together_are_refused(harness: BrokerHarness) -> None:
    """The service refuses this combination."""
    with pytest.raises(InvalidArgument):
        send(harness.broker.open_publisher(harness.hub, partition="2"), key="k")

    assert ends(harness) == [0, 0, 0, 0]


def test_unknown_partition_and_hub_are_refused(harness: BrokerHarness) -> None:
    """The refusal names the partition ids that exist."""
    with pytest.raises(PartitionNotFound):
        harness.broker.open_publisher(harness.hub, partition="4")
    with pytest.raises(HubNotFound) as refusal:
        harness.broker._namespace("hubmere").hub("nothing")

    assert str(refusal.value) == "The messaging entity 'sb://hubmere/nothing' could not be found."


def test_size_limit_applies_to_what_the_client_sent(harness: BrokerHarness) -> None:
    """The limit of the standard tier is 1 MB; one byte more is refused, and nothing is stored."""
    publisher = harness.broker.open_publisher(harness.hub)

    send(publisher, size_bytes=MB)
    with pytest.raises(PublicationTooLarge) as refusal:
        send(publisher, size_bytes=MB + 1)

    assert refusal.value.limit_bytes == MB
    assert "limits.publication_bytes" in refusal.value.text()
    assert sum(ends(harness)) == 1
    assert harness.hub.counters.user_errors == 1


def test_disabled_hub_refuses_events_and_closes_open_publishers(harness: BrokerHarness) -> None:
    """SendDisabled detaches senders; readers stay attached."""
    refusals: list[Refusal] = []
    publisher = harness.broker.open_publisher(harness.hub, evict=refusals.append)
    spec = HubSpec(status=Status.SEND_DISABLED)

    harness.do(lambda done: harness.manager.update_hub("hubmere", "orders", spec, harness.actor(), done))

    assert [type(refusal) for refusal in refusals] == [EntityDisabled]
    with pytest.raises(EntityDisabled):
        send(publisher)
    with pytest.raises(EntityDisabled):
        harness.broker.open_publisher(harness.hub)


def test_hub_that_was_disabled_and_enabled_again_has_lost_nothing(harness: BrokerHarness) -> None:
    """Sequence numbers continue."""
    send(harness.broker.open_publisher(harness.hub, partition="0"), count=3)
    for status in (Status.DISABLED, Status.ACTIVE):
        harness.do(partial(harness.manager.update_hub, "hubmere", "orders", HubSpec(status=status), harness.actor()))

    receipt = send(harness.broker.open_publisher(harness.hub, partition="0"))
    harness.turn.run()

    assert receipt.sequence_number == 3


def test_revoked_publisher_is_refused_at_once_and_can_be_restored(harness: BrokerHarness) -> None:
    """Other publishers are not affected."""
    refusals: list[Refusal] = []
    mine = harness.broker.open_publisher(harness.hub, publisher="Dev-1", evict=refusals.append)
    other = harness.broker.open_publisher(harness.hub, publisher="dev-2")
    name = publisher_name("dev-1")

    harness.do(lambda done: harness.manager.revoke_publisher("hubmere", "orders", name, harness.actor(), done))

    assert [type(refusal) for refusal in refusals] == [PublisherRevoked]
    with pytest.raises(PublisherRevoked):
        send(mine)
    send(other)
    harness.do(lambda done: harness.manager.restore_publisher("hubmere", "orders", "DEV-1", harness.actor(), done))
    send(mine)


def test_closed_publisher_is_not_called_back(harness: BrokerHarness) -> None:
    """A closed link must not be detached again."""
    refusals: list[Refusal] = []
    harness.broker.open_publisher(harness.hub, evict=refusals.append).close()

    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))

    assert refusals == []


def test_publication_over_the_throughput_limit_is_refused_as_a_whole() -> None:
    """The refusal is server busy and is counted; nothing is stored, and the allowance refills with time."""
    harness = BrokerHarness(profile=Profile.STANDARD)
    publisher = harness.broker.open_publisher(harness.hub)
    send(publisher, size_bytes=MB)

    with pytest.raises(ServerBusy) as refusal:
        send(publisher, size_bytes=MB, now=0.1)
    send(publisher, size_bytes=MB, now=1.1)

    assert refusal.value.code == 50002
    assert sum(ends(harness)) == 2
    assert harness.hub.counters.throttled_requests == 1
    harness.close()


def test_publication_that_the_log_refuses_uses_no_throughput() -> None:
    """Otherwise a producer with a gap in its sequence numbers would use up the throughput of the others."""
    harness = BrokerHarness(profile=Profile.STANDARD)
    publisher = harness.broker.open_publisher(harness.hub, partition="0", lenient=True)
    send(publisher, batch=a_batch(1, producer=(9, 0, 1)))

    for _ in range(5):
        with pytest.raises(SequenceGap):
            send(publisher, size_bytes=MB // 2, batch=a_batch(1, producer=(9, 0, 7)))
    send(publisher, size_bytes=MB - 200, batch=a_batch(1, producer=(9, 0, 2)))

    assert ends(harness)[0] == 2
    harness.close()


def test_kafka_publications_are_accepted_with_a_delay() -> None:
    """Over its quota a Kafka producer is slowed down and loses no event."""
    harness = BrokerHarness(profile=Profile.STANDARD)
    publisher = harness.broker.open_publisher(harness.hub)

    for _ in range(3):
        send_delayed(publisher, count=1000)

    assert ends(harness) == [0, 3000, 0, 0]
    assert publisher.delay_s > 1.0
    assert harness.hub.counters.throttled_requests == 3
    harness.close()


def test_kafka_publication_is_refused_if_its_delay_would_exceed_its_timeout() -> None:
    """The request would time out on the client, which would send it again."""
    harness = BrokerHarness(profile=Profile.STANDARD)
    publisher = harness.broker.open_publisher(harness.hub)
    for _ in range(3):
        send_delayed(publisher, count=1000)

    with pytest.raises(ThrottledTooLong) as refusal:
        send_delayed(publisher, count=1000, max_delay_s=1.0)

    assert refusal.value.retry_after_s > refusal.value.max_delay_s == 1.0
    assert ends(harness) == [0, 3000, 0, 0]
    assert harness.hub.counters.refused_requests == 1
    assert harness.hub.counters.incoming_requests == 4
    harness.close()


def test_auto_inflate_stops_at_its_maximum() -> None:
    """While clients are throttled, the capacity grows by one unit a second."""
    harness = BrokerHarness(profile=Profile.STANDARD, auto_inflate_to=3)
    publisher = harness.broker.open_publisher(harness.hub)

    for second in range(10):
        harness.now = float(second)
        for _ in range(8):
            try:
                send(publisher, size_bytes=MB, now=harness.now)
            except ServerBusy:
                break
        harness.broker.upkeep.tick(harness.actor())
        harness.catalog.apply()
        harness.turn.run()

    assert harness.broker._namespace("hubmere").entity.capacity == 3
    assert harness.catalog.view.namespace("hubmere").capacity == 3
    harness.close()


def test_a_repeated_idempotent_publication_is_stored_once(harness: BrokerHarness) -> None:
    """The rule of AMQP: a sequence number that is not newer is a duplicate, and a gap is refused."""
    publisher = harness.broker.open_publisher(harness.hub, partition="0", lenient=True)
    send(publisher, count=3, batch=a_batch(3, producer=(9, 0, 1)))

    again = send(publisher, count=3, batch=a_batch(3, producer=(9, 0, 1)))
    with pytest.raises(SequenceGap):
        send(publisher, batch=a_batch(1, producer=(9, 0, 7)))

    assert ends(harness)[0] == 3
    assert again.is_duplicate


def test_name_of_a_publisher_is_the_only_key_of_its_events(harness: BrokerHarness) -> None:
    """The events of one device stay in one partition, in order."""
    publisher = harness.broker.open_publisher(harness.hub, publisher=publisher_name("dev-01"))

    assert [publisher.resolve_key(key) for key in (None, "dev-01")] == ["dev-01", "dev-01"]
    with pytest.raises(PartitionKeyMismatch) as refusal:
        publisher.resolve_key("other")
    assert refusal.value.key == "other"


@pytest.mark.parametrize("key", ["x" * 129, "\ud800"])
def test_an_invalid_key_is_refused(harness: BrokerHarness, key: str) -> None:
    """A key has at most 128 characters, and must be encodable as UTF-8."""
    publisher = harness.broker.open_publisher(harness.hub)

    assert publisher.resolve_key("x" * 128) == "x" * 128
    with pytest.raises(InvalidArgument):
        publisher.resolve_key(key)
