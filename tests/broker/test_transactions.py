"""Transactional producers: fencing, adding partitions and offsets, ending, timeouts, and restarts."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.broker.coordinator.producer_ids import ProducerIds
from hubmere.broker.coordinator.refusals import (
    ConcurrentTransaction,
    InvalidTransactionState,
    ProducerMismatch,
    TransactionalProducerFenced,
    TransactionTimeoutTooLong,
)
from hubmere.broker.coordinator.transaction import PendingOffset, Phase
from hubmere.broker.coordinator.transactions import ID_EXPIRY_MS, LONGEST_TRANSACTION_MS, Transactions
from hubmere.model.errors import LimitReached, ProducerFenced, Refusal, StorageFull
from hubmere.records.header import TRANSACTIONAL, read_header, seal, write_header

Producer = tuple[int, int]


class TransactionHarness:
    """A coordinator of a broker harness, which waits for every answer."""

    def __init__(self, broker_harness: BrokerHarness) -> None:
        self.broker_harness = broker_harness
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        """Start again from the catalog."""
        namespace = self.broker_harness.broker._namespace("hubmere")
        self.transactions = Transactions(
            namespace,
            self.broker_harness.catalog,
            ProducerIds(self.broker_harness.catalog),
            now=self.now,
            now_ms=self.now_ms,
        )

    @property
    def now_ms(self) -> int:
        return NOW_MS + int(self.now * 1000)

    @property
    def place(self) -> tuple[str, int]:
        return (self.broker_harness.hub.entity.uid, 0)

    def settle(self) -> None:
        """Wait until the catalog and the logs have no pending work; each may cause work of the other."""
        for _ in range(6):
            self.broker_harness.catalog.apply()
            self.broker_harness.turn.run()

    def start(
        self, transactional_id: str = "t", expected: Producer | None = None, timeout_ms: int = 60_000
    ) -> Producer:
        answers: list[Any] = []
        self.transactions.initialise(transactional_id, timeout_ms, expected, self.now, self.now_ms, answers.append)
        self.settle()
        if isinstance(answers[0], Refusal):
            raise answers[0]
        return (answers[0][0], answers[0][1])

    def _await(self, begin: Callable[[Callable[[Refusal | None], None]], None]) -> None:
        outcome: list[Refusal | None] = []
        begin(outcome.append)
        self.settle()
        assert len(outcome) == 1
        if outcome[0] is not None:
            raise outcome[0]

    def add(self, producer: Producer, *partitions: int, name: str = "t") -> None:
        places = [(self.place[0], partition) for partition in partitions or (0,)]
        self._await(lambda done: self.transactions.add_partitions(name, producer, places, self.now, self.now_ms, done))

    def add_group(self, producer: Producer, group: str = "g") -> None:
        self._await(lambda done: self.transactions.add_group("t", producer, group, self.now, self.now_ms, done))

    def pend(self, producer: Producer, sequence: int, group: str = "g") -> None:
        offset = PendingOffset(group, self.place[0], 0, sequence, -1, "")
        self._await(
            lambda done: self.transactions.commit_offsets("t", producer, group, [offset], self.now, self.now_ms, done)
        )

    def end(self, producer: Producer, *, commit: bool = True) -> None:
        self._await(lambda done: self.transactions.end("t", producer, self.now, self.now_ms, done, commit=commit))

    def write(self, producer: Producer, sequence: int = 0, partition: int = 0) -> None:
        """Append an event of the open transaction to the log, as the produce handler does."""
        number, epoch = producer
        self.transactions.require_enlisted("t", number, epoch, (self.place[0], partition))
        batch = a_batch(producer=(number, epoch, sequence))
        write_header(batch, read_header(batch)._replace(attributes=TRANSACTIONAL))
        seal(batch)
        self.broker_harness.hub.log(partition).append(batch, self.now_ms)
        self.settle()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.transactions.advance(self.now, self.now_ms)
        self.settle()

    @property
    def stable(self) -> int:
        return self.broker_harness.hub.log(0).state.last_stable

    @property
    def end_of_log(self) -> int:
        return self.broker_harness.hub.log(0).state.committed

    @property
    def phase(self) -> Phase:
        known = self.transactions.find("t")
        assert known is not None
        return known.phase

    @property
    def committed_offset(self) -> int | None:
        found = self.broker_harness.catalog.view.group_offset("hubmere", "g", *self.place)
        return None if found is None else found.sequence


@pytest.fixture
def harness(broker_harness: BrokerHarness) -> TransactionHarness:
    return TransactionHarness(broker_harness)


# --- producers -------------------------------------------------------------------------------------------------------


def test_every_start_of_a_producer_increments_its_epoch(harness: TransactionHarness) -> None:
    """The producer id stays the same, so that partitions recognise the newer producer."""
    first, second = harness.start(), harness.start()

    assert second == (first[0], first[1] + 1)


def test_other_transactional_ids_have_other_producer_ids(harness: TransactionHarness) -> None:
    """Producer ids are never used twice."""
    assert harness.start("a")[0] != harness.start("b")[0]


def test_older_producer_is_fenced(harness: TransactionHarness) -> None:
    """An old process must not write to the transaction of its successor."""
    old = harness.start()
    new = harness.start()

    with pytest.raises(TransactionalProducerFenced):
        harness.add(old)
    harness.add(new)
    with pytest.raises(ProducerFenced):
        harness.transactions.require_enlisted("t", *old, harness.place)


def test_start_of_a_producer_aborts_the_open_transaction_of_the_previous_one(harness: TransactionHarness) -> None:
    """Its events stay invisible, and its partitions get the new epoch at once."""
    old = harness.start()
    harness.add(old)
    harness.write(old)
    assert harness.stable == 0

    new = harness.start()

    assert new[1] > old[1]
    assert (harness.stable, harness.end_of_log) == (2, 2)
    assert len(harness.broker_harness.hub.log(0).aborted_transactions(0, 2)) == 1
    harness.add(new)
    harness.write(new)


def test_producer_that_asks_for_the_next_epoch_must_be_the_current_one(harness: TransactionHarness) -> None:
    """KIP-360: after an error a producer asks for the next epoch; only the latest producer gets it."""
    first = harness.start()

    second = harness.start(expected=first)
    harness.start()

    assert second[1] == first[1] + 1
    with pytest.raises(TransactionalProducerFenced):
        harness.start(expected=second)
    with pytest.raises(TransactionalProducerFenced):
        harness.start(expected=first)


def test_producer_that_missed_the_answer_gets_it_again(harness: TransactionHarness) -> None:
    """KIP-360: a retry must not fence its own producer, not even after a restart."""
    first = harness.start()
    second = harness.start(expected=first)
    harness.restart()

    again = harness.start(expected=first)

    assert again == second
    harness.add(second)
    with pytest.raises(TransactionalProducerFenced):
        harness.start(expected=first)


def test_producer_gets_another_id_when_its_epochs_are_exhausted(
    harness: TransactionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch has 16 bits."""
    monkeypatch.setattr("hubmere.broker.coordinator.transactions._LAST_EPOCH", 1)
    first, second = harness.start(), harness.start()

    third = harness.start()

    assert (second[0], second[1]) == (first[0], 1)
    assert third[0] != first[0]
    assert third[1] == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, LONGEST_TRANSACTION_MS + 1])
def test_timeout_of_a_transaction_is_limited(harness: TransactionHarness, timeout_ms: int) -> None:
    """An open transaction holds back all read_committed readers of its partitions."""
    with pytest.raises(TransactionTimeoutTooLong):
        harness.start(timeout_ms=timeout_ms)


def test_unknown_producer_has_no_transaction(harness: TransactionHarness) -> None:
    """Neither an unknown transactional id nor the producer id of another one is accepted."""
    producer = harness.start()

    with pytest.raises(ProducerMismatch):
        harness.add(producer, name="other")
    with pytest.raises(ProducerMismatch):
        harness.add((producer[0] + 1, producer[1]))
    with pytest.raises(ProducerMismatch):
        harness.transactions.require_enlisted("other", *producer, harness.place)


def test_second_request_is_refused_while_the_first_is_not_durable(harness: TransactionHarness) -> None:
    """The client retries; no decision depends on a change that is not durable."""
    producer = harness.start()
    harness.transactions.add_partitions("t", producer, [harness.place], 0.0, NOW_MS, print)

    with pytest.raises(ConcurrentTransaction):
        harness.transactions.add_partitions("t", producer, [harness.place], 0.0, NOW_MS, print)
    with pytest.raises(InvalidTransactionState):
        harness.transactions.require_enlisted("t", *producer, harness.place)
    harness.settle()


# --- ending ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_events_of_a_transaction_become_visible_together_or_never(harness: TransactionHarness, commit: bool) -> None:
    """Every partition gets a marker; then read_committed readers continue."""
    producer = harness.start()
    harness.add(producer, 0, 1)
    harness.write(producer)
    harness.write(producer, partition=1)
    assert harness.stable == 0

    harness.end(producer, commit=commit)

    logs = [harness.broker_harness.hub.log(partition) for partition in (0, 1)]
    assert [log.state.last_stable for log in logs] == [2, 2]
    assert [len(log.aborted_transactions(0, 2)) for log in logs] == ([0, 0] if commit else [1, 1])
    assert harness.phase is (Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT)


def test_next_transaction_starts_without_the_partitions_of_the_last_one(harness: TransactionHarness) -> None:
    """Producer id and epoch stay the same."""
    producer = harness.start()
    for sequence in range(3):
        harness.add(producer)
        harness.write(producer, sequence)
        harness.end(producer)

    assert (harness.stable, harness.end_of_log) == (6, 6)
    with pytest.raises(InvalidTransactionState):
        harness.write(producer, 3)


def test_write_to_a_partition_that_was_not_added_is_refused(harness: TransactionHarness) -> None:
    """KIP-890: a late batch of an ended transaction would never be ended."""
    producer = harness.start()
    harness.add(producer, 1)

    with pytest.raises(InvalidTransactionState):
        harness.write(producer, partition=0)
    harness.write(producer, partition=1)


def test_adding_a_partition_again_causes_no_write(harness: TransactionHarness) -> None:
    """Clients repeat requests that were not answered."""
    producer = harness.start()
    harness.add(producer)
    outcome: list[Refusal | None] = []

    harness.transactions.add_partitions("t", producer, [harness.place], 0.0, NOW_MS, outcome.append)

    assert outcome == [None]


@pytest.mark.parametrize(
    ("first", "second", "is_repeat"), [(True, True, True), (False, False, True), (True, False, False)]
)
def test_end_of_a_transaction_can_be_repeated_but_not_changed(
    harness: TransactionHarness, first: bool, second: bool, is_repeat: bool
) -> None:
    """The client may have missed the answer, but must not ask for the opposite outcome."""
    producer = harness.start()
    harness.add(producer)
    harness.end(producer, commit=first)

    if is_repeat:
        harness.end(producer, commit=second)
    else:
        with pytest.raises(InvalidTransactionState):
            harness.end(producer, commit=second)


def test_transaction_that_has_not_begun_cannot_be_ended(harness: TransactionHarness) -> None:
    """There is no transaction to end."""
    with pytest.raises(InvalidTransactionState):
        harness.end(harness.start())


def test_partition_of_a_deleted_hub_needs_no_marker(harness: TransactionHarness) -> None:
    """The transaction must not wait for a deleted hub."""
    producer = harness.start()
    harness.add(producer)
    harness.broker_harness.do(
        lambda done: harness.broker_harness.manager.delete_hub(
            "hubmere", "orders", harness.broker_harness.actor(), done
        )
    )
    known = harness.transactions.find("t")
    assert known is not None

    harness.end(producer)

    assert harness.phase is Phase.COMPLETE_COMMIT


def test_marker_that_cannot_be_written_is_tried_again(
    harness: TransactionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decided transaction is completed, however long the disk is full."""
    producer = harness.start()
    harness.add(producer)
    harness.write(producer)
    log = harness.broker_harness.hub.log(0)

    def full(*_: object, **__: object) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(log), "append_marker", full)
        with pytest.raises(ConcurrentTransaction):
            harness.end(producer)
        with pytest.raises(ConcurrentTransaction):
            harness.start()
    harness.advance(1.5)

    assert (harness.phase, harness.stable) == (Phase.COMPLETE_COMMIT, 2)
    harness.end(producer)


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_with_the_transaction(harness: TransactionHarness) -> None:
    """Read, transform, write: either everything is committed or nothing."""
    producer = harness.start()
    harness.add(producer)
    harness.add_group(producer)
    harness.pend(producer, 41)
    harness.pend(producer, 42)
    assert harness.transactions.has_pending("g", *harness.place)

    before = harness.committed_offset
    harness.end(producer)

    assert (before, harness.committed_offset) == (None, 42)
    assert not harness.transactions.has_pending("g", *harness.place)


def test_offsets_of_an_aborted_transaction_are_dropped(harness: TransactionHarness) -> None:
    """The events will be read again."""
    producer = harness.start()
    harness.add_group(producer)
    harness.pend(producer, 42)

    harness.end(producer, commit=False)

    assert harness.committed_offset is None


def test_offsets_of_a_group_that_was_not_added_are_refused(harness: TransactionHarness) -> None:
    """The same rule holds for partitions."""
    producer = harness.start()
    harness.add(producer)

    with pytest.raises(InvalidTransactionState):
        harness.pend(producer, 1)


# --- time and restarts -----------------------------------------------------------------------------------------------


def test_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(harness: TransactionHarness) -> None:
    """read_committed readers must not wait for a producer that has disappeared."""
    producer = harness.start(timeout_ms=5_000)
    harness.add(producer)
    harness.write(producer)
    harness.advance(4.9)
    assert harness.stable == 0

    harness.advance(0.2)

    assert (harness.stable, harness.phase) == (2, Phase.COMPLETE_ABORT)
    with pytest.raises(TransactionalProducerFenced):
        harness.end(producer)
    assert harness.start()[1] > producer[1]


def test_ended_transaction_does_not_time_out(harness: TransactionHarness) -> None:
    """The timeout ends with the transaction."""
    producer = harness.start(timeout_ms=5_000)
    harness.add(producer)
    harness.end(producer)

    harness.advance(100.0)

    assert harness.phase is Phase.COMPLETE_COMMIT
    harness.add(producer)


def test_open_transaction_continues_after_a_restart(harness: TransactionHarness) -> None:
    """It has the remaining part of its timeout."""
    producer = harness.start(timeout_ms=10_000)
    harness.add(producer)
    harness.write(producer)
    harness.now += 8.0

    harness.restart()
    assert harness.transactions.next_deadline() == 10.0
    harness.end(producer)

    assert harness.stable == 2


def test_decided_transaction_is_completed_after_a_restart(
    harness: TransactionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash happened between the decision and the markers; its offsets are committed too."""
    producer = harness.start()
    harness.add(producer)
    harness.add_group(producer)
    harness.pend(producer, 42)
    harness.write(producer)
    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "_carry_out", lambda *_, **__: None)
        harness.transactions.end("t", producer, 0.0, NOW_MS, print, commit=True)
        harness.settle()
    assert (harness.phase, harness.stable) == (Phase.PREPARE_COMMIT, 0)

    harness.restart()
    harness.advance(0.0)

    assert (harness.phase, harness.stable, harness.committed_offset) == (Phase.COMPLETE_COMMIT, 2, 42)


def test_unused_transactional_id_is_removed(harness: TransactionHarness) -> None:
    """It is removed after a week, but not while it has a transaction."""
    producer = harness.start()
    harness.add(producer)
    harness.transactions.delete_unused(NOW_MS + ID_EXPIRY_MS + 1)
    assert harness.transactions.find("t") is not None
    harness.end(producer)

    harness.transactions.delete_unused(NOW_MS + ID_EXPIRY_MS + 1)
    harness.settle()

    assert harness.transactions.list() == []
    harness.restart()
    assert harness.transactions.list() == []


def test_number_of_partitions_of_a_transaction_is_limited(
    harness: TransactionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are written at its end."""
    monkeypatch.setattr("hubmere.broker.coordinator.transactions.MAX_PARTITIONS", 2)
    producer = harness.start()

    with pytest.raises(LimitReached):
        harness.add(producer, 0, 1, 2)


# --- producer ids ----------------------------------------------------------------------------------------------------


def test_producer_ids_are_never_used_twice(broker_harness: BrokerHarness) -> None:
    """This holds within a block, across blocks, and after a restart."""
    taken: list[int] = []

    def note(number: int, refusal: Refusal | None) -> None:
        assert refusal is None
        taken.append(number)

    for _ in range(2):
        ids = ProducerIds(broker_harness.catalog)
        for _ in range(1500):
            ids.take(note)
        broker_harness.catalog.apply()
        broker_harness.turn.run()
        broker_harness.catalog.apply()
        broker_harness.turn.run()

    assert len(taken) == len(set(taken)) == 3000
