"""Admit, route, append: one publication, all or nothing, in one partition."""

from collections import Counter
from functools import partial
from math import inf

import pytest

from broker.builders import NOW_MS, Bench, a_batch
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


def ends(bench: Bench) -> list[int]:
    """How many events each partition holds."""
    bench.turn.run()
    return [log.state.committed for log in bench.hub.logs()]


def test_a_publication_goes_to_one_partition_as_a_unit(bench: Bench) -> None:
    """Order and atomicity hold inside a publication."""
    receipt = send(bench.broker.open_publisher(bench.hub), count=7)

    assert sorted(ends(bench)) == [0, 0, 0, 7]
    assert receipt.is_done
    assert (receipt.sequence_number, receipt.error) == (0, None)


def test_keyless_publications_go_round(bench: Bench) -> None:
    """Each partition gets its part."""
    publisher = bench.broker.open_publisher(bench.hub)

    for _ in range(20):
        send(publisher)

    assert ends(bench) == [5, 5, 5, 5]


def test_a_key_always_goes_to_its_partition(bench: Bench) -> None:
    """Order per key needs one partition per key."""
    publisher = bench.broker.open_publisher(bench.hub)

    for _ in range(10):
        send(publisher, key="device-7")

    assert Counter(ends(bench)) == {0: 3, 10: 1}
    assert ends(bench)[partition_of_key("device-7", 4)] == 10


def test_a_named_partition_is_taken(bench: Bench) -> None:
    """Direct sends bypass the hash."""
    send(bench.broker.open_publisher(bench.hub, partition="2"))

    assert ends(bench) == [0, 0, 1, 0]


def test_key_and_named_partition_exclude_each_other(bench: Bench) -> None:
    """The service refuses both together."""
    with pytest.raises(InvalidArgument):
        send(bench.broker.open_publisher(bench.hub, partition="2"), key="k")

    assert ends(bench) == [0, 0, 0, 0]


def test_unknown_partition_and_hub_are_refused(bench: Bench) -> None:
    """With the numbers that are allowed."""
    with pytest.raises(PartitionNotFound):
        bench.broker.open_publisher(bench.hub, partition="4")
    with pytest.raises(HubNotFound) as refusal:
        bench.broker._namespace("hubmere").hub("nothing")

    assert str(refusal.value) == "The messaging entity 'sb://hubmere/nothing' could not be found."


def test_the_limit_is_on_what_the_client_sent(bench: Bench) -> None:
    """1 MB in the standard shape; one byte more is refused and nothing stored."""
    publisher = bench.broker.open_publisher(bench.hub)

    send(publisher, size_bytes=MB)
    with pytest.raises(PublicationTooLarge) as refusal:
        send(publisher, size_bytes=MB + 1)

    assert refusal.value.limit_bytes == MB
    assert sum(ends(bench)) == 1
    assert bench.hub.counters.user_errors == 1


def test_a_disabled_hub_takes_nothing_and_lets_open_publishers_go(bench: Bench) -> None:
    """SendDisabled detaches senders; readers stay."""
    refusals: list[Refusal] = []
    publisher = bench.broker.open_publisher(bench.hub, evict=refusals.append)
    spec = HubSpec(status=Status.SEND_DISABLED)

    bench.do(lambda done: bench.manager.update_hub("hubmere", "orders", spec, bench.actor(), done))

    assert [type(refusal) for refusal in refusals] == [EntityDisabled]
    with pytest.raises(EntityDisabled):
        send(publisher)
    with pytest.raises(EntityDisabled):
        bench.broker.open_publisher(bench.hub)


def test_disabled_and_active_again_loses_nothing(bench: Bench) -> None:
    """Sequence numbers continue."""
    send(bench.broker.open_publisher(bench.hub, partition="0"), count=3)
    for status in (Status.DISABLED, Status.ACTIVE):
        bench.do(partial(bench.manager.update_hub, "hubmere", "orders", HubSpec(status=status), bench.actor()))

    receipt = send(bench.broker.open_publisher(bench.hub, partition="0"))
    bench.turn.run()

    assert receipt.sequence_number == 3


def test_a_revoked_publisher_is_shut_out_at_once_and_can_come_back(bench: Bench) -> None:
    """Only its own path is closed."""
    refusals: list[Refusal] = []
    mine = bench.broker.open_publisher(bench.hub, publisher="Dev-1", evict=refusals.append)
    other = bench.broker.open_publisher(bench.hub, publisher="dev-2")
    name = publisher_name("dev-1")

    bench.do(lambda done: bench.manager.revoke_publisher("hubmere", "orders", name, bench.actor(), done))

    assert [type(refusal) for refusal in refusals] == [PublisherRevoked]
    with pytest.raises(PublisherRevoked):
        send(mine)
    send(other)
    bench.do(lambda done: bench.manager.restore_publisher("hubmere", "orders", "DEV-1", bench.actor(), done))
    send(mine)


def test_a_closed_publisher_gets_no_callback(bench: Bench) -> None:
    """A link that is gone must not be detached again."""
    refusals: list[Refusal] = []
    bench.broker.open_publisher(bench.hub, evict=refusals.append).close()

    bench.do(lambda done: bench.manager.delete_hub("hubmere", "orders", bench.actor(), done))

    assert refusals == []


def test_over_the_units_a_publication_is_refused_whole() -> None:
    """Server busy, counted, nothing stored; the pool refills with time."""
    bench = Bench(profile=Profile.STANDARD)
    publisher = bench.broker.open_publisher(bench.hub)
    send(publisher, size_bytes=MB)

    with pytest.raises(ServerBusy) as refusal:
        send(publisher, size_bytes=MB, now=0.1)
    send(publisher, size_bytes=MB, now=1.1)

    assert refusal.value.code == 50002
    assert sum(ends(bench)) == 2
    assert bench.hub.counters.throttled_requests == 1
    bench.close()


def test_a_publication_that_the_log_refuses_costs_no_units() -> None:
    """Otherwise a producer with a gap in its numbers would eat the throughput of the others."""
    bench = Bench(profile=Profile.STANDARD)
    publisher = bench.broker.open_publisher(bench.hub, partition="0", lenient=True)
    send(publisher, batch=a_batch(1, producer=(9, 0, 1)))

    for _ in range(5):
        with pytest.raises(SequenceGap):
            send(publisher, size_bytes=MB // 2, batch=a_batch(1, producer=(9, 0, 7)))
    send(publisher, size_bytes=MB - 200, batch=a_batch(1, producer=(9, 0, 2)))

    assert ends(bench)[0] == 2
    bench.close()


def test_kafka_publications_are_accepted_with_a_delay() -> None:
    """Over quota a Kafka producer slows down and loses nothing."""
    bench = Bench(profile=Profile.STANDARD)
    publisher = bench.broker.open_publisher(bench.hub)

    for _ in range(3):
        send_delayed(publisher, count=1000)

    assert ends(bench) == [0, 3000, 0, 0]
    assert publisher.delay_s > 1.0
    assert bench.hub.counters.throttled_requests == 3
    bench.close()


def test_a_producer_that_must_pause_longer_than_it_waits_is_refused() -> None:
    """A request that times out on the client would be sent again and again."""
    bench = Bench(profile=Profile.STANDARD)
    publisher = bench.broker.open_publisher(bench.hub)
    for _ in range(3):
        send_delayed(publisher, count=1000)

    with pytest.raises(ThrottledTooLong) as refusal:
        send_delayed(publisher, count=1000, max_delay_s=1.0)

    assert refusal.value.retry_after_s > refusal.value.max_delay_s == 1.0
    assert ends(bench) == [0, 3000, 0, 0]
    assert bench.hub.counters.refused_requests == 1
    assert bench.hub.counters.incoming_requests == 4
    bench.close()


def test_auto_inflate_rises_to_its_maximum_and_no_further() -> None:
    """Pressed against the units, capacity grows by one a second."""
    bench = Bench(profile=Profile.STANDARD, auto_inflate_to=3)
    publisher = bench.broker.open_publisher(bench.hub)

    for second in range(10):
        bench.now = float(second)
        for _ in range(8):
            try:
                send(publisher, size_bytes=MB, now=bench.now)
            except ServerBusy:
                break
        bench.broker.upkeep.tick(bench.actor())
        bench.catalog.apply()
        bench.turn.run()

    assert bench.broker._namespace("hubmere").entity.capacity == 3
    assert bench.catalog.view.namespace("hubmere").capacity == 3
    bench.close()


def test_a_repeated_idempotent_publication_is_stored_once(bench: Bench) -> None:
    """The AMQP rule: anything at or below the last sequence is a duplicate, a gap is refused."""
    publisher = bench.broker.open_publisher(bench.hub, partition="0", lenient=True)
    send(publisher, count=3, batch=a_batch(3, producer=(9, 0, 1)))

    again = send(publisher, count=3, batch=a_batch(3, producer=(9, 0, 1)))
    with pytest.raises(SequenceGap):
        send(publisher, batch=a_batch(1, producer=(9, 0, 7)))

    assert ends(bench)[0] == 3
    assert again.is_duplicate


def test_a_publisher_gives_its_events_its_name_as_key_and_allows_no_other(bench: Bench) -> None:
    """The events of one device stay in one partition, in their order."""
    publisher = bench.broker.open_publisher(bench.hub, publisher=publisher_name("dev-01"))

    assert [publisher.resolve_key(key) for key in (None, "dev-01")] == ["dev-01", "dev-01"]
    with pytest.raises(PartitionKeyMismatch) as refusal:
        publisher.resolve_key("other")
    assert refusal.value.key == "other"


@pytest.mark.parametrize("key", ["x" * 129, "\ud800"])
def test_an_invalid_key_is_refused(bench: Bench, key: str) -> None:
    """Keys have at most 128 characters, all of which UTF-8 can encode."""
    publisher = bench.broker.open_publisher(bench.hub)

    assert publisher.resolve_key("x" * 128) == "x" * 128
    with pytest.raises(InvalidArgument):
        publisher.resolve_key(key)
