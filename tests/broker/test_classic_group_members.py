"""Classic groups: heartbeats, leaving, commits and static members (reference: kafka 2.10)."""

import pytest

from broker.classic_groups import RANGE, STICKY, GroupHarness
from hubmere.broker.coordinator.membership import (
    GroupProtocol,
    GroupState,
    JoinResponse,
)
from hubmere.broker.coordinator.refusals import (
    IllegalGeneration,
    MemberFenced,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from hubmere.model.errors import Refusal


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness()


# --- staying and leaving ---------------------------------------------------------------------------------------------


def test_silent_member_is_removed_when_its_session_ends(harness: GroupHarness) -> None:
    """Reference check 34: it is not removed earlier."""
    members = harness.a_stable_group(2)
    harness.advance(5.0)
    harness.beat(members[1])

    harness.advance(4.9)
    assert members[0].member_id in harness.group.members
    harness.advance(0.2)

    assert set(harness.group.members) == {members[1].member_id}
    assert harness.group.state is GroupState.PREPARING


def test_session_of_a_member_does_not_expire_while_its_request_waits(harness: GroupHarness) -> None:
    """Reference pitfall 13: a client sends no heartbeat while it waits for the answer to JoinGroup or SyncGroup."""
    members = harness.a_stable_group(2, rebalance_timeout_s=600.0)
    waiting = harness.join(members[0].member_id, protocols=(GroupProtocol("range", b"new"),), rebalance_timeout_s=600.0)
    for _ in range(10):
        harness.advance(9.0)
        with pytest.raises(RebalanceInProgress):
            harness.beat(members[1])

    assert waiting == []
    assert members[0].member_id in harness.group.members


def test_another_member_becomes_leader_when_the_leader_leaves(harness: GroupHarness) -> None:
    """The group rebalances at once, without waiting for the end of a session."""
    members = harness.a_stable_group(2)
    leader = next(member for member in members if member.leader == member.member_id)
    follower = next(member for member in members if member is not leader)

    harness.group.leave(leader.member_id, None, harness.now)
    again = harness.join(follower.member_id)[0]

    assert isinstance(again, JoinResponse)
    assert again.leader == follower.member_id


def test_group_without_members_is_empty_and_keeps_its_generation(harness: GroupHarness) -> None:
    """Reference pitfall 14: a generation is never used twice."""
    member = harness.a_stable_group(1)[0]

    harness.group.leave(member.member_id, None, harness.now)

    assert (harness.group.state, harness.group.generation) == (GroupState.EMPTY, 2)
    assert harness.persisted[-1] == (GroupState.EMPTY, 2)
    again = harness.join()[0]
    assert isinstance(again, JoinResponse)
    assert again.generation == 3


def test_member_id_that_was_not_used_yet_can_leave(harness: GroupHarness) -> None:
    """A consumer that is closed while it joins sends LeaveGroup."""
    with pytest.raises(MemberIdRequired) as result:
        harness.join(needs_known_id=True)
    waiting = harness.join()

    harness.group.leave(result.value.member, None, harness.now)

    assert isinstance(waiting[0], JoinResponse)


def test_leaving_twice_is_refused(harness: GroupHarness) -> None:
    """The client gets the error that it is not a member."""
    member = harness.a_stable_group(1)[0]
    harness.group.leave(member.member_id, None, harness.now)

    with pytest.raises(UnknownMember):
        harness.group.leave(member.member_id, None, harness.now)


@pytest.mark.parametrize(
    ("member", "generation", "refusal"),
    [("known", 0, IllegalGeneration), ("nobody", 1, UnknownMember), ("", -1, UnknownMember)],
)
def test_commit_to_a_group_with_members_needs_a_member_id(
    harness: GroupHarness, member: str, generation: int, refusal: type[Refusal]
) -> None:
    """Reference check 38."""
    known = harness.a_stable_group(1)[0]

    with pytest.raises(refusal):
        harness.group.require_commit(known.member_id if member == "known" else member, None, generation, harness.now)


def test_commit_is_refused_between_join_and_sync(harness: GroupHarness) -> None:
    """Reference 2.10: the member does not have its assignment yet."""
    member = harness.join()[0]
    assert isinstance(member, JoinResponse)

    with pytest.raises(RebalanceInProgress):
        harness.group.require_commit(member.member_id, None, member.generation, harness.now)


def test_commit_while_a_rebalance_is_prepared_is_accepted_as_a_heartbeat(harness: GroupHarness) -> None:
    """Members commit their offsets before they join again."""
    members = harness.a_stable_group(2)
    harness.join()
    harness.advance(9.0)

    harness.group.require_commit(members[0].member_id, None, members[0].generation, harness.now)
    harness.advance(9.0)

    assert members[0].member_id in harness.group.members
    assert members[1].member_id not in harness.group.members


def test_commit_without_a_member_needs_an_empty_group(harness: GroupHarness) -> None:
    """Reference 2.11: simple consumers and administration tools commit in this way."""
    member = harness.a_stable_group(1)[0]
    harness.group.leave(member.member_id, None, harness.now)

    harness.group.require_commit("", None, -1, harness.now)


# --- static members --------------------------------------------------------------------------------------------------


def test_static_member_that_restarts_gets_its_assignment_back(harness: GroupHarness) -> None:
    """Reference check 36 (KIP-345): there is no rebalance, and the old process is fenced."""
    member = harness.a_stable_group(1, instance_id="i")[0]

    back = harness.join(instance_id="i")[0]

    assert isinstance(back, JoinResponse)
    assert (back.generation, harness.group.state) == (member.generation, GroupState.STABLE)
    assert back.member_id != member.member_id
    assert harness.sync(back, instance_id="i")[0].assignment == member.member_id.encode()
    with pytest.raises(MemberFenced):
        harness.beat(member, instance_id="i")
    with pytest.raises(MemberFenced):
        harness.sync(member, instance_id="i")


def test_returning_static_leader_does_not_assign_again(harness: GroupHarness) -> None:
    """KIP-814: it gets the flag skip_assignment; in older versions the answer names another leader."""
    member = harness.a_stable_group(1, instance_id="i")[0]

    old = harness.join(instance_id="i")[0]
    new = harness.join(instance_id="i", may_skip_assignment=True)[0]

    assert isinstance(old, JoinResponse)
    assert isinstance(new, JoinResponse)
    assert (old.leader, old.members) == (member.member_id, ())
    assert (new.leader, new.skip_assignment, len(new.members)) == (new.member_id, True, 1)


def test_static_member_with_another_protocol_starts_a_rebalance(harness: GroupHarness) -> None:
    """The old assignment was made for another protocol."""
    harness.a_stable_group(1, instance_id="i")

    back = harness.join(instance_id="i", protocols=(STICKY,))[0]

    assert isinstance(back, JoinResponse)
    assert back.generation == 2


def test_static_member_is_not_dropped_when_it_does_not_join_again(harness: GroupHarness) -> None:
    """It may be restarting: only the end of its session removes it."""
    members = harness.a_stable_group(2, instance_id=None)
    harness.group.leave(members[1].member_id, None, harness.now)
    harness.join(members[0].member_id)
    static = harness.join(instance_id="i", session_timeout_s=300.0)
    again = harness.join(members[0].member_id)[0]
    assert isinstance(again, JoinResponse)
    harness.join(protocols=(RANGE,))
    harness.join(again.member_id)

    for _ in range(7):
        harness.advance(9.0)

    pending_callbacks = static[0]
    assert isinstance(pending_callbacks, JoinResponse)
    assert pending_callbacks.member_id in harness.group.members


def test_waiting_requests_of_a_replaced_static_member_are_answered(harness: GroupHarness) -> None:
    """The old process gets the error that it was fenced."""
    leader = harness.a_stable_group(1)[0]
    static = harness.join(instance_id="i")
    harness.join(leader.member_id)
    member = static[0]
    assert isinstance(member, JoinResponse)
    waiting = harness.sync(member, instance_id="i")

    harness.join(instance_id="i")

    assert isinstance(waiting[0], MemberFenced)


@pytest.mark.parametrize("by_id", [True, False])
def test_static_member_is_removed_by_its_instance_id(harness: GroupHarness, by_id: bool) -> None:
    """Static members do not send LeaveGroup when they stop; an administrator removes them."""
    member = harness.a_stable_group(1, instance_id="i")[0]

    harness.group.leave(member.member_id if by_id else "", "i", harness.now)

    assert harness.group.state is GroupState.EMPTY
    with pytest.raises(UnknownMember):
        harness.group.leave("", "i", harness.now)


def test_group_waits_for_static_members_when_no_other_member_is_left(harness: GroupHarness) -> None:
    """No member can lead a new generation until their sessions end."""
    harness.a_stable_group(1, instance_id="i", session_timeout_s=200.0)
    newcomer = harness.join()
    leaving = next(member for member in harness.group.members.values() if not member.is_static)
    harness.group.leave(leaving.member_id, None, harness.now)
    assert isinstance(newcomer[0], UnknownMember)

    harness.advance(61.0)
    assert harness.group.members
    harness.advance(140.0)

    assert harness.group.state is GroupState.EMPTY
