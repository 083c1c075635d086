"""The Fetch handler: closed batches out, and waiting for more bytes without polling (reference: kafka 2.8).

Batches leave as they are stored.

1. `sessions.open_fetch` gives the client's partitions and which of them are due.
2. The due partitions are read in the order of the request, so that clients that rotate it make progress everywhere. The
   first one that has events gives a whole batch even if that is larger than asked for, since half a batch is of no use.
3. With enough bytes, or an error, the fetch is answered. Otherwise it is parked (`state`), and its due partitions are
   read again once for each turn in which commits moved them.
4. At its deadline it is answered with the available events.
"""

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from hubmere.broker import PartitionRead, PartitionReader
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.fetch.responses import (
    NO_POSITION,
    FetchFrame,
    PartitionAnswer,
    Topics,
    encode_partition,
    send,
    send_shared,
)
from hubmere.endpoints.kafka.fetch.sessions import FetchSession, open_fetch
from hubmere.endpoints.kafka.fetch.state import CachedPartition, SessionlessFetch
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import MAX_ENTRIES, SLICE_ENTRIES, Steps
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.framing import JOIN_BELOW_BYTES
from hubmere.wire.kafka.messages.fetch import FETCH, AbortedTransaction, FetchRequest, FetchResponse

# The largest response, whatever a client asks for: it is in memory until the socket has sent it.
MAX_FETCH_BYTES: Final = 16 * 1024 * 1024
# The longest that a fetch is parked, whatever a client asks for; clients give up on a request after some 30 s.
MAX_WAIT_MS: Final = 30_000
READ_COMMITTED: Final = 1
# Clients whose id begins with this (the Spark source) get the byte offset of each batch in a tagged field of our own,
# from which they compute the AMQP offset of each event. Compacted hubs have none: there it is the sequence number. Any
# client may use such an id: AMQP readers get the same number, and Kafka clients skip unknown tags.
OFFSET_CLIENTS: Final = "hubmere-"
# How long a client is throttled whose events wait for memory of the node, so that it does not ask again at once.
_MEMORY_DELAY_S: Final = 0.1
# A fetch for no more bytes than this is complete with any batch (its header has 61 bytes).
_ANY_BATCH_BYTES: Final = 61
_NO_RECORDS: Final = b""
# Partitions that are read between two pauses of a fetch with very many of them.
_READ_AT_ONCE: Final = 64


class _Result(NamedTuple):
    """The result of reading one partition: the answer, and the events that are charged when it is sent."""

    partition: CachedPartition
    answer: PartitionAnswer
    reader: PartitionReader | None = None
    read: PartitionRead | None = None


class _Fetch:
    """One fetch until it is answered (`state.ParkedFetch`, `wake_ups.Waiting`)."""

    __slots__ = (
        "_found_bytes",
        "_has_read_scheduled",
        "_is_committed_only",
        "_is_done",
        "_is_short_of_memory",
        "_min_bytes",
        "_request",
        "_state",
        "_wait_s",
        "deadline",
        "session",
    )

    def __init__(self, session: KafkaSession, request: Request, state: FetchSession | SessionlessFetch) -> None:
        body: FetchRequest = request.body
        self.session = session
        self._request = request
        self._state = state
        self._min_bytes = min(body.min_bytes, body.max_bytes, MAX_FETCH_BYTES)
        self._is_committed_only = body.isolation_level == READ_COMMITTED
        self._found_bytes = 0
        self._has_read_scheduled = False
        self._is_done = False
        self._is_short_of_memory = False
        state.set_format(request.version, is_committed_only=self._is_committed_only)
        self._wait_s = min(body.max_wait_ms, MAX_WAIT_MS) / 1000
        self.deadline = session.now + self._wait_s

    # --- answering or waiting ---

    def start(self) -> None:
        """Answer now if there is enough, or an error; else wait."""
        partitions = self._state.due_partitions()
        if len(partitions) > SLICE_ENTRIES:
            self.session.run_in_slices(self._start_in_slices(partitions))
        else:
            self._answer_or_park(self._read_all(partitions))

    def _start_in_slices(self, partitions: Sequence[CachedPartition]) -> Steps:
        """As `start`, for so many partitions that reading them takes longer than a turn should."""
        results: list[_Result] = []
        for first in range(0, len(partitions), _READ_AT_ONCE):
            share = partitions[first : first + _READ_AT_ONCE]
            results += self._read_all(share, results)
            yield from repeat(None, len(share))
        self._answer_or_park(results)

    def _answer_or_park(self, results: list[_Result]) -> None:
        body: FetchRequest = self._request.body
        if body.max_wait_ms <= 0 or not self._state.partitions() or self._is_enough(results):
            self._answer(results)
        else:
            self._state.park(self)

    def _is_enough(self, results: list[_Result]) -> bool:
        if not results:
            self._found_bytes = 0
            return self._min_bytes <= 0
        self._found_bytes = sum([len(result.answer.records) for result in results])
        return self._found_bytes >= self._min_bytes or any(result.answer.code for result in results)

    def on_moved(self) -> None:
        """A partition has moved: read when all commits of this turn are known."""
        if not self._has_read_scheduled:
            self._has_read_scheduled = True
            self.session.context.fetch_wake_ups.add(self)

    def read_again(self) -> None:
        """Answer if there is enough now (`wake_ups.Waiting`)."""
        self._has_read_scheduled = False
        if not self._is_done and self._may_be_enough():
            self.session.resume(self._answer_if_enough)

    def _on_memory(self) -> None:
        """There is memory again for events that had to wait."""
        self._is_short_of_memory = False
        if not self._is_done and not self.session.is_lost:
            self.session.resume(self._answer_if_enough)

    def _may_be_enough(self) -> bool:
        """Whether enough may have been appended for an answer; cheaper than reading."""
        if self._min_bytes <= _ANY_BATCH_BYTES:
            return True
        due = self._state.due
        grown_bytes = sum(partition.grown_bytes() for partition in due)
        return self._found_bytes + grown_bytes >= self._min_bytes or any(partition.is_deleted() for partition in due)

    def _answer_if_enough(self) -> None:
        results = self._read_all(self._state.due_partitions())
        if self._is_enough(results):
            self._answer(results)

    def on_deadline(self) -> None:
        """Answer with the available events."""
        self.session.resume(lambda: self._answer(self._read_all(self._state.partitions_at_deadline())))

    def _answer(self, results: list[_Result]) -> None:
        self._is_done = True
        session, state = self.session, self._state
        delay_s = max(_MEMORY_DELAY_S if self._is_short_of_memory else 0.0, self._charge(results))
        throttle_ms = round(delay_s * 1000) if delay_s else 0
        if isinstance(state, SessionlessFetch):
            self._send_all_partitions(state, results, throttle_ms)
        else:
            topics = _changed_topics(state, results)
            send(session, self._request, throttle_ms=throttle_ms, session_id=state.session_id, topics=topics)
        state.on_answered()
        waited_s = session.now - self.deadline + self._wait_s
        session.context.broker.latencies.fetch_wait.observe(waited_s)
        session.throttle(delay_s)

    def _charge(self, results: list[_Result]) -> float:
        """Count the events that are sent; the seconds for which the client is throttled."""
        session, delay_s = self.session, 0.0
        for partition, _, reader, read in results:
            if reader is not None and read is not None and read.chunk is not None:
                session.count_response(len(read.chunk.data))
                delay_s = max(delay_s, reader.charge(read.chunk, partition.partition.fetch_offset, session.now))
        return delay_s

    def _send_all_partitions(self, state: SessionlessFetch, results: list[_Result], throttle_ms: int) -> None:
        """Answer for each partition that the request names, in its order."""
        session, request = self.session, self._request
        if len(results) == 1 and len(state.partitions()) == 1:
            partition, answer, _, _ = results[0]
            if answer.records and answer.is_plain and len(answer.records) < JOIN_BELOW_BYTES:
                send_shared(session, request, throttle_ms, partition.topic, answer)
                return
        answers = {result.partition: result.answer for result in results}
        if not all(answer.is_plain for answer in answers.values()):
            topics = [
                (name, [answers.get(partition) or self._empty_answer(partition) for partition in partitions])
                for name, partitions in state.topics
            ]
            send(session, request, throttle_ms=throttle_ms, session_id=0, topics=topics)
            return
        frame = FetchFrame(request.version, request.correlation_id, throttle_ms, 0, len(state.topics))
        for name, partitions in state.topics:
            frame.add_topic(name, len(partitions))
            for partition in partitions:
                if partition in answers:
                    frame.add(answers[partition])
                elif partition.empty_response is not None:
                    frame.out += partition.empty_response
                else:
                    partition.empty_response = encode_partition(request.version, self._empty_answer(partition))
                    frame.out += partition.empty_response
            frame.end_topic()
        session.respond_buffers(request, frame.buffers())

    def _empty_answer(self, partition: CachedPartition) -> PartitionAnswer:
        aborted = () if self._is_committed_only else None
        return PartitionAnswer(
            partition.index, ErrorCode.NONE, *partition.watermarks, _NO_RECORDS, aborted, NO_POSITION
        )

    # --- reading ---

    def _read_all(self, partitions: Sequence[CachedPartition], before: Sequence[_Result] = ()) -> list[_Result]:
        """Read partitions; the results are those with events, errors or, in a session, other watermarks.

        `before` are results for the same response, whose events count.
        """
        if not partitions:
            return []
        body: FetchRequest = self._request.body
        known_bytes = sum([len(result.answer.records) for result in before])
        wanted_bytes = min(max(body.max_bytes, 0), MAX_FETCH_BYTES)
        available_bytes = self.session.account.available_bytes(wanted_bytes)
        space_bytes = max(available_bytes - known_bytes, 0)
        # A first batch that is larger than asked for is sent, unless memory is what sets the bound.
        is_short = available_bytes < wanted_bytes
        results, is_first = [], not (is_short or known_bytes)
        for partition in partitions:
            result = self._read_one(partition, space_bytes, is_first=is_first)
            if result is None:
                continue
            results.append(result)
            if result.answer.records:
                is_first = False
                space_bytes = max(space_bytes - len(result.answer.records), 0)
        if is_short and any(map(_is_left_out, results)):
            self._wait_for_memory()
        return results

    def _wait_for_memory(self) -> None:
        """There are events and no memory to send them: read again when there is, or at the deadline."""
        account = self.session.account
        account.press()
        if not self._is_short_of_memory:
            self._is_short_of_memory = True
            account.wait(self._on_memory)

    def _read_one(self, partition: CachedPartition, space_bytes: int, *, is_first: bool) -> _Result | None:
        try:
            reader = partition.reader or partition.open_reader(self.session, stored_only=self._wants_positions)
            return self._read(partition, reader, space_bytes, is_first=is_first)
        except Refusal as refusal:
            partition.close_reader()
            self.session.log_refusal("a Kafka fetch request", refusal, partition.topic)
            return _Result(partition, _error_answer(partition.index, code_of(refusal)))

    def _read(
        self, partition: CachedPartition, reader: PartitionReader, space_bytes: int, *, is_first: bool
    ) -> _Result | None:
        wanted = partition.partition
        offset = wanted.fetch_offset
        read = reader.read(
            offset,
            max_bytes=wanted.max_bytes,
            space_bytes=space_bytes,
            stable_only=self._is_committed_only,
            allows_larger=is_first,
            leader_epoch=wanted.current_leader_epoch,
        )
        (start, end, stable_end, _, _, size_bytes), chunk, aborted, refusal = read
        partition.on_read((end, stable_end, start), size_bytes)
        if refusal is not None:
            partition.on_refused()
            self.session.log_refusal("a Kafka fetch request", refusal, partition.topic)
            return _Result(partition, _error_answer(partition.index, code_of(refusal), end, start))
        if offset == end and self._state.can_omit(partition):
            del self._state.due[partition]
            return None
        records: memoryview | bytes = _NO_RECORDS
        skipped: tuple[AbortedTransaction, ...] | None = () if self._is_committed_only else None
        position = NO_POSITION
        if chunk is not None:
            records = chunk.data
            if self._wants_positions and reader.has_byte_offsets:
                position = chunk.offset
            if aborted:
                skipped = tuple([AbortedTransaction(producer_id=one[0], first_offset=one[1]) for one in aborted])
        answer = PartitionAnswer(partition.index, ErrorCode.NONE, end, stable_end, start, records, skipped, position)
        return _Result(partition, answer, reader, read)

    @property
    def _wants_positions(self) -> bool:
        return reads_log_alone(self._request)


def reads_log_alone(request: Request) -> bool:
    """Whether the client is one of ours: it gets byte positions, and reads captured files itself."""
    return (request.client_id or "").startswith(OFFSET_CLIENTS)


def _is_left_out(result: _Result) -> bool:
    """Whether a partition has events and none of them was read."""
    answer = result.answer
    return not answer.code and not answer.records and result.partition.partition.fetch_offset < answer.end


def _error_answer(index: int, code: ErrorCode, end: int = -1, start: int = -1) -> PartitionAnswer:
    return PartitionAnswer(index, code, end, end, start, _NO_RECORDS, None, NO_POSITION)


def _changed_topics(state: FetchSession, results: list[_Result]) -> Topics:
    """The answers that a session's client does not know; partitions that gave events are read last next time."""
    topics: Topics = []
    for partition, answer, _, _ in results:
        watermarks = (answer.end, answer.stable_end, answer.start)
        if answer.records or answer.code or partition.sent_watermarks != watermarks:
            partition.sent_watermarks = watermarks
            if topics and topics[-1][0] == partition.topic:
                topics[-1][1].append(answer)
            else:
                topics.append((partition.topic, [answer]))
        if answer.records:
            state.move_to_end(partition)
    return topics


def fetch(session: KafkaSession, request: Request) -> None:
    """Answer with the available events, or wait for them."""
    if sum([len(topic.partitions) for topic in request.body.topics]) > MAX_ENTRIES:
        session.disconnect(f"{request!r} has too many partitions; {MAX_ENTRIES} is the most")
        return
    state = open_fetch(session, request.body)
    if isinstance(state, ErrorCode):
        session.respond(request, FetchResponse(error_code=state, topics=()))
    else:
        session.fetched_partitions = state.partitions()
        _Fetch(session, request, state).start()


HANDLERS: Final[Mapping[int, Handler]] = {FETCH.key: fetch}
