"""Transactional producers: fencing, covering partitions and offsets, ending, timing out, and surviving a restart."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.builders import NOW_MS, Bench, a_batch
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


class Desk:
    """A coordinator on a bench, with every answer awaited."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        """Start again from the catalog."""
        namespace = self.bench.broker._namespace("hubmere")
        self.transactions = Transactions(
            namespace, self.bench.catalog, ProducerIds(self.bench.catalog), now=self.now, now_ms=self.now_ms
        )

    @property
    def now_ms(self) -> int:
        return NOW_MS + int(self.now * 1000)

    @property
    def place(self) -> tuple[str, int]:
        return (self.bench.hub.entity.uid, 0)

    def settle(self) -> None:
        """Let the catalog and the logs come to rest; each may set off the other."""
        for _ in range(6):
            self.bench.catalog.apply()
            self.bench.turn.run()

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
        """Write an event of the open transaction into the log, as the produce handler would."""
        number, epoch = producer
        self.transactions.require_enlisted("t", number, epoch, (self.place[0], partition))
        batch = a_batch(producer=(number, epoch, sequence))
        write_header(batch, read_header(batch)._replace(attributes=TRANSACTIONAL))
        seal(batch)
        self.bench.hub.log(partition).append(batch, self.now_ms)
        self.settle()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.transactions.advance(self.now, self.now_ms)
        self.settle()

    @property
    def stable(self) -> int:
        return self.bench.hub.log(0).state.last_stable

    @property
    def end_of_log(self) -> int:
        return self.bench.hub.log(0).state.committed

    @property
    def phase(self) -> Phase:
        known = self.transactions.find("t")
        assert known is not None
        return known.phase

    @property
    def committed_offset(self) -> int | None:
        found = self.bench.catalog.view.group_offset("hubmere", "g", *self.place)
        return None if found is None else found.sequence


@pytest.fixture
def desk(bench: Bench) -> Desk:
    return Desk(bench)


# --- producers -------------------------------------------------------------------------------------------------------


def test_every_start_gives_a_higher_epoch(desk: Desk) -> None:
    """The same producer id, so that partitions know who is the newer one."""
    first, second = desk.start(), desk.start()

    assert second == (first[0], first[1] + 1)


def test_other_ids_have_other_producers(desk: Desk) -> None:
    """Producer ids are never given twice."""
    assert desk.start("a")[0] != desk.start("b")[0]


def test_older_producer_is_fenced(desk: Desk) -> None:
    """A zombie must not write into the transaction of its successor."""
    old = desk.start()
    new = desk.start()

    with pytest.raises(TransactionalProducerFenced):
        desk.add(old)
    desk.add(new)
    with pytest.raises(ProducerFenced):
        desk.transactions.require_enlisted("t", *old, desk.place)


def test_start_aborts_what_the_last_producer_left_open(desk: Desk) -> None:
    """Its events stay invisible, and its partitions know the new epoch at once."""
    old = desk.start()
    desk.add(old)
    desk.write(old)
    assert desk.stable == 0

    new = desk.start()

    assert new[1] > old[1]
    assert (desk.stable, desk.end_of_log) == (2, 2)
    assert len(desk.bench.hub.log(0).aborted_transactions(0, 2)) == 1
    desk.add(new)
    desk.write(new)


def test_producer_that_comes_back_must_be_the_current_one(desk: Desk) -> None:
    """KIP-360: after an error a producer asks for the next epoch, and only the latest one gets it."""
    first = desk.start()

    second = desk.start(expected=first)
    desk.start()

    assert second[1] == first[1] + 1
    with pytest.raises(TransactionalProducerFenced):
        desk.start(expected=second)
    with pytest.raises(TransactionalProducerFenced):
        desk.start(expected=first)


def test_producer_that_missed_the_answer_gets_it_again(desk: Desk) -> None:
    """KIP-360: a retry must not fence the one that it comes from; a restart in between changes nothing."""
    first = desk.start()
    second = desk.start(expected=first)
    desk.restart()

    again = desk.start(expected=first)

    assert again == second
    desk.add(second)
    with pytest.raises(TransactionalProducerFenced):
        desk.start(expected=first)


def test_producer_gets_another_id_when_its_epochs_are_used_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are 16 bits wide."""
    monkeypatch.setattr("hubmere.broker.coordinator.transactions._LAST_EPOCH", 1)
    first, second = desk.start(), desk.start()

    third = desk.start()

    assert (second[0], second[1]) == (first[0], 1)
    assert third[0] != first[0]
    assert third[1] == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, LONGEST_TRANSACTION_MS + 1])
def test_time_of_a_transaction_has_bounds(desk: Desk, timeout_ms: int) -> None:
    """An open one holds back every committed reader of its partitions."""
    with pytest.raises(TransactionTimeoutTooLong):
        desk.start(timeout_ms=timeout_ms)


def test_stranger_has_no_transaction(desk: Desk) -> None:
    """Neither an unknown id nor the producer id of another."""
    producer = desk.start()

    with pytest.raises(ProducerMismatch):
        desk.add(producer, name="other")
    with pytest.raises(ProducerMismatch):
        desk.add((producer[0] + 1, producer[1]))
    with pytest.raises(ProducerMismatch):
        desk.transactions.require_enlisted("other", *producer, desk.place)


def test_second_request_while_the_first_is_on_its_way_has_to_wait(desk: Desk) -> None:
    """The client retries; no decision depends on a change that is not durable."""
    producer = desk.start()
    desk.transactions.add_partitions("t", producer, [desk.place], 0.0, NOW_MS, print)

    with pytest.raises(ConcurrentTransaction):
        desk.transactions.add_partitions("t", producer, [desk.place], 0.0, NOW_MS, print)
    with pytest.raises(InvalidTransactionState):
        desk.transactions.require_enlisted("t", *producer, desk.place)
    desk.settle()


# --- ending ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_events_become_visible_together_or_never(desk: Desk, commit: bool) -> None:
    """A marker in every partition, then readers of committed events continue."""
    producer = desk.start()
    desk.add(producer, 0, 1)
    desk.write(producer)
    desk.write(producer, partition=1)
    assert desk.stable == 0

    desk.end(producer, commit=commit)

    logs = [desk.bench.hub.log(partition) for partition in (0, 1)]
    assert [log.state.last_stable for log in logs] == [2, 2]
    assert [len(log.aborted_transactions(0, 2)) for log in logs] == ([0, 0] if commit else [1, 1])
    assert desk.phase is (Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT)


def test_transactions_follow_each_other(desk: Desk) -> None:
    """With the same producer and epoch; what one covered the next does not."""
    producer = desk.start()
    for sequence in range(3):
        desk.add(producer)
        desk.write(producer, sequence)
        desk.end(producer)

    assert (desk.stable, desk.end_of_log) == (6, 6)
    with pytest.raises(InvalidTransactionState):
        desk.write(producer, 3)


def test_partition_is_enlisted_before_it_is_written_to(desk: Desk) -> None:
    """KIP-890: a late batch of an ended transaction would hang for ever."""
    producer = desk.start()
    desk.add(producer, 1)

    with pytest.raises(InvalidTransactionState):
        desk.write(producer, partition=0)
    desk.write(producer, partition=1)


def test_enlisting_again_costs_nothing(desk: Desk) -> None:
    """Clients repeat requests without an answer."""
    producer = desk.start()
    desk.add(producer)
    outcome: list[Refusal | None] = []

    desk.transactions.add_partitions("t", producer, [desk.place], 0.0, NOW_MS, outcome.append)

    assert outcome == [None]


@pytest.mark.parametrize(
    ("first", "second", "is_repeat"), [(True, True, True), (False, False, True), (True, False, False)]
)
def test_end_can_be_repeated_but_not_changed(desk: Desk, first: bool, second: bool, is_repeat: bool) -> None:
    """The client may have missed our answer; it may not have changed its mind."""
    producer = desk.start()
    desk.add(producer)
    desk.end(producer, commit=first)

    if is_repeat:
        desk.end(producer, commit=second)
    else:
        with pytest.raises(InvalidTransactionState):
            desk.end(producer, commit=second)


def test_transaction_that_never_began_cannot_be_ended(desk: Desk) -> None:
    """There is nothing to decide."""
    with pytest.raises(InvalidTransactionState):
        desk.end(desk.start())


def test_partition_of_a_deleted_hub_needs_no_marker(desk: Desk) -> None:
    """The transaction must not wait for a deleted hub."""
    producer = desk.start()
    desk.add(producer)
    desk.bench.do(lambda done: desk.bench.manager.delete_hub("hubmere", "orders", desk.bench.actor(), done))
    known = desk.transactions.find("t")
    assert known is not None

    desk.end(producer)

    assert desk.phase is Phase.COMPLETE_COMMIT


def test_marker_that_cannot_be_written_is_tried_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once decided, a transaction is carried out however long the disk is full."""
    producer = desk.start()
    desk.add(producer)
    desk.write(producer)
    log = desk.bench.hub.log(0)

    def full(*_: object, **__: object) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(log), "append_marker", full)
        with pytest.raises(ConcurrentTransaction):
            desk.end(producer)
        with pytest.raises(ConcurrentTransaction):
            desk.start()
    desk.advance(1.5)

    assert (desk.phase, desk.stable) == (Phase.COMPLETE_COMMIT, 2)
    desk.end(producer)


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_with_the_transaction(desk: Desk) -> None:
    """Read, transform, write: all or nothing."""
    producer = desk.start()
    desk.add(producer)
    desk.add_group(producer)
    desk.pend(producer, 41)
    desk.pend(producer, 42)
    assert desk.transactions.has_pending("g", *desk.place)

    before = desk.committed_offset
    desk.end(producer)

    assert (before, desk.committed_offset) == (None, 42)
    assert not desk.transactions.has_pending("g", *desk.place)


def test_offsets_of_an_aborted_transaction_are_forgotten(desk: Desk) -> None:
    """The events will be read again."""
    producer = desk.start()
    desk.add_group(producer)
    desk.pend(producer, 42)

    desk.end(producer, commit=False)

    assert desk.committed_offset is None


def test_group_is_enlisted_before_its_offsets(desk: Desk) -> None:
    """As partitions are."""
    producer = desk.start()
    desk.add(producer)

    with pytest.raises(InvalidTransactionState):
        desk.pend(producer, 1)


# --- time and restarts -----------------------------------------------------------------------------------------------


def test_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(desk: Desk) -> None:
    """Readers of committed events must not wait for a producer that is gone."""
    producer = desk.start(timeout_ms=5_000)
    desk.add(producer)
    desk.write(producer)
    desk.advance(4.9)
    assert desk.stable == 0

    desk.advance(0.2)

    assert (desk.stable, desk.phase) == (2, Phase.COMPLETE_ABORT)
    with pytest.raises(TransactionalProducerFenced):
        desk.end(producer)
    assert desk.start()[1] > producer[1]


def test_ended_transaction_does_not_time_out(desk: Desk) -> None:
    """Its clock stops with it."""
    producer = desk.start(timeout_ms=5_000)
    desk.add(producer)
    desk.end(producer)

    desk.advance(100.0)

    assert desk.phase is Phase.COMPLETE_COMMIT
    desk.add(producer)


def test_open_transaction_goes_on_after_a_restart(desk: Desk) -> None:
    """With the rest of its timeout."""
    producer = desk.start(timeout_ms=10_000)
    desk.add(producer)
    desk.write(producer)
    desk.now += 8.0

    desk.restart()
    assert desk.transactions.next_deadline() == 10.0
    desk.end(producer)

    assert desk.stable == 2


def test_decided_transaction_is_carried_out_after_a_restart(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The crash came between the decision and the markers; offsets included."""
    producer = desk.start()
    desk.add(producer)
    desk.add_group(producer)
    desk.pend(producer, 42)
    desk.write(producer)
    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "_carry_out", lambda *_, **__: None)
        desk.transactions.end("t", producer, 0.0, NOW_MS, print, commit=True)
        desk.settle()
    assert (desk.phase, desk.stable) == (Phase.PREPARE_COMMIT, 0)

    desk.restart()
    desk.advance(0.0)

    assert (desk.phase, desk.stable, desk.committed_offset) == (Phase.COMPLETE_COMMIT, 2, 42)


def test_transactional_id_that_nobody_uses_is_forgotten(desk: Desk) -> None:
    """After a week, and not while it has a transaction."""
    producer = desk.start()
    desk.add(producer)
    desk.transactions.delete_unused(NOW_MS + ID_EXPIRY_MS + 1)
    assert desk.transactions.find("t") is not None
    desk.end(producer)

    desk.transactions.delete_unused(NOW_MS + ID_EXPIRY_MS + 1)
    desk.settle()

    assert desk.transactions.list() == []
    desk.restart()
    assert desk.transactions.list() == []


def test_transaction_covers_only_so_much(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it covers is written at its end."""
    monkeypatch.setattr("hubmere.broker.coordinator.transactions.MAX_PARTITIONS", 2)
    producer = desk.start()

    with pytest.raises(LimitReached):
        desk.add(producer, 0, 1, 2)


# --- producer ids ----------------------------------------------------------------------------------------------------


def test_producer_ids_are_never_given_twice(bench: Bench) -> None:
    """Not within a block, not across blocks, and not after a restart."""
    taken: list[int] = []

    def note(number: int, refusal: Refusal | None) -> None:
        assert refusal is None
        taken.append(number)

    for _ in range(2):
        ids = ProducerIds(bench.catalog)
        for _ in range(1500):
            ids.take(note)
        bench.catalog.apply()
        bench.turn.run()
        bench.catalog.apply()
        bench.turn.run()

    assert len(taken) == len(set(taken)) == 3000
