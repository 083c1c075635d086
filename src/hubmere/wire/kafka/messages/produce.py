"""Produce (0): record batches in, their offsets out. Batches stay closed."""

from typing import Final

from hubmere.wire.kafka.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    Records,
    api,
    array,
    struct,
    wire,
)


@struct
class ProducePartition:
    """One record batch for one partition; read as a view of the input."""

    index: int = wire(INT32)
    records: Records | None = wire(RECORDS, nullable=True)


@struct
class ProduceTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[ProducePartition, ...] = wire(array(ProducePartition))


@struct
class ProduceRequest:
    """acks: 0 no response at all, 1 after the write, -1 when durable."""

    transactional_id: str | None = wire(STRING, since=3, nullable=True, default=None)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topics: tuple[ProduceTopic, ...] = wire(array(ProduceTopic))


@struct
class RecordError:
    """What is wrong with one record of a refused batch."""

    batch_index: int = wire(INT32)
    message: str | None = wire(STRING, nullable=True, default=None)


@struct
class ProduceLeader:
    """The leader that a producer should use instead (KIP-951)."""

    leader_id: int = wire(INT32, since=10, default=-1)
    leader_epoch: int = wire(INT32, since=10, default=-1)


@struct
class ProducePartitionResponse:
    """The offset of the batch; log_append_time_ms is -1 if records keep the producer's time."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, since=2, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1)
    record_errors: tuple[RecordError, ...] = wire(array(RecordError), since=8, default=())
    error_message: str | None = wire(STRING, since=8, nullable=True, default=None)
    current_leader: ProduceLeader | None = wire(ProduceLeader, since=10, tag=0, default=None)


@struct
class ProduceTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[ProducePartitionResponse, ...] = wire(array(ProducePartitionResponse))


@struct
class ProduceNodeEndpoint:
    """The address of a leader in `current_leader`."""

    node_id: int = wire(INT32, since=10)
    host: str = wire(STRING, since=10)
    port: int = wire(INT32, since=10)
    rack: str | None = wire(STRING, since=10, nullable=True, default=None)


@struct
class ProduceResponse:
    """Errors are per partition; the others proceed."""

    topics: tuple[ProduceTopicResponse, ...] = wire(array(ProduceTopicResponse))
    throttle_time_ms: int = wire(INT32, since=1, default=0)
    node_endpoints: tuple[ProduceNodeEndpoint, ...] = wire(array(ProduceNodeEndpoint), since=10, tag=0, default=())


# From version 12 on, a batch adds its partition to the transaction of its producer (KIP-890).
TRANSACTIONS_SINCE: Final = 12
# Versions 0 to 2 carry older record formats and are refused, but librdkafka before 2.11.1 compresses only when 0 is
# advertised (KAFKA-18659).
PRODUCE = api(0, ProduceRequest, ProduceResponse, versions=(3, 12), flexible_since=9, advertised_since=0)

APIS = (PRODUCE,)
