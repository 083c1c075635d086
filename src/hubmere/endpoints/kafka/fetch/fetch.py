"""Fetch: closed batches out, and waiting for more bytes without asking again (reference: kafka 2.8).

Batches go out as they lie in the log. A fetch that finds too little is parked (`reading`), and is looked at again once
for each turn in which commits touched its partitions. Partitions are read in the order of the request, so that clients
that rotate it make progress everywhere; the first that has something gives a whole batch even if that is larger than
asked, since half a batch is of no use.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from hubmere.broker.read import PartitionRead, PartitionReader
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.fetch.answers import NO_POSITION, Frame, PartitionAnswer, Topics, quiet_part, send
from hubmere.endpoints.kafka.fetch.sessions import FetchSession, open_reading
from hubmere.endpoints.kafka.fetch.state import CachedPartition, FetchState, SessionlessFetch
from hubmere.endpoints.kafka.session import Handler, KafkaSession
from hubmere.endpoints.kafka.slices import MAX_ENTRIES, SLICE_ENTRIES, Steps
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import FETCH, AbortedTransaction, FetchRequest, FetchResponse

# The most that one answer holds, whatever a client asks for: it is in memory until the socket has taken it.
MAX_FETCH_BYTES: Final = 16 * 1024 * 1024
# The longest that a fetch is parked, whatever a client asks for; clients give up on a request after some 30 s.
MAX_WAIT_MS: Final = 30_000
READ_COMMITTED: Final = 1
# Clients whose id begins so (the Spark source does) get the byte position of each batch in a tagged field of our
# own: from it they make the AMQP offset of each event. Compacted hubs have none: there it is the sequence number.
# Anybody may take such an id: the field says what every AMQP reader is told, and Kafka clients skip unknown tags.
OUR_CLIENTS: Final = "hubmere-"
# How long a client is held back whose events wait for memory of the node, if it would come again at once.
_MEMORY_DELAY_S: Final = 0.1
# Whoever wants no more than this has enough with any batch (its header has 61 bytes).
_ANY_BATCH_BYTES: Final = 61
_NOTHING: Final = b""
# Partitions that are read between two pauses of a fetch with very many of them.
_LOOKED_AT_ONCE: Final = 64


class _Read(NamedTuple):
    """What one partition gave: what is told of it, and the events."""

    place: CachedPartition
    told: PartitionAnswer
    reader: PartitionReader | None
    found: PartitionRead | None


class _Fetch:
    """One fetch, until it is answered (`reading.Parked`)."""

    __slots__ = (
        "_enough_bytes",
        "_found_bytes",
        "_has_look_planned",
        "_is_committed_only",
        "_is_done",
        "_is_short_of_memory",
        "_reading",
        "_request",
        "_session",
        "deadline",
    )

    def __init__(self, session: KafkaSession, request: Request, reading: FetchState) -> None:
        body: FetchRequest = request.body
        self._session = session
        self._request = request
        self._reading = reading
        self._enough_bytes = min(body.min_bytes, body.max_bytes, MAX_FETCH_BYTES)
        self._is_committed_only = body.isolation_level == READ_COMMITTED
        self._found_bytes = 0
        self._has_look_planned = False
        self._is_done = False
        self._is_short_of_memory = False
        reading.take_form(request.version, is_committed_only=self._is_committed_only)
        self.deadline = session.now + min(body.max_wait_ms, MAX_WAIT_MS) / 1000

    # --- answering or waiting ---

    def start(self) -> None:
        """Answer now if there is enough, or something to complain about; else wait."""
        places = self._reading.due_places()
        if len(places) > SLICE_ENTRIES:
            self._session.work_in_slices(self._start_in_slices(places))
        else:
            self._answer_or_wait(self._look(places))

    def _start_in_slices(self, places: Sequence[CachedPartition]) -> Steps:
        """As `start`, for so many partitions that looking at them takes longer than a turn should."""
        reads: list[_Read] = []
        for first in range(0, len(places), _LOOKED_AT_ONCE):
            share = places[first : first + _LOOKED_AT_ONCE]
            reads += self._look(share, reads)
            yield from repeat(None, len(share))
        self._answer_or_wait(reads)

    def _answer_or_wait(self, reads: list[_Read]) -> None:
        body: FetchRequest = self._request.body
        if body.max_wait_ms <= 0 or not self._reading.places() or self._is_enough(reads):
            self._answer(reads)
        else:
            self._reading.park(self)

    def _is_enough(self, reads: list[_Read]) -> bool:
        self._found_bytes = sum([len(read.told.records) for read in reads])
        return self._found_bytes >= self._enough_bytes or any(read.told.code for read in reads)

    def moved(self) -> None:
        """A partition has moved: look once this turn's commits are all known."""
        if not self._has_look_planned:
            self._has_look_planned = True
            self._session.wire.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._has_look_planned = False
        if not self._is_done and self._may_be_enough():
            self._session.resume(self._answer_if_enough)

    def _on_memory(self) -> None:
        """There is memory again for events that had to wait."""
        self._is_short_of_memory = False
        if not self._is_done and not self._session.is_lost:
            self._session.resume(self._answer_if_enough)

    def _may_be_enough(self) -> bool:
        """Cheap, to see whether reading is worth it."""
        if self._enough_bytes <= _ANY_BATCH_BYTES:
            return True
        due = self._reading.due
        grown_bytes = sum(place.grown_bytes() for place in due)
        return self._found_bytes + grown_bytes >= self._enough_bytes or any(place.is_passed() for place in due)

    def _answer_if_enough(self) -> None:
        reads = self._look(self._reading.due_places())
        if self._is_enough(reads):
            self._answer(reads)

    def time_is_up(self) -> None:
        """Answer with what there is."""
        self._session.resume(lambda: self._answer(self._look(self._reading.all_places())))

    def _answer(self, reads: list[_Read]) -> None:
        self._is_done = True
        session, reading = self._session, self._reading
        delay_s = _MEMORY_DELAY_S if self._is_short_of_memory else 0.0
        for read in reads:
            chunk = None if read.found is None else read.found.chunk
            if read.reader is not None and chunk is not None:
                session.weigh(len(chunk.data))
                delay_s = max(delay_s, read.reader.charge(chunk, read.place.partition.fetch_offset, session.now))
        throttle_ms = round(delay_s * 1000) if delay_s else 0
        if isinstance(reading, FetchSession):
            topics = _news(reading, reads)
            send(session, self._request, throttle_ms=throttle_ms, session_id=reading.number, topics=topics)
        else:
            assert isinstance(reading, SessionlessFetch)
            self._tell_everything(reading, {read.place: read.told for read in reads}, throttle_ms)
        reading.answered()
        session.mute(delay_s)

    def _tell_everything(
        self, reading: SessionlessFetch, found: dict[CachedPartition, PartitionAnswer], throttle_ms: int
    ) -> None:
        """One part for each partition that was asked for, in the order of the request."""
        session, request = self._session, self._request
        if not all(told.is_ordinary for told in found.values()):
            topics = [
                (name, [found.get(place) or self._quiet(place) for place in places]) for name, places in reading.topics
            ]
            send(session, request, throttle_ms=throttle_ms, session_id=0, topics=topics)
            return
        frame = Frame(request.version, request.correlation_id, throttle_ms, 0, len(reading.topics))
        for name, places in reading.topics:
            frame.add_topic(name, len(places))
            for place in places:
                if place in found:
                    frame.add(found[place])
                elif place.quiet_part is not None:
                    frame.out += place.quiet_part
                else:
                    place.quiet_part = quiet_part(request.version, self._quiet(place))
                    frame.out += place.quiet_part
            frame.end_topic()
        session.respond_buffers(request, frame.buffers())

    def _quiet(self, place: CachedPartition) -> PartitionAnswer:
        aborted = () if self._is_committed_only else None
        return PartitionAnswer(place.index, ErrorCode.NONE, *place.facts, _NOTHING, aborted, NO_POSITION)

    # --- reading ---

    def _look(self, places: Iterable[CachedPartition], before: Sequence[_Read] = ()) -> list[_Read]:
        """Read the places: those that have events, are refused, or of which a session has other facts to tell.

        `before` are reads of the same answer, whose events count.
        """
        body: FetchRequest = self._request.body
        known_bytes = sum([len(known.told.records) for known in before])
        wanted_bytes = min(max(body.max_bytes, 0), MAX_FETCH_BYTES)
        room_bytes = self._session.account.room_bytes(wanted_bytes)
        left_bytes = max(room_bytes - known_bytes, 0)
        # A batch that is larger than asked for goes out if it is the first; not if memory is what sets the bound.
        is_short = room_bytes < wanted_bytes
        reads, is_first = [], not (is_short or known_bytes)
        for place in places:
            read = self._read(place, left_bytes, is_first=is_first)
            if read is None:
                continue
            reads.append(read)
            if read.told.records:
                is_first = False
                left_bytes = max(left_bytes - len(read.told.records), 0)
        if is_short and any(map(_is_left_out, reads)):
            self._wait_for_memory()
        return reads

    def _wait_for_memory(self) -> None:
        """Events are there, and no memory to send them: look again when there is, or when the time is up."""
        account = self._session.account
        account.press()
        if not self._is_short_of_memory:
            self._is_short_of_memory = True
            account.wait(self._on_memory)

    def _read(self, place: CachedPartition, left_bytes: int, *, is_first: bool) -> _Read | None:
        try:
            reader = place.reader or place.begin(self._session)
            return self._read_partition(place, reader, left_bytes, is_first=is_first)
        except Refusal as refusal:
            place.let_go()
            return _Read(place, _refused(place.index, code_of(refusal)), None, None)

    def _read_partition(
        self, place: CachedPartition, reader: PartitionReader, left_bytes: int, *, is_first: bool
    ) -> _Read | None:
        wanted = place.partition
        offset = wanted.fetch_offset
        found = reader.read(
            offset,
            max_bytes=wanted.max_bytes,
            space_bytes=left_bytes,
            stable_only=self._is_committed_only,
            allows_larger=is_first,
            leader_epoch=wanted.current_leader_epoch,
        )
        (start, end, stable_end, _, _, size_bytes), chunk, aborted, refusal = found
        place.seen((end, stable_end, start), size_bytes)
        if refusal is not None:
            place.refused()
            return _Read(place, _refused(place.index, code_of(refusal), end, start), None, None)
        if offset == end and self._reading.is_told(place):
            del self._reading.due[place]
            return None
        records: memoryview | bytes = _NOTHING
        skipped: tuple[AbortedTransaction, ...] | None = () if self._is_committed_only else None
        position = NO_POSITION
        if chunk is not None:
            records = chunk.data
            if self._tells_position and not reader.entity.retention.is_compacted:
                position = chunk.offset
            if aborted:
                skipped = tuple([AbortedTransaction(producer_id=gone[0], first_offset=gone[1]) for gone in aborted])
        told = PartitionAnswer(place.index, ErrorCode.NONE, end, stable_end, start, records, skipped, position)
        return _Read(place, told, reader, found)

    @property
    def _tells_position(self) -> bool:
        return (self._request.client_id or "").startswith(OUR_CLIENTS)


def _is_left_out(read: _Read) -> bool:
    """Whether a partition has events and none of them was read."""
    told = read.told
    return not told.code and not told.records and read.place.partition.fetch_offset < told.end


def _refused(index: int, code: ErrorCode, end: int = -1, start: int = -1) -> PartitionAnswer:
    return PartitionAnswer(index, code, end, end, start, _NOTHING, None, NO_POSITION)


def _news(kept: FetchSession, reads: list[_Read]) -> Topics:
    """The parts that tell the client something new; those with events go to the end of the order."""
    news: list[tuple[str, PartitionAnswer]] = []
    for place, told, _, _ in reads:
        facts = (told.end, told.stable_end, told.start)
        if told.records or told.code or place.told != facts:
            place.told = facts
            news.append((place.topic, told))
        if told.records:
            kept.gave(place)
    return _by_topic(news)


def _by_topic(parts: Iterable[tuple[str, PartitionAnswer]]) -> Topics:
    topics: Topics = []
    for topic, told in parts:
        if topics and topics[-1][0] == topic:
            topics[-1][1].append(told)
        else:
            topics.append((topic, [told]))
    return topics


def fetch(session: KafkaSession, request: Request) -> None:
    """Give what there is, or wait for it."""
    if sum([len(topic.partitions) for topic in request.body.topics]) > MAX_ENTRIES:
        session.drop(f"{request!r} has too many partitions; {MAX_ENTRIES} is the most")
        return
    reading = open_reading(session, request.body)
    if isinstance(reading, ErrorCode):
        session.respond(request, FetchResponse(error_code=reading, topics=()))
    else:
        session.followed = reading.places()
        _Fetch(session, request, reading).start()


HANDLERS: Final[Mapping[int, Handler]] = {FETCH.key: fetch}
