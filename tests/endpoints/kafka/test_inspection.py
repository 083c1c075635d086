"""Requests of administration tools: pages of partitions, sizes of logs, producers and access lists."""

from itertools import chain
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_produce
from endpoints.kafka.test_transactions import an_end, an_enlisting, start, write
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.acls import DescribeAclsRequest
from hubmere.wire.kafka.messages.admin import DescribeLogDirsRequest, LogDirTopic
from hubmere.wire.kafka.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    TopicCursor,
)
from hubmere.wire.kafka.messages.transactions import DescribeProducersRequest, DescribeProducersTopic


def pages(client: RawClient, limit: int, *names: str) -> list[list[tuple[str, int]]]:
    """Topic and partition of each page."""
    topics = tuple(DescribeTopicPartitionsTopic(name=name) for name in names)
    results: list[list[tuple[str, int]]] = []
    cursor: TopicCursor | None = None
    while not results or cursor is not None:
        request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        answer = client.call(request, 0)
        results.append([(topic.name, part.index) for topic in answer.topics for part in topic.partitions])
        cursor = answer.next_cursor
    return results


# --- DescribeTopicPartitions -----------------------------------------------------------------------------------------


def test_partitions_are_returned_in_pages() -> None:
    """KIP-966: a page has at most the requested number, in the order of names, and each partition once."""
    with KafkaNode({"b": 3, "a": 2, "c": 1}) as node, RawClient(node) as client:
        client.sign_in()
        everything = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]

        by_limit = {limit: pages(client, limit) for limit in (-1, 1, 2, 4, 100)}
        named = pages(client, 100, "c", "a")

    assert {limit: list(chain.from_iterable(result)) for limit, result in by_limit.items()} == dict.fromkeys(
        by_limit, everything
    )
    assert by_limit[4] == [everything[:4], everything[4:]]
    assert [len(page) for page in by_limit[-1]] == [1] * 6
    assert named == [[("a", 0), ("a", 1), ("c", 0)]]


def test_a_described_topic_equals_that_of_metadata(client: RawClient) -> None:
    """Java 4 uses this request first."""
    named = DescribeTopicPartitionsRequest(topics=(DescribeTopicPartitionsTopic(name="orders"),))

    topic = client.call(named, 0).topics[0]
    result = client.call(MetadataRequest(topics=(MetadataRequestTopic(name="orders"),)), 12).topics[0]

    assert (topic.error_code, topic.topic_id, len(topic.partitions)) == (0, result.topic_id, len(result.partitions))
    ours, theirs = topic.partitions[0], result.partitions[0]
    assert (ours.leader_id, ours.leader_epoch, ours.isr_nodes) == (theirs.leader_id, theirs.leader_epoch, (0,))
    # Null would be valid, but causes a null pointer in Java's admin client.
    assert (ours.eligible_leader_replicas, ours.last_known_elr) == ((), ())


def test_unknown_topic_is_not_created(client: RawClient) -> None:
    """Describing a topic does not create it."""
    named = DescribeTopicPartitionsRequest(topics=(DescribeTopicPartitionsTopic(name="nothing"),))

    topic = client.call(named, 0).topics[0]

    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
    assert "nothing" not in [one.name for one in client.call(MetadataRequest(topics=None), 12).topics]


# --- DescribeLogDirs -------------------------------------------------------------------------------------------------


def sizes(client: RawClient, topics: tuple[LogDirTopic, ...] | None, version: int = 4) -> dict[tuple[str, int], int]:
    answer = client.call(DescribeLogDirsRequest(topics=topics), version)
    assert [folder.error_code for folder in answer.results] == [ErrorCode.NONE]
    return {
        (topic.name, part.index): part.size_bytes for topic in answer.results[0].topics for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(5))
def test_sizes_of_partitions_are_returned(client: RawClient, version: int) -> None:
    """Only the requested partitions are returned; unknown ones are omitted."""
    batch = a_batch(b"x" * 100)
    client.call(a_produce(batch), 9)

    result = sizes(
        client, (LogDirTopic(name="orders", partitions=(0, 99)), LogDirTopic(name="no", partitions=(0,))), version
    )

    assert result == {("orders", 0): len(batch)}


def test_sizes_are_returned_to_managers_only(node: KafkaNode, client: RawClient) -> None:
    """Readers must not see how much others write."""
    with RawClient(node, node.add_rule("reader", "Listen")) as reader:
        result = sizes(reader.sign_in(), None)

    assert result == {}
    assert ("orders", 0) in sizes(client, None)


# --- DescribeProducers -----------------------------------------------------------------------------------------------


def producers(client: RawClient, topic: str = "orders", partition: int = 0) -> Any:
    wanted = DescribeProducersTopic(name=topic, partition_indexes=(partition,))
    return client.call(DescribeProducersRequest(topics=(wanted,)), 0).topics[0].partitions[0]


def test_producers_and_their_open_transactions_are_returned(client: RawClient) -> None:
    """KIP-664: `kafka-transactions find-hanging` uses this."""
    client.call(a_produce(a_batch(b"before")), 9)
    producer = start(client)
    client.call(an_enlisting(producer), 3)
    write(client, producer, 0, b"x")

    during = producers(client).active_producers
    client.call(an_end(producer), 3)
    after = producers(client).active_producers

    assert [(one.producer_id, one.producer_epoch, one.last_sequence) for one in during] == [(*producer, 0)]
    assert (during[0].current_txn_start_offset, after[0].current_txn_start_offset) == (1, -1)


@pytest.mark.parametrize(("topic", "partition"), [("orders", 99), ("orders", -1), ("nothing", 0)])
def test_producers_of_an_unknown_partition_are_refused(client: RawClient, topic: str, partition: int) -> None:
    """There is an error code for each partition."""
    assert producers(client, topic, partition).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_sender_may_not_see_other_producers(node: KafkaNode) -> None:
    """Kafka also requires the right to read."""
    with RawClient(node, node.add_rule("sender", "Send")) as sender:
        result = producers(sender.sign_in())

    assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# --- DescribeAcls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_acls_are_reported_as_disabled(client: RawClient, version: int) -> None:
    """MirrorMaker recognises this answer and continues."""
    everything = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None, operation=1,
        permission_type=1,
    )  # fmt: skip

    answer = client.call(everything, version)

    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, ())
    assert "rules" in answer.error_message
