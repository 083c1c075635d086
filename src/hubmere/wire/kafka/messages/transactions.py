"""Producer ids and transactions: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26),
TxnOffsetCommit (28), and queries: DescribeProducers (61), DescribeTransactions (65), ListTransactions (66).
"""

from hubmere.wire.kafka.schema import BOOL, INT16, INT32, INT64, STRING, api, array, struct, wire

# --- InitProducerId --------------------------------------------------------------------------------------------------


@struct
class InitProducerIdRequest:
    """Without a transactional id: an id for an idempotent producer."""

    transactional_id: str | None = wire(STRING, nullable=True)
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, since=3, default=-1)
    producer_epoch: int = wire(INT16, since=3, default=-1)


@struct
class InitProducerIdResponse:
    """The id and epoch of the producer."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16, default=-1)


# --- AddPartitionsToTxn ----------------------------------------------------------------------------------------------


@struct
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@struct
class AddPartitionsToTxnRequest:
    """The partitions that the producer is about to write to."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire(array(AddPartitionsToTxnTopic))


@struct
class AddPartitionsToTxnPartitionResult:
    """Whether one partition is part of the transaction."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(array(AddPartitionsToTxnPartitionResult))


@struct
class AddPartitionsToTxnResponse:
    """One result for each partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[AddPartitionsToTxnTopicResult, ...] = wire(array(AddPartitionsToTxnTopicResult))


# --- AddOffsetsToTxn, EndTxn -----------------------------------------------------------------------------------------


@struct
class AddOffsetsToTxnRequest:
    """The producer is about to commit offsets of this group."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@struct
class AddOffsetsToTxnResponse:
    """Whether the group is part of the transaction."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)


@struct
class EndTxnRequest:
    """Commit or abort."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)


@struct
class EndTxnResponse:
    """Whether the transaction is decided; from version 5 on with the producer's next id and epoch (KIP-890)."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, since=5, default=-1)
    producer_epoch: int = wire(INT16, since=5, default=-1)


# --- TxnOffsetCommit -------------------------------------------------------------------------------------------------


@struct
class TxnOffsetCommitPartition:
    """The next offset to read once the transaction is committed."""

    index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=2, default=-1)
    committed_metadata: str | None = wire(STRING, nullable=True)


@struct
class TxnOffsetCommitTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitPartition, ...] = wire(array(TxnOffsetCommitPartition))


@struct
class TxnOffsetCommitRequest:
    """Offsets that become visible with the transaction; version 3 also names the member (KIP-447)."""

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, since=3, default=-1)
    member_id: str = wire(STRING, since=3, default="")
    group_instance_id: str | None = wire(STRING, since=3, nullable=True, default=None)
    topics: tuple[TxnOffsetCommitTopic, ...] = wire(array(TxnOffsetCommitTopic))


@struct
class TxnOffsetCommitPartitionResponse:
    """Whether one offset is pending now."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class TxnOffsetCommitTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitPartitionResponse, ...] = wire(array(TxnOffsetCommitPartitionResponse))


@struct
class TxnOffsetCommitResponse:
    """Errors are per partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[TxnOffsetCommitTopicResponse, ...] = wire(array(TxnOffsetCommitTopicResponse))


# --- DescribeProducers -----------------------------------------------------------------------------------------------


@struct
class DescribeProducersTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@struct
class DescribeProducersRequest:
    """Partitions whose producers are requested."""

    topics: tuple[DescribeProducersTopic, ...] = wire(array(DescribeProducersTopic))


@struct
class ActiveProducer:
    """The state of a producer in a partition; current_txn_start_offset is -1 outside a transaction."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp_ms: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@struct
class DescribeProducersPartition:
    """The producers of one partition."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    active_producers: tuple[ActiveProducer, ...] = wire(array(ActiveProducer))


@struct
class DescribeProducersTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[DescribeProducersPartition, ...] = wire(array(DescribeProducersPartition))


@struct
class DescribeProducersResponse:
    """One answer for each partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[DescribeProducersTopicResponse, ...] = wire(array(DescribeProducersTopicResponse))


# --- DescribeTransactions, ListTransactions --------------------------------------------------------------------------


@struct
class DescribeTransactionsRequest:
    """Transactions by transactional id."""

    transactional_ids: tuple[str, ...] = wire(array(STRING))


@struct
class TransactionTopic:
    """Partitions that are part of a transaction."""

    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@struct
class DescribedTransaction:
    """A transactional id, its producer and its open transaction."""

    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(STRING)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: tuple[TransactionTopic, ...] = wire(array(TransactionTopic))


@struct
class DescribeTransactionsResponse:
    """One description for each id."""

    throttle_time_ms: int = wire(INT32, default=0)
    transaction_states: tuple[DescribedTransaction, ...] = wire(array(DescribedTransaction))


@struct
class ListTransactionsRequest:
    """Empty filters and a negative duration match everything."""

    state_filters: tuple[str, ...] = wire(array(STRING))
    producer_id_filters: tuple[int, ...] = wire(array(INT64))
    duration_filter_ms: int = wire(INT64, since=1, default=-1)


@struct
class ListedTransaction:
    """A transactional id and its state."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)


@struct
class ListTransactionsResponse:
    """unknown_state_filters are the states in the request that do not exist."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    unknown_state_filters: tuple[str, ...] = wire(array(STRING))
    transaction_states: tuple[ListedTransaction, ...] = wire(array(ListedTransaction))


INIT_PRODUCER_ID = api(22, InitProducerIdRequest, InitProducerIdResponse, versions=(0, 5), flexible_since=2)
ADD_PARTITIONS_TO_TXN = api(
    24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, versions=(0, 3), flexible_since=3
)
ADD_OFFSETS_TO_TXN = api(25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, versions=(0, 4), flexible_since=3)
END_TXN = api(26, EndTxnRequest, EndTxnResponse, versions=(0, 5), flexible_since=3)
TXN_OFFSET_COMMIT = api(28, TxnOffsetCommitRequest, TxnOffsetCommitResponse, versions=(0, 5), flexible_since=3)
DESCRIBE_PRODUCERS = api(61, DescribeProducersRequest, DescribeProducersResponse, versions=(0, 0), flexible_since=0)
DESCRIBE_TRANSACTIONS = api(
    65, DescribeTransactionsRequest, DescribeTransactionsResponse, versions=(0, 0), flexible_since=0
)
LIST_TRANSACTIONS = api(66, ListTransactionsRequest, ListTransactionsResponse, versions=(0, 1), flexible_since=0)

APIS = (
    INIT_PRODUCER_ID,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
