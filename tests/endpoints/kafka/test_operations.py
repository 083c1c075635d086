"""KIP-430: operations are returned on request, and are those that the caller's rights allow."""

from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient
from hubmere.endpoints.kafka.admin.operations import Operation
from hubmere.wire.kafka.messages.groups import DescribeGroupsRequest
from hubmere.wire.kafka.messages.metadata import (
    NO_OPERATIONS,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    MetadataRequest,
    MetadataRequestTopic,
)

_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_SEEN = {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
_CHANGED = {_DELETE, Operation.ALTER, Operation.ALTER_CONFIGS}


def operations(bits: int) -> set[Operation]:
    assert bits >= 0
    named = {operation for operation in Operation if bits >> operation & 1}
    assert sum(1 << operation for operation in named) == bits
    return named


def metadata(client: RawClient, *, is_asked: bool, version: int = 10) -> Any:
    return client.call(
        MetadataRequest(
            topics=(MetadataRequestTopic(name="orders"),),
            include_cluster_authorized_operations=is_asked,
            include_topic_authorized_operations=is_asked,
        ),
        version,
    )


@pytest.mark.parametrize(
    ("rights", "hub", "on_topic", "on_cluster", "on_group"),
    [
        (("Listen",), None, {_READ, *_SEEN}, _SEEN, {_READ, Operation.DESCRIBE}),
        (("Send",), None, {_WRITE, *_SEEN}, {Operation.IDEMPOTENT_WRITE, *_SEEN}, None),
        (
            ("Manage", "Send", "Listen"),
            "orders",
            {_READ, _WRITE, *_SEEN, *_CHANGED},
            {Operation.IDEMPOTENT_WRITE, *_SEEN},
            {_READ, Operation.DESCRIBE},
        ),
        (
            ("Manage", "Send", "Listen"),
            None,
            {_READ, _WRITE, _CREATE, *_SEEN, *_CHANGED},
            {_CREATE, Operation.IDEMPOTENT_WRITE, *_SEEN},
            {_READ, _DELETE, Operation.DESCRIBE},
        ),
    ],
    ids=["listener", "sender", "hub-manager", "manager"],
)
def test_authorized_operations_follow_the_rights(
    node: KafkaNode,
    rights: tuple[str, ...],
    hub: str | None,
    on_topic: set[Operation],
    on_cluster: set[Operation],
    on_group: set[Operation] | None,
) -> None:
    """Tools hide operations that are not allowed."""
    with RawClient(node, node.add_rule("one", *rights, hub=hub)) as client:
        found = metadata(client.sign_in(), is_asked=True)
        cluster = client.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
        asked = (DescribeTopicPartitionsTopic(name="orders"),)
        paged = client.call(DescribeTopicPartitionsRequest(topics=asked), 0)
        groups = client.call(DescribeGroupsRequest(groups=("g",), include_authorized_operations=True), 5)

    assert operations(found.topics[0].topic_authorized_operations) == on_topic
    assert operations(paged.topics[0].topic_authorized_operations) == on_topic
    assert operations(found.cluster_authorized_operations) == on_cluster
    assert operations(cluster.cluster_authorized_operations) == on_cluster
    if on_group is None:
        assert groups.groups[0].authorized_operations == NO_OPERATIONS
    else:
        assert operations(groups.groups[0].authorized_operations) == on_group


def test_authorized_operations_are_returned_only_on_request(client: RawClient) -> None:
    """Otherwise the field has the smallest number, as in Kafka."""
    found = metadata(client, is_asked=False)
    cluster = client.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    group = client.call(DescribeGroupsRequest(groups=("g",)), 5).groups[0]

    assert found.topics[0].topic_authorized_operations == NO_OPERATIONS
    assert found.cluster_authorized_operations == cluster.cluster_authorized_operations == NO_OPERATIONS
    assert group.authorized_operations == NO_OPERATIONS
