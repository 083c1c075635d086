"""Transactions that are open in a partition and unknown to the coordinator: which are ended, and how."""

import pytest

from broker.builders import Bench
from broker.test_transactions import Producer, TransactionHarness
from hubmere.model.errors import PartitionOffline


class LostMarkers(TransactionHarness):
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
def harness(bench: Bench) -> LostMarkers:
    return LostMarkers(bench)


def test_an_ongoing_transaction_is_left_alone(harness: LostMarkers) -> None:
    """Its producer decides, or its time-out."""
    producer = harness.start()
    harness.add(producer)
    harness.write(producer)

    assert harness.look() == []
    assert harness.stable == 0


def test_a_transaction_of_an_unknown_producer_is_aborted(harness: LostMarkers) -> None:
    """The catalog was restored from a copy without it: no producer can end it any more."""
    harness.write_unnoticed((77, 3))

    assert harness.look() == [False]
    assert harness.stable == harness.end_of_log == 2
    assert harness.aborted == [(0, 1)]
    assert harness.look() == []


@pytest.mark.parametrize("commit", [True, False])
def test_the_outcome_that_the_catalog_has_kept_is_written_again(harness: LostMarkers, *, commit: bool) -> None:
    """The marker was in a damaged range; restarts and the next producer of the id do not forget the outcome."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer, commit=commit)
    harness.write_unnoticed(producer)
    harness.damage(harness.end_of_log + 1)
    harness.restart()
    harness.start()

    assert harness.look() == [commit]
    assert harness.stable == harness.end_of_log
    assert bool(harness.aborted) is not commit


def test_without_damage_an_earlier_commit_proves_nothing(harness: LostMarkers) -> None:
    """No marker can have been lost, so the open transaction is another one than the committed."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer)
    harness.write_unnoticed(producer)

    assert harness.look() == [False]


def test_a_commit_in_other_partitions_proves_nothing(harness: LostMarkers) -> None:
    """The open transaction is an earlier one of the same producer."""
    producer = harness.start()
    harness.add(producer, 1, 2)
    harness.end(producer)
    harness.write_unnoticed(producer)
    harness.damage(harness.end_of_log + 1)

    assert harness.look() == [False]


def test_a_lost_end_is_noticed_while_the_producer_writes_elsewhere(harness: LostMarkers) -> None:
    """The ongoing transaction does not have this partition, so its end would not write a marker here."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer)
    harness.write_unnoticed(producer)
    harness.damage(harness.end_of_log + 1)
    harness.add(producer, 1)

    assert harness.look() == [True]
    harness.end(producer, commit=False)
    assert harness.stable == harness.end_of_log
    assert harness.aborted == []


def test_a_partition_that_takes_no_marker_now_is_tried_again(
    harness: LostMarkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk must not make the node give up."""
    harness.write_unnoticed((77, 3))
    log = harness.bench.hub.log(0)

    def refuse(*_: object, **__: object) -> None:
        raise PartitionOffline("no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(log), "append_marker", refuse)
        assert harness.look() == []

    assert harness.look() == [False]


def test_a_lost_end_is_made_good_before_the_producer_writes_to_the_partition_again(harness: LostMarkers) -> None:
    """Otherwise the next marker would decide over both transactions."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer)
    harness.write_unnoticed(producer)
    first = harness.end_of_log - 1
    harness.damage(harness.end_of_log + 1)

    harness.add(producer)
    harness.write(producer, 1)
    harness.end(producer, commit=False)

    assert harness.stable == harness.end_of_log
    assert harness.aborted == [(first + 2, first + 3)]
    assert harness.look() == [True]


def test_a_partition_that_is_added_twice_keeps_its_open_transaction(harness: LostMarkers) -> None:
    """Clients repeat requests that were not answered."""
    producer = harness.start()
    harness.add(producer)
    harness.write(producer)

    harness.add(producer, 0, 1)

    assert harness.stable == 0
