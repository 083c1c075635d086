"""Create, alter, describe, delete: topics are hubs, and the limits are those of the tier (reference: kafka 1.7, 2.14).

Making topics needs the right to manage the namespace, changing one that of managing its hub. Every topic or resource
has its own result. What takes time (the catalog) delays the answer; replication factors and assignments of brokers mean
nothing here and are taken as they come.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from hubmere.broker.access import Resource
from hubmere.endpoints.kafka import configs
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.gather import Gather
from hubmere.endpoints.kafka.metadata import hub_of_id
from hubmere.endpoints.kafka.session import NODE_ID, Handler, KafkaSession
from hubmere.model.entity import Hub, Rights
from hubmere.model.errors import (
    AlreadyExists,
    InvalidArgument,
    InvalidName,
    LimitReached,
    NotInTier,
    NotSupported,
    PartitionCountFixed,
    PartitionNotFound,
    Refusal,
)
from hubmere.model.names import hub_name
from hubmere.model.spec import HubSpec, changed_hub, new_hub
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
from hubmere.wire.kafka.messages.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredResource,
    ConfigResource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ResourceType,
)

_ANY: Final = Rights.LISTEN | Rights.SEND | Rights.MANAGE
_DEFAULT: Final = -1
_TOPICS_BY_ID_SINCE: Final = 6  # KIP-516
_HIGH_WATERMARK: Final = -1

Done = Callable[[Refusal | None], None]


def _code(refusal: Refusal) -> ErrorCode:
    """As `code_of`, in the words of administrators: what cannot be set is a bad entry, what is too much a policy."""
    if isinstance(refusal, InvalidArgument) and not isinstance(refusal, (InvalidName, PartitionCountFixed)):
        return ErrorCode.INVALID_CONFIG
    return ErrorCode.POLICY_VIOLATION if isinstance(refusal, NotInTier) else code_of(refusal)


def _told(refusal: Refusal | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if refusal is None else (_code(refusal), refusal.text())


# --- CreateTopics ----------------------------------------------------------------------------------------------------


def create_topics(session: KafkaSession, request: Request) -> None:
    """Make hubs; each is answered when it is durable."""
    body: CreateTopicsRequest = request.body

    def done(topics: list[CreatedTopic]) -> None:
        session.respond(request, CreateTopicsResponse(topics=tuple(topics)))

    gather = Gather[CreatedTopic](len(body.topics), done)
    for index, topic in enumerate(body.topics):
        _create(session, topic, gather, index, validate_only=body.validate_only)


def _create(
    session: KafkaSession, topic: CreatableTopic, gather: Gather[CreatedTopic], index: int, *, validate_only: bool
) -> None:
    made: list[Hub] = []

    def done(refusal: Refusal | None) -> None:
        gather.put(index, _created(session, topic.name, refusal, made))

    namespace = session.namespace.entity.name
    try:
        session.shared.broker.require_kafka(session.namespace.entity)
        session.principal.require(Rights.MANAGE, Resource.of_namespace(namespace))
        spec = _wished(session, topic)
        if validate_only:
            made.append(_rehearsed(session, topic.name, spec))
        else:
            create = session.shared.broker.manager.create_hub
            made.append(create(namespace, hub_name(topic.name), spec, session.by(), done))
    except Refusal as refusal:
        done(refusal)
    else:
        if validate_only:
            done(None)


def _wished(session: KafkaSession, topic: CreatableTopic) -> HubSpec:
    count = len(topic.assignments) or topic.num_partitions
    limits = session.namespace.limits
    if count < 1 and count != _DEFAULT:
        raise PartitionCountFixed("partition count", count, "at least 1")
    if limits.partitions_per_hub is not None and count > limits.partitions_per_hub:
        raise LimitReached("partitions of an event hub", limits.partitions_per_hub)
    spec = HubSpec(partition_count=None if count == _DEFAULT else count)
    return configs.wish(spec, ((entry.name, entry.value) for entry in topic.configs), limits)


def _rehearsed(session: KafkaSession, name: str, spec: HubSpec) -> Hub:
    """The hub that would be made; refuses what would be refused."""
    namespace, view = session.namespace, session.shared.broker.catalog.planned
    if view.find_hub(namespace.entity.name, name) is not None:
        raise AlreadyExists(namespace.resource(name))
    existing = view.hubs(namespace.entity.name)
    hub, _ = new_hub(namespace.entity, hub_name(name), spec, namespace.limits, existing=existing, now_ms=session.now_ms)
    return hub


def _created(session: KafkaSession, name: str, refusal: Refusal | None, made: list[Hub]) -> CreatedTopic:
    code, message = _told(refusal)
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
            for shown in configs.topic_configs(hub, session.namespace.limits, None)
        ),
    )


# --- DeleteTopics ----------------------------------------------------------------------------------------------------


def delete_topics(session: KafkaSession, request: Request) -> None:
    """Delete hubs by name, or from version 6 on by id."""
    body: DeleteTopicsRequest = request.body
    is_new = request.version >= _TOPICS_BY_ID_SINCE
    wanted = body.topics if is_new else tuple(DeletableTopic(name=name) for name in body.topic_names)

    def done(topics: list[DeletedTopic]) -> None:
        session.respond(request, DeleteTopicsResponse(responses=tuple(topics)))

    gather = Gather[DeletedTopic](len(wanted), done)
    for index, topic in enumerate(wanted):
        _delete(session, topic, gather, index)


def _delete(session: KafkaSession, topic: DeletableTopic, gather: Gather[DeletedTopic], index: int) -> None:
    known = hub_of_id(session, topic.topic_id) if topic.name is None else None
    if topic.name is None and known is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
        gather.put(index, DeletedTopic(name=None, topic_id=topic.topic_id, error_code=code))
        return
    name = known.name if known is not None else topic.name or ""

    def done(refusal: Refusal | None) -> None:
        code, message = _told(refusal)
        gather.put(index, DeletedTopic(name=name, topic_id=topic.topic_id, error_code=code, error_message=message))

    try:
        hub = session.reach.hub(name, Rights.MANAGE)
        session.shared.broker.manager.delete_hub(session.namespace.entity.name, hub.name, session.by(), done)
    except Refusal as refusal:
        done(refusal)


# --- CreatePartitions ------------------------------------------------------------------------------------------------


def create_partitions(session: KafkaSession, request: Request) -> None:
    """Let hubs grow, where the tier lets them."""
    body: CreatePartitionsRequest = request.body

    def done(topics: list[GrownTopic]) -> None:
        session.respond(request, CreatePartitionsResponse(results=tuple(topics)))

    gather = Gather[GrownTopic](len(body.topics), done)
    for index, topic in enumerate(body.topics):
        _grow(session, topic, gather, index, validate_only=body.validate_only)


def _grow(
    session: KafkaSession, topic: GrowingTopic, gather: Gather[GrownTopic], index: int, *, validate_only: bool
) -> None:
    def done(refusal: Refusal | None) -> None:
        code, message = _told(refusal)
        gather.put(index, GrownTopic(name=topic.name, error_code=code, error_message=message))

    try:
        hub = session.reach.hub(topic.name, Rights.MANAGE)
        current, most = hub.entity.partition_count, session.namespace.limits.partitions_per_hub
        if topic.count <= current:
            raise PartitionCountFixed("partition count", topic.count, f"more than {current}")
        if most is not None and topic.count > most:
            raise LimitReached("partitions of an event hub", most)
        _update(session, topic.name, replace(HubSpec.of(hub.entity), partition_count=topic.count), done, validate_only)
    except Refusal as refusal:
        done(refusal)


def _update(session: KafkaSession, name: str, spec: HubSpec, done: Done, validate_only: bool) -> None:
    """Change a hub, or only see whether that could be done."""
    namespace, broker = session.namespace, session.shared.broker
    hub = session.reach.hub(name, Rights.MANAGE).entity
    if validate_only or spec == HubSpec.of(hub):
        existing = broker.catalog.planned.hubs(namespace.entity.name)
        changed_hub(namespace.entity, hub, spec, namespace.limits, existing=existing, now_ms=session.now_ms)
        done(None)
        return
    broker.manager.update_hub(namespace.entity.name, name, spec, session.by(), done)


# --- configurations --------------------------------------------------------------------------------------------------


def describe_configs(session: KafkaSession, request: Request) -> None:
    """Every entry in force, of topics and of the node."""
    body: DescribeConfigsRequest = request.body
    results = tuple(_describe(session, resource, with_synonyms=body.include_synonyms) for resource in body.resources)
    session.respond(request, DescribeConfigsResponse(results=results))


def _describe(session: KafkaSession, resource: ConfigResource, *, with_synonyms: bool) -> DescribeConfigsResult:
    shown: list[configs.Shown] = []
    refusal: Refusal | None = None
    try:
        shown = _shown(session, resource)
    except Refusal as caught:
        refusal = caught
    code, message = _told(refusal)
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(_described(entry, with_synonyms=with_synonyms) for entry in shown),
    )


def _shown(session: KafkaSession, resource: ConfigResource) -> list[configs.Shown]:
    limits, names = session.namespace.limits, resource.configuration_keys
    if resource.resource_type == ResourceType.TOPIC:
        return configs.topic_configs(session.reach.hub(resource.resource_name, _ANY).entity, limits, names)
    if resource.resource_type == ResourceType.BROKER and resource.resource_name in ("", str(NODE_ID)):
        return configs.broker_configs(
            limits,
            auto_create=session.shared.auto_create_hubs,
            partition_count=session.shared.broker.default_partition_count,
            names=names,
        )
    raise NotSupported(f"Configuration of resource type {resource.resource_type} '{resource.resource_name}'")


def _described(shown: configs.Shown, *, with_synonyms: bool) -> DescribedConfig:
    synonym = ConfigSynonym(name=shown.name, value=shown.value, source=shown.source)
    return DescribedConfig(
        name=shown.name,
        value=shown.value,
        read_only=shown.is_read_only,
        config_source=shown.source,
        is_sensitive=False,
        synonyms=(synonym,) if with_synonyms else (),
        config_type=shown.kind,
    )


def incremental_alter_configs(session: KafkaSession, request: Request) -> None:
    """Change single entries of topics."""
    body: IncrementalAlterConfigsRequest = request.body

    def done(results: list[AlteredResource]) -> None:
        session.respond(request, IncrementalAlterConfigsResponse(responses=tuple(results)))

    gather = Gather[AlteredResource](len(body.resources), done)
    for index, resource in enumerate(body.resources):
        entries = [(entry.name, entry.config_operation, entry.value) for entry in resource.configs]

        def change(hub: Hub, entries: list[tuple[str, int, str | None]] = entries) -> HubSpec:
            limits = session.namespace.limits
            given = [(name, configs.operated(hub, name, how, value, limits)) for name, how, value in entries]
            return configs.wish(HubSpec.of(hub), given, limits)

        place = (resource.resource_type, resource.resource_name)
        _alter(session, place, change, gather, index, validate_only=body.validate_only)


def alter_configs(session: KafkaSession, request: Request) -> None:
    """Replace all entries of topics; what is not named goes back to its default, but for what is fixed at creation."""
    body: AlterConfigsRequest = request.body

    def done(results: list[AlteredResource]) -> None:
        session.respond(request, AlterConfigsResponse(responses=tuple(results)))

    gather = Gather[AlteredResource](len(body.resources), done)
    for index, resource in enumerate(body.resources):
        entries = [(entry.name, entry.value) for entry in resource.configs]

        def change(hub: Hub, entries: list[tuple[str, str | None]] = entries) -> HubSpec:
            spec = HubSpec.of(hub)
            for name in configs.TOPIC_ENTRIES:
                spec = spec if name == "cleanup.policy" else configs.reset(spec, name)
            return configs.wish(spec, entries, session.namespace.limits)

        place = (resource.resource_type, resource.resource_name)
        _alter(session, place, change, gather, index, validate_only=body.validate_only)


def _alter(
    session: KafkaSession,
    place: tuple[int, str],
    change: Callable[[Hub], HubSpec],
    gather: Gather[AlteredResource],
    index: int,
    *,
    validate_only: bool,
) -> None:
    kind, name = place

    def done(refusal: Refusal | None) -> None:
        code, message = _told(refusal)
        gather.put(
            index,
            AlteredResource(error_code=code, error_message=message, resource_type=kind, resource_name=name),
        )

    try:
        if kind != ResourceType.TOPIC:
            raise NotSupported("Changing the configuration of a broker by Kafka")
        _update(session, name, change(session.reach.hub(name, Rights.MANAGE).entity), done, validate_only)
    except Refusal as refusal:
        done(refusal)


# --- DeleteRecords ---------------------------------------------------------------------------------------------------


def delete_records(session: KafkaSession, request: Request) -> None:
    """Move the start of partitions forward."""
    body: DeleteRecordsRequest = request.body
    topics = tuple(
        DeleteRecordsTopicResult(
            name=topic.name, partitions=tuple(_trim(session, topic.name, part) for part in topic.partitions)
        )
        for topic in body.topics
    )
    session.respond(request, DeleteRecordsResponse(topics=topics))


def _trim(session: KafkaSession, topic: str, part: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        hub = session.reach.hub(topic, Rights.MANAGE)
        if not 0 <= part.index < hub.entity.partition_count:
            raise PartitionNotFound(topic, str(part.index), hub.entity.partition_count)
        log = hub.log(part.index)
        log.trim(log.state.end_sequence if part.offset == _HIGH_WATERMARK else part.offset)
    except Refusal as refusal:
        return DeleteRecordsPartitionResult(index=part.index, low_watermark=-1, error_code=code_of(refusal))
    return DeleteRecordsPartitionResult(
        index=part.index, low_watermark=log.state.first_sequence, error_code=ErrorCode.NONE
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    CREATE_TOPICS.key: create_topics,
    DELETE_TOPICS.key: delete_topics,
    DELETE_RECORDS.key: delete_records,
    CREATE_PARTITIONS.key: create_partitions,
    DESCRIBE_CONFIGS.key: describe_configs,
    ALTER_CONFIGS.key: alter_configs,
    INCREMENTAL_ALTER_CONFIGS.key: incremental_alter_configs,
}
