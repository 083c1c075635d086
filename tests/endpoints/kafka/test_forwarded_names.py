"""Names of topics and groups in requests that a gateway forwards, also inside the bytes of consumers."""

import pytest

from hubmere.endpoints.kafka.forward.names import map_assignment, map_names, map_subscription
from hubmere.wire.kafka.messages.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from hubmere.wire.kafka.messages.fetch import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from hubmere.wire.kafka.messages.groups import JoinGroupProtocol, JoinGroupRequest
from hubmere.wire.kafka.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from hubmere.wire.kafka.messages.transactions import AddOffsetsToTxnRequest


def topic(name: str) -> str:
    return f"t-{name}"


def group(name: str) -> str:
    return f"g-{name}"


def transaction(name: str) -> str:
    return f"x-{name}"


def test_topics_and_groups_of_a_commit_are_renamed() -> None:
    """The message declarations define where names are; offsets and metadata do not change."""
    part = OffsetCommitPartition(index=1, committed_offset=7, committed_metadata="orders")
    request = OffsetCommitRequest(
        group_id="readers", member_id="m", topics=(OffsetCommitTopic(name="orders", partitions=(part,)),)
    )

    renamed = map_names(request, topic=topic, group=group, transaction=transaction)

    assert renamed.group_id == "g-readers"
    assert renamed.member_id == "m"
    assert renamed.topics == (OffsetCommitTopic(name="t-orders", partitions=(part,)),)


def test_a_transaction_is_renamed_with_its_group() -> None:
    """Offsets that are committed with a transaction go to the coordinator of the group."""
    request = AddOffsetsToTxnRequest(transactional_id="pay", producer_id=1, producer_epoch=0, group_id="readers")

    renamed = map_names(request, topic=topic, group=group, transaction=transaction)

    assert (renamed.transactional_id, renamed.group_id) == ("x-pay", "g-readers")


def test_names_in_lists_of_groups_are_renamed() -> None:
    """OffsetFetch can name many groups since KIP-709."""
    asked = OffsetFetchGroup(group_id="a", topics=(OffsetFetchTopic(name="orders", partition_indexes=(0, 1)),))

    renamed = map_names(OffsetFetchRequest(groups=(asked,)), topic=topic, group=group, transaction=transaction)

    assert renamed.groups[0].group_id == "g-a"
    assert renamed.groups[0].topics[0].name == "t-orders"


def test_names_of_protocols_are_not_topics() -> None:
    """A field `name` without partitions is not a topic."""
    request = JoinGroupRequest(
        group_id="a",
        session_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupProtocol(name="range", metadata=b""),),
    )

    assert map_names(request, topic=topic, group=group, transaction=transaction).protocols[0].name == "range"


def test_topics_of_list_offsets_are_renamed() -> None:
    """ListOffsets goes to the leaders of the partitions."""
    part = ListOffsetsPartition(index=0, timestamp_ms=-1)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="orders", partitions=(part,)),))

    assert map_names(request, topic=topic, group=group, transaction=transaction).topics[0].name == "t-orders"


@pytest.mark.parametrize("version", range(4))
def test_topics_inside_a_subscription_are_renamed(version: int) -> None:
    """Kafka's coordinator expires offsets of topics without subscribers, so it must see the names of the cluster."""
    owned = TopicPartitions(topic="orders", partitions=(0,)) if version else None
    subscription = ConsumerSubscription(
        topics=("orders", "bills"), user_data=b"x", owned_partitions=() if owned is None else (owned,)
    )
    data = write_subscription(subscription, version)

    renamed = map_subscription(data, topic)

    assert renamed[:2] == data[:2]
    found = read_subscription(renamed)
    assert (found.topics, found.user_data) == (("t-orders", "t-bills"), b"x")
    assert [each.topic for each in found.owned_partitions] == (["t-orders"] if version else [])
    assert map_subscription(renamed, lambda name: name.removeprefix("t-")) == data


def test_topics_inside_an_assignment_are_renamed_in_both_directions() -> None:
    """The leader and the members use the client's names."""
    assigned = ConsumerAssignment(assigned_partitions=(TopicPartitions(topic="orders", partitions=(0, 3)),))
    data = write_assignment(assigned)

    renamed = map_assignment(data, topic)

    assert read_assignment(renamed).assigned_partitions[0].topic == "t-orders"
    assert map_assignment(renamed, lambda name: name.removeprefix("t-")) == data


@pytest.mark.parametrize("data", [b"", b"\x00", b"connect's own bytes"])
def test_bytes_of_other_protocols_are_not_changed(data: bytes) -> None:
    """Kafka Connect and others use their own formats."""
    assert map_assignment(data, topic) == data
    assert map_subscription(data, topic) == data
