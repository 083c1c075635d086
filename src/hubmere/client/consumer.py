"""Reads a hub: partition count, bounds, positions by time or offset, and ranges of closed batches.

A range is read to its exact end. The next fetch is sent before the caller gets a response, so that the node works while
the caller decodes. Isolation is read_committed: the end is the last stable offset, and aborted transactions are listed
beside the batches that contain them. Batches are not decoded here; their checksums are verified.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hubmere.client.connection import Client, Connection
from hubmere.client.facts import has_ordered_times
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
    StoredFile,
)
from hubmere.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

# Size of one response: large enough to hide the round trip, small enough to stay in the processor's cache until it is
# decoded. 1 and 2 MiB cost a fifth less than 4 MiB or half a MiB.
FETCH_BYTES: Final = 2 * 1024 * 1024
# Minimum fetch size, so that events larger than estimated do not take a round trip each.
_LEAST_FETCH_BYTES: Final = 64 * 1024
# Estimated size of an event before any was read.
_USUAL_EVENT_BYTES: Final = 1024
# Committed events are returned at once; the wait is for a node that restarted and is still recovering its logs.
_MAX_WAIT_MS: Final = 500
# Empty responses in a range that must have events before the read fails: half a minute of waiting.
_MAX_EMPTY_ANSWERS: Final = 60
_READ_COMMITTED: Final = 1
# Interpolation steps before the search falls back to bisection, for logs whose event sizes vary a lot.
_MAX_INTERPOLATIONS: Final = 8
# Pending requests while many partitions are searched; each response has one batch.
_MAX_PROBES_IN_FLIGHT: Final = 32
UNKNOWN_POSITION: Final = -1


class Bounds(NamedTuple):
    """Sequence numbers of a partition: `first` inclusive, `end` exclusive."""

    first: int
    end: int


class HubDescription(NamedTuple):
    """A hub as the Metadata response describes it."""

    id: str | None  # changes when a hub is deleted and created again; None if the broker has no topic ids
    partition_count: int


class Fetched(NamedTuple):
    """Whole closed batches of one partition, in order."""

    data: memoryview
    position: int  # byte position of the first batch, UNKNOWN_POSITION if the node keeps none
    next_sequence: int  # first sequence number after the batches
    aborted: tuple[tuple[int, int], ...]  # producer id and first sequence number of aborted transactions
    # Ranges (first inclusive, end exclusive) of sequence numbers without a batch: events that are damaged on the node.
    # Always empty for compacted hubs, where gaps are normal.
    missing: tuple[tuple[int, int], ...] = ()

    def missing_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """The missing ranges, clipped to `start` (inclusive) and `end` (exclusive)."""
        clipped = [(max(first, start), min(behind, end)) for first, behind in self.missing]
        return [(first, behind) for first, behind in clipped if first < behind]


class PlacedBatch(NamedTuple):
    """The header of a batch and its byte position, UNKNOWN_POSITION if the node keeps none."""

    header: BatchHeader
    position: int


class ByteRange(NamedTuple):
    """A range of sequence numbers, and how many bytes of it to read."""

    start: int
    end: int
    size_bytes: int


# A search as a generator: yields the sequence number of a batch to probe, receives that batch, returns the result.
_Search = Generator[int, PlacedBatch | None, int]


@dataclass(frozen=True, slots=True)
class _FetchTarget:
    partition: int
    sequence: int
    max_bytes: int


class HubReader:
    """Reads one hub with one client. Thread rule: one owner."""

    def __init__(self, client: Client, hub: str) -> None:
        self._client = client
        self._hub = hub

    # --- metadata and positions ---

    def partition_count(self) -> int:
        """The current number of partitions."""
        return self.describe().partition_count

    def describe(self) -> HubDescription:
        """The current id and partition count of the hub."""
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name=self._hub),), allow_auto_topic_creation=False)

        def attempt(connection: Connection) -> HubDescription:
            (topic,) = connection.ask(wanted).topics
            self._check(topic.error_code, f"hub '{self._hub}'")
            return HubDescription(str(topic.topic_id) if topic.topic_id.int else None, len(topic.partitions))

        return self._client.call(attempt)

    def bounds(self, partitions: Collection[int]) -> dict[int, Bounds]:
        """The current bounds of each partition; the end is the last stable offset."""

        def attempt(connection: Connection) -> dict[int, Bounds]:
            connection.send(self._list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP)))
            connection.send(self._list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP)))
            ends = self._offsets_of(connection.receive())
            firsts = self._offsets_of(connection.receive())
            return {partition: Bounds(firsts[partition], ends[partition]) for partition in partitions}

        return self._client.call(attempt) if partitions else {}

    def first_at(self, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """For each partition the first sequence number enqueued at or after a time, or None if there is none yet."""

        def attempt(connection: Connection) -> dict[int, int | None]:
            found = self._offsets_of(connection.ask(self._list_offsets(times_ms)))
            return {partition: sequence if sequence >= 0 else None for partition, sequence in found.items()}

        return self._client.call(attempt) if times_ms else {}

    def has_ordered_times(self) -> bool:
        """Whether times of events never decrease. If not, events behind `first_at` may be older than its time."""
        return has_ordered_times(self._client, self._hub)

    def _list_offsets(self, times_ms: Mapping[int, int]) -> ListOffsetsRequest:
        partitions = tuple(ListOffsetsPartition(index=index, timestamp_ms=ms) for index, ms in times_ms.items())
        topics = (ListOffsetsTopic(name=self._hub, partitions=partitions),)
        return ListOffsetsRequest(isolation_level=_READ_COMMITTED, topics=topics)

    def _offsets_of(self, answer: Any) -> dict[int, int]:
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
        """Yield the batches with the events from `start` (inclusive) to `end` (exclusive).

        The first and the last batch may contain events outside the range. Raises RangeLost if the partition no longer
        has `start`, or does not reach `end`.
        """
        is_ahead = False
        empty = 0
        wanted = _next_target(partition, start, end, max_bytes, _USUAL_EVENT_BYTES)
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
                    wanted = _next_target(partition, start, end, max_bytes, event_bytes)
                    self._send_ahead(wanted)
                    is_ahead = True
                if len(fetched.data):
                    yield fetched
        finally:
            # The caller stopped early: a response is in flight that no other call may read.
            if is_ahead:
                self._client.close()

    def _send_ahead(self, wanted: _FetchTarget) -> None:
        self._client.call(lambda connection: connection.send(self._fetch_request(wanted)))

    def _fetch(self, wanted: _FetchTarget, *, is_sent: bool) -> Fetched:
        """Wait for one response. If the connection breaks while a request is in flight, the request is sent again."""
        sent_ahead = is_sent

        def attempt(connection: Connection) -> Fetched:
            nonlocal sent_ahead
            was_sent, sent_ahead = sent_ahead, False
            if not was_sent:
                connection.send(self._fetch_request(wanted))
            return self._read_response(wanted, connection.receive())

        return self._client.call(attempt)

    def _read_response(self, wanted: _FetchTarget, answer: Any) -> Fetched:
        if answer.error_code:
            raise Refused(f"hub '{self._hub}'", answer.error_code)
        ((part,),) = (topic.partitions for topic in answer.topics)
        return self._to_fetched(wanted, part)

    def _fetch_request(self, wanted: _FetchTarget) -> FetchRequest:
        part = FetchPartition(index=wanted.partition, fetch_offset=wanted.sequence, max_bytes=wanted.max_bytes)
        return FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=wanted.max_bytes,
            isolation_level=_READ_COMMITTED,
            topics=(FetchTopic(name=self._hub, partitions=(part,)),),
        )

    def _to_fetched(self, wanted: _FetchTarget, part: FetchPartitionResponse) -> Fetched:
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise RangeLost(
                self._hub, wanted.partition, wanted.sequence, part.log_start_offset, part.last_stable_offset
            )
        self._check(part.error_code, f"partition {part.index} of '{self._hub}'")
        data = memoryview(part.records or b"")  # type: ignore[arg-type]  # a decoded response has one buffer
        whole, next_sequence, missing = self._check_batches(data, wanted)
        aborted = tuple((gone.producer_id, gone.first_offset) for gone in part.aborted_transactions or ())
        # Only a hub without compaction has byte positions, and a batch for every sequence number.
        is_dense = part.log_position != UNKNOWN_POSITION
        return Fetched(data[:whole], part.log_position, next_sequence, aborted, tuple(missing) if is_dense else ())

    def _check_batches(self, data: memoryview, wanted: _FetchTarget) -> tuple[int, int, list[tuple[int, int]]]:
        """Verify checksums; returns the size of the whole batches, the next sequence number, and missing ranges."""
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

    def find_files(self, partition: int, start: int, end: int, boot_id: str) -> tuple[StoredFile, ...]:
        """The node's files with the first events from `start` (inclusive) to `end` (exclusive).

        Empty if they have to be fetched: the node is not on this machine, whose boot id is `boot_id`, or does not allow
        this. A server that is not Hubmere is not asked, and does not get the id.
        """
        asked = ListOffsetsPartition(index=partition, timestamp_ms=LATEST_TIMESTAMP, start_offset=start, files_end=end)
        topics = (ListOffsetsTopic(name=self._hub, partitions=(asked,)),)
        request = ListOffsetsRequest(isolation_level=_READ_COMMITTED, topics=topics, boot_id=boot_id)

        def attempt(connection: Connection) -> tuple[StoredFile, ...]:
            if not boot_id or not connection.is_local or not connection.is_hubmere:
                return ()
            ((part,),) = (topic.partitions for topic in connection.ask(request).topics)
            return tuple(part.files)

        return self._client.call(attempt)

    # --- byte positions ---

    def find_offset(self, partition: int, offset: int, *, inclusive: bool) -> int:
        """The first sequence number whose AMQP offset is after (or at) a byte position.

        Probes batches by interpolation, then by bisection: a few responses of one batch each. If the node keeps no byte
        positions (compacted hubs), the offset is the sequence number.
        """
        low, high = self.bounds([partition])[partition]
        search = _find_offset(low, high, offset if inclusive else offset + 1, low)
        return self._run_searches({partition: search})[partition]

    def find_after_bytes(self, partition: int, start: int, end: int, size_bytes: int) -> int:
        """Where a reader from `start` has read up to `size_bytes`: at least one batch, and no further than `end`.

        A Hubmere node counts whole batches. Where it cannot, the batch at the limit is divided by its bytes per event,
        and where there are no positions in bytes, all events count as large as the first ones.
        """
        return self.find_all_after_bytes({partition: ByteRange(start, end, size_bytes)})[partition]

    def find_all_after_bytes(self, ranges: Mapping[int, "ByteRange"]) -> dict[int, int]:
        """`find_after_bytes` for many partitions at once: one request to a Hubmere node.

        Another broker, and a compacted hub, leave the request without this answer: then batches are probed, with the
        requests of all partitions pipelined.
        """
        found = self._ask_after_bytes(ranges)
        left = {partition: each for partition, each in ranges.items() if partition not in found}
        return found | self._run_searches({partition: _find_after_bytes(*each) for partition, each in left.items()})

    def _ask_after_bytes(self, ranges: Mapping[int, "ByteRange"]) -> dict[int, int]:
        """The ends that the node names itself."""
        asked = tuple(
            ListOffsetsPartition(
                index=partition, timestamp_ms=LATEST_TIMESTAMP, start_offset=start, max_bytes=size_bytes
            )
            for partition, (start, end, size_bytes) in ranges.items()
            if start < end
        )
        topics = (ListOffsetsTopic(name=self._hub, partitions=asked),)
        request = ListOffsetsRequest(isolation_level=_READ_COMMITTED, topics=topics)
        answer = self._client.call(lambda connection: connection.ask(request)) if asked else None
        parts = [part for topic in answer.topics for part in topic.partitions] if answer is not None else []
        return {
            part.index: min(part.end_offset, ranges[part.index].end)
            for part in parts
            if not part.error_code and part.end_offset >= 0
        }

    def _run_searches(self, searches: Mapping[int, "_Search"]) -> dict[int, int]:
        """Run searches together: each round fetches one batch of every partition whose search is not finished."""
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

    def _batches_at(self, positions: Sequence[tuple[int, int]]) -> dict[int, PlacedBatch | None]:
        """`batch_at` for many partitions, with several requests in flight."""
        found: dict[int, PlacedBatch | None] = {}
        for first in range(0, len(positions), _MAX_PROBES_IN_FLIGHT):
            wanted = [
                _FetchTarget(partition, at, 1) for partition, at in positions[first : first + _MAX_PROBES_IN_FLIGHT]
            ]

            def attempt(connection: Connection, wanted: Sequence[_FetchTarget] = wanted) -> list[Fetched | None]:
                for each in wanted:
                    connection.send(self._fetch_request(each))
                answers = [connection.receive() for _ in wanted]
                return [self._probe_result(each, answer) for each, answer in zip(wanted, answers, strict=True)]

            for each, fetched in zip(wanted, self._client.call(attempt), strict=True):
                has_batch = fetched is not None and len(fetched.data) > 0
                found[each.partition] = (
                    PlacedBatch(read_header(fetched.data), fetched.position) if fetched and has_batch else None
                )
        return found

    def _probe_result(self, wanted: _FetchTarget, answer: Any) -> Fetched | None:
        """The batch of one response, or None if it no longer exists."""
        try:
            return self._read_response(wanted, answer)
        except RangeLost:
            return None

    def batch_at(self, partition: int, sequence: int) -> PlacedBatch | None:
        """The batch with an event, or the next one after a gap; None if it was deleted or does not exist yet."""
        return self._batches_at([(partition, sequence)])[partition]


def _next_target(partition: int, start: int, end: int, max_bytes: int, event_bytes: int) -> _FetchTarget:
    """The next fetch: at most what is left to read, estimated by the size of events so far plus an eighth."""
    left_bytes = (end - start) * (event_bytes + event_bytes // 8)
    return _FetchTarget(partition, start, min(max_bytes, max(_LEAST_FETCH_BYTES, left_bytes)))


def _find_offset(low: int, high: int, wanted: int, guess: int) -> _Search:
    """The first event between `low` and `high` whose byte position is at or after the wanted one."""
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
    if batch is None:
        return end
    behind, wanted = batch.header.next_sequence_number, batch.position + size_bytes
    if batch.position == UNKNOWN_POSITION:
        # A cluster, a compacted hub or another broker: the following events count as large as those of this batch.
        return min(end, max(start + size_bytes * _count(batch) // batch.header.size_bytes, behind))
    found = yield from _find_offset(behind, end, wanted, _guess(behind, end, batch, wanted))
    # Return at least one batch, so that a limit below its size still makes progress.
    return min(end, max(found, behind))


def _count(batch: PlacedBatch) -> int:
    return batch.header.last_delta + 1


def _last_offset(batch: PlacedBatch) -> int:
    return batch.position + batch.header.last_delta * batch.header.size_bytes // _count(batch)


def _sequence_at(batch: PlacedBatch, offset: int) -> int:
    index = index_at_offset(batch.position, batch.header.size_bytes, _count(batch), offset)
    return batch.header.base_sequence_number + index


def _guess(low: int, high: int, batch: PlacedBatch, wanted: int) -> int:
    """Interpolate the next probe from the last batch's bytes per event, clamped to the remaining range."""
    if low >= high:
        return low
    ahead = (wanted - batch.position) * _count(batch) // batch.header.size_bytes
    guessed = batch.header.base_sequence_number + ahead
    return guessed if low <= guessed < high else (low + high) // 2
