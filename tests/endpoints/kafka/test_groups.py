"""Groups and committed offsets over the protocol: every version, and the decisions of the endpoint."""

from pathlib import Path
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, only
from hubmere.endpoints.stream import Stream
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.consumer_protocol import ConsumerSubscription, write_subscription
from hubmere.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from hubmere.wire.kafka.messages.offsets import (
    FindCoordinatorRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from node_clock import NodeClock

pytestmark = pytest.mark.usefixtures("either_loop")

METADATA = write_subscription(ConsumerSubscription(topics=("orders",)))


def a_join(member_id: str = "", **more: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": (JoinGroupProtocol(name="range", metadata=METADATA),),
    }
    return JoinGroupRequest(**{**fields, **more})


def a_sync(joined: Any, *assignments: tuple[str, bytes], **more: Any) -> SyncGroupRequest:
    given = tuple(SyncGroupAssignment(member_id=member, assignment=data) for member, data in assignments)
    return SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=given, **more
    )


def a_stable_member(client: RawClient, **more: Any) -> Any:
    """Join a new group and assign everything to this member."""
    joined = client.call(a_join(**more), 3)
    synced = client.call(a_sync(joined, (joined.member_id, b"all")), 3)
    assert (joined.error_code, synced.error_code, synced.assignment) == (0, 0, b"all")
    return joined


# --- members ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group_creates_a_member(client: RawClient, version: int) -> None:
    """Reference check 35: from version 4 on a new member first gets its id."""
    answer = client.call(a_join(), version)
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert answer.protocol_name == ("" if version < 7 else None)
        answer = client.call(a_join(answer.member_id), version)

    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert answer.leader == answer.member_id
    assert [member.metadata for member in answer.members] == [METADATA]


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync_group_returns_the_assignment(client: RawClient, version: int) -> None:
    """Reference 2.10: version 5 also returns the protocol."""
    joined = client.call(a_join(), 3)

    synced = client.call(a_sync(joined, (joined.member_id, b"mine")), version)

    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
    assert synced.protocol_name == ("range" if version >= 5 else None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat_keeps_a_member(client: RawClient, version: int) -> None:
    """A member of another generation has to join again."""
    joined = a_stable_member(client)

    codes = [
        client.call(
            HeartbeatRequest(group_id="g", generation_id=number, member_id=joined.member_id), version
        ).error_code
        for number in (1, 2)
    ]

    assert codes == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leave_group_removes_the_member(client: RawClient, version: int) -> None:
    """From version 3 on several members can leave at once, each with its own result."""
    joined = a_stable_member(client)
    members = (LeavingMember(member_id=joined.member_id), LeavingMember(member_id="nobody"))
    request = LeaveGroupRequest(group_id="g", member_id=joined.member_id, members=members)

    answer = client.call(request, version)

    codes = [member.error_code for member in answer.members]
    assert answer.error_code == ErrorCode.NONE
    assert codes == ([ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID] if version >= 3 else [])
    described = client.call(DescribeGroupsRequest(groups=("g",)), 4).groups[0]
    assert (described.group_state, described.members) == ("Empty", ())


def test_second_member_makes_the_first_join_again(node: KafkaNode, client: RawClient) -> None:
    """Reference check 33, over two connections."""
    first = a_stable_member(client)
    with RawClient(node) as other:
        other.sign_in().send(a_join(), 3)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id)
        while client.call(beat, 3).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        again = client.call(a_join(first.member_id), 3)
        second = other.answer()

    assert (again.generation_id, second.generation_id) == (2, 2)
    assert {again.leader, second.leader} == {first.member_id}
    assert [len(again.members), len(second.members)] == [2, 0]


def test_silent_member_is_removed_by_the_timer_of_the_endpoint() -> None:
    """All groups share one timer, which fires without a request."""
    with KafkaNode() as node, RawClient(node) as client, RawClient(node) as other:
        client.sign_in()
        a_stable_member(client, session_timeout_ms=6_000, rebalance_timeout_ms=1_000)
        other.sign_in()

        # The first member never joins again: the rebalance timeout ends the wait long before its session.
        answer = other.call(a_join(rebalance_timeout_ms=1_000), 3)

    assert (answer.error_code, len(answer.members)) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 300_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_invalid_join_is_refused_with_its_code(client: RawClient, more: dict[str, Any], code: ErrorCode) -> None:
    """Reference check 37."""
    assert client.call(a_join(**more), 3).error_code == code


@pytest.mark.parametrize("version", range(5))
def test_this_node_is_the_coordinator_of_everything(node: KafkaNode, client: RawClient, version: int) -> None:
    """This holds for groups and transactions; from version 4 on for several keys at once."""
    request = FindCoordinatorRequest(key="g", key_type=1 if version else 0, coordinator_keys=("g", "h"))

    answer = client.call(request, version)

    found = answer.coordinators if version >= 4 else (answer,)
    assert [(one.node_id, one.host, one.port, one.error_code) for one in found] == [
        (0, "localhost", node.port, ErrorCode.NONE)
    ] * (2 if version >= 4 else 1)


def test_coordinator_of_an_unknown_kind_is_refused(client: RawClient) -> None:
    """Reference 2.10."""
    answer = client.call(FindCoordinatorRequest(key="g", key_type=9), 2)

    assert answer.error_code == ErrorCode.INVALID_REQUEST


# --- offsets ---------------------------------------------------------------------------------------------------------


def a_commit(offset: int, *, metadata: str | None = "", topic: str = "orders", **more: Any) -> OffsetCommitRequest:
    part = OffsetCommitPartition(index=0, committed_offset=offset, committed_metadata=metadata)
    fields: dict[str, Any] = {"group_id": "g", "topics": (OffsetCommitTopic(name=topic, partitions=(part,)),)}
    return OffsetCommitRequest(**{**fields, **more})


def committed(client: RawClient, version: int = 7, **more: Any) -> Any:
    """The result of OffsetFetch for the first partition."""
    topics = (OffsetFetchTopic(name="orders", partition_indexes=(0,)),)
    request = OffsetFetchRequest(
        group_id="g", topics=topics, groups=(OffsetFetchGroup(group_id="g", topics=topics),), **more
    )
    answer = client.call(request, version)
    return (answer.groups[0] if version >= 8 else answer).topics[0].partitions[0]


@pytest.mark.parametrize("offset", [-1, -2, -(2**63)])
def test_negative_commit_is_stored_and_returned(client: RawClient, offset: int) -> None:
    """Kafka does not check committed offsets: a client returns to its default start in this way."""
    client.call(a_commit(5, metadata="before"), 7)

    answer = only(client.call(a_commit(offset, metadata="after"), 7))

    found = committed(client)
    assert answer.error_code == ErrorCode.NONE
    assert (found.error_code, found.committed_offset, found.metadata) == (ErrorCode.NONE, offset, "after")


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_of_offset_commit_can_be_fetched(client: RawClient, version: int) -> None:
    """Reference check 39: the metadata is unchanged, up to its longest length."""
    answer = client.call(a_commit(42, metadata="x" * 1024), version)

    found = committed(client)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (found.committed_offset, found.metadata) == (42, "x" * 1024)


@pytest.mark.parametrize("version", range(1, 10))
def test_partition_without_a_commit_is_no_error(client: RawClient, version: int) -> None:
    """Reference check 40: consumers then use their default position."""
    found = committed(client, version)

    assert (found.committed_offset, found.metadata, found.error_code) == (-1, "", ErrorCode.NONE)


@pytest.mark.parametrize("version", [2, 7, 8])
def test_null_requests_all_commits_of_a_group(client: RawClient, version: int) -> None:
    """MirrorMaker and the console tools do this."""
    client.call(a_commit(42), 8)
    request = OffsetFetchRequest(group_id="g", topics=None, groups=(OffsetFetchGroup(group_id="g", topics=None),))

    answer = client.call(request, version)

    topics = (answer.groups[0] if version >= 8 else answer).topics
    assert [(topic.name, [part.committed_offset for part in topic.partitions]) for topic in topics] == [
        ("orders", [42])
    ]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (a_commit(1, metadata="x" * 1025), ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (a_commit(1, topic="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (a_commit(1, member_id="nobody", generation_id_or_member_epoch=1), ErrorCode.UNKNOWN_MEMBER_ID),
        (a_commit(1, group_id="\n"), ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_invalid_commit_is_refused_with_its_code(
    client: RawClient, request_: OffsetCommitRequest, code: ErrorCode
) -> None:
    """Reference checks 38 and 39."""
    answer = client.call(request_, 8)

    assert answer.topics[0].partitions[0].error_code == code
    assert committed(client).committed_offset == -1


def test_too_many_commits_are_stored_and_delayed() -> None:
    """Reference 1.4: the number per second is limited for each partition; more are delayed, never refused."""
    book = LimitsBook(profile=Profile.DEVELOPER, overrides={"offset_commits_per_second": 1})
    clock = NodeClock(is_stopped=True)
    with KafkaNode(book=book, clock=clock) as node, RawClient(node) as client:
        client.sign_in()
        first, second = (client.call(a_commit(offset), 8) for offset in range(2))
        clock.resume()
        found = committed(client)

    assert (first.throttle_time_ms, second.throttle_time_ms > 0) == (0, True)
    assert {answer.topics[0].partitions[0].error_code for answer in (first, second)} == {ErrorCode.NONE}
    assert found.committed_offset == 1


def test_throttled_client_is_read_again_if_the_timer_is_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers of uvloop may fire a millisecond before their time; here they fire much earlier."""
    call_at = Stream.call_at
    monkeypatch.setattr(Stream, "call_at", lambda self, when, callback: call_at(self, when - 0.5, callback))
    book = LimitsBook(profile=Profile.DEVELOPER, overrides={"offset_commits_per_second": 1})
    clock = NodeClock(is_stopped=True)
    with KafkaNode(book=book, clock=clock) as node, RawClient(node) as client:
        client.sign_in()
        answers = [client.call(a_commit(offset), 8) for offset in range(2)]
        clock.resume()
        client.call(a_commit(2), 8)

        assert answers[1].throttle_time_ms > 0
        assert committed(client).committed_offset == 2


def test_only_current_members_of_a_stable_group_can_commit(client: RawClient) -> None:
    """Reference check 38: an old generation and a non-member are refused."""
    joined = a_stable_member(client)

    codes = [
        client.call(a_commit(1, member_id=member, generation_id_or_member_epoch=generation), 6)
        .topics[0]
        .partitions[0]
        .error_code
        for member, generation in ((joined.member_id, 1), (joined.member_id, 0), ("", -1))
    ]

    assert codes == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]


def test_groups_survive_a_restart(tmp_path: Path) -> None:
    """Reference check 41: the member continues in its generation, and its commits exist."""
    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        joined = a_stable_member(client.sign_in())
        client.call(a_commit(7, member_id=joined.member_id, generation_id_or_member_epoch=1), 8)

    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        client.sign_in()
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)

        assert client.call(beat, 3).error_code == ErrorCode.NONE
        assert committed(client).committed_offset == 7


def a_forgetting(topic: str = "orders") -> OffsetDeleteRequest:
    parts = (OffsetDeletePartition(index=0),)
    return OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteTopic(name=topic, partitions=parts),))


def test_commits_of_a_subscribed_topic_cannot_be_deleted(client: RawClient) -> None:
    """Reference 2.11: its members would start again from the beginning."""
    joined = a_stable_member(client)
    client.call(a_commit(7, member_id=joined.member_id, generation_id_or_member_epoch=1), 8)
    reading = client.call(a_forgetting(), 0)
    client.call(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 1)

    left = client.call(a_forgetting(), 0)

    assert reading.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert left.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed(client).committed_offset == -1


def test_commits_of_an_unknown_group_cannot_be_deleted(client: RawClient) -> None:
    """The group does not exist."""
    assert client.call(a_forgetting(), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- looking at groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_group_is_described_with_its_members(client: RawClient, version: int) -> None:
    """The console tools and portals show this."""
    a_stable_member(client)

    known, unknown = client.call(DescribeGroupsRequest(groups=("g", "other")), version).groups

    member = known.members[0]
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (METADATA, b"all")
    assert (unknown.group_state, unknown.error_code) == ("Dead", ErrorCode.NONE)


@pytest.mark.parametrize("version", range(5))
def test_groups_with_members_or_commits_are_listed(client: RawClient, version: int) -> None:
    """From version 4 on they can be filtered by state."""
    a_stable_member(client)
    client.call(a_commit(1, group_id="only-commits"), 8)

    listed = client.call(ListGroupsRequest(), version).groups

    assert [(group.group_id, group.protocol_type) for group in listed] == [("g", "consumer"), ("only-commits", "")]
    if version >= 4:
        empty = client.call(ListGroupsRequest(states_filter=("Empty",)), 4).groups
        assert [group.group_id for group in empty] == ["only-commits"]


def test_groups_without_members_are_deleted_with_their_commits(client: RawClient) -> None:
    """Reference 2.10."""
    a_stable_member(client)
    client.call(a_commit(1, group_id="idle"), 8)

    results = client.call(DeleteGroupsRequest(group_ids=("g", "idle", "other")), 2).results

    assert [result.error_code for result in results] == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert [group.group_id for group in client.call(ListGroupsRequest(), 4).groups] == ["g"]
