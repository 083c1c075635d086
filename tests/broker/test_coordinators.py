"""All coordinators of a node: their common deadline, their cleanup, and what happens when the catalog cannot write."""

from typing import Any

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from broker.classic_groups import a_join, joined_and_synced, settle
from broker.test_transactions import TransactionHarness
from hubmere.broker.coordinator.coordinators import Coordinators, HubDirectory
from hubmere.broker.coordinator.groups import Groups
from hubmere.broker.coordinator.membership import GroupState, SyncRequest
from hubmere.broker.coordinator.offsets import RETENTION_MS, Commit
from hubmere.broker.coordinator.transaction import Phase
from hubmere.broker.coordinator.transactions import ID_EXPIRY_MS
from hubmere.model.errors import LimitReached, Refusal, ShuttingDown
from hubmere.model.names import namespace_name
from hubmere.model.spec import NamespaceSpec

_LATER_S = 10_000.0


def coordinators_of(broker_harness: BrokerHarness) -> Coordinators:
    coordinators = broker_harness.broker.coordinators
    coordinators.initial_delay_s = 0.0
    return coordinators


def test_one_deadline_covers_all_groups_and_transactions(broker_harness: BrokerHarness) -> None:
    """The endpoint has one timer, for the earliest deadline of all groups and transactions."""
    coordinators = coordinators_of(broker_harness)
    coordinator = coordinators.of(broker_harness.broker._namespace("hubmere"), 0.0, NOW_MS)
    assert coordinators.next_deadline() is None
    joined_and_synced(broker_harness, coordinator.groups)
    assert coordinators.next_deadline() == 10.0

    answers: list[Any] = []
    coordinator.transactions.initialise("t", 5_000, None, 0.0, NOW_MS, answers.append)
    settle(broker_harness)
    coordinator.transactions.add_partitions(
        "t", answers[0], [(broker_harness.hub.entity.uid, 0)], 0.0, NOW_MS, answers.append
    )
    settle(broker_harness)
    assert coordinators.next_deadline() == 5.0

    coordinators.advance(10.0, NOW_MS + 10_000)
    settle(broker_harness)
    assert coordinator.groups.describe("g").state is GroupState.EMPTY


def test_unused_groups_offsets_and_transactional_ids_are_removed(broker_harness: BrokerHarness) -> None:
    """Unused state must not accumulate."""
    coordinators = coordinators_of(broker_harness)
    coordinator = coordinators.of(broker_harness.broker._namespace("hubmere"), 0.0, NOW_MS)
    member = joined_and_synced(broker_harness, coordinator.groups)
    coordinator.groups.leave("g", member.member_id, None, 0.0, NOW_MS)
    broker_harness.do(
        lambda done: coordinator.offsets.commit("g", [Commit(broker_harness.hub.entity, 0, 1, -1, "")], NOW_MS, done)
    )
    coordinator.transactions.initialise("t", 5_000, None, 0.0, NOW_MS, lambda _: None)
    settle(broker_harness)

    for round_, at_ms in enumerate((NOW_MS, NOW_MS + RETENTION_MS, NOW_MS + RETENTION_MS + ID_EXPIRY_MS), 1):
        broker_harness.broker.coordinators.tick(round_ * _LATER_S, at_ms)
        broker_harness.broker.coordinators.tick(round_ * _LATER_S + 1.0, at_ms)
        settle(broker_harness)

    assert coordinator.groups.list() == []
    assert coordinator.offsets.all("g") == []
    assert coordinator.transactions.list() == []


def test_recreated_namespace_has_no_old_groups_and_transactions(broker_harness: BrokerHarness) -> None:
    """They belong to the deleted namespace."""
    coordinators = coordinators_of(broker_harness)
    old = coordinators.of(broker_harness.broker._namespace("hubmere"), 0.0, NOW_MS)
    joined_and_synced(broker_harness, old.groups)

    broker_harness.do(lambda done: broker_harness.manager.delete_namespace("hubmere", broker_harness.actor(), done))
    assert coordinators.next_deadline() is None
    name = namespace_name("hubmere")
    broker_harness.do(
        lambda done: broker_harness.manager.create_namespace(name, NamespaceSpec(), broker_harness.actor(), done)
    )
    new = coordinators.of(broker_harness.broker._namespace("hubmere"), 0.0, NOW_MS)

    assert new.groups is not old.groups
    assert new.groups.list() == []


def test_groups_and_transactions_are_loaded_at_the_start(broker_harness: BrokerHarness) -> None:
    """Timeouts of open transactions and members start before any client has reconnected."""
    joined_and_synced(
        broker_harness,
        coordinators_of(broker_harness).of(broker_harness.broker._namespace("hubmere"), 0.0, NOW_MS).groups,
    )

    again = Coordinators(broker_harness.catalog, broker_harness.broker._namespaces)
    again.open(100.0, NOW_MS)

    assert again.next_deadline() == 110.0


# --- a catalog that cannot keep --------------------------------------------------------------------------------------


def test_group_that_cannot_be_stored_is_not_assigned(broker_harness: BrokerHarness) -> None:
    """The members get the error and retry."""
    groups = Groups("hubmere", broker_harness.catalog, now=0.0, initial_delay_s=0.0)
    answers: list[Any] = []
    groups.join("g", a_join(), 0.0, NOW_MS, answers.append)
    broker_harness.catalog.close()

    member = answers[0]
    request = SyncRequest(member_id=member.member_id, generation=1, assignments={member.member_id: b"x"})
    groups.sync("g", request, 0.0, NOW_MS, answers.append)

    assert isinstance(answers[1], Refusal)
    assert groups.describe("g").state is GroupState.COMPLETING


def test_producer_id_that_cannot_be_reserved_is_refused(broker_harness: BrokerHarness) -> None:
    """It might be assigned a second time."""
    broker_harness.catalog.close()
    results: list[tuple[int, Refusal | None]] = []

    broker_harness.broker.coordinators.producer_ids.take(lambda number, refusal: results.append((number, refusal)))

    assert results[0][0] == -1
    assert isinstance(results[0][1], ShuttingDown)


def test_transaction_that_cannot_be_stored_does_not_change(broker_harness: BrokerHarness) -> None:
    """The client gets the error, and after a restart the state is the old one."""
    harness = TransactionHarness(broker_harness)
    producer = harness.start()
    broker_harness.catalog.close()
    outcome: list[Any] = []

    harness.transactions.add_partitions("t", producer, [harness.place], 0.0, NOW_MS, outcome.append)
    harness.transactions.initialise("new", 1000, None, 0.0, NOW_MS, outcome.append)

    assert [type(refusal) for refusal in outcome] == [ShuttingDown, ShuttingDown]
    known = harness.transactions.find("t")
    assert known is not None
    assert known.partitions == frozenset()


def test_groups_and_transactional_ids_have_limits(
    broker_harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients choose these names, so their number must be limited."""
    monkeypatch.setattr("hubmere.broker.coordinator.groups.MAX_GROUPS", 0)
    monkeypatch.setattr("hubmere.broker.coordinator.transactions.MAX_TRANSACTIONAL_IDS", 0)

    with pytest.raises(LimitReached):
        Groups("hubmere", broker_harness.catalog, now=0.0).join("g", a_join(), 0.0, NOW_MS, print)
    with pytest.raises(LimitReached):
        TransactionHarness(broker_harness).start()


def test_marker_is_not_needed_in_a_partition_with_a_newer_producer_epoch(broker_harness: BrokerHarness) -> None:
    """The transaction has already ended there."""
    harness = TransactionHarness(broker_harness)
    producer = harness.start()
    harness.add(producer)
    broker_harness.hub.log(0).append(a_batch(producer=(producer[0], producer[1] + 5, 0)), NOW_MS)
    harness.settle()

    harness.end(producer)

    assert harness.phase is Phase.COMPLETE_COMMIT
    assert harness.end_of_log == 1


def test_directory_follows_the_hubs_of_a_namespace(broker_harness: BrokerHarness) -> None:
    """A consumer group notices every hub that is created, changed or deleted; topic names differ by case."""
    directory = HubDirectory(broker_harness.broker._namespace("hubmere"))
    before = directory.revision

    broker_harness.a_hub("Payments", partitions=2)
    created = directory.revision
    broker_harness.do(
        lambda done: broker_harness.manager.delete_hub("hubmere", "Payments", broker_harness.actor(), done)
    )

    assert before < created < directory.revision
    assert (list(directory.names()), directory.find("ORDERS"), directory.find("Payments")) == (["orders"], None, None)
    found = directory.find("orders")
    assert found is not None
    assert (found.name, found.partition_count) == ("orders", 4)
