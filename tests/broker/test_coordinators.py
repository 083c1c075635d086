"""The coordinators of a node together: one deadline, tidying up, and what happens when the catalog cannot keep."""

from typing import Any

import pytest

from broker.builders import NOW_MS, Bench, a_batch
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


def coordinators_of(bench: Bench) -> Coordinators:
    coordinators = bench.broker.coordinators
    coordinators.initial_delay_s = 0.0
    return coordinators


def test_one_deadline_stands_for_all(bench: Bench) -> None:
    """The endpoint has one timer: the earliest of every group and transaction."""
    coordinators = coordinators_of(bench)
    coordinator = coordinators.of(bench.broker._namespace("hubmere"), 0.0, NOW_MS)
    assert coordinators.next_deadline() is None
    joined_and_synced(bench, coordinator.groups)
    assert coordinators.next_deadline() == 10.0

    answers: list[Any] = []
    coordinator.transactions.initialise("t", 5_000, None, 0.0, NOW_MS, answers.append)
    settle(bench)
    coordinator.transactions.add_partitions("t", answers[0], [(bench.hub.entity.uid, 0)], 0.0, NOW_MS, answers.append)
    settle(bench)
    assert coordinators.next_deadline() == 5.0

    coordinators.advance(10.0, NOW_MS + 10_000)
    settle(bench)
    assert coordinator.groups.describe("g").state is GroupState.EMPTY


def test_what_nobody_uses_is_let_go_now_and_then(bench: Bench) -> None:
    """Groups, offsets and transactional ids of the past do not pile up."""
    coordinators = coordinators_of(bench)
    coordinator = coordinators.of(bench.broker._namespace("hubmere"), 0.0, NOW_MS)
    member = joined_and_synced(bench, coordinator.groups)
    coordinator.groups.leave("g", member.member_id, None, 0.0, NOW_MS)
    bench.do(lambda done: coordinator.offsets.commit("g", [Commit(bench.hub.entity, 0, 1, -1, "")], NOW_MS, done))
    coordinator.transactions.initialise("t", 5_000, None, 0.0, NOW_MS, lambda _: None)
    settle(bench)

    for round_, at_ms in enumerate((NOW_MS, NOW_MS + RETENTION_MS, NOW_MS + RETENTION_MS + ID_EXPIRY_MS), 1):
        bench.broker.coordinators.tick(round_ * _LATER_S, at_ms)
        bench.broker.coordinators.tick(round_ * _LATER_S + 1.0, at_ms)
        settle(bench)

    assert coordinator.groups.list() == []
    assert coordinator.offsets.all("g") == []
    assert coordinator.transactions.list() == []


def test_namespace_that_is_made_anew_has_no_past(bench: Bench) -> None:
    """Neither its groups nor its transactions are those of the old one."""
    coordinators = coordinators_of(bench)
    old = coordinators.of(bench.broker._namespace("hubmere"), 0.0, NOW_MS)
    joined_and_synced(bench, old.groups)

    bench.do(lambda done: bench.manager.delete_namespace("hubmere", bench.actor(), done))
    assert coordinators.next_deadline() is None
    name = namespace_name("hubmere")
    bench.do(lambda done: bench.manager.create_namespace(name, NamespaceSpec(), bench.actor(), done))
    new = coordinators.of(bench.broker._namespace("hubmere"), 0.0, NOW_MS)

    assert new.groups is not old.groups
    assert new.groups.list() == []


def test_everything_is_taken_up_at_the_start(bench: Bench) -> None:
    """Timeouts of open transactions and members start before any client has reconnected."""
    joined_and_synced(bench, coordinators_of(bench).of(bench.broker._namespace("hubmere"), 0.0, NOW_MS).groups)

    again = Coordinators(bench.catalog, bench.broker._namespaces)
    again.open(100.0, NOW_MS)

    assert again.next_deadline() == 110.0


# --- a catalog that cannot keep --------------------------------------------------------------------------------------


def test_group_that_cannot_be_kept_is_not_assigned(bench: Bench) -> None:
    """The members get the error and retry."""
    groups = Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0)
    answers: list[Any] = []
    groups.join("g", a_join(), 0.0, NOW_MS, answers.append)
    bench.catalog.close()

    member = answers[0]
    request = SyncRequest(member_id=member.member_id, generation=1, assignments={member.member_id: b"x"})
    groups.sync("g", request, 0.0, NOW_MS, answers.append)

    assert isinstance(answers[1], Refusal)
    assert groups.describe("g").state is GroupState.COMPLETING


def test_producer_id_that_cannot_be_reserved_is_refused(bench: Bench) -> None:
    """It might be given a second time."""
    bench.catalog.close()
    results: list[tuple[int, Refusal | None]] = []

    bench.broker.coordinators.producer_ids.take(lambda number, refusal: results.append((number, refusal)))

    assert results[0][0] == -1
    assert isinstance(results[0][1], ShuttingDown)


def test_transaction_that_cannot_be_kept_has_not_moved(bench: Bench) -> None:
    """The client gets the error, and after a restart the state is the old one."""
    harness = TransactionHarness(bench)
    producer = harness.start()
    bench.catalog.close()
    outcome: list[Any] = []

    harness.transactions.add_partitions("t", producer, [harness.place], 0.0, NOW_MS, outcome.append)
    harness.transactions.initialise("new", 1000, None, 0.0, NOW_MS, outcome.append)

    assert [type(refusal) for refusal in outcome] == [ShuttingDown, ShuttingDown]
    known = harness.transactions.find("t")
    assert known is not None
    assert known.partitions == frozenset()


def test_groups_and_transactional_ids_have_limits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What clients make up by themselves is bounded."""
    monkeypatch.setattr("hubmere.broker.coordinator.groups.MAX_GROUPS", 0)
    monkeypatch.setattr("hubmere.broker.coordinator.transactions.MAX_TRANSACTIONAL_IDS", 0)

    with pytest.raises(LimitReached):
        Groups("hubmere", bench.catalog, now=0.0).join("g", a_join(), 0.0, NOW_MS, print)
    with pytest.raises(LimitReached):
        TransactionHarness(bench).start()


def test_marker_for_a_partition_that_knows_a_newer_producer_is_not_needed(bench: Bench) -> None:
    """The transaction is over there already."""
    harness = TransactionHarness(bench)
    producer = harness.start()
    harness.add(producer)
    bench.hub.log(0).append(a_batch(producer=(producer[0], producer[1] + 5, 0)), NOW_MS)
    harness.settle()

    harness.end(producer)

    assert harness.phase is Phase.COMPLETE_COMMIT
    assert harness.end_of_log == 1


def test_directory_follows_the_hubs_of_a_namespace(bench: Bench) -> None:
    """A consumer group notices every hub that is created, changed or deleted; topic names differ by case."""
    directory = HubDirectory(bench.broker._namespace("hubmere"))
    before = directory.revision

    bench.a_hub("Payments", partitions=2)
    created = directory.revision
    bench.do(lambda done: bench.manager.delete_hub("hubmere", "Payments", bench.actor(), done))

    assert before < created < directory.revision
    assert (list(directory.names()), directory.find("ORDERS"), directory.find("Payments")) == (["orders"], None, None)
    found = directory.find("orders")
    assert found is not None
    assert (found.name, found.partition_count) == ("orders", 4)
