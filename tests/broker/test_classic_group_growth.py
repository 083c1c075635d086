"""Classic groups of many members: the cost of a request does not depend on their number."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.classic_groups import RANGE, STICKY, GroupHarness
from hubmere.broker.coordinator.consumer_group.embedded import (
    EmbeddedSubscription,
    MalformedBytes,
    NoEmbeddedProtocol,
)
from hubmere.broker.coordinator.deadlines import Deadlines
from hubmere.broker.coordinator.membership import GroupProtocol, GroupState, JoinResponse, Member
from hubmere.broker.coordinator.refusals import InconsistentProtocol, MemberIdRequired

MEMBERS = 200


class CountedMembers(dict[str, Member]):
    """Counts iterations over the members."""

    visits = 0

    def values(self) -> Any:
        return self._counted(super().values())

    def items(self) -> Any:
        return self._counted(super().items())

    def _counted(self, found: Any) -> Iterator[Any]:
        for each in list(found):
            self.visits += 1
            yield each


def counted(harness: GroupHarness) -> CountedMembers:
    """Count the visits to members of a group from now on."""
    members = CountedMembers(harness.group.members)
    harness.group._table.by_id = members
    return members


def everybody_joins(harness: GroupHarness, count: int) -> list[JoinResponse]:
    """Members join during the initial delay of an empty group."""
    waiting = [harness.join() for _ in range(count)]
    while not waiting[0]:
        harness.advance(3.0)
    joined = [answers[0] for answers in waiting]
    assert all(isinstance(answer, JoinResponse) for answer in joined)
    return [answer for answer in joined if isinstance(answer, JoinResponse)]


def test_a_rebalance_visits_each_member_a_few_times() -> None:
    """The cost per member of a group of thousands is the same as in a group of ten."""
    harness = GroupHarness(initial_delay_s=3.0)
    members = counted(harness)

    joined = everybody_joins(harness, MEMBERS)
    answers = [harness.sync(member) for member in joined if member.members == ()]
    leader = next(member for member in joined if member.members)
    harness.sync(leader, {member.member_id: b"p" for member in joined})
    for member in joined:
        harness.beat(member)
        assert harness.group.next_deadline() is not None

    assert harness.group.state is GroupState.STABLE
    assert all(answer[0].assignment == b"p" for answer in answers)
    # Begin, end and answers of the join, its timeouts, the list for the leader, the assignments and their answers.
    assert members.visits <= 12 * MEMBERS


def test_requests_of_a_large_group_visit_no_other_member() -> None:
    """While a rebalance waits, each further join costs the same."""
    harness = GroupHarness(initial_delay_s=3.0)
    joined = everybody_joins(harness, MEMBERS)
    leader = next(member for member in joined if member.members)
    harness.sync(leader, {})
    harness.join()
    members = counted(harness)

    for member in joined[: MEMBERS // 2]:
        harness.join(member.member_id, protocols=(RANGE, STICKY))
        assert harness.group.next_deadline() is not None
    with pytest.raises(MemberIdRequired):
        harness.join(needs_known_id=True)
    with pytest.raises(InconsistentProtocol):
        harness.join(joined[0].member_id, protocols=(STICKY,))

    assert members.visits == 0


def test_sessions_are_checked_only_when_they_may_have_ended() -> None:
    """Heartbeats do not change the heap of deadlines; an entry that is due moves to the end of the session."""
    harness = GroupHarness(initial_delay_s=3.0)
    joined = everybody_joins(harness, MEMBERS)
    leader = next(member for member in joined if member.members)
    harness.sync(leader, {})
    for member in joined:
        harness.sync(member)
    members = counted(harness)

    harness.advance(9.0)
    for member in joined[1:]:
        harness.beat(member)
    harness.advance(1.5)

    assert list(harness.group.members) == [member.member_id for member in joined[1:]]
    assert harness.group.state is GroupState.PREPARING
    # The removed member starts a rebalance, which refuses pending syncs and computes the longest timeout.
    assert members.visits <= 3 * MEMBERS


def test_member_that_waited_for_a_slow_leader_has_a_new_session() -> None:
    """A client sends no heartbeat while its SyncGroup waits."""
    harness = GroupHarness(initial_delay_s=3.0)
    joined = everybody_joins(harness, 2)
    leader = next(member for member in joined if member.members)
    follower = next(member for member in joined if not member.members)
    waiting = harness.sync(follower)

    for _ in range(3):
        harness.advance(8.0)
        harness.beat(leader)
    harness.sync(leader, {follower.member_id: b"mine"})
    harness.advance(2.0)

    assert waiting[0].assignment == b"mine"
    harness.beat(follower)


def test_members_that_have_left_leave_nothing_in_the_heap() -> None:
    """A client that joins and leaves in a loop must not fill the memory until its sessions would have ended."""
    deadlines = Deadlines()

    for number in range(10_000):
        deadlines.set(str(number), 1000.0 + number)
        deadlines.drop(str(number))
    deadlines.set("last", 5.0)

    assert len(deadlines._heap) < 100
    assert deadlines.take(5.0) == ["last"]


class NamesAsMetadata(NoEmbeddedProtocol):
    """A subscription is the name of one topic."""

    def read_subscription(self, data: bytes) -> EmbeddedSubscription:
        if data == b"?":
            raise MalformedBytes
        return EmbeddedSubscription(frozenset({data.decode()}), frozenset(), None)


def test_topics_of_a_group_follow_its_members() -> None:
    """The topics of a group decide who may use it, and are needed at each join, so they are counted."""
    harness = GroupHarness(initial_delay_s=3.0)
    harness.group._embedded = NamesAsMetadata()

    def member(topic: bytes) -> dict[str, Any]:
        return {"protocols": (GroupProtocol("range", topic),)}

    assert harness.group.subscribed_topics() == frozenset()
    first = harness.join(**member(b"a"))
    assert harness.group.subscribed_topics() == frozenset("a")
    second, third = harness.join(**member(b"b")), harness.join(**member(b"?"))
    assert harness.group.subscribed_topics() is None
    while not first:
        harness.advance(3.0)
    for answers in (second, third):
        assert isinstance(answers[0], JoinResponse)
        harness.group.leave(answers[0].member_id, None, harness.now)
    assert harness.group.subscribed_topics() == frozenset("a")
    assert isinstance(first[0], JoinResponse)
    harness.join(first[0].member_id, **member(b"c"))
    assert harness.group.subscribed_topics() == frozenset("c")
