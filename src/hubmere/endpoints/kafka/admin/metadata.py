"""Handlers for ApiVersions, Metadata and DescribeCluster (reference: kafka 2.6).

There is one node, with id 0, the host name chosen at sign-in (`sasl`) and the port of the listener. A client sees the
topics that it may read, write or manage. Asking for a topic that does not exist creates it, if the settings and the
client's rights allow it.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from hubmere.broker import HubView, NamespaceView
from hubmere.endpoints.kafka.admin.operations import cluster_operations, topic_operations
from hubmere.endpoints.kafka.admin.served_versions import advertised_versions, finalized_features, supported_features
from hubmere.endpoints.kafka.context import NODE_ID, Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.fetch.fetch import reads_log_alone
from hubmere.endpoints.kafka.gather import Gather
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import (
    MAX_NAMES,
    Wait,
    WaitingSteps,
    encode_part,
    in_slices,
    open_for_epochs,
    run_to_end,
)
from hubmere.model.entity import Rights
from hubmere.model.errors import AlreadyExists, HubNotFound, Refusal
from hubmere.model.names import hub_name
from hubmere.model.spec import HubSpec
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
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

# KIP-511: valid names and versions of client software.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE: Final = 3
# As long as Kafka's own cluster ids: 16 bytes in base64.
_CLUSTER_ID_BYTES: Final = 16
_IDS_SINCE: Final = 12  # KIP-516: versions 10 and 11 return ids, but requests cannot use them
_ANY: Final = Rights.LISTEN | Rights.SEND | Rights.MANAGE
_REPLICAS: Final = (NODE_ID,)

# Receives the encoded description of one topic.
Put = Callable[[EncodedStruct], None]


# --- ApiVersions -----------------------------------------------------------------------------------------------------


def api_versions(keys: Iterable[int], transaction_version: int = 0) -> Handler:
    """The handler for ApiVersions: the served APIs and their versions, and the version of transactions."""
    ranges = tuple(
        ApiVersion(api_key=key, min_version=served.low, max_version=served.high)
        for key, served in sorted(advertised_versions(keys, transaction_version).items())
    )
    features = finalized_features(transaction_version)
    answer = ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=ranges,
        supported_features=supported_features(transaction_version),
        finalized_features_epoch=0 if features else -1,
        finalized_features=features,
    )
    own_answer = replace(answer, is_hubmere=True)
    refusal = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())

    def handle(session: KafkaSession, request: Request) -> None:
        body: ApiVersionsRequest = request.body
        names = (body.client_software_name, body.client_software_version)
        is_named = request.version < _SOFTWARE_SINCE or all(map(_SOFTWARE.fullmatch, names))
        session.client_id, session.software = request.client_id or "", " ".join(names)
        served = own_answer if reads_log_alone(request) else answer
        session.respond(request, served if is_named else refusal)

    return handle


# --- Metadata --------------------------------------------------------------------------------------------------------


@in_slices
def metadata(session: KafkaSession, request: Request) -> WaitingSteps:
    """The node and the topics; the response waits until topics that it creates are durable.

    A topic that is named twice is described once, as in Kafka.
    """
    body: MetadataRequest = request.body
    if request.version < _IDS_SINCE and any(topic.name is None for topic in body.topics or ()):
        session.disconnect("it asks for topics by id in a version that has none")
        return
    if body.topics is None or (request.version == 0 and not body.topics):
        topics: list[EncodedStruct] = []
        for hub in visible_hubs(session):
            topic = yield from _to_topic(session, request, hub, opens=False)
            topics.append(encode_part(request, topic))
        _answer(session, request, topics)
        return
    asked = map(_without_empty_name, body.topics) if request.version >= _IDS_SINCE else body.topics
    wanted = list({(topic.name, topic.topic_id): topic for topic in asked}.values())
    if len(wanted) > MAX_NAMES:
        _answer(session, request, (yield from _refuse_all(request, wanted)))
        return
    by_id = hubs_by_id(session) if any(topic.name is None for topic in wanted) else {}
    gather = Gather[EncodedStruct](len(wanted), lambda topics: _answer(session, request, topics))
    for index, named in enumerate(wanted):
        yield from _describe_topic(session, request, named, by_id, partial(gather.put, index))
        yield None


def _refuse_all(request: Request, wanted: Iterable[MetadataRequestTopic]) -> Generator[None, None, list[EncodedStruct]]:
    """The same error for each name."""
    refused: list[EncodedStruct] = []
    for topic in wanted:
        name = topic.name if request.version >= _IDS_SINCE else topic.name or ""
        topic_response = MetadataTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=topic.topic_id, partitions=()
        )
        refused.append(encode_part(request, topic_response))
        yield
    return refused


def _without_empty_name(asked: MetadataRequestTopic) -> MetadataRequestTopic:
    """The request with a null name where a topic id is meant: Java consumers send an empty name."""
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


def _describe_topic(
    session: KafkaSession, request: Request, wanted: MetadataRequestTopic, by_id: Mapping[UUID, HubView], put: Put
) -> WaitingSteps:
    body: MetadataRequest = request.body
    name = wanted.name
    if name is None:
        known = by_id.get(wanted.topic_id)
        if known is None:
            put(encode_part(request, _unknown_topic(wanted.topic_id)))
        else:
            put(encode_part(request, (yield from _to_topic(session, request, known, opens=True))))
        return
    try:
        hub = session.caller.hub(name, _ANY, session.now_s)
    except HubNotFound as refusal:
        if body.allow_auto_topic_creation and session.context.auto_create_hubs:
            _create(session, request, name, put)
        else:
            put(encode_part(request, _error_topic(session, name, refusal)))
    except Refusal as refusal:
        put(encode_part(request, _error_topic(session, name, refusal)))
    else:
        put(encode_part(request, (yield from _to_topic(session, request, hub, opens=True))))


def _create(session: KafkaSession, request: Request, name: str, put: Put) -> None:
    def on_done(refusal: Refusal | None) -> None:
        if refusal is None or isinstance(refusal, AlreadyExists):
            _describe_created(session, request, name, put)
        else:
            put(encode_part(request, _error_topic(session, name, refusal)))

    namespace = session.namespace
    if not session.caller.may(Rights.MANAGE):
        put(encode_part(request, _error_topic(session, name, HubNotFound(namespace.resource(name)))))
        return
    if namespace.has_hub(name):
        # A hub has this name in another case: hub names ignore case, so this topic cannot be created.
        put(encode_part(request, _topic(name, ErrorCode.INVALID_TOPIC_EXCEPTION)))
        return
    try:
        session.context.broker.manager.create_hub(namespace.name, hub_name(name), HubSpec(), session.actor(), on_done)
    except AlreadyExists:
        # Another request is creating it: clients ask again, as they do while Kafka elects a leader.
        part = encode_part(request, _topic(name, ErrorCode.LEADER_NOT_AVAILABLE))
        session.context.broker.audit.when_written(lambda: put(part))
    except Refusal as refusal:
        session.context.broker.audit.when_written(partial(on_done, refusal))


def _describe_created(session: KafkaSession, request: Request, name: str, put: Put) -> None:
    """Describe a hub that is durable now; it has the default number of partitions, which is small."""
    try:
        described = _to_topic(session, request, session.caller.hub(name, _ANY, session.now_s), opens=True)
    except Refusal as refusal:
        put(encode_part(request, _error_topic(session, name, refusal)))
        return
    put(encode_part(request, run_to_end(described)))


def hubs_by_id(session: KafkaSession) -> dict[UUID, HubView]:
    """The visible hubs by their topic ids."""
    return {UUID(hub.entity.topic_id): hub for hub in visible_hubs(session)}


def _to_topic(
    session: KafkaSession, request: Request, hub: HubView, *, opens: bool
) -> Generator[Wait | None, None, MetadataTopic]:
    """A hub as a topic; with `opens` its logs are opened for their leader epochs, which a list of all must not do."""
    partitions: list[MetadataPartition] = []
    if opens:
        yield from open_for_epochs(hub, range(hub.entity.partition_count))
    for index in range(hub.entity.partition_count):
        partitions.append(
            MetadataPartition(
                error_code=ErrorCode.NONE,
                index=index,
                leader_id=NODE_ID,
                leader_epoch=hub.partition(index).known_leader_epoch if opens else -1,
                replica_nodes=_REPLICAS,
                isr_nodes=_REPLICAS,
            )
        )
        yield None
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


def _error_topic(session: KafkaSession, name: str, refusal: Refusal) -> MetadataTopic:
    session.log_refusal("a Kafka metadata request", refusal, name)
    return _topic(name, code_of(refusal))


def _unknown_topic(topic_id: UUID) -> MetadataTopic:
    return MetadataTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=())


# --- the cluster -----------------------------------------------------------------------------------------------------


def cluster_id(namespace: NamespaceView) -> str:
    """A stable id for a namespace, in the format of Kafka's cluster ids."""
    origin = f"{namespace.entity.key[0]}/{namespace.entity.created_ms}".encode()
    return base64.urlsafe_b64encode(hashlib.sha256(origin).digest()[:_CLUSTER_ID_BYTES]).decode().rstrip("=")


def describe_cluster(session: KafkaSession, request: Request) -> None:
    """The same node and cluster id as in Metadata."""
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
