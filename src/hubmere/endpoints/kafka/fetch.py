"""Fetch: closed batches out, and waiting for more bytes without asking again (reference: kafka 2.8).

Batches go out as they lie in the log. A fetch that finds too little is parked: it watches its partitions and has one
timer, and is looked at again once for each turn in which commits touched them. Partitions are read in the order of the
request, so that clients that rotate it make progress everywhere; the first that has something gives a whole batch even
if that is larger than asked, since half a batch is of no use.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Final, NamedTuple

from hubmere.broker.fetching import Watch, charge_fetch
from hubmere.broker.live import LiveHub
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.fetch_sessions import FetchSession, Wanted, open_session
from hubmere.endpoints.kafka.session import Handler, KafkaSession
from hubmere.endpoints.stream import Timer
from hubmere.model.errors import PartitionNotFound, Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import (
    FETCH,
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)

# The most that one answer holds, whatever a client asks for: it is in memory until the socket has taken it.
MAX_FETCH_BYTES: Final = 16 * 1024 * 1024
# The longest that a fetch is parked, whatever a client asks for; clients give up on a request after some 30 s.
MAX_WAIT_MS: Final = 30_000
READ_COMMITTED: Final = 1
# Clients whose id begins so (the Spark source does) are told where batches lie in the log, beside what Kafka tells:
# from it they make the AMQP offset of each event. Compacted hubs have none: there it is the sequence number.
OUR_CLIENTS: Final = "hubmere-"
_NOTHING: Final = b""


class _Read(NamedTuple):
    """What one partition gave: the answer for it, and how many events of which hub."""

    topic: str
    part: FetchPartitionResponse
    hub: LiveHub | None
    events: int


class _Fetch:
    """One fetch, until it is answered."""

    __slots__ = (
        "_found_bytes",
        "_has_look_planned",
        "_is_done",
        "_kept",
        "_request",
        "_session",
        "_timer",
        "_wanted",
        "_watch",
    )

    def __init__(self, session: KafkaSession, request: Request, kept: FetchSession | None) -> None:
        body: FetchRequest = request.body
        self._session = session
        self._request = request
        self._kept = kept
        self._wanted: list[Wanted] = (
            [Wanted(topic.name, partition) for topic in body.topics for partition in topic.partitions]
            if kept is None
            else kept.wanted()
        )
        self._timer: Timer | None = None
        self._watch: Watch | None = None
        self._found_bytes = 0
        self._has_look_planned = False
        self._is_done = False

    # --- answering or waiting ---

    def start(self) -> None:
        """Answer now if there is enough, or something to complain about; else wait."""
        body: FetchRequest = self._request.body
        reads = self._look()
        if body.max_wait_ms <= 0 or not self._wanted or self._is_enough(reads):
            self._answer(reads)
            return
        session = self._session
        session.on_lost[self._let_go] = None
        deadline = session.now + min(body.max_wait_ms, MAX_WAIT_MS) / 1000
        self._timer = session.wire.call_at(deadline, self._time_is_up)
        places = ((session.readable(wanted.topic), wanted.partition.index) for wanted in self._wanted)
        self._watch = Watch(places, self._moved)

    @property
    def _enough_bytes(self) -> int:
        body: FetchRequest = self._request.body
        return min(body.min_bytes, body.max_bytes, MAX_FETCH_BYTES)

    def _is_enough(self, reads: list[_Read]) -> bool:
        self._found_bytes = sum(len(read.part.records or _NOTHING) for read in reads)
        return self._found_bytes >= self._enough_bytes or any(read.part.error_code for read in reads)

    def _moved(self) -> None:
        """A partition has moved: look once this turn's commits are all known."""
        if not self._has_look_planned:
            self._has_look_planned = True
            self._session.wire.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._has_look_planned = False
        if self._is_done or self._watch is None:
            return
        if self._found_bytes + self._watch.grown_bytes() >= self._enough_bytes:
            reads = self._look()
            if self._is_enough(reads):
                self._answer(reads)

    def _time_is_up(self) -> None:
        self._timer = None
        if not self._is_done:
            self._answer(self._look())

    def _let_go(self) -> None:
        self._is_done = True
        self._session.on_lost.pop(self._let_go, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _answer(self, reads: list[_Read]) -> None:
        self._let_go()
        session, kept = self._session, self._kept
        delay_s = 0.0
        for read in reads:
            if read.hub is not None and read.part.records:
                session.weigh(len(read.part.records))
                charged_s = charge_fetch(read.hub, read.events, len(read.part.records), session.now)
                delay_s = max(delay_s, charged_s)
        parts = [(read.topic, read.part) for read in reads]
        session.respond(
            self._request,
            FetchResponse(
                throttle_time_ms=round(delay_s * 1000),
                error_code=ErrorCode.NONE,
                session_id=0 if kept is None else kept.number,
                topics=_by_topic(parts if kept is None else kept.changed(parts)),
            ),
        )
        session.mute(delay_s)

    # --- reading ---

    def _look(self) -> list[_Read]:
        body: FetchRequest = self._request.body
        left_bytes = min(max(body.max_bytes, 0), MAX_FETCH_BYTES)
        committed_only = body.isolation_level == READ_COMMITTED
        reads, is_first = [], True
        for wanted in self._wanted:
            read = self._read(wanted, left_bytes, is_first=is_first, committed_only=committed_only)
            reads.append(read)
            if read.part.records:
                is_first = False
                left_bytes -= len(read.part.records)
        return reads

    def _read(self, wanted: Wanted, left_bytes: int, *, is_first: bool, committed_only: bool) -> _Read:
        topic, partition = wanted
        try:
            hub = self._session.readable(topic)
            if not 0 <= partition.index < hub.entity.partition_count:
                raise PartitionNotFound(topic, str(partition.index), hub.entity.partition_count)
            hub.require_receiving()
            return _read_partition(
                hub,
                partition,
                left_bytes,
                is_first=is_first,
                committed_only=committed_only,
                tells_position=(self._request.client_id or "").startswith(OUR_CLIENTS),
            )
        except Refusal as refusal:
            return _Read(topic, _refused(partition.index, code_of(refusal)), None, 0)


def _read_partition(
    hub: LiveHub,
    partition: FetchPartition,
    left_bytes: int,
    *,
    is_first: bool,
    committed_only: bool,
    tells_position: bool,
) -> _Read:
    log = hub.log(partition.index)
    state, offset = log.state, partition.fetch_offset
    code = check_epoch(partition.current_leader_epoch, log.leader_epoch)
    if code or not state.first_sequence <= offset <= state.end_sequence:
        code = code or ErrorCode.OFFSET_OUT_OF_RANGE
        return _Read(hub.name, _refused(partition.index, code, state.end_sequence, state.first_sequence), hub, 0)
    records: memoryview | bytes = _NOTHING
    aborted: tuple[AbortedTransaction, ...] = ()
    events, position = 0, -1
    chunk = log.read(offset, min(partition.max_bytes, left_bytes), stable_only=committed_only) if left_bytes else None
    if chunk is not None and (is_first or len(chunk.data) <= left_bytes):
        records, events = chunk.data, chunk.next_sequence - max(chunk.first_sequence, offset)
        if tells_position and not hub.entity.retention.is_compacted:
            position = chunk.offset
        if committed_only:
            found = log.aborted_transactions(chunk.first_sequence, chunk.next_sequence)
            aborted = tuple(AbortedTransaction(producer_id=gone[0], first_offset=gone[1]) for gone in found)
    part = FetchPartitionResponse(
        index=partition.index,
        error_code=ErrorCode.NONE,
        high_watermark=state.end_sequence,
        last_stable_offset=state.stable_sequence,
        log_start_offset=state.first_sequence,
        log_position=position,
        aborted_transactions=aborted if committed_only else None,
        records=records,
    )
    return _Read(hub.name, part, hub, events)


def check_epoch(asked: int, current: int) -> ErrorCode:
    """Whether a client's idea of the leader's epoch is ours; -1 skips the check (KIP-320)."""
    if asked < 0 or asked == current:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def _refused(index: int, code: ErrorCode, end: int = -1, start: int = -1) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        index=index,
        error_code=code,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=start,
        records=_NOTHING,
    )


def _by_topic(parts: list[tuple[str, FetchPartitionResponse]]) -> tuple[FetchTopicResponse, ...]:
    return tuple(
        FetchTopicResponse(name=topic, partitions=tuple([part for _, part in group]))
        for topic, group in groupby(parts, lambda pair: pair[0])
    )


def fetch(session: KafkaSession, request: Request) -> None:
    """Give what there is, or wait for it."""
    kept = open_session(session, request.body)
    if isinstance(kept, ErrorCode):
        session.respond(request, FetchResponse(error_code=kept, topics=()))
    else:
        _Fetch(session, request, kept).start()


HANDLERS: Final[Mapping[int, Handler]] = {FETCH.key: fetch}
