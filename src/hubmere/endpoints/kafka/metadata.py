"""Metadata, API versions, cluster: what is served, where, and which topics there are (reference: kafka 2.6).

One node, id 0, under the name and port by which the client came. A client sees the topics that it may read, write or
manage; asking for one that is not there makes it, where the settings and the client's rights allow that.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from hubmere.broker.access import Resource
from hubmere.broker.live import LiveHub, LiveNamespace
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.gather import Gather
from hubmere.endpoints.kafka.operations import cluster_operations, topic_operations
from hubmere.endpoints.kafka.session import NODE_ID, Handler, KafkaSession
from hubmere.model.entity import Rights
from hubmere.model.errors import AlreadyExists, HubNotFound, NotInTier, Refusal
from hubmere.model.names import fold, hub_name
from hubmere.model.spec import HubSpec
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.metadata import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    METADATA,
    NO_OPERATIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from hubmere.wire.kafka.primitives import ZERO_UUID

# KIP-511: what a client may call itself.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE: Final = 3
# As long as Kafka's own cluster ids: 16 bytes in base64.
_CLUSTER_ID_BYTES: Final = 16
_IDS_SINCE: Final = 12  # KIP-516: versions 10 and 11 tell ids, but cannot be asked by them
_ANY: Final = Rights.LISTEN | Rights.SEND | Rights.MANAGE
_REPLICAS: Final = (NODE_ID,)

# What the caller may do with a topic, or that it has not asked.
Operations = Callable[[KafkaSession, str], int]


# --- ApiVersions -----------------------------------------------------------------------------------------------------


def api_versions(keys: Iterable[int]) -> Handler:
    """The handler that tells which APIs are served."""
    ranges = tuple(
        ApiVersion(api_key=key, min_version=APIS[key].advertised.low, max_version=APIS[key].advertised.high)
        for key in sorted(keys)
    )

    def handle(session: KafkaSession, request: Request) -> None:
        body: ApiVersionsRequest = request.body
        names = (body.client_software_name, body.client_software_version)
        is_named = request.version < _SOFTWARE_SINCE or all(map(_SOFTWARE.fullmatch, names))
        code = ErrorCode.NONE if is_named else ErrorCode.INVALID_REQUEST
        session.client_id, session.software = request.client_id or "", " ".join(names)
        session.respond(request, ApiVersionsResponse(error_code=code, api_keys=ranges if is_named else ()))

    return handle


# --- Metadata --------------------------------------------------------------------------------------------------------


def metadata(session: KafkaSession, request: Request) -> None:
    """Where we are and which topics there are; topics that are to be made delay the answer until they are."""
    body: MetadataRequest = request.body
    operations_on = _topic_operations if body.include_topic_authorized_operations else _not_asked
    if request.version < _IDS_SINCE and any(topic.name is None for topic in body.topics or ()):
        session.drop("it asks for topics by id in a version that has none")
        return
    if body.topics is None or (request.version == 0 and not body.topics):
        described = [_described(hub, operations_on(session, hub.name), opens=False) for hub in visible_hubs(session)]
        _answer(session, request, described)
        return

    def done(topics: list[MetadataTopic]) -> None:
        _answer(session, request, topics)

    gather = Gather[MetadataTopic](len(body.topics), done)
    for index, asked in enumerate(body.topics):
        wanted = _by_id(asked) if request.version >= _IDS_SINCE else asked
        _look_up(session, wanted, gather, index, may_create=body.allow_auto_topic_creation, operations=operations_on)


def _by_id(asked: MetadataRequestTopic) -> MetadataRequestTopic:
    """Java's consumers leave the name empty where it could be null."""
    is_by_id = not asked.name and asked.topic_id != ZERO_UUID
    return MetadataRequestTopic(topic_id=asked.topic_id, name=None) if is_by_id else asked


def _topic_operations(session: KafkaSession, topic: str) -> int:
    return topic_operations(session.principal, session.namespace.entity.name, topic)


def _not_asked(_session: KafkaSession, _topic: str) -> int:
    return NO_OPERATIONS


def _cluster_operations(session: KafkaSession, *, is_asked: bool) -> int:
    return cluster_operations(session.principal, session.namespace.entity.name) if is_asked else NO_OPERATIONS


def _answer(session: KafkaSession, request: Request, topics: Iterable[MetadataTopic]) -> None:
    is_asked = request.body.include_cluster_authorized_operations
    session.respond(
        request,
        MetadataResponse(
            brokers=(MetadataBroker(node_id=NODE_ID, host=session.host, port=session.port),),
            cluster_id=cluster_id(session.namespace),
            controller_id=NODE_ID,
            topics=tuple(topics),
            cluster_authorized_operations=_cluster_operations(session, is_asked=is_asked),
        ),
    )


def visible_hubs(session: KafkaSession) -> list[LiveHub]:
    """The hubs that a client may know of, by name."""
    namespace, principal = session.namespace, session.principal
    try:
        session.shared.broker.require_kafka(namespace.entity)
    except NotInTier:
        return []
    name = namespace.entity.name
    hubs = sorted(namespace.hubs.values(), key=lambda hub: hub.name)
    return [hub for hub in hubs if principal.may(_ANY, Resource.of_hub(name, hub.name, is_messages=True))]


def _look_up(
    session: KafkaSession,
    wanted: MetadataRequestTopic,
    gather: Gather[MetadataTopic],
    index: int,
    *,
    may_create: bool,
    operations: Operations,
) -> None:
    if wanted.name is None:
        hub = hub_of_id(session, wanted.topic_id)
        if hub is None:
            gather.put(index, _unknown_id(wanted.topic_id))
        else:
            gather.put(index, _described(hub, operations(session, hub.name), opens=True))
        return
    try:
        hub = session.reach.hub(wanted.name, _ANY)
        gather.put(index, _described(hub, operations(session, hub.name), opens=True))
    except HubNotFound as refusal:
        if may_create and session.shared.auto_create_hubs:
            _create(session, wanted.name, gather, index, operations)
        else:
            gather.put(index, _refused(wanted.name, refusal))
    except Refusal as refusal:
        gather.put(index, _refused(wanted.name, refusal))


def _create(
    session: KafkaSession, name: str, gather: Gather[MetadataTopic], index: int, operations: Operations
) -> None:
    def done(refusal: Refusal | None) -> None:
        if refusal is None or isinstance(refusal, AlreadyExists):
            wanted = MetadataRequestTopic(name=name)
            _look_up(session, wanted, gather, index, may_create=False, operations=operations)
        else:
            gather.put(index, _refused(name, refusal))

    namespace = session.namespace.entity.name
    if not session.principal.may(Rights.MANAGE, Resource.of_namespace(namespace)):
        gather.put(index, _refused(name, HubNotFound(session.namespace.resource(name))))
        return
    if fold(name) in session.namespace.hubs:
        # The same name in another case: hubs are unique in any case, so this topic can never be.
        gather.put(index, _topic(name, ErrorCode.INVALID_TOPIC_EXCEPTION))
        return
    try:
        session.shared.broker.manager.create_hub(namespace, hub_name(name), HubSpec(), session.by(), done)
    except AlreadyExists:
        # Somebody else's request is on its way to the disk: clients ask again, as they do while Kafka elects a leader.
        gather.put(index, _topic(name, ErrorCode.LEADER_NOT_AVAILABLE))
    except Refusal as refusal:
        gather.put(index, _refused(name, refusal))


def hub_of_id(session: KafkaSession, topic_id: UUID) -> LiveHub | None:
    """The visible hub of a topic id."""
    wanted = str(topic_id)
    return next((hub for hub in visible_hubs(session) if hub.entity.topic_id == wanted), None)


def _described(hub: LiveHub, operations: int, *, opens: bool) -> MetadataTopic:
    """A hub as a topic; epochs are told where the logs are (or will be) open, since listing must not open them all."""
    return MetadataTopic(
        error_code=ErrorCode.NONE,
        name=hub.name,
        topic_id=UUID(hub.entity.topic_id),
        partitions=tuple(
            MetadataPartition(
                error_code=ErrorCode.NONE,
                index=index,
                leader_id=NODE_ID,
                leader_epoch=hub.log(index).leader_epoch if opens else -1,
                replica_nodes=_REPLICAS,
                isr_nodes=_REPLICAS,
            )
            for index in range(hub.entity.partition_count)
        ),
        topic_authorized_operations=operations,
    )


def _topic(name: str | None, code: ErrorCode) -> MetadataTopic:
    return MetadataTopic(error_code=code, name=name, partitions=())


def _refused(name: str, refusal: Refusal) -> MetadataTopic:
    return _topic(name, code_of(refusal))


def _unknown_id(topic_id: UUID) -> MetadataTopic:
    return MetadataTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=())


# --- the cluster -----------------------------------------------------------------------------------------------------


def cluster_id(namespace: LiveNamespace) -> str:
    """An id for a namespace that stays the same and looks like Kafka's own."""
    origin = f"{namespace.entity.key[0]}/{namespace.entity.created_ms}".encode()
    return base64.urlsafe_b64encode(hashlib.sha256(origin).digest()[:_CLUSTER_ID_BYTES]).decode().rstrip("=")


def describe_cluster(session: KafkaSession, request: Request) -> None:
    """The same node and id as Metadata tells."""
    body: DescribeClusterRequest = request.body
    is_asked = body.include_cluster_authorized_operations
    session.respond(
        request,
        DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            cluster_id=cluster_id(session.namespace),
            controller_id=NODE_ID,
            brokers=(DescribeClusterBroker(broker_id=NODE_ID, host=session.host, port=session.port),),
            cluster_authorized_operations=_cluster_operations(session, is_asked=is_asked),
        ),
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    METADATA.key: metadata,
    DESCRIBE_CLUSTER.key: describe_cluster,
}
__all__ = ["API_VERSIONS", "HANDLERS", "api_versions", "cluster_id", "hub_of_id", "visible_hubs"]
