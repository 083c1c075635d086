"""Appends to one partition: waiting batches, requests in flight, and retries after failures.

1. Batches without a producer are the gateway's own: those that it built itself, and those that Kafka clients sent
   without a producer id. They are sent over one connection, in the order of their appends. While a request is in
   flight, further batches wait; the next request joins as many of them as fit into one batch, each with its own
   receipt. A broker serves one request of a connection at a time, so a second request is sent before the answer to the
   first only if it is large. Many senders publish their next event when the last one is acknowledged: so after the
   answer to a small request, the next request waits a moment for them. Usually the callback of an answer sends the
   next request; the task of the partition sends the first one, and all requests after a failure.
2. The gateway's own batches carry a producer id and the next sequence number. If a request fails, the gateway waits
   for the answers to all that are in flight. Then it sends all that failed again, in order and with the same numbers,
   and nothing new before they are answered. Kafka drops what it already has, so a retry never duplicates an event.
3. If Kafka reports a missing number although all earlier requests are answered, the batches that follow were not
   appended: they get a new producer id and new numbers.
4. Batches with a producer id are sent unchanged and are never retried here: their client may do that. All batches of
   one producer use one connection, so that they keep their order; different producers may use different ones.
5. Receipts complete in the order of the appends.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from hubmere.cluster.engine.joining import MAX_JOINED_BYTES, can_join
from hubmere.cluster.engine.pending import AppendPosition, PendingAppend, ProducerNumbers
from hubmere.cluster.engine.refusals import BAD_BATCH, LOST_NUMBERS, UNKNOWN_FATE, busy, refusal_of
from hubmere.cluster.upstream.connection import BrokerConnection
from hubmere.cluster.upstream.failures import TopicDamaged, UpstreamFailure
from hubmere.cluster.upstream.upstream import MOVED
from hubmere.model.errors import ClusterOutcomeUnknown, HubDamaged, Refusal, ShuttingDown
from hubmere.model.receipt import Receipt
from hubmere.records.header import PRODUCER_SEQUENCE_MASK, UNSEALED, BatchHeader, seal, write_header
from hubmere.records.join import join_batches
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import (
    PRODUCE,
    TRANSACTIONS_SINCE,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)

log = logging.getLogger("hubmere.cluster")

# Kafka remembers the last five batches of a producer: more must not be in flight (KIP-98).
MAX_OWN_IN_FLIGHT: Final = 5
_MAX_IN_FLIGHT: Final = 64
# When this many bytes wait, the next request with own batches is sent before the last one is answered.
_FULL_BYTES: Final = 256 * 1024
# After the answer to a request smaller than this, the next request waits for new events of the senders that were just
# acknowledged: for a part of the time that the answer took, and not longer than this. So 16 senders that wait for each
# answer share almost every request: brokers need nearly as much for one event as for all of them.
_SMALL_BYTES: Final = 64 * 1024
_HOLD_PART: Final = 0.5
_LONGEST_HOLD_S: Final = 0.003
# How long a broker waits for its followers, and how long a gateway waits for the broker.
_PRODUCE_MS: Final = 10_000
ANSWER_SECONDS: Final = 15.0
# After this time a publication that was certainly not appended is refused; one whose outcome is unknown, later.
_REFUSED_SECONDS: Final = 8.0
_UNKNOWN_SECONDS: Final = 25.0
_PAUSE_S: Final = 0.1
# How often it is checked whether something waits for too long, while nothing else happens.
_CHECK_SECONDS: Final = 1.0

_ACKS_ALL: Final = -1
_DUPLICATE: Final = 46
# Opens the connection of a lane; lane 0 is that of the gateway's own batches.
Connect = Callable[[int], Awaitable[BrokerConnection]]
LANES: Final = 4
TakeProducer = Callable[[], Awaitable[tuple[int, int]]]


class PartitionAppends:
    """The write side of one partition. Thread rule: the loop's thread only."""

    def __init__(
        self,
        partition: int,
        *,
        connect: Connect,
        take_producer: TakeProducer,
        on_appended: Callable[[AppendPosition], None],
        count_bytes: Callable[[int], None],
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._partition = partition
        self._answer_seconds = answer_seconds
        self._connect = connect
        self._take_producer = take_producer
        self._on_appended = on_appended
        self._count_bytes = count_bytes
        self.topic = ""
        self._added = 0
        self._order: deque[PendingAppend] = deque()
        self._waiting: deque[PendingAppend] = deque()
        self._in_flight: list[PendingAppend] = []
        self._own_in_flight = 0
        # Bytes that were added since the last own batch was sent.
        self._gathered_bytes = 0
        self._lanes: dict[int, BrokerConnection] = {}
        self._is_sending_soon = False
        # Number of publications that the next request waits for, and the timer that ends the wait.
        self._expected = 0
        self._hold_timer: asyncio.TimerHandle | None = None
        self._failed: list[PendingAppend] = []
        self._numbers = ProducerNumbers()
        self._has_lost_numbers = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        # End of the own batches that were acknowledged. A later batch before it shows that the topic was replaced.
        self._own_end = 0
        self.failure = ""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not self._order

    def add(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        receipt: Receipt,
        *,
        is_own: bool,
        transaction: tuple[str, int] | None = None,
        publications: int = 1,
    ) -> None:
        """Queue a batch; its receipt completes in a later turn.

        `transaction` has the transactional id of a batch and the version of its client's request: from version 12 on,
        a leader adds the partition to the transaction (KIP-890).
        """
        loop = asyncio.get_running_loop()
        self._added += 1
        size_bytes = len(batch)
        lane = 0 if is_own else max(header.producer_id, 0) % LANES
        append = PendingAppend(
            batch=batch,
            header=header,
            receipts=[receipt],
            is_own=is_own,
            since=loop.time(),
            place=self._added,
            size_bytes=size_bytes,
            publications=publications,
            transaction=transaction,
            lane=lane,
        )
        self._count_bytes(size_bytes)
        self._order.append(append)
        self._waiting.append(append)
        self._gathered_bytes += size_bytes
        # An own batch waits for the answer that sends it, or for other senders, unless enough has gathered.
        if not is_own or self._gathered_bytes >= _FULL_BYTES or not (self._own_in_flight or self._lacks_senders()):
            self._send_soon()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._drive())

    def close(self) -> None:
        """Refuse everything that is not acknowledged."""
        self._is_closed = True
        self._stop_hold()
        if self._task is not None:
            self._task.cancel()
        for append in list(self._order):
            if not append.is_done:
                is_unknown = append.is_unknown or append in self._in_flight
                self._settle(append, ClusterOutcomeUnknown("this gateway stops") if is_unknown else ShuttingDown())
        self._complete()

    def refuse_waiting(self, why: Refusal) -> None:
        """Refuse everything that is not in flight: the partition does not exist any more."""
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
                    if self.failure:
                        await asyncio.sleep(_PAUSE_S)
                    await self._renumber()
                    self._lanes = {lane: await self._connect(lane) for lane in {each.lane for each in self._waiting}}
                    self.failure = ""
                    self._send_waiting()
            except TopicDamaged as damaged:
                self.refuse_waiting(HubDamaged(str(damaged)))
            except UpstreamFailure as failure:
                self.failure = str(failure)
                continue
            await self._await_answers()

    async def _await_answers(self) -> None:
        """Wait for an answer or for another append; a request that waits for too long ends its connection."""
        if not self._order or self._wake.is_set():
            self._end_silent_connection()
            return
        now = asyncio.get_running_loop().time()
        oldest = min((append.sent_at for append in self._in_flight), default=now)
        limit_s = oldest + self._answer_seconds - now if self._in_flight else _PAUSE_S
        try:
            async with asyncio.timeout(min(max(limit_s, 0.0), _CHECK_SECONDS)):
                await self._wake.wait()
        except TimeoutError:
            self._end_silent_connection()

    def _end_silent_connection(self) -> None:
        """End the connection of a request that waits for too long, also while others are added all the time."""
        limit = asyncio.get_running_loop().time() - self._answer_seconds
        for append in self._in_flight:
            if append.sent_at <= limit and append.connection is not None:
                append.connection.close(f"no answer to a Produce request within {self._answer_seconds:g} s")
                return

    async def _renumber(self) -> None:
        """Take a producer id for the first own batch, or a new one after numbers were lost."""
        needs_producer = self._numbers.producer is None and any(append.is_own for append in self._waiting)
        if not needs_producer and not (self._has_lost_numbers and not self._in_flight):
            return
        producer = await self._take_producer()
        self._numbers = ProducerNumbers(producer=producer)
        self._has_lost_numbers = False
        for append in self._waiting:
            append.number = -1
            append.is_retry = append.is_unknown = False

    def _send_waiting(self) -> None:
        while self._waiting and len(self._in_flight) < _MAX_IN_FLIGHT and not self._has_lost_numbers:
            append = self._waiting[0]
            connection = self._lanes.get(append.lane)
            if connection is None or not connection.is_open:
                # It was added while the connections were opened, or its connection is gone.
                self._wake.set()
                return
            if append.is_own and not self._may_send_own(append):
                return
            self._waiting.popleft()
            if append.is_own and append.number < 0:
                self._join(append)
                self._stamp(append)
            elif not append.is_sealed and not append.is_own:
                if append.header.crc == UNSEALED:
                    seal(append.batch)
                append.is_sealed = True
            self._send(append, connection)

    def _may_send_own(self, append: PendingAppend) -> bool:
        own = self._own_in_flight
        if own >= MAX_OWN_IN_FLIGHT or self._numbers.producer is None:
            return False
        if append.number >= 0:
            return True
        if own:
            # Kafka knows the last five batches: nothing new is sent before all that failed has been answered.
            return self._is_full() and not any(each.is_retry for each in self._in_flight)
        return not self._lacks_senders() or self._is_full()

    def _lacks_senders(self) -> bool:
        return self._expected > 0 and self._waiting_publications() < self._expected

    def _waiting_publications(self) -> int:
        return sum([each.publications for each in self._waiting])

    def _send(self, append: PendingAppend, connection: BrokerConnection) -> None:
        if append.is_own:
            self._own_in_flight += 1
            self._gathered_bytes = 0
            self._stop_hold()
        self._in_flight.append(append)
        append.connection, append.sent_at = connection, asyncio.get_running_loop().time()
        topic = ProduceTopic(
            name=self.topic, partitions=(ProducePartition(index=self._partition, records=append.batch),)
        )
        request = ProduceRequest(
            transactional_id=None if append.transaction is None else append.transaction[0],
            acks=_ACKS_ALL,
            timeout_ms=_PRODUCE_MS,
            topics=(topic,),
        )
        version = None if append.transaction is None else _produce_version(connection, append.transaction[1])
        connection.send(request, version).add_done_callback(partial(self._on_answer, append))

    def _is_full(self) -> bool:
        """Whether enough waits for a request of its own."""
        size_bytes = 0
        for append in self._waiting:
            size_bytes += append.size_bytes
            if size_bytes >= _FULL_BYTES:
                return True
        return False

    def _join(self, append: PendingAppend) -> None:
        """Take the own batches that wait behind this one into it, as far as they fit."""
        if not self._waiting or not can_join(append.header):
            return
        joined, size = [append], len(append.batch)
        while self._waiting and self._waiting[0].is_own and self._waiting[0].number < 0:
            behind = self._waiting[0]
            size += len(behind.batch)
            if size > MAX_JOINED_BYTES or not can_join(behind.header):
                break
            joined.append(self._waiting.popleft())
        if len(joined) == 1:
            return
        append.batch, append.header = join_batches([each.batch for each in joined])
        append.receipts = [receipt for each in joined for receipt in each.receipts]
        append.size_bytes = sum(each.size_bytes for each in joined)
        append.publications = sum(each.publications for each in joined)
        gone = set(map(id, joined[1:]))
        self._order = deque(each for each in self._order if id(each) not in gone)

    def _stamp(self, append: PendingAppend) -> None:
        """Give an own batch its producer and number, and its checksum."""
        assert self._numbers.producer is not None
        producer_id, epoch = self._numbers.producer
        append.number = self._numbers.next
        self._numbers.next = (append.number + append.header.record_count) & PRODUCER_SEQUENCE_MASK
        append.header = append.header._replace(
            producer_id=producer_id, producer_epoch=epoch, producer_sequence=append.number
        )
        write_header(append.batch, append.header)
        seal(append.batch)

    # --- answers

    def _on_answer(self, append: PendingAppend, done: "asyncio.Future[Any]") -> None:
        if append.is_done or self._is_closed:
            if not done.cancelled():
                done.exception()
            return
        self._in_flight.remove(append)
        self._own_in_flight -= append.is_own
        failure = done.exception()
        if failure is not None:
            self._wake.set()
            self._on_failure(append, None, str(failure))
            return
        (topic,) = done.result().topics
        (answer,) = topic.partitions
        if answer.error_code in (ErrorCode.NONE, _DUPLICATE):
            append.outcome = answer
            self._settle(append, None)
            self._hold_after(append)
            self._send_next()
            self._complete()
            self._end_hold_later(append)
        else:
            self._wake.set()
            self._on_failure(append, answer.error_code, answer.error_message or "")

    def _hold_after(self, append: PendingAppend) -> None:
        """Wait for the next events of the senders whose small publications were just acknowledged.

        Otherwise those that wait already would be sent without them, and each half would wait for the other for ever.
        """
        senders = append.publications + self._waiting_publications()
        if append.is_own and senders > 1 and append.size_bytes < _SMALL_BYTES and not self._own_in_flight:
            self._expected = senders

    def _end_hold_later(self, append: PendingAppend) -> None:
        """End the hold after a part of the time of the answer, counted from the acknowledgements."""
        if self._expected:
            loop = asyncio.get_running_loop()
            seconds = min((loop.time() - append.sent_at) * _HOLD_PART, _LONGEST_HOLD_S)
            self._hold_timer = loop.call_later(seconds, self._end_hold)

    def _stop_hold(self) -> None:
        self._expected = 0
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _end_hold(self) -> None:
        self._stop_hold()
        if self._waiting and not self._own_in_flight and not self._is_closed:
            self._send_next()

    def _send_soon(self) -> None:
        """Send after the publications of this turn."""
        if not self._is_sending_soon:
            self._is_sending_soon = True
            asyncio.get_running_loop().call_soon(self._on_soon)

    def _on_soon(self) -> None:
        self._is_sending_soon = False
        if not self._is_closed:
            self._send_next()

    def _send_next(self) -> None:
        """Send what has gathered; the task does it after a failure, and if something has to be opened first."""
        if self._failed or self.failure or self._has_lost_numbers or self._numbers.producer is None:
            self._wake.set()
        else:
            self._send_waiting()

    def _on_failure(self, append: PendingAppend, code: int | None, why: str) -> None:
        append.why = why or next((known.name for known in ErrorCode if known == code), str(code))
        append.is_unknown |= code is None or code in UNKNOWN_FATE
        if code in MOVED:
            # The leader is looked up again before the next request, which waits a moment.
            self.failure = append.why
        if code in BAD_BATCH or not append.is_own:
            if append.is_own:
                # Its numbers stay unused, so the batches after it need new ones.
                self._has_lost_numbers = True
            self._settle(append, refusal_of(code, append.header, append.why, is_unknown=append.is_unknown))
            self._complete()
            return
        if code in LOST_NUMBERS and not any(
            self._is_before(each, append) for each in (*self._failed, *self._in_flight)
        ):
            self._has_lost_numbers = True
        self._failed.append(append)

    def _is_before(self, one: PendingAppend, other: PendingAppend) -> bool:
        return one.is_own and one.number >= 0 and one.place < other.place

    def _requeue_failed(self) -> None:
        if self._failed and not self._own_in_flight:
            self._failed.sort(key=lambda append: append.place)
            for append in self._failed:
                append.is_retry = True
            self._waiting.extendleft(reversed(self._failed))
            self._failed.clear()

    def _give_up_old(self) -> None:
        now = asyncio.get_running_loop().time()
        for append in list(self._waiting):
            limit_s = _UNKNOWN_SECONDS if append.is_unknown else _REFUSED_SECONDS
            if now - append.since > limit_s:
                self._waiting.remove(append)
                append.why = append.why or self.failure or "the Kafka cluster does not answer"
                self._settle(append, busy(append.why, is_unknown=append.is_unknown))
        self._complete()

    def _settle(self, append: PendingAppend, error: Refusal | None) -> None:
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

    def _acknowledge(self, append: PendingAppend) -> None:
        answer, header, sequence = append.outcome, append.header, append.outcome.base_offset
        time_ms = answer.log_append_time_ms if answer.log_append_time_ms >= 0 else header.max_time_ms
        if append.is_own and 0 <= sequence < self._own_end:
            self._refuse_restarted(append, sequence)
            return
        if sequence >= 0:
            end = sequence + header.record_count
            self._own_end = max(self._own_end, end if append.is_own else 0)
            latency_s = asyncio.get_running_loop().time() - append.since
            self._on_appended(AppendPosition(end_sequence=end, time_ms=time_ms, latency_s=latency_s))
        for receipt in append.receipts:
            receipt.sequence_number = receipt.offset = sequence
            receipt.enqueued_at_ms = time_ms
            receipt.is_duplicate = answer.error_code == _DUPLICATE
            sequence += receipt.count if sequence >= 0 else 0
        _complete_all(append.receipts, None)

    def _refuse_restarted(self, append: PendingAppend, sequence: int) -> None:
        why = f"the topic {self.topic} was deleted by hand: its partition {self._partition} begins again at {sequence}"
        _complete_all(append.receipts, HubDamaged(why))


def _produce_version(connection: BrokerConnection, of_client: int) -> int:
    """The version for a batch of a transaction: on the same side of KIP-890 as the client's, as new as possible."""
    newest = PRODUCE.versions.high if of_client >= TRANSACTIONS_SINCE else TRANSACTIONS_SINCE - 1
    return connection.nearest_version(ProduceRequest, newest)


def _complete_all(receipts: list[Receipt], error: Refusal | None) -> None:
    """Complete receipts; an exception of one connection must not affect the others."""
    for receipt in receipts:
        try:
            receipt.complete(error)
        except Exception:
            log.exception("a callback of a publication failed")
