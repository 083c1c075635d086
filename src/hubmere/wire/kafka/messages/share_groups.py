"""Share groups (KIP-932): only ShareGroupHeartbeat (76), with which every share consumer begins."""

from hubmere.wire.kafka.messages.consumer_groups import TargetAssignment
from hubmere.wire.kafka.schema import INT16, INT32, STRING, api, array, struct, wire


@struct
class ShareGroupHeartbeatRequest:
    """Join, stay and leave in one message; null means "as before"."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    rack_id: str | None = wire(STRING, nullable=True, default=None)
    subscribed_topic_names: tuple[str, ...] | None = wire(array(STRING), nullable=True, default=None)


@struct
class ShareGroupHeartbeatResponse:
    """A null assignment means that the member's assignment has not changed."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    member_id: str | None = wire(STRING, nullable=True, default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: TargetAssignment | None = wire(TargetAssignment, nullable=True, default=None)


SHARE_GROUP_HEARTBEAT = api(
    76, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, versions=(1, 1), flexible_since=0
)

APIS = (SHARE_GROUP_HEARTBEAT,)
