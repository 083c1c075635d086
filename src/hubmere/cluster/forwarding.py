"""KafkaCoordination: passes requests of Kafka clients on to the coordinators and leaders of the cluster.

Each client connection has connections of its own to the brokers that it needs, so a JoinGroup that waits for other
members delays nobody else. They are closed with the client's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from hubmere.cluster.upstream.failures import RequestRefused, UpstreamFailure
from hubmere.cluster.upstream.upstream import MOVED, Upstream
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.offsets import GROUP_COORDINATOR
from hubmere.wire.kafka.messages.transactions import InitProducerIdRequest

# A JoinGroup waits as long as the rebalance timeout of its group: half an hour at most.
_LONGEST_WAIT_S: Final = 1_830.0
_TRANSACTION_MS: Final = 60_000
_HUB_MARK: Final = "hub."
_GROUP_MARK: Final = "group."


class KafkaCoordination:
    """Passes requests on. Thread rule: the loop's thread only. `failed` creates the exception that callers expect."""

    def __init__(
        self,
        upstream: Upstream,
        prefix: str,
        *,
        provide: Callable[[str], Awaitable[None]],
        failed: Callable[[str], Exception],
    ) -> None:
        """`provide` creates the topic of a hub if it does not exist."""
        self._provide = provide
        self._upstream = upstream
        self._prefix = prefix
        self._failed = failed

    def topic_of(self, hub_uid: str) -> str:
        """The topic of a hub."""
        return f"{self._prefix}{_HUB_MARK}{hub_uid}"

    def uid_of(self, topic: str) -> str | None:
        """The uid of the hub whose topic this is."""
        start = self._prefix + _HUB_MARK
        return topic.removeprefix(start) if topic.startswith(start) else None

    def group_of(self, namespace: str, group_id: str) -> str:
        """The group's id in the cluster."""
        return f"{self._prefix}{_GROUP_MARK}{namespace}/{group_id}"

    def local_group_of(self, namespace: str, group: str) -> str | None:
        """The id of a group of a namespace; None for a group of another one."""
        start = f"{self._prefix}{_GROUP_MARK}{namespace}/"
        return group.removeprefix(start) if group.startswith(start) else None

    async def ask_coordinator(self, client: str, group: str, body: object, version: int) -> Any:
        """Ask the coordinator of a group; after an answer that it has moved, it is looked up again next time."""
        try:
            broker = await self._upstream.coordinator(GROUP_COORDINATOR, group)
            connection = await self._upstream.connection(broker, client)
            async with asyncio.timeout(_LONGEST_WAIT_S):
                answer = await connection.send(body, connection.nearest_version(type(body), version))
        except (UpstreamFailure, TimeoutError) as failure:
            self._upstream.forget_coordinator(GROUP_COORDINATOR, group)
            raise self._failed(str(failure)) from failure
        if _codes(answer) & MOVED:
            self._upstream.forget_coordinator(GROUP_COORDINATOR, group)
        return answer

    async def ask_leaders(self, client: str, body: Any, version: int) -> Any:
        """Ask the leaders of all partitions that a request names; one answer."""
        try:
            parts = await self._by_leader(body)
            answers = await asyncio.gather(
                *(self._ask_broker(broker, client, part, version) for broker, part in parts.items())
            )
        except (UpstreamFailure, TimeoutError) as failure:
            for topic in body.topics:
                await self._upstream.refresh_shared(topic.name)
            raise self._failed(str(failure)) from failure
        if any(_codes(answer) & MOVED for answer in answers):
            for topic in body.topics:
                await self._upstream.refresh_shared(topic.name)
        return replace(answers[0], topics=tuple(topic for answer in answers for topic in answer.topics))

    async def _by_leader(self, body: Any) -> dict[int, Any]:
        for topic in body.topics:
            if any(self._upstream.leader(topic.name, part.index) is None for part in topic.partitions):
                await self._provide(self.uid_of(topic.name) or "")
        topics: dict[int, list[Any]] = {}
        for topic in body.topics:
            parts: dict[int, list[Any]] = {}
            for part in topic.partitions:
                leader = self._upstream.leader(topic.name, part.index)
                if leader is None:
                    raise RequestRefused(topic.name, ErrorCode.LEADER_NOT_AVAILABLE)
                parts.setdefault(leader.broker, []).append(replace(part, current_leader_epoch=-1))
            for broker, found in parts.items():
                topics.setdefault(broker, []).append(replace(topic, partitions=tuple(found)))
        return {broker: replace(body, topics=tuple(found)) for broker, found in topics.items()}

    async def _ask_broker(self, broker: int, client: str, body: object, version: int) -> Any:
        connection = await self._upstream.connection(broker, client)
        async with asyncio.timeout(30.0):
            return await connection.send(body, connection.nearest_version(type(body), version))

    async def ask_all(self, body: object, version: int) -> list[Any]:
        """Ask every broker."""
        try:
            return await asyncio.gather(
                *(self._ask_broker(broker, "questions", body, version) for broker in list(self._upstream.brokers))
            )
        except (UpstreamFailure, TimeoutError) as failure:
            raise self._failed(str(failure)) from failure

    async def new_producer_id(self) -> tuple[int, int]:
        """A producer id and its epoch."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_MS)
        try:
            answer = await self._upstream.ask_any(request)
        except UpstreamFailure as failure:
            raise self._failed(str(failure)) from failure
        if answer.error_code:
            raise self._failed(f"InitProducerId: {answer.error_code}")
        return answer.producer_id, answer.producer_epoch

    def end_client(self, client: str) -> None:
        """A client's connection is closed."""
        self._upstream.close_lane(client)


def _codes(answer: Any) -> set[int]:
    """The error codes in an answer: of the whole, of groups, and of partitions."""
    found = {getattr(answer, "error_code", 0)}
    for name in ("topics", "groups", "results"):
        for part in getattr(answer, name, ()) or ():
            found.add(getattr(part, "error_code", 0))
            found |= {each.error_code for each in getattr(part, "partitions", ()) if hasattr(each, "error_code")}
    return found
