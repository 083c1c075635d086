"""All Kafka groups of one namespace: found by id, persisted in the catalog, and woken at their deadlines."""

import pytest

from broker.builders import NOW_MS, Bench
from broker.classic_groups import a_join, joined_and_synced, settle
from hubmere.broker.coordinator.deadlines import Deadlines
from hubmere.broker.coordinator.groups import MAX_ADVANCED, Groups
from hubmere.broker.coordinator.membership import (
    GroupState,
)
from hubmere.broker.coordinator.refusals import (
    GroupNotEmpty,
    GroupUnknown,
    InvalidGroupId,
    SessionTimeoutOutOfRange,
    UnknownMember,
)
from hubmere.model.errors import Refusal


@pytest.mark.parametrize("session_ms", [5_999, 300_001])
def test_session_timeout_has_bounds(bench: Bench, session_ms: int) -> None:
    """Reference check 37."""
    groups = Groups("hubmere", bench.catalog, now=0.0)

    with pytest.raises(SessionTimeoutOutOfRange):
        groups.join("g", a_join(session_timeout_s=session_ms / 1000), 0.0, NOW_MS, print)


@pytest.mark.parametrize("group_id", ["", "x" * 257, "a\nb"])
def test_group_id_must_be_a_possible_one(bench: Bench, group_id: str) -> None:
    """Reference 1.4."""
    groups = Groups("hubmere", bench.catalog, now=0.0)

    with pytest.raises(InvalidGroupId):
        groups.join(group_id, a_join(), 0.0, NOW_MS, print)


def test_group_is_taken_up_after_a_restart(bench: Bench) -> None:
    """Reference check 41: same generation, same member, same assignment, with a fresh session."""
    member = joined_and_synced(bench, Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0))

    again = Groups("hubmere", bench.catalog, now=1000.0)

    again.heartbeat("g", member.member_id, None, member.generation, 1009.0)
    view = again.describe("g")
    assert (view.state, view.protocol) == (GroupState.STABLE, "range")
    assert [one.assignment for one in view.members] == [b"mine"]
    assert again.next_deadline() == 1010.0


def test_group_is_woken_when_a_session_ends(bench: Bench) -> None:
    """One deadline for all groups; a heartbeat in between moves it without being noted."""
    groups = Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(bench, groups)
    groups.heartbeat("g", member.member_id, None, member.generation, 6.0)

    groups.advance(10.0, NOW_MS)
    assert groups.describe("g").state is GroupState.STABLE
    assert groups.next_deadline() == 16.0
    groups.advance(16.0, NOW_MS)

    assert groups.describe("g").state is GroupState.EMPTY


def test_unknown_group_has_no_members(bench: Bench) -> None:
    """Asking must not make one."""
    groups = Groups("hubmere", bench.catalog, now=0.0)

    with pytest.raises(UnknownMember):
        groups.heartbeat("g", "m", None, 1, 0.0)
    with pytest.raises(UnknownMember):
        groups.join("g", a_join("m"), 0.0, NOW_MS, print)
    assert groups.describe("g").state is GroupState.DEAD
    assert groups.list() == []


def test_only_an_empty_group_can_be_deleted(bench: Bench) -> None:
    """Reference 2.10: its members would continue with deleted offsets."""
    groups = Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(bench, groups)
    with pytest.raises(GroupNotEmpty):
        groups.delete("g", print)
    with pytest.raises(GroupUnknown):
        groups.delete("other", print)
    outcome: list[Refusal | None] = []

    groups.leave("g", member.member_id, None, 1.0, NOW_MS)
    groups.delete("g", outcome.append)
    settle(bench)

    assert outcome == [None]
    assert groups.list() == []
    assert Groups("hubmere", bench.catalog, now=0.0).list() == []


def test_group_that_nobody_uses_is_forgotten(bench: Bench) -> None:
    """Without members and offsets there is nothing to remember."""
    groups = Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(bench, groups)
    groups.delete_unused()
    assert [one.group_id for one in groups.list()] == ["g"]

    groups.leave("g", member.member_id, None, 1.0, NOW_MS)
    settle(bench)
    groups.delete_unused()
    settle(bench)

    assert groups.list() == []
    assert Groups("hubmere", bench.catalog, now=0.0).list() == []


def test_many_groups_that_are_due_are_advanced_in_several_turns(bench: Bench) -> None:
    """500 groups that complete their joins at once took 77 ms of one turn; the timer fires again at once."""
    groups = Groups("hubmere", bench.catalog, now=0.0, initial_delay_s=3.0)
    answered: list[object] = []
    for number in range(2 * MAX_ADVANCED + 1):
        groups.join(f"g{number}", a_join(), 0.0, NOW_MS, answered.append)

    counts = []
    while (deadline := groups.next_deadline()) is not None and deadline <= 3.0:
        groups.advance(3.0, NOW_MS)
        settle(bench)
        counts.append(len(answered))

    assert counts == [MAX_ADVANCED, 2 * MAX_ADVANCED, 2 * MAX_ADVANCED + 1]


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_deadlines_come_up_in_order_and_once() -> None:
    """One timer for many deadlines: moved or dropped ones are skipped."""
    deadlines = Deadlines()
    deadlines.set("a", 5.0)
    deadlines.set("b", 3.0)
    deadlines.set("c", 4.0)
    deadlines.set("a", 1.0)
    deadlines.set_earlier("b", 9.0)
    deadlines.drop("c")

    assert deadlines.next() == 1.0
    assert deadlines.take(3.5) == ["a", "b"]
    assert deadlines.take(99.0) == []
    assert deadlines.next() is None
