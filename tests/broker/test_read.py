"""Who may read a partition, and who gives way (reference: AMQP 5.5, service 7)."""

import pytest

from broker.builders import NOW_MS, Bench, a_batch
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
    bench: Bench,
    *,
    epoch: int | None = None,
    name: str | None = None,
    group: str = "$Default",
    partition: str = "0",
    position: Position | None = None,
    evicted: list[Refusal] | None = None,
    woken: list[int] | None = None,
) -> Reader:
    """A reader that notes when it is woken or put out."""
    reader = bench.broker.subscribe(
        bench.hub,
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


def test_equal_epoch_takes_over(bench: Bench) -> None:
    """Every SDK processor uses epoch 0 and relies on stealing."""
    evicted: list[Refusal] = []
    first = a_reader(bench, epoch=0, name="old", evicted=evicted)

    second = a_reader(bench, epoch=0, name="new")

    assert [type(refusal) for refusal in evicted] == [ReaderStolen]
    assert "New receiver 'new' with higher epoch of '0'" in str(evicted[0])
    assert not first.is_open
    assert second.is_open


def test_lower_epoch_is_refused_and_the_owner_stays(bench: Bench) -> None:
    """A partition owner gives way only to an equal or higher epoch."""
    owner = a_reader(bench, epoch=2)

    with pytest.raises(EpochTooLow) as refusal:
        a_reader(bench, epoch=1)

    assert refusal.value.current == 2
    assert owner.is_open


def test_reader_without_epoch_is_refused_beside_an_owner(bench: Bench) -> None:
    """An owner reads alone in its group."""
    a_reader(bench, epoch=0)

    with pytest.raises(EpochRequired):
        a_reader(bench)


def test_owner_puts_out_all_plain_readers(bench: Bench) -> None:
    """An epoch wins over readers without one."""
    evicted: list[Refusal] = []
    for _ in range(3):
        a_reader(bench, evicted=evicted)

    a_reader(bench, epoch=7)

    assert len(evicted) == 3


def test_a_sixth_plain_reader_is_refused_until_one_leaves(bench: Bench) -> None:
    """Five readers a partition and group, as the service has it."""
    readers = [a_reader(bench, name=f"r{i}") for i in range(5)]

    with pytest.raises(ReceiverLimit) as refusal:
        a_reader(bench)
    readers[2].close()

    assert refusal.value.names == ("r0", "r1", "r2", "r3", "r4")
    assert a_reader(bench).is_open


def test_groups_and_partitions_do_not_disturb_each_other(bench: Bench) -> None:
    """Ownership is per hub, group and partition."""
    bench.do(lambda done: bench.manager.create_group("hubmere", "orders", group_name("cg1"), "", bench.actor(), done))
    owners = [a_reader(bench, epoch=1), a_reader(bench, epoch=0, group="CG1"), a_reader(bench, epoch=0, partition="1")]

    assert all(owner.is_open for owner in owners)


def test_readers_are_woken_by_the_commit_and_read_what_was_committed(bench: Bench) -> None:
    """Nothing is visible before it is durable; then it is, and the reader knows."""
    woken: list[int] = []
    reader = a_reader(bench, woken=woken)
    bench.hub.log(0).append(a_batch(3), NOW_MS)

    before = reader.read(1 << 20)
    bench.turn.run()
    after = reader.read(1 << 20)

    assert before is None
    assert woken
    assert after is not None
    assert (after.first_sequence, after.next_sequence) == (0, 3)


def test_latest_means_what_comes_after_the_call(bench: Bench) -> None:
    """Otherwise events between attach and first credit would be lost."""
    bench.hub.log(0).append(a_batch(2), NOW_MS)
    bench.turn.run()
    reader = a_reader(bench, position=Position.latest())
    bench.hub.log(0).append(a_batch(1), NOW_MS)
    bench.turn.run()

    chunk = reader.read(1 << 20)

    assert chunk is not None
    assert chunk.first_sequence == 2


def test_delivery_moves_on_and_is_counted(bench: Bench) -> None:
    """Position and counters follow the delivered events."""
    bench.hub.log(0).append(a_batch(5), NOW_MS)
    bench.turn.run()
    reader = a_reader(bench)

    reader.advance(3, 3, 300, 0.0)

    assert reader.lag == 2
    assert bench.hub.counters.outgoing_messages == 3
    assert bench.hub.counters.outgoing_bytes == 300


def test_a_place_before_retention_moves_to_the_oldest_event(bench: Bench) -> None:
    """Expired positions move silently to the oldest event."""
    bench.hub.log(0).append(a_batch(5), NOW_MS)
    bench.turn.run()
    reader = a_reader(bench)
    bench.hub.log(0).trim(3)

    reader.read(1 << 20)

    assert reader.next_sequence == 3


def test_a_place_beyond_the_end_names_both_values(bench: Bench) -> None:
    """A checkpoint of another hub must not silently wait for ever."""
    with pytest.raises(PositionBeyondEnd) as refusal:
        a_reader(bench, position=Position.offset(4711))

    assert "4711" in str(refusal.value)


@pytest.mark.parametrize(
    ("group", "partition", "refusal"),
    [("nobody", "0", GroupNotFound), ("$default", "4", PartitionNotFound), ("$default", "zero", PartitionNotFound)],
)
def test_unknown_groups_and_partitions_are_refused(
    bench: Bench, group: str, partition: str, refusal: type[Refusal]
) -> None:
    """Group names are found in any case, but must be there."""
    with pytest.raises(refusal):
        a_reader(bench, group=group, partition=partition)


def test_closing_twice_frees_one_place(bench: Bench) -> None:
    """Detach and lost socket may both come."""
    reader = a_reader(bench)

    reader.close()
    reader.close()

    assert bench.hub.readers.all() == []
    assert reader.read(1) is None


def test_deleting_a_group_puts_its_readers_out(bench: Bench) -> None:
    """Otherwise readers of a deleted group would never notice."""
    bench.do(lambda done: bench.manager.create_group("hubmere", "orders", group_name("cg1"), "", bench.actor(), done))
    evicted: list[Refusal] = []
    a_reader(bench, group="cg1", evicted=evicted)
    kept = a_reader(bench)

    bench.do(lambda done: bench.manager.delete_group("hubmere", "orders", "cg1", bench.actor(), done))

    assert len(evicted) == 1
    assert kept.is_open
