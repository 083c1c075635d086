"""Read a hub: how many partitions, from where to where, the place of a time or an offset, and ranges of closed batches.

A range is read to its exact end, one answer ahead of the caller, so that the node works while the caller decodes.
Only committed events are seen (read_committed): the end is the last stable one, and what was aborted is named beside
the batches that hold it. Batches stay closed here; their checksums are checked.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hubmere.client.connection import Client, Connection
from hubmere.client.failures import RangeLost, Refused
from hubmere.model.offsets import index_at_offset
from hubmere.records.header import HEADER_BYTES, BatchHeader, is_intact, read_header
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from hubmere.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

# One answer: large enough that a round trip does not matter, small enough that the next one is not waited for and that
# it is still in the processor's cache when it is decoded: 1 and 2 MiB cost a fifth less than 4 MiB or half a MiB.
FETCH_BYTES: Final = 2 * 1024 * 1024
# What is asked for at least, so that events larger than guessed do not take a round trip each.
_LEAST_FETCH_BYTES: Final = 64 * 1024
# Bytes in the log of an event of which nothing is known yet.
_USUAL_EVENT_BYTES: Final = 1024
# A committed range is there at once; this is for a node that has just come back and is still reading its logs.
_MAX_WAIT_MS: Final = 500
# Answers without an event in a range that must have one, before that counts as a failure: half a minute of waiting.
_MAX_EMPTY_ANSWERS: Final = 60
_READ_COMMITTED: Final = 1
# Probes that are led by the size of events; on logs whose events differ wildly, halving is surer from then on.
_MAX_INTERPOLATIONS: Final = 8
# Searches in many partitions: requests without an answer, each of which is answered with one batch.
_MAX_PROBES_IN_FLIGHT: Final = 32
UNKNOWN_POSITION: Final = -1


class Bounds(NamedTuple):
    """What a partition holds: from `first` up to, and not including, `end`."""

    first: int
    end: int


class HubDescription(NamedTuple):
    """A hub as metadata describe it."""

    id: str | None  # another one for a hub that was deleted and created again; None where a broker has no topic ids
    partition_count: int


class Fetched(NamedTuple):
    """Whole closed batches of one partition, in order."""

    data: memoryview
    position: int  # byte number of the first batch, UNKNOWN_POSITION where the node keeps none
    next_sequence: int  # first sequence number after the batches
    aborted: tuple[tuple[int, int], ...]  # producer id and first sequence number of aborted transactions
    # Sequence numbers that no batch has, each range from a first one up to, and not including, another: events that are
    # damaged at the node. Always empty for compacted hubs, where missing numbers are no loss.
    missing: tuple[tuple[int, int], ...] = ()

    def missing_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """The missing ranges as far as they lie from `start` up to, and not including, `end`."""
        cut = [(max(first, start), min(behind, end)) for first, behind in self.missing]
        return [(first, behind) for first, behind in cut if first < behind]


class PlacedBatch(NamedTuple):
    """A batch by its header, and its byte number, UNKNOWN_POSITION where the node keeps none."""

    header: BatchHeader
    position: int


class ByteRange(NamedTuple):
    """Events of a partition, and how many bytes of them are wanted."""

    start: int
    end: int
    size_bytes: int


# Gives the sequence number of a batch that it needs, is sent that batch, and ends with the sequence number it was for.
_Search = Generator[int, PlacedBatch | None, int]


@dataclass(frozen=True, slots=True)
class _Wanted:
    partition: int
    sequence: int
    max_bytes: int


class HubReader:
    """Reads one hub with one client. Thread rule: one owner."""

    def __init__(self, client: Client, hub: str) -> None:
        self._client = client
        self._hub = hub

    # --- what there is ---

    def partition_count(self) -> int:
        """How many partitions the hub has now."""
        return self.describe().partition_count

    def describe(self) -> HubDescription:
        """The hub as it is now."""
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name=self._hub),), allow_auto_topic_creation=False)

        def attempt(connection: Connection) -> HubDescription:
            (topic,) = connection.ask(wanted).topics
            self._check(topic.error_code, f"hub '{self._hub}'")
            return HubDescription(str(topic.topic_id) if topic.topic_id.int else None, len(topic.partitions))

        return self._client.call(attempt)

    def bounds(self, partitions: Collection[int]) -> dict[int, Bounds]:
        """What each partition holds now; the end is that of committed events."""

        def attempt(connection: Connection) -> dict[int, Bounds]:
            connection.send(self._list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP)))
            connection.send(self._list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP)))
            ends = self._listed(connection.receive())
            firsts = self._listed(connection.receive())
            return {partition: Bounds(firsts[partition], ends[partition]) for partition in partitions}

        return self._client.call(attempt) if partitions else {}

    def first_at(self, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """For each partition the first sequence number enqueued at or after a time; None when there is none yet."""

        def attempt(connection: Connection) -> dict[int, int | None]:
            found = self._listed(connection.ask(self._list_offsets(times_ms)))
            return {partition: sequence if sequence >= 0 else None for partition, sequence in found.items()}

        return self._client.call(attempt) if times_ms else {}

    def _list_offsets(self, times_ms: Mapping[int, int]) -> ListOffsetsRequest:
        partitions = tuple(ListOffsetsPartition(index=index, timestamp_ms=ms) for index, ms in times_ms.items())
        topics = (ListOffsetsTopic(name=self._hub, partitions=partitions),)
        return ListOffsetsRequest(isolation_level=_READ_COMMITTED, topics=topics)

    def _listed(self, answer: Any) -> dict[int, int]:
        found: dict[int, int] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                self._check(part.error_code, f"partition {part.index} of '{self._hub}'")
                found[part.index] = part.offset
        return found

    def _check(self, code: int, what: str) -> None:
        if code:
            raise Refused(what, code)

    # --- reading ---

    def read_range(self, partition: int, start: int, end: int, max_bytes: int = FETCH_BYTES) -> Generator[Fetched]:
        """The batches that hold the events from `start` up to, and not including, `end`.

        The first and the last batch may hold events outside; a later start means that there are none before it.
        RangeLost when the partition does not reach back to `start`, or not up to `end`.
        """
        is_ahead = False
        empty = 0
        wanted = _wanted(partition, start, end, max_bytes, _USUAL_EVENT_BYTES)
        try:
            while start < end:
                fetched = self._fetch(wanted, is_sent=is_ahead)
                is_ahead = False
                empty = 0 if len(fetched.data) else empty + 1
                if empty > _MAX_EMPTY_ANSWERS:
                    raise Refused(f"partition {partition} of '{self._hub}' at {start}", ErrorCode.REQUEST_TIMED_OUT)
                event_bytes = len(fetched.data) // max(1, fetched.next_sequence - start)
                start = fetched.next_sequence
                if start < end:
                    wanted = _wanted(partition, start, end, max_bytes, event_bytes)
                    self._send_ahead(wanted)
                    is_ahead = True
                if len(fetched.data):
                    yield fetched
        finally:
            # A caller that has seen enough leaves an answer on its way that nobody else must take for theirs.
            if is_ahead:
                self._client.close()

    def _send_ahead(self, wanted: _Wanted) -> None:
        self._client.call(lambda connection: connection.send(self._fetch_request(wanted)))

    def _fetch(self, wanted: _Wanted, *, is_sent: bool) -> Fetched:
        """One answer. If the connection breaks under a request that was sent ahead, it is sent again."""
        sent_ahead = is_sent

        def attempt(connection: Connection) -> Fetched:
            nonlocal sent_ahead
            was_sent, sent_ahead = sent_ahead, False
            if not was_sent:
                connection.send(self._fetch_request(wanted))
            return self._answered(wanted, connection.receive())

        return self._client.call(attempt)

    def _answered(self, wanted: _Wanted, answer: Any) -> Fetched:
        if answer.error_code:
            raise Refused(f"hub '{self._hub}'", answer.error_code)
        ((part,),) = (topic.partitions for topic in answer.topics)
        return self._fetched(wanted, part)

    def _fetch_request(self, wanted: _Wanted) -> FetchRequest:
        part = FetchPartition(index=wanted.partition, fetch_offset=wanted.sequence, max_bytes=wanted.max_bytes)
        return FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=wanted.max_bytes,
            isolation_level=_READ_COMMITTED,
            topics=(FetchTopic(name=self._hub, partitions=(part,)),),
        )

    def _fetched(self, wanted: _Wanted, part: FetchPartitionResponse) -> Fetched:
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise RangeLost(
                self._hub, wanted.partition, wanted.sequence, part.log_start_offset, part.last_stable_offset
            )
        self._check(part.error_code, f"partition {part.index} of '{self._hub}'")
        data = memoryview(part.records or b"")  # type: ignore[arg-type]  # an answer that was read has one buffer
        whole, next_sequence, missing = self._checked(data, wanted)
        aborted = tuple((gone.producer_id, gone.first_offset) for gone in part.aborted_transactions or ())
        # Only a hub that is not compacted has byte numbers, and a batch for each of its sequence numbers.
        is_dense = part.log_position != UNKNOWN_POSITION
        return Fetched(data[:whole], part.log_position, next_sequence, aborted, tuple(missing) if is_dense else ())

    def _checked(self, data: memoryview, wanted: _Wanted) -> tuple[int, int, list[tuple[int, int]]]:
        """The bytes of whole batches, the sequence number after them, and missing ranges; every checksum holds."""
        at, next_sequence = 0, wanted.sequence
        missing: list[tuple[int, int]] = []
        while at + HEADER_BYTES <= len(data):
            header = read_header(data, at)
            stop = at + header.size_bytes
            if header.size_bytes < HEADER_BYTES or stop > len(data):
                break
            if not is_intact(data[at:stop]):
                raise Refused(
                    f"partition {wanted.partition} of '{self._hub}' at {header.base_sequence_number}",
                    ErrorCode.CORRUPT_MESSAGE,
                )
            base, behind = header.base_sequence_number, header.next_sequence_number
            if base > next_sequence:
                missing.append((next_sequence, base))
            if not header.record_count:
                # The node sends an empty batch for damaged events at the end of a partition.
                missing.append((base, behind))
            if behind > next_sequence:
                next_sequence = behind
            at = stop
        return at, next_sequence, missing

    # --- byte numbers ---

    def find_offset(self, partition: int, offset: int, *, inclusive: bool) -> int:
        """The first sequence number whose AMQP offset is after (or at) a byte number.

        Batches are probed by interpolation, then by halving: a few answers of one batch each. Where a node keeps no
        byte numbers (compacted hubs) the offset is the sequence number.
        """
        low, high = self.bounds([partition])[partition]
        search = _find_offset(low, high, offset if inclusive else offset + 1, low)
        return self._searched({partition: search})[partition]

    def find_after_bytes(self, partition: int, start: int, end: int, size_bytes: int) -> int:
        """The end of the batch with which a reader from `start` has read so many bytes; `end` when it comes first."""
        return self.find_all_after_bytes({partition: ByteRange(start, end, size_bytes)})[partition]

    def find_all_after_bytes(self, ranges: Mapping[int, "ByteRange"]) -> dict[int, int]:
        """`find_after_bytes` for many partitions, which wait for the node together and not one after the other."""
        return self._searched({partition: _find_after_bytes(*each) for partition, each in ranges.items()})

    def _searched(self, searches: Mapping[int, "_Search"]) -> dict[int, int]:
        """Run searches side by side: each round asks for one batch of every partition that is not found yet."""
        found: dict[int, int] = {}
        answers: dict[int, PlacedBatch | None] = dict.fromkeys(searches)
        while answers:
            wanted: dict[int, int] = {}
            for partition, answer in answers.items():
                try:
                    wanted[partition] = searches[partition].send(answer)
                except StopIteration as end:
                    found[partition] = end.value
            answers = self._batches_at(list(wanted.items()))
        return found

    def _batches_at(self, places: Sequence[tuple[int, int]]) -> dict[int, PlacedBatch | None]:
        """`batch_at` for many partitions, asked for in turns of several requests."""
        found: dict[int, PlacedBatch | None] = {}
        for first in range(0, len(places), _MAX_PROBES_IN_FLIGHT):
            wanted = [_Wanted(partition, at, 1) for partition, at in places[first : first + _MAX_PROBES_IN_FLIGHT]]

            def attempt(connection: Connection, wanted: Sequence[_Wanted] = wanted) -> list[Fetched | None]:
                for each in wanted:
                    connection.send(self._fetch_request(each))
                answers = [connection.receive() for _ in wanted]
                return [self._probed(each, answer) for each, answer in zip(wanted, answers, strict=True)]

            for each, fetched in zip(wanted, self._client.call(attempt), strict=True):
                has_batch = fetched is not None and len(fetched.data) > 0
                found[each.partition] = (
                    PlacedBatch(read_header(fetched.data), fetched.position) if fetched and has_batch else None
                )
        return found

    def _probed(self, wanted: _Wanted, answer: Any) -> Fetched | None:
        """The batch of one answer; None where there is none any more."""
        try:
            return self._answered(wanted, answer)
        except RangeLost:
            return None

    def batch_at(self, partition: int, sequence: int) -> PlacedBatch | None:
        """The batch that holds an event, or the one behind a gap; None where there is none any more, or none yet."""
        return self._batches_at([(partition, sequence)])[partition]


def _wanted(partition: int, start: int, end: int, max_bytes: int, event_bytes: int) -> _Wanted:
    """What to ask for next: no more than is left to read, by what an event took so far and an eighth."""
    left_bytes = (end - start) * (event_bytes + event_bytes // 8)
    return _Wanted(partition, start, min(max_bytes, max(_LEAST_FETCH_BYTES, left_bytes)))


def _find_offset(low: int, high: int, wanted: int, guess: int) -> _Search:
    """The first event from `low` up to `high` whose byte number is at or after the wanted one."""
    end, probes = high, 0
    while low < high:
        batch = yield guess
        if batch is None or batch.position == UNKNOWN_POSITION:
            return min(max(wanted, low), high)
        if wanted <= batch.position:
            high = max(low, min(batch.header.base_sequence_number, high))
        elif wanted > _last_offset(batch):
            low = batch.header.next_sequence_number
        else:
            return _sequence_at(batch, wanted)
        probes += 1
        guess = _guess(low, high, batch, wanted) if probes < _MAX_INTERPOLATIONS else (low + high) // 2
    return min(low, end)


def _find_after_bytes(start: int, end: int, size_bytes: int) -> _Search:
    if start >= end:
        return end
    batch = yield start
    if batch is None or batch.position == UNKNOWN_POSITION:
        return end
    behind, wanted = batch.header.next_sequence_number, batch.position + size_bytes
    found = yield from _find_offset(behind, end, wanted, _guess(behind, end, batch, wanted))
    # At least one batch, so that a limit below its size still lets the reader move.
    return min(end, max(found, behind))


def _count(batch: PlacedBatch) -> int:
    return batch.header.last_delta + 1


def _last_offset(batch: PlacedBatch) -> int:
    return batch.position + batch.header.last_delta * batch.header.size_bytes // _count(batch)


def _sequence_at(batch: PlacedBatch, offset: int) -> int:
    index = index_at_offset(batch.position, batch.header.size_bytes, _count(batch), offset)
    return batch.header.base_sequence_number + index


def _guess(low: int, high: int, batch: PlacedBatch, wanted: int) -> int:
    """Where to look next: as far away as the last batch's bytes per event say, never outside what is left."""
    if low >= high:
        return low
    ahead = (wanted - batch.position) * _count(batch) // batch.header.size_bytes
    guessed = batch.header.base_sequence_number + ahead
    return guessed if low <= guessed < high else (low + high) // 2
