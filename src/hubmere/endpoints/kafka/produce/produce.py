"""The Produce handler: closed record batches in, the offsets that they got out (reference: kafka 2.7 and 3.5).

A batch is copied once out of the receive buffer and handed to the broker unopened. The log validates it, numbers it and
recognises repeats of idempotent producers. acks=-1 is answered after the commit, 1 after the write, 0 never. Errors are
per partition, and the other partitions proceed. With acks=0 an error closes the connection, since there is no response.

Small requests that arrive together are one run (`wire.kafka.repeats`), which is published with one write for each
partition and answered with one write to the socket:

1. The batches of the run are collected by partition.
2. `Publisher.check_runs` asks whether all of them can be published without a refusal or a pause.
3. If so, each partition gets one publication, and the responses of all requests are sent when the last is committed.
4. If not, nothing has happened, and the requests are handled one by one, so that each gets its own error or pause.

A few small requests that are all that a connection has sent are published together with those of others (`gathered`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import chain
from struct import Struct
from typing import Final

from hubmere.broker import OverLimit, Publisher, RunPart, refusals
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.produce.check import MAX_AHEAD_MS, ZSTD_SINCE_PRODUCE, check_produced, newest_allowed_ms
from hubmere.endpoints.kafka.produce.record_errors import find_record_errors
from hubmere.endpoints.kafka.produce.responses import encode_refusal, response_template
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import Steps
from hubmere.model.entity import Hub, TimestampType
from hubmere.model.errors import CorruptBatch, InvalidBatch, Refusal, ShuttingDown
from hubmere.model.receipt import Receipt
from hubmere.records.compression import Codec
from hubmere.records.header import (
    ATTRIBUTES_FIELD,
    CODEC_MASK,
    CRC_AT,
    HEADER_BYTES,
    RECORD_COUNT_AT,
    RECORD_COUNT_FIELD,
    TRANSACTIONAL,
    read_header,
)
from hubmere.records.runs import BatchRun
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import (
    PRODUCE,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    RecordError,
)
from hubmere.wire.kafka.primitives import Buffer
from hubmere.wire.kafka.repeats import ProduceRun

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
_ACKS: Final = (ACKS_ALL, ACKS_NONE, 1)
# Requests to more partitions are handled in slices: one takes about 50 microseconds.
MAX_UNSLICED_PARTITIONS: Final = 64

_ZSTD: Final = int(Codec.ZSTD)
# Checksum, attributes, last delta, first and newest time: the fields of the header that are checked here.
_CHECKED: Final = Struct(">Ihiqq")


class _Part:
    """The publication of one partition: a batch of one request, or the batches of a run."""

    __slots__ = (
        "_pending",
        "append_time_ms",
        "base_offset",
        "code",
        "index",
        "log_start",
        "message",
        "record_errors",
    )

    def __init__(self, pending: "_Pending", index: int) -> None:
        self._pending = pending
        self.index = index
        self.code: int = ErrorCode.NONE
        self.message: str | None = None
        self.record_errors: tuple[RecordError, ...] = ()
        self.base_offset = self.append_time_ms = self.log_start = -1

    def publish(
        self, publisher: Publisher, batch: bytearray | memoryview | BatchRun, count: int, size_bytes: int, requests: int
    ) -> None:
        """Hand the publication to the broker; the response waits for the commit if the client does."""
        pending = self._pending
        session, acks = pending.session, pending.acks
        receipt = publisher.publish(
            batch,
            count=count,
            size_bytes=size_bytes,
            partition=self.index,
            now=session.now,
            now_ms=session.now_ms,
            callback=self._on_committed if acks == ACKS_ALL else None,
            requests=requests,
            over_limit=OverLimit.DELAY,
            max_delay_s=pending.max_delay_s,
        )
        if publisher.delay_s > pending.delay_s:
            pending.delay_s = publisher.delay_s
        pending.is_append_time = publisher.entity.timestamp_type is TimestampType.LOG_APPEND
        self.log_start = publisher.log_start(self.index)
        if acks == ACKS_ALL:
            session.pressure.hold(receipt.size_bytes)
            pending.missing += 1
        elif acks and receipt.sequence_number < 0:
            # The log is still being opened: the events are not written yet.
            receipt.when_done(self._on_committed)
            session.pressure.hold(receipt.size_bytes)
            pending.missing += 1
        elif acks:
            self._set_offsets(receipt)

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error."""
        self.code, self.message = code_of(refusal), refusal.text()

    def response(self) -> ProducePartitionResponse:
        """The part of the response for this partition."""
        return ProducePartitionResponse(
            index=self.index,
            error_code=self.code,
            base_offset=self.base_offset,
            log_append_time_ms=self.append_time_ms,
            log_start_offset=self.log_start,
            record_errors=self.record_errors,
            error_message=self.message,
        )

    def _on_committed(self, receipt: Receipt) -> None:
        pending = self._pending
        pending.session.pressure.release(receipt.size_bytes)
        if receipt.error is None:
            self._set_offsets(receipt)
        else:
            self.refuse(receipt.error if isinstance(receipt.error, Refusal) else ShuttingDown())
        pending.missing -= 1
        if not pending.missing:
            pending.send()

    def _set_offsets(self, receipt: Receipt) -> None:
        self.base_offset = receipt.sequence_number
        if self._pending.is_append_time:
            self.append_time_ms = receipt.enqueued_at_ms


class _Pending(ABC):
    """Responses that wait for commits: the common part of a single request and of a run."""

    __slots__ = ("acks", "delay_s", "is_append_time", "max_delay_s", "missing", "request", "session")

    def __init__(self, session: KafkaSession, request: Request) -> None:
        body: ProduceRequest | ProduceRun = request.body
        self.session = session
        self.request = request
        self.acks = body.acks
        self.max_delay_s = body.timeout_ms / 1000
        self.delay_s = 0.0
        self.is_append_time = False
        # Publications that are not committed yet.
        self.missing = 0

    @abstractmethod
    def send(self) -> None:
        """Send the response."""


# --- one request -----------------------------------------------------------------------------------------------------


class _PendingRequest(_Pending):
    """One request: any number of topics and partitions with one batch each."""

    __slots__ = ("_topics",)

    def __init__(self, session: KafkaSession, request: Request) -> None:
        super().__init__(session, request)
        self._topics: list[tuple[str, list[_Part]]] = []

    def publish(self, topics: Iterable[ProduceTopic]) -> Steps:
        """Publish the batches of all topics, one in each step."""
        # Until all are handed over: the first may be committed before the last one is published.
        self.missing += 1
        for topic in topics:
            parts: list[_Part] = []
            self._topics.append((topic.name, parts))
            for partition in topic.partitions:
                part = _Part(self, partition.index)
                parts.append(part)
                if self.acks in _ACKS:
                    # Produced records arrive as one view of what was received.
                    self._publish_batch(topic.name, part, partition.records)  # type: ignore[arg-type]
                else:
                    part.code = ErrorCode.INVALID_REQUIRED_ACKS
                yield
        self.missing -= 1
        self._finish()

    def _publish_batch(self, topic: str, part: _Part, records: Buffer | None) -> None:
        publisher: Publisher | None = None
        try:
            publisher = self.session.caller.publisher(topic, self.session.now_s)
            publisher.require_partition(part.index)
            part.code = self._check(publisher, part, records)
            if not part.code:
                assert records is not None
                count = int.from_bytes(records[RECORD_COUNT_AT:HEADER_BYTES], "big")
                part.publish(publisher, _own(records), count, len(records), 1)
                return
        except Refusal as refusal:
            part.refuse(refusal)
            self.session.log_refusal("a Kafka produce request", refusal, topic)
            if publisher is not None and isinstance(refusal, (InvalidBatch, CorruptBatch)):
                part.code = self._exact_code(publisher, records) or part.code
        if publisher is not None:
            self._name_records(part, publisher.entity, records)

    def _check(self, publisher: Publisher, part: _Part, records: Buffer | None) -> int:
        """Check what the log does not: the codec, a producer's own time, and open transactions."""
        if records is None or len(records) < HEADER_BYTES:
            return self._exact_code(publisher, records)
        crc, attributes, _, base_ms, max_ms = _CHECKED.unpack_from(records, CRC_AT)
        codec = attributes & CODEC_MASK
        is_odd_codec = codec >= _ZSTD and (codec > _ZSTD or self.request.version < ZSTD_SINCE_PRODUCE)
        # The log takes a batch without a checksum as one that was made inside the node; a client's is refused.
        if (is_odd_codec or not crc) and (code := self._exact_code(publisher, records)):
            return code
        newest_ms = newest_allowed_ms(publisher.entity, self.session.now_ms)
        if base_ms > newest_ms or max_ms > newest_ms:
            return self._exact_code(publisher, records) or ErrorCode.INVALID_TIMESTAMP
        if attributes & TRANSACTIONAL:
            self._check_transaction(publisher.entity.uid, part.index, records)
        return ErrorCode.NONE

    def _check_transaction(self, hub_uid: str, index: int, records: Buffer) -> None:
        body: ProduceRequest = self.request.body
        if body.transactional_id is None:
            raise refusals.InvalidTransactionState("")
        header = read_header(records)
        coordination = self.session.context.coordination
        if coordination is not None:
            namespace = self.session.caller.namespace_key
            name = coordination.transaction_of(namespace, body.transactional_id)
            coordination.note_transaction(header.producer_id, name, self.request.version)
            return
        self.session.coordinator.transactions.require_enlisted(
            body.transactional_id, header.producer_id, header.producer_epoch, (hub_uid, index)
        )

    def _exact_code(self, publisher: Publisher, records: Buffer | None) -> int:
        """The exact error code of a batch; slower than the checks before it, so only for batches that fail them."""
        return check_produced(records, produce_version=self.request.version, max_batch_bytes=publisher.limit_bytes)

    def _name_records(self, part: _Part, hub: Hub, records: Buffer | None) -> None:
        """Name the records for which a batch was refused (KIP-467)."""
        newest_ms = self.session.now_ms + MAX_AHEAD_MS
        part.record_errors, text = find_record_errors(part.code, records, hub, part.index, newest_ms)
        part.message = text or part.message

    def _finish(self) -> None:
        """Every batch was handed over: throttle a client over its units, and answer if no commit is missing."""
        if self.delay_s > 0:
            self.session.throttle(self.delay_s)
        if self.acks == ACKS_NONE:
            topics, self._topics = self._topics, []
            failed = next((part for part in chain(*(parts for _, parts in topics)) if part.code), None)
            if failed is not None:
                self.session.disconnect(f"a batch without acknowledgement is refused with code {failed.code}")
        elif not self.missing:
            self.send()

    def send(self) -> None:
        """Send the response."""
        # Parts refer to this object. Dropping them here leaves no cycle to the garbage collector.
        topics, self._topics = self._topics, []
        request = self.request
        if len(topics) == 1 and len(topics[0][1]) == 1 and not self.delay_s and not topics[0][1][0].code:
            topic, (part,) = topics[0]
            encode = response_template(topic, request.version).encode
            frame = encode(request.correlation_id, part.index, part.base_offset, part.append_time_ms, part.log_start)
            self.session.respond_frames(request, frame)
            return
        answers = tuple(
            ProduceTopicResponse(name=name, partitions=tuple([part.response() for part in parts]))
            for name, parts in topics
        )
        self.session.respond(request, ProduceResponse(topics=answers, throttle_time_ms=round(self.delay_s * 1000)))


def _own(records: Buffer) -> bytearray | memoryview:
    """The batch in memory that can be changed: what arrived in pieces was joined for this request alone."""
    return records if isinstance(records, memoryview) and not records.readonly else bytearray(records)


# --- a run of requests -----------------------------------------------------------------------------------------------


class _PartitionRequests:
    """The requests of a run that are for one partition: their batches, and their positions in the run."""

    __slots__ = ("data", "positions", "sizes")

    def __init__(self) -> None:
        self.data = bytearray()
        self.sizes: list[int] = []
        self.positions: list[int] = []


class _PendingRun(_Pending):
    """Several requests that are answered together, when every partition has committed its batches."""

    __slots__ = ("_parts",)

    def __init__(self, session: KafkaSession, request: Request) -> None:
        super().__init__(session, request)
        self._parts: list[tuple[_Part, BatchRun, list[int]]] = []

    def publish(self, publisher: Publisher, index: int, run: BatchRun, positions: list[int]) -> None:
        """Publish the batches of one partition."""
        part = _Part(self, index)
        self._parts.append((part, run, positions))
        try:
            part.publish(publisher, run, run.events, len(run.data), len(run.sizes))
        except Refusal as refusal:
            part.refuse(refusal)

    def finish(self) -> None:
        """Every batch was handed over: answer if all of them were refused."""
        if not self.missing:
            self.send()

    def send(self) -> None:
        """Send the responses of all requests, in their order."""
        parts, self._parts = self._parts, []
        run: ProduceRun = self.request.body
        frames = [b""] * len(run)
        for part, batches, positions in parts:
            if part.code:
                response = part.response()
                for position in positions:
                    correlation_id = run.correlation_ids[position]
                    frames[position] = encode_refusal(run.version, correlation_id, run.topic, response)
            else:
                _encode_offsets(frames, run, part, batches, positions)
        self.session.respond_frames(self.request, b"".join(frames))


def _encode_offsets(frames: list[bytes], run: ProduceRun, part: _Part, batches: BatchRun, positions: list[int]) -> None:
    """The batches of a partition are in the log one behind the other."""
    ids, index, append_time_ms, log_start = run.correlation_ids, part.index, part.append_time_ms, part.log_start
    encode = response_template(run.topic, run.version).encode
    base_offset = part.base_offset
    for position, header in zip(positions, batches.headers, strict=True):
        frames[position] = encode(ids[position], index, base_offset, append_time_ms, log_start)
        base_offset += header[RECORD_COUNT_FIELD]


def publish_run(session: KafkaSession, request: Request) -> bool:
    """Publish a run; False, and nothing has happened, if its requests have to be handled one by one."""
    body: ProduceRun = request.body
    collected = _by_partition(body)
    try:
        publisher = session.caller.publisher(body.topic, session.now_s)
        newest_ms = newest_allowed_ms(publisher.entity, session.now_ms)
        parts = [RunPart(index, requests.data, requests.sizes) for index, requests in collected.items()]
        runs = publisher.check_runs(parts, newest_ms, session.now)
    except Refusal:
        return False
    if runs is None or (body.version < ZSTD_SINCE_PRODUCE and _has_zstd(runs)):
        return False
    pending = _PendingRun(session, request)
    for (index, requests), run in zip(collected.items(), runs, strict=True):
        pending.publish(publisher, index, run, requests.positions)
    pending.finish()
    return True


def _by_partition(run: ProduceRun) -> dict[int, _PartitionRequests]:
    collected: dict[int, _PartitionRequests] = {}
    for position, (index, batch) in enumerate(zip(run.indexes, run.batches, strict=True)):
        requests = collected.get(index)
        if requests is None:
            requests = collected[index] = _PartitionRequests()
        requests.data += batch
        requests.sizes.append(len(batch))
        requests.positions.append(position)
    return collected


def _has_zstd(runs: list[BatchRun]) -> bool:
    return any(header[ATTRIBUTES_FIELD] & CODEC_MASK == _ZSTD for run in runs for header in run.headers)


# --- the handler -----------------------------------------------------------------------------------------------------


def produce(session: KafkaSession, request: Request) -> None:
    """Publish what arrived, in the order in which it arrived."""
    if type(request.body) is ProduceRun:
        if not publish_run(session, request):
            session.handle_next(session.engine.split_run(request))
        return
    body: ProduceRequest = request.body
    steps = _PendingRequest(session, request).publish(body.topics)
    # A client that does not wait may close its connection at once, and the rest of a long request with it.
    if body.acks != ACKS_NONE and sum([len(topic.partitions) for topic in body.topics]) > MAX_UNSLICED_PARTITIONS:
        session.run_in_slices(steps)
    else:
        for _ in steps:
            pass


HANDLERS: Final[Mapping[int, Handler]] = {PRODUCE.key: produce}
