"""OffsetCommit (8), OffsetFetch (9), FindCoordinator (10) and OffsetDelete (47): committed offsets of groups."""

from hubmere.wire.kafka.schema import BOOL, INT8, INT16, INT32, INT64, STRING, EncodedStruct, api, array, struct, wire

# Kinds of coordinator in FindCoordinator.
GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1

# --- OffsetCommit ----------------------------------------------------------------------------------------------------


@struct
class OffsetCommitPartition:
    """The next offset to read, and metadata of the client."""

    index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1)
    committed_metadata: str | None = wire(STRING, nullable=True)


@struct
class OffsetCommitTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetCommitPartition, ...] = wire(array(OffsetCommitPartition))


@struct
class OffsetCommitRequest:
    """Generation -1 with an empty member id commits from outside the group."""

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, since=1, default=-1)
    member_id: str = wire(STRING, since=1, default="")
    group_instance_id: str | None = wire(STRING, since=7, nullable=True, default=None)
    retention_time_ms: int = wire(INT64, since=2, until=4, default=-1)
    topics: tuple[OffsetCommitTopic, ...] = wire(array(OffsetCommitTopic))


@struct
class OffsetCommitPartitionResponse:
    """Whether one offset was stored."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class OffsetCommitTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetCommitPartitionResponse, ...] = wire(array(OffsetCommitPartitionResponse))


@struct
class OffsetCommitResponse:
    """Errors are per partition."""

    throttle_time_ms: int = wire(INT32, since=3, default=0)
    topics: tuple[OffsetCommitTopicResponse, ...] = wire(array(OffsetCommitTopicResponse))


# --- OffsetFetch -----------------------------------------------------------------------------------------------------


@struct
class OffsetFetchTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@struct
class OffsetFetchGroup:
    """One group of a request for several; null topics means all committed offsets."""

    group_id: str = wire(STRING, since=8)
    member_id: str | None = wire(STRING, since=9, nullable=True, default=None)
    member_epoch: int = wire(INT32, since=9, default=-1)
    topics: tuple[OffsetFetchTopic, ...] | None = wire(array(OffsetFetchTopic), since=8, nullable=True)


@struct
class OffsetFetchRequest:
    """One group up to version 7, many from 8 on; null topics (version 2 on) means all committed offsets."""

    group_id: str = wire(STRING, until=7, default="")
    topics: tuple[OffsetFetchTopic, ...] | None = wire(array(OffsetFetchTopic), until=7, nullable_since=2, default=None)
    groups: tuple[OffsetFetchGroup, ...] = wire(array(OffsetFetchGroup), since=8, default=())
    require_stable: bool = wire(BOOL, since=7, default=False)


@struct
class OffsetFetchPartitionResponse:
    """The committed offset; -1 without an error if there is none."""

    index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=5, default=-1)
    metadata: str | None = wire(STRING, nullable=True)
    error_code: int = wire(INT16)


@struct
class OffsetFetchTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetFetchPartitionResponse, ...] = wire(array(OffsetFetchPartitionResponse))


@struct
class OffsetFetchGroupResponse:
    """The answer for one group."""

    group_id: str = wire(STRING, since=8)
    topics: tuple[OffsetFetchTopicResponse | EncodedStruct, ...] = wire(
        array(OffsetFetchTopicResponse, preencoded=True), since=8
    )
    error_code: int = wire(INT16, since=8, default=0)


@struct
class OffsetFetchResponse:
    """Topics up to version 7, groups from 8 on."""

    throttle_time_ms: int = wire(INT32, since=3, default=0)
    topics: tuple[OffsetFetchTopicResponse | EncodedStruct, ...] = wire(
        array(OffsetFetchTopicResponse, preencoded=True), until=7, default=()
    )
    error_code: int = wire(INT16, since=2, until=7, default=0)
    groups: tuple[OffsetFetchGroupResponse, ...] = wire(array(OffsetFetchGroupResponse), since=8, default=())


# --- FindCoordinator -------------------------------------------------------------------------------------------------


@struct
class FindCoordinatorRequest:
    """One key up to version 3, many from 4 on."""

    key: str = wire(STRING, until=3, default="")
    key_type: int = wire(INT8, since=1, default=GROUP_COORDINATOR)
    coordinator_keys: tuple[str, ...] = wire(array(STRING), since=4, default=())


@struct
class Coordinator:
    """The node that coordinates one key."""

    key: str = wire(STRING, since=4)
    node_id: int = wire(INT32, since=4)
    host: str = wire(STRING, since=4)
    port: int = wire(INT32, since=4)
    error_code: int = wire(INT16, since=4)
    error_message: str | None = wire(STRING, since=4, nullable=True, default=None)


@struct
class FindCoordinatorResponse:
    """One node up to version 3, many from 4 on."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16, until=3, default=0)
    error_message: str | None = wire(STRING, since=1, until=3, nullable=True, default=None)
    node_id: int = wire(INT32, until=3, default=-1)
    host: str = wire(STRING, until=3, default="")
    port: int = wire(INT32, until=3, default=-1)
    coordinators: tuple[Coordinator, ...] = wire(array(Coordinator), since=4, default=())


# --- OffsetDelete ----------------------------------------------------------------------------------------------------


@struct
class OffsetDeletePartition:
    """A partition whose committed offset is deleted."""

    index: int = wire(INT32)


@struct
class OffsetDeleteTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeletePartition, ...] = wire(array(OffsetDeletePartition))


@struct
class OffsetDeleteRequest:
    """Delete committed offsets of a group."""

    group_id: str = wire(STRING)
    topics: tuple[OffsetDeleteTopic, ...] = wire(array(OffsetDeleteTopic))


@struct
class OffsetDeletePartitionResponse:
    """Whether one committed offset was deleted."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class OffsetDeleteTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeletePartitionResponse, ...] = wire(array(OffsetDeletePartitionResponse))


@struct
class OffsetDeleteResponse:
    """An error of the whole group, or one for each partition."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[OffsetDeleteTopicResponse, ...] = wire(array(OffsetDeleteTopicResponse))


OFFSET_COMMIT = api(8, OffsetCommitRequest, OffsetCommitResponse, versions=(2, 9), flexible_since=8)
OFFSET_FETCH = api(9, OffsetFetchRequest, OffsetFetchResponse, versions=(1, 9), flexible_since=6)
FIND_COORDINATOR = api(10, FindCoordinatorRequest, FindCoordinatorResponse, versions=(0, 4), flexible_since=3)
OFFSET_DELETE = api(47, OffsetDeleteRequest, OffsetDeleteResponse, versions=(0, 0), flexible_since=None)

APIS = (OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, OFFSET_DELETE)
