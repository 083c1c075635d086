"""The classic group protocol: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), and describing and
deleting groups: DescribeGroups (15), ListGroups (16), DeleteGroups (42). Metadata and assignments are opaque bytes.
"""

from hubmere.wire.kafka.schema import BOOL, BYTES, INT16, INT32, STRING, api, array, struct, wire

_NO_OPERATIONS = -(2**31)

# --- JoinGroup -------------------------------------------------------------------------------------------------------


@struct
class JoinGroupProtocol:
    """An assignment strategy that the member supports; the preferred one is first."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@struct
class JoinGroupRequest:
    """Become a member or stay one; version 0 has no rebalance timeout (-1: use the session timeout)."""

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, nullable=True, default=None)
    protocol_type: str = wire(STRING)
    protocols: tuple[JoinGroupProtocol, ...] = wire(array(JoinGroupProtocol))
    reason: str | None = wire(STRING, since=8, nullable=True, default=None)


@struct
class JoinGroupMember:
    """A member, as only the leader sees it."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, nullable=True, default=None)
    metadata: bytes = wire(BYTES)


@struct
class JoinGroupResponse:
    """protocol_name on an error: empty before version 7, null from 7 on."""

    throttle_time_ms: int = wire(INT32, since=2, default=0)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, since=7, nullable=True, default=None)
    protocol_name: str | None = wire(STRING, nullable_since=7)
    leader: str = wire(STRING)
    skip_assignment: bool = wire(BOOL, since=9, default=False)
    member_id: str = wire(STRING)
    members: tuple[JoinGroupMember, ...] = wire(array(JoinGroupMember))


# --- Heartbeat -------------------------------------------------------------------------------------------------------


@struct
class HeartbeatRequest:
    """The member is alive."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable=True, default=None)


@struct
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS means that the member must join again."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16)


# --- LeaveGroup ------------------------------------------------------------------------------------------------------


@struct
class LeavingMember:
    """A member by id, or by instance id."""

    member_id: str = wire(STRING, since=3)
    group_instance_id: str | None = wire(STRING, since=3, nullable=True, default=None)
    reason: str | None = wire(STRING, since=5, nullable=True, default=None)


@struct
class LeaveGroupRequest:
    """One member up to version 2, many from 3 on."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, until=2, default="")
    members: tuple[LeavingMember, ...] = wire(array(LeavingMember), since=3, default=())


@struct
class LeftMember:
    """Whether one member left."""

    member_id: str = wire(STRING, since=3)
    group_instance_id: str | None = wire(STRING, since=3, nullable=True, default=None)
    error_code: int = wire(INT16, since=3)


@struct
class LeaveGroupResponse:
    """An error of the whole request, or one for each member from version 3 on."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16)
    members: tuple[LeftMember, ...] = wire(array(LeftMember), since=3, default=())


# --- SyncGroup -------------------------------------------------------------------------------------------------------


@struct
class SyncGroupAssignment:
    """The assignment of one member, computed by the leader."""

    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@struct
class SyncGroupRequest:
    """The leader sends all assignments, the others send none."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable=True, default=None)
    protocol_type: str | None = wire(STRING, since=5, nullable=True, default=None)
    protocol_name: str | None = wire(STRING, since=5, nullable=True, default=None)
    assignments: tuple[SyncGroupAssignment, ...] = wire(array(SyncGroupAssignment))


@struct
class SyncGroupResponse:
    """The member's own assignment."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16)
    protocol_type: str | None = wire(STRING, since=5, nullable=True, default=None)
    protocol_name: str | None = wire(STRING, since=5, nullable=True, default=None)
    assignment: bytes = wire(BYTES)


# --- DescribeGroups --------------------------------------------------------------------------------------------------


@struct
class DescribeGroupsRequest:
    """Groups by id."""

    groups: tuple[str, ...] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL, since=3, default=False)


@struct
class DescribedGroupMember:
    """A member, with its subscription and its assignment."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=4, nullable=True, default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@struct
class DescribedGroup:
    """A group; one that does not exist is described as Dead without an error."""

    error_code: int = wire(INT16)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: tuple[DescribedGroupMember, ...] = wire(array(DescribedGroupMember))
    authorized_operations: int = wire(INT32, since=3, default=_NO_OPERATIONS)


@struct
class DescribeGroupsResponse:
    """One description for each requested group."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    groups: tuple[DescribedGroup, ...] = wire(array(DescribedGroup))


# --- ListGroups ------------------------------------------------------------------------------------------------------


@struct
class ListGroupsRequest:
    """An empty filter lists groups in every state, or of every type."""

    states_filter: tuple[str, ...] = wire(array(STRING), since=4, default=())
    types_filter: tuple[str, ...] = wire(array(STRING), since=5, default=())


@struct
class ListedGroup:
    """A group by name."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, default="")
    group_type: str = wire(STRING, since=5, default="")


@struct
class ListGroupsResponse:
    """The groups that the principal may see."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16)
    groups: tuple[ListedGroup, ...] = wire(array(ListedGroup))


# --- DeleteGroups ----------------------------------------------------------------------------------------------------


@struct
class DeleteGroupsRequest:
    """Groups by id."""

    group_ids: tuple[str, ...] = wire(array(STRING))


@struct
class DeletedGroup:
    """Whether one group was deleted."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@struct
class DeleteGroupsResponse:
    """One result for each group."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[DeletedGroup, ...] = wire(array(DeletedGroup))


JOIN_GROUP = api(11, JoinGroupRequest, JoinGroupResponse, versions=(0, 9), flexible_since=6)
HEARTBEAT = api(12, HeartbeatRequest, HeartbeatResponse, versions=(0, 4), flexible_since=4)
LEAVE_GROUP = api(13, LeaveGroupRequest, LeaveGroupResponse, versions=(0, 5), flexible_since=4)
SYNC_GROUP = api(14, SyncGroupRequest, SyncGroupResponse, versions=(0, 5), flexible_since=4)
DESCRIBE_GROUPS = api(15, DescribeGroupsRequest, DescribeGroupsResponse, versions=(0, 5), flexible_since=5)
LIST_GROUPS = api(16, ListGroupsRequest, ListGroupsResponse, versions=(0, 5), flexible_since=3)
DELETE_GROUPS = api(42, DeleteGroupsRequest, DeleteGroupsResponse, versions=(0, 2), flexible_since=2)

APIS = (JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS)
