"""Handlers for OffsetCommit, OffsetFetch and OffsetDelete (reference: kafka 1.4 and 2.11).

Errors are per partition. A partition without a committed offset is no error: its offset is -1. Each topic needs the
right to listen on its hub; the group decides whether a member may commit.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Final

from hubmere.broker import ClassicGroup, Commit, ConsumerGroup, refusals
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.groups.access import require_group
from hubmere.endpoints.kafka.groups.classic import require_listening
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import Steps, encode_part, in_slices
from hubmere.model.entity import Hub
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode, RemoteProtocolError
from hubmere.wire.kafka.messages.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_subscription
from hubmere.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResponse,
)
from hubmere.wire.kafka.schema import EncodedStruct

_MANY_GROUPS_SINCE: Final = 8  # KIP-709

# Topics in order, each with its partitions and their error codes.
Codes = list[tuple[str, list[tuple[int, ErrorCode]]]]


# --- OffsetCommit ----------------------------------------------------------------------------------------------------


@in_slices
def offset_commit(session: KafkaSession, request: Request) -> Steps:
    """Commit offsets; answered when they are durable. A client over the tier's commit rate is throttled."""
    body: OffsetCommitRequest = request.body
    commits: list[Commit] = []
    codes: Codes = []
    for topic in body.topics:
        parts: list[tuple[int, ErrorCode]] = []
        for part in topic.partitions:
            parts.append((part.index, _check(session, body.group_id, topic.name, part, commits)))
            yield
        codes.append((topic.name, parts))
    _commit(session, request, commits, codes)


def _commit(session: KafkaSession, request: Request, commits: list[Commit], codes: Codes) -> None:
    body: OffsetCommitRequest = request.body
    try:
        require_listening(session, body.group_id)
        if not body.member_id:
            require_group(session, body.group_id)
        session.coordinator.groups.require_commit(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            body.generation_id_or_member_epoch,
            session.now,
            ((topic.name, part.index) for topic in body.topics for part in topic.partitions),
        )
    except Refusal as refusal:
        _answer_commit(session, request, _all(body, code_of(refusal)))
        return
    delay_s = session.coordinator.offsets.delay(body.group_id, commits, session.now)
    session.throttle(delay_s)

    def on_done(refusal: Refusal | None) -> None:
        failed = ErrorCode.NONE if refusal is None else code_of(refusal)
        results = [(topic, [(index, code or failed) for index, code in parts]) for topic, parts in codes]
        _answer_commit(session, request, results, delay_s)

    try:
        session.coordinator.offsets.commit(body.group_id, commits, session.now_ms, on_done)
    except Refusal as refusal:
        on_done(refusal)


def _all(body: OffsetCommitRequest, code: ErrorCode) -> Codes:
    return [(topic.name, [(part.index, code) for part in topic.partitions]) for topic in body.topics]


def _check(
    session: KafkaSession, group_id: str, topic: str, part: OffsetCommitPartition, commits: list[Commit]
) -> ErrorCode:
    try:
        commit = Commit(
            session.caller.readable(topic, session.now_s).entity,
            part.index,
            part.committed_offset,
            part.committed_leader_epoch,
            part.committed_metadata or "",
        )
        session.coordinator.offsets.check(group_id, commit)
    except Refusal as refusal:
        return code_of(refusal)
    commits.append(commit)
    return ErrorCode.NONE


def _answer_commit(session: KafkaSession, request: Request, codes: Codes, delay_s: float = 0.0) -> None:
    topics = tuple(
        OffsetCommitTopicResponse(
            name=topic,
            partitions=tuple(OffsetCommitPartitionResponse(index=index, error_code=code) for index, code in parts),
        )
        for topic, parts in codes
    )
    session.respond(request, OffsetCommitResponse(topics=topics, throttle_time_ms=round(delay_s * 1000)))


# --- OffsetFetch -----------------------------------------------------------------------------------------------------


@in_slices
def offset_fetch(session: KafkaSession, request: Request) -> Steps:
    """Committed offsets of one group, or from version 8 on of several; a group that is named twice is refused."""
    body: OffsetFetchRequest = request.body
    is_for_many = request.version >= _MANY_GROUPS_SINCE
    asked = body.groups if is_for_many else (OffsetFetchGroup(group_id=body.group_id, topics=body.topics),)
    found: dict[str, OffsetFetchGroupResponse] = {}
    again: list[OffsetFetchGroupResponse] = []
    for group in asked:
        if group.group_id in found:
            again.append(_refused_group(group.group_id, ErrorCode.INVALID_REQUEST))
        else:
            found[group.group_id] = yield from _fetch_group(session, request, group)
        yield
    if is_for_many:
        session.respond(request, OffsetFetchResponse(groups=(*found.values(), *again)))
    else:
        (only,) = found.values()
        session.respond(request, OffsetFetchResponse(topics=only.topics, error_code=only.error_code))


def _refused_group(group_id: str, code: ErrorCode) -> OffsetFetchGroupResponse:
    return OffsetFetchGroupResponse(group_id=group_id, topics=(), error_code=code)


def _fetch_group(
    session: KafkaSession, request: Request, asked: OffsetFetchGroup
) -> Generator[None, None, OffsetFetchGroupResponse]:
    try:
        require_group(session, asked.group_id)
        session.coordinator.groups.require_fetch(asked.group_id, asked.member_id, asked.member_epoch)
    except Refusal as refusal:
        return _refused_group(asked.group_id, code_of(refusal))
    is_all = asked.topics is None
    wanted = _committed_topics(session, asked.group_id) if is_all else _merge(asked.topics or ())
    topics: list[EncodedStruct] = []
    for name, indexes in wanted.items():
        partitions: list[OffsetFetchPartitionResponse] = []
        for index in indexes:
            partitions.append(_fetch(session, request, asked.group_id, name, index))
            yield
        topics.append(encode_part(request, OffsetFetchTopicResponse(name=name, partitions=tuple(partitions))))
    return OffsetFetchGroupResponse(group_id=asked.group_id, topics=tuple(topics))


def _merge(topics: Iterable[OffsetFetchTopic]) -> dict[str, dict[int, None]]:
    """Each topic and partition once: an offset's metadata is far longer than a partition number in the request."""
    merged: dict[str, dict[int, None]] = {}
    for topic in topics:
        merged.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return merged


def _committed_topics(session: KafkaSession, group_id: str) -> dict[str, dict[int, None]]:
    """The partitions with committed offsets that the client may read."""
    found: dict[str, dict[int, None]] = {}
    for hub, offset in session.coordinator.offsets.all(group_id):
        found.setdefault(hub.name, {})[offset.partition] = None
    return {name: partitions for name, partitions in found.items() if _is_readable(session, name)}


def _is_readable(session: KafkaSession, topic: str) -> bool:
    try:
        session.caller.readable(topic, session.now_s)
    except Refusal:
        return False
    return True


def _fetch(
    session: KafkaSession, request: Request, group_id: str, topic: str, index: int
) -> OffsetFetchPartitionResponse:
    try:
        hub = session.caller.readable(topic, session.now_s).entity
    except Refusal as refusal:
        # A topic that does not exist has no offsets; only a missing right is an error.
        code = code_of(refusal)
        return _no_offset(index, ErrorCode.NONE if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code)
    return _fetch_partition(session, group_id, hub, index, require_stable=request.body.require_stable)


def _fetch_partition(
    session: KafkaSession, group_id: str, hub: Hub, index: int, *, require_stable: bool
) -> OffsetFetchPartitionResponse:
    coordinator = session.coordinator
    if require_stable and coordinator.transactions.has_pending(group_id, hub.uid, index):
        return _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    found = coordinator.offsets.find(group_id, hub, index)
    if found is None:
        return _no_offset(index)
    return OffsetFetchPartitionResponse(
        index=index,
        committed_offset=found.sequence,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=ErrorCode.NONE,
    )


def _no_offset(index: int, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchPartitionResponse:
    return OffsetFetchPartitionResponse(index=index, committed_offset=-1, metadata="", error_code=code)


# --- OffsetDelete ----------------------------------------------------------------------------------------------------


@in_slices
def offset_delete(session: KafkaSession, request: Request) -> Steps:
    """Delete offsets of topics that no member is subscribed to."""
    body: OffsetDeleteRequest = request.body
    try:
        require_group(session, body.group_id)
        read = _subscribed_topics(session, body.group_id)
    except Refusal as refusal:
        session.respond(request, OffsetDeleteResponse(error_code=code_of(refusal), topics=()))
        return
    partitions: list[tuple[Hub, int]] = []
    codes: Codes = []
    for topic in body.topics:
        indexes = [part.index for part in topic.partitions]
        code = _check_deletable(session, body.group_id, topic.name, indexes, read, partitions)
        codes.append((topic.name, [(index, code) for index in indexes]))
        yield

    def on_done(refusal: Refusal | None) -> None:
        failed = ErrorCode.NONE if refusal is None else code_of(refusal)
        session.respond(request, _delete_response(failed, codes))

    session.coordinator.offsets.delete(body.group_id, partitions, on_done)


def _subscribed_topics(session: KafkaSession, group_id: str) -> frozenset[str]:
    """The topics that members of a group are subscribed to; refused if they are not consumers."""
    coordinator = session.coordinator
    group = coordinator.groups.find(group_id)
    if group is None and not coordinator.offsets.all(group_id):
        raise refusals.GroupUnknown(group_id)
    if group is None or coordinator.groups.is_empty(group_id):
        return frozenset()
    if isinstance(group, ConsumerGroup):
        return group.subscribed_names()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise refusals.GroupNotEmpty(group_id)
    return frozenset(_topics_of_group(group))


def _topics_of_group(group: ClassicGroup) -> Iterable[str]:
    for member in group.views():
        try:
            yield from read_subscription(member.metadata).topics
        except RemoteProtocolError:
            continue


def _check_deletable(
    session: KafkaSession,
    group_id: str,
    topic: str,
    indexes: list[int],
    read: frozenset[str],
    partitions: list[tuple[Hub, int]],
) -> ErrorCode:
    try:
        hub = session.caller.readable(topic, session.now_s).entity
        if topic in read:
            raise refusals.HubStillRead(group_id)
    except Refusal as refusal:
        return code_of(refusal)
    partitions += [(hub, index) for index in indexes]
    return ErrorCode.NONE


def _delete_response(failed: ErrorCode, codes: Codes) -> OffsetDeleteResponse:
    topics = tuple(
        OffsetDeleteTopicResponse(
            name=topic,
            partitions=tuple(
                OffsetDeletePartitionResponse(index=index, error_code=code or failed) for index, code in parts
            ),
        )
        for topic, parts in codes
    )
    return OffsetDeleteResponse(error_code=failed, topics=topics)


HANDLERS: Final[Mapping[int, Handler]] = {
    OFFSET_COMMIT.key: offset_commit,
    OFFSET_FETCH.key: offset_fetch,
    OFFSET_DELETE.key: offset_delete,
}
