"""Transactions that are open in a partition but unknown to the coordinator: which are ended, and with which outcome."""

import pytest

from broker.builders import BrokerHarness
from broker.test_transactions import Producer, TransactionHarness
from hubmere.model.errors import PartitionOffline


class LostMarkers(TransactionHarness):
    """A coordinator and a partition that can lose the marker of a transaction."""

    def write_without_coordinator(self, producer: Producer, sequence: int = 0) -> None:
        """Append an event of a transaction that the coordinator does not know, as if its marker was lost."""
        require, self.transactions.require_enlisted = self.transactions.require_enlisted, lambda *_: None  # type: ignore[method-assign]
        self.write(producer, sequence)
        self.transactions.require_enlisted = require  # type: ignore[method-assign]

    def damage(self, sequence: int) -> None:
        self.broker_harness.hub.report_unreadable(0, sequence, sequence + 1)

    def end_hanging_transactions(self) -> list[bool]:
        """End the hanging transactions; returns their outcomes."""
        ended = self.transactions.end_hanging(self.now_ms)
        self.settle()
        return [each.is_commit for each in ended]

    @property
    def aborted(self) -> list[tuple[int, int]]:
        found = self.broker_harness.hub.log(0).aborted_transactions(0, self.end_of_log)
        return [(each.first_sequence, each.last_sequence) for each in found]


@pytest.fixture
def harness(broker_harness: BrokerHarness) -> LostMarkers:
    return LostMarkers(broker_harness)


def test_an_ongoing_transaction_is_left_alone(harness: LostMarkers) -> None:
    """Its producer or its timeout ends it."""
    producer = harness.start()
    harness.add(producer)
    harness.write(producer)

    assert harness.end_hanging_transactions() == []
    assert harness.stable == 0


def test_a_transaction_of_an_unknown_producer_is_aborted(harness: LostMarkers) -> None:
    """The catalog was restored from a copy without the transaction: no producer can end it any more."""
    harness.write_without_coordinator((77, 3))

    assert harness.end_hanging_transactions() == [False]
    assert harness.stable == harness.end_of_log == 2
    assert harness.aborted == [(0, 1)]
    assert harness.end_hanging_transactions() == []


@pytest.mark.parametrize("commit", [True, False])
def test_stored_outcome_of_a_transaction_is_written_again(harness: LostMarkers, *, commit: bool) -> None:
    """The marker was in a damaged range; restarts and later producers of the id do not change the stored outcome."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer, commit=commit)
    harness.write_without_coordinator(producer)
    harness.damage(harness.end_of_log + 1)
    harness.restart()
    harness.start()

    assert harness.end_hanging_transactions() == [commit]
    assert harness.stable == harness.end_of_log
    assert bool(harness.aborted) is not commit


def test_earlier_commit_is_not_applied_to_an_undamaged_partition(harness: LostMarkers) -> None:
    """Without damage no marker can be lost, so the open transaction is not the committed one."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer)
    harness.write_without_coordinator(producer)

    assert harness.end_hanging_transactions() == [False]


def test_commit_in_other_partitions_is_not_applied(harness: LostMarkers) -> None:
    """The open transaction is an earlier one of the same producer."""
    producer = harness.start()
    harness.add(producer, 1, 2)
    harness.end(producer)
    harness.write_without_coordinator(producer)
    harness.damage(harness.end_of_log + 1)

    assert harness.end_hanging_transactions() == [False]


def test_lost_marker_is_detected_while_the_producer_writes_to_other_partitions(harness: LostMarkers) -> None:
    """The ongoing transaction does not include this partition, so its end would not write a marker here."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer)
    harness.write_without_coordinator(producer)
    harness.damage(harness.end_of_log + 1)
    harness.add(producer, 1)

    assert harness.end_hanging_transactions() == [True]
    harness.end(producer, commit=False)
    assert harness.stable == harness.end_of_log
    assert harness.aborted == []


def test_partition_that_cannot_take_a_marker_is_tried_again(
    harness: LostMarkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is a temporary failure."""
    harness.write_without_coordinator((77, 3))
    log = harness.broker_harness.hub.log(0)

    def refuse(*_: object, **__: object) -> None:
        raise PartitionOffline("no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(log), "append_marker", refuse)
        assert harness.end_hanging_transactions() == []

    assert harness.end_hanging_transactions() == [False]


def test_lost_marker_is_written_before_the_producer_writes_to_the_partition_again(harness: LostMarkers) -> None:
    """Otherwise the next marker would end both transactions."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer)
    harness.write_without_coordinator(producer)
    first = harness.end_of_log - 1
    harness.damage(harness.end_of_log + 1)

    harness.add(producer)
    harness.write(producer, 1)
    harness.end(producer, commit=False)

    assert harness.stable == harness.end_of_log
    assert harness.aborted == [(first + 2, first + 3)]
    assert harness.end_hanging_transactions() == [True]


def test_adding_a_partition_twice_keeps_its_open_transaction(harness: LostMarkers) -> None:
    """Clients repeat requests that were not answered."""
    producer = harness.start()
    harness.add(producer)
    harness.write(producer)

    harness.add(producer, 0, 1)

    assert harness.stable == 0
