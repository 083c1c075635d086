"""Consumer groups (KIP-848) as a state machine, with a manual clock."""

from typing import Any

import pytest

from broker.consumer_groups import ConsumerGroupHarness, Topics
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
def harness() -> ConsumerGroupHarness:
    return ConsumerGroupHarness()


def partitions(harness: ConsumerGroupHarness, *numbers: int, topic: str = "t") -> Assignment:
    found = harness.topics.find(topic)
    assert found is not None
    return frozenset(TopicPartition(found.topic_id, number) for number in numbers)


def refused(
    harness: ConsumerGroupHarness, kind: type[GroupRefused], member_id: str, epoch: int, **more: Any
) -> GroupRefused:
    with pytest.raises(kind) as caught:
        harness.send(Heartbeat(member_id=member_id, epoch=epoch, **more))
    return caught.value


# --- joining ---------------------------------------------------------------------------------------------------------


def test_first_member_gets_every_partition(harness: ConsumerGroupHarness) -> None:
    """One answer is enough: no other member holds a partition."""
    answer = harness.join("a")

    assert answer == HeartbeatAnswer(
        member_id="a", epoch=1, heartbeat_interval_s=5.0, assignment=partitions(harness, 0, 1, 2, 3)
    )
    assert harness.state() is GroupState.STABLE


def test_member_without_an_id_is_given_one(harness: ConsumerGroupHarness) -> None:
    """Version 0 of the heartbeat: the coordinator chooses the member id."""
    answer = harness.join("")

    assert answer.member_id in harness.group.members


def test_second_member_waits_until_the_first_has_revoked_partitions(harness: ConsumerGroupHarness) -> None:
    """A partition gets a new owner only after the old one has confirmed its revocation."""
    harness.join("a")

    newcomer = harness.join("b")
    assert (newcomer.epoch, newcomer.assignment) == (2, NOTHING)
    assert harness.state() is GroupState.RECONCILING

    result = harness.own("a", owned=partitions(harness, 0, 1, 2, 3))
    assert (result.epoch, result.assignment) == (1, partitions(harness, 0, 1))
    assert harness.own("b").assignment is None

    confirmed = harness.own("a", owned=partitions(harness, 0, 1))
    assert (confirmed.epoch, confirmed.assignment) == (2, None)

    assert harness.own("b", owned=NOTHING).assignment == partitions(harness, 2, 3)
    assert harness.state() is GroupState.STABLE


def test_unchanged_assignment_is_not_sent_again(harness: ConsumerGroupHarness) -> None:
    """A heartbeat without news is small; a full request is always answered in full."""
    harness.join("a")

    assert harness.beat("a", 1).assignment is None
    full = harness.beat(
        "a", 1, rebalance_timeout_s=30.0, topics=frozenset({"t"}), owned=partitions(harness, 0, 1, 2, 3)
    )

    assert full.assignment == partitions(harness, 0, 1, 2, 3)


def test_full_group_refuses_new_members() -> None:
    """GROUP_MAX_SIZE_REACHED; existing members stay."""
    harness = ConsumerGroupHarness(max_size=1)
    harness.join("a", instance_id="i")

    refusal = refused(harness, GroupFull, "b", 0, rebalance_timeout_s=1.0, topics=frozenset({"t"}), owned=NOTHING)

    assert isinstance(refusal, GroupFull)
    assert refusal.limit == 1
    assert harness.beat("a", 1, instance_id="i").epoch == 1
    harness.beat("a", -2, instance_id="i")
    assert harness.join("c", instance_id="i").member_id == "c"


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
def test_invalid_heartbeat_is_refused_with_the_name_of_the_field(
    harness: ConsumerGroupHarness, problem: str, beat: dict[str, Any]
) -> None:
    """The error is INVALID_REQUEST with the protocol's own field name, and nothing changes."""
    with pytest.raises(InvalidHeartbeat, match=problem):
        harness.send(Heartbeat(**({"member_id": "a"} | beat)))

    assert (harness.state(), harness.kept) == (GroupState.EMPTY, 0)


def test_refusal_of_an_unknown_assignor_lists_the_known_ones(harness: ConsumerGroupHarness) -> None:
    """UNSUPPORTED_ASSIGNOR."""
    refusal = refused(
        harness,
        UnsupportedAssignor,
        "a",
        0,
        assignor="rack",
        rebalance_timeout_s=1.0,
        topics=frozenset({"t"}),
        owned=NOTHING,
    )

    assert "uniform, range" in refusal.text()


def test_assignor_that_most_members_request_is_used(harness: ConsumerGroupHarness) -> None:
    """A change of the requested assignor starts a new epoch."""
    harness.join("a")
    assert harness.group.assignor == "uniform"

    answer = harness.beat("a", 1, assignor="range")

    assert (harness.group.assignor, answer.epoch) == ("range", 2)


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_member_with_another_epoch_is_fenced(harness: ConsumerGroupHarness) -> None:
    """FENCED_MEMBER_EPOCH is returned for a future epoch and for one that is too old."""
    harness.join("a")
    harness.join("b")

    assert "epoch 2, not 7" in refused(harness, FencedMemberEpoch, "b", 7).text()
    refused(harness, FencedMemberEpoch, "b", 1)
    refused(harness, UnknownMember, "nobody", 1)


def test_lost_answer_does_not_fence_a_member(harness: ConsumerGroupHarness) -> None:
    """The member sends its previous epoch and owns no partition beyond its assignment."""
    harness.join("a")
    harness.beat("a", 1, topics=frozenset({"t", "u"}))
    assert harness.group.members["a"].epoch == 2

    answer = harness.beat("a", 1, owned=partitions(harness, 0, 1, 2, 3))

    assert answer.epoch == 2
    harness.topics.put("u", 1)
    refused(harness, FencedMemberEpoch, "a", 1, owned=partitions(harness, 0, topic="u"))


def test_member_that_joins_again_owns_no_partitions(harness: ConsumerGroupHarness) -> None:
    """Epoch 0 means that it owns nothing; its partitions are assigned to their target members."""
    harness.join("a")
    harness.join("b")

    answer = harness.join("a")

    assert answer.assignment == partitions(harness, 0, 1)
    assert harness.own("b", owned=NOTHING).assignment == partitions(harness, 2, 3)


# --- topics and subscriptions ----------------------------------------------------------------------------------------


def test_new_partitions_start_a_new_epoch(harness: ConsumerGroupHarness) -> None:
    """The members get them with the next heartbeat."""
    harness.join("a")

    harness.topics.put("t", 6)
    answer = harness.own("a")

    assert (answer.epoch, answer.assignment) == (2, partitions(harness, *range(6)))


def test_partitions_of_a_deleted_topic_are_revoked(harness: ConsumerGroupHarness) -> None:
    """The member has to revoke them; then the group is stable."""
    harness.join("a")
    harness.topics.drop("t")

    result = harness.beat("a", 1, owned=harness.group.members["a"].assigned)
    assert result.assignment == NOTHING
    confirmed = harness.beat("a", 1, owned=NOTHING)

    assert (confirmed.epoch, harness.state(), harness.group.topics) == (2, GroupState.STABLE, {})


def test_topic_that_is_created_later_is_assigned_then(harness: ConsumerGroupHarness) -> None:
    """A subscription to a topic that does not exist is no error."""
    assert harness.join("a", topics=frozenset({"later"})).assignment == NOTHING

    harness.topics.put("later", 2)

    assert harness.own("a").assignment == partitions(harness, 0, 1, topic="later")


def test_topics_without_subscribers_do_not_start_a_new_epoch(harness: ConsumerGroupHarness) -> None:
    """No member is affected by the new topic."""
    harness.join("a")
    harness.topics.put("other", 2)

    assert harness.own("a").epoch == 1


def test_changed_subscription_starts_a_new_epoch(harness: ConsumerGroupHarness) -> None:
    """Partitions of topics that are no longer subscribed are revoked."""
    harness.topics.put("u", 1)
    harness.join("a", topics=frozenset({"t", "u"}))

    harness.beat("a", 1, topics=frozenset({"u"}), owned=harness.group.members["a"].assigned)
    harness.own("a")

    assert (harness.numbers("a"), harness.numbers("a", "u"), harness.group.state) == ([], [0], GroupState.STABLE)


def test_regex_matches_present_and_future_topics() -> None:
    """RE2 matches whole names; a topic that is created later is found at the next heartbeat."""
    harness = ConsumerGroupHarness(Topics(orders=1, payments=1, reorders=1))
    harness.join("a", regex="orders|pay.*")
    assert {name for name, _ in harness.group.by_topic_name(harness.group.members["a"].assigned)} == {
        "orders",
        "payments",
    }

    harness.topics.put("paychecks", 2)
    harness.own("a")

    assert harness.numbers("a", "paychecks") == [0, 1]


def test_regex_matches_only_topics_that_the_member_may_read() -> None:
    """A client with rights on some hubs must not find out about others."""
    harness = ConsumerGroupHarness(Topics(orders=1, payments=1))

    harness.join("a", regex=".*", may_read=lambda name: name == "orders")

    assert harness.group.subscribed_names() == {"orders"}


def test_empty_regex_removes_the_regex(harness: ConsumerGroupHarness) -> None:
    """Version 1: null means no change, and an empty text removes the expression."""
    harness.join("a", regex="t")
    harness.beat("a", 1)
    assert harness.group.subscribed_names() == {"t"}

    harness.beat("a", 1, regex="", topics=frozenset())

    assert harness.group.subscribed_names() == frozenset()


@pytest.mark.parametrize("regex", ["a(", "(?=look)ahead", "a" * 4097, "(.{0,250}){2}x{1000}", r"(a)\1"])
def test_invalid_regex_is_refused(harness: ConsumerGroupHarness, regex: str) -> None:
    """INVALID_REGULAR_EXPRESSION is returned for bad syntax, unsupported RE2 syntax, and expressions that are too
    large.
    """
    with pytest.raises(InvalidRegex):
        harness.join("a", regex=regex)

    assert harness.state() is GroupState.EMPTY


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_member_that_leaves_frees_its_partitions(harness: ConsumerGroupHarness) -> None:
    """The next heartbeat of another member takes them over."""
    harness.join("a")
    harness.join("b")
    harness.settle()

    assert harness.beat("b", -1).epoch == -1
    assert harness.state() is GroupState.ASSIGNING

    assert harness.own("a").assignment == partitions(harness, 0, 1, 2, 3)
    harness.beat("a", -1)
    assert harness.state() is GroupState.EMPTY


def test_silent_member_is_removed_after_the_session_timeout(harness: ConsumerGroupHarness) -> None:
    """45 seconds without a heartbeat."""
    harness.join("a")
    harness.join("b")
    harness.settle()
    assert harness.group.next_deadline() == harness.now + 45.0

    harness.now += 30.0
    harness.own("a")
    harness.advance(15.0)

    assert list(harness.group.members) == ["a"]
    refused(harness, UnknownMember, "b", 2)


def test_member_that_does_not_revoke_is_removed_after_the_rebalance_timeout(harness: ConsumerGroupHarness) -> None:
    """It sends heartbeats, but never confirms the revocation."""
    harness.join("a", rebalance_timeout_s=30.0)
    harness.join("b")
    harness.beat("a", 1)
    assert harness.group.members["a"].state is MemberState.UNREVOKED

    harness.now += 20.0
    harness.beat("a", 1)
    harness.own("b")
    harness.advance(10.0)

    assert list(harness.group.members) == ["b"]
    assert harness.own("b").assignment == partitions(harness, 0, 1, 2, 3)


def test_revocation_in_time_ends_the_rebalance_timeout(harness: ConsumerGroupHarness) -> None:
    """Then only the session timeouts are pending."""
    harness.join("a", rebalance_timeout_s=30.0)
    harness.join("b")
    harness.beat("a", 1)

    harness.own("a", owned=partitions(harness, 0, 1))

    assert harness.group.members["a"].revoke_by is None


# --- static members --------------------------------------------------------------------------------------------------


def test_static_member_that_returns_gets_its_partitions_back(harness: ConsumerGroupHarness) -> None:
    """Epoch -2 is a temporary leave; with a new member id it gets the same partitions, without a new epoch."""
    harness.join("a", instance_id="i")
    harness.join("b")
    harness.settle()

    assert harness.beat("a", -2, instance_id="i").epoch == -2
    assert harness.group.members["a"].is_away
    answer = harness.join("a2", instance_id="i")

    assert (answer.epoch, answer.assignment, list(harness.group.members)) == (2, partitions(harness, 0, 1), ["a2", "b"])
    assert harness.group.epoch == 2
    refused(harness, MemberFenced, "a", 2, instance_id="i")


def test_static_member_that_does_not_return_is_removed(harness: ConsumerGroupHarness) -> None:
    """Its partitions are reserved for one session timeout."""
    harness.join("a", instance_id="i")
    harness.beat("a", -2, instance_id="i")

    harness.advance(45.0)

    assert harness.state() is GroupState.EMPTY


def test_static_member_that_leaves_permanently_is_removed_at_once(harness: ConsumerGroupHarness) -> None:
    """Epoch -1 with an instance id means that the member leaves permanently."""
    harness.join("a", instance_id="i")

    harness.beat("a", -1, instance_id="i")

    assert harness.state() is GroupState.EMPTY
    assert harness.join("b", instance_id="i").epoch == 3


def test_instance_id_in_use_cannot_be_taken_over(harness: ConsumerGroupHarness) -> None:
    """UNRELEASED_INSTANCE_ID is returned until the other member has left; its owner may join again."""
    harness.join("a", instance_id="i")

    with pytest.raises(UnreleasedInstance) as refusal:
        harness.join("b", instance_id="i")

    assert (refusal.value.instance, refusal.value.owner) == ("i", "a")
    assert harness.join("a", instance_id="i").assignment == partitions(harness, 0, 1, 2, 3)
    refused(harness, UnknownMember, "x", 1, instance_id="other")


def test_static_member_that_leaves_during_a_revocation_frees_those_partitions(harness: ConsumerGroupHarness) -> None:
    """It has left, so it reads nothing any more."""
    harness.join("a", instance_id="i")
    harness.join("b")
    harness.beat("a", 1, instance_id="i")

    harness.beat("a", -2, instance_id="i")

    assert harness.own("b").assignment == partitions(harness, 2, 3)


def test_static_member_with_a_regex_returns(harness: ConsumerGroupHarness) -> None:
    """The pending evaluation of its expression is moved to its new member id."""
    harness.join("a", instance_id="i", regex="t")
    harness.topics.put("u", 1)
    harness.beat("a", -2, instance_id="i")

    assert harness.join("a2", instance_id="i", regex="t|u").epoch == 2
    assert harness.group.subscribed_names() == {"t", "u"}


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_commits_need_the_current_epoch(harness: ConsumerGroupHarness) -> None:
    """The errors are STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID; other clients may commit while the group is empty."""
    require_commit(harness.group, "", None, -1)
    harness.join("a")

    require_commit(harness.group, "a", None, 1)
    with pytest.raises(StaleMemberEpoch) as stale:
        require_commit(harness.group, "a", None, 0)
    with pytest.raises(UnknownMember):
        require_commit(harness.group, "", None, -1)

    assert (stale.value.epoch, stale.value.current) == (0, 1)


def test_commit_with_an_older_epoch_is_accepted_for_partitions_held_since_then(harness: ConsumerGroupHarness) -> None:
    """KIP-1251: the epoch may change during a commit; a member cannot commit for partitions that it gave up."""
    harness.join("a")
    harness.join("b")
    harness.own("a")
    harness.own("a")
    kept, lost = (harness.numbers("a")[0], next(one for one in range(4) if one not in harness.numbers("a")))
    assert harness.group.members["a"].epoch == 2

    require_commit(harness.group, "a", None, 1, [("t", kept)])
    for partitions in ([("t", lost)], [("t", kept), ("t", lost)], [], [("unknown", 0)]):
        with pytest.raises(StaleMemberEpoch):
            require_commit(harness.group, "a", None, 1, partitions)
    harness.own("b")
    with pytest.raises(StaleMemberEpoch):
        require_commit(harness.group, "b", None, 1, [("t", lost)])
    with pytest.raises(StaleMemberEpoch):
        require_commit(harness.group, "a", None, 3, [("t", kept)])


def test_fetching_offsets_as_a_member_needs_the_current_epoch(harness: ConsumerGroupHarness) -> None:
    """Requests of administrators name no member and are always answered."""
    harness.join("a")

    require_fetch(harness.group, None, -1)
    require_fetch(harness.group, "a", 1)
    with pytest.raises(StaleMemberEpoch):
        require_fetch(harness.group, "a", 2)
    with pytest.raises(UnknownMember):
        require_fetch(harness.group, "b", 1)


# --- durability ------------------------------------------------------------------------------------------------------


def test_answers_wait_until_the_state_is_durable(harness: ConsumerGroupHarness) -> None:
    """There is one write at a time; later changes are covered by the next write."""
    harness.holds = True
    first = harness.send(join_of("a"))
    second = harness.send(join_of("b"))
    third = harness.send(join_of("c"))
    assert (first, second, third, len(harness.held_partitions)) == ([], [], [], 1)

    harness.held_partitions.pop()(None)
    assert (len(first), second, third, len(harness.held_partitions)) == (1, [], [], 1)
    harness.held_partitions.pop()(None)

    assert (len(second), len(third), harness.held_partitions, harness.kept) == (1, 1, [], 2)


def test_heartbeat_without_changes_writes_nothing(harness: ConsumerGroupHarness) -> None:
    """A stable group causes no disk writes."""
    harness.join("a")
    written = harness.kept

    for _ in range(5):
        harness.own("a")

    assert harness.kept == written


def test_failed_write_makes_the_member_try_again(harness: ConsumerGroupHarness) -> None:
    """The answer is COORDINATOR_NOT_AVAILABLE, and the next heartbeat is answered only when everything is durable."""
    harness.keep_refusal = StorageFull("full")
    (answer,) = harness.send(join_of("a"))
    assert isinstance(answer, CoordinatorUnavailable)

    (again,) = harness.send(Heartbeat(member_id="a", epoch=1))
    assert isinstance(again, CoordinatorUnavailable)
    harness.keep_refusal = None

    assert harness.beat("a", 1).epoch == 1


def test_deleted_group_refuses_every_request(harness: ConsumerGroupHarness) -> None:
    """A client whose request arrives during the deletion tries again."""
    harness.group.die()

    with pytest.raises(CoordinatorUnavailable):
        harness.join("a")
    assert harness.state() is GroupState.DEAD


def test_members_that_join_at_the_same_time_share_one_target(
    harness: ConsumerGroupHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is computed from all members: one computation for each new member would take quadratic time."""
    computed: list[int] = []
    assign = ConsumerGroup._assign

    def counted_assign(group: ConsumerGroup) -> None:
        computed.append(len(group.members))
        assign(group)

    monkeypatch.setattr(ConsumerGroup, "_assign", counted_assign)
    harness.holds = True
    answers = [harness.send(join_of(f"m{number}")) for number in range(200)]
    harness.held_partitions.pop()(None)
    answered = sum(map(len, answers))
    harness.release_writes()

    # The first member computed a target alone. A hundred of the others continue in one turn and wait for the next
    # write.
    assert answered == 1

    assert computed == [1, 200]
    assert all(isinstance(answer, HeartbeatAnswer) for (answer,) in answers)
    assert {answer.epoch for (answer,) in answers if isinstance(answer, HeartbeatAnswer)} == {1, 2}
    assert harness.kept == 3


def test_member_that_leaves_while_its_join_waits_gets_an_unknown_member_error(harness: ConsumerGroupHarness) -> None:
    """Its join is answered like any heartbeat of a removed member; the others get their target."""
    harness.holds = True
    first, gone, last = (harness.send(join_of(member_id)) for member_id in ("a", "b", "c"))
    left = harness.send(Heartbeat(member_id="b", epoch=-1))
    harness.release_writes()

    assert [type(answers[0]) for answers in (first, gone, last)] == [HeartbeatAnswer, UnknownMember, HeartbeatAnswer]
    assert isinstance(left[0], HeartbeatAnswer)
    assert set(harness.group.members) == {"a", "c"}


def test_waiting_join_is_refused_when_the_group_is_replaced(harness: ConsumerGroupHarness) -> None:
    """The client tries again and reaches the new group."""
    harness.holds = True
    harness.send(join_of("a"))
    waiting = harness.send(join_of("b"))

    for respond in harness.group.close():
        respond(None)

    assert isinstance(waiting[0], CoordinatorUnavailable)


def join_of(member_id: str) -> Heartbeat:
    return Heartbeat(member_id=member_id, epoch=0, rebalance_timeout_s=30.0, topics=frozenset({"t"}), owned=frozenset())
