"""Runs of Produce requests: many small batches of one client, published together and answered together.

What can be done once for a read is done once: the right to the topic, the units, and for each partition one write and
one receipt. Whatever is not quite ordinary about a batch, or would hold its producer back, makes the whole run fall
back to single requests before anything has happened; so each refusal and each pause is exactly that of its request.
"""

from typing import Final

from hubmere.broker.publish import Publisher
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.produce.answers import refused_frame, shape_of
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.model.entity import TimestampType
from hubmere.model.errors import Refusal, ShuttingDown
from hubmere.model.receipt import Receipt
from hubmere.records.header import CODEC_MASK
from hubmere.records.runs import BatchRun
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.messages.produce import ProducePartitionResponse
from hubmere.wire.kafka.repeats import ProduceRun

# How far ahead of our clock a producer's own time may be (reference: kafka 1.3); one that is further would pin its
# segment beyond retention.
MAX_AHEAD_MS: Final = 3_600_000
_ANY_TIME_MS: Final = 2**63
_ATTRIBUTES_FIELD: Final = 5
_COUNT_FIELD: Final = 12
# zstd came with Produce version 7 (KIP-110).
ZSTD: Final = 4
ZSTD_SINCE: Final = 7


class _PartitionRun:
    """The batches of a run that go to one partition, and which requests of the run they are."""

    __slots__ = ("answer", "batches", "data", "index", "log_start", "places", "sizes")

    def __init__(self, index: int) -> None:
        self.index = index
        self.data = bytearray()
        self.sizes: list[int] = []
        self.places: list[int] = []
        self.batches: BatchRun | None = None
        self.log_start = -1
        self.answer: _RunAnswer | None = None

    def settled(self, receipt: Receipt) -> None:
        """The lot is on disk, or is not and never will be."""
        answer, self.answer = self.answer, None
        assert answer is not None
        answer.session.release(receipt.size_bytes)
        if receipt.error is None:
            answer.taken(self, receipt)
        else:
            answer.refused(self, receipt.error if isinstance(receipt.error, Refusal) else ShuttingDown())
        answer.send_if_complete()


class _RunAnswer:
    """The answers of a run: complete when every partition has committed its lot."""

    __slots__ = ("_frames", "_is_append_time", "_missing", "_request", "_run", "session")

    def __init__(self, session: KafkaSession, request: Request, publisher: Publisher) -> None:
        self.session = session
        self._request = request
        self._run: ProduceRun = request.body
        self._frames: list[bytes] = [b""] * len(self._run)
        self._missing = len(self._run)
        self._is_append_time = publisher.hub.entity.timestamp_type is TimestampType.LOG_APPEND

    def publish(self, publisher: Publisher, lot: _PartitionRun) -> None:
        """Hand one partition its batches."""
        session = self.session
        assert lot.batches is not None
        try:
            receipt = publisher.publish_run(
                lot.batches, lot.index, now=session.now, now_ms=session.now_ms, callback=lot.settled
            )
        except Refusal as refusal:
            self.refused(lot, refusal)
            return
        lot.answer = self
        lot.log_start = publisher.hub.log(lot.index).state.log_start
        session.hold(receipt.size_bytes)

    def taken(self, lot: _PartitionRun, receipt: Receipt) -> None:
        """The batches of a lot stand in the log, one behind the other."""
        assert lot.batches is not None
        ids, frames, index, log_start = self._run.correlation_ids, self._frames, lot.index, lot.log_start
        frame = shape_of(self._run.topic, self._run.version).frame
        base_offset = receipt.sequence_number
        append_time_ms = receipt.enqueued_at_ms if self._is_append_time else -1
        for place, fields in zip(lot.places, lot.batches.headers, strict=True):
            frames[place] = frame(ids[place], index, base_offset, append_time_ms, log_start)
            base_offset += fields[_COUNT_FIELD]
        self._missing -= len(lot.places)

    def refused(self, lot: _PartitionRun, refusal: Refusal) -> None:
        """None of the batches of a lot stands in the log."""
        part = ProducePartitionResponse(
            index=lot.index, error_code=code_of(refusal), base_offset=-1, error_message=refusal.text()
        )
        run = self._run
        for place in lot.places:
            self._frames[place] = refused_frame(run.version, run.correlation_ids[place], run.topic, part)
        self._missing -= len(lot.places)

    def send_if_complete(self) -> None:
        """Answer all requests of the run, once."""
        if not self._missing:
            self.session.respond_frames(self._request, b"".join(self._frames))


def produce_run(session: KafkaSession, request: Request) -> bool:
    """Publish a run; False, and nothing has happened, when its requests have to be handled one by one."""
    run: ProduceRun = request.body
    try:
        publisher = session.reach.publisher(run.topic)
        lots = _lots(run)
        if not _are_ordinary(session, publisher, lots) or (run.version < ZSTD_SINCE and _has_zstd(lots)):
            return False
    except Refusal:
        return False
    answer = _RunAnswer(session, request, publisher)
    for lot in lots:
        answer.publish(publisher, lot)
    answer.send_if_complete()
    return True


def _lots(run: ProduceRun) -> list[_PartitionRun]:
    view = memoryview(run.data)
    lots: dict[int, _PartitionRun] = {}
    for place, index in enumerate(run.indexes):
        lot = lots.get(index)
        if lot is None:
            lot = lots[index] = _PartitionRun(index)
        start, end = run.starts[place], run.ends[place]
        lot.data += view[start:end]
        lot.sizes.append(end - start)
        lot.places.append(place)
    return list(lots.values())


def _are_ordinary(session: KafkaSession, publisher: Publisher, lots: list[_PartitionRun]) -> bool:
    """Whether every batch is one that can only be taken."""
    entity = publisher.hub.entity
    is_append_time = entity.timestamp_type is TimestampType.LOG_APPEND
    newest_ms = _ANY_TIME_MS if is_append_time else session.now_ms + MAX_AHEAD_MS
    events = size_bytes = 0
    for lot in lots:
        if not 0 <= lot.index < entity.partition_count:
            return False
        batches = lot.batches = publisher.check_run(lot.data, lot.sizes, lot.index, newest_ms)
        if batches is None:
            return False
        events += batches.events
        size_bytes += len(batches.data)
    return publisher.has_room(size_bytes, events, session.now)


def _has_zstd(lots: list[_PartitionRun]) -> bool:
    headers = (fields for lot in lots if lot.batches is not None for fields in lot.batches.headers)
    return any(fields[_ATTRIBUTES_FIELD] & CODEC_MASK == ZSTD for fields in headers)
