"""Handlers that pass classic groups, offsets and positions on to the cluster. They check rights and map names.

Groups span the namespace and need the right to listen. A credential for one hub may join a group if every topic that it
subscribes to is that hub, and must leave it when a member reads another hub. Topics that a client may not read, or
that do not exist, are answered here; the rest of a request is passed on.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from hubmere.endpoints.kafka.admin.topics import deletion_error
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.forward.forwarded import (
    FORBIDDEN,
    UNAVAILABLE,
    ForwardedRequest,
    forwarded_handler,
    name_topics,
    split_topics,
)
from hubmere.endpoints.kafka.forward.names import is_consumer, map_assignment, map_subscription
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.errors import ErrorCode, RemoteProtocolError
from hubmere.wire.kafka.messages.admin import (
    DELETE_RECORDS,
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
)
from hubmere.wire.kafka.messages.consumer_protocol import read_subscription
from hubmere.wire.kafka.messages.fetch import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    EpochTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from hubmere.wire.kafka.messages.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from hubmere.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OffsetCommitPartitionResponse,
    OffsetCommitTopicResponse,
    OffsetDeletePartitionResponse,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchTopicResponse,
)
from hubmere.wire.kafka.messages.transactions import (
    DESCRIBE_PRODUCERS,
    DescribeProducersPartition,
    DescribeProducersTopicResponse,
)

_NULL_PROTOCOL_SINCE: Final = 7  # KIP-559
_MANY_GROUPS_SINCE: Final = 8  # KIP-709


# --- members ---------------------------------------------------------------------------------------------------------


async def _join(forwarded: ForwardedRequest) -> object:
    body: JoinGroupRequest = forwarded.body
    if is_consumer(body.protocol_type):
        protocols = tuple(
            replace(each, metadata=map_subscription(each.metadata, forwarded.subscribed_topic))
            for each in body.protocols
        )
        topics = {topic for each in body.protocols for topic in _topics_of(each.metadata)}
        if any(map(forwarded.is_foreign, topics)):
            return _refused_join(forwarded, FORBIDDEN)
        body = replace(body, protocols=protocols)
    elif not forwarded.session.caller.covers():
        return _refused_join(forwarded, FORBIDDEN)
    answer: JoinGroupResponse = await forwarded.ask(body.group_id, body)
    if not is_consumer(body.protocol_type):
        return answer
    members = tuple(
        replace(member, metadata=map_subscription(member.metadata, forwarded.local_topic)) for member in answer.members
    )
    if any(forwarded.is_foreign(topic) for member in members for topic in _topics_of(member.metadata)):
        return _refused_join(forwarded, FORBIDDEN)
    return replace(answer, members=members)


def _topics_of(data: bytes) -> tuple[str, ...]:
    try:
        return read_subscription(data).topics
    except RemoteProtocolError:
        return ()


def _refused_join(forwarded: ForwardedRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if forwarded.version >= _NULL_PROTOCOL_SINCE else "",
        leader="",
        member_id=forwarded.body.member_id,
        members=(),
    )


async def _sync(forwarded: ForwardedRequest) -> object:
    # Versions before 5 do not say which protocol it is; bytes that are no assignment stay as they are.
    body: SyncGroupRequest = forwarded.body
    may_be_consumer = body.protocol_type is None or is_consumer(body.protocol_type)
    if may_be_consumer:
        assignments = tuple(
            replace(each, assignment=map_assignment(each.assignment, forwarded.subscribed_topic))
            for each in body.assignments
        )
        body = replace(body, assignments=assignments)
    answer: SyncGroupResponse = await forwarded.ask(body.group_id, body)
    if not may_be_consumer:
        return answer
    return replace(answer, assignment=map_assignment(answer.assignment, forwarded.local_topic))


async def _pass_on(forwarded: ForwardedRequest) -> object:
    return await forwarded.ask(forwarded.body.group_id, forwarded.body)


# --- offsets ---------------------------------------------------------------------------------------------------------


def _refused_commit(topic: Any, code: ErrorCode) -> OffsetCommitTopicResponse:
    parts = tuple(OffsetCommitPartitionResponse(index=part.index, error_code=code) for part in topic.partitions)
    return OffsetCommitTopicResponse(name=topic.name, partitions=parts)


async def _commit(forwarded: ForwardedRequest) -> object:
    good, bad = await split_topics(forwarded, forwarded.body.topics, _refused_commit)
    answer = await forwarded.ask(forwarded.body.group_id, replace(forwarded.body, topics=tuple(good)))
    return replace(answer, topics=(*answer.topics, *bad))


def _failed_commit(forwarded: ForwardedRequest, code: ErrorCode) -> object:
    topics = tuple(_refused_commit(topic, code) for topic in forwarded.body.topics)
    return OFFSET_COMMIT.response(topics=topics)


def _refused_fetch(topic: Any, code: ErrorCode) -> OffsetFetchTopicResponse:
    parts = tuple(
        OffsetFetchPartitionResponse(index=index, committed_offset=-1, metadata="", error_code=code)
        for index in topic.partition_indexes
    )
    return OffsetFetchTopicResponse(name=topic.name, partitions=parts)


def _no_offsets(topic: Any, code: ErrorCode) -> OffsetFetchTopicResponse:
    """A hub that does not exist has no offsets, which is no error; a missing right is one."""
    return _refused_fetch(topic, ErrorCode.NONE if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code)


async def _fetch_offsets(forwarded: ForwardedRequest) -> object:
    body: OffsetFetchRequest = forwarded.body
    if forwarded.version < _MANY_GROUPS_SINCE:
        good, bad = name_topics(forwarded, body.topics or (), _no_offsets)
        topics = None if body.topics is None else tuple(good)
        answer = await forwarded.ask(body.group_id, replace(body, topics=topics))
        return replace(answer, topics=(*_readable(forwarded, answer.topics), *bad))
    # Each group has a coordinator of its own.
    answers = []
    for group in body.groups:
        good, bad = name_topics(forwarded, group.topics or (), _no_offsets)
        topics = None if group.topics is None else tuple(good)
        answer = await forwarded.ask(group.group_id, replace(body, groups=(replace(group, topics=topics),)))
        (found,) = answer.groups
        answers.append(replace(found, topics=(*_readable(forwarded, found.topics), *bad)))
    return OFFSET_FETCH.response(groups=tuple(answers))


def _readable(forwarded: ForwardedRequest, topics: Any) -> list[Any]:
    return [topic for topic in topics if not forwarded.is_foreign(topic.name)]


def _failed_fetch(forwarded: ForwardedRequest, code: ErrorCode) -> object:
    body: OffsetFetchRequest = forwarded.body
    if forwarded.version < _MANY_GROUPS_SINCE:
        topics = tuple(_refused_fetch(topic, code) for topic in body.topics or ())
        return OFFSET_FETCH.response(error_code=code, topics=topics)
    groups = tuple(_failed_group(group, code) for group in body.groups)
    return OFFSET_FETCH.response(groups=groups)


def _failed_group(group: Any, code: ErrorCode) -> OffsetFetchGroupResponse:
    return OffsetFetchGroupResponse(group_id=group.group_id, topics=(), error_code=code)


def _refused_deletion(topic: Any, code: ErrorCode) -> OffsetDeleteTopicResponse:
    parts = tuple(OffsetDeletePartitionResponse(index=part.index, error_code=code) for part in topic.partitions)
    return OffsetDeleteTopicResponse(name=topic.name, partitions=parts)


async def _delete_offsets(forwarded: ForwardedRequest) -> object:
    good, bad = await split_topics(forwarded, forwarded.body.topics, _refused_deletion)
    answer = await forwarded.ask(forwarded.body.group_id, replace(forwarded.body, topics=tuple(good)))
    return replace(answer, topics=(*answer.topics, *bad))


# --- describing groups ------------------------------------------------------------------------------------------------


async def _list_groups(forwarded: ForwardedRequest) -> object:
    answers = await forwarded.port.ask_all(forwarded.body, forwarded.version)
    namespace = forwarded.session.caller.namespace_key
    found = {}
    if forwarded.session.caller.covers():
        for group in (group for answer in answers for group in answer.groups):
            name = forwarded.port.local_group_of(namespace, group.group_id)
            if name is not None:
                found[name] = replace(group, group_id=name)
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(found.values()))


async def _describe_groups(forwarded: ForwardedRequest) -> object:
    body: DescribeGroupsRequest = forwarded.body
    found = []
    for group_id in dict.fromkeys(body.groups):
        if not forwarded.session.caller.covers():
            found.append(_no_group(group_id, FORBIDDEN))
            continue
        asked = replace(body, groups=(forwarded.group(group_id),))
        answer = await forwarded.port.ask_coordinator(
            forwarded.client, forwarded.group(group_id), asked, forwarded.version
        )
        found += [_localize_group(forwarded, group) for group in forwarded.to_client(answer).groups]
    return DescribeGroupsResponse(groups=tuple(found))


def _localize_group(forwarded: ForwardedRequest, group: DescribedGroup) -> DescribedGroup:
    if not is_consumer(group.protocol_type):
        return group
    members = tuple(
        replace(
            member,
            member_metadata=map_subscription(member.member_metadata, forwarded.local_topic),
            member_assignment=map_assignment(member.member_assignment, forwarded.local_topic),
        )
        for member in group.members
    )
    return replace(group, members=members)


def _no_group(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=()
    )


async def _delete_groups(forwarded: ForwardedRequest) -> object:
    body: DeleteGroupsRequest = forwarded.body
    results = []
    for group_id in dict.fromkeys(body.group_ids):
        if not forwarded.session.caller.covers() or not forwarded.session.caller.may(Rights.MANAGE):
            results.append(DeletedGroup(group_id=group_id, error_code=FORBIDDEN))
            continue
        name = forwarded.group(group_id)
        asked = replace(body, group_ids=(name,))
        answer = await forwarded.port.ask_coordinator(forwarded.client, name, asked, forwarded.version)
        results += forwarded.to_client(answer).results
    return DeleteGroupsResponse(results=tuple(results))


# --- positions -------------------------------------------------------------------------------------------------------


def _refused_offsets(topic: Any, code: ErrorCode) -> ListOffsetsTopicResponse:
    parts = tuple(ListOffsetsPartitionResponse(index=part.index, error_code=code) for part in topic.partitions)
    return ListOffsetsTopicResponse(name=topic.name, partitions=parts)


def _refused_epochs(topic: Any, code: ErrorCode) -> EpochTopicResponse:
    parts = tuple(EpochEndOffset(index=part.index, error_code=code) for part in topic.partitions)
    return EpochTopicResponse(name=topic.name, partitions=parts)


def _refused_records(topic: Any, code: ErrorCode) -> DeleteRecordsTopicResult:
    parts = tuple(
        DeleteRecordsPartitionResult(index=part.index, low_watermark=-1, error_code=code) for part in topic.partitions
    )
    return DeleteRecordsTopicResult(name=topic.name, partitions=parts)


async def _delete_records(forwarded: ForwardedRequest) -> object:
    """Only hubs whose tier and policy allow it are passed on (see `admin.topics`)."""
    session, body = forwarded.session, forwarded.body
    allowed, refuse = [], []
    for topic in body.topics:
        try:
            code = deletion_error(session.caller.hub(topic.name, Rights.MANAGE, session.now_s))
        except Refusal as refusal:
            code = code_of(refusal)
        if code:
            refuse.append(_refused_records(topic, code))
        else:
            allowed.append(topic)
    forwarded.body = replace(body, topics=tuple(allowed))
    answer: Any = await _ask_leaders(forwarded, _refused_records, right=Rights.MANAGE)
    return replace(answer, topics=(*answer.topics, *refuse))


def _refused_producers(topic: Any, code: ErrorCode) -> DescribeProducersTopicResponse:
    parts = tuple(
        DescribeProducersPartition(index=index, error_code=code, active_producers=())
        for index in topic.partition_indexes
    )
    return DescribeProducersTopicResponse(name=topic.name, partitions=parts)


async def _ask_leaders(
    forwarded: ForwardedRequest, refuse: Callable[[Any, ErrorCode], object], *, right: Rights = Rights.LISTEN
) -> object:
    # Clients look the leader up again after this code.
    missing = ErrorCode.LEADER_NOT_AVAILABLE
    good, bad = await split_topics(forwarded, forwarded.body.topics, refuse, right=right, unavailable=missing)
    if not good:
        return forwarded.request.api.response(topics=tuple(bad))
    asked = replace(forwarded.body, topics=tuple(good))
    found, unanswered = await forwarded.port.ask_leaders(forwarded.client, asked, forwarded.version)
    bad += [refuse(forwarded.to_client(topic), code) for topic, code in unanswered]
    return forwarded.request.api.response(topics=(*forwarded.to_client(tuple(found)), *bad))


def _failed_positions(refuse: Callable[[Any, ErrorCode], object]) -> Callable[[ForwardedRequest, ErrorCode], object]:
    def answer_failure(forwarded: ForwardedRequest, code: ErrorCode) -> object:
        # Clients look the leader up again after this code.
        code = ErrorCode.LEADER_NOT_AVAILABLE if code == UNAVAILABLE else code
        return forwarded.request.api.response(topics=tuple(refuse(topic, code) for topic in forwarded.body.topics))

    return answer_failure


HANDLERS: Final[Mapping[int, Handler]] = {
    JOIN_GROUP.key: forwarded_handler(_join, _refused_join),
    SYNC_GROUP.key: forwarded_handler(_sync, lambda _, code: SyncGroupResponse(error_code=code, assignment=b"")),
    HEARTBEAT.key: forwarded_handler(_pass_on, lambda _, code: HeartbeatResponse(error_code=code)),
    LEAVE_GROUP.key: forwarded_handler(_pass_on, lambda _, code: LeaveGroupResponse(error_code=code)),
    OFFSET_COMMIT.key: forwarded_handler(_commit, _failed_commit),
    OFFSET_DELETE.key: forwarded_handler(
        _delete_offsets, lambda _, code: OffsetDeleteResponse(error_code=code, topics=())
    ),
    DELETE_RECORDS.key: forwarded_handler(_delete_records, _failed_positions(_refused_records), needs=None),
    DESCRIBE_PRODUCERS.key: forwarded_handler(
        lambda f: _ask_leaders(f, _refused_producers), _failed_positions(_refused_producers)
    ),
    OFFSET_FETCH.key: forwarded_handler(_fetch_offsets, _failed_fetch),
    LIST_GROUPS.key: forwarded_handler(_list_groups, lambda _, code: ListGroupsResponse(error_code=code, groups=())),
    DESCRIBE_GROUPS.key: forwarded_handler(
        _describe_groups,
        lambda f, code: DescribeGroupsResponse(groups=tuple(_no_group(group, code) for group in f.body.groups)),
    ),
    DELETE_GROUPS.key: forwarded_handler(
        _delete_groups,
        lambda f, code: DeleteGroupsResponse(
            results=tuple(DeletedGroup(group_id=group, error_code=code) for group in f.body.group_ids)
        ),
    ),
    LIST_OFFSETS.key: forwarded_handler(
        lambda f: _ask_leaders(f, _refused_offsets), _failed_positions(_refused_offsets)
    ),
    OFFSET_FOR_LEADER_EPOCH.key: forwarded_handler(
        lambda f: _ask_leaders(f, _refused_epochs), _failed_positions(_refused_epochs)
    ),
}
