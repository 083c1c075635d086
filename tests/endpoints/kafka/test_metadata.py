"""Metadata of the node and of topics, and topics that are created on request."""

from typing import Any
from uuid import UUID

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_produce, only
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.metadata import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)


def ask(client: RawClient, *names: str, version: int = 12, may_create: bool = False) -> Any:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    return client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=may_create), version)


@pytest.mark.parametrize("version", range(13))
def test_every_version_describes_the_same_topic(client: RawClient, version: int) -> None:
    """Reference check 8: one node is the leader of everything, and tools see one replica."""
    answer = ask(client, "orders", version=version)

    topic = answer.topics[0]
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, "orders")
    assert [(part.index, part.leader_id, part.replica_nodes, part.isr_nodes) for part in topic.partitions] == [
        (0, 0, (0,), (0,)),
        (1, 0, (0,), (0,)),
    ]
    assert [part.leader_epoch for part in topic.partitions] == [0 if version >= 7 else -1] * 2
    assert answer.controller_id == (0 if version >= 1 else -1)


def test_null_requests_all_topics_and_in_version_0_an_empty_list_does(client: RawClient) -> None:
    """Reference 2.6."""
    found = [
        [topic.name for topic in client.call(MetadataRequest(topics=topics), version).topics]
        for topics, version in ((None, 1), (None, 12), ((), 0), ((), 1), ((), 12))
    ]

    assert found == [["orders"], ["orders"], ["orders"], [], []]


@pytest.mark.parametrize("name", [None, ""])
def test_topic_is_found_by_its_id(client: RawClient, name: str | None) -> None:
    """Reference check 8: version 12 and consumer groups use ids; Java's consumer sends an empty name with them."""
    known = ask(client, "orders").topics[0].topic_id
    topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=name) for topic_id in (known, UUID(int=1)))

    found = client.call(MetadataRequest(topics=topics), 12).topics

    assert [(topic.name, topic.error_code) for topic in found] == [
        ("orders", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_unknown_topic_is_created_for_a_client_with_manage(node: KafkaNode, client: RawClient) -> None:
    """Reference check 9: it is created at once, with the node's default number of partitions."""
    topic = ask(client, "fresh", may_create=True).topics[0]

    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 2)
    assert only(client.call(a_produce(a_batch(b"x"), topic="fresh"), 9)).error_code == ErrorCode.NONE


def test_unknown_topic_is_not_created_if_the_request_does_not_allow_it(client: RawClient) -> None:
    """Reference check 9: consumers must not create topics by a typing error."""
    assert ask(client, "fresh").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_is_not_created_without_the_right_to_manage(node: KafkaNode) -> None:
    """Reference 1.1: creation needs Manage."""
    with RawClient(node, node.add_rule("sender", "Send")) as client:
        answer = ask(client.sign_in(), "fresh", may_create=True)

    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_is_not_created_if_auto_create_hubs_is_off() -> None:
    """`auto_create_hubs` is a setting of the node."""
    with KafkaNode(auto_create_hubs=False) as node, RawClient(node) as client:
        answer = ask(client.sign_in(), "fresh", may_create=True)

    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["a b", "", "x" * 300, "-"])
def test_topic_with_an_invalid_name_is_not_created(client: RawClient, name: str) -> None:
    """The naming rules are those of hubs."""
    assert ask(client, name, may_create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_another_spelling_of_a_hub_is_an_unknown_topic_that_cannot_be_created(client: RawClient) -> None:
    """Hub names are unique in any case, but topics are found only by their exact spelling."""
    topic = ask(client, "Orders", may_create=True).topics[0]

    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topics_are_answered_in_the_order_of_the_request(client: RawClient) -> None:
    """Some exist, some are created, some cannot be created."""
    answer = ask(client, "new-one", "orders", "no way", may_create=True)

    assert [topic.name for topic in answer.topics] == ["new-one", "orders", "no way"]
    assert [bool(topic.error_code) for topic in answer.topics] == [False, False, True]


def test_cluster_id_is_the_same_in_metadata_and_describe_cluster(client: RawClient) -> None:
    """Reference 2.14: tools compare the two."""
    described = client.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)

    seen = ask(client)
    assert described.cluster_id == seen.cluster_id
    assert len(described.cluster_id) == 22
    assert [(node.broker_id, node.host, node.port) for node in described.brokers] == [
        (node.node_id, node.host, node.port) for node in seen.brokers
    ]


def test_namespace_of_a_tier_without_kafka_has_no_topics() -> None:
    """Reference 1.1: in the basic tier every topic is refused."""
    with KafkaNode(book=LimitsBook(profile=Profile.BASIC)) as node, RawClient(node) as client:
        client.sign_in()

        assert client.call(MetadataRequest(topics=None), 12).topics == ()
        assert ask(client, "orders").topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
