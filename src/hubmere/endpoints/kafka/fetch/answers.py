"""Answers to Fetch: the frame of an ordinary one is packed here, whatever else one may carry is written in general.

An answer to a waiting client is mostly a handful of numbers for each partition and one small batch, and a client that
is kept up to date gets a thousand of them a second: so these numbers are packed in one call for each partition. Aborted
transactions and our own tag are rare and take the way of every other response (`wire.kafka.connection`).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.records.varint import write_uvarint
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.framing import JOIN_BELOW_BYTES, fill_length
from hubmere.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
)
from hubmere.wire.kafka.primitives import Buffer

NO_POSITION: Final = -1
_ANY_REPLICA: Final = -1
_FLEXIBLE_SINCE: Final = 12
_SESSIONS_SINCE: Final = 7
# Heads of topics that are kept ready; there is one for each number of partitions.
_KEPT_TOPICS: Final = 1024
_NO_TAGS: Final = b"\x00"


class PartitionAnswer(NamedTuple):
    """What an answer says of one partition; `aborted` is None for clients that read everything."""

    partition: int
    code: int
    end: int
    stable_end: int
    start: int
    records: Buffer
    aborted: tuple[AbortedTransaction, ...] | None
    position: int

    @property
    def is_ordinary(self) -> bool:
        """Whether it is numbers and records only."""
        return not self.aborted and self.position == NO_POSITION


Topics = list[tuple[str, list[PartitionAnswer]]]

# Index, error, end, stable end, start (since 5), length of the aborted, replica (since 11), length of the records.
_pack_4 = Struct(">ihqqii").pack
_pack_5 = Struct(">ihqqqii").pack
_pack_11 = Struct(">ihqqqiii").pack
# The same with compact lengths; that of the records follows.
_pack_12 = Struct(">ihqqqbi").pack
# Frame length, correlation id, (tags,) throttle time, (error, session, both since 7,) number of topics.
_head_4 = Struct(">iiii").pack
_head_7 = Struct(">iiihii").pack
_head_12 = Struct(">ii1sihi").pack
_pack_length = Struct(">h").pack
_pack_count = Struct(">i").pack


def _part_4(told: PartitionAnswer) -> bytes:
    aborted = -1 if told.aborted is None else 0
    return _pack_4(told.partition, told.code, told.end, told.stable_end, aborted, len(told.records))


def _part_5(told: PartitionAnswer) -> bytes:
    index, code, end, stable_end, start, records, aborted, _ = told
    return _pack_5(index, code, end, stable_end, start, -1 if aborted is None else 0, len(records))


def _part_11(told: PartitionAnswer) -> bytes:
    index, code, end, stable_end, start, records, aborted, _ = told
    return _pack_11(index, code, end, stable_end, start, -1 if aborted is None else 0, _ANY_REPLICA, len(records))


def _part_12(told: PartitionAnswer) -> bytes:
    index, code, end, stable_end, start, records, aborted, _ = told
    part = bytearray(_pack_12(index, code, end, stable_end, start, aborted is not None, _ANY_REPLICA))
    write_uvarint(part, len(records) + 1)
    return bytes(part)


_PARTS: Final[Mapping[int, Callable[[PartitionAnswer], bytes]]] = {
    4: _part_4,
    **dict.fromkeys(range(5, 11), _part_5),
    11: _part_11,
    12: _part_12,
}


def send(session: KafkaSession, request: Request, *, throttle_ms: int, session_id: int, topics: Topics) -> None:
    """Answer a fetch."""
    if all(told.is_ordinary for _, parts in topics for told in parts):
        frame = Frame(request.version, request.correlation_id, throttle_ms, session_id, len(topics))
        for name, parts in topics:
            frame.add_topic(name, len(parts))
            for told in parts:
                frame.add(told)
            frame.end_topic()
        session.respond_buffers(request, frame.buffers())
    else:
        session.respond(request, response_of(throttle_ms, session_id, topics))


class Frame:
    """The frame of an answer whose partitions are all ordinary; large records stay where they are."""

    __slots__ = ("_buffers", "_is_flexible", "_pack_part", "out", "tail")

    def __init__(self, version: int, correlation_id: int, throttle_ms: int, session_id: int, topics: int) -> None:
        self._pack_part = _PARTS[version]
        self._is_flexible = version >= _FLEXIBLE_SINCE
        # The empty tag section with which every struct of a flexible version ends.
        self.tail = _NO_TAGS if self._is_flexible else b""
        self.out = _head(version, correlation_id, throttle_ms, session_id, topics)
        self._buffers: list[Buffer] = [self.out]

    def add_topic(self, name: str, partitions: int) -> None:
        """Begin a topic of so many partitions."""
        self.out += _flexible_topic(name, partitions) if self._is_flexible else _topic(name, partitions)

    def add(self, told: PartitionAnswer) -> None:
        """Say something of a partition."""
        self.out += self._pack_part(told)
        if len(told.records) < JOIN_BELOW_BYTES:
            self.out += told.records
        else:
            self.out = bytearray()
            self._buffers += (told.records, self.out)
        self.out += self.tail

    def end_topic(self) -> None:
        """The last partition of a topic was added."""
        self.out += self.tail

    def buffers(self) -> list[Buffer]:
        """The whole frame; nothing is added any more."""
        self.out += self.tail
        return fill_length(self._buffers)


def quiet_part(version: int, told: PartitionAnswer) -> bytes:
    """What a frame says of a partition without events, to be added to `Frame.out` as often as nothing changes."""
    return _PARTS[version](told) + (_NO_TAGS if version >= _FLEXIBLE_SINCE else b"")


def _head(version: int, correlation_id: int, throttle_ms: int, session_id: int, topics: int) -> bytearray:
    if version < _SESSIONS_SINCE:
        return bytearray(_head_4(0, correlation_id, throttle_ms, topics))
    if version < _FLEXIBLE_SINCE:
        return bytearray(_head_7(0, correlation_id, throttle_ms, ErrorCode.NONE, session_id, topics))
    head = bytearray(_head_12(0, correlation_id, _NO_TAGS, throttle_ms, ErrorCode.NONE, session_id))
    write_uvarint(head, topics + 1)
    return head


@lru_cache(_KEPT_TOPICS)
def _topic(name: str, partitions: int) -> bytes:
    encoded = name.encode()
    return _pack_length(len(encoded)) + encoded + _pack_count(partitions)


@lru_cache(_KEPT_TOPICS)
def _flexible_topic(name: str, partitions: int) -> bytes:
    encoded, out = name.encode(), bytearray()
    write_uvarint(out, len(encoded) + 1)
    out += encoded
    write_uvarint(out, partitions + 1)
    return bytes(out)


def response_of(throttle_ms: int, session_id: int, topics: Topics) -> FetchResponse:
    """The same answer as a message."""
    return FetchResponse(
        throttle_time_ms=throttle_ms,
        error_code=ErrorCode.NONE,
        session_id=session_id,
        topics=tuple(
            FetchTopicResponse(name=name, partitions=tuple([_part_of(told) for told in parts]))
            for name, parts in topics
        ),
    )


def _part_of(told: PartitionAnswer) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        index=told.partition,
        error_code=told.code,
        high_watermark=told.end,
        last_stable_offset=told.stable_end,
        log_start_offset=told.start,
        log_position=told.position,
        aborted_transactions=told.aborted,
        records=told.records,
    )
