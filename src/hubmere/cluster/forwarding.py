"""KafkaCoordination: passes requests of Kafka clients on to the coordinators and leaders of the cluster.

Each client connection has connections of its own to the brokers that it needs, so a JoinGroup that waits for other
members delays nobody else. These connections are closed with the client's own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import BrokerUnreachable, UpstreamFailure
from hubmere.cluster.upstream.upstream import MOVED, QUESTIONS, Upstream
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.offsets import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from hubmere.wire.kafka.messages.transactions import InitProducerIdRequest

# A JoinGroup waits as long as the rebalance timeout of its group: half an hour at most.
_LONGEST_WAIT_S: Final = 1_830.0
_TRANSACTION_MS: Final = 60_000
# How long a leader may take to answer for a position, and any broker for other requests. Clients wait for 30 seconds,
# in which the answers of the other leaders have to reach them.
_LEADER_SECONDS: Final = 10.0
_BROKER_SECONDS: Final = 30.0
# A topic of a request without partitions.
_NOTHING_ASKED: Final = (-1, ErrorCode.NONE)
# How often a coordinator that has moved is looked up again for one request, and the pause before: brokers learn of the
# new one within a second as a rule. Clients try again themselves afterwards.
_MOVES: Final = 10
_MOVE_PAUSE_S: Final = 0.1
_HUB_MARK: Final = "hub."
_GROUP_MARK: Final = "group."
_TRANSACTION_MARK: Final = "txn."
_TRANSACTION_FEATURE: Final = "transaction.version"
# Where requests to leaders name their partitions.
_PARTITIONS: Final = "partitions"
_INDEXES: Final = "partition_indexes"


class KafkaCoordination:
    """Passes requests on. Thread rule: the loop's thread only. `failed` creates the exception that callers expect."""

    def __init__(
        self,
        upstream: Upstream,
        prefix: str,
        *,
        provide: Callable[[str], Awaitable[None]],
        failed: Callable[[str], Exception],
        note_transaction: Callable[[int, str, int], None],
    ) -> None:
        """`provide` creates the topic of a hub; `note_transaction` tells the engine a producer's transactional id."""
        self._provide = provide
        self.note_transaction = note_transaction
        # Connections of clients that are open.
        self._clients: set[str] = set()
        self._subscriptions: dict[str, dict[tuple[str, str], Any]] = {}
        self._upstream = upstream
        self._prefix = prefix
        self._failed = failed

    @property
    def transaction_version(self) -> int:
        """The level of the feature `transaction.version` that the cluster uses."""
        return self._upstream.features.get(_TRANSACTION_FEATURE, 0)

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

    def transaction_of(self, namespace: str, transactional_id: str) -> str:
        """The transactional id in the cluster."""
        return f"{self._prefix}{_TRANSACTION_MARK}{namespace}/{transactional_id}"

    def local_transaction_of(self, namespace: str, name: str) -> str | None:
        """The transactional id of a namespace; None for one of another namespace."""
        start = f"{self._prefix}{_TRANSACTION_MARK}{namespace}/"
        return name.removeprefix(start) if name.startswith(start) else None

    async def provide(self, topics: Sequence[str]) -> None:
        """Create the topics of hubs that do not exist yet."""
        try:
            await asyncio.gather(*(self._provide(self.uid_of(topic) or "") for topic in topics))
        except UpstreamFailure as failure:
            raise self._failed(str(failure)) from failure

    def topic_id_of(self, topic: str) -> UUID | None:
        """The cluster's id of a topic that was provided."""
        found = self._upstream.topic_id(topic)
        return None if found is None else UUID(found)

    async def topics_of_ids(self, ids: Iterable[UUID]) -> Mapping[UUID, str]:
        """The topics that have these ids."""
        try:
            return await self._upstream.topics_of_ids(list(ids))
        except UpstreamFailure as failure:
            raise self._failed(str(failure)) from failure

    def subscriptions_of(self, client: str) -> dict[tuple[str, str], Any]:
        """What the members of a connection subscribe to."""
        return self._subscriptions.setdefault(client, {})

    async def ask_transaction(self, client: str, name: str, body: object, version: int) -> Any:
        """Ask the coordinator of a transactional id."""
        return await self._ask_coordinator(TRANSACTION_COORDINATOR, client, name, body, version)

    async def ask_coordinator(self, client: str, group: str, body: object, version: int) -> Any:
        """Ask the coordinator of a group."""
        return await self._ask_coordinator(GROUP_COORDINATOR, client, group, body, version)

    async def _ask_coordinator(self, kind: int, client: str, key: str, body: object, version: int) -> Any:
        """Ask a coordinator. One that has moved has not acted on the request: the next one is looked up and asked.

        Clients take the gateway for the coordinator: a commit that waits for its answer would fail, although the
        coordinator is there.
        """
        answer = await self._ask_known_coordinator(kind, client, key, body, version)
        for _ in range(_MOVES):
            if ErrorCode.NOT_COORDINATOR not in _codes(answer):
                break
            await asyncio.sleep(_MOVE_PAUSE_S)
            answer = await self._ask_known_coordinator(kind, client, key, body, version)
        return answer

    async def _ask_known_coordinator(self, kind: int, client: str, key: str, body: object, version: int) -> Any:
        """Ask once; after an answer that the coordinator has moved, it is looked up again next time."""
        try:
            broker = await self._upstream.coordinator(kind, key)
            connection = await self._connection(broker, client)
            async with asyncio.timeout(_LONGEST_WAIT_S):
                answer = await connection.send(body, connection.nearest_version(type(body), version))
        except (UpstreamFailure, TimeoutError) as failure:
            self._upstream.forget_coordinator(kind, key)
            raise self._failed(str(failure)) from failure
        if _codes(answer) & MOVED:
            self._upstream.forget_coordinator(kind, key)
        return answer

    async def ask_leaders(self, client: str, body: Any, version: int) -> tuple[list[Any], list[tuple[Any, ErrorCode]]]:
        """Ask the leaders of all partitions that a request names.

        Returns the topics of their answers, and the topics of the request that have no answer, with the reason: a
        partition without a leader must not keep a client from the others.
        """
        parts, unanswered = self._by_leader(body)
        answers = await asyncio.gather(
            *(self._ask_leader(broker, client, part, version) for broker, part in parts.items())
        )
        found: list[Any] = []
        for part, answer in zip(parts.values(), answers, strict=True):
            if answer is None:
                unanswered += [(topic, ErrorCode.LEADER_NOT_AVAILABLE) for topic in part.topics]
            else:
                found += answer.topics
        if any(code for _, code in unanswered) or any(answer and _codes(answer) & MOVED for answer in answers):
            for topic in body.topics:
                await self._upstream.refresh_shared(topic.name)
        return found, unanswered

    def _by_leader(self, body: Any) -> tuple[dict[int, Any], list[tuple[Any, ErrorCode]]]:
        """The part of a request for each broker, and the topics that no broker can be asked about."""
        topics: dict[int, list[Any]] = {}
        unanswered: list[tuple[Any, ErrorCode]] = []
        for topic in body.topics:
            name = _PARTITIONS if hasattr(topic, _PARTITIONS) else _INDEXES
            parts: dict[tuple[int, ErrorCode], list[Any]] = {}
            for part in getattr(topic, name):
                has_epoch = hasattr(part, "current_leader_epoch")
                known = replace(part, current_leader_epoch=-1) if has_epoch else part
                place = self._leader_of(topic.name, part if name == _INDEXES else part.index)
                parts.setdefault(place, []).append(known)
            for (broker, code), found in (parts or {_NOTHING_ASKED: []}).items():
                named = replace(topic, **{name: tuple(found)})
                if broker < 0:
                    unanswered.append((named, code))
                else:
                    topics.setdefault(broker, []).append(named)
        return {broker: replace(body, topics=tuple(found)) for broker, found in topics.items()}, unanswered

    def _leader_of(self, topic: str, partition: int) -> tuple[int, ErrorCode]:
        """The broker that leads a partition; -1 and the reason if there is none."""
        leader, count = self._upstream.leader(topic, partition), self._upstream.partition_count(topic)
        if leader is not None:
            return leader.broker, ErrorCode.NONE
        exists = count is None or 0 <= partition < count
        return -1, ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _ask_leader(self, broker: int, client: str, body: Any, version: int) -> Any | None:
        """The answer of one leader; None if there is none."""
        seconds = max(_LEADER_SECONDS, getattr(body, "timeout_ms", 0) / 1000)
        try:
            return await self._ask_broker(broker, client, body, version, min(seconds, _BROKER_SECONDS))
        except UpstreamFailure:
            return None

    async def _ask_broker(
        self, broker: int, client: str, body: object, version: int, seconds: float = _BROKER_SECONDS
    ) -> Any:
        """Ask one broker; one that does not answer in time loses its connection, as later requests would wait too."""
        connection = await self._connection(broker, client)
        try:
            async with asyncio.timeout(seconds):
                return await connection.send(body, connection.nearest_version(type(body), version))
        except TimeoutError:
            why = f"no answer within {seconds:g} s"
            connection.close(why)
            raise BrokerUnreachable(connection.address, why) from None

    async def _connection(self, broker: int, client: str) -> BrokerConnection:
        """A connection of a client, or the shared one. A client may have gone, before it is opened or meanwhile."""
        self._check_client(client)
        connection = await self._upstream.connection(broker, client)
        try:
            self._check_client(client)
        except BrokerUnreachable:
            self._upstream.close_lane(client)
            raise
        return connection

    def _check_client(self, client: str) -> None:
        if client != QUESTIONS and client not in self._clients:
            raise BrokerUnreachable(client, "its connection is closed")

    async def ask_all(self, body: object, version: int) -> list[Any]:
        """Ask every broker."""
        try:
            return await asyncio.gather(
                *(self._ask_broker(broker, QUESTIONS, body, version) for broker in list(self._upstream.brokers))
            )
        except UpstreamFailure as failure:
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

    def begin_client(self, client: str, client_id: str) -> None:
        """A client's requests are passed on with its own client id: coordinators describe members of groups by it."""
        self._clients.add(client)
        self._upstream.name_lane(client, client_id)

    def end_client(self, client: str) -> None:
        """A client's connection is closed."""
        self._clients.discard(client)
        self._subscriptions.pop(client, None)
        self._upstream.close_lane(client)


def _codes(answer: Any) -> set[int]:
    """The error codes in an answer: of the whole, of groups, and of partitions."""
    found = {getattr(answer, "error_code", 0)}
    for name in ("topics", "groups", "results"):
        for part in getattr(answer, name, ()) or ():
            found.add(getattr(part, "error_code", 0))
            found |= {each.error_code for each in getattr(part, "partitions", ()) if hasattr(each, "error_code")}
    return found
