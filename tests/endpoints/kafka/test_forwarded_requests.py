"""Requests that a gateway passes on to its cluster: each is answered, and one hub does not stop the others."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.forward.consumer_groups import HANDLERS as NEWER_GROUPS
from hubmere.endpoints.kafka.forward.forwarded import ForwardedRequest, forwarded_handler
from hubmere.endpoints.kafka.forward.handlers import HANDLERS
from hubmere.endpoints.kafka.forward.port import CoordinationFailed
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.model.errors import HubNotFound
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.consumer_groups import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from hubmere.wire.kafka.messages.groups import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from hubmere.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResponse,
)

HUBS = ("orders", "damaged")


class Cluster:
    """A cluster whose topic of the hub `damaged` is gone. `answer` answers what is passed on."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self.asked: list[Any] = []
        self._subscriptions: dict[tuple[str, str], Any] = {}

    def topic_of(self, hub_uid: str) -> str:
        return f"hub.{hub_uid}"

    def uid_of(self, topic: str) -> str | None:
        return topic.removeprefix("hub.") if topic.startswith("hub.") else None

    def group_of(self, namespace: str, group_id: str) -> str:
        return group_id

    def local_group_of(self, namespace: str, group: str) -> str | None:
        return group

    def begin_client(self, client: str, client_id: str) -> None:
        """Nothing to do."""

    def end_client(self, client: str) -> None:
        """Nothing to do."""

    def subscriptions_of(self, client: str) -> dict[tuple[str, str], Any]:
        return self._subscriptions

    async def provide(self, topics: Sequence[str]) -> None:
        if "hub.damaged" in topics:
            raise CoordinationFailed("the topic was deleted by hand")

    async def ask_coordinator(self, client: str, group: str, body: object, version: int) -> Any:
        self.asked.append(body)
        return self._answer(body)


class Session:
    """As much of a connection as forwarded requests need."""

    def __init__(self, cluster: Cluster) -> None:
        self.context = SimpleNamespace(coordination=cluster, start_task=self._start)
        self.caller = SimpleNamespace(namespace_key="ns", readable=self._readable, covers=lambda *_: True)
        self.namespace = SimpleNamespace(hubs=lambda: [SimpleNamespace(uid=name, name=name) for name in HUBS])
        self.principal = SimpleNamespace(rights=SimpleNamespace(allows=lambda _: True))
        self.now_s = 0.0
        self.forwarded: set[str] = set()
        self.cleanups: dict[object, None] = {}
        self.answers: list[Any] = []
        self._work: list[Coroutine[None, None, None]] = []

    def _readable(self, name: str, now_s: float) -> object:
        if name not in HUBS:
            raise HubNotFound(name)
        return SimpleNamespace(uid=name)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        self._work.append(work)

    def respond(self, request: object, body: object) -> None:
        self.answers.append(body)

    def ask(self, handler: Handler, api: object, body: object, version: int) -> Any:
        """The answer to a request."""
        request = SimpleNamespace(api=api, version=version, body=body, client_id="test")
        handler(cast("KafkaSession", self), cast("Request", request))
        asyncio.run(self._work.pop())
        return self.answers.pop()


def test_request_is_answered_also_if_its_handler_fails() -> None:
    """Responses have the order of their requests: without this one, the connection would be blocked."""

    async def fail(forwarded: ForwardedRequest) -> object:
        raise IndexError("a defect")

    handler = forwarded_handler(fail, lambda _, code: HeartbeatResponse(error_code=code))
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="a")

    answer = Session(Cluster(lambda _: None)).ask(handler, HEARTBEAT, body, 4)

    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def committed(body: OffsetCommitRequest) -> OffsetCommitResponse:
    """The answer of a coordinator that has accepted all offsets."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitTopicResponse(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitPartitionResponse(index=part.index, error_code=0) for part in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


def commit(cluster: Cluster, *hubs: str) -> dict[str, int]:
    """The error code for each hub after a commit to all of them."""
    part = OffsetCommitPartition(index=0, committed_offset=7, committed_metadata="")
    topics = tuple(OffsetCommitTopic(name=name, partitions=(part,)) for name in hubs)
    body = OffsetCommitRequest(group_id="g", topics=topics)
    answer = Session(cluster).ask(HANDLERS[OFFSET_COMMIT.key], OFFSET_COMMIT, body, 8)
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


def test_damaged_hub_does_not_stop_commits_for_other_hubs() -> None:
    """A group that reads two hubs goes on with the one that is there."""
    cluster = Cluster(committed)

    codes = commit(cluster, *HUBS)

    assert codes == {"orders": ErrorCode.NONE, "damaged": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert [topic.name for topic in cluster.asked[0].topics] == ["hub.orders"]


def test_commit_is_refused_if_no_topic_is_there() -> None:
    """The whole request is answered as temporary: nothing was asked."""
    cluster = Cluster(committed)

    codes = commit(cluster, "damaged")

    assert codes == {"damaged": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert cluster.asked == []


def offsets_of(body: OffsetFetchRequest) -> OffsetFetchResponse:
    """The answer of a coordinator that has offset 7 for every partition."""
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchTopicResponse(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchPartitionResponse(index=index, committed_offset=7, metadata="", error_code=0)
                    for index in topic.partition_indexes
                ),
            )
            for topic in body.topics or ()
        )
    )


def test_hub_that_does_not_exist_has_no_offsets() -> None:
    """As on one node: a consumer takes an error for the end of its group. Offsets of a damaged hub are still known."""
    topics = tuple(OffsetFetchTopic(name=name, partition_indexes=(0,)) for name in (*HUBS, "deleted"))

    answer = Session(Cluster(offsets_of)).ask(
        HANDLERS[OFFSET_FETCH.key], OFFSET_FETCH, OffsetFetchRequest(group_id="g", topics=topics), 7
    )

    found = {topic.name: topic.partitions[0] for topic in answer.topics}
    assert {name: part.error_code for name, part in found.items()} == {"orders": 0, "damaged": 0, "deleted": 0}
    assert {name: part.committed_offset for name, part in found.items()} == {"orders": 7, "damaged": 7, "deleted": -1}


def test_subscription_that_the_coordinator_refused_is_sent_again() -> None:
    """A member names its topics once: a coordinator that moved meanwhile would never assign it anything."""
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE, ErrorCode.NONE]
    cluster = Cluster(
        lambda _: ConsumerGroupHeartbeatResponse(error_code=codes.pop(0), member_epoch=1, heartbeat_interval_ms=5000)
    )
    session = Session(cluster)
    first = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="a", member_epoch=0, subscribed_topic_names=("orders",), topic_partitions=()
    )
    later = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)

    for body in (first, later, later):
        session.ask(NEWER_GROUPS[CONSUMER_GROUP_HEARTBEAT.key], CONSUMER_GROUP_HEARTBEAT, body, 1)

    assert [asked.subscribed_topic_names for asked in cluster.asked] == [("hub.orders",), ("hub.orders",), None]
