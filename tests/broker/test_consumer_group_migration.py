"""Classic and consumer members in one group, and groups that change their type while they are in use."""

from typing import Any

import pytest

from broker.builders import NOW_MS, BrokerHarness
from broker.consumer_groups import ConsumerGroupHarness, TextEmbedded, Topics, a_classic_join
from hubmere.broker.coordinator.consumer_group.assignments import NOTHING
from hubmere.broker.coordinator.consumer_group.embedded import MalformedBytes, NoEmbeddedProtocol
from hubmere.broker.coordinator.consumer_group.members import ConsumerGroupConfig, Heartbeat, HeartbeatAnswer
from hubmere.broker.coordinator.consumer_group.validation import require_commit
from hubmere.broker.coordinator.groups import Groups
from hubmere.broker.coordinator.membership import GroupState, GroupType, JoinResponse, SyncRequest, SyncResponse
from hubmere.broker.coordinator.refusals import (
    GroupFull,
    GroupRefused,
    GroupUnknown,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidHeartbeat,
    InvalidRegex,
    MemberFenced,
    MemberIdRequired,
    NotConsumerGroup,
    RebalanceInProgress,
    UnknownMember,
)
from hubmere.model.errors import LimitReached

# --- classic members of a consumer group -----------------------------------------------------------------------------


@pytest.fixture
def harness() -> ConsumerGroupHarness:
    """A group with the consumer member `a`, which reads all four partitions of `t`."""
    harness = ConsumerGroupHarness()
    harness.join("a")
    return harness


def hand_over(harness: ConsumerGroupHarness) -> None:
    """The consumer member `a` revokes its partitions."""
    harness.own("a")
    harness.own("a")


def test_classic_member_joins_a_consumer_group(harness: ConsumerGroupHarness) -> None:
    """It is answered at once, is not the leader, and gets partitions after the others have revoked them."""
    joined = harness.classic_join()
    assert (joined.generation, joined.leader, joined.members, joined.protocol) == (2, "", (), "range")
    assert harness.sync(joined) == b""
    harness.group.classic_heartbeat(joined.member_id, None, 2, harness.now)

    hand_over(harness)
    with pytest.raises(RebalanceInProgress):
        harness.group.classic_heartbeat(joined.member_id, None, 2, harness.now)
    again = harness.classic_join(joined.member_id)

    assert harness.sync(again) == b"t:2,t:3"
    harness.group.classic_heartbeat(joined.member_id, None, 2, harness.now)
    assert harness.group.state is GroupState.STABLE


def test_new_classic_member_gets_a_member_id_before_it_joins(harness: ConsumerGroupHarness) -> None:
    """KIP-394 applies as in a classic group."""
    with pytest.raises(MemberIdRequired) as result:
        harness.classic_join(needs_known_id=True)

    assert harness.classic_join(result.value.member, needs_known_id=True).member_id == result.value.member


def test_classic_member_that_owns_too_many_partitions_revokes_them_first(harness: ConsumerGroupHarness) -> None:
    """A cooperative member gets the partitions that it keeps, revokes the rest and joins again."""
    joined = harness.classic_join()
    hand_over(harness)
    harness.classic_join(joined.member_id)
    harness.topics.put("u", 1)
    harness.join("b")
    member = harness.group.members[joined.member_id]
    harness.own("a")

    again = harness.classic_join(joined.member_id, owned="t:2,t:3")
    with pytest.raises(RebalanceInProgress):
        harness.group.classic_heartbeat(joined.member_id, None, again.generation, harness.now)
    kept = harness.sync(again)
    done = harness.classic_join(joined.member_id, owned=kept.decode())

    assert (again.generation, done.generation, len(member.assigned), member.revoke_by) == (2, 3, 1, None)


def test_sync_with_an_old_epoch_is_answered_with_a_rebalance(harness: ConsumerGroupHarness) -> None:
    """Another member has joined between its JoinGroup and SyncGroup."""
    joined = harness.classic_join()
    harness.join("b")

    with pytest.raises(RebalanceInProgress):
        harness.sync(joined)


@pytest.mark.parametrize("silence", ["sync", "rejoin", "session"])
def test_classic_member_that_does_not_finish_the_rebalance_is_removed(
    harness: ConsumerGroupHarness, silence: str
) -> None:
    """It has its rebalance timeout to sync and to join again, and its session timeout for heartbeats."""
    joined = harness.classic_join()
    if silence != "sync":
        harness.sync(joined)
    if silence == "rejoin":
        harness.join("b")
    for _ in range(4):
        harness.advance(8.0)
        harness.own("a")
        if silence != "session" and joined.member_id in harness.group.members:
            try:
                harness.group.classic_heartbeat(joined.member_id, None, joined.generation, harness.now)
            except RebalanceInProgress:
                continue

    assert joined.member_id not in harness.group.members


def test_invalid_classic_requests_are_refused(harness: ConsumerGroupHarness) -> None:
    """Consumer members cannot use the classic protocol; generation and protocol must match."""
    joined = harness.classic_join(instance_id="i")

    with pytest.raises(UnknownMember):
        harness.group.classic_heartbeat("a", None, 1, harness.now)
    with pytest.raises(UnknownMember):
        harness.group.leave("a", None, harness.now)
    with pytest.raises(IllegalGeneration):
        harness.group.classic_heartbeat(joined.member_id, "i", 1, harness.now)
    with pytest.raises(InconsistentProtocol):
        harness.sync(joined, instance_id="i", protocol="sticky")
    with pytest.raises(UnknownMember):
        harness.classic_join("x", instance_id="unknown")
    with pytest.raises(MemberFenced):
        harness.classic_join("x", instance_id="i")
    with pytest.raises(IllegalGeneration):
        require_commit(harness.group, joined.member_id, "i", 1)


@pytest.mark.parametrize(
    "wish", [{"protocol_type": "connect"}, {"protocols": ()}, {"metadata": b"?"}, {"protocols": ("sticky",)}]
)
def test_classic_member_with_another_protocol_is_refused(harness: ConsumerGroupHarness, wish: dict[str, Any]) -> None:
    """The answer is INCONSISTENT_GROUP_PROTOCOL, because the group could not become a classic group again."""
    harness.classic_join()

    with pytest.raises(InconsistentProtocol):
        harness.classic_join(**wish)


def test_static_classic_member_is_replaced_and_removed_by_its_instance_id(harness: ConsumerGroupHarness) -> None:
    """A restarted process takes over the instance id; an administrator removes it without its member id."""
    first = harness.classic_join(instance_id="i", protocols=("sticky",))
    second = harness.classic_join(instance_id="i")
    assert first.member_id != second.member_id
    assert (harness.group.epoch, set(harness.group.members)) == (2, {"a", second.member_id})

    harness.group.leave("", "i", harness.now)

    assert list(harness.group.members) == ["a"]
    with pytest.raises(UnknownMember):
        harness.group.leave("", "i", harness.now)


def test_static_member_changes_from_classic_to_consumer(harness: ConsumerGroupHarness) -> None:
    """A rolling restart with another group.protocol keeps the partitions."""
    harness.classic_join(instance_id="i")
    hand_over(harness)
    harness.classic_join(harness.group.static_member("i").member_id, instance_id="i")  # type: ignore[union-attr]

    answer = harness.join("c", instance_id="i")

    assert (harness.numbers("c"), answer.epoch) == ([2, 3], 2)
    assert harness.group.members["c"].classic is None


def test_classic_member_is_assigned_only_hubs_that_it_may_read(harness: ConsumerGroupHarness) -> None:
    """The coordinator does not assign partitions whose fetch would be refused."""
    joined = harness.classic_join(topics="t,u", may_read=lambda name: name == "u")

    assert harness.group.members[joined.member_id].subscription.topics == {"u"}


# --- groups that change their type -----------------------------------------------------------------------------------


class GroupsHarness:
    """All groups of a namespace on a real catalog."""

    def __init__(self, broker_harness: BrokerHarness, **more: Any) -> None:
        self.broker_harness = broker_harness
        self.now = 0.0
        self.topics = more.pop("topics", None) or Topics(t=4)
        self.more = more
        self.groups = self.open()

    def open(self) -> Groups:
        return Groups(
            "hubmere",
            self.broker_harness.catalog,
            now=self.now,
            initial_delay_s=0.0,
            topics=self.topics,
            embedded=TextEmbedded(),
            **self.more,
        )

    def restart(self) -> None:
        self.groups = self.open()

    def done(self, answers: list[Any]) -> Any:
        self.broker_harness.catalog.apply()
        self.broker_harness.turn.run()
        (answer,) = answers
        return answer

    def beat(self, member_id: str, epoch: int, **more: Any) -> HeartbeatAnswer:
        answers: list[HeartbeatAnswer | GroupRefused] = []
        beat = Heartbeat(member_id=member_id, epoch=epoch, **more)
        self.groups.consumer_heartbeat("g", beat, self.now, NOW_MS, answers.append)
        answer = self.done(answers)
        assert isinstance(answer, HeartbeatAnswer), answer
        return answer

    def join(self, member_id: str, **more: Any) -> HeartbeatAnswer:
        values: dict[str, Any] = {"rebalance_timeout_s": 30.0, "owned": NOTHING, "topics": frozenset({"t"})}
        return self.beat(member_id, 0, **(values | more))

    def classic_join(self, member_id: str = "", **more: Any) -> Any:
        answers: list[JoinResponse | GroupRefused] = []
        self.groups.join("g", a_classic_join(member_id, **more), self.now, NOW_MS, answers.append)
        return self.done(answers)

    def classic_sync(self, joined: JoinResponse, **assignments: bytes) -> bytes:
        answers: list[SyncResponse | GroupRefused] = []
        wish = SyncRequest(member_id=joined.member_id, generation=joined.generation, assignments=assignments)
        self.groups.sync("g", wish, self.now, NOW_MS, answers.append)
        answer = self.done(answers)
        assert isinstance(answer, SyncResponse), answer
        return answer.assignment

    def a_classic_group(self, **more: Any) -> JoinResponse:
        """A classic group with one member that reads everything."""
        joined = self.classic_join(**more)
        assert isinstance(joined, JoinResponse)
        self.classic_sync(joined, **{joined.member_id: b"t:0,t:1,t:2,t:3"})
        return joined

    def type(self) -> GroupType:
        found = self.groups.find("g")
        assert found is not None
        return found.type


@pytest.fixture
def groups_harness(broker_harness: BrokerHarness) -> GroupsHarness:
    return GroupsHarness(broker_harness)


def test_consumer_member_turns_a_classic_group_into_a_consumer_group(groups_harness: GroupsHarness) -> None:
    """Online upgrade: the classic member continues to read until it has revoked its half."""
    joined = groups_harness.a_classic_group()

    newcomer = groups_harness.join("c")
    assert (groups_harness.type(), newcomer.epoch, newcomer.assignment) == (GroupType.CONSUMER, 2, NOTHING)
    with pytest.raises(RebalanceInProgress):
        groups_harness.groups.heartbeat("g", joined.member_id, None, joined.generation, groups_harness.now)
    again = groups_harness.classic_join(joined.member_id, owned="")
    kept = groups_harness.classic_sync(again)
    answer = groups_harness.beat("c", 2, owned=NOTHING)

    assert answer.assignment is not None
    assert (len(kept.split(b",")), len(answer.assignment)) == (2, 2)


def test_waiting_classic_members_are_asked_to_join_again(broker_harness: BrokerHarness) -> None:
    """A waiting join is answered when the group changes its type."""
    groups_harness = GroupsHarness(broker_harness)
    first = groups_harness.a_classic_group()
    waiting: list[Any] = []
    groups_harness.groups.join("g", a_classic_join("", client_id="late"), groups_harness.now, NOW_MS, waiting.append)
    assert waiting == []

    groups_harness.join("c")

    (answer,) = waiting
    assert isinstance(answer, RebalanceInProgress)
    assert len(groups_harness.groups.describe_consumers("g").members) == 3
    assert first.member_id in {member.member_id for member in groups_harness.groups.describe_consumers("g").members}


def test_group_becomes_classic_when_its_last_consumer_member_leaves(groups_harness: GroupsHarness) -> None:
    """Online downgrade: the classic members rebalance among themselves, in a later generation."""
    groups_harness.join("c")
    joined = groups_harness.classic_join()
    assert groups_harness.type() is GroupType.CONSUMER

    assert groups_harness.beat("c", -1).epoch == -1

    assert groups_harness.type() is GroupType.CLASSIC
    with pytest.raises(RebalanceInProgress):
        groups_harness.groups.heartbeat("g", joined.member_id, None, 3, groups_harness.now)
    again = groups_harness.classic_join(joined.member_id)
    assert (again.leader, again.generation > joined.generation) == (joined.member_id, True)
    assert groups_harness.classic_sync(again, **{joined.member_id: b"t:0"}) == b"t:0"


def test_group_becomes_classic_when_its_last_consumer_member_is_silent(groups_harness: GroupsHarness) -> None:
    """The session timeout has the same effect as leaving."""
    groups_harness.join("c")
    joined = groups_harness.classic_join(session_timeout_s=300.0, rebalance_timeout_s=300.0)
    groups_harness.classic_sync(joined)
    deadline = groups_harness.groups.next_deadline()
    assert deadline == 45.0

    groups_harness.now = deadline
    groups_harness.groups.advance(groups_harness.now, NOW_MS)

    assert groups_harness.type() is GroupType.CLASSIC


def test_group_becomes_classic_when_a_static_classic_member_replaces_its_last_consumer_member(
    groups_harness: GroupsHarness,
) -> None:
    """This happens in a rolling restart back to the classic protocol."""
    groups_harness.join("c", instance_id="i")

    groups_harness.classic_join(instance_id="i")

    assert groups_harness.type() is GroupType.CLASSIC


def test_empty_group_accepts_either_protocol(groups_harness: GroupsHarness) -> None:
    """Committed offsets stay; generations and epochs continue."""
    groups_harness.join("c")
    groups_harness.beat("c", -1)
    joined = groups_harness.a_classic_group()
    assert (groups_harness.type(), joined.generation) == (GroupType.CLASSIC, 3)

    groups_harness.groups.leave("g", joined.member_id, None, groups_harness.now, NOW_MS)
    answer = groups_harness.join("d")

    assert (groups_harness.type(), answer.epoch) == (GroupType.CONSUMER, 5)


@pytest.mark.parametrize("wish", [{"protocol_type": "connect"}, {"metadata": b"?"}])
def test_group_with_another_protocol_type_is_not_upgraded(groups_harness: GroupsHarness, wish: dict[str, Any]) -> None:
    """The answer is GROUP_ID_NOT_FOUND, and the members of the group are not affected."""
    joined = groups_harness.a_classic_group(**wish)

    with pytest.raises(NotConsumerGroup):
        groups_harness.join("c")

    groups_harness.groups.heartbeat("g", joined.member_id, None, joined.generation, groups_harness.now)


def test_group_with_unreadable_assignments_is_not_upgraded(groups_harness: GroupsHarness) -> None:
    """The partitions of its members are unknown."""
    joined = groups_harness.classic_join()
    groups_harness.classic_sync(joined, **{joined.member_id: b"?"})

    with pytest.raises(NotConsumerGroup):
        groups_harness.join("c")


def test_partition_with_two_classic_owners_has_one_owner_after_the_upgrade(groups_harness: GroupsHarness) -> None:
    """A classic leader can make a mistake; a consumer group never has two owners of a partition."""
    first = groups_harness.classic_join()
    waiting: list[Any] = []
    groups_harness.groups.join("g", a_classic_join(""), groups_harness.now, NOW_MS, waiting.append)
    first = groups_harness.classic_join(first.member_id)
    second = groups_harness.done(waiting)
    answers: list[Any] = []
    wish = SyncRequest(member_id=second.member_id, generation=second.generation, assignments={})
    groups_harness.groups.sync("g", wish, groups_harness.now, NOW_MS, answers.append)
    groups_harness.classic_sync(first, **{first.member_id: b"t:0", second.member_id: b"t:0,t:1"})

    groups_harness.join("c")

    members = {one.member_id: one for one in groups_harness.groups.describe_consumers("g").members}
    assert (len(members[first.member_id].assigned), len(members[second.member_id].assigned)) == (1, 1)


def test_refused_consumer_member_does_not_change_a_classic_group(broker_harness: BrokerHarness) -> None:
    """A heartbeat that is refused upgrades nothing."""
    groups_harness = GroupsHarness(broker_harness, config=ConsumerGroupConfig(max_size=1))
    groups_harness.a_classic_group()

    with pytest.raises(InvalidHeartbeat):
        groups_harness.beat("c", 0)
    with pytest.raises(InvalidRegex):
        groups_harness.join("c", regex="(")
    with pytest.raises(UnknownMember):
        groups_harness.beat("c", 4)
    with pytest.raises(GroupFull):
        groups_harness.join("c")

    assert groups_harness.type() is GroupType.CLASSIC


def test_unknown_group_is_not_created_by_a_member_that_does_not_join(groups_harness: GroupsHarness) -> None:
    """An unknown member has to join again."""
    with pytest.raises(UnknownMember):
        groups_harness.beat("c", 3)

    assert groups_harness.groups.find("g") is None
    with pytest.raises(GroupUnknown):
        groups_harness.groups.describe_consumers("g")


def test_number_of_groups_is_limited(groups_harness: GroupsHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is that of classic groups."""
    monkeypatch.setattr("hubmere.broker.coordinator.groups.MAX_GROUPS", 0)

    with pytest.raises(LimitReached):
        groups_harness.join("c")


# --- restarts, lists, deletion ---------------------------------------------------------------------------------------


def test_consumer_group_survives_a_restart(groups_harness: GroupsHarness) -> None:
    """Members continue in their epochs with their partitions, classic ones too; there is no rebalance."""
    groups_harness.join("a", instance_id="i", rack_id="r", assignor="range", regex="t.*")
    joined = groups_harness.classic_join()
    before = groups_harness.groups.describe_consumers("g")

    groups_harness.restart()

    assert groups_harness.groups.describe_consumers("g") == before
    assert groups_harness.beat("a", 1, instance_id="i", owned=before.members[0].assigned).assignment is not None
    answer = groups_harness.beat("a", 1, instance_id="i", owned=before.members[0].target)
    assert (answer.epoch, answer.assignment) == (2, None)
    groups_harness.groups.require_commit("g", joined.member_id, None, joined.generation, groups_harness.now)


def test_unfinished_revocation_continues_after_a_restart(groups_harness: GroupsHarness) -> None:
    """The member still has to revoke its partitions, within its rebalance timeout."""
    groups_harness.join("a")
    groups_harness.join("b")
    groups_harness.beat("a", 1)

    groups_harness.restart()

    assert groups_harness.beat("b", 2).assignment is None
    kept = groups_harness.groups.describe_consumers("g").members[0].assigned
    assert groups_harness.beat("a", 1, owned=kept).epoch == 2
    given = groups_harness.beat("b", 2).assignment
    assert (given is not None and len(given)) == 2


def test_topics_that_changed_during_a_restart_are_detected(groups_harness: GroupsHarness) -> None:
    """The group stores the topics for which its target was computed."""
    groups_harness.join("a")
    groups_harness.topics.put("t", 6)

    groups_harness.restart()

    answer = groups_harness.beat("a", 1, owned=groups_harness.groups.describe_consumers("g").members[0].assigned)
    assert (answer.epoch, len(answer.assignment or ())) == (2, 6)


def test_regex_is_evaluated_after_a_restart_when_its_member_sends_a_heartbeat(groups_harness: GroupsHarness) -> None:
    """Before that the member's rights are unknown; meanwhile it keeps the topics that matched before."""
    groups_harness.join("a", topics=frozenset(), regex="t.*")
    groups_harness.join("b")
    groups_harness.topics.put("t2", 1)
    groups_harness.restart()

    groups_harness.beat("b", 2)
    assert groups_harness.groups.find("g").subscribed_names() == {"t"}  # type: ignore[union-attr]
    groups_harness.beat("a", 1)

    assert groups_harness.groups.find("g").subscribed_names() == {"t", "t2"}  # type: ignore[union-attr]


def test_lists_and_descriptions_contain_the_type_of_a_group(groups_harness: GroupsHarness) -> None:
    """Kafka's tools decide by the type how to describe a group."""
    groups_harness.join("a")

    (listed,) = groups_harness.groups.list()
    described = groups_harness.groups.describe("g")

    assert (listed.type, listed.state, listed.protocol_type) == (GroupType.CONSUMER, GroupState.STABLE, "consumer")
    assert (described.type, described.protocol) == (GroupType.CONSUMER, "uniform")
    assert [member.assignment for member in described.members] == [b"t:0,t:1,t:2,t:3"]


def test_empty_consumer_group_is_deleted(groups_harness: GroupsHarness) -> None:
    """A group with members is not deleted."""
    groups_harness.join("a")
    groups_harness.beat("a", -1)
    outcome: list[Any] = []

    groups_harness.groups.delete("g", outcome.append)

    assert groups_harness.done(outcome) is None
    assert (groups_harness.groups.find("g"), groups_harness.groups.list()) == (None, [])


def test_classic_members_can_join_and_leave_a_consumer_group(groups_harness: GroupsHarness) -> None:
    """The group stays a consumer group while it has consumer members."""
    groups_harness.join("a")
    joined = groups_harness.classic_join()

    groups_harness.groups.leave("g", joined.member_id, None, groups_harness.now, NOW_MS)

    assert (groups_harness.type(), len(groups_harness.groups.describe_consumers("g").members)) == (
        GroupType.CONSUMER,
        1,
    )


def test_offsets_of_an_unknown_group_can_be_fetched_without_a_member(groups_harness: GroupsHarness) -> None:
    """Nothing was committed, and a classic group does not check who fetches."""
    groups_harness.groups.require_fetch("g", "a", 3)
    groups_harness.a_classic_group()

    groups_harness.groups.require_fetch("g", "a", 3)


def test_broker_without_a_kafka_endpoint_cannot_mix_protocols(broker_harness: BrokerHarness) -> None:
    """Without the endpoint, the format of classic subscriptions is unknown, and there are no topics."""
    groups = Groups("hubmere", broker_harness.catalog, now=0.0)
    answers: list[Any] = []
    beat = Heartbeat(
        member_id="a", epoch=0, rebalance_timeout_s=1.0, regex=".*", topics=frozenset({"t"}), owned=NOTHING
    )

    groups.consumer_heartbeat("g", beat, 0.0, NOW_MS, answers.append)
    with pytest.raises(InconsistentProtocol):
        groups.join("g", a_classic_join(), 0.0, NOW_MS, answers.append)

    broker_harness.catalog.apply()
    broker_harness.turn.run()
    assert [answer.assignment for answer in answers] == [NOTHING]
    assert groups.describe("g").members[0].assignment == b""
    with pytest.raises(MalformedBytes):
        NoEmbeddedProtocol().read_assignment(b"")
