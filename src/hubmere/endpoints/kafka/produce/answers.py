"""Answers to Produce: the frame for one batch that was taken, ready but for its numbers, and the frame for a refusal.

Most requests carry one batch, and half of what such a request costs us in Python would be its answer: so its frame is
encoded once for each topic and version, and only its numbers are packed anew.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

from hubmere.wire.kafka.connection import frame_response
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import (
    PRODUCE,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)

# Topics and versions for which the shape of an answer is kept ready.
_KEPT_SHAPES: Final = 1024
# An index that no partition has, to be found again in an encoded answer.
_MARK: Final = 0x7E57_AB1E
_LOG_START_SINCE: Final = 5
# The frame's length, then the correlation id.
_LENGTH_BYTES: Final = 4
_HEAD_BYTES: Final = 8


class Shape:
    """The answer for one batch of a topic in one version."""

    __slots__ = ("_between", "_has_log_start", "_length", "_pack", "_tail")

    def __init__(self, topic: str, version: int) -> None:
        part = ProducePartitionResponse(index=_MARK, error_code=ErrorCode.NONE, base_offset=-1)
        sample = ProduceResponse(topics=(ProduceTopicResponse(name=topic, partitions=(part,)),))
        frame = frame_response(PRODUCE, version, 0, sample)
        self._has_log_start = version >= _LOG_START_SINCE
        numbers = Struct(">ihqqq" if self._has_log_start else ">ihqq")
        at = frame.rindex(_MARK.to_bytes(4, "big"))
        self._length = frame[:_LENGTH_BYTES]
        self._between = frame[_HEAD_BYTES:at]
        self._tail = frame[at + numbers.size :]
        layout = f">{_LENGTH_BYTES}si{len(self._between)}s{numbers.format[1:]}{len(self._tail)}s"
        self._pack = Struct(layout).pack

    def frame(self, correlation_id: int, index: int, base_offset: int, append_time_ms: int, log_start: int) -> bytes:
        """The whole answer for a batch that was taken."""
        if self._has_log_start:
            return self._pack(
                self._length,
                correlation_id,
                self._between,
                index,
                0,
                base_offset,
                append_time_ms,
                log_start,
                self._tail,
            )
        return self._pack(
            self._length, correlation_id, self._between, index, 0, base_offset, append_time_ms, self._tail
        )


shape_of = lru_cache(maxsize=_KEPT_SHAPES)(Shape)


def refused_frame(version: int, correlation_id: int, topic: str, part: ProducePartitionResponse) -> bytes:
    """The whole answer for a batch that was not taken."""
    answer = ProduceResponse(topics=(ProduceTopicResponse(name=topic, partitions=(part,)),))
    return frame_response(PRODUCE, version, correlation_id, answer)
