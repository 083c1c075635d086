"""Handlers for CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords (reference: kafka 1.7, 2.14).

Topics are hubs, and the limits are those of the tier. Creating a topic needs the right to manage the namespace,
changing one the right to manage its hub. Every topic has its own result. A topic that a request names twice is refused
and not changed, as in Kafka. The response waits until every change is durable. Replication factors and replica
assignments have no meaning here and are ignored.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from hubmere.broker import HubView
from hubmere.endpoints.kafka.admin import configs
from hubmere.endpoints.kafka.admin.metadata import hubs_by_id
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.gather import Gather, duplicates_of
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import Steps, Wait, WaitingSteps, in_slices, until_open
from hubmere.model.entity import CleanupPolicy, Hub, Rights
from hubmere.model.errors import (
    InvalidArgument,
    InvalidName,
    LimitReached,
    NotInTier,
    PartitionCountFixed,
    Refusal,
)
from hubmere.model.names import hub_name
from hubmere.model.spec import HubSpec
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatedTopic,
    CreatedTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopic,
    DeletedTopic,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    GrowingTopic,
    GrownTopic,
)
from hubmere.wire.kafka.primitives import ZERO_UUID

_DEFAULT: Final = -1
_TOPICS_BY_ID_SINCE: Final = 6  # KIP-516
_HIGH_WATERMARK: Final = -1
_INVALID: Final = ErrorCode.INVALID_REQUEST
# Kafka's own error text for a name that occurs more than once in a request.
DUPLICATE_TOPIC: Final = "Duplicate topic name."

OnDone = Callable[[Refusal | None], None]


def _code(refusal: Refusal) -> ErrorCode:
    """As `code_of`, with the codes of administration: INVALID_CONFIG for an argument, POLICY_VIOLATION for the tier."""
    if isinstance(refusal, InvalidArgument) and not isinstance(refusal, (InvalidName, PartitionCountFixed)):
        return ErrorCode.INVALID_CONFIG
    return ErrorCode.POLICY_VIOLATION if isinstance(refusal, NotInTier) else code_of(refusal)


def error_of(session: KafkaSession, what: str, name: str, refusal: Refusal | None) -> tuple[ErrorCode, str | None]:
    """Error code and message for one topic or resource; a refusal is logged."""
    if refusal is None:
        return ErrorCode.NONE, None
    session.log_refusal(what, refusal, name)
    return _code(refusal), refusal.text()


def config_defaults(session: KafkaSession) -> configs.Defaults:
    """The defaults for topics of the client's namespace."""
    return configs.Defaults(limits=session.namespace.limits, segment_bytes=session.context.broker.segment_bytes)


# --- CreateTopics ----------------------------------------------------------------------------------------------------


@in_slices
def create_topics(session: KafkaSession, request: Request) -> Steps:
    """Create hubs; the response is sent when all of them are durable."""
    body: CreateTopicsRequest = request.body

    def on_done(topics: list[CreatedTopic]) -> None:
        session.respond(request, CreateTopicsResponse(topics=tuple(topics)))

    twice = duplicates_of(topic.name for topic in body.topics)
    topics = list({topic.name: topic for topic in body.topics}.values())
    gather = Gather[CreatedTopic](len(topics), on_done)
    for index, topic in enumerate(topics):
        if topic.name in twice:
            gather.put(index, CreatedTopic(name=topic.name, error_code=_INVALID, error_message=DUPLICATE_TOPIC))
        else:
            _create(session, topic, gather, index, validate_only=body.validate_only)
        yield


def _create(
    session: KafkaSession, topic: CreatableTopic, gather: Gather[CreatedTopic], index: int, *, validate_only: bool
) -> None:
    created: list[Hub] = []

    def on_done(refusal: Refusal | None) -> None:
        gather.put(index, _to_created_topic(session, topic.name, refusal, created))

    namespace, manager = session.namespace.name, session.context.broker.manager
    try:
        session.caller.require_on_namespace(Rights.MANAGE, session.now_s)
        spec, name = _hub_spec(session, topic), hub_name(topic.name)
        if validate_only:
            created.append(manager.check_create_hub(namespace, name, spec, session.now_ms))
        else:
            created.append(manager.create_hub(namespace, name, spec, session.actor(), on_done))
    except Refusal as refusal:
        answer_refusal(session, refusal, on_done)
    else:
        if validate_only:
            on_done(None)


def _hub_spec(session: KafkaSession, topic: CreatableTopic) -> HubSpec:
    count = len(topic.assignments) or topic.num_partitions
    limits = session.namespace.limits
    if count < limits.least_partitions_per_hub and count != _DEFAULT:
        raise PartitionCountFixed("partition count", count, f"at least {limits.least_partitions_per_hub}")
    if limits.partitions_per_hub is not None and count > limits.partitions_per_hub:
        raise LimitReached("partitions of an event hub", limits.partitions_per_hub, "partitions_per_hub")
    spec = HubSpec(partition_count=None if count == _DEFAULT else count)
    return configs.apply_entries(spec, ((entry.name, entry.value) for entry in topic.configs), limits)


def _to_created_topic(session: KafkaSession, name: str, refusal: Refusal | None, created: list[Hub]) -> CreatedTopic:
    code, message = error_of(session, "the creation of a Kafka topic", name, refusal)
    if refusal is not None or not created:
        return CreatedTopic(name=name, error_code=code, error_message=message)
    hub = created[0]
    return CreatedTopic(
        name=name,
        topic_id=UUID(hub.topic_id),
        error_code=code,
        num_partitions=hub.partition_count,
        replication_factor=1,
        configs=tuple(
            CreatedTopicConfig(
                name=config.name,
                value=config.value,
                read_only=config.is_read_only,
                config_source=config.source,
                is_sensitive=False,
            )
            for config in configs.topic_configs(hub, config_defaults(session), None)
        ),
    )


# --- DeleteTopics ----------------------------------------------------------------------------------------------------


@in_slices
def delete_topics(session: KafkaSession, request: Request) -> Steps:
    """Delete hubs by name, or from version 6 on by id."""
    body: DeleteTopicsRequest = request.body
    is_new = request.version >= _TOPICS_BY_ID_SINCE
    wanted = body.topics if is_new else tuple(DeletableTopic(name=name) for name in body.topic_names)

    def on_done(topics: list[DeletedTopic]) -> None:
        session.respond(request, DeleteTopicsResponse(responses=tuple(topics)))

    keys = [(topic.name, topic.topic_id) for topic in wanted]
    twice = duplicates_of(keys)
    unique = list(dict(zip(keys, wanted, strict=True)).values())
    by_id = hubs_by_id(session) if any(name is None for name, _ in keys) else {}
    gather = Gather[DeletedTopic](len(unique), on_done)
    for index, topic in enumerate(unique):
        why = _naming_error(topic, is_twice=(topic.name, topic.topic_id) in twice)
        if why is None:
            _delete(session, topic, by_id.get(topic.topic_id), gather, index)
        else:
            deleted = DeletedTopic(name=topic.name, topic_id=topic.topic_id, error_code=_INVALID, error_message=why)
            gather.put(index, deleted)
        yield


def _naming_error(topic: DeletableTopic, *, is_twice: bool) -> str | None:
    """Kafka's error text if the topic is not named correctly; None if it is."""
    if topic.name is None:
        if topic.topic_id == ZERO_UUID:
            return "Neither topic name nor id were specified."
        return "Duplicate topic id." if is_twice else None
    if topic.topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    return DUPLICATE_TOPIC if is_twice else None


def _delete(
    session: KafkaSession, topic: DeletableTopic, known: HubView | None, gather: Gather[DeletedTopic], index: int
) -> None:
    """Delete one hub; `known` is the hub with the topic id, if the request has an id and the hub exists."""
    if topic.name is None and known is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
        gather.put(index, DeletedTopic(name=None, topic_id=topic.topic_id, error_code=code))
        return
    name = known.name if known is not None else topic.name or ""

    def on_done(refusal: Refusal | None) -> None:
        code, message = error_of(session, "the deletion of a Kafka topic", name, refusal)
        gather.put(index, DeletedTopic(name=name, topic_id=topic.topic_id, error_code=code, error_message=message))

    try:
        hub = session.caller.hub(name, Rights.MANAGE, session.now_s)
        session.context.broker.manager.delete_hub(session.namespace.name, hub.name, session.actor(), on_done)
    except Refusal as refusal:
        answer_refusal(session, refusal, on_done)


# --- CreatePartitions ------------------------------------------------------------------------------------------------


@in_slices
def create_partitions(session: KafkaSession, request: Request) -> Steps:
    """Add partitions to hubs, if the tier allows it."""
    body: CreatePartitionsRequest = request.body

    def on_done(topics: list[GrownTopic]) -> None:
        session.respond(request, CreatePartitionsResponse(results=tuple(topics)))

    twice = duplicates_of(topic.name for topic in body.topics)
    topics = list({topic.name: topic for topic in body.topics}.values())
    gather = Gather[GrownTopic](len(topics), on_done)
    for index, topic in enumerate(topics):
        if topic.name in twice:
            gather.put(index, GrownTopic(name=topic.name, error_code=_INVALID, error_message=DUPLICATE_TOPIC))
        else:
            _grow(session, topic, gather, index, validate_only=body.validate_only)
        yield


def _grow(
    session: KafkaSession, topic: GrowingTopic, gather: Gather[GrownTopic], index: int, *, validate_only: bool
) -> None:
    def on_done(refusal: Refusal | None) -> None:
        code, message = error_of(session, "more partitions of a Kafka topic", topic.name, refusal)
        gather.put(index, GrownTopic(name=topic.name, error_code=code, error_message=message))

    try:
        hub = session.caller.hub(topic.name, Rights.MANAGE, session.now_s)
        current, most = hub.entity.partition_count, session.namespace.limits.partitions_per_hub
        if topic.count <= current:
            raise PartitionCountFixed("partition count", topic.count, f"more than {current}")
        if most is not None and topic.count > most:
            raise LimitReached("partitions of an event hub", most, "partitions_per_hub")
        update_hub(
            session, topic.name, replace(HubSpec.of(hub.entity), partition_count=topic.count), on_done, validate_only
        )
    except Refusal as refusal:
        answer_refusal(session, refusal, on_done)


def update_hub(session: KafkaSession, name: str, spec: HubSpec, on_done: OnDone, validate_only: bool) -> None:
    """Change a hub, or only check whether the change is allowed."""
    namespace, manager = session.namespace.name, session.context.broker.manager
    hub = session.caller.hub(name, Rights.MANAGE, session.now_s).entity
    if validate_only or spec == HubSpec.of(hub):
        manager.check_update_hub(namespace, name, spec, session.now_ms)
        on_done(None)
    else:
        manager.update_hub(namespace, name, spec, session.actor(), on_done)


def answer_refusal(session: KafkaSession, refusal: Refusal, on_done: OnDone) -> None:
    """Answer a change that was refused at once, when its audit line is written."""
    session.context.broker.audit.when_written(lambda: on_done(refusal))


# --- DeleteRecords ---------------------------------------------------------------------------------------------------


@in_slices
def delete_records(session: KafkaSession, request: Request) -> WaitingSteps:
    """Delete records before an offset, by moving the start of partitions forward."""
    body: DeleteRecordsRequest = request.body
    topics: list[DeleteRecordsTopicResult] = []
    for topic in body.topics:
        partitions: list[DeleteRecordsPartitionResult] = []
        for part in topic.partitions:
            partitions.append((yield from _delete_partition_records(session, topic.name, part)))
            yield None
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions)))
    session.respond(request, DeleteRecordsResponse(topics=tuple(topics)))


def _delete_partition_records(
    session: KafkaSession, topic: str, part: DeleteRecordsPartition
) -> Generator[Wait | None, None, DeleteRecordsPartitionResult]:
    try:
        hub = session.caller.hub(topic, Rights.MANAGE, session.now_s)
        partition = hub.require_partition(part.index)
        if code := deletion_error(hub):
            return DeleteRecordsPartitionResult(index=part.index, low_watermark=-1, error_code=code)
        yield from until_open(partition)
        offset = partition.state.committed if part.offset == _HIGH_WATERMARK else part.offset
        log_start = session.caller.delete_records(topic, part.index, offset, session.now_s)
    except Refusal as refusal:
        session.log_refusal("the deletion of Kafka records", refusal, topic)
        return DeleteRecordsPartitionResult(index=part.index, low_watermark=-1, error_code=code_of(refusal))
    return DeleteRecordsPartitionResult(index=part.index, low_watermark=log_start, error_code=ErrorCode.NONE)


def deletion_error(hub: HubView) -> ErrorCode:
    """The error code if records of a hub may not be deleted on request.

    Kafka refuses it if the cleanup policy never deletes. The service does not serve this request, which clients report
    as an unsupported version. Tiers that follow the service answer so, except for compacted hubs.
    """
    if hub.entity.retention.policy is CleanupPolicy.COMPACT:
        return ErrorCode.POLICY_VIOLATION
    may_trim = hub.namespace.limits.has_record_deletion or hub.entity.retention.is_compacted
    return ErrorCode.NONE if may_trim else ErrorCode.UNSUPPORTED_VERSION


HANDLERS: Final[Mapping[int, Handler]] = {
    CREATE_TOPICS.key: create_topics,
    DELETE_TOPICS.key: delete_topics,
    DELETE_RECORDS.key: delete_records,
    CREATE_PARTITIONS.key: create_partitions,
}
