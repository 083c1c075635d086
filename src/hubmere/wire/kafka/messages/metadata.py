"""ApiVersions (18), Metadata (3), DescribeCluster (60) and DescribeTopicPartitions (75): APIs, brokers, topics."""

from uuid import UUID

from hubmere.wire.kafka.messages.fetch import PRIVATE_TAGS
from hubmere.wire.kafka.primitives import ZERO_UUID
from hubmere.wire.kafka.schema import (
    API_VERSIONS_KEY,
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    WIRE_UUID,
    EncodedStruct,
    api,
    array,
    struct,
    wire,
)

# Operations were not requested: the default of every authorized-operations field.
NO_OPERATIONS = -(2**31)

# --- ApiVersions -----------------------------------------------------------------------------------------------------


@struct
class ApiVersionsRequest:
    """Name and version of the client software from version 3 on (KIP-511)."""

    client_software_name: str = wire(STRING, since=3, default="")
    client_software_version: str = wire(STRING, since=3, default="")


@struct
class ApiVersion:
    """The versions of one API that the server accepts."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@struct
class SupportedFeature:
    """A supported feature level."""

    name: str = wire(STRING, since=3)
    min_version: int = wire(INT16, since=3)
    max_version: int = wire(INT16, since=3)


@struct
class FinalizedFeature:
    """A feature level that is in use."""

    name: str = wire(STRING, since=3)
    max_version_level: int = wire(INT16, since=3)
    min_version_level: int = wire(INT16, since=3)


@struct
class ApiVersionsResponse:
    """Up to version 3, supported_features must leave out entries whose minimum is 0."""

    error_code: int = wire(INT16)
    api_keys: tuple[ApiVersion, ...] = wire(array(ApiVersion))
    throttle_time_ms: int = wire(INT32, since=1, default=0)
    supported_features: tuple[SupportedFeature, ...] = wire(array(SupportedFeature), since=3, tag=0, default=())
    finalized_features_epoch: int = wire(INT64, since=3, tag=1, default=-1)
    finalized_features: tuple[FinalizedFeature, ...] = wire(array(FinalizedFeature), since=3, tag=2, default=())
    zk_migration_ready: bool = wire(BOOL, since=3, tag=3, default=False)
    # Ours alone: the server is a Hubmere node. It says so only to our own clients.
    is_hubmere: bool = wire(BOOL, since=3, tag=PRIVATE_TAGS, default=False)


# --- Metadata --------------------------------------------------------------------------------------------------------


@struct
class MetadataRequestTopic:
    """A topic by name, or by id from version 12 on (then the name is null)."""

    topic_id: UUID = wire(WIRE_UUID, since=10, default=ZERO_UUID)
    name: str | None = wire(STRING, nullable_since=10)


@struct
class MetadataRequest:
    """All topics: null from version 1 on, an empty list in version 0."""

    topics: tuple[MetadataRequestTopic, ...] | None = wire(array(MetadataRequestTopic), nullable_since=1)
    allow_auto_topic_creation: bool = wire(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = wire(BOOL, since=8, default=False)


@struct
class MetadataBroker:
    """A node to connect to."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, since=1, nullable=True, default=None)


@struct
class MetadataPartition:
    """A partition and its leader."""

    error_code: int = wire(INT16)
    index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=7, default=-1)
    replica_nodes: tuple[int, ...] = wire(array(INT32))
    isr_nodes: tuple[int, ...] = wire(array(INT32))
    offline_replicas: tuple[int, ...] = wire(array(INT32), since=5, default=())


@struct
class MetadataTopic:
    """A topic and its partitions."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable_since=12)
    topic_id: UUID = wire(WIRE_UUID, since=10, default=ZERO_UUID)
    is_internal: bool = wire(BOOL, since=1, default=False)
    partitions: tuple[MetadataPartition, ...] = wire(array(MetadataPartition))
    topic_authorized_operations: int = wire(INT32, since=8, default=NO_OPERATIONS)


@struct
class MetadataResponse:
    """Topics may be given already encoded, since they change far less often than they are requested."""

    throttle_time_ms: int = wire(INT32, since=3, default=0)
    brokers: tuple[MetadataBroker, ...] = wire(array(MetadataBroker))
    cluster_id: str | None = wire(STRING, since=2, nullable=True, default=None)
    controller_id: int = wire(INT32, since=1, default=-1)
    topics: tuple[MetadataTopic | EncodedStruct, ...] = wire(array(MetadataTopic, preencoded=True))
    cluster_authorized_operations: int = wire(INT32, since=8, until=10, default=NO_OPERATIONS)


# --- DescribeCluster -------------------------------------------------------------------------------------------------


@struct
class DescribeClusterRequest:
    """endpoint_type: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: bool = wire(BOOL)
    endpoint_type: int = wire(INT8, since=1, default=1)


@struct
class DescribeClusterBroker:
    """A node of the cluster."""

    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=True, default=None)


@struct
class DescribeClusterResponse:
    """The same cluster id and brokers as in Metadata."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    endpoint_type: int = wire(INT8, since=1, default=1)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire(array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(INT32, default=NO_OPERATIONS)


# --- DescribeTopicPartitions -----------------------------------------------------------------------------------------


@struct
class TopicCursor:
    """Where a page of partitions starts."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@struct
class DescribeTopicPartitionsTopic:
    """A topic by name."""

    name: str = wire(STRING)


@struct
class DescribeTopicPartitionsRequest:
    """One page of at most response_partition_limit partitions."""

    topics: tuple[DescribeTopicPartitionsTopic, ...] = wire(array(DescribeTopicPartitionsTopic))
    response_partition_limit: int = wire(INT32, default=2000)
    cursor: TopicCursor | None = wire(TopicCursor, nullable=True, default=None)


@struct
class DescribedPartition:
    """A partition, its leader and its replicas."""

    error_code: int = wire(INT16)
    index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    replica_nodes: tuple[int, ...] = wire(array(INT32))
    isr_nodes: tuple[int, ...] = wire(array(INT32))
    eligible_leader_replicas: tuple[int, ...] | None = wire(array(INT32), nullable=True, default=None)
    last_known_elr: tuple[int, ...] | None = wire(array(INT32), nullable=True, default=None)
    offline_replicas: tuple[int, ...] = wire(array(INT32))


@struct
class DescribedTopic:
    """A topic and one page of its partitions."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable=True)
    topic_id: UUID = wire(WIRE_UUID)
    is_internal: bool = wire(BOOL, default=False)
    partitions: tuple[DescribedPartition, ...] = wire(array(DescribedPartition))
    topic_authorized_operations: int = wire(INT32, default=NO_OPERATIONS)


@struct
class DescribeTopicPartitionsResponse:
    """next_cursor is null on the last page."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[DescribedTopic, ...] = wire(array(DescribedTopic))
    next_cursor: TopicCursor | None = wire(TopicCursor, nullable=True, default=None)


API_VERSIONS = api(API_VERSIONS_KEY, ApiVersionsRequest, ApiVersionsResponse, versions=(0, 4), flexible_since=3)
METADATA = api(3, MetadataRequest, MetadataResponse, versions=(0, 12), flexible_since=9)
DESCRIBE_CLUSTER = api(60, DescribeClusterRequest, DescribeClusterResponse, versions=(0, 1), flexible_since=0)
DESCRIBE_TOPIC_PARTITIONS = api(
    75, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, versions=(0, 0), flexible_since=0
)

APIS = (API_VERSIONS, METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS)
