"""Fetch (1), ListOffsets (2) and OffsetForLeaderEpoch (23): reading a partition and finding positions in it."""

from hubmere.wire.kafka.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    EncodedStruct,
    Records,
    api,
    array,
    struct,
    wire,
)

# Kafka numbers its tags from 0; readers skip those that they do not know (KIP-482). Our numbers are far above Kafka's.
PRIVATE_TAGS = 0x4000
LOG_POSITION_TAG = PRIVATE_TAGS
AFTER_BYTES_TAG = PRIVATE_TAGS
MAX_BYTES_TAG = PRIVATE_TAGS + 1
FILES_TAG = PRIVATE_TAGS + 2
BOOT_ID_TAG = PRIVATE_TAGS


@struct
class FetchPartition:
    """Position and size of a read; current_leader_epoch -1 skips the check of the epoch."""

    index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=9, default=-1)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, since=12, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1)
    max_bytes: int = wire(INT32)


@struct
class FetchTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[FetchPartition, ...] = wire(array(FetchPartition))


@struct
class ForgottenTopic:
    """Partitions to drop from a fetch session."""

    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@struct
class FetchRequest:
    """A long poll: wait up to max_wait_ms until min_bytes are available."""

    cluster_id: str | None = wire(STRING, since=12, nullable=True, tag=0, default=None)
    replica_id: int = wire(INT32, default=-1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, since=3, default=0x7FFFFFFF)
    isolation_level: int = wire(INT8, since=4, default=0)
    session_id: int = wire(INT32, since=7, default=0)
    session_epoch: int = wire(INT32, since=7, default=-1)
    topics: tuple[FetchTopic, ...] = wire(array(FetchTopic))
    forgotten_topics: tuple[ForgottenTopic, ...] = wire(array(ForgottenTopic), since=7, default=())
    rack_id: str = wire(STRING, since=11, default="")


@struct
class AbortedTransaction:
    """Records of this producer from first_offset to its abort marker are to be dropped by a read_committed reader."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@struct
class FetchEpochEndOffset:
    """Where the log of a follower diverges from the leader's."""

    epoch: int = wire(INT32, since=12, default=-1)
    end_offset: int = wire(INT64, since=12, default=-1)


@struct
class FetchLeader:
    """The current leader of the partition."""

    leader_id: int = wire(INT32, since=12, default=-1)
    leader_epoch: int = wire(INT32, since=12, default=-1)


@struct
class FetchSnapshotId:
    """The snapshot to load instead of reading this log."""

    end_offset: int = wire(INT64, since=12, default=-1)
    epoch: int = wire(INT32, since=12, default=-1)


@struct
class FetchPartitionResponse:
    """Whole record batches, closed, starting with the one that contains the requested offset."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, since=4, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1)
    diverging_epoch: FetchEpochEndOffset | None = wire(FetchEpochEndOffset, since=12, tag=0, default=None)
    current_leader: FetchLeader | None = wire(FetchLeader, since=12, tag=1, default=None)
    snapshot_id: FetchSnapshotId | None = wire(FetchSnapshotId, since=12, tag=2, default=None)
    # Not Kafka's: the byte offset of the first batch (the AMQP offset), for clients that request it.
    log_position: int = wire(INT64, since=12, tag=LOG_POSITION_TAG, default=-1)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        array(AbortedTransaction), since=4, nullable=True, default=None
    )
    preferred_read_replica: int = wire(INT32, since=11, default=-1)
    records: Records | None = wire(RECORDS, nullable=True, default=None)


@struct
class FetchTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[FetchPartitionResponse, ...] = wire(array(FetchPartitionResponse))


@struct
class FetchResponse:
    """session_id 0: there is no session, and the client sends full requests."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16, since=7, default=0)
    session_id: int = wire(INT32, since=7, default=0)
    topics: tuple[FetchTopicResponse, ...] = wire(array(FetchTopicResponse))


# --- ListOffsets -----------------------------------------------------------------------------------------------------

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3


@struct
class ListOffsetsPartition:
    """A time in ms, or one of the negative numbers above."""

    index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1)
    timestamp_ms: int = wire(INT64)
    # Ours alone: ask also where a reader stops that begins at an offset and takes so many bytes of the log.
    start_offset: int = wire(INT64, since=6, tag=AFTER_BYTES_TAG, default=-1)
    max_bytes: int = wire(INT64, since=6, tag=MAX_BYTES_TAG, default=-1)
    # Ours alone: ask also for the files with the events from `start_offset` up to, not including, this offset.
    files_end: int = wire(INT64, since=6, tag=FILES_TAG, default=-1)


@struct
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = wire(array(ListOffsetsPartition))


@struct
class ListOffsetsRequest:
    """isolation_level 1 asks for the last stable offset as the latest."""

    replica_id: int = wire(INT32, default=-1)
    isolation_level: int = wire(INT8, since=2, default=0)
    topics: tuple[ListOffsetsTopic, ...] = wire(array(ListOffsetsTopic))
    # Ours alone: the boot id of the client's machine. Files are named only to clients on the node's machine.
    boot_id: str | None = wire(STRING, since=6, nullable=True, tag=BOOT_ID_TAG, default=None)


@struct
class StoredFile:
    """Ours alone: whole batches in a file of the node, in the order of the log and without a gap."""

    path: str = wire(STRING)
    file_id: str = wire(STRING)  # device and inode
    position: int = wire(INT64)  # of the first batch in the file
    end_position: int = wire(INT64)
    log_position: int = wire(INT64)  # byte offset of the first batch in the log
    first_offset: int = wire(INT64)  # base offset of the first batch
    end_offset: int = wire(INT64)


@struct
class ListOffsetsPartitionResponse:
    """The first offset at or after the time, and that record's time; -1 and -1 when there is none."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp_ms: int = wire(INT64, since=1, default=-1)
    offset: int = wire(INT64, since=1, default=-1)
    leader_epoch: int = wire(INT32, since=4, default=-1)
    # Ours alone: the offset at which the reader of `start_offset` and `max_bytes` stops; -1 if nobody asked.
    end_offset: int = wire(INT64, since=6, tag=AFTER_BYTES_TAG, default=-1)
    files: tuple[StoredFile, ...] = wire(array(StoredFile), since=6, tag=FILES_TAG, default=())


@struct
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(array(ListOffsetsPartitionResponse))


@struct
class ListOffsetsResponse:
    """One answer for each requested partition."""

    throttle_time_ms: int = wire(INT32, since=2, default=0)
    topics: tuple[ListOffsetsTopicResponse | EncodedStruct, ...] = wire(
        array(ListOffsetsTopicResponse, preencoded=True)
    )


# --- OffsetForLeaderEpoch --------------------------------------------------------------------------------------------


@struct
class EpochPartition:
    """The epoch whose end is requested."""

    index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=2, default=-1)
    leader_epoch: int = wire(INT32)


@struct
class EpochTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[EpochPartition, ...] = wire(array(EpochPartition))


@struct
class OffsetForLeaderEpochRequest:
    """replica_id -2 is "some consumer"."""

    replica_id: int = wire(INT32, since=3, default=-2)
    topics: tuple[EpochTopic, ...] = wire(array(EpochTopic))


@struct
class EpochEndOffset:
    """The largest epoch that is not above the requested one, and the offset at which it ended."""

    error_code: int = wire(INT16)
    index: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=1, default=-1)
    end_offset: int = wire(INT64, default=-1)


@struct
class EpochTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[EpochEndOffset, ...] = wire(array(EpochEndOffset))


@struct
class OffsetForLeaderEpochResponse:
    """One answer for each requested partition."""

    throttle_time_ms: int = wire(INT32, since=2, default=0)
    topics: tuple[EpochTopicResponse, ...] = wire(array(EpochTopicResponse))


FETCH = api(1, FetchRequest, FetchResponse, versions=(4, 12), flexible_since=12)
LIST_OFFSETS = api(2, ListOffsetsRequest, ListOffsetsResponse, versions=(1, 7), flexible_since=6)
OFFSET_FOR_LEADER_EPOCH = api(
    23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, versions=(2, 4), flexible_since=4
)

APIS = (FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
