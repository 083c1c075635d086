"""Read-only handlers for tools: DescribeTopicPartitions, DescribeLogDirs, DescribeProducers and DescribeAcls.

Log sizes need the right to manage a hub, producers the right to read it, as Kafka asks for a cluster right and for
Read. There are no ACLs: authorization rules decide, and the response is that of a Kafka broker without an authorizer.
"""

from collections.abc import Generator, Iterable, Mapping
from itertools import repeat
from typing import Final
from uuid import UUID

from hubmere.broker import HubView
from hubmere.endpoints.kafka.admin.metadata import visible_hubs
from hubmere.endpoints.kafka.admin.operations import topic_operations
from hubmere.endpoints.kafka.context import NODE_ID, Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import Wait, WaitingSteps, in_slices, open_ahead, open_for_epochs, until_open
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.acls import DESCRIBE_ACLS, DescribeAclsResponse
from hubmere.wire.kafka.messages.admin import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
    LogDirPartition,
    LogDirTopicResult,
)
from hubmere.wire.kafka.messages.metadata import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicCursor,
)
from hubmere.wire.kafka.messages.transactions import (
    DESCRIBE_PRODUCERS,
    ActiveProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)
from hubmere.wire.kafka.primitives import ZERO_UUID

_ANY: Final = Rights.LISTEN | Rights.SEND | Rights.MANAGE
_REPLICAS: Final = (NODE_ID,)
# Kafka's max.request.partition.size.limit: the largest page.
_MAX_PAGE: Final = 2000
# Markers are written by the coordinator of this node, which has no epochs.
_COORDINATOR_EPOCH: Final = 0


# --- DescribeTopicPartitions (KIP-966) -------------------------------------------------------------------------------


@in_slices
def describe_topic_partitions(session: KafkaSession, request: Request) -> WaitingSteps:
    """One page of topics by name: the named ones, or every visible one. Does not create topics."""
    body: DescribeTopicPartitionsRequest = request.body
    names = sorted({topic.name for topic in body.topics} or {hub.name for hub in visible_hubs(session)})
    cursor = body.cursor or TopicCursor(topic_name="", partition_index=0)
    limit = max(min(body.response_partition_limit, _MAX_PAGE), 1)
    topics: list[DescribedTopic] = []
    following: TopicCursor | None = None
    for name in names:
        if name < cursor.topic_name:
            continue
        first = max(cursor.partition_index, 0) if name == cursor.topic_name else 0
        if limit == 0:
            following = TopicCursor(topic_name=name, partition_index=first)
            break
        topic, count = yield from _page(session, name, first, limit)
        topics.append(topic)
        yield from repeat(None, len(topic.partitions) + 1)
        limit -= len(topic.partitions)
        if first + len(topic.partitions) < count:
            following = TopicCursor(topic_name=name, partition_index=first + len(topic.partitions))
            break
    session.respond(request, DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=following))


def _page(
    session: KafkaSession, name: str, first: int, limit: int
) -> Generator[Wait | None, None, tuple[DescribedTopic, int]]:
    """One page of a topic's partitions, and how many it has."""
    try:
        hub = session.caller.hub(name, _ANY, session.now_s)
    except Refusal as refusal:
        session.log_refusal("a Kafka metadata request", refusal, name)
        return DescribedTopic(error_code=code_of(refusal), name=name, topic_id=ZERO_UUID, partitions=()), 0
    count = hub.entity.partition_count
    numbers = range(first, min(first + limit, count))
    yield from open_for_epochs(hub, numbers)
    partitions = tuple(
        DescribedPartition(
            error_code=ErrorCode.NONE,
            index=index,
            leader_id=NODE_ID,
            leader_epoch=hub.partition(index).known_leader_epoch,
            replica_nodes=_REPLICAS,
            isr_nodes=_REPLICAS,
            # The schema allows null, but Kafka's own admin client fails on it.
            eligible_leader_replicas=(),
            last_known_elr=(),
            offline_replicas=(),
        )
        for index in numbers
    )
    topic = DescribedTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=UUID(hub.entity.topic_id),
        partitions=partitions,
        # Always included in this request, as in Kafka.
        topic_authorized_operations=topic_operations(session.caller, name),
    )
    return topic, count


# --- DescribeLogDirs -------------------------------------------------------------------------------------------------


@in_slices
def describe_log_dirs(session: KafkaSession, request: Request) -> WaitingSteps:
    """Sizes of partitions of the hubs that the client may manage. The namespace stands for the log directory."""
    body: DescribeLogDirsRequest = request.body
    namespace = session.namespace.entity.name
    hubs = managed_hubs(session)
    topics: list[LogDirTopicResult] = []
    for name, indexes in wanted_partitions(body, hubs).items():
        hub = hubs[name]
        partitions: list[LogDirPartition] = []
        yield from open_ahead(hub, indexes)
        for index in indexes:
            size = (yield from _size(hub, index)) if 0 <= index < hub.entity.partition_count else None
            if size is not None:
                partitions.append(LogDirPartition(index=index, size_bytes=size))
            yield None
        topics.append(LogDirTopicResult(name=name, partitions=tuple(partitions)))
    folder = LogDir(error_code=ErrorCode.NONE, log_dir=namespace, topics=tuple(topics))
    session.respond(request, DescribeLogDirsResponse(results=(folder,)))


def managed_hubs(session: KafkaSession) -> Mapping[str, HubView]:
    """The hubs that the client may manage, by name."""
    return {hub.name: hub for hub in visible_hubs(session) if session.caller.may(Rights.MANAGE, hub.name)}


def wanted_partitions(body: DescribeLogDirsRequest, hubs: Mapping[str, HubView]) -> Mapping[str, Iterable[int]]:
    """Each partition once, of hubs that exist."""
    if body.topics is None:
        return {name: range(hub.entity.partition_count) for name, hub in hubs.items()}
    wanted: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        if topic.name in hubs:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return wanted


def _size(hub: HubView, index: int) -> Generator[Wait | None, None, int | None]:
    """The size of a partition; None while it is offline."""
    partition = hub.partition(index)
    try:
        yield from until_open(partition)
        return partition.state.size_bytes
    except Refusal:
        return None


# --- DescribeProducers (KIP-664) -------------------------------------------------------------------------------------


@in_slices
def describe_producers(session: KafkaSession, request: Request) -> WaitingSteps:
    """Producers that partitions remember, and where their open transactions begin; each partition once."""
    body: DescribeProducersRequest = request.body
    wanted: dict[str, dict[int, None]] = {}
    for asked in body.topics:
        wanted.setdefault(asked.name, {}).update(dict.fromkeys(asked.partition_indexes))
    topics: list[DescribeProducersTopicResponse] = []
    for name, indexes in wanted.items():
        partitions: list[DescribeProducersPartition] = []
        for index in indexes:
            partitions.append((yield from _producers(session, name, index)))
            yield from repeat(None, len(partitions[-1].active_producers) + 1)
        topics.append(DescribeProducersTopicResponse(name=name, partitions=tuple(partitions)))
    session.respond(request, DescribeProducersResponse(topics=tuple(topics)))


def _producers(
    session: KafkaSession, topic: str, index: int
) -> Generator[Wait | None, None, DescribeProducersPartition]:
    try:
        partition = session.caller.hub(topic, Rights.LISTEN, session.now_s).require_partition(index)
        yield from until_open(partition)
        states = partition.producers()
    except Refusal as refusal:
        session.log_refusal("a Kafka request about producers", refusal, topic)
        return DescribeProducersPartition(
            index=index, error_code=code_of(refusal), error_message=refusal.text(), active_producers=()
        )
    active = tuple(
        ActiveProducer(
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp_ms=state.last_written_ms,
            coordinator_epoch=_COORDINATOR_EPOCH,
            current_txn_start_offset=state.transaction_first,
        )
        for state in states
    )
    return DescribeProducersPartition(index=index, error_code=ErrorCode.NONE, active_producers=active)


# --- DescribeAcls ----------------------------------------------------------------------------------------------------


def describe_acls(session: KafkaSession, request: Request) -> None:
    """There are no ACLs; tools that copy them understand this error (reference: kafka 1.7 and 2.4)."""
    message = "No Authorizer is configured: shared access rules decide who may do what."
    code = ErrorCode.SECURITY_DISABLED
    session.respond(request, DescribeAclsResponse(error_code=code, error_message=message, resources=()))


HANDLERS: Final[Mapping[int, Handler]] = {
    DESCRIBE_TOPIC_PARTITIONS.key: describe_topic_partitions,
    DESCRIBE_LOG_DIRS.key: describe_log_dirs,
    DESCRIBE_PRODUCERS.key: describe_producers,
    DESCRIBE_ACLS.key: describe_acls,
}
