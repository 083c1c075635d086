"""Topics and their contents: CreateTopics (19), DeleteTopics (20), DeleteRecords (21), DescribeLogDirs (35),
CreatePartitions (37).
"""

from uuid import UUID

from hubmere.wire.kafka.primitives import ZERO_UUID
from hubmere.wire.kafka.schema import BOOL, INT8, INT16, INT32, INT64, STRING, WIRE_UUID, api, array, struct, wire

# --- CreateTopics ----------------------------------------------------------------------------------------------------


@struct
class ReplicaAssignment:
    """Brokers chosen by hand for one partition."""

    partition_index: int = wire(INT32)
    broker_ids: tuple[int, ...] = wire(array(INT32))


@struct
class TopicConfig:
    """One configuration entry of a new topic."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=True)


@struct
class CreatableTopic:
    """-1 for partitions or replication leaves the choice to the server."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: tuple[ReplicaAssignment, ...] = wire(array(ReplicaAssignment), default=())
    configs: tuple[TopicConfig, ...] = wire(array(TopicConfig), default=())


@struct
class CreateTopicsRequest:
    """validate_only checks and creates nothing."""

    topics: tuple[CreatableTopic, ...] = wire(array(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60_000)
    validate_only: bool = wire(BOOL, since=1, default=False)


@struct
class CreatedTopicConfig:
    """A configuration entry of the new topic."""

    name: str = wire(STRING, since=5)
    value: str | None = wire(STRING, since=5, nullable=True)
    read_only: bool = wire(BOOL, since=5)
    config_source: int = wire(INT8, since=5, default=-1)
    is_sensitive: bool = wire(BOOL, since=5)


@struct
class CreatedTopic:
    """The result for one topic."""

    name: str = wire(STRING)
    topic_id: UUID = wire(WIRE_UUID, since=7, default=ZERO_UUID)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, nullable=True, default=None)
    topic_config_error_code: int = wire(INT16, since=5, tag=0, default=0)
    num_partitions: int = wire(INT32, since=5, default=-1)
    replication_factor: int = wire(INT16, since=5, default=-1)
    configs: tuple[CreatedTopicConfig, ...] | None = wire(
        array(CreatedTopicConfig), since=5, nullable=True, default=None
    )


@struct
class CreateTopicsResponse:
    """One result for each topic."""

    throttle_time_ms: int = wire(INT32, since=2, default=0)
    topics: tuple[CreatedTopic, ...] = wire(array(CreatedTopic))


# --- DeleteTopics ----------------------------------------------------------------------------------------------------


@struct
class DeletableTopic:
    """A topic by name, or by id (then the name is null)."""

    name: str | None = wire(STRING, since=6, nullable=True, default=None)
    topic_id: UUID = wire(WIRE_UUID, since=6, default=ZERO_UUID)


@struct
class DeleteTopicsRequest:
    """Names up to version 5, names or ids from 6 on."""

    topics: tuple[DeletableTopic, ...] = wire(array(DeletableTopic), since=6, default=())
    topic_names: tuple[str, ...] = wire(array(STRING), until=5, default=())
    timeout_ms: int = wire(INT32)


@struct
class DeletedTopic:
    """Whether one topic was deleted."""

    name: str | None = wire(STRING, nullable_since=6)
    topic_id: UUID = wire(WIRE_UUID, since=6, default=ZERO_UUID)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=5, nullable=True, default=None)


@struct
class DeleteTopicsResponse:
    """One result for each topic."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    responses: tuple[DeletedTopic, ...] = wire(array(DeletedTopic))


# --- DeleteRecords ---------------------------------------------------------------------------------------------------


@struct
class DeleteRecordsPartition:
    """Everything before this offset is deleted; -1 is the high watermark."""

    index: int = wire(INT32)
    offset: int = wire(INT64)


@struct
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(array(DeleteRecordsPartition))


@struct
class DeleteRecordsRequest:
    """Move the start of partitions forward."""

    topics: tuple[DeleteRecordsTopic, ...] = wire(array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)


@struct
class DeleteRecordsPartitionResult:
    """The new start of one partition."""

    index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@struct
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(array(DeleteRecordsPartitionResult))


@struct
class DeleteRecordsResponse:
    """Errors are per partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(array(DeleteRecordsTopicResult))


# --- CreatePartitions ------------------------------------------------------------------------------------------------


@struct
class PartitionAssignment:
    """Brokers chosen by hand for one new partition."""

    broker_ids: tuple[int, ...] = wire(array(INT32))


@struct
class GrowingTopic:
    """The total number of partitions that the topic should have."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: tuple[PartitionAssignment, ...] | None = wire(array(PartitionAssignment), nullable=True, default=None)


@struct
class CreatePartitionsRequest:
    """validate_only checks and changes nothing."""

    topics: tuple[GrowingTopic, ...] = wire(array(GrowingTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


@struct
class GrownTopic:
    """Whether one topic has grown."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)


@struct
class CreatePartitionsResponse:
    """One result for each topic."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[GrownTopic, ...] = wire(array(GrownTopic))


# --- DescribeLogDirs -------------------------------------------------------------------------------------------------


@struct
class LogDirTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@struct
class DescribeLogDirsRequest:
    """Null means all topics."""

    topics: tuple[LogDirTopic, ...] | None = wire(array(LogDirTopic), nullable=True)


@struct
class LogDirPartition:
    """The size of a partition's log."""

    index: int = wire(INT32)
    size_bytes: int = wire(INT64)
    offset_lag: int = wire(INT64, default=0)
    is_future_key: bool = wire(BOOL, default=False)


@struct
class LogDirTopicResult:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[LogDirPartition, ...] = wire(array(LogDirPartition))


@struct
class LogDir:
    """One directory, its partitions and its free space."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: tuple[LogDirTopicResult, ...] = wire(array(LogDirTopicResult))
    total_bytes: int = wire(INT64, since=4, default=-1)
    usable_bytes: int = wire(INT64, since=4, default=-1)


@struct
class DescribeLogDirsResponse:
    """The directories of this node."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=3, default=0)
    results: tuple[LogDir, ...] = wire(array(LogDir))


CREATE_TOPICS = api(19, CreateTopicsRequest, CreateTopicsResponse, versions=(2, 7), flexible_since=5)
DELETE_TOPICS = api(20, DeleteTopicsRequest, DeleteTopicsResponse, versions=(1, 6), flexible_since=4)
DELETE_RECORDS = api(21, DeleteRecordsRequest, DeleteRecordsResponse, versions=(0, 2), flexible_since=2)
DESCRIBE_LOG_DIRS = api(35, DescribeLogDirsRequest, DescribeLogDirsResponse, versions=(0, 4), flexible_since=2)
CREATE_PARTITIONS = api(37, CreatePartitionsRequest, CreatePartitionsResponse, versions=(0, 3), flexible_since=2)

APIS = (CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS)
