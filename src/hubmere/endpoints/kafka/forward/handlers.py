"""Handlers that pass groups, offsets and positions on to the cluster. They check rights, map names, and answer later.

Groups span the namespace and need the right to listen. A credential for one hub may join a group if every topic that it
subscribes to is that hub, and must leave it when a member reads another hub. Topics that a client may not read, or
that do not exist, are answered here; the rest of a request is passed on.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.forward.names import is_consumer, map_assignment, map_names, map_subscription
from hubmere.endpoints.kafka.forward.port import Coordination, CoordinationFailed
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.shared import Handler
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode, RemoteProtocolError
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
    OFFSET_FETCH,
    OffsetCommitPartitionResponse,
    OffsetCommitTopicResponse,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchTopicResponse,
)
from hubmere.wire.kafka.messages.transactions import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse

_NULL_PROTOCOL_SINCE: Final = 7  # KIP-559
_MANY_GROUPS_SINCE: Final = 8  # KIP-709

_UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_FORBIDDEN: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED


class Forwarded:
    """One request on its way to the cluster: how names of its namespace and of the cluster translate."""

    def __init__(self, session: KafkaSession, request: Request) -> None:
        assert session.shared.coordination is not None
        self.session = session
        self.request = request
        self.body: Any = request.body
        self.version = request.version
        self.port: Coordination = session.shared.coordination
        self.client = f"client-{id(session)}"
        self._namespace = session.caller.namespace_key
        self._hubs = {hub.uid: hub.name for hub in session.namespace.hubs()}
        if self.client not in session.forwarded:
            session.forwarded.add(self.client)
            session.cleanups[partial(self.port.end_client, self.client)] = None

    def group(self, group_id: str) -> str:
        """The cluster's name of a group."""
        return self.port.group_of(self._namespace, group_id)

    def topic(self, name: str) -> str:
        """The cluster's name of a hub that exists and may be read; raises a refusal otherwise."""
        return self.port.topic_of(self.session.caller.readable(name, self.session.now_s).uid)

    def subscribed_topic(self, name: str) -> str:
        """As `topic`, for subscriptions: a hub that does not exist keeps its name."""
        try:
            return self.topic(name)
        except Refusal:
            return name

    def local_topic(self, topic: str) -> str:
        """The hub of a topic of the cluster; a topic of another namespace keeps its name."""
        uid = self.port.uid_of(topic)
        return topic if uid is None else self._hubs.get(uid, topic)

    def local_group(self, group: str) -> str:
        """The client's name of a group."""
        return self.port.local_group_of(self._namespace, group) or group

    def is_foreign(self, topic: str) -> bool:
        """Whether the caller may not read a hub."""
        return not self.session.caller.covers(topic)

    def to_client(self, answer: Any) -> Any:
        """An answer with the client's names."""
        return map_names(answer, topic=self.local_topic, group=self.local_group)

    def respond(self, body: object) -> None:
        """Answer the client."""
        self.session.respond(self.request, body)

    async def ask(self, group_id: str, body: Any) -> Any:
        """Ask a group's coordinator; the answer has the client's names."""
        renamed = map_names(body, topic=lambda name: name, group=self.group)
        answer = await self.port.ask_coordinator(self.client, self.group(group_id), renamed, self.version)
        return self.to_client(answer)


Work = Callable[[Forwarded], Awaitable[object]]


def _forwarded(work: Work, failed: Callable[[Forwarded, ErrorCode], object]) -> Handler:
    """A handler that answers later. `failed` makes the answer with an error code."""

    async def run(forwarded: Forwarded) -> None:
        try:
            answer = await work(forwarded)
        except CoordinationFailed:
            answer = failed(forwarded, _UNAVAILABLE)
        except Refusal as refusal:
            answer = failed(forwarded, code_of(refusal))
        forwarded.respond(answer)

    def handle(session: KafkaSession, request: Request) -> None:
        forwarded = Forwarded(session, request)
        if request.api.key != INIT_PRODUCER_ID.key and not session.principal.rights.allows(Rights.LISTEN):
            forwarded.respond(failed(forwarded, _FORBIDDEN))
            return
        session.shared.start_task(run(forwarded))

    return handle


# --- members ---------------------------------------------------------------------------------------------------------


async def _join(forwarded: Forwarded) -> object:
    body: JoinGroupRequest = forwarded.body
    if is_consumer(body.protocol_type):
        protocols = tuple(
            replace(each, metadata=map_subscription(each.metadata, forwarded.subscribed_topic))
            for each in body.protocols
        )
        topics = {topic for each in body.protocols for topic in _topics_of(each.metadata)}
        if any(map(forwarded.is_foreign, topics)):
            return _refused_join(forwarded, _FORBIDDEN)
        body = replace(body, protocols=protocols)
    elif not forwarded.session.caller.covers():
        return _refused_join(forwarded, _FORBIDDEN)
    answer: JoinGroupResponse = await forwarded.ask(body.group_id, body)
    if not is_consumer(body.protocol_type):
        return answer
    members = tuple(
        replace(member, metadata=map_subscription(member.metadata, forwarded.local_topic)) for member in answer.members
    )
    if any(forwarded.is_foreign(topic) for member in members for topic in _topics_of(member.metadata)):
        return _refused_join(forwarded, _FORBIDDEN)
    return replace(answer, members=members)


def _topics_of(data: bytes) -> tuple[str, ...]:
    try:
        return read_subscription(data).topics
    except RemoteProtocolError:
        return ()


def _refused_join(forwarded: Forwarded, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if forwarded.version >= _NULL_PROTOCOL_SINCE else "",
        leader="",
        member_id=forwarded.body.member_id,
        members=(),
    )


async def _sync(forwarded: Forwarded) -> object:
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


async def _pass_on(forwarded: Forwarded) -> object:
    return await forwarded.ask(forwarded.body.group_id, forwarded.body)


# --- offsets ---------------------------------------------------------------------------------------------------------


def _split(
    forwarded: Forwarded, topics: Any, refused: Callable[[Any, ErrorCode], object]
) -> tuple[list[Any], list[Any]]:
    """The topics to pass on, under their names of the cluster, and the answers for those that cannot be."""
    good, bad = [], []
    for topic in topics:
        try:
            good.append(replace(topic, name=forwarded.topic(topic.name)))
        except Refusal as refusal:
            bad.append(refused(topic, code_of(refusal)))
    return good, bad


def _refused_commit(topic: Any, code: ErrorCode) -> OffsetCommitTopicResponse:
    parts = tuple(OffsetCommitPartitionResponse(index=part.index, error_code=code) for part in topic.partitions)
    return OffsetCommitTopicResponse(name=topic.name, partitions=parts)


async def _commit(forwarded: Forwarded) -> object:
    good, bad = _split(forwarded, forwarded.body.topics, _refused_commit)
    answer = await forwarded.ask(forwarded.body.group_id, replace(forwarded.body, topics=tuple(good)))
    return replace(answer, topics=(*answer.topics, *bad))


def _failed_commit(forwarded: Forwarded, code: ErrorCode) -> object:
    topics = tuple(_refused_commit(topic, code) for topic in forwarded.body.topics)
    return OFFSET_COMMIT.response(topics=topics)


def _refused_fetch(topic: Any, code: ErrorCode) -> OffsetFetchTopicResponse:
    parts = tuple(
        OffsetFetchPartitionResponse(index=index, committed_offset=-1, metadata="", error_code=code)
        for index in topic.partition_indexes
    )
    return OffsetFetchTopicResponse(name=topic.name, partitions=parts)


async def _fetch_offsets(forwarded: Forwarded) -> object:
    body: OffsetFetchRequest = forwarded.body
    if forwarded.version < _MANY_GROUPS_SINCE:
        good, bad = _split(forwarded, body.topics or (), _refused_fetch)
        topics = None if body.topics is None else tuple(good)
        answer = await forwarded.ask(body.group_id, replace(body, topics=topics))
        return replace(answer, topics=(*_readable(forwarded, answer.topics), *bad))
    # Each group has a coordinator of its own.
    answers = []
    for group in body.groups:
        good, bad = _split(forwarded, group.topics or (), _refused_fetch)
        topics = None if group.topics is None else tuple(good)
        answer = await forwarded.ask(group.group_id, replace(body, groups=(replace(group, topics=topics),)))
        (found,) = answer.groups
        answers.append(replace(found, topics=(*_readable(forwarded, found.topics), *bad)))
    return OFFSET_FETCH.response(groups=tuple(answers))


def _readable(forwarded: Forwarded, topics: Any) -> list[Any]:
    return [topic for topic in topics if not forwarded.is_foreign(topic.name)]


def _failed_fetch(forwarded: Forwarded, code: ErrorCode) -> object:
    body: OffsetFetchRequest = forwarded.body
    if forwarded.version < _MANY_GROUPS_SINCE:
        topics = tuple(_refused_fetch(topic, code) for topic in body.topics or ())
        return OFFSET_FETCH.response(error_code=code, topics=topics)
    groups = tuple(_failed_group(group, code) for group in body.groups)
    return OFFSET_FETCH.response(groups=groups)


def _failed_group(group: Any, code: ErrorCode) -> OffsetFetchGroupResponse:
    return OffsetFetchGroupResponse(group_id=group.group_id, topics=(), error_code=code)


# --- describing groups ------------------------------------------------------------------------------------------------


async def _list_groups(forwarded: Forwarded) -> object:
    answers = await forwarded.port.ask_all(forwarded.body, forwarded.version)
    namespace = forwarded.session.caller.namespace_key
    found = {}
    if forwarded.session.caller.covers():
        for group in (group for answer in answers for group in answer.groups):
            name = forwarded.port.local_group_of(namespace, group.group_id)
            if name is not None:
                found[name] = replace(group, group_id=name)
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(found.values()))


async def _describe_groups(forwarded: Forwarded) -> object:
    body: DescribeGroupsRequest = forwarded.body
    found = []
    for group_id in dict.fromkeys(body.groups):
        if not forwarded.session.caller.covers():
            found.append(_no_group(group_id, _FORBIDDEN))
            continue
        asked = replace(body, groups=(forwarded.group(group_id),))
        answer = await forwarded.port.ask_coordinator(
            forwarded.client, forwarded.group(group_id), asked, forwarded.version
        )
        found += [_described(forwarded, group) for group in forwarded.to_client(answer).groups]
    return DescribeGroupsResponse(groups=tuple(found))


def _described(forwarded: Forwarded, group: DescribedGroup) -> DescribedGroup:
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


async def _delete_groups(forwarded: Forwarded) -> object:
    body: DeleteGroupsRequest = forwarded.body
    results = []
    for group_id in dict.fromkeys(body.group_ids):
        if not forwarded.session.caller.covers() or not forwarded.session.caller.may(Rights.MANAGE):
            results.append(DeletedGroup(group_id=group_id, error_code=_FORBIDDEN))
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


async def _ask_leaders(forwarded: Forwarded, refused: Callable[[Any, ErrorCode], object]) -> object:
    good, bad = _split(forwarded, forwarded.body.topics, refused)
    if not good:
        return forwarded.request.api.response(topics=tuple(bad))
    asked = replace(forwarded.body, topics=tuple(good))
    answer = await forwarded.port.ask_leaders(forwarded.client, asked, forwarded.version)
    answer = forwarded.to_client(answer)
    return replace(answer, topics=(*answer.topics, *bad))


def _failed_positions(refused: Callable[[Any, ErrorCode], object]) -> Callable[[Forwarded, ErrorCode], object]:
    def failed(forwarded: Forwarded, code: ErrorCode) -> object:
        # Clients look the leader up again after this code.
        code = ErrorCode.LEADER_NOT_AVAILABLE if code == _UNAVAILABLE else code
        return forwarded.request.api.response(topics=tuple(refused(topic, code) for topic in forwarded.body.topics))

    return failed


# --- producer ids ----------------------------------------------------------------------------------------------------


async def _producer_id(forwarded: Forwarded) -> object:
    body: InitProducerIdRequest = forwarded.body
    if body.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not forwarded.session.principal.rights.allows(Rights.SEND):
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    number, epoch = await forwarded.port.new_producer_id()
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=number, producer_epoch=epoch)


HANDLERS: Final[Mapping[int, Handler]] = {
    JOIN_GROUP.key: _forwarded(_join, _refused_join),
    SYNC_GROUP.key: _forwarded(_sync, lambda _, code: SyncGroupResponse(error_code=code, assignment=b"")),
    HEARTBEAT.key: _forwarded(_pass_on, lambda _, code: HeartbeatResponse(error_code=code)),
    LEAVE_GROUP.key: _forwarded(_pass_on, lambda _, code: LeaveGroupResponse(error_code=code)),
    OFFSET_COMMIT.key: _forwarded(_commit, _failed_commit),
    OFFSET_FETCH.key: _forwarded(_fetch_offsets, _failed_fetch),
    LIST_GROUPS.key: _forwarded(_list_groups, lambda _, code: ListGroupsResponse(error_code=code, groups=())),
    DESCRIBE_GROUPS.key: _forwarded(
        _describe_groups,
        lambda f, code: DescribeGroupsResponse(groups=tuple(_no_group(group, code) for group in f.body.groups)),
    ),
    DELETE_GROUPS.key: _forwarded(
        _delete_groups,
        lambda f, code: DeleteGroupsResponse(
            results=tuple(DeletedGroup(group_id=group, error_code=code) for group in f.body.group_ids)
        ),
    ),
    LIST_OFFSETS.key: _forwarded(lambda f: _ask_leaders(f, _refused_offsets), _failed_positions(_refused_offsets)),
    OFFSET_FOR_LEADER_EPOCH.key: _forwarded(
        lambda f: _ask_leaders(f, _refused_epochs), _failed_positions(_refused_epochs)
    ),
    INIT_PRODUCER_ID.key: _forwarded(_producer_id, lambda _, code: InitProducerIdResponse(error_code=code)),
}
