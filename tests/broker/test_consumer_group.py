"""Consumer groups (KIP-848) as a state machine, with a manual clock."""

from typing import Any

import pytest

from broker.consumer_groups import Room, Topics
from hubmere.broker.coordinator.consumer_group.assignments import NOTHING, Assignment, TopicPartition
from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup
from hubmere.broker.coordinator.consumer_group.members import Heartbeat, HeartbeatAnswer, MemberState
from hubmere.broker.coordinator.consumer_group.validation import require_commit, require_fetch
from hubmere.broker.coordinator.membership import GroupState
from hubmere.broker.coordinator.refusals import (
    CoordinatorUnavailable,
    FencedMemberEpoch,
    GroupFull,
    GroupRefused,
    InvalidHeartbeat,
    InvalidRegex,
    MemberFenced,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from hubmere.model.errors import StorageFull


@pytest.fixture
def room() -> Room:
    return Room()


def partitions(room: Room, *numbers: int, topic: str = "t") -> Assignment:
    found = room.topics.find(topic)
    assert found is not None
    return frozenset(TopicPartition(found.topic_id, number) for number in numbers)


def refused(room: Room, kind: type[GroupRefused], member_id: str, epoch: int, **more: Any) -> GroupRefused:
    with pytest.raises(kind) as caught:
        room.send(Heartbeat(member_id=member_id, epoch=epoch, **more))
    return caught.value


# --- joining ---------------------------------------------------------------------------------------------------------


def test_first_member_gets_every_partition(room: Room) -> None:
    """One answer is enough: no other member holds a partition."""
    answer = room.join("a")

    assert answer == HeartbeatAnswer(
        member_id="a", epoch=1, heartbeat_interval_s=5.0, assignment=partitions(room, 0, 1, 2, 3)
    )
    assert room.state() is GroupState.STABLE


def test_member_without_an_id_is_given_one(room: Room) -> None:
    """Version 0 of the heartbeat: the coordinator chooses the member id."""
    answer = room.join("")

    assert answer.member_id in room.group.members


def test_second_member_waits_until_the_first_gives_up_partitions(room: Room) -> None:
    """The heart of the protocol: a partition has a new owner only after the old one confirmed its revocation."""
    room.join("a")

    newcomer = room.join("b")
    assert (newcomer.epoch, newcomer.assignment) == (2, NOTHING)
    assert room.state() is GroupState.RECONCILING

    result = room.own("a", owned=partitions(room, 0, 1, 2, 3))
    assert (result.epoch, result.assignment) == (1, partitions(room, 0, 1))
    assert room.own("b").assignment is None

    confirmed = room.own("a", owned=partitions(room, 0, 1))
    assert (confirmed.epoch, confirmed.assignment) == (2, None)

    assert room.own("b", owned=NOTHING).assignment == partitions(room, 2, 3)
    assert room.state() is GroupState.STABLE


def test_unchanged_assignment_is_not_sent_again(room: Room) -> None:
    """A heartbeat without news is small; a full request is always answered in full."""
    room.join("a")

    assert room.beat("a", 1).assignment is None
    full = room.beat("a", 1, rebalance_timeout_s=30.0, topics=frozenset({"t"}), owned=partitions(room, 0, 1, 2, 3))

    assert full.assignment == partitions(room, 0, 1, 2, 3)


def test_full_group_refuses_newcomers() -> None:
    """GROUP_MAX_SIZE_REACHED; existing members stay."""
    room = Room(max_size=1)
    room.join("a", instance_id="i")

    refusal = refused(room, GroupFull, "b", 0, rebalance_timeout_s=1.0, topics=frozenset({"t"}), owned=NOTHING)

    assert isinstance(refusal, GroupFull)
    assert refusal.limit == 1
    assert room.beat("a", 1, instance_id="i").epoch == 1
    room.beat("a", -2, instance_id="i")
    assert room.join("c", instance_id="i").member_id == "c"


@pytest.mark.parametrize(
    ("problem", "beat"),
    [
        ("RebalanceTimeoutMs", {"epoch": 0, "topics": frozenset({"t"}), "owned": NOTHING}),
        ("TopicPartitions", {"epoch": 0, "topics": frozenset({"t"}), "rebalance_timeout_s": 1.0}),
        ("SubscribedTopicRegex", {"epoch": 0, "owned": NOTHING, "rebalance_timeout_s": 1.0}),
        ("MemberEpoch", {"epoch": -3}),
        ("MemberId", {"epoch": 1, "member_id": ""}),
        ("MemberId", {"epoch": -1, "member_id": ""}),
        ("InstanceId", {"epoch": -2}),
        ("InstanceId", {"epoch": 1, "instance_id": ""}),
        ("RackId", {"epoch": 1, "rack_id": ""}),
        ("SubscribedTopicNames", {"epoch": 1, "topics": frozenset(map(str, range(10_001)))}),
    ],
)
def test_contradicting_heartbeat_names_the_field(room: Room, problem: str, beat: dict[str, Any]) -> None:
    """INVALID_REQUEST with the protocol's own field name, and nothing changes."""
    with pytest.raises(InvalidHeartbeat, match=problem):
        room.send(Heartbeat(**({"member_id": "a"} | beat)))

    assert (room.state(), room.kept) == (GroupState.EMPTY, 0)


def test_unknown_assignor_is_refused_with_those_there_are(room: Room) -> None:
    """UNSUPPORTED_ASSIGNOR."""
    refusal = refused(
        room,
        UnsupportedAssignor,
        "a",
        0,
        assignor="rack",
        rebalance_timeout_s=1.0,
        topics=frozenset({"t"}),
        owned=NOTHING,
    )

    assert "uniform, range" in refusal.text()


def test_most_wanted_assignor_is_used(room: Room) -> None:
    """Another requested assignor starts a new epoch."""
    room.join("a")
    assert room.group.assignor == "uniform"

    answer = room.beat("a", 1, assignor="range")

    assert (room.group.assignor, answer.epoch) == ("range", 2)


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_member_with_another_epoch_is_fenced(room: Room) -> None:
    """FENCED_MEMBER_EPOCH for an epoch from the future and for one that is too old."""
    room.join("a")
    room.join("b")

    assert "epoch 2, not 7" in refused(room, FencedMemberEpoch, "b", 7).text()
    refused(room, FencedMemberEpoch, "b", 1)
    refused(room, UnknownMember, "nobody", 1)


def test_lost_answer_does_not_fence_a_member(room: Room) -> None:
    """The member comes with its previous epoch and owns nothing beyond its assignment."""
    room.join("a")
    room.beat("a", 1, topics=frozenset({"t", "u"}))
    assert room.group.members["a"].epoch == 2

    answer = room.beat("a", 1, owned=partitions(room, 0, 1, 2, 3))

    assert answer.epoch == 2
    room.topics.put("u", 1)
    refused(room, FencedMemberEpoch, "a", 1, owned=partitions(room, 0, topic="u"))


def test_member_that_joins_again_starts_with_nothing(room: Room) -> None:
    """Epoch 0 means that it owns nothing; its partitions go to their target members."""
    room.join("a")
    room.join("b")

    answer = room.join("a")

    assert answer.assignment == partitions(room, 0, 1)
    assert room.own("b", owned=NOTHING).assignment == partitions(room, 2, 3)


# --- topics and subscriptions ----------------------------------------------------------------------------------------


def test_new_partitions_make_a_new_epoch(room: Room) -> None:
    """The next heartbeat brings them."""
    room.join("a")

    room.topics.put("t", 6)
    answer = room.own("a")

    assert (answer.epoch, answer.assignment) == (2, partitions(room, *range(6)))


def test_deleted_topic_is_given_up(room: Room) -> None:
    """The member has to revoke it, and the group is stable without it."""
    room.join("a")
    room.topics.drop("t")

    result = room.beat("a", 1, owned=room.group.members["a"].assigned)
    assert result.assignment == NOTHING
    confirmed = room.beat("a", 1, owned=NOTHING)

    assert (confirmed.epoch, room.state(), room.group.topics) == (2, GroupState.STABLE, {})


def test_topic_that_comes_later_is_assigned_then(room: Room) -> None:
    """A subscription to a topic that does not exist is no error."""
    assert room.join("a", topics=frozenset({"later"})).assignment == NOTHING

    room.topics.put("later", 2)

    assert room.own("a").assignment == partitions(room, 0, 1, topic="later")


def test_topics_that_nobody_wants_change_nothing(room: Room) -> None:
    """Another topic makes no epoch."""
    room.join("a")
    room.topics.put("other", 2)

    assert room.own("a").epoch == 1


def test_changed_subscription_makes_a_new_epoch(room: Room) -> None:
    """Names that are left out are given up."""
    room.topics.put("u", 1)
    room.join("a", topics=frozenset({"t", "u"}))

    room.beat("a", 1, topics=frozenset({"u"}), owned=room.group.members["a"].assigned)
    room.own("a")

    assert (room.numbers("a"), room.numbers("a", "u"), room.group.state) == ([], [0], GroupState.STABLE)


def test_regex_matches_topics_now_and_later() -> None:
    """RE2 on whole names; a topic that is made later is noticed at the next heartbeat."""
    room = Room(Topics(orders=1, payments=1, reorders=1))
    room.join("a", regex="orders|pay.*")
    assert {name for name, _ in room.group.by_topic_name(room.group.members["a"].assigned)} == {"orders", "payments"}

    room.topics.put("paychecks", 2)
    room.own("a")

    assert room.numbers("a", "paychecks") == [0, 1]


def test_regex_matches_only_what_the_member_may_read() -> None:
    """A client with rights on some hubs does not learn of others."""
    room = Room(Topics(orders=1, payments=1))

    room.join("a", regex=".*", may_read=lambda name: name == "orders")

    assert room.group.subscribed_names() == {"orders"}


def test_regex_is_cleared_by_an_empty_one(room: Room) -> None:
    """Version 1: null leaves it as it is, an empty text removes it."""
    room.join("a", regex="t")
    room.beat("a", 1)
    assert room.group.subscribed_names() == {"t"}

    room.beat("a", 1, regex="", topics=frozenset())

    assert room.group.subscribed_names() == frozenset()


@pytest.mark.parametrize("regex", ["a(", "(?=look)ahead", "a" * 4097, "(.{0,250}){2}x{1000}", r"(a)\1"])
def test_invalid_regex_is_refused(room: Room, regex: str) -> None:
    """INVALID_REGULAR_EXPRESSION: bad syntax, syntax that RE2 does not have, and too large ones."""
    with pytest.raises(InvalidRegex):
        room.join("a", regex=regex)

    assert room.state() is GroupState.EMPTY


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_member_that_leaves_frees_its_partitions(room: Room) -> None:
    """The next heartbeat of another member takes them over."""
    room.join("a")
    room.join("b")
    room.settle()

    assert room.beat("b", -1).epoch == -1
    assert room.state() is GroupState.ASSIGNING

    assert room.own("a").assignment == partitions(room, 0, 1, 2, 3)
    room.beat("a", -1)
    assert room.state() is GroupState.EMPTY


def test_silent_member_is_removed_after_the_session_timeout(room: Room) -> None:
    """45 seconds without a heartbeat."""
    room.join("a")
    room.join("b")
    room.settle()
    assert room.group.next_deadline() == room.now + 45.0

    room.now += 30.0
    room.own("a")
    room.advance(15.0)

    assert list(room.group.members) == ["a"]
    refused(room, UnknownMember, "b", 2)


def test_member_that_does_not_revoke_is_removed_after_the_rebalance_timeout(room: Room) -> None:
    """It sends heartbeats, but never says that it gave up the partitions."""
    room.join("a", rebalance_timeout_s=30.0)
    room.join("b")
    room.beat("a", 1)
    assert room.group.members["a"].state is MemberState.UNREVOKED

    room.now += 20.0
    room.beat("a", 1)
    room.own("b")
    room.advance(10.0)

    assert list(room.group.members) == ["b"]
    assert room.own("b").assignment == partitions(room, 0, 1, 2, 3)


def test_revocation_in_time_ends_the_rebalance_timeout(room: Room) -> None:
    """Nothing is due but the sessions."""
    room.join("a", rebalance_timeout_s=30.0)
    room.join("b")
    room.beat("a", 1)

    room.own("a", owned=partitions(room, 0, 1))

    assert room.group.members["a"].revoke_by is None


# --- static members --------------------------------------------------------------------------------------------------


def test_static_member_comes_back_to_its_partitions(room: Room) -> None:
    """Epoch -2: it leaves for a moment; under another member id it gets the same partitions without a new epoch."""
    room.join("a", instance_id="i")
    room.join("b")
    room.settle()

    assert room.beat("a", -2, instance_id="i").epoch == -2
    assert room.group.members["a"].is_away
    answer = room.join("a2", instance_id="i")

    assert (answer.epoch, answer.assignment, list(room.group.members)) == (2, partitions(room, 0, 1), ["a2", "b"])
    assert room.group.epoch == 2
    refused(room, MemberFenced, "a", 2, instance_id="i")


def test_static_member_that_stays_away_is_removed(room: Room) -> None:
    """Its partitions wait for it no longer than a session."""
    room.join("a", instance_id="i")
    room.beat("a", -2, instance_id="i")

    room.advance(45.0)

    assert room.state() is GroupState.EMPTY


def test_static_member_that_leaves_for_good_is_gone_at_once(room: Room) -> None:
    """Epoch -1 with an instance id."""
    room.join("a", instance_id="i")

    room.beat("a", -1, instance_id="i")

    assert room.state() is GroupState.EMPTY
    assert room.join("b", instance_id="i").epoch == 3


def test_used_instance_id_is_not_taken_over(room: Room) -> None:
    """UNRELEASED_INSTANCE_ID as long as the other member has not left; its own owner may join again."""
    room.join("a", instance_id="i")

    with pytest.raises(UnreleasedInstance) as refusal:
        room.join("b", instance_id="i")

    assert (refusal.value.instance, refusal.value.owner) == ("i", "a")
    assert room.join("a", instance_id="i").assignment == partitions(room, 0, 1, 2, 3)
    refused(room, UnknownMember, "x", 1, instance_id="other")


def test_static_member_that_left_while_revoking_frees_those_partitions(room: Room) -> None:
    """It said goodbye, so it reads nothing any more."""
    room.join("a", instance_id="i")
    room.join("b")
    room.beat("a", 1, instance_id="i")

    room.beat("a", -2, instance_id="i")

    assert room.own("b").assignment == partitions(room, 2, 3)


def test_static_member_with_a_regex_comes_back(room: Room) -> None:
    """What is still to be evaluated follows it to its new id."""
    room.join("a", instance_id="i", regex="t")
    room.topics.put("u", 1)
    room.beat("a", -2, instance_id="i")

    assert room.join("a2", instance_id="i", regex="t|u").epoch == 2
    assert room.group.subscribed_names() == {"t", "u"}


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_commits_need_the_current_epoch(room: Room) -> None:
    """STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID; outsiders commit while there are no members."""
    require_commit(room.group, "", None, -1)
    room.join("a")

    require_commit(room.group, "a", None, 1)
    with pytest.raises(StaleMemberEpoch) as stale:
        require_commit(room.group, "a", None, 0)
    with pytest.raises(UnknownMember):
        require_commit(room.group, "", None, -1)

    assert (stale.value.epoch, stale.value.current) == (0, 1)


def test_commit_of_an_older_epoch_is_taken_for_partitions_held_ever_since(room: Room) -> None:
    """KIP-1251: the epoch may change during a commit; a member cannot commit for partitions that it gave up."""
    room.join("a")
    room.join("b")
    room.own("a")
    room.own("a")
    kept, lost = (room.numbers("a")[0], next(one for one in range(4) if one not in room.numbers("a")))
    assert room.group.members["a"].epoch == 2

    require_commit(room.group, "a", None, 1, [("t", kept)])
    for partitions in ([("t", lost)], [("t", kept), ("t", lost)], [], [("unknown", 0)]):
        with pytest.raises(StaleMemberEpoch):
            require_commit(room.group, "a", None, 1, partitions)
    room.own("b")
    with pytest.raises(StaleMemberEpoch):
        require_commit(room.group, "b", None, 1, [("t", lost)])
    with pytest.raises(StaleMemberEpoch):
        require_commit(room.group, "a", None, 3, [("t", kept)])


def test_fetching_offsets_needs_the_current_epoch_of_a_named_member(room: Room) -> None:
    """Requests of administrators have no member and are always answered."""
    room.join("a")

    require_fetch(room.group, None, -1)
    require_fetch(room.group, "a", 1)
    with pytest.raises(StaleMemberEpoch):
        require_fetch(room.group, "a", 2)
    with pytest.raises(UnknownMember):
        require_fetch(room.group, "b", 1)


# --- durability ------------------------------------------------------------------------------------------------------


def test_answers_wait_for_the_disk(room: Room) -> None:
    """One write at a time; what changed meanwhile is covered by the next one."""
    room.holds = True
    first = room.send(join_of("a"))
    second = room.send(join_of("b"))
    third = room.send(join_of("c"))
    assert (first, second, third, len(room.held_partitions)) == ([], [], [], 1)

    room.held_partitions.pop()(None)
    assert (len(first), second, third, len(room.held_partitions)) == (1, [], [], 1)
    room.held_partitions.pop()(None)

    assert (len(second), len(third), room.held_partitions, room.kept) == (1, 1, [], 2)


def test_heartbeat_without_changes_writes_nothing(room: Room) -> None:
    """A stable group costs no disk."""
    room.join("a")
    written = room.kept

    for _ in range(5):
        room.own("a")

    assert room.kept == written


def test_disk_that_refuses_makes_the_member_try_again(room: Room) -> None:
    """COORDINATOR_NOT_AVAILABLE, and the next heartbeat is answered only when everything is durable."""
    room.keep_refusal = StorageFull("full")
    (answer,) = room.send(join_of("a"))
    assert isinstance(answer, CoordinatorUnavailable)

    (again,) = room.send(Heartbeat(member_id="a", epoch=1))
    assert isinstance(again, CoordinatorUnavailable)
    room.keep_refusal = None

    assert room.beat("a", 1).epoch == 1


def test_dead_group_answers_nobody(room: Room) -> None:
    """A client that comes while a group is deleted tries again."""
    room.group.die()

    with pytest.raises(CoordinatorUnavailable):
        room.join("a")
    assert room.state() is GroupState.DEAD


def test_members_that_join_at_once_share_one_target(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target is computed from all members: one for each of many that start together takes quadratic time."""
    computed: list[int] = []
    assign = ConsumerGroup._assign

    def counted_assign(group: ConsumerGroup) -> None:
        computed.append(len(group.members))
        assign(group)

    monkeypatch.setattr(ConsumerGroup, "_assign", counted_assign)
    room.holds = True
    answers = [room.send(join_of(f"m{number}")) for number in range(200)]
    room.held_partitions.pop()(None)
    answered = sum(map(len, answers))
    room.release_writes()

    # The first computed a target alone. A hundred of the others go on in one turn, and wait for the next write.
    assert answered == 1

    assert computed == [1, 200]
    assert all(isinstance(answer, HeartbeatAnswer) for (answer,) in answers)
    assert {answer.epoch for (answer,) in answers if isinstance(answer, HeartbeatAnswer)} == {1, 2}
    assert room.kept == 3


def test_member_that_leaves_while_its_join_waits_is_unknown(room: Room) -> None:
    """It is answered like any heartbeat of a member that is gone; the others get their target."""
    room.holds = True
    first, gone, last = (room.send(join_of(member_id)) for member_id in ("a", "b", "c"))
    left = room.send(Heartbeat(member_id="b", epoch=-1))
    room.release_writes()

    assert [type(answers[0]) for answers in (first, gone, last)] == [HeartbeatAnswer, UnknownMember, HeartbeatAnswer]
    assert isinstance(left[0], HeartbeatAnswer)
    assert set(room.group.members) == {"a", "c"}


def test_join_that_waits_is_refused_when_the_group_is_replaced(room: Room) -> None:
    """The client tries again and meets the group that took its place."""
    room.holds = True
    room.send(join_of("a"))
    waiting = room.send(join_of("b"))

    for respond in room.group.close():
        respond(None)

    assert isinstance(waiting[0], CoordinatorUnavailable)


def join_of(member_id: str) -> Heartbeat:
    return Heartbeat(member_id=member_id, epoch=0, rebalance_timeout_s=30.0, topics=frozenset({"t"}), owned=frozenset())
