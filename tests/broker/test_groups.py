"""All Kafka groups of one namespace: they are found by id, stored in the catalog, and advanced at their deadlines."""

import pytest

from broker.builders import NOW_MS, BrokerHarness
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
def test_session_timeout_outside_of_the_limits_is_refused(harness: BrokerHarness, session_ms: int) -> None:
    """Reference check 37."""
    groups = Groups("hubmere", harness.catalog, now=0.0)

    with pytest.raises(SessionTimeoutOutOfRange):
        groups.join("g", a_join(session_timeout_s=session_ms / 1000), 0.0, NOW_MS, print)


@pytest.mark.parametrize("group_id", ["", "x" * 257, "a\nb"])
def test_invalid_group_id_is_refused(harness: BrokerHarness, group_id: str) -> None:
    """Reference 1.4."""
    groups = Groups("hubmere", harness.catalog, now=0.0)

    with pytest.raises(InvalidGroupId):
        groups.join(group_id, a_join(), 0.0, NOW_MS, print)


def test_group_is_loaded_after_a_restart(harness: BrokerHarness) -> None:
    """Reference check 41: it has the same generation, member and assignment, and a new session."""
    member = joined_and_synced(harness, Groups("hubmere", harness.catalog, now=0.0, initial_delay_s=0.0))

    again = Groups("hubmere", harness.catalog, now=1000.0)

    again.heartbeat("g", member.member_id, None, member.generation, 1009.0)
    view = again.describe("g")
    assert (view.state, view.protocol) == (GroupState.STABLE, "range")
    assert [one.assignment for one in view.members] == [b"mine"]
    assert again.next_deadline() == 1010.0


def test_group_is_advanced_when_a_session_ends(harness: BrokerHarness) -> None:
    """All groups share one deadline; a heartbeat moves the session without a new timer."""
    groups = Groups("hubmere", harness.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(harness, groups)
    groups.heartbeat("g", member.member_id, None, member.generation, 6.0)

    groups.advance(10.0, NOW_MS)
    assert groups.describe("g").state is GroupState.STABLE
    assert groups.next_deadline() == 16.0
    groups.advance(16.0, NOW_MS)

    assert groups.describe("g").state is GroupState.EMPTY


def test_unknown_group_is_described_without_members(harness: BrokerHarness) -> None:
    """The request must not create the group."""
    groups = Groups("hubmere", harness.catalog, now=0.0)

    with pytest.raises(UnknownMember):
        groups.heartbeat("g", "m", None, 1, 0.0)
    with pytest.raises(UnknownMember):
        groups.join("g", a_join("m"), 0.0, NOW_MS, print)
    assert groups.describe("g").state is GroupState.DEAD
    assert groups.list() == []


def test_only_an_empty_group_can_be_deleted(harness: BrokerHarness) -> None:
    """Reference 2.10: its members would continue with deleted offsets."""
    groups = Groups("hubmere", harness.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(harness, groups)
    with pytest.raises(GroupNotEmpty):
        groups.delete("g", print)
    with pytest.raises(GroupUnknown):
        groups.delete("other", print)
    outcome: list[Refusal | None] = []

    groups.leave("g", member.member_id, None, 1.0, NOW_MS)
    groups.delete("g", outcome.append)
    settle(harness)

    assert outcome == [None]
    assert groups.list() == []
    assert Groups("hubmere", harness.catalog, now=0.0).list() == []


def test_unused_group_is_removed(harness: BrokerHarness) -> None:
    """A group without members and offsets has no state to keep."""
    groups = Groups("hubmere", harness.catalog, now=0.0, initial_delay_s=0.0)
    member = joined_and_synced(harness, groups)
    groups.delete_unused()
    assert [one.group_id for one in groups.list()] == ["g"]

    groups.leave("g", member.member_id, None, 1.0, NOW_MS)
    settle(harness)
    groups.delete_unused()
    settle(harness)

    assert groups.list() == []
    assert Groups("hubmere", harness.catalog, now=0.0).list() == []


def test_many_groups_that_are_due_are_advanced_in_several_turns(harness: BrokerHarness) -> None:
    """500 groups that complete their joins at once took 77 ms of one turn; the timer fires again at once."""
    groups = Groups("hubmere", harness.catalog, now=0.0, initial_delay_s=3.0)
    answered: list[object] = []
    for number in range(2 * MAX_ADVANCED + 1):
        groups.join(f"g{number}", a_join(), 0.0, NOW_MS, answered.append)

    counts = []
    while (deadline := groups.next_deadline()) is not None and deadline <= 3.0:
        groups.advance(3.0, NOW_MS)
        settle(harness)
        counts.append(len(answered))

    assert counts == [MAX_ADVANCED, 2 * MAX_ADVANCED, 2 * MAX_ADVANCED + 1]


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_deadlines_are_returned_in_order_and_once() -> None:
    """One timer serves many deadlines; those that were moved or removed are skipped."""
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
