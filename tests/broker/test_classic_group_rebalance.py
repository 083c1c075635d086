"""Classic groups: joining, rebalances and assignments, with time set by the test (reference: kafka 2.10)."""

from typing import Any

import pytest

from broker.classic_groups import RANGE, STICKY, GroupHarness
from hubmere.broker.coordinator.classic_group import MAX_MEMBERS
from hubmere.broker.coordinator.membership import (
    GroupProtocol,
    GroupState,
    JoinResponse,
)
from hubmere.broker.coordinator.refusals import (
    CoordinatorUnavailable,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from hubmere.model.errors import Refusal, StorageFull


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness()


# --- joining ---------------------------------------------------------------------------------------------------------


def test_first_member_is_leader_of_the_first_generation(harness: GroupHarness) -> None:
    """Only the leader gets the list of members."""
    answer = harness.join()[0]

    assert isinstance(answer, JoinResponse)
    assert (answer.generation, answer.protocol, answer.leader) == (1, "range", answer.member_id)
    assert [member.metadata for member in answer.members] == [b"r"]
    assert harness.group.state is GroupState.COMPLETING


def test_new_member_gets_a_member_id_before_it_joins(harness: GroupHarness) -> None:
    """Reference check 35 (KIP-394): a client that does not try again leaves no member behind."""
    with pytest.raises(MemberIdRequired) as result:
        harness.join(needs_known_id=True)

    answer = harness.join(result.value.member, needs_known_id=True)[0]

    assert isinstance(answer, JoinResponse)
    assert answer.member_id == result.value.member


def test_member_id_that_no_client_joins_with_expires(harness: GroupHarness) -> None:
    """Reference check 35: it delays the other members for no longer than a session."""
    with pytest.raises(MemberIdRequired) as result:
        harness.join(needs_known_id=True)
    waiting = harness.join()

    harness.advance(9.9)
    assert waiting == []
    harness.advance(0.2)

    assert isinstance(waiting[0], JoinResponse)
    with pytest.raises(UnknownMember):
        harness.join(result.value.member)


def test_first_members_wait_for_others_before_the_first_generation() -> None:
    """Reference check 32: three consumers that start together cause one rebalance."""
    harness = GroupHarness(initial_delay_s=3.0)
    answers = [harness.join()]
    harness.advance(1.0)
    answers += [harness.join(), harness.join()]
    assert answers == [[], [], []]

    harness.advance(2.0)
    assert answers == [[], [], []]
    harness.advance(3.0)

    joined = [answer for parked in answers for answer in parked if isinstance(answer, JoinResponse)]
    assert [member.generation for member in joined] == [1, 1, 1]
    assert len({member.leader for member in joined}) == 1
    assert sorted(len(member.members) for member in joined) == [0, 0, 3]


def test_initial_wait_ends_with_the_rebalance_timeout() -> None:
    """Even if new members join all the time."""
    harness = GroupHarness(initial_delay_s=3.0)
    first = harness.join(rebalance_timeout_s=7.0)

    for _ in range(7):
        assert first == []
        harness.join(rebalance_timeout_s=7.0)
        harness.advance(1.0)

    assert isinstance(first[0], JoinResponse)


def test_new_member_makes_all_members_join_again(harness: GroupHarness) -> None:
    """Reference check 33."""
    members = harness.a_stable_group(2)
    newcomer = harness.join()

    for member in members:
        with pytest.raises(RebalanceInProgress):
            harness.beat(member)
    again = [harness.join(member.member_id) for member in members]

    joined = [answers[0] for answers in (*again, newcomer)]
    assert {answer.generation for answer in joined if isinstance(answer, JoinResponse)} == {members[0].generation + 1}


def test_member_that_does_not_join_again_is_dropped_at_the_deadline(harness: GroupHarness) -> None:
    """The deadline is the longest rebalance timeout of all members."""
    members = harness.a_stable_group(2)
    newcomer = harness.join()
    harness.join(members[0].member_id)

    for _ in range(6):
        harness.advance(9.0)
        with pytest.raises(RebalanceInProgress):
            harness.beat(members[1])
    assert newcomer == []
    harness.advance(6.0)

    assert isinstance(newcomer[0], JoinResponse)
    assert members[1].member_id not in harness.group.members


@pytest.mark.parametrize("is_leader", [True, False])
def test_only_a_leader_or_changed_metadata_cause_a_rebalance_of_a_stable_group(
    harness: GroupHarness, is_leader: bool
) -> None:
    """A follower that missed the answer gets it again; a leader joins again because it has seen new partitions."""
    members = harness.a_stable_group(2)
    member = next(member for member in members if (member.leader == member.member_id) is is_leader)

    answers = harness.join(member.member_id)

    assert (answers == []) is is_leader
    assert harness.group.state is (GroupState.PREPARING if is_leader else GroupState.STABLE)


def test_changed_subscription_starts_a_rebalance(harness: GroupHarness) -> None:
    """The leader assigns partitions by the metadata that members send."""
    members = harness.a_stable_group(2)
    follower = next(member for member in members if member.leader != member.member_id)

    assert harness.join(follower.member_id, protocols=(GroupProtocol("range", b"other"),)) == []
    assert harness.group.state is GroupState.PREPARING


def test_member_that_joins_twice_is_answered_twice(harness: GroupHarness) -> None:
    """Reference pitfall 15: a waiting request is always answered."""
    members = harness.a_stable_group(2)
    first = harness.join(members[0].member_id, protocols=(GroupProtocol("range", b"new"),))

    second = harness.join(members[0].member_id, protocols=(GroupProtocol("range", b"newer"),))

    assert isinstance(first[0], RebalanceInProgress)
    assert second == []


def test_protocol_that_most_members_prefer_is_chosen(harness: GroupHarness) -> None:
    """It is chosen among the protocols that all members support."""
    first = harness.join(protocols=(RANGE, STICKY))[0]
    others = [
        harness.join(protocols=(STICKY, RANGE)),
        harness.join(protocols=(STICKY, RANGE, GroupProtocol("own", b""))),
    ]
    assert isinstance(first, JoinResponse)

    again = harness.join(first.member_id, protocols=(RANGE, STICKY))

    assert [answers[0].protocol for answers in (again, *others) if isinstance(answers[0], JoinResponse)] == [
        "sticky"
    ] * 3


@pytest.mark.parametrize(
    "more",
    [
        {"protocol_type": "connect"},
        {"protocols": (STICKY,)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
    ids=["another type", "nothing in common", "no protocol", "no type"],
)
def test_member_without_a_common_protocol_is_refused(harness: GroupHarness, more: dict[str, Any]) -> None:
    """Reference 2.10: it is refused before it can affect the other members."""
    harness.a_stable_group(1)

    with pytest.raises(InconsistentProtocol):
        harness.join(**more)
    assert harness.group.state is GroupState.STABLE


def test_only_member_may_change_its_protocol(harness: GroupHarness) -> None:
    """No other member needs the old protocol: this is how clients are upgraded one by one."""
    member = harness.a_stable_group(1)[0]

    answer = harness.join(member.member_id, protocols=(STICKY,))[0]

    assert isinstance(answer, JoinResponse)
    assert answer.protocol == "sticky"


def test_number_of_members_of_a_group_is_limited(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit bounds the size of a rebalance."""
    monkeypatch.setattr("hubmere.broker.coordinator.classic_group.MAX_MEMBERS", 1)
    harness.a_stable_group(1)

    with pytest.raises(GroupFull):
        harness.join()
    assert MAX_MEMBERS == 5_000


# --- assignments -----------------------------------------------------------------------------------------------------


def test_members_get_the_assignments_of_the_leader(harness: GroupHarness) -> None:
    """A member that syncs before the leader waits; a member that the leader left out gets an empty assignment."""
    first = harness.join()[0]
    second = harness.join()
    assert isinstance(first, JoinResponse)
    leader = harness.join(first.member_id)[0]
    follower = second[0]
    assert isinstance(leader, JoinResponse)
    assert isinstance(follower, JoinResponse)

    waiting = harness.sync(follower)
    assert waiting == []
    answered = harness.sync(leader, {leader.member_id: b"mine"})

    assert [answers[0].assignment for answers in (answered, waiting)] == [b"mine", b""]
    assert harness.sync(follower)[0].assignment == b""


def test_assignment_is_sent_once_it_is_durable(harness: GroupHarness) -> None:
    """After a restart in between, members must not have an assignment that the coordinator does not know."""
    harness.delays_persisting = True
    member = harness.join()[0]
    assert isinstance(member, JoinResponse)

    answers = harness.sync(member, {member.member_id: b"mine"})
    assert (answers, harness.group.state) == ([], GroupState.COMPLETING)
    harness.pending_callbacks.pop()(None)

    assert (answers[0].assignment, harness.group.state) == (b"mine", GroupState.STABLE)


def test_leader_sends_its_assignment_again_after_a_failed_write(harness: GroupHarness) -> None:
    """The failure may be temporary, such as a full disk."""
    member = harness.join()[0]
    assert isinstance(member, JoinResponse)
    harness.persist_refusal = StorageFull("no room")
    failed = harness.sync(member, {member.member_id: b"mine"})

    harness.persist_refusal = None
    answers = harness.sync(member, {member.member_id: b"mine"})

    assert isinstance(failed[0], CoordinatorUnavailable)
    assert answers[0].assignment == b"mine"


def test_rebalance_during_the_write_of_an_assignment_takes_precedence(harness: GroupHarness) -> None:
    """The result of the write belongs to an earlier generation."""
    harness.delays_persisting = True
    member = harness.join()[0]
    assert isinstance(member, JoinResponse)
    old = harness.sync(member, {member.member_id: b"old"})
    newcomer = harness.join()
    again = harness.join(member.member_id)[0]
    assert isinstance(again, JoinResponse)

    fresh = harness.sync(again, {again.member_id: b"new"})
    for kept in harness.pending_callbacks:
        kept(None)

    assert isinstance(old[0], RebalanceInProgress)
    assert fresh[0].assignment == b"new"
    assert isinstance(newcomer[0], JoinResponse)


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"member_id": "nobody"}, UnknownMember),
        ({"generation": 7}, IllegalGeneration),
        ({"protocol_type": "connect"}, InconsistentProtocol),
        ({"protocol": "sticky"}, InconsistentProtocol),
    ],
)
def test_sync_of_another_group_is_refused(harness: GroupHarness, more: dict[str, Any], refusal: type[Refusal]) -> None:
    """Reference 2.10: the member, the generation and the protocol are checked in this order."""
    member = harness.a_stable_group(1)[0]

    with pytest.raises(refusal):
        harness.sync(member, **more)


def test_sync_during_a_rebalance_is_refused(harness: GroupHarness) -> None:
    """The member has to join again."""
    member = harness.a_stable_group(1)[0]
    harness.join()

    with pytest.raises(RebalanceInProgress):
        harness.sync(member)


def test_member_with_a_rebalance_timeout_of_zero_has_time_to_sync(harness: GroupHarness) -> None:
    """The tests of kafkajs join with zero: the member would be gone before it has read the answer."""
    joined = harness.join(rebalance_timeout_s=0.0)[0]
    assert isinstance(joined, JoinResponse)

    harness.advance(9.0)
    harness.sync(joined, {})

    assert harness.group.state is GroupState.STABLE


def test_member_that_never_syncs_is_removed(harness: GroupHarness) -> None:
    """Reference 2.10: its partitions would never be read."""
    member = harness.a_stable_group(1)[0]
    silent = harness.join()
    again = harness.join(member.member_id)[0]
    assert isinstance(again, JoinResponse)
    harness.sync(again, {})
    joined = silent[0]
    assert isinstance(joined, JoinResponse)
    for _ in range(7):
        harness.advance(8.0)
        harness.beat(again)
        harness.beat(joined)

    harness.advance(5.0)

    assert joined.member_id not in harness.group.members
    assert harness.group.state is GroupState.PREPARING
