"""Metadata, API versions, cluster: what is served, where, and which topics there are (reference: kafka 2.6).

One node, id 0, under the name and port by which the client came. A client sees the topics that it may read, write or
manage; asking for one that is not there makes it, where the settings and the client's rights allow that.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from hubmere.broker import HubView, NamespaceView
from hubmere.endpoints.kafka.admin.operations import cluster_operations, topic_operations
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.gather import Gather
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.shared import NODE_ID, Handler
from hubmere.endpoints.kafka.slices import MAX_NAMES, Steps, encoded, in_slices, result_of
from hubmere.model.entity import Rights
from hubmere.model.errors import AlreadyExists, HubNotFound, Refusal
from hubmere.model.names import hub_name
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
from hubmere.wire.kafka.schema import EncodedStruct

# KIP-511: what a client may call itself.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE: Final = 3
# As long as Kafka's own cluster ids: 16 bytes in base64.
_CLUSTER_ID_BYTES: Final = 16
_IDS_SINCE: Final = 12  # KIP-516: versions 10 and 11 tell ids, but cannot be asked by them
_ANY: Final = Rights.LISTEN | Rights.SEND | Rights.MANAGE
_REPLICAS: Final = (NODE_ID,)

# Takes what an answer says of one topic.
Put = Callable[[EncodedStruct], None]


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


@in_slices
def metadata(session: KafkaSession, request: Request) -> Steps:
    """Where we are and which topics there are; topics that are to be made delay the answer until they are.

    A topic that is named twice is told once, as in Kafka.
    """
    body: MetadataRequest = request.body
    if request.version < _IDS_SINCE and any(topic.name is None for topic in body.topics or ()):
        session.disconnect("it asks for topics by id in a version that has none")
        return
    if body.topics is None or (request.version == 0 and not body.topics):
        topics: list[EncodedStruct] = []
        for hub in visible_hubs(session):
            topic = yield from _described(session, request, hub, opens=False)
            topics.append(encoded(request, topic))
        _answer(session, request, topics)
        return
    asked = map(_by_id, body.topics) if request.version >= _IDS_SINCE else body.topics
    wanted = list({(topic.name, topic.topic_id): topic for topic in asked}.values())
    if len(wanted) > MAX_NAMES:
        _answer(session, request, (yield from _too_many(request, wanted)))
        return
    by_id = hubs_by_id(session) if any(topic.name is None for topic in wanted) else {}
    gather = Gather[EncodedStruct](len(wanted), lambda topics: _answer(session, request, topics))
    for index, named in enumerate(wanted):
        yield from _look_up(session, request, named, by_id, partial(gather.put, index))
        yield


def _too_many(request: Request, wanted: Iterable[MetadataRequestTopic]) -> Generator[None, None, list[EncodedStruct]]:
    """Each name with the same refusal."""
    refused: list[EncodedStruct] = []
    for topic in wanted:
        name = topic.name if request.version >= _IDS_SINCE else topic.name or ""
        told = MetadataTopic(error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=topic.topic_id, partitions=())
        refused.append(encoded(request, told))
        yield
    return refused


def _by_id(asked: MetadataRequestTopic) -> MetadataRequestTopic:
    """Java's consumers leave the name empty where it could be null."""
    is_by_id = not asked.name and asked.topic_id != ZERO_UUID
    return MetadataRequestTopic(topic_id=asked.topic_id, name=None) if is_by_id else asked


def _cluster_operations(session: KafkaSession, *, is_asked: bool) -> int:
    return cluster_operations(session.caller) if is_asked else NO_OPERATIONS


def _answer(session: KafkaSession, request: Request, topics: Iterable[EncodedStruct]) -> None:
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


def visible_hubs(session: KafkaSession) -> list[HubView]:
    """The hubs that a client may see, by name."""
    return session.caller.usable_hubs(_ANY)


def _look_up(
    session: KafkaSession, request: Request, wanted: MetadataRequestTopic, by_id: Mapping[UUID, HubView], put: Put
) -> Steps:
    body: MetadataRequest = request.body
    name = wanted.name
    if name is None:
        known = by_id.get(wanted.topic_id)
        if known is None:
            put(encoded(request, _unknown_id(wanted.topic_id)))
        else:
            put(encoded(request, (yield from _described(session, request, known, opens=True))))
        return
    try:
        hub = session.caller.hub(name, _ANY, session.now_s)
    except HubNotFound as refusal:
        if body.allow_auto_topic_creation and session.shared.auto_create_hubs:
            _create(session, request, name, put)
        else:
            put(encoded(request, _refused(name, refusal)))
    except Refusal as refusal:
        put(encoded(request, _refused(name, refusal)))
    else:
        put(encoded(request, (yield from _described(session, request, hub, opens=True))))


def _create(session: KafkaSession, request: Request, name: str, put: Put) -> None:
    def done(refusal: Refusal | None) -> None:
        if refusal is None or isinstance(refusal, AlreadyExists):
            _describe_created(session, request, name, put)
        else:
            put(encoded(request, _refused(name, refusal)))

    namespace = session.namespace
    if not session.caller.may(Rights.MANAGE):
        put(encoded(request, _refused(name, HubNotFound(namespace.resource(name)))))
        return
    if namespace.has_hub(name):
        # The same name in another case: hubs are unique in any case, so this topic can never be.
        put(encoded(request, _topic(name, ErrorCode.INVALID_TOPIC_EXCEPTION)))
        return
    try:
        session.shared.broker.manager.create_hub(namespace.name, hub_name(name), HubSpec(), session.actor(), done)
    except AlreadyExists:
        # Somebody else's request is on its way to the disk: clients ask again, as they do while Kafka elects a leader.
        put(encoded(request, _topic(name, ErrorCode.LEADER_NOT_AVAILABLE)))
    except Refusal as refusal:
        put(encoded(request, _refused(name, refusal)))


def _describe_created(session: KafkaSession, request: Request, name: str, put: Put) -> None:
    """Tell of a hub that is durable now; it has the node's own number of partitions, which is small."""
    try:
        described = _described(session, request, session.caller.hub(name, _ANY, session.now_s), opens=True)
    except Refusal as refusal:
        put(encoded(request, _refused(name, refusal)))
        return
    put(encoded(request, result_of(described)))


def hubs_by_id(session: KafkaSession) -> dict[UUID, HubView]:
    """The visible hubs by their topic ids."""
    return {UUID(hub.entity.topic_id): hub for hub in visible_hubs(session)}


def _described(
    session: KafkaSession, request: Request, hub: HubView, *, opens: bool
) -> Generator[None, None, MetadataTopic]:
    """A hub as a topic; epochs are told where the logs are (or will be) open, since listing must not open them all."""
    partitions: list[MetadataPartition] = []
    for index in range(hub.entity.partition_count):
        partitions.append(
            MetadataPartition(
                error_code=ErrorCode.NONE,
                index=index,
                leader_id=NODE_ID,
                leader_epoch=hub.partition(index).leader_epoch if opens else -1,
                replica_nodes=_REPLICAS,
                isr_nodes=_REPLICAS,
            )
        )
        yield
    is_asked = request.body.include_topic_authorized_operations
    allowed = topic_operations(session.caller, hub.name) if is_asked else None
    return MetadataTopic(
        error_code=ErrorCode.NONE,
        name=hub.name,
        topic_id=UUID(hub.entity.topic_id),
        partitions=tuple(partitions),
        topic_authorized_operations=NO_OPERATIONS if allowed is None else allowed,
    )


def _topic(name: str | None, code: ErrorCode) -> MetadataTopic:
    return MetadataTopic(error_code=code, name=name, partitions=())


def _refused(name: str, refusal: Refusal) -> MetadataTopic:
    return _topic(name, code_of(refusal))


def _unknown_id(topic_id: UUID) -> MetadataTopic:
    return MetadataTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=())


# --- the cluster -----------------------------------------------------------------------------------------------------


def cluster_id(namespace: NamespaceView) -> str:
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
__all__ = ["API_VERSIONS", "HANDLERS", "api_versions", "cluster_id", "hubs_by_id", "visible_hubs"]
