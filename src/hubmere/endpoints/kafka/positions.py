"""Handlers for ListOffsets and OffsetForLeaderEpoch (reference: kafka 2.9).

Only a search by a producer's timestamp decodes a batch, and only the one that contains the result.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from hubmere.broker import PartitionView, leader_epoch_refusal
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.fetch.fetch import READ_COMMITTED, reads_log_alone
from hubmere.endpoints.kafka.gather import duplicates_of
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import (
    Steps,
    Wait,
    WaitingSteps,
    encode_part,
    in_slices,
    open_ahead,
    until_known,
    until_open,
)
from hubmere.model.errors import Refusal
from hubmere.model.position import Position
from hubmere.records.header import read_header, split_batches
from hubmere.records.records import decode_records
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    EpochPartition,
    EpochTopicResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    StoredFile,
)
from hubmere.wire.kafka.schema import EncodedStruct

_NONE: Final = (-1, -1)


@in_slices
def list_offsets(session: KafkaSession, request: Request) -> WaitingSteps:
    """Offsets for timestamps and for the two ends; a partition that is named twice is refused, as in Kafka."""
    body: ListOffsetsRequest = request.body
    committed_only = body.isolation_level == READ_COMMITTED
    duplicates = duplicates_of((topic.name, part.index) for topic in body.topics for part in topic.partitions)
    topics: list[EncodedStruct] = []
    for topic in body.topics:
        partitions: list[ListOffsetsPartitionResponse] = []
        yield from _open_ahead(session, topic.name, [part.index for part in topic.partitions])
        for part in topic.partitions:
            if (topic.name, part.index) in duplicates:
                partitions.append(_duplicate(part.index))
            else:
                view_of = partial(_view, session, topic.name, stored_only=reads_log_alone(request))
                found = yield from _list_offset(session, topic.name, part, view_of, committed_only=committed_only)
                if body.boot_id and part.files_end >= 0 and not found.error_code:
                    found = replace(found, files=_files(session, topic.name, part, body.boot_id))
                partitions.append(found)
            yield None
        topics.append(encode_part(request, ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions))))
    session.respond(request, ListOffsetsResponse(topics=tuple(topics)))


def _open_ahead(session: KafkaSession, topic: str, partitions: Sequence[int]) -> Steps:
    """Begin to open the logs of a topic; what forbids it is reported for each partition."""
    with suppress(Refusal):
        yield from open_ahead(session.caller.readable(topic, session.now_s), partitions)


def _duplicate(index: int) -> ListOffsetsPartitionResponse:
    offset, time_ms = _NONE
    return ListOffsetsPartitionResponse(
        index=index, error_code=ErrorCode.INVALID_REQUEST, timestamp_ms=time_ms, offset=offset
    )


def _view(session: KafkaSession, topic: str, index: int, *, stored_only: bool) -> PartitionView:
    view = session.caller.readable(topic, session.now_s).require_partition(index)
    return view.log_only if stored_only else view


def _list_offset(
    session: KafkaSession,
    topic: str,
    partition: ListOffsetsPartition,
    view_of: Callable[[int], PartitionView],
    *,
    committed_only: bool,
) -> Generator[Wait | None, None, ListOffsetsPartitionResponse]:
    try:
        view = view_of(partition.index)
        yield from until_open(view)
        epoch = view.leader_epoch
        code = _check_epoch(partition.current_leader_epoch, epoch)
        offset, time_ms = _NONE
        if not code:
            offset, time_ms = yield from _find_offset(view, partition.timestamp_ms, committed_only=committed_only)
        end = -1 if code else _end_after_bytes(view, partition, committed_only=committed_only)
    except Refusal as refusal:
        session.log_refusal("a Kafka request for offsets", refusal, topic)
        code, (offset, time_ms), epoch, end = code_of(refusal), _NONE, -1, -1
    return ListOffsetsPartitionResponse(
        index=partition.index, error_code=code, timestamp_ms=time_ms, offset=offset, leader_epoch=epoch, end_offset=end
    )


def _end_after_bytes(view: PartitionView, asked: ListOffsetsPartition, *, committed_only: bool) -> int:
    """Where a reader stops that takes whole batches of so many bytes, and one at least; -1 if it cannot be said.

    Compacted logs have no byte offsets; a start that the log does not hold is for the reader to notice.
    """
    state, start = view.state, asked.start_offset
    end = state.last_stable if committed_only else state.committed
    if asked.max_bytes < 0 or view.offsets_are_sequences or not state.log_start <= start < end:
        return -1
    first = view.read(start, 1)
    if first is None:
        return -1
    found = view.find(Position.offset(first.offset + asked.max_bytes, inclusive=True))
    last = view.read(found, 1) if first.next_sequence < found < end else None
    return min(end, max(found if last is None else last.first_sequence, first.next_sequence))


def _files(session: KafkaSession, topic: str, asked: ListOffsetsPartition, boot_id: str) -> tuple[StoredFile, ...]:
    """The files with a range of stable events, if the client is on this machine; empty: it has to fetch them."""
    try:
        reader = session.caller.follow(topic, asked.index, _ignore, session.now_s, stored_only=True)
        with closing(reader):
            found = reader.file_ranges(asked.start_offset, asked.files_end, boot_id, session.now)
    except Refusal:
        return ()
    return tuple(
        StoredFile(
            path=each.path,
            file_id=each.file_id,
            position=each.position,
            end_position=each.end_position,
            log_position=each.offset,
            first_offset=each.first_sequence,
            end_offset=each.next_sequence,
        )
        for each in found
    )


def _ignore() -> None:
    """The partition has moved."""


def _check_epoch(asked: int, current: int) -> ErrorCode:
    refusal = leader_epoch_refusal(asked, current)
    return ErrorCode.NONE if refusal is None else code_of(refusal)


def _find_offset(
    view: PartitionView, wanted_ms: int, *, committed_only: bool
) -> Generator[Wait | None, None, tuple[int, int]]:
    """Offset and time of the first event at or after a time, or of one of the ends."""
    state = view.state
    end = state.last_stable if committed_only else state.committed
    if wanted_ms == LATEST_TIMESTAMP:
        return end, -1
    if wanted_ms == EARLIEST_TIMESTAMP:
        yield from until_known(view, lambda each: each.require_found(Position.first()))
        return view.state.log_start, -1
    if wanted_ms == MAX_TIMESTAMP:
        wanted_ms = state.last_enqueued_ms
    if wanted_ms < 0:
        return _NONE
    position = Position.time(wanted_ms, inclusive=True)
    yield from until_known(view, lambda each: each.require_found(position))
    found = view.find(position)
    if found >= end:
        return _NONE
    yield from until_known(view, lambda each: each.require_loaded(found))
    return found, _time_of(view, found)


def _time_of(view: PartitionView, offset: int) -> int:
    """The time of one record: from the header if the log has stamped it, else from the record."""
    chunk = view.read(offset, 1)
    assert chunk is not None
    batch = next(split_batches(chunk.data))
    header = read_header(batch)
    if header.is_append_time:
        return header.max_time_ms
    # Compaction may have removed the record: then the next one counts.
    times = (record.time_ms for record in decode_records(batch) if record.sequence_number >= offset)
    return next(times, header.max_time_ms)


@in_slices
def offset_for_leader_epoch(session: KafkaSession, request: Request) -> WaitingSteps:
    """Where a leader epoch ended. The ends of older epochs are not stored: each of them gets the end of the log, from
    which a reader beyond it concludes that events were lost.
    """
    body: OffsetForLeaderEpochRequest = request.body
    topics: list[EpochTopicResponse] = []
    for topic in body.topics:
        partitions: list[EpochEndOffset] = []
        yield from _open_ahead(session, topic.name, [part.index for part in topic.partitions])
        for part in topic.partitions:
            partitions.append((yield from _epoch_end(session, topic.name, part)))
            yield None
        topics.append(EpochTopicResponse(name=topic.name, partitions=tuple(partitions)))
    session.respond(request, OffsetForLeaderEpochResponse(topics=tuple(topics)))


def _epoch_end(
    session: KafkaSession, topic: str, partition: EpochPartition
) -> Generator[Wait | None, None, EpochEndOffset]:
    try:
        view = session.caller.readable(topic, session.now_s).require_partition(partition.index)
        yield from until_open(view)
        epoch = view.leader_epoch
    except Refusal as refusal:
        session.log_refusal("a Kafka request for offsets", refusal, topic)
        return EpochEndOffset(error_code=code_of(refusal), index=partition.index)
    code = _check_epoch(partition.current_leader_epoch, epoch)
    if code or partition.leader_epoch > epoch:
        return EpochEndOffset(error_code=code, index=partition.index)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        index=partition.index,
        leader_epoch=partition.leader_epoch,
        end_offset=view.state.committed,
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    LIST_OFFSETS.key: list_offsets,
    OFFSET_FOR_LEADER_EPOCH.key: offset_for_leader_epoch,
}
