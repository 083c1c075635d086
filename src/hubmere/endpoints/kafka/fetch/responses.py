"""Encoded responses to Fetch: the frame of a plain one is packed here, any other is encoded by its message class.

A response is mostly a handful of numbers for each partition and one small batch, and a client that keeps up gets a
thousand of them a second. So these numbers are packed with one call for each partition. Aborted transactions and our
own tag are rare and are encoded like every other response (`wire.kafka.connection`).
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
# Encoded topic headers that are cached; there is one for each number of partitions.
_CACHED_TOPICS: Final = 1024
_NO_TAGS: Final = b"\x00"


class PartitionAnswer(NamedTuple):
    """The answer for one partition; `aborted` is None for clients that read uncommitted events."""

    partition: int
    code: int
    end: int
    stable_end: int
    start: int
    records: Buffer
    aborted: tuple[AbortedTransaction, ...] | None
    position: int

    @property
    def is_plain(self) -> bool:
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
_CORRELATION_ID: Final = slice(4, 8)
_pack_id = Struct(">i").pack
_pack_length = Struct(">h").pack
_pack_count = Struct(">i").pack


def _encode_4(answer: PartitionAnswer) -> bytes:
    aborted = -1 if answer.aborted is None else 0
    return _pack_4(answer.partition, answer.code, answer.end, answer.stable_end, aborted, len(answer.records))


def _encode_5(answer: PartitionAnswer) -> bytes:
    index, code, end, stable_end, start, records, aborted, _ = answer
    return _pack_5(index, code, end, stable_end, start, -1 if aborted is None else 0, len(records))


def _encode_11(answer: PartitionAnswer) -> bytes:
    index, code, end, stable_end, start, records, aborted, _ = answer
    return _pack_11(index, code, end, stable_end, start, -1 if aborted is None else 0, _ANY_REPLICA, len(records))


def _encode_12(answer: PartitionAnswer) -> bytes:
    index, code, end, stable_end, start, records, aborted, _ = answer
    part = bytearray(_pack_12(index, code, end, stable_end, start, aborted is not None, _ANY_REPLICA))
    write_uvarint(part, len(records) + 1)
    return bytes(part)


_ENCODERS: Final[Mapping[int, Callable[[PartitionAnswer], bytes]]] = {
    4: _encode_4,
    **dict.fromkeys(range(5, 11), _encode_5),
    11: _encode_11,
    12: _encode_12,
}


def send(session: KafkaSession, request: Request, *, throttle_ms: int, session_id: int, topics: Topics) -> None:
    """Send the response to a fetch."""
    if all(answer.is_plain for _, answers in topics for answer in answers):
        frame = FetchFrame(request.version, request.correlation_id, throttle_ms, session_id, len(topics))
        for name, answers in topics:
            frame.add_topic(name, len(answers))
            for answer in answers:
                frame.add(answer)
            frame.end_topic()
        session.respond_buffers(request, frame.buffers())
    else:
        session.respond(request, to_message(throttle_ms, session_id, topics))


def send_shared(session: KafkaSession, request: Request, throttle_ms: int, name: str, answer: PartitionAnswer) -> None:
    """Send a plain response for one partition with few events; all readers of a tail get the same frame."""
    context = session.context
    known = context.tail_response
    if known is None or not known.serves(request.version, throttle_ms, name, answer):
        frame = FetchFrame(request.version, 0, throttle_ms, 0, 1)
        frame.add_topic(name, 1)
        frame.add(answer)
        frame.end_topic()
        encoded = b"".join(frame.buffers())
        known = context.tail_response = SharedFrame(request.version, throttle_ms, name, answer, encoded)
    session.respond_buffers(request, [known.with_id(request.correlation_id)])


class FetchFrame:
    """The frame of a response whose answers are all plain; large records are not copied."""

    __slots__ = ("_buffers", "_encode", "_is_flexible", "out", "tail")

    def __init__(self, version: int, correlation_id: int, throttle_ms: int, session_id: int, topics: int) -> None:
        self._encode = _ENCODERS[version]
        self._is_flexible = version >= _FLEXIBLE_SINCE
        # The empty tag section with which every struct of a flexible version ends.
        self.tail = _NO_TAGS if self._is_flexible else b""
        self.out = _head(version, correlation_id, throttle_ms, session_id, topics)
        self._buffers: list[Buffer] = [self.out]

    def add_topic(self, name: str, partitions: int) -> None:
        """Begin a topic with this many partitions."""
        self.out += _flexible_topic(name, partitions) if self._is_flexible else _topic(name, partitions)

    def add(self, answer: PartitionAnswer) -> None:
        """Add the answer for a partition."""
        self.out += self._encode(answer)
        if len(answer.records) < JOIN_BELOW_BYTES:
            self.out += answer.records
        else:
            self.out = bytearray()
            self._buffers += (answer.records, self.out)
        self.out += self.tail

    def end_topic(self) -> None:
        """End the topic after its last partition."""
        self.out += self.tail

    def buffers(self) -> list[Buffer]:
        """The whole frame; nothing can be added after this."""
        self.out += self.tail
        return fill_length(self._buffers)


class SharedFrame(NamedTuple):
    """The last response with one partition and events that were given to a reader of a tail, for the next reader.

    `records` is compared by identity: readers of one tail get the same chunk.
    """

    version: int
    throttle_ms: int
    name: str
    answer: PartitionAnswer
    frame: bytes

    def serves(self, version: int, throttle_ms: int, name: str, answer: PartitionAnswer) -> bool:
        """Whether the response is the same, except for the correlation id."""
        known = self.answer
        return (
            known.records is answer.records
            and known.end == answer.end
            and known.stable_end == answer.stable_end
            and known.start == answer.start
            and known.partition == answer.partition
            and known.code == answer.code
            and known.aborted == answer.aborted
            and self.version == version
            and self.throttle_ms == throttle_ms
            and self.name == name
        )

    def with_id(self, correlation_id: int) -> bytearray:
        """The frame of the response to another request."""
        frame = bytearray(self.frame)
        frame[_CORRELATION_ID] = _pack_id(correlation_id)
        return frame


def encode_partition(version: int, answer: PartitionAnswer) -> bytes:
    """The encoded answer for a partition without events, for `FetchFrame.out`; valid until its numbers change."""
    return _ENCODERS[version](answer) + (_NO_TAGS if version >= _FLEXIBLE_SINCE else b"")


def _head(version: int, correlation_id: int, throttle_ms: int, session_id: int, topics: int) -> bytearray:
    if version < _SESSIONS_SINCE:
        return bytearray(_head_4(0, correlation_id, throttle_ms, topics))
    if version < _FLEXIBLE_SINCE:
        return bytearray(_head_7(0, correlation_id, throttle_ms, ErrorCode.NONE, session_id, topics))
    head = bytearray(_head_12(0, correlation_id, _NO_TAGS, throttle_ms, ErrorCode.NONE, session_id))
    write_uvarint(head, topics + 1)
    return head


@lru_cache(_CACHED_TOPICS)
def _topic(name: str, partitions: int) -> bytes:
    encoded = name.encode()
    return _pack_length(len(encoded)) + encoded + _pack_count(partitions)


@lru_cache(_CACHED_TOPICS)
def _flexible_topic(name: str, partitions: int) -> bytes:
    encoded, out = name.encode(), bytearray()
    write_uvarint(out, len(encoded) + 1)
    out += encoded
    write_uvarint(out, partitions + 1)
    return bytes(out)


def to_message(throttle_ms: int, session_id: int, topics: Topics) -> FetchResponse:
    """The same response as a message."""
    return FetchResponse(
        throttle_time_ms=throttle_ms,
        error_code=ErrorCode.NONE,
        session_id=session_id,
        topics=tuple(
            FetchTopicResponse(name=name, partitions=tuple([_to_partition_message(answer) for answer in answers]))
            for name, answers in topics
        ),
    )


def _to_partition_message(answer: PartitionAnswer) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        index=answer.partition,
        error_code=answer.code,
        high_watermark=answer.end,
        last_stable_offset=answer.stable_end,
        log_start_offset=answer.start,
        log_position=answer.position,
        aborted_transactions=answer.aborted,
        records=answer.records,
    )
