"""Access to Kafka groups: a credential for one hub cannot use a group that reads another hub."""

from collections.abc import Iterator
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, only
from endpoints.kafka.test_groups import METADATA, a_commit, a_join, a_sync, committed
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from hubmere.wire.kafka.messages.consumer_protocol import ConsumerSubscription, write_subscription
from hubmere.wire.kafka.messages.groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupProtocol,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
)
from hubmere.wire.kafka.messages.offsets import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
)
from hubmere.wire.kafka.messages.transactions import (
    AddOffsetsToTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)

_FORBIDDEN = ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.fixture
def node() -> Iterator[KafkaNode]:
    with KafkaNode({"orders": 1, "secrets": 1}) as node:
        yield node


@pytest.fixture
def root(node: KafkaNode) -> Iterator[RawClient]:
    with RawClient(node) as client:
        yield client.sign_in()


@pytest.fixture
def confined(node: KafkaNode) -> Iterator[RawClient]:
    """A client that may listen and send only on `orders`."""
    with RawClient(node, node.add_rule("own", "Listen", "Send", hub="orders")) as client:
        yield client.sign_in()


def reading(*topics: str) -> tuple[JoinGroupProtocol, ...]:
    metadata = write_subscription(ConsumerSubscription(topics=topics))
    return (JoinGroupProtocol(name="range", metadata=metadata),)


def join(client: RawClient, *topics: str, group_id: str = "g", **more: Any) -> Any:
    return client.call(a_join(group_id=group_id, protocols=reading(*topics), **more), 3)


def a_group_of(root: RawClient, *topics: str, group_id: str = "g", **more: Any) -> Any:
    """A stable group with one member."""
    version = 5 if more else 3
    joined = root.call(a_join(group_id=group_id, protocols=reading(*topics), **more), version)
    sync = a_sync(joined, (joined.member_id, b"all"))
    assert root.call(type(sync)(**{**_fields(sync), "group_id": group_id}), 3).error_code == ErrorCode.NONE
    return joined


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in ("generation_id", "member_id", "assignments")}


def described(client: RawClient, group_id: str = "g") -> Any:
    return client.call(DescribeGroupsRequest(groups=(group_id,)), 4).groups[0]


def listed(client: RawClient) -> list[str]:
    return [group.group_id for group in client.call(ListGroupsRequest(), 4).groups]


# --- groups of others ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", [("secrets",), ("orders", "secrets")])
def test_group_that_reads_another_hub_cannot_be_used(
    root: RawClient, confined: RawClient, topics: tuple[str, ...]
) -> None:
    """It is neither listed nor described, and cannot be joined; its members are not affected."""
    member = a_group_of(root, *topics)

    refused = [described(confined), join(confined, "orders")]
    beat = root.call(HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id), 3)

    assert [answer.error_code for answer in refused] == [_FORBIDDEN] * 2
    assert refused[0].members == ()
    assert (listed(confined), listed(root)) == ([], ["g"])
    assert beat.error_code == ErrorCode.NONE
    assert len(described(root).members) == 1


def test_group_with_offsets_of_another_hub_cannot_be_used(root: RawClient, confined: RawClient) -> None:
    """This holds without members too: the offsets belong to that hub."""
    root.call(a_commit(7, topic="secrets"), 8)
    topic = OffsetDeleteTopic(name="orders", partitions=(OffsetDeletePartition(index=0),))

    commit = only(confined.call(a_commit(1), 8))
    fetched = confined.call(OffsetFetchRequest(group_id="g", topics=None), 7)
    deleted = confined.call(OffsetDeleteRequest(group_id="g", topics=(topic,)), 0)

    assert {answer.error_code for answer in (described(confined), join(confined, "orders"))} == {_FORBIDDEN}
    assert (commit.error_code, fetched.error_code, deleted.error_code) == (_FORBIDDEN,) * 3
    assert (fetched.topics, listed(confined)) == ((), [])


def test_static_member_of_another_hub_cannot_be_removed(root: RawClient, confined: RawClient) -> None:
    """Instance ids are not secret."""
    a_group_of(root, "secrets", group_instance_id="first")
    member = LeavingMember(member_id="", group_instance_id="first")

    answer = confined.call(LeaveGroupRequest(group_id="g", members=(member,)), 3)

    assert [left.error_code for left in answer.members] == [_FORBIDDEN]
    assert len(described(root).members) == 1


def test_transaction_cannot_commit_offsets_for_a_group_of_another_hub(root: RawClient, confined: RawClient) -> None:
    """Neither the group nor an offset can be added to the transaction."""
    root.call(a_commit(7, topic="secrets"), 8)
    started = confined.call(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 3)
    producer = {"transactional_id": "t", "producer_id": started.producer_id, "producer_epoch": started.producer_epoch}
    part = TxnOffsetCommitPartition(index=0, committed_offset=1, committed_metadata="")
    topics = (TxnOffsetCommitTopic(name="orders", partitions=(part,)),)

    enlisted = confined.call(AddOffsetsToTxnRequest(group_id="g", **producer), 3)
    pended = only(confined.call(TxnOffsetCommitRequest(group_id="g", topics=topics, **producer), 3))

    assert (enlisted.error_code, pended.error_code) == (_FORBIDDEN, _FORBIDDEN)


# --- subscriptions of members ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", [("secrets",), ("orders", "secrets"), ("not-there",)])
def test_member_can_subscribe_only_to_hubs_that_it_may_read(confined: RawClient, topics: tuple[str, ...]) -> None:
    """Otherwise a leader would assign it partitions of other hubs."""
    assert join(confined, *topics).error_code == _FORBIDDEN
    assert listed(confined) == []


@pytest.mark.parametrize(
    "more",
    [
        {"protocol_type": "connect", "protocols": (JoinGroupProtocol(name="sessioned", metadata=b"x"),)},
        {"protocols": (JoinGroupProtocol(name="range", metadata=b"\0"),)},
    ],
    ids=["connect", "undecodable"],
)
def test_member_with_an_unknown_subscription_needs_a_credential_of_the_namespace(
    root: RawClient, confined: RawClient, more: dict[str, Any]
) -> None:
    """Connect workers and similar clients may read any hub."""
    assert confined.call(a_join(**more), 3).error_code == _FORBIDDEN
    assert root.call(a_join(**more), 3).error_code == ErrorCode.NONE
    assert described(confined).error_code == _FORBIDDEN


def test_client_of_one_hub_can_have_its_own_groups(confined: RawClient) -> None:
    """It joins, commits, fetches its offsets and describes the group."""
    member = a_group_of(confined, "orders", group_id="g")

    beat = confined.call(HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id), 3)
    commit = confined.call(a_commit(5, generation_id_or_member_epoch=1, member_id=member.member_id), 8)

    assert (beat.error_code, only(commit).error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert committed(confined).committed_offset == 5
    assert (described(confined).error_code, len(described(confined).members)) == (ErrorCode.NONE, 1)
    assert listed(confined) == ["g"]
    assert described(confined).members[0].member_metadata == METADATA


def test_clients_of_one_hub_share_a_group(node: KafkaNode, root: RawClient, confined: RawClient) -> None:
    """Clients of the same hub with another credential may join."""
    a_group_of(root, "orders")

    with RawClient(node, node.add_rule("other", "Listen", hub="orders")) as other:
        assert described(other.sign_in()).error_code == ErrorCode.NONE
    assert listed(confined) == ["g"]


def test_member_does_not_see_other_members_that_read_more() -> None:
    """They joined while it waited: a leader would get their subscriptions."""
    with (
        KafkaNode({"orders": 1, "secrets": 1}, initial_delay_s=0.3) as node,
        RawClient(node) as root,
        RawClient(node, node.add_rule("own", "Listen", hub="orders")) as confined,
    ):
        root.sign_in()
        confined.sign_in()
        with node.held():
            confined.send(a_join(protocols=reading("orders")), 3)
            root.send(a_join(protocols=reading("secrets")), 3)

        refused, joined = confined.answer(), root.answer()

    assert (refused.error_code, refused.members) == (_FORBIDDEN, ())
    assert joined.error_code == ErrorCode.NONE


# --- everybody else --------------------------------------------------------------------------------------------------


def test_listener_of_the_namespace_can_use_every_group(node: KafkaNode, root: RawClient) -> None:
    """Its rule covers the namespace."""
    a_group_of(root, "secrets")
    with RawClient(node, node.add_rule("listener", "Listen")) as listener:
        listener.sign_in()

        assert described(listener).error_code == ErrorCode.NONE
        assert listed(listener) == ["g"]


def test_consumer_group_of_another_hub_cannot_be_used(root: RawClient, confined: RawClient) -> None:
    """The newer protocol (KIP-848) has the same rule."""

    def beat(client: RawClient, member_id: str) -> Any:
        return client.call(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=("secrets",) if client is root else ("orders",),
                topic_partitions=(),
            ),
            1,
        )

    mine = beat(root, "first")
    theirs = beat(confined, "second")
    seen = confined.call(ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False), 0)

    assert (mine.error_code, theirs.error_code) == (ErrorCode.NONE, _FORBIDDEN)
    assert [group.error_code for group in seen.groups] == [_FORBIDDEN]
    assert listed(confined) == []
