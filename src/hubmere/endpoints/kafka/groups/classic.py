"""Handlers for classic groups: requests become calls of the coordinator (reference: kafka 2.10).

Groups span the namespace, and need the right to listen. Which groups a client with a credential for one hub may see and
join is decided in `access`. After anything that may have set a deadline, the handlers call
`KafkaContext.watch_deadlines`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Final

from hubmere.broker import (
    GroupDescription,
    GroupProtocol,
    GroupState,
    GroupType,
    JoinRequest,
    JoinResponse,
    MemberView,
    Resource,
    SyncRequest,
    SyncResponse,
    refusals,
)
from hubmere.endpoints.kafka.admin.operations import group_operations
from hubmere.endpoints.kafka.context import NODE_ID, Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.gather import Gather
from hubmere.endpoints.kafka.groups.access import GroupAccess, require_group
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import MAX_NAMES, Steps, in_slices
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
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
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from hubmere.wire.kafka.messages.offsets import (
    FIND_COORDINATOR,
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

# The versions that introduced these features.
_KNOWN_ID_SINCE: Final = 4  # KIP-394
_NULL_PROTOCOL_SINCE: Final = 7  # KIP-559
_SKIP_ASSIGNMENT_SINCE: Final = 9  # KIP-814
_MANY_LEAVE_SINCE: Final = 3  # KIP-345
_MANY_COORDINATORS_SINCE: Final = 4  # KIP-699

# The longest rebalance timeout, whatever a client asks for.
_LONGEST_REBALANCE_S: Final = 1800.0
_COORDINATORS: Final = (GROUP_COORDINATOR, TRANSACTION_COORDINATOR)


def require_listening(session: KafkaSession, group_id: str) -> None:
    """Refuse clients without the right to listen."""
    if not session.principal.rights.allows(Rights.LISTEN):
        raise refusals.GroupForbidden(group_id)


def may_read(session: KafkaSession) -> Callable[[str], bool]:
    """A test whether the client may read a hub, for the coordinator; it does not keep the connection alive."""
    principal, namespace = session.principal, session.namespace.name
    return lambda name: principal.may(Rights.LISTEN, Resource.of_hub(namespace, name))


# --- FindCoordinator -------------------------------------------------------------------------------------------------


@in_slices
def find_coordinator(session: KafkaSession, request: Request) -> Steps:
    """This node coordinates every group and transaction; a key that is named twice is answered once."""
    body: FindCoordinatorRequest = request.body
    keys = dict.fromkeys(body.coordinator_keys) if request.version >= _MANY_COORDINATORS_SINCE else (body.key,)
    is_known = body.key_type in _COORDINATORS and len(keys) <= MAX_NAMES
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    host, port = session.host, session.port
    many: list[Coordinator] = []
    for key in keys:
        many.append(Coordinator(key=key, node_id=NODE_ID, host=host, port=port, error_code=code))
        yield
    session.respond(
        request,
        FindCoordinatorResponse(error_code=code, node_id=NODE_ID, host=host, port=port, coordinators=tuple(many)),
    )


# --- members ---------------------------------------------------------------------------------------------------------


def join_group(session: KafkaSession, request: Request) -> None:
    """Join or rejoin; answered when the other members have joined too."""
    body: JoinGroupRequest = request.body
    rebalance_ms = body.rebalance_timeout_ms if body.rebalance_timeout_ms >= 0 else body.session_timeout_ms
    joining = JoinRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        client_id=request.client_id or "",
        client_host=f"/{session.wire.peer}",
        session_timeout_s=body.session_timeout_ms / 1000,
        rebalance_timeout_s=min(rebalance_ms / 1000, _LONGEST_REBALANCE_S),
        protocol_type=body.protocol_type,
        protocols=tuple(GroupProtocol(protocol.name, protocol.metadata) for protocol in body.protocols),
        needs_known_id=request.version >= _KNOWN_ID_SINCE,
        may_skip_assignment=request.version >= _SKIP_ASSIGNMENT_SINCE,
        may_read=may_read(session),
    )

    def reply(answer: JoinResponse | Refusal) -> None:
        session.context.group_replies.send(session, lambda: respond(answer))

    def respond(answer: JoinResponse | Refusal) -> None:
        if isinstance(answer, JoinResponse) and not GroupAccess(session).can_use(body.group_id):
            # Members have joined meanwhile that read hubs which this client may not see.
            answer = refusals.GroupForbidden(body.group_id)
        session.respond(request, _join_response(request, answer))

    try:
        require_group(session, body.group_id)
        if not GroupAccess(session).may_subscribe(body.protocol_type, [each.metadata for each in body.protocols]):
            raise refusals.GroupForbidden(body.group_id)
        session.coordinator.groups.join(body.group_id, joining, session.now, session.now_ms, reply)
    except Refusal as refusal:
        reply(refusal)
    session.context.watch_deadlines()


def _join_response(request: Request, answer: JoinResponse | Refusal) -> JoinGroupResponse:
    if isinstance(answer, Refusal):
        member_id = answer.member if isinstance(answer, refusals.MemberIdRequired) else request.body.member_id
        return _refused_join(request, code_of(answer), member_id)
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(_join_member(member) for member in answer.members),
    )


def _join_member(member: MemberView) -> JoinGroupMember:
    return JoinGroupMember(member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata)


def _refused_join(request: Request, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if request.version >= _NULL_PROTOCOL_SINCE else "",
        leader="",
        member_id=member_id,
        members=(),
    )


def sync_group(session: KafkaSession, request: Request) -> None:
    """Ask for an assignment; answered when the leader has sent it."""
    body: SyncGroupRequest = request.body
    syncing = SyncRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        generation=body.generation_id,
        protocol_type=body.protocol_type,
        protocol=body.protocol_name,
        assignments={entry.member_id: entry.assignment for entry in body.assignments},
    )

    def reply(answer: SyncResponse | Refusal) -> None:
        session.context.group_replies.send(session, lambda: session.respond(request, _sync_response(answer)))

    try:
        require_listening(session, body.group_id)
        session.coordinator.groups.sync(body.group_id, syncing, session.now, session.now_ms, reply)
    except Refusal as refusal:
        reply(refusal)
    session.context.watch_deadlines()


def _sync_response(answer: SyncResponse | Refusal) -> SyncGroupResponse:
    if isinstance(answer, Refusal):
        return SyncGroupResponse(error_code=code_of(answer), assignment=b"")
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


def heartbeat(session: KafkaSession, request: Request) -> None:
    """Keep a member alive."""
    body: HeartbeatRequest = request.body
    code = ErrorCode.NONE
    try:
        require_listening(session, body.group_id)
        session.coordinator.groups.heartbeat(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id, session.now
        )
    except Refusal as refusal:
        code = code_of(refusal)
    session.respond(request, HeartbeatResponse(error_code=code))


def leave_group(session: KafkaSession, request: Request) -> None:
    """Remove one member, or from version 3 on several, each with its own result."""
    body: LeaveGroupRequest = request.body
    if request.version >= _MANY_LEAVE_SINCE:
        left = tuple(
            LeftMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=_leave(session, body.group_id, member),
            )
            for member in body.members
        )
        session.respond(request, LeaveGroupResponse(error_code=ErrorCode.NONE, members=left))
    else:
        code = _leave(session, body.group_id, LeavingMember(member_id=body.member_id))
        session.respond(request, LeaveGroupResponse(error_code=code))
    session.context.watch_deadlines()


def _leave(session: KafkaSession, group_id: str, member: LeavingMember) -> ErrorCode:
    try:
        require_listening(session, group_id)
        if not member.member_id:
            # An administrator removes a static member by its instance id, which is no secret.
            require_group(session, group_id)
        session.coordinator.groups.leave(
            group_id, member.member_id, member.group_instance_id, session.now, session.now_ms
        )
    except Refusal as refusal:
        return code_of(refusal)
    return ErrorCode.NONE


# --- describing and deleting groups ----------------------------------------------------------------------------------


@in_slices
def describe_groups(session: KafkaSession, request: Request) -> Steps:
    """Groups with their members, each once. A group that does not exist is Dead, without an error."""
    body: DescribeGroupsRequest = request.body
    names = dict.fromkeys(body.groups)
    groups: list[DescribedGroup] = []
    for name in names:
        if len(names) > MAX_NAMES:
            groups.append(_to_message(GroupDescription(name, GroupState.DEAD, "", "", ()), ErrorCode.INVALID_REQUEST))
        else:
            groups.append(_describe(session, name, with_operations=body.include_authorized_operations))
        yield from repeat(None, len(groups[-1].members) + 1)
    session.respond(request, DescribeGroupsResponse(groups=tuple(groups)))


def _describe(session: KafkaSession, group_id: str, *, with_operations: bool) -> DescribedGroup:
    try:
        require_group(session, group_id)
        group = session.coordinator.groups.describe(group_id)
    except Refusal as refusal:
        return _to_message(GroupDescription(group_id, GroupState.DEAD, "", "", ()), code_of(refusal))
    if group.type is GroupType.CONSUMER:
        # There is no classic group of that id; clients describe it with ConsumerGroupDescribe.
        group = GroupDescription(group_id, GroupState.DEAD, "", "", ())
    described = _to_message(group)
    if not with_operations:
        return described
    allowed = group_operations(session.caller)
    return replace(described, authorized_operations=allowed)


def _to_message(group: GroupDescription, code: ErrorCode = ErrorCode.NONE) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
    )


@in_slices
def list_groups(session: KafkaSession, request: Request) -> Steps:
    """The groups that the client may see, in the states and of the types that it asks for."""
    body: ListGroupsRequest = request.body
    states = {state.lower() for state in body.states_filter}
    types = {group_type.lower() for group_type in body.types_filter}
    listed: list[ListedGroup] = []
    access = GroupAccess(session)
    for group in session.coordinator.groups.list():
        if _matches(group.state, states) and _matches(group.type, types) and access.can_use(group.group_id):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.type,
                )
            )
        yield
    session.respond(request, ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(listed)))


def _matches(value: str, wanted: set[str]) -> bool:
    return not wanted or value.lower() in wanted


@in_slices
def delete_groups(session: KafkaSession, request: Request) -> Steps:
    """Delete groups without members, with their offsets; needs the right to manage the namespace."""
    body: DeleteGroupsRequest = request.body
    may = session.caller.may(Rights.MANAGE)

    def on_done(results: list[DeletedGroup]) -> None:
        session.respond(request, DeleteGroupsResponse(results=tuple(results)))

    group_ids = list(dict.fromkeys(body.group_ids))
    gather = Gather[DeletedGroup](len(group_ids), on_done)
    for index, group_id in enumerate(group_ids):
        _delete(session, group_id, gather, index, may=may)
        yield


def _delete(session: KafkaSession, group_id: str, gather: Gather[DeletedGroup], index: int, *, may: bool) -> None:
    def on_done(refusal: Refusal | None) -> None:
        code = ErrorCode.NONE if refusal is None else code_of(refusal)
        gather.put(index, DeletedGroup(group_id=group_id, error_code=code))

    if not may:
        gather.put(index, DeletedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    try:
        session.coordinator.groups.delete(group_id, on_done)
    except Refusal as refusal:
        on_done(refusal)


HANDLERS: Final[Mapping[int, Handler]] = {
    FIND_COORDINATOR.key: find_coordinator,
    JOIN_GROUP.key: join_group,
    SYNC_GROUP.key: sync_group,
    HEARTBEAT.key: heartbeat,
    LEAVE_GROUP.key: leave_group,
    DESCRIBE_GROUPS.key: describe_groups,
    LIST_GROUPS.key: list_groups,
    DELETE_GROUPS.key: delete_groups,
}
