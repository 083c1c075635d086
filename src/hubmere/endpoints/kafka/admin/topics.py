"""Create, grow, delete, trim: topics are hubs, and the limits are those of the tier (reference: kafka 1.7, 2.14).

Making topics needs the right to manage the namespace, changing one that of managing its hub. Every topic has its own
result; a topic that one request names twice is refused and left alone, as Kafka does. What takes time (the catalog)
delays the answer; replication factors and assignments of brokers mean nothing here and are taken as they come.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from hubmere.broker import HubView
from hubmere.endpoints.kafka.admin import configs
from hubmere.endpoints.kafka.admin.metadata import hubs_by_id
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.gather import Gather, repeated
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.shared import Handler
from hubmere.endpoints.kafka.slices import Steps, in_slices
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
# Kafka's own words for a name that one request has more than once.
DUPLICATE_TOPIC: Final = "Duplicate topic name."

Done = Callable[[Refusal | None], None]


def _code(refusal: Refusal) -> ErrorCode:
    """As `code_of`, in the words of administrators: what cannot be set is a bad entry, what is too much a policy."""
    if isinstance(refusal, InvalidArgument) and not isinstance(refusal, (InvalidName, PartitionCountFixed)):
        return ErrorCode.INVALID_CONFIG
    return ErrorCode.POLICY_VIOLATION if isinstance(refusal, NotInTier) else code_of(refusal)


def outcome(refusal: Refusal | None) -> tuple[ErrorCode, str | None]:
    """Code and text for one topic or resource."""
    return (ErrorCode.NONE, None) if refusal is None else (_code(refusal), refusal.text())


def defaults_of(session: KafkaSession) -> configs.Defaults:
    """What holds for topics of the client's namespace that say nothing else."""
    return configs.Defaults(limits=session.namespace.limits, segment_bytes=session.shared.broker.segment_bytes)


# --- CreateTopics ----------------------------------------------------------------------------------------------------


@in_slices
def create_topics(session: KafkaSession, request: Request) -> Steps:
    """Make hubs; each is answered when it is durable."""
    body: CreateTopicsRequest = request.body

    def done(topics: list[CreatedTopic]) -> None:
        session.respond(request, CreateTopicsResponse(topics=tuple(topics)))

    twice = repeated(topic.name for topic in body.topics)
    topics = list({topic.name: topic for topic in body.topics}.values())
    gather = Gather[CreatedTopic](len(topics), done)
    for index, topic in enumerate(topics):
        if topic.name in twice:
            gather.put(index, CreatedTopic(name=topic.name, error_code=_INVALID, error_message=DUPLICATE_TOPIC))
        else:
            _create(session, topic, gather, index, validate_only=body.validate_only)
        yield


def _create(
    session: KafkaSession, topic: CreatableTopic, gather: Gather[CreatedTopic], index: int, *, validate_only: bool
) -> None:
    made: list[Hub] = []

    def done(refusal: Refusal | None) -> None:
        gather.put(index, _created(session, topic.name, refusal, made))

    namespace, manager = session.namespace.name, session.shared.broker.manager
    try:
        session.caller.require_on_namespace(Rights.MANAGE, session.now_s)
        spec, name = _wished(session, topic), hub_name(topic.name)
        if validate_only:
            made.append(manager.check_create_hub(namespace, name, spec, session.now_ms))
        else:
            made.append(manager.create_hub(namespace, name, spec, session.actor(), done))
    except Refusal as refusal:
        done(refusal)
    else:
        if validate_only:
            done(None)


def _wished(session: KafkaSession, topic: CreatableTopic) -> HubSpec:
    count = len(topic.assignments) or topic.num_partitions
    limits = session.namespace.limits
    if count < limits.least_partitions_per_hub and count != _DEFAULT:
        raise PartitionCountFixed("partition count", count, f"at least {limits.least_partitions_per_hub}")
    if limits.partitions_per_hub is not None and count > limits.partitions_per_hub:
        raise LimitReached("partitions of an event hub", limits.partitions_per_hub)
    spec = HubSpec(partition_count=None if count == _DEFAULT else count)
    return configs.wish(spec, ((entry.name, entry.value) for entry in topic.configs), limits)


def _created(session: KafkaSession, name: str, refusal: Refusal | None, made: list[Hub]) -> CreatedTopic:
    code, message = outcome(refusal)
    if refusal is not None or not made:
        return CreatedTopic(name=name, error_code=code, error_message=message)
    hub = made[0]
    return CreatedTopic(
        name=name,
        topic_id=UUID(hub.topic_id),
        error_code=code,
        num_partitions=hub.partition_count,
        replication_factor=1,
        configs=tuple(
            CreatedTopicConfig(
                name=shown.name,
                value=shown.value,
                read_only=shown.is_read_only,
                config_source=shown.source,
                is_sensitive=False,
            )
            for shown in configs.topic_configs(hub, defaults_of(session), None)
        ),
    )


# --- DeleteTopics ----------------------------------------------------------------------------------------------------


@in_slices
def delete_topics(session: KafkaSession, request: Request) -> Steps:
    """Delete hubs by name, or from version 6 on by id."""
    body: DeleteTopicsRequest = request.body
    is_new = request.version >= _TOPICS_BY_ID_SINCE
    wanted = body.topics if is_new else tuple(DeletableTopic(name=name) for name in body.topic_names)

    def done(topics: list[DeletedTopic]) -> None:
        session.respond(request, DeleteTopicsResponse(responses=tuple(topics)))

    keys = [(topic.name, topic.topic_id) for topic in wanted]
    twice = repeated(keys)
    unique = list(dict(zip(keys, wanted, strict=True)).values())
    by_id = hubs_by_id(session) if any(name is None for name, _ in keys) else {}
    gather = Gather[DeletedTopic](len(unique), done)
    for index, topic in enumerate(unique):
        why = _misnamed(topic, is_twice=(topic.name, topic.topic_id) in twice)
        if why is None:
            _delete(session, topic, by_id.get(topic.topic_id), gather, index)
        else:
            deleted = DeletedTopic(name=topic.name, topic_id=topic.topic_id, error_code=_INVALID, error_message=why)
            gather.put(index, deleted)
        yield


def _misnamed(topic: DeletableTopic, *, is_twice: bool) -> str | None:
    """Why it is not clear which topic is meant, in Kafka's words; None where it is."""
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
    """`known` is the hub of the id, where one was given and is there."""
    if topic.name is None and known is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
        gather.put(index, DeletedTopic(name=None, topic_id=topic.topic_id, error_code=code))
        return
    name = known.name if known is not None else topic.name or ""

    def done(refusal: Refusal | None) -> None:
        code, message = outcome(refusal)
        gather.put(index, DeletedTopic(name=name, topic_id=topic.topic_id, error_code=code, error_message=message))

    try:
        hub = session.caller.hub(name, Rights.MANAGE, session.now_s)
        session.shared.broker.manager.delete_hub(session.namespace.name, hub.name, session.actor(), done)
    except Refusal as refusal:
        done(refusal)


# --- CreatePartitions ------------------------------------------------------------------------------------------------


@in_slices
def create_partitions(session: KafkaSession, request: Request) -> Steps:
    """Let hubs grow, where the tier lets them."""
    body: CreatePartitionsRequest = request.body

    def done(topics: list[GrownTopic]) -> None:
        session.respond(request, CreatePartitionsResponse(results=tuple(topics)))

    twice = repeated(topic.name for topic in body.topics)
    topics = list({topic.name: topic for topic in body.topics}.values())
    gather = Gather[GrownTopic](len(topics), done)
    for index, topic in enumerate(topics):
        if topic.name in twice:
            gather.put(index, GrownTopic(name=topic.name, error_code=_INVALID, error_message=DUPLICATE_TOPIC))
        else:
            _grow(session, topic, gather, index, validate_only=body.validate_only)
        yield


def _grow(
    session: KafkaSession, topic: GrowingTopic, gather: Gather[GrownTopic], index: int, *, validate_only: bool
) -> None:
    def done(refusal: Refusal | None) -> None:
        code, message = outcome(refusal)
        gather.put(index, GrownTopic(name=topic.name, error_code=code, error_message=message))

    try:
        hub = session.caller.hub(topic.name, Rights.MANAGE, session.now_s)
        current, most = hub.entity.partition_count, session.namespace.limits.partitions_per_hub
        if topic.count <= current:
            raise PartitionCountFixed("partition count", topic.count, f"more than {current}")
        if most is not None and topic.count > most:
            raise LimitReached("partitions of an event hub", most)
        update_hub(
            session, topic.name, replace(HubSpec.of(hub.entity), partition_count=topic.count), done, validate_only
        )
    except Refusal as refusal:
        done(refusal)


def update_hub(session: KafkaSession, name: str, spec: HubSpec, done: Done, validate_only: bool) -> None:
    """Change a hub, or only see whether that could be done."""
    namespace, manager = session.namespace.name, session.shared.broker.manager
    hub = session.caller.hub(name, Rights.MANAGE, session.now_s).entity
    if validate_only or spec == HubSpec.of(hub):
        manager.check_update_hub(namespace, name, spec, session.now_ms)
        done(None)
    else:
        manager.update_hub(namespace, name, spec, session.actor(), done)


# --- DeleteRecords ---------------------------------------------------------------------------------------------------


@in_slices
def delete_records(session: KafkaSession, request: Request) -> Steps:
    """Move the start of partitions forward."""
    body: DeleteRecordsRequest = request.body
    topics: list[DeleteRecordsTopicResult] = []
    for topic in body.topics:
        partitions: list[DeleteRecordsPartitionResult] = []
        for part in topic.partitions:
            partitions.append(_trim(session, topic.name, part))
            yield
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions)))
    session.respond(request, DeleteRecordsResponse(topics=tuple(topics)))


def _trim(session: KafkaSession, topic: str, part: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        hub = session.caller.hub(topic, Rights.MANAGE, session.now_s)
        partition = hub.require_partition(part.index)
        if code := _trim_refused(hub):
            return DeleteRecordsPartitionResult(index=part.index, low_watermark=-1, error_code=code)
        offset = partition.state.committed if part.offset == _HIGH_WATERMARK else part.offset
        log_start = session.caller.delete_records(topic, part.index, offset, session.now_s)
    except Refusal as refusal:
        return DeleteRecordsPartitionResult(index=part.index, low_watermark=-1, error_code=code_of(refusal))
    return DeleteRecordsPartitionResult(index=part.index, low_watermark=log_start, error_code=ErrorCode.NONE)


def _trim_refused(hub: HubView) -> ErrorCode:
    """Whether a hub's records may not be deleted by hand.

    Kafka refuses it where the policy never deletes. The service has no such request, which its clients report as an
    unsupported version; tiers that follow it answer so, but for compacted hubs, whose records go at any time.
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
