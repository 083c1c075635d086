"""Which readers may read a partition, and which reader is evicted (reference: AMQP 5.5, service 7)."""

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.broker.read import Reader
from hubmere.model.errors import (
    EpochRequired,
    EpochTooLow,
    GroupNotFound,
    PartitionNotFound,
    PositionBeyondEnd,
    ReaderStolen,
    ReceiverLimit,
    Refusal,
)
from hubmere.model.names import group_name
from hubmere.model.position import Position


def a_reader(
    harness: BrokerHarness,
    *,
    epoch: int | None = None,
    name: str | None = None,
    group: str = "$Default",
    partition: str = "0",
    position: Position | None = None,
    evicted: list[Refusal] | None = None,
    woken: list[int] | None = None,
) -> Reader:
    """A reader that records when it is woken or evicted."""
    reader = harness.broker.subscribe(
        harness.hub,
        group=group,
        partition=partition,
        position=position or Position.first(),
        epoch=epoch,
        name=name,
        wake=lambda: (woken if woken is not None else []).append(1),
        evict=(evicted if evicted is not None else []).append,
    )
    reader.start()
    return reader


def test_equal_epoch_takes_over(harness: BrokerHarness) -> None:
    """Every SDK processor uses epoch 0 and relies on the takeover at an equal epoch."""
    evicted: list[Refusal] = []
    first = a_reader(harness, epoch=0, name="old", evicted=evicted)

    second = a_reader(harness, epoch=0, name="new")

    assert [type(refusal) for refusal in evicted] == [ReaderStolen]
    assert "New receiver 'new' with higher epoch of '0'" in str(evicted[0])
    assert not first.is_open
    assert second.is_open


def test_lower_epoch_is_refused_and_the_owner_stays(harness: BrokerHarness) -> None:
    """The owner of a partition is evicted only by an equal or higher epoch."""
    owner = a_reader(harness, epoch=2)

    with pytest.raises(EpochTooLow) as refusal:
        a_reader(harness, epoch=1)

    assert refusal.value.current == 2
    assert owner.is_open


def test_reader_without_epoch_is_refused_while_the_partition_has_an_owner(harness: BrokerHarness) -> None:
    """An owner is the only reader of its group."""
    a_reader(harness, epoch=0)

    with pytest.raises(EpochRequired):
        a_reader(harness)


def test_reader_with_an_epoch_evicts_all_readers_without_one(harness: BrokerHarness) -> None:
    """Readers with an epoch take precedence."""
    evicted: list[Refusal] = []
    for _ in range(3):
        a_reader(harness, evicted=evicted)

    a_reader(harness, epoch=7)

    assert len(evicted) == 3


def test_sixth_reader_without_epoch_is_refused_until_one_leaves(harness: BrokerHarness) -> None:
    """A partition has at most five such readers in a group, as in the service."""
    readers = [a_reader(harness, name=f"r{i}") for i in range(5)]

    with pytest.raises(ReceiverLimit) as refusal:
        a_reader(harness)
    readers[2].close()

    assert refusal.value.names == ("r0", "r1", "r2", "r3", "r4")
    assert a_reader(harness).is_open


def test_readers_of_other_groups_and_partitions_are_not_affected(harness: BrokerHarness) -> None:
    """Ownership is per hub, group and partition."""
    harness.do(
        lambda done: harness.manager.create_group("hubmere", "orders", group_name("cg1"), "", harness.actor(), done)
    )
    owners = [
        a_reader(harness, epoch=1),
        a_reader(harness, epoch=0, group="CG1"),
        a_reader(harness, epoch=0, partition="1"),
    ]

    assert all(owner.is_open for owner in owners)


def test_readers_are_woken_by_the_commit_and_read_what_was_committed(harness: BrokerHarness) -> None:
    """An event becomes visible when it is durable, and then wakes the reader."""
    woken: list[int] = []
    reader = a_reader(harness, woken=woken)
    harness.hub.log(0).append(a_batch(3), NOW_MS)

    before = reader.read(1 << 20)
    harness.turn.run()
    after = reader.read(1 << 20)

    assert before is None
    assert woken
    assert after is not None
    assert (after.first_sequence, after.next_sequence) == (0, 3)


def test_latest_position_is_the_end_at_the_time_of_the_call(harness: BrokerHarness) -> None:
    """Otherwise events between the attach and the first credit would be lost."""
    harness.hub.log(0).append(a_batch(2), NOW_MS)
    harness.turn.run()
    reader = a_reader(harness, position=Position.latest())
    harness.hub.log(0).append(a_batch(1), NOW_MS)
    harness.turn.run()

    chunk = reader.read(1 << 20)

    assert chunk is not None
    assert chunk.first_sequence == 2


def test_delivery_advances_the_position_and_is_counted(harness: BrokerHarness) -> None:
    """Position and counters follow the delivered events."""
    harness.hub.log(0).append(a_batch(5), NOW_MS)
    harness.turn.run()
    reader = a_reader(harness)

    reader.advance(3, 3, 300, 0.0)

    assert reader.lag == 2
    assert harness.hub.counters.outgoing_messages == 3
    assert harness.hub.counters.outgoing_bytes == 300


def test_position_before_the_oldest_event_moves_to_it(harness: BrokerHarness) -> None:
    """A position that retention has passed is moved without an error."""
    harness.hub.log(0).append(a_batch(5), NOW_MS)
    harness.turn.run()
    reader = a_reader(harness)
    harness.hub.log(0).trim(3)

    reader.read(1 << 20)

    assert reader.next_sequence == 3


def test_refusal_of_a_position_beyond_the_end_names_both_values(harness: BrokerHarness) -> None:
    """A reader with a checkpoint of another hub must not wait for ever without an error."""
    with pytest.raises(PositionBeyondEnd) as refusal:
        a_reader(harness, position=Position.offset(4711))

    assert "4711" in str(refusal.value)


@pytest.mark.parametrize(
    ("group", "partition", "refusal"),
    [("nobody", "0", GroupNotFound), ("$default", "4", PartitionNotFound), ("$default", "zero", PartitionNotFound)],
)
def test_unknown_groups_and_partitions_are_refused(
    harness: BrokerHarness, group: str, partition: str, refusal: type[Refusal]
) -> None:
    """Group names are case-insensitive, but the group must exist."""
    with pytest.raises(refusal):
        a_reader(harness, group=group, partition=partition)


def test_closing_a_reader_twice_frees_one_slot(harness: BrokerHarness) -> None:
    """A detach and a lost connection may both close it."""
    reader = a_reader(harness)

    reader.close()
    reader.close()

    assert harness.hub.readers.all() == []
    assert reader.read(1) is None


def test_deleting_a_group_evicts_its_readers(harness: BrokerHarness) -> None:
    """Otherwise readers of a deleted group would never notice."""
    harness.do(
        lambda done: harness.manager.create_group("hubmere", "orders", group_name("cg1"), "", harness.actor(), done)
    )
    evicted: list[Refusal] = []
    a_reader(harness, group="cg1", evicted=evicted)
    kept = a_reader(harness)

    harness.do(lambda done: harness.manager.delete_group("hubmere", "orders", "cg1", harness.actor(), done))

    assert len(evicted) == 1
    assert kept.is_open
