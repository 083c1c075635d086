"""Handlers for DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: configuration of topics and of the node.

Every resource has its own result. A resource that a request names twice is refused and not changed, as in Kafka. The
meaning of each entry is in `configs`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from hubmere.endpoints.kafka.admin import configs
from hubmere.endpoints.kafka.admin.hub_facts import hub_facts
from hubmere.endpoints.kafka.admin.topics import answer_refusal, config_defaults, error_of, update_hub
from hubmere.endpoints.kafka.context import NODE_ID, Handler
from hubmere.endpoints.kafka.gather import Gather, duplicates_of
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import MAX_NAMES, TOO_MANY_NAMES, Steps, encode_part, in_slices
from hubmere.model.entity import Hub, Rights
from hubmere.model.errors import NotSupported, Refusal
from hubmere.model.spec import HubSpec
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredResource,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ResourceType,
)
from hubmere.wire.kafka.schema import EncodedStruct

_ANY: Final = Rights.LISTEN | Rights.SEND | Rights.MANAGE
# Kafka's own error texts.
_DUPLICATE_RESOURCE: Final = "Duplicate resource."
_DUPLICATE_ENTRY: Final = "Error due to duplicate config keys"


@in_slices
def describe_configs(session: KafkaSession, request: Request) -> Steps:
    """Current entries of topics and of the node; a resource that is named twice is described once."""
    body: DescribeConfigsRequest = request.body
    resources = {(resource.resource_type, resource.resource_name): resource for resource in body.resources}
    results: list[EncodedStruct] = []
    for resource in resources.values():
        result = _describe(session, resource, len(resources), with_synonyms=body.include_synonyms)
        results.append(encode_part(request, result))
        # An entry of a configuration is as much work as a partition.
        yield from repeat(None, len(result.configs) + 1)
    session.respond(request, DescribeConfigsResponse(results=tuple(results)))


def _describe(
    session: KafkaSession, resource: ConfigResource, count: int, *, with_synonyms: bool
) -> DescribeConfigsResult:
    values: list[configs.ConfigValue] = []
    refusal: Refusal | None = None
    try:
        if count > MAX_NAMES:
            raise NotSupported(TOO_MANY_NAMES)
        values = _config_values(session, resource)
    except Refusal as caught:
        refusal = caught
    code, message = error_of(session, "a request for Kafka configuration", resource.resource_name, refusal)
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(_to_message(entry, with_synonyms=with_synonyms) for entry in values),
    )


def _config_values(session: KafkaSession, resource: ConfigResource) -> list[configs.ConfigValue]:
    limits, names = session.namespace.limits, resource.configuration_keys
    if resource.resource_type == ResourceType.TOPIC:
        hub = session.caller.hub(resource.resource_name, _ANY, session.now_s)
        described = configs.topic_configs(hub.entity, config_defaults(session), names)
        return described + hub_facts(session.context.broker, hub, names)
    if resource.resource_type == ResourceType.BROKER and resource.resource_name in ("", str(NODE_ID)):
        return configs.broker_configs(
            limits,
            auto_create=session.context.auto_create_hubs,
            partition_count=session.context.broker.default_partition_count,
            names=names,
        )
    raise NotSupported(f"Configuration of resource type {resource.resource_type} '{resource.resource_name}'")


def _to_message(values: configs.ConfigValue, *, with_synonyms: bool) -> DescribedConfig:
    synonym = ConfigSynonym(name=values.name, value=values.value, source=values.source)
    return DescribedConfig(
        name=values.name,
        value=values.value,
        read_only=values.is_read_only,
        is_default=values.source is not ConfigSource.TOPIC,
        config_source=values.source,
        is_sensitive=False,
        synonyms=(synonym,) if with_synonyms else (),
        config_type=values.kind,
    )


@in_slices
def incremental_alter_configs(session: KafkaSession, request: Request) -> Steps:
    """Change single entries of topics."""
    body: IncrementalAlterConfigsRequest = request.body

    def on_done(results: list[AlteredResource]) -> None:
        session.respond(request, IncrementalAlterConfigsResponse(responses=tuple(results)))

    changes: list[_Change] = []
    for resource in body.resources:
        entries = [(entry.name, entry.config_operation, entry.value) for entry in resource.configs]

        def change(hub: Hub, entries: list[tuple[str, int, str | None]] = entries) -> HubSpec:
            defaults = config_defaults(session)
            given = [(name, configs.apply_operation(hub, name, how, value, defaults)) for name, how, value in entries]
            return configs.apply_entries(HubSpec.of(hub), given, defaults.limits)

        names = [name for name, _, _ in entries]
        changes.append(_Change((resource.resource_type, resource.resource_name), names, change))
    yield from _alter_all(session, changes, on_done, validate_only=body.validate_only)


@in_slices
def alter_configs(session: KafkaSession, request: Request) -> Steps:
    """Replace all entries of topics; entries that are not named get their defaults, except those fixed at creation."""
    body: AlterConfigsRequest = request.body

    def on_done(results: list[AlteredResource]) -> None:
        session.respond(request, AlterConfigsResponse(responses=tuple(results)))

    changes: list[_Change] = []
    for resource in body.resources:
        entries = [(entry.name, entry.value) for entry in resource.configs]

        def change(hub: Hub, entries: list[tuple[str, str | None]] = entries) -> HubSpec:
            spec = HubSpec.of(hub)
            for name in configs.TOPIC_ENTRIES:
                spec = spec if name == "cleanup.policy" else configs.reset_entry(spec, name)
            return configs.apply_entries(spec, entries, session.namespace.limits)

        names = [name for name, _ in entries]
        changes.append(_Change((resource.resource_type, resource.resource_name), names, change))
    yield from _alter_all(session, changes, on_done, validate_only=body.validate_only)


class _Change(NamedTuple):
    """A change of one resource: its type and name, the named entries, and how they change a hub."""

    resource: tuple[int, str]
    names: list[str]
    apply: Callable[[Hub], HubSpec]


def _alter_all(
    session: KafkaSession,
    changes: list[_Change],
    on_done: Callable[[list[AlteredResource]], None],
    *,
    validate_only: bool,
) -> Steps:
    twice = duplicates_of(change.resource for change in changes)
    unique = list({change.resource: change for change in changes}.values())
    gather = Gather[AlteredResource](len(unique), on_done)
    for index, change in enumerate(unique):
        if change.resource in twice:
            gather.put(index, _to_result(change, ErrorCode.INVALID_REQUEST, _DUPLICATE_RESOURCE))
        elif duplicates_of(change.names):
            gather.put(index, _to_result(change, ErrorCode.INVALID_REQUEST, _DUPLICATE_ENTRY))
        else:
            _alter(session, change, partial(gather.put, index), validate_only=validate_only)
        yield


def _alter(
    session: KafkaSession, change: _Change, put: Callable[[AlteredResource], None], *, validate_only: bool
) -> None:
    kind, name = change.resource

    def on_done(refusal: Refusal | None) -> None:
        put(_to_result(change, *error_of(session, "a change of Kafka configuration", name, refusal)))

    try:
        if kind != ResourceType.TOPIC:
            raise NotSupported("Changing the configuration of a broker by Kafka")
        update_hub(
            session,
            name,
            change.apply(session.caller.hub(name, Rights.MANAGE, session.now_s).entity),
            on_done,
            validate_only,
        )
    except Refusal as refusal:
        answer_refusal(session, refusal, on_done)


def _to_result(change: _Change, code: ErrorCode, message: str | None) -> AlteredResource:
    kind, name = change.resource
    return AlteredResource(error_code=code, error_message=message, resource_type=kind, resource_name=name)


HANDLERS: Final[Mapping[int, Handler]] = {
    DESCRIBE_CONFIGS.key: describe_configs,
    ALTER_CONFIGS.key: alter_configs,
    INCREMENTAL_ALTER_CONFIGS.key: incremental_alter_configs,
}
