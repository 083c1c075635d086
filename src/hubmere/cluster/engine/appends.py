"""Appends to one partition: waiting batches, requests in flight, and retries after failures.

1. Batches are sent in the order of their appends, over one connection. While requests are under way, batches of the
   gateway's own gather; the next request takes as many of them as fit into one batch, each with its own receipt.
2. The gateway's own batches carry a producer id and the next number. If a request fails, nothing of its own is sent
   until everything under way has come back; then all that failed is sent again, in order, under the same numbers, and
   nothing new before that is answered. Kafka drops what it already has, so a retry never duplicates an event.
3. If Kafka misses a number although nothing before it is open, the batches that follow were not appended: they get
   a new producer id and new numbers.
4. Batches of Kafka clients are sent unchanged and are never retried here: their client may do that.
5. Receipts complete in the order of the appends.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hubmere.cluster.engine.joining import MAX_JOINED_BYTES, can_join, join_batches
from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import TopicDamaged, UpstreamFailure
from hubmere.model.errors import (
    ClusterBusy,
    HubDamaged,
    InvalidBatch,
    ProducerFenced,
    Refusal,
    SequenceGap,
    ShuttingDown,
    TransactionRefused,
)
from hubmere.model.receipt import Receipt
from hubmere.records.header import PRODUCER_SEQUENCE_MASK, BatchHeader, read_header, seal, write_header
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

log = logging.getLogger("hubmere.cluster")

# Kafka remembers the last five batches of a producer: more must not be under way (KIP-98).
MAX_OWN_IN_FLIGHT: Final = 5
_MAX_IN_FLIGHT: Final = 64
# How long a broker waits for its followers, and how long a gateway waits for the broker.
_PRODUCE_MS: Final = 10_000
_ANSWER_SECONDS: Final = 15.0
# After this time a publication that was certainly not appended is refused; one whose outcome is unknown, later.
_REFUSED_SECONDS: Final = 8.0
_UNKNOWN_SECONDS: Final = 25.0
_PAUSE_S: Final = 0.1

_ACKS_ALL: Final = -1
_DUPLICATE: Final = 46
_LOST_NUMBERS: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
# The leader may have appended the batch although it answers with this error.
_UNKNOWN_FATE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
# The batch itself is at fault: sending it again does not help.
_BAD_BATCH: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.POLICY_VIOLATION,
    }
)

Connect = Callable[[], Awaitable[BrokerConnection]]
TakeProducer = Callable[[], Awaitable[tuple[int, int]]]


@dataclass(slots=True, eq=False)
class _Append:
    """One request's batch with the receipts that wait for it."""

    batch: bytearray | memoryview
    receipts: list[Receipt]
    is_own: bool
    since: float
    place: int
    size_bytes: int
    transactional_id: str | None = None
    number: int = -1
    is_retry: bool = False
    is_sealed: bool = False
    is_done: bool = False
    outcome: Any = None
    why: str = ""


@dataclass(slots=True)
class _Numbers:
    """The producer of a partition's own batches, and its next number."""

    producer: tuple[int, int] | None = None
    next: int = 0


@dataclass(slots=True, kw_only=True)
class Appended:
    """Where a batch was appended."""

    base_sequence: int
    end_sequence: int
    time_ms: int
    latency_s: float


class PartitionAppends:
    """The write side of one partition. Thread rule: the loop's thread only."""

    def __init__(
        self,
        partition: int,
        *,
        connect: Connect,
        take_producer: TakeProducer,
        on_appended: Callable[[Appended], None],
        count_bytes: Callable[[int], None],
    ) -> None:
        self._partition = partition
        self._connect = connect
        self._take_producer = take_producer
        self._on_appended = on_appended
        self._count_bytes = count_bytes
        self.topic = ""
        self._added = 0
        self._order: deque[_Append] = deque()
        self._waiting: deque[_Append] = deque()
        self._in_flight: list[_Append] = []
        self._failed: list[_Append] = []
        self._numbers = _Numbers()
        self._has_lost_numbers = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: BrokerConnection | None = None
        self._is_closed = False
        # The end of the own batches that were acknowledged: later ones are behind it, or the topic is another one.
        self._own_end = 0
        self.failure = ""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not self._order

    def add(
        self, batch: bytearray | memoryview, receipt: Receipt, *, is_own: bool, transactional_id: str | None
    ) -> None:
        """Queue a batch; its receipt completes in a later turn."""
        loop = asyncio.get_running_loop()
        self._added += 1
        append = _Append(batch, [receipt], is_own, loop.time(), self._added, len(batch), transactional_id)
        self._count_bytes(len(batch))
        self._order.append(append)
        self._waiting.append(append)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._drive())

    def close(self) -> None:
        """Refuse everything that is not acknowledged."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        for append in list(self._order):
            if not append.is_done:
                self._settle(append, ShuttingDown())
        self._complete()

    def refuse_waiting(self, why: Refusal) -> None:
        """Refuse everything that is not under way: the partition does not exist any more."""
        for append in (*self._waiting, *self._failed):
            self._settle(append, why)
        self._waiting.clear()
        self._failed.clear()
        self._complete()

    # --- sending

    async def _drive(self) -> None:
        while self._order and not self._is_closed:
            self._wake.clear()
            self._requeue_failed()
            self._give_up_old()
            try:
                if self._waiting and not self._failed:
                    await self._renumber()
                    self._connection = await self._connect()
                    self.failure = ""
                    self._send_waiting(self._connection)
            except TopicDamaged as damaged:
                self.refuse_waiting(HubDamaged(str(damaged)))
            except UpstreamFailure as failure:
                self.failure = str(failure)
                await asyncio.sleep(_PAUSE_S)
                continue
            await self._await_answers()

    async def _await_answers(self) -> None:
        if not self._order or self._wake.is_set():
            return
        try:
            async with asyncio.timeout(_ANSWER_SECONDS if self._in_flight else _PAUSE_S):
                await self._wake.wait()
        except TimeoutError:
            if self._in_flight and self._connection is not None:
                self._connection.close(f"no answer to a Produce request within {_ANSWER_SECONDS:g} s")

    async def _renumber(self) -> None:
        """Take a producer id for the first own batch, or a new one after numbers were lost."""
        needs_producer = self._numbers.producer is None and any(append.is_own for append in self._waiting)
        if not needs_producer and not (self._has_lost_numbers and not self._in_flight):
            return
        producer = await self._take_producer()
        self._numbers = _Numbers(producer=producer)
        self._has_lost_numbers = False
        for append in self._waiting:
            append.number = -1
            append.is_retry = False

    def _send_waiting(self, connection: BrokerConnection) -> None:
        while self._waiting and len(self._in_flight) < _MAX_IN_FLIGHT and not self._has_lost_numbers:
            append = self._waiting[0]
            own = sum(each.is_own for each in self._in_flight)
            if append.is_own and (own >= MAX_OWN_IN_FLIGHT or self._numbers.producer is None):
                return
            # Kafka knows the last five batches: nothing new is sent before all that failed has been answered.
            if append.is_own and append.number < 0 and any(each.is_retry for each in self._in_flight):
                return
            self._waiting.popleft()
            if append.is_own and append.number < 0:
                self._join(append)
                self._stamp(append)
            elif not append.is_sealed and not append.is_own:
                if read_header(append.batch).crc == 0:
                    seal(append.batch)
                append.is_sealed = True
            self._in_flight.append(append)
            topic = ProduceTopic(
                name=self.topic, partitions=(ProducePartition(index=self._partition, records=append.batch),)
            )
            request = ProduceRequest(
                transactional_id=append.transactional_id, acks=_ACKS_ALL, timeout_ms=_PRODUCE_MS, topics=(topic,)
            )
            connection.send(request).add_done_callback(partial(self._on_answer, append))

    def _join(self, append: _Append) -> None:
        """Take the own batches that wait behind this one into it, as far as they fit."""
        if not self._waiting or not can_join(append.batch):
            return
        joined, size = [append], len(append.batch)
        while self._waiting and self._waiting[0].is_own and self._waiting[0].number < 0:
            behind = self._waiting[0]
            size += len(behind.batch)
            if size > MAX_JOINED_BYTES or not can_join(behind.batch):
                break
            joined.append(self._waiting.popleft())
        if len(joined) == 1:
            return
        append.batch = join_batches([each.batch for each in joined])
        append.receipts = [receipt for each in joined for receipt in each.receipts]
        append.size_bytes = sum(each.size_bytes for each in joined)
        gone = set(map(id, joined[1:]))
        self._order = deque(each for each in self._order if id(each) not in gone)

    def _stamp(self, append: _Append) -> None:
        """Give an own batch its producer and number, and its checksum."""
        assert self._numbers.producer is not None
        header: BatchHeader = read_header(append.batch)
        producer_id, epoch = self._numbers.producer
        append.number = self._numbers.next
        self._numbers.next = (append.number + header.record_count) & PRODUCER_SEQUENCE_MASK
        write_header(
            append.batch,
            header._replace(producer_id=producer_id, producer_epoch=epoch, producer_sequence=append.number),
        )
        seal(append.batch)

    # --- answers

    def _on_answer(self, append: _Append, done: "asyncio.Future[Any]") -> None:
        if append.is_done or self._is_closed:
            if not done.cancelled():
                done.exception()
            return
        self._in_flight.remove(append)
        self._wake.set()
        failure = done.exception()
        if failure is not None:
            self._on_failure(append, None, str(failure))
            return
        (topic,) = done.result().topics
        (answer,) = topic.partitions
        if answer.error_code in (ErrorCode.NONE, _DUPLICATE):
            append.outcome = answer
            self._settle(append, None)
            self._complete()
        else:
            self._on_failure(append, answer.error_code, answer.error_message or "")

    def _on_failure(self, append: _Append, code: int | None, why: str) -> None:
        append.why = why or next((known.name for known in ErrorCode if known == code), str(code))
        if code in _BAD_BATCH or not append.is_own:
            if append.is_own:
                # Its numbers are never used: those behind it must get new ones.
                self._has_lost_numbers = True
            self._settle(append, _refusal_of(append, code))
            self._complete()
            return
        append.outcome = None if code in _UNKNOWN_FATE else code
        if code in _LOST_NUMBERS and not any(
            self._is_before(each, append) for each in (*self._failed, *self._in_flight)
        ):
            self._has_lost_numbers = True
        self._failed.append(append)

    def _is_before(self, one: _Append, other: _Append) -> bool:
        return one.is_own and one.number >= 0 and one.place < other.place

    def _requeue_failed(self) -> None:
        if self._failed and not any(append.is_own for append in self._in_flight):
            self._failed.sort(key=lambda append: append.place)
            for append in self._failed:
                append.is_retry = True
            self._waiting.extendleft(reversed(self._failed))
            self._failed.clear()

    def _give_up_old(self) -> None:
        now = asyncio.get_running_loop().time()
        for append in list(self._waiting):
            limit_s = _UNKNOWN_SECONDS if append.number >= 0 and append.outcome is None else _REFUSED_SECONDS
            if now - append.since > limit_s:
                self._waiting.remove(append)
                self._settle(append, ClusterBusy(append.why or self.failure or "the Kafka cluster does not answer"))
        self._complete()

    def _settle(self, append: _Append, error: Refusal | None) -> None:
        append.is_done = True
        append.why = ""
        self._count_bytes(-append.size_bytes)
        append.outcome = error if error is not None else append.outcome

    def _complete(self) -> None:
        """Complete receipts, in order, as far as batches are settled."""
        while self._order and self._order[0].is_done:
            append = self._order.popleft()
            if isinstance(append.outcome, Refusal):
                _complete_all(append.receipts, append.outcome)
            else:
                self._acknowledge(append)

    def _acknowledge(self, append: _Append) -> None:
        answer, sequence = append.outcome, append.outcome.base_offset
        header = read_header(append.batch)
        time_ms = answer.log_append_time_ms if answer.log_append_time_ms >= 0 else header.max_time_ms
        if append.is_own and 0 <= sequence < self._own_end:
            self._refuse_restarted(append, sequence)
            return
        if sequence >= 0:
            end = sequence + header.record_count
            self._own_end = max(self._own_end, end if append.is_own else 0)
            latency_s = asyncio.get_running_loop().time() - append.since
            self._on_appended(Appended(base_sequence=sequence, end_sequence=end, time_ms=time_ms, latency_s=latency_s))
        for receipt in append.receipts:
            receipt.sequence_number = receipt.offset = sequence
            receipt.enqueued_at_ms = time_ms
            receipt.is_duplicate = answer.error_code == _DUPLICATE
            sequence += receipt.count if sequence >= 0 else 0
        _complete_all(append.receipts, None)

    def _refuse_restarted(self, append: _Append, sequence: int) -> None:
        why = f"the topic {self.topic} was deleted by hand: its partition {self._partition} begins again at {sequence}"
        _complete_all(append.receipts, HubDamaged(why))


def _complete_all(receipts: list[Receipt], error: Refusal | None) -> None:
    """Complete receipts; the fault of one connection must not reach the others."""
    for receipt in receipts:
        try:
            receipt.complete(error)
        except Exception:
            log.exception("a callback of a publication failed")


def _refusal_of(append: _Append, code: int | None) -> Refusal:
    header = read_header(append.batch)
    if code in _BAD_BATCH:
        return InvalidBatch(append.why)
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return SequenceGap(header.producer_id, header.producer_sequence, -1)
    if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
        return ProducerFenced(header.producer_id, header.producer_epoch, header.producer_epoch + 1)
    if code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        return TransactionRefused(append.why)
    return ClusterBusy(append.why)
