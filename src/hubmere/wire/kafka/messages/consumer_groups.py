"""The group protocol of KIP-848: ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69)."""

from uuid import UUID

from hubmere.wire.kafka.schema import BOOL, INT8, INT16, INT32, STRING, WIRE_UUID, api, array, struct, wire

_NO_OPERATIONS = -(2**31)

# Member epochs with a special meaning.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


@struct
class OwnedPartitions:
    """Partitions of one topic, by topic id."""

    topic_id: UUID = wire(WIRE_UUID)
    partitions: tuple[int, ...] = wire(array(INT32))


@struct
class ConsumerGroupHeartbeatRequest:
    """Join, stay and leave in one message; null means "as before"."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    instance_id: str | None = wire(STRING, nullable=True, default=None)
    rack_id: str | None = wire(STRING, nullable=True, default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire(array(STRING), nullable=True, default=None)
    subscribed_topic_regex: str | None = wire(STRING, since=1, nullable=True, default=None)
    server_assignor: str | None = wire(STRING, nullable=True, default=None)
    topic_partitions: tuple[OwnedPartitions, ...] | None = wire(array(OwnedPartitions), nullable=True, default=None)


@struct
class TargetAssignment:
    """The target assignment of the member."""

    topic_partitions: tuple[OwnedPartitions, ...] = wire(array(OwnedPartitions))


@struct
class ConsumerGroupHeartbeatResponse:
    """A null assignment means that the member's assignment has not changed."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    member_id: str | None = wire(STRING, nullable=True, default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: TargetAssignment | None = wire(TargetAssignment, nullable=True, default=None)


@struct
class ConsumerGroupDescribeRequest:
    """Groups by id."""

    group_ids: tuple[str, ...] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL)


@struct
class NamedPartitions:
    """Partitions of one topic, by id and name."""

    topic_id: UUID = wire(WIRE_UUID)
    topic_name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@struct
class MemberAssignment:
    """The current or the target assignment of a member."""

    topic_partitions: tuple[NamedPartitions, ...] = wire(array(NamedPartitions))


@struct
class ConsumerGroupMember:
    """member_type: -1 unknown, 0 classic, 1 consumer."""

    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, nullable=True, default=None)
    rack_id: str | None = wire(STRING, nullable=True, default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable=True, default=None)
    assignment: MemberAssignment = wire(MemberAssignment)
    target_assignment: MemberAssignment = wire(MemberAssignment)
    member_type: int = wire(INT8, since=1, default=-1)


@struct
class DescribedConsumerGroup:
    """A group and its members."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: tuple[ConsumerGroupMember, ...] = wire(array(ConsumerGroupMember))
    authorized_operations: int = wire(INT32, default=_NO_OPERATIONS)


@struct
class ConsumerGroupDescribeResponse:
    """One description for each requested group."""

    throttle_time_ms: int = wire(INT32, default=0)
    groups: tuple[DescribedConsumerGroup, ...] = wire(array(DescribedConsumerGroup))


CONSUMER_GROUP_HEARTBEAT = api(
    68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, versions=(0, 1), flexible_since=0
)
CONSUMER_GROUP_DESCRIBE = api(
    69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, versions=(0, 1), flexible_since=0
)

APIS = (CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE)
