"""Consumer groups (KIP-848) over the protocol: every version, error codes, rights, and offsets by member epoch."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    OwnedPartitions,
)
from hubmere.wire.kafka.messages.consumer_protocol import (
    ConsumerSubscription,
    TopicPartitions,
    read_assignment,
    write_subscription,
)
from hubmere.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    SyncGroupRequest,
)
from hubmere.wire.kafka.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from hubmere.wire.kafka.messages.offsets import (
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
from hubmere.wire.kafka.messages.share_groups import ShareGroupHeartbeatRequest

pytestmark = pytest.mark.usefixtures("either_loop")


def a_beat(member_id: str = "m", epoch: int = 0, **more: Any) -> ConsumerGroupHeartbeatRequest:
    """A valid first heartbeat, or a valid later one."""
    joining: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("orders",),
        "topic_partitions": (),
    }
    fields = (joining if epoch == 0 else {}) | more
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)


def only(items: Sequence[Any]) -> Any:
    """The one item of an answer."""
    (item,) = items
    return item


def topic_id(client: RawClient, name: str = "orders") -> UUID:
    answer = client.call(MetadataRequest(topics=(MetadataRequestTopic(name=name),)), 12)
    found: UUID = only(answer.topics).topic_id
    return found


def assigned(answer: Any) -> dict[UUID, tuple[int, ...]]:
    return {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}


def code(answer: Any) -> int:
    """The error code of an answer; error codes are equal to their numbers."""
    number: int = answer.error_code
    return number


def create(client: RawClient, name: str) -> None:
    """Create a hub by a metadata request."""
    client.call(MetadataRequest(topics=(MetadataRequestTopic(name=name),)), 12)


# --- heartbeats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_member_joins_and_is_assigned_partitions_by_topic_id(client: RawClient, version: int) -> None:
    """The id is that of Metadata."""
    answer = client.call(a_beat(), version)

    assert (code(answer), answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "m", 1)
    assert answer.heartbeat_interval_ms == 5000
    assert assigned(answer) == {topic_id(client): (0, 1)}
    assert client.call(a_beat(epoch=1), version).assignment is None


def test_partitions_move_after_they_were_revoked(client: RawClient) -> None:
    """Two members share one connection."""
    orders = topic_id(client)
    client.call(a_beat("a"), 1)
    assert assigned(client.call(a_beat("b"), 1)) == {}

    result = client.call(a_beat("a", 1), 1)
    assert (assigned(result), result.member_epoch) == ({orders: (0,)}, 1)
    owned = (OwnedPartitions(topic_id=orders, partitions=(0,)),)
    assert client.call(a_beat("a", 1, topic_partitions=owned), 1).member_epoch == 2

    assert assigned(client.call(a_beat("b", 2), 1)) == {orders: (1,)}


def test_server_assigns_the_member_id_only_in_version_0(client: RawClient) -> None:
    """KIP-1082: from version 1 on the client chooses it."""
    assert client.call(a_beat(""), 0).member_id

    answer = client.call(a_beat(""), 1)

    assert (code(answer), answer.error_message) == (ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")


@pytest.mark.parametrize(
    ("expected", "beat"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, a_beat("x", 1)),
        (ErrorCode.FENCED_MEMBER_EPOCH, a_beat("m", 9)),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, a_beat("m", 1, server_assignor="nearest")),
        (ErrorCode.UNRELEASED_INSTANCE_ID, a_beat("other", instance_id="i")),
        (ErrorCode.FENCED_INSTANCE_ID, a_beat("other", 1, instance_id="i")),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, a_beat("m", 1, instance_id="i", subscribed_topic_regex="a(")),
        (ErrorCode.INVALID_REQUEST, a_beat("m", 0, topic_partitions=None)),
    ],
)
def test_refusals_have_kafkas_codes_and_a_text(
    client: RawClient, expected: ErrorCode, beat: ConsumerGroupHeartbeatRequest
) -> None:
    """Clients act on the code and show the text."""
    client.call(a_beat(instance_id="i"), 1)

    answer = client.call(beat, 1)

    assert (code(answer), bool(answer.error_message), answer.assignment) == (expected, True, None)


def test_regular_expression_matches_hubs(client: RawClient) -> None:
    """A hub that is created later is assigned too."""
    create(client, "orders-eu")
    answer = client.call(a_beat(subscribed_topic_names=None, subscribed_topic_regex="orders.*"), 1)
    assert assigned(answer).keys() == {topic_id(client), topic_id(client, "orders-eu")}

    create(client, "orders-us")
    later = client.call(a_beat("m", 1), 1)

    assert len(assigned(later)) == 3


def test_member_leaves(client: RawClient) -> None:
    """Epoch -1 means that the member leaves."""
    client.call(a_beat(), 1)

    answer = client.call(a_beat(epoch=-1), 1)

    assert (code(answer), answer.member_epoch) == (ErrorCode.NONE, -1)


# --- rights ----------------------------------------------------------------------------------------------------------


def test_group_needs_the_right_to_listen(node: KafkaNode) -> None:
    """All requests about consumer groups get GROUP_AUTHORIZATION_FAILED."""
    with RawClient(node, node.add_rule("sender", "Send")) as client:
        client.sign_in()

        beat = client.call(a_beat(), 1)
        described = client.call(ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False), 1)

    assert (code(beat), code(only(described.groups))) == (ErrorCode.GROUP_AUTHORIZATION_FAILED,) * 2


def test_member_is_assigned_only_hubs_that_it_may_read(client: RawClient, node: KafkaNode) -> None:
    """With a key of one hub, another hub by name is refused, and a regular expression does not match it."""
    create(client, "payments")
    with RawClient(node, node.add_rule("reader", "Listen", hub="orders")) as reader:
        reader.sign_in()

        named = reader.call(a_beat(subscribed_topic_names=("payments",)), 1)
        matched = reader.call(a_beat(subscribed_topic_names=None, subscribed_topic_regex=".*"), 1)

        assert code(named) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert assigned(matched) == {topic_id(client): (0, 1)}


# --- looking at groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_description_shows_epochs_members_and_targets(client: RawClient, version: int) -> None:
    """What `kafka-consumer-groups --describe` shows."""
    client.call(a_beat("a", instance_id="i", rack_id="r"), 1)
    client.call(a_beat("b", subscribed_topic_names=None, subscribed_topic_regex="ord.*", server_assignor="range"), 1)

    request = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=True)
    group = only(client.call(request, version).groups)

    assert (code(group), group.group_state, group.assignor_name) == (ErrorCode.NONE, "Reconciling", "range")
    assert (group.group_epoch, group.assignment_epoch, group.authorized_operations > 0) == (2, 2, True)
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 1)
    assert (first.client_id, first.client_host, first.subscribed_topic_names) == ("raw", "/127.0.0.1", ("orders",))
    assert only(first.assignment.topic_partitions).partitions == (0, 1)
    assert only(first.target_assignment.topic_partitions).topic_name == "orders"
    assert (second.subscribed_topic_regex, second.assignment.topic_partitions) == ("ord.*", ())
    assert first.member_type == (1 if version >= 1 else -1)


def test_classic_group_is_not_described_as_a_consumer_group(client: RawClient) -> None:
    """After GROUP_ID_NOT_FOUND clients ask for a classic group."""
    client.call(a_join(member_id="", session_timeout_ms=10_000), 3)
    request = ConsumerGroupDescribeRequest(group_ids=("g", "unknown"), include_authorized_operations=False)

    groups = client.call(request, 1).groups

    assert [code(group) for group in groups] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    assert groups[0].error_message == "Group 'g' is not a consumer group."


def test_classic_requests_describe_a_consumer_group_as_in_kafka(client: RawClient) -> None:
    """DescribeGroups finds no classic group with that id; ListGroups has the type from version 5 on."""
    client.call(a_beat(), 1)

    described = only(client.call(DescribeGroupsRequest(groups=("g",)), 5).groups)
    listed = only(client.call(ListGroupsRequest(), 5).groups)

    assert (described.error_code, described.group_state, described.members) == (0, "Dead", ())
    assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "Consumer", "Stable")
    assert client.call(ListGroupsRequest(types_filter=("classic",)), 5).groups == ()
    assert len(client.call(ListGroupsRequest(types_filter=("CONSUMER",), states_filter=("stable",)), 5).groups) == 1


def test_group_is_deleted_when_it_is_empty(client: RawClient) -> None:
    """Before that the answer is NON_EMPTY_GROUP."""
    client.call(a_beat(), 1)
    first = only(client.call(DeleteGroupsRequest(group_ids=("g",)), 2).results)
    client.call(a_beat(epoch=-1), 1)

    second = only(client.call(DeleteGroupsRequest(group_ids=("g",)), 2).results)

    assert (code(first), code(second)) == (ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE)


# --- offsets ---------------------------------------------------------------------------------------------------------


def a_commit(epoch: int, member_id: str = "m") -> OffsetCommitRequest:
    partition = OffsetCommitPartition(index=0, committed_offset=0, committed_metadata=None)
    topics = (OffsetCommitTopic(name="orders", partitions=(partition,)),)
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics)


def test_commit_checks_member_and_epoch(client: RawClient) -> None:
    """The errors are STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID."""
    client.call(a_beat(), 1)

    codes = [
        code(only(only(client.call(commit, 9).topics).partitions))
        for commit in (a_commit(1), a_commit(0), a_commit(2), a_commit(1, "x"), a_commit(-1, ""))
    ]

    stale, unknown = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [ErrorCode.NONE, stale, stale, unknown, unknown]


def test_fetching_offsets_checks_member_and_epoch(client: RawClient) -> None:
    """As in Kafka, the error applies to the whole group; without a member there is no check."""
    client.call(a_beat(), 1)
    client.call(a_commit(1), 9)

    def fetched(member_id: str | None, epoch: int) -> Any:
        topics = (OffsetFetchTopic(name="orders", partition_indexes=(0,)),)
        group = OffsetFetchGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=topics)
        return only(client.call(OffsetFetchRequest(groups=(group,)), 9).groups)

    assert [code(fetched("m", epoch)) for epoch in (1, 0)] == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]
    assert code(fetched("x", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert only(only(fetched(None, -1).topics).partitions).committed_offset == 0


def test_offsets_of_subscribed_topics_are_not_deleted(client: RawClient) -> None:
    """The answer is GROUP_SUBSCRIBED_TO_TOPIC while a member subscribes to the topic."""
    client.call(a_beat(), 1)
    client.call(a_commit(1), 9)
    topics = (OffsetDeleteTopic(name="orders", partitions=(OffsetDeletePartition(index=0),)),)
    request = OffsetDeleteRequest(group_id="g", topics=topics)

    read = only(only(client.call(request, 0).topics).partitions)
    client.call(a_beat(epoch=-1), 1)
    unread = only(only(client.call(request, 0).topics).partitions)

    assert (code(read), code(unread)) == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)


# --- classic members -------------------------------------------------------------------------------------------------


def a_join(owned: tuple[int, ...] = (), **more: Any) -> JoinGroupRequest:
    owns = (TopicPartitions(topic="orders", partitions=owned),) if owned else ()
    metadata = write_subscription(ConsumerSubscription(topics=("orders",), owned_partitions=owns), 1)
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (JoinGroupProtocol(name="cooperative-sticky", metadata=metadata),),
    }
    return JoinGroupRequest(**{**fields, **more})


def test_classic_member_can_join_a_consumer_group(client: RawClient) -> None:
    """It joins, syncs, sends heartbeats and leaves with the messages of the classic protocol."""
    orders = topic_id(client)
    client.call(a_beat("a"), 1)
    joined = client.call(a_join(member_id=""), 3)
    assert (code(joined), joined.generation_id, joined.leader) == (ErrorCode.NONE, 2, "")
    client.call(a_beat("a", 1), 1)
    client.call(a_beat("a", 1, topic_partitions=(OwnedPartitions(topic_id=orders, partitions=(0,)),)), 1)

    beat = HeartbeatRequest(group_id="g", generation_id=2, member_id=joined.member_id)
    assert code(client.call(beat, 4)) == ErrorCode.REBALANCE_IN_PROGRESS
    again = client.call(a_join(member_id=joined.member_id), 9)
    sync = SyncGroupRequest(group_id="g", generation_id=again.generation_id, member_id=again.member_id, assignments=())
    given = read_assignment(client.call(sync, 5).assignment)
    assert given.assigned_partitions == (TopicPartitions(topic="orders", partitions=(1,)),)
    assert code(client.call(beat, 4)) == ErrorCode.NONE

    leaving = LeaveGroupRequest(group_id="g", members=(LeavingMember(member_id=joined.member_id),))
    assert code(only(client.call(leaving, 5).members)) == ErrorCode.NONE


def test_classic_group_with_unreadable_subscriptions_stays_classic(client: RawClient) -> None:
    """The coordinator could not assign partitions to such members."""
    client.call(a_join(member_id="", protocols=(JoinGroupProtocol(name="x", metadata=b""),)), 3)

    answer = client.call(a_beat(), 1)

    assert code(answer) == ErrorCode.GROUP_ID_NOT_FOUND


# --- requests that are not served ------------------------------------------------------------------------------------

_SHARE_FETCHES = (77, 78, 79)
_STREAMS_GROUPS = (88, 89)


def test_share_groups_are_refused_with_a_reason(client: RawClient) -> None:
    """KIP-932: as on a Kafka cluster without them; if the API is not advertised, librdkafka waits without an error."""
    beat = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=("orders",))

    answer = client.call(beat, 1)

    assert (code(answer), "not served" in answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, True)


def test_apis_of_share_and_streams_groups_are_not_advertised(client: RawClient) -> None:
    """KIP-1071: Streams checks the advertised APIs and reports that the cluster does not support them."""
    announced = {api.api_key for api in client.call(ApiVersionsRequest(), 0).api_keys}

    assert announced.isdisjoint((*_SHARE_FETCHES, *_STREAMS_GROUPS))
    assert {68, 69} <= announced
