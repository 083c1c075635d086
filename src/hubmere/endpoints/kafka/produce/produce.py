"""Produce: closed record batches in, the offsets they got out (reference: kafka 2.7 and 3.5).

A batch is copied once out of the receive buffer and handed to the broker unopened; the log checks it, numbers it and
tells repeats of idempotent producers. acks=-1 is answered after the commit, 1 after the write, 0 never. Errors are per
partition, and the others proceed; with acks=0 an error closes the connection, since nothing else can tell it.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from hubmere.broker.coordinator.refusals import InvalidTransactionState
from hubmere.broker.publish import Publisher
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.produce.answers import shape_of
from hubmere.endpoints.kafka.produce.check import check_produced
from hubmere.endpoints.kafka.produce.record_errors import faults_of
from hubmere.endpoints.kafka.produce.runs import MAX_AHEAD_MS, ZSTD, ZSTD_SINCE, produce_run
from hubmere.endpoints.kafka.session import Handler, KafkaSession
from hubmere.model.entity import TimestampType
from hubmere.model.errors import CorruptBatch, InvalidBatch, PartitionNotFound, Refusal, ShuttingDown
from hubmere.model.receipt import Receipt
from hubmere.records.header import CODEC_MASK, CRC_AT, HEADER_BYTES, TRANSACTIONAL, read_header
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
    RecordError,
)
from hubmere.wire.kafka.primitives import Buffer
from hubmere.wire.kafka.repeats import ProduceRun

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
_ACKS: Final = (ACKS_ALL, ACKS_NONE, 1)

_COUNT_AT: Final = HEADER_BYTES - 4
# Checksum, attributes, last delta, first and newest time: what is looked at here, in one piece.
_CHECKED: Final = Struct(">Ihiqq")


class _Part:
    """What becomes of one partition's batch."""

    __slots__ = (
        "_answer",
        "_publisher",
        "append_time_ms",
        "base_offset",
        "code",
        "index",
        "log_start",
        "message",
        "record_errors",
    )

    def __init__(self, answer: "_Answer", index: int) -> None:
        self._answer = answer
        self._publisher: Publisher | None = None
        self.index = index
        self.code: int = ErrorCode.NONE
        self.message: str | None = None
        self.record_errors: tuple[RecordError, ...] = ()
        self.base_offset = self.append_time_ms = self.log_start = -1

    def publish(self, topic: str, records: Buffer | None) -> None:
        """Hand the batch to the broker; the answer waits for its commit if the client does."""
        answer = self._answer
        session, acks = answer.session, answer.acks
        try:
            self._publisher = publisher = session.reach.publisher(topic)
            if not 0 <= self.index < publisher.hub.entity.partition_count:
                raise PartitionNotFound(topic, str(self.index), publisher.hub.entity.partition_count)
            code = self._check(publisher, records)
            if code:
                self.code = code
                self._name_faults(publisher, records)
                return
            assert records is not None
            charged = publisher.publish_charged(
                _own(records),
                self.index,
                count=int.from_bytes(records[_COUNT_AT:HEADER_BYTES], "big"),
                now=session.now,
                now_ms=session.now_ms,
                callback=self._settled if acks == ACKS_ALL else None,
            )
        except Refusal as refusal:
            self._refused(refusal, records)
            return
        answer.delay_s = max(answer.delay_s, charged.delay_s)
        self.log_start = publisher.hub.log(self.index).state.log_start
        if acks == ACKS_ALL:
            session.hold(charged.receipt.size_bytes)
            answer.missing += 1
        elif acks:
            self._place(charged.receipt)

    def _check(self, publisher: Publisher, records: Buffer | None) -> int:
        """What the log does not look at: the codec, a producer's own time, the units, and open transactions."""
        if records is None or len(records) < HEADER_BYTES:
            return self._exact_code(records)
        crc, attributes, _, base_ms, max_ms = _CHECKED.unpack_from(records, CRC_AT)
        codec = attributes & CODEC_MASK
        is_odd_codec = codec >= ZSTD and (codec > ZSTD or self._answer.version < ZSTD_SINCE)
        # A batch without a checksum is one that we have made ourselves: to the log, not to us.
        if (is_odd_codec or not crc) and (code := self._exact_code(records)):
            return code
        entity = publisher.hub.entity
        newest_ms = self._answer.session.now_ms + MAX_AHEAD_MS
        if entity.timestamp_type is TimestampType.CREATE and (base_ms > newest_ms or max_ms > newest_ms):
            return self._exact_code(records) or ErrorCode.INVALID_TIMESTAMP
        throughput = publisher.hub.namespace.throughput
        if throughput is not None:
            delay_s = throughput.ingress_delay(entity.uid, self._answer.session.now)
            if delay_s * 1000 > self._answer.timeout_ms:
                return ErrorCode.POLICY_VIOLATION
        if attributes & TRANSACTIONAL:
            self._check_transaction(entity.uid, records)
        return ErrorCode.NONE

    def _check_transaction(self, hub_uid: str, records: Buffer) -> None:
        transactional_id, session = self._answer.transactional_id, self._answer.session
        if transactional_id is None:
            raise InvalidTransactionState("")
        header = read_header(records)
        session.coordinator.transactions.require_enlisted(
            transactional_id, header.producer_id, header.producer_epoch, (hub_uid, self.index)
        )

    def _exact_code(self, records: Buffer | None) -> int:
        limit = self._publisher.limit_bytes if self._publisher is not None else HEADER_BYTES
        return check_produced(records, produce_version=self._answer.version, max_batch_bytes=limit)

    def _refused(self, refusal: Refusal, records: Buffer | None) -> None:
        self.code = code_of(refusal)
        if isinstance(refusal, (InvalidBatch, CorruptBatch)):
            self.code = self._exact_code(records) or self.code
        self.message = refusal.text()
        if self._publisher is not None:
            self._name_faults(self._publisher, records)

    def _name_faults(self, publisher: Publisher, records: Buffer | None) -> None:
        """Say which records of a refused batch are at fault (KIP-467)."""
        newest_ms = self._answer.session.now_ms + MAX_AHEAD_MS
        self.record_errors, text = faults_of(self.code, records, publisher.hub, self.index, newest_ms)
        self.message = text or self.message

    def _settled(self, receipt: Receipt) -> None:
        answer = self._answer
        answer.session.release(receipt.size_bytes)
        if receipt.error is None:
            self._place(receipt)
        else:
            refusal = receipt.error if isinstance(receipt.error, Refusal) else ShuttingDown()
            self.code, self.message = code_of(refusal), refusal.text()
        answer.missing -= 1
        if not answer.missing:
            answer.send()

    def _place(self, receipt: Receipt) -> None:
        assert self._publisher is not None
        self.base_offset = receipt.sequence_number
        if self._publisher.hub.entity.timestamp_type is TimestampType.LOG_APPEND:
            self.append_time_ms = receipt.enqueued_at_ms

    def response(self) -> ProducePartitionResponse:
        """As the client is told."""
        return ProducePartitionResponse(
            index=self.index,
            error_code=self.code,
            base_offset=self.base_offset,
            log_append_time_ms=self.append_time_ms,
            log_start_offset=self.log_start,
            record_errors=self.record_errors,
            error_message=self.message,
        )


def _own(records: Buffer) -> bytearray | memoryview:
    """The batch in memory that is ours to change: what arrived in pieces was put together for this request alone."""
    return records if isinstance(records, memoryview) and not records.readonly else bytearray(records)


class _Answer:
    """One request on its way: which batches still wait for their commit."""

    __slots__ = ("acks", "delay_s", "missing", "request", "session", "timeout_ms", "topics", "transactional_id")

    def __init__(self, session: KafkaSession, request: Request) -> None:
        body: ProduceRequest = request.body
        self.session = session
        self.request = request
        self.acks = body.acks
        self.timeout_ms = body.timeout_ms
        self.transactional_id = body.transactional_id
        self.delay_s = 0.0
        self.missing = 0
        self.topics: list[tuple[str, list[_Part]]] = []

    @property
    def version(self) -> int:
        """The version of the request."""
        return self.request.version

    def publish(self, topic: str, partitions: tuple[ProducePartition, ...]) -> None:
        """Publish the batches of one topic."""
        parts = []
        for partition in partitions:
            part = _Part(self, partition.index)
            parts.append(part)
            if self.acks in _ACKS:
                # Produced records arrive as one view of what was received.
                part.publish(topic, partition.records)  # type: ignore[arg-type]
            else:
                part.code = ErrorCode.INVALID_REQUIRED_ACKS
        self.topics.append((topic, parts))

    def close(self) -> None:
        """Everything is handed over: hold the client back if it is over its units, and answer what need not wait."""
        if self.delay_s > 0:
            self.session.mute(self.delay_s)
        if self.acks == ACKS_NONE:
            topics, self.topics = self.topics, []
            failed = next((part for _, parts in topics for part in parts if part.code), None)
            if failed is not None:
                self.session.drop(f"a batch without acknowledgement is refused with code {failed.code}")
        elif not self.missing:
            self.send()

    def send(self) -> None:
        """Answer the request."""
        # Batches know their answer: letting go of them here leaves nothing for the garbage collector.
        topics, self.topics = self.topics, []
        if len(topics) == 1 and len(topics[0][1]) == 1 and not self.delay_s and not topics[0][1][0].code:
            name, (part,) = topics[0]
            numbers = (part.index, part.base_offset, part.append_time_ms, part.log_start)
            frame = shape_of(name, self.version).frame(self.request.correlation_id, *numbers)
            self.session.respond_frames(self.request, frame)
            return
        answers = tuple(
            ProduceTopicResponse(name=name, partitions=tuple([part.response() for part in parts]))
            for name, parts in topics
        )
        self.session.respond(self.request, ProduceResponse(topics=answers, throttle_time_ms=round(self.delay_s * 1000)))


def produce(session: KafkaSession, request: Request) -> None:
    """Publish what came, in the order in which it came."""
    if type(request.body) is ProduceRun:
        if not produce_run(session, request):
            session.handle_next(session.engine.split_run(request))
        return
    answer = _Answer(session, request)
    for topic in request.body.topics:
        answer.publish(topic.name, topic.partitions)
    answer.close()


HANDLERS: Final[Mapping[int, Handler]] = {PRODUCE.key: produce}
