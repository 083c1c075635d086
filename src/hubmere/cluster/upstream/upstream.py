"""Upstream: a gateway's client of the Kafka cluster: leaders of partitions, coordinators, and connections to all
brokers.

Connections are opened on first use, and again after a failure, with a growing pause. A *lane* is one of
several connections to a broker: requests on one lane keep their order, requests on two do not wait for each other.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from hubmere.cluster.upstream.connection import Access, BrokerConnection
from hubmere.cluster.upstream.failures import BrokerUnreachable, RequestRefused, UpstreamFailure
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from hubmere.wire.kafka.messages.offsets import FindCoordinatorRequest

log = logging.getLogger("hubmere.cluster")

T = TypeVar("T")

# Pauses between attempts to connect: short at first, since a broker restarts within seconds.
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
# How long a request waits for its answer before its connection is given up. Longer than a broker's own request timeout.
REQUEST_SECONDS: Final = 30.0
# How long any broker may take to say who leads a partition: another one is asked after that.
_METADATA_SECONDS: Final = 5.0
# The lane for rare requests.
QUESTIONS: Final = "questions"

# Codes after which the leader or the coordinator has to be looked up again.
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition."""

    broker: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker of the cluster."""

    id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port as one text."""
        return f"{self.host}:{self.port}"


class Upstream:
    """The cluster. Thread rule: the loop's thread only."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], access: Access, *, client_id: str) -> None:
        self._bootstrap = tuple(bootstrap)
        self._access = access
        self._client_id = client_id
        # Those of lanes that have their own.
        self._client_ids: dict[str, str] = {}
        self.brokers: dict[int, Broker] = {}
        self.cluster_id = ""
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._partition_counts: dict[str, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._connections: dict[tuple[int, str], BrokerConnection] = {}
        self._opening: dict[tuple[int, str], asyncio.Task[BrokerConnection]] = {}
        self._first: BrokerConnection | None = None
        # One attempt at a time: with two, one of the new connections would be forgotten and stay open.
        self._opening_first = asyncio.Lock()
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}

    @property
    def features(self) -> Mapping[str, int]:
        """The feature levels of the cluster, as reported by the first broker that was reached."""
        return {} if self._first is None else self._first.features

    # --- connections

    async def connect(self) -> None:
        """Connect to any broker and get the list of all; raises the last failure if none is reachable."""
        await self.refresh(())

    async def close(self) -> None:
        """Close every connection."""
        tasks = [*self._opening.values(), *self._refreshing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in (*self._connections.values(), *(() if self._first is None else (self._first,))):
            connection.close()
        self._connections.clear()

    async def connection(self, broker: int, lane: str) -> BrokerConnection:
        """The connection of a lane to a broker, made if there is none."""
        key = (broker, lane)
        existing = self._connections.get(key)
        if existing is not None and existing.is_open:
            return existing
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.create_task(self._open(broker, lane))
            task.add_done_callback(lambda done: self._on_opened(key, done))
        return await asyncio.shield(task)

    async def _open(self, broker: int, lane: str) -> BrokerConnection:
        known = self.brokers.get(broker)
        if known is None:
            raise BrokerUnreachable(str(broker), "no such broker is known")
        client_id = self._client_ids.get(lane, self._client_id)
        return await BrokerConnection.open(known.host, known.port, self._access, client_id=client_id)

    def _on_opened(self, key: tuple[int, str], task: "asyncio.Task[BrokerConnection]") -> None:
        self._opening.pop(key, None)
        if not task.cancelled() and task.exception() is None:
            self._connections[key] = task.result()

    def name_lane(self, lane: str, client_id: str) -> None:
        """Give the connections of a lane a client id of their own, until it is closed."""
        self._client_ids[lane] = client_id

    def close_lane(self, lane: str) -> None:
        """Close the connections of a lane."""
        self._client_ids.pop(lane, None)
        for key in [key for key in self._connections if key[1] == lane]:
            self._connections.pop(key).close()

    async def _any_connection(self) -> BrokerConnection:
        # A broker that has left requests unanswered may be frozen: one of the least busy connections is used, a random
        # one, because a broker that is cut off from the others still answers, with leaders of the past.
        is_open = [each for (_, lane), each in self._connections.items() if lane == QUESTIONS and each.is_open]
        if is_open:
            fewest = min(each.in_flight for each in is_open)
            return random.choice([each for each in is_open if each.in_flight == fewest])
        async with self._opening_first:
            if self._first is None or not self._first.is_open:
                self._first = await self._open_first()
            return self._first

    async def _open_first(self) -> BrokerConnection:
        """A connection to any broker, in random order; raises the last failure."""
        places = [*((broker.host, broker.port) for broker in self.brokers.values()), *self._bootstrap]
        random.shuffle(places)
        failure: UpstreamFailure | None = None
        for host, port in places:
            try:
                return await BrokerConnection.open(host, port, self._access, client_id=self._client_id)
            except BrokerUnreachable as unreachable:
                failure = unreachable
        assert failure is not None
        raise failure

    # --- requests

    async def ask(self, broker: int, body: object, *, lane: str = QUESTIONS, seconds: float = REQUEST_SECONDS) -> Any:
        """Ask one broker; a broker that does not answer in time loses its connection."""
        connection = await self.connection(broker, lane)
        return await self._answer(connection, body, seconds)

    async def ask_any(self, body: object, *, seconds: float = REQUEST_SECONDS) -> Any:
        """Ask any broker: for requests that all of them answer, or pass on to the controller."""
        return await self._answer(await self._any_connection(), body, seconds)

    async def _answer(self, connection: BrokerConnection, body: object, seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await connection.ask(body)
        except TimeoutError:
            connection.close(f"no answer within {seconds:g} s")
            raise BrokerUnreachable(connection.address, f"no answer within {seconds:g} s") from None

    async def coordinator(self, kind: int, key: str) -> int:
        """The broker that coordinates a group (0) or a transactional id (1)."""
        known = self._coordinators.get((kind, key))
        if known is not None and known in self.brokers:
            return known
        answer = await self.ask_any(FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,)))
        (found,) = answer.coordinators
        if found.error_code:
            raise RequestRefused(f"FindCoordinator for {key}", found.error_code, found.error_message)
        self.brokers[found.node_id] = Broker(id=found.node_id, host=found.host, port=found.port)
        self._coordinators[kind, key] = found.node_id
        broker: int = found.node_id
        return broker

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Look a coordinator up again at its next use."""
        self._coordinators.pop((kind, key), None)

    # --- metadata

    def leader(self, topic: str, partition: int) -> Leader | None:
        """The leader of a partition, as far as it is known."""
        return self._leaders.get((topic, partition))

    def partition_count(self, topic: str) -> int | None:
        """The number of partitions of a topic, as far as it is known."""
        return self._partition_counts.get(topic)

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic, as far as it is known."""
        return self._topic_ids.get(topic)

    async def topics_of_ids(self, ids: Sequence[UUID]) -> dict[UUID, str]:
        """The topics that have these ids; brokers are asked for those that are not known."""
        known = {UUID(found): name for name, found in self._topic_ids.items()}
        asked = tuple(MetadataRequestTopic(topic_id=each, name=None) for each in ids if each not in known)
        if asked:
            answer = await self.ask_any(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
            for topic in answer.topics:
                if topic.error_code == ErrorCode.NONE:
                    known[topic.topic_id] = topic.name
        return {each: known[each] for each in ids if each in known}

    async def refresh(self, topics: Sequence[str]) -> dict[str, int]:
        """Ask for the leaders of topics; returns the error code of each."""
        names = tuple(MetadataRequestTopic(name=topic) for topic in topics)
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        answer = await self.ask_any(request, seconds=_METADATA_SECONDS)
        found = (Broker(id=each.node_id, host=each.host, port=each.port) for each in answer.brokers)
        self.brokers = {broker.id: broker for broker in found}
        self.cluster_id = answer.cluster_id or ""
        codes: dict[str, int] = {}
        for topic in answer.topics:
            codes[topic.name] = topic.error_code
            if topic.error_code == ErrorCode.NONE:
                self._note_topic(topic)
            for part in topic.partitions:
                key = (topic.name, part.index)
                known = self._leaders.get(key)
                if part.leader_id < 0:
                    self._leaders.pop(key, None)
                elif known is None or part.leader_epoch >= known.epoch:
                    self._leaders[key] = Leader(part.leader_id, part.leader_epoch)
        return codes

    def _note_topic(self, topic: Any) -> None:
        self._partition_counts[topic.name] = len(topic.partitions)
        known, self._topic_ids[topic.name] = self._topic_ids.get(topic.name), str(topic.topic_id)
        if known not in (None, str(topic.topic_id)):
            # Another topic of the same name: its leaders' epochs begin again.
            for key in [key for key in self._leaders if key[0] == topic.name]:
                del self._leaders[key]

    async def refresh_shared(self, topic: str) -> None:
        """As `refresh` for one topic; concurrent callers share one request, and failures are not raised."""
        task = self._refreshing.get(topic)
        if task is None:
            task = self._refreshing[topic] = asyncio.create_task(self._refresh_quietly(topic))
            task.add_done_callback(lambda _: self._refreshing.pop(topic, None))
        await asyncio.shield(task)

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.refresh((topic,))
        except UpstreamFailure as failure:
            log.debug("the leaders of %s are not known: %s", topic, failure)


async def with_patience(
    attempt: Callable[[], Awaitable[T]], *, seconds: float, longest_pause_s: float = _LONGEST_PAUSE_S
) -> T:
    """Retry temporary failures, with growing pauses, until the time is over; raises the last failure."""
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + seconds, _FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except UpstreamFailure as failure:
            is_passing = not isinstance(failure, RequestRefused) or failure.code in MOVED
            if failure.is_lasting or not is_passing or loop.time() + pause_s > deadline:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, longest_pause_s)
