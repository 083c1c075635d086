"""Produce requests to many partitions, which are handled in several turns of the loop."""

from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

VERSION = 9
REQUESTS = 5


def a_produce_to(*partitions: int, acks: int) -> ProduceRequest:
    """One event to each of these partitions."""
    parts = tuple(ProducePartition(index=index, records=a_batch()) for index in partitions)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topics=(ProduceTopic(name="orders", partitions=parts),))


def offsets_of(response: Any) -> list[tuple[int, int]]:
    return [(part.index, part.base_offset) for topic in response.topics for part in topic.partitions]


@pytest.fixture(autouse=True)
def _one_partition_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubmere.endpoints.kafka.produce.produce.MAX_UNSLICED_PARTITIONS", 1)
    monkeypatch.setattr("hubmere.endpoints.kafka.slices.SLICE_ENTRIES", 1)


@pytest.mark.usefixtures("either_loop")
@pytest.mark.parametrize("acks", [-1, 1])
def test_every_partition_is_answered_once_and_in_order(acks: int) -> None:
    """A partition may be committed before the next one of the request is published."""
    with KafkaNode() as node, RawClient(node) as client:
        client.sign_in()
        for _ in range(REQUESTS):
            client.send(a_produce_to(0, 1, acks=acks), VERSION)
        answers = [offsets_of(client.answer()) for _ in range(REQUESTS)]

    assert answers == [[(0, number), (1, number)] for number in range(REQUESTS)]


@pytest.mark.usefixtures("either_loop")
def test_refused_partition_does_not_affect_the_others() -> None:
    """The error of one partition is in its own part of the answer."""
    with KafkaNode() as node, RawClient(node) as client:
        client.sign_in()
        answer = client.call(a_produce_to(0, 99, 1, acks=-1), VERSION)

    codes = [part.error_code for part in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_client_that_does_not_wait_for_an_answer_may_close_its_connection() -> None:
    """With acks=0 the whole request is handled at once: nothing of it is lost with the connection."""
    with KafkaNode() as node:
        with RawClient(node) as client:
            client.sign_in()
            client.send(a_produce_to(0, 1, acks=0), VERSION)
        with RawClient(node) as client:
            client.sign_in()
            answers: list[list[tuple[int, int]]] = []
            while not answers or answers[-1] != [(0, len(answers)), (1, len(answers))]:
                answers.append(offsets_of(client.call(a_produce_to(0, 1, acks=-1), VERSION)))
                assert len(answers) < 100
