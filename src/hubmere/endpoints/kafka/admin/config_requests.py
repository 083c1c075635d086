"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the entries of topics and of the node over the wire.

Every resource has its own result; one that a request names twice is refused and left alone, as Kafka does. What an
entry means is in `configs`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from hubmere.endpoints.kafka.admin import configs
from hubmere.endpoints.kafka.admin.topics import defaults_of, outcome, update_hub
from hubmere.endpoints.kafka.gather import Gather, repeated
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.shared import NODE_ID, Handler
from hubmere.endpoints.kafka.slices import MAX_NAMES, TOO_MANY_NAMES, Steps, encoded, in_slices
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
# Kafka's own words.
_DUPLICATE_RESOURCE: Final = "Duplicate resource."
_DUPLICATE_ENTRY: Final = "Error due to duplicate config keys"


@in_slices
def describe_configs(session: KafkaSession, request: Request) -> Steps:
    """Every entry in force, of topics and of the node; a resource that is named twice is described once."""
    body: DescribeConfigsRequest = request.body
    resources = {(resource.resource_type, resource.resource_name): resource for resource in body.resources}
    results: list[EncodedStruct] = []
    for resource in resources.values():
        result = _describe(session, resource, len(resources), with_synonyms=body.include_synonyms)
        results.append(encoded(request, result))
        # An entry of a configuration is as much work as a partition.
        yield from repeat(None, len(result.configs) + 1)
    session.respond(request, DescribeConfigsResponse(results=tuple(results)))


def _describe(
    session: KafkaSession, resource: ConfigResource, count: int, *, with_synonyms: bool
) -> DescribeConfigsResult:
    shown: list[configs.Shown] = []
    refusal: Refusal | None = None
    try:
        if count > MAX_NAMES:
            raise NotSupported(TOO_MANY_NAMES)
        shown = _shown(session, resource)
    except Refusal as caught:
        refusal = caught
    code, message = outcome(refusal)
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
        return configs.topic_configs(
            session.caller.hub(resource.resource_name, _ANY, session.now_s).entity, defaults_of(session), names
        )
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
        is_default=shown.source is not ConfigSource.TOPIC,
        config_source=shown.source,
        is_sensitive=False,
        synonyms=(synonym,) if with_synonyms else (),
        config_type=shown.kind,
    )


@in_slices
def incremental_alter_configs(session: KafkaSession, request: Request) -> Steps:
    """Change single entries of topics."""
    body: IncrementalAlterConfigsRequest = request.body

    def done(results: list[AlteredResource]) -> None:
        session.respond(request, IncrementalAlterConfigsResponse(responses=tuple(results)))

    changes: list[_Change] = []
    for resource in body.resources:
        entries = [(entry.name, entry.config_operation, entry.value) for entry in resource.configs]

        def change(hub: Hub, entries: list[tuple[str, int, str | None]] = entries) -> HubSpec:
            defaults = defaults_of(session)
            given = [(name, configs.operated(hub, name, how, value, defaults)) for name, how, value in entries]
            return configs.wish(HubSpec.of(hub), given, defaults.limits)

        names = [name for name, _, _ in entries]
        changes.append(_Change((resource.resource_type, resource.resource_name), names, change))
    yield from _alter_all(session, changes, done, validate_only=body.validate_only)


@in_slices
def alter_configs(session: KafkaSession, request: Request) -> Steps:
    """Replace all entries of topics; what is not named goes back to its default, but for what is fixed at creation."""
    body: AlterConfigsRequest = request.body

    def done(results: list[AlteredResource]) -> None:
        session.respond(request, AlterConfigsResponse(responses=tuple(results)))

    changes: list[_Change] = []
    for resource in body.resources:
        entries = [(entry.name, entry.value) for entry in resource.configs]

        def change(hub: Hub, entries: list[tuple[str, str | None]] = entries) -> HubSpec:
            spec = HubSpec.of(hub)
            for name in configs.TOPIC_ENTRIES:
                spec = spec if name == "cleanup.policy" else configs.reset(spec, name)
            return configs.wish(spec, entries, session.namespace.limits)

        names = [name for name, _ in entries]
        changes.append(_Change((resource.resource_type, resource.resource_name), names, change))
    yield from _alter_all(session, changes, done, validate_only=body.validate_only)


class _Change(NamedTuple):
    """What is to become of one resource: its type and name, the entries that are named, and how a hub changes."""

    resource: tuple[int, str]
    names: list[str]
    apply: Callable[[Hub], HubSpec]


def _alter_all(
    session: KafkaSession,
    changes: list[_Change],
    done: Callable[[list[AlteredResource]], None],
    *,
    validate_only: bool,
) -> Steps:
    twice = repeated(change.resource for change in changes)
    unique = list({change.resource: change for change in changes}.values())
    gather = Gather[AlteredResource](len(unique), done)
    for index, change in enumerate(unique):
        if change.resource in twice:
            gather.put(index, _altered(change, ErrorCode.INVALID_REQUEST, _DUPLICATE_RESOURCE))
        elif repeated(change.names):
            gather.put(index, _altered(change, ErrorCode.INVALID_REQUEST, _DUPLICATE_ENTRY))
        else:
            _alter(session, change, partial(gather.put, index), validate_only=validate_only)
        yield


def _alter(
    session: KafkaSession, change: _Change, put: Callable[[AlteredResource], None], *, validate_only: bool
) -> None:
    def done(refusal: Refusal | None) -> None:
        put(_altered(change, *outcome(refusal)))

    kind, name = change.resource
    try:
        if kind != ResourceType.TOPIC:
            raise NotSupported("Changing the configuration of a broker by Kafka")
        update_hub(
            session,
            name,
            change.apply(session.caller.hub(name, Rights.MANAGE, session.now_s).entity),
            done,
            validate_only,
        )
    except Refusal as refusal:
        done(refusal)


def _altered(change: _Change, code: ErrorCode, message: str | None) -> AlteredResource:
    kind, name = change.resource
    return AlteredResource(error_code=code, error_message=message, resource_type=kind, resource_name=name)


HANDLERS: Final[Mapping[int, Handler]] = {
    DESCRIBE_CONFIGS.key: describe_configs,
    ALTER_CONFIGS.key: alter_configs,
    INCREMENTAL_ALTER_CONFIGS.key: incremental_alter_configs,
}
