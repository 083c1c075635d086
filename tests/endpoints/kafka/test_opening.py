"""Kafka requests for a partition whose log is being opened: they wait, others do not, and no state is left."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from broker.gates import Gate, expire
from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.model.errors import StorageFull
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from hubmere.wire.kafka.messages.fetch import (
    LATEST_TIMESTAMP,
    EpochPartition,
    EpochTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
)
from hubmere.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from hubmere.wire.kafka.messages.transactions import DescribeProducersRequest, DescribeProducersTopic

PATIENCE_S = 240.0


def a_gate(node: KafkaNode) -> Gate:
    """Delay the opening of partition 0 of `orders`; partition 1 opens at once."""
    return node.call(lambda: Gate(node.hub(), 0))


def await_waiting(node: KafkaNode, gate: Gate, count: int) -> None:
    """Wait until a number of requests wait."""
    deadline = time.monotonic() + PATIENCE_S
    while node.call(lambda: gate.waiting.count) != count:
        assert time.monotonic() < deadline


def let_time_pass(node: KafkaNode) -> None:
    """Advance time by the longest wait that a request is allowed."""
    node.call(lambda: expire(node.broker.upkeep, node._clock.monotonic()))


def list_offsets() -> ListOffsetsRequest:
    part = ListOffsetsPartition(index=0, timestamp_ms=LATEST_TIMESTAMP)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(ListOffsetsTopic(name="orders", partitions=(part,)),)
    )


def epoch_end() -> OffsetForLeaderEpochRequest:
    part = EpochPartition(index=0, current_leader_epoch=-1, leader_epoch=0)
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=(EpochTopic(name="orders", partitions=(part,)),))


def delete_records() -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(index=0, offset=0)
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="orders", partitions=(part,)),), timeout_ms=1000)


def producers() -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=(DescribeProducersTopic(name="orders", partition_indexes=(0,)),))


WAITING: dict[str, tuple[Callable[[], Any], int]] = {
    "produce": (lambda: a_produce(a_batch(b"x")), 9),
    "produce with acks=1": (lambda: a_produce(a_batch(b"x"), acks=1), 9),
    "ListOffsets": (list_offsets, 5),
    "OffsetForLeaderEpoch": (epoch_end, 3),
    "DeleteRecords": (delete_records, 1),
    "DescribeProducers": (producers, 0),
}


@pytest.mark.parametrize("name", WAITING)
def test_request_waits_and_is_answered_when_the_log_is_open(node: KafkaNode, client: RawClient, name: str) -> None:
    """Another client publishes and reads meanwhile; the answer is that of an open log."""
    build, version = WAITING[name]
    gate = a_gate(node)
    client.sign_in().send(build(), version)
    await_waiting(node, gate, 1)

    with RawClient(node) as other:
        produced = only(other.sign_in().call(a_produce(a_batch(b"y"), partition=1), 9))
        fetched = only(other.call(a_fetch(partition=1), 11))
    node.call(gate.release)
    answer = only(client.answer())

    assert (produced.error_code, fetched.error_code, fetched.high_watermark) == (0, 0, 1)
    assert answer.error_code == ErrorCode.NONE
    assert node.call(lambda: gate.waiting.count) == 0


@pytest.mark.parametrize("name", WAITING)
def test_request_that_waited_too_long_gets_an_error_that_clients_retry(
    node: KafkaNode, client: RawClient, name: str
) -> None:
    """The error is NOT_LEADER_OR_FOLLOWER: clients refresh metadata and retry."""
    build, version = WAITING[name]
    gate = a_gate(node)
    client.sign_in().send(build(), version)
    await_waiting(node, gate, 1)

    let_time_pass(node)

    assert only(client.answer()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.call(lambda: gate.waiting.count) == 0


@pytest.mark.parametrize("name", WAITING)
def test_log_that_cannot_be_opened_is_answered_with_its_error(node: KafkaNode, client: RawClient, name: str) -> None:
    """The error is the same as if the log had been opened inside the request."""
    build, version = WAITING[name]
    gate = a_gate(node)
    client.sign_in().send(build(), version)
    await_waiting(node, gate, 1)

    node.call(lambda: gate.fail(StorageFull("no space")))

    assert only(client.answer()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("name", [name for name in WAITING if "produce" not in name])
def test_client_that_disconnects_while_it_waits_leaves_nothing_behind(node: KafkaNode, name: str) -> None:
    """Neither a waiting request nor a connection remains."""
    build, version = WAITING[name]
    gate = a_gate(node)
    with RawClient(node) as client:
        client.sign_in().send(build(), version)
        await_waiting(node, gate, 1)

    await_waiting(node, gate, 0)
    node.call(gate.release)

    assert node.end_of() == 0


def test_publication_of_a_client_that_disconnects_is_stored_once(node: KafkaNode) -> None:
    """As with an open log, the batch was accepted before the client disconnected."""
    gate = a_gate(node)
    with RawClient(node) as client:
        client.sign_in().send(a_produce(a_batch(b"x")), 9)
        await_waiting(node, gate, 1)

    node.call(gate.release)

    assert (node.end_of(), node.call(lambda: gate.waiting.count)) == (1, 0)


def test_responses_keep_the_order_of_the_requests(node: KafkaNode, client: RawClient) -> None:
    """Kafka clients match responses by order: a finished one waits for an earlier one."""
    gate = a_gate(node)
    client.sign_in()
    for partition, values in ((0, 1), (1, 2), (0, 3)):
        client.send(a_produce(a_batch(*[b"x"] * values), partition=partition), 9)
    await_waiting(node, gate, 2)
    is_stored = node.end_of(partition=1)

    node.call(gate.release)
    answers = [only(client.answer()) for _ in range(3)]

    assert is_stored == 2
    assert [(answer.index, answer.base_offset, answer.error_code) for answer in answers] == [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
    ]


def test_fetch_is_woken_when_the_log_is_open(node: KafkaNode, client: RawClient) -> None:
    """It waits like a fetch at the end of a partition; one with max_wait 0 gets no events and no error."""
    gate = a_gate(node)
    client.sign_in()
    at_once = only(client.call(a_fetch(), 11))
    client.send(a_fetch(max_wait_ms=200_000), 11)
    await_waiting(node, gate, 1)

    with RawClient(node) as other:
        other.sign_in().send(a_produce(a_batch(b"x")), 9)
        await_waiting(node, gate, 2)
        node.call(gate.release)
        stored = only(other.answer())
    fetched = only(client.answer())

    assert (at_once.error_code, at_once.high_watermark, at_once.records) == (ErrorCode.NONE, -1, b"")
    assert stored.error_code == ErrorCode.NONE
    assert (fetched.error_code, fetched.high_watermark, len(fetched.records) > 0) == (ErrorCode.NONE, 1, True)


def test_fetch_of_a_log_that_cannot_be_opened_gets_its_error(node: KafkaNode, client: RawClient) -> None:
    """The consumer must not wait for a damaged partition."""
    gate = a_gate(node)
    client.sign_in().send(a_fetch(max_wait_ms=200_000), 11)
    await_waiting(node, gate, 1)

    node.call(lambda: gate.fail(StorageFull("no space")))

    assert only(client.answer()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_metadata_omits_the_epoch_of_a_log_that_takes_long_to_open(node: KafkaNode, client: RawClient) -> None:
    """A client of another partition needs the metadata now; clients do not check a missing epoch."""
    gate = a_gate(node)
    request = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),), allow_auto_topic_creation=False)
    client.sign_in().send(request, 9)
    await_waiting(node, gate, 1)

    let_time_pass(node)
    described = client.answer().topics[0].partitions
    node.call(gate.release)
    later = client.call(request, 9).topics[0].partitions

    assert [part.leader_epoch for part in described] == [-1, 0]
    assert [part.leader_epoch for part in later] == [0, 0]
