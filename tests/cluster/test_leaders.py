"""Requests that a gateway passes on to the leaders of their partitions."""

import asyncio
from typing import Any

import pytest

from cluster.coordination import CLIENT, a_coordination
from hubmere.cluster import forwarding
from hubmere.cluster.upstream.failures import BrokerUnreachable
from hubmere.cluster.upstream.upstream import Leader
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

LEADER_NOT_AVAILABLE, UNKNOWN_PARTITION = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OneBroker:
    """A connection to a broker, which answers, is dead, or is frozen."""

    def __init__(self, state: str) -> None:
        self._state = state
        self.address = state
        self.is_closed = False

    def nearest_version(self, kind: type, version: int) -> int:
        return version

    async def send(self, body: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        if self._state == "frozen":
            await asyncio.Event().wait()
        topics = tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(index=part.index, error_code=0, offset=7) for part in topic.partitions
                ),
            )
            for topic in body.topics
        )
        return ListOffsetsResponse(topics=topics)

    def close(self, why: str) -> None:
        self.is_closed = True


class Brokers:
    """A cluster in which each partition of the topic `t` has the leader with its number."""

    def __init__(self, *states: str) -> None:
        self.brokers = [OneBroker(state) for state in states]
        self.refreshed: list[str] = []

    def leader(self, topic: str, partition: int) -> Leader | None:
        exists = partition < len(self.brokers) and self.brokers[partition].address != "none"
        return Leader(partition, 1) if exists else None

    def partition_count(self, topic: str) -> int:
        return len(self.brokers)

    async def connection(self, broker: int, lane: str) -> OneBroker:
        if self.brokers[broker].address == "dead":
            raise BrokerUnreachable("dead", "it has died")
        return self.brokers[broker]

    def name_lane(self, lane: str, client_id: str) -> None:
        """Lanes have no names here."""

    async def refresh_shared(self, topic: str) -> None:
        self.refreshed.append(topic)


def ask(brokers: Brokers, *partitions: int) -> dict[int, int]:
    """The error code of each partition in the answers, and of those without an answer."""
    parts = tuple(ListOffsetsPartition(index=index, timestamp_ms=-1) for index in partitions)
    body = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=parts),))
    found: tuple[list[Any], list[tuple[Any, ErrorCode]]] = asyncio.run(
        a_coordination(brokers).ask_leaders(CLIENT, body, 7)
    )
    codes = {part.index: part.error_code for topic in found[0] for part in topic.partitions}
    return codes | {part.index: code for topic, code in found[1] for part in topic.partitions}


@pytest.mark.parametrize("state", ["dead", "none", "frozen"])
def test_partition_without_a_leader_does_not_stop_the_others(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer asks its one broker, the gateway, for all partitions together.

    The broker of partition 5 has the number of the error code, which must not be mixed up.
    """
    # Only a frozen leader uses this time up; the others answer within it on a busy machine as well.
    monkeypatch.setattr(forwarding, "_LEADER_SECONDS", 3.0)
    brokers = Brokers("up", "up", "up", state, "up", "up")

    codes = ask(brokers, 0, 3, 5)

    assert codes == {0: 0, 3: LEADER_NOT_AVAILABLE, 5: 0}
    assert brokers.refreshed == ["t"]
    assert brokers.brokers[3].is_closed == (state == "frozen")


def test_partition_that_does_not_exist_is_named() -> None:
    """A leader that is not available is waited for, a partition that does not exist is not."""
    codes = ask(Brokers("up", "up", "up", "up"), 3, 4)

    assert codes == {3: 0, 4: UNKNOWN_PARTITION}


def test_topic_without_partitions_is_answered() -> None:
    """A request without an answer would block its connection."""
    assert ask(Brokers("up")) == {}
