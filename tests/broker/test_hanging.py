"""Transactions that are open in a partition and unknown to the coordinator: which are ended, and how."""

import pytest

from broker.builders import Bench
from broker.test_transactions import Desk, Producer
from hubmere.model.errors import PartitionOffline


class LostMarkers(Desk):
    """A coordinator whose partition can lose the end of a transaction."""

    def write_unnoticed(self, producer: Producer, sequence: int = 0) -> None:
        """An event of a transaction whose marker is lost: the coordinator has nothing to do with it."""
        require, self.transactions.require_enlisted = self.transactions.require_enlisted, lambda *_: None  # type: ignore[method-assign]
        self.write(producer, sequence)
        self.transactions.require_enlisted = require  # type: ignore[method-assign]

    def damage(self, sequence: int) -> None:
        self.bench.hub.report_unreadable(0, sequence, sequence + 1)

    def look(self) -> list[bool]:
        """End what hangs; gives the outcomes."""
        ended = self.transactions.end_hanging(self.now_ms)
        self.settle()
        return [each.is_commit for each in ended]

    @property
    def aborted(self) -> list[tuple[int, int]]:
        found = self.bench.hub.log(0).aborted_transactions(0, self.end_of_log)
        return [(each.first_sequence, each.last_sequence) for each in found]


@pytest.fixture
def desk(bench: Bench) -> LostMarkers:
    return LostMarkers(bench)


def test_an_ongoing_transaction_is_left_alone(desk: LostMarkers) -> None:
    """Its producer decides, or its time-out."""
    producer = desk.start()
    desk.add(producer)
    desk.write(producer)

    assert desk.look() == []
    assert desk.stable == 0


def test_a_transaction_of_an_unknown_producer_is_aborted(desk: LostMarkers) -> None:
    """The catalog was restored from a copy without it: no producer can end it any more."""
    desk.write_unnoticed((77, 3))

    assert desk.look() == [False]
    assert desk.stable == desk.end_of_log == 2
    assert desk.aborted == [(0, 1)]
    assert desk.look() == []


@pytest.mark.parametrize("commit", [True, False])
def test_the_outcome_that_the_catalog_has_kept_is_written_again(desk: LostMarkers, *, commit: bool) -> None:
    """The marker was in a damaged range; restarts and the next producer of the id do not forget the outcome."""
    producer = desk.start()
    desk.add(producer)
    desk.end(producer, commit=commit)
    desk.write_unnoticed(producer)
    desk.damage(desk.end_of_log + 1)
    desk.restart()
    desk.start()

    assert desk.look() == [commit]
    assert desk.stable == desk.end_of_log
    assert bool(desk.aborted) is not commit


def test_without_damage_an_earlier_commit_proves_nothing(desk: LostMarkers) -> None:
    """No marker can have been lost, so the open transaction is another one than the committed."""
    producer = desk.start()
    desk.add(producer)
    desk.end(producer)
    desk.write_unnoticed(producer)

    assert desk.look() == [False]


def test_a_commit_in_other_partitions_proves_nothing(desk: LostMarkers) -> None:
    """The open transaction is an earlier one of the same producer."""
    producer = desk.start()
    desk.add(producer, 1, 2)
    desk.end(producer)
    desk.write_unnoticed(producer)
    desk.damage(desk.end_of_log + 1)

    assert desk.look() == [False]


def test_a_lost_end_is_noticed_while_the_producer_writes_elsewhere(desk: LostMarkers) -> None:
    """The ongoing transaction does not have this partition, so its end would not write a marker here."""
    producer = desk.start()
    desk.add(producer)
    desk.end(producer)
    desk.write_unnoticed(producer)
    desk.damage(desk.end_of_log + 1)
    desk.add(producer, 1)

    assert desk.look() == [True]
    desk.end(producer, commit=False)
    assert desk.stable == desk.end_of_log
    assert desk.aborted == []


def test_a_partition_that_takes_no_marker_now_is_tried_again(
    desk: LostMarkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk must not make the node give up."""
    desk.write_unnoticed((77, 3))
    log = desk.bench.hub.log(0)

    def refuse(*_: object, **__: object) -> None:
        raise PartitionOffline("no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(log), "append_marker", refuse)
        assert desk.look() == []

    assert desk.look() == [False]


def test_a_lost_end_is_made_good_before_the_producer_writes_to_the_partition_again(desk: LostMarkers) -> None:
    """Otherwise the next marker would decide over both transactions."""
    producer = desk.start()
    desk.add(producer)
    desk.end(producer)
    desk.write_unnoticed(producer)
    first = desk.end_of_log - 1
    desk.damage(desk.end_of_log + 1)

    desk.add(producer)
    desk.write(producer, 1)
    desk.end(producer, commit=False)

    assert desk.stable == desk.end_of_log
    assert desk.aborted == [(first + 2, first + 3)]
    assert desk.look() == [True]


def test_a_partition_that_is_added_twice_keeps_its_open_transaction(desk: LostMarkers) -> None:
    """Clients repeat requests that were not answered."""
    producer = desk.start()
    desk.add(producer)
    desk.write(producer)

    desk.add(producer, 0, 1)

    assert desk.stable == 0
