"""Encoded responses to Produce: a template for an accepted batch, and the frame of a refused one.

Most requests carry one batch, and encoding the response by its message class would take half of the time of such a
request. So the response for one accepted batch is encoded once for each topic and version, and only its numbers are
packed for each request.
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

# Topics and versions whose template is cached.
_CACHED_TEMPLATES: Final = 1024
# An index that no partition has: it marks the position of the numbers in the encoded sample.
_MARK: Final = 0x7E57_AB1E
_LOG_START_SINCE: Final = 5
# The frame's length, then the correlation id.
_LENGTH_BYTES: Final = 4
_HEAD_BYTES: Final = 8


class ResponseTemplate:
    """The response for one accepted batch of a topic, in one version."""

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

    def encode(self, correlation_id: int, index: int, base_offset: int, append_time_ms: int, log_start: int) -> bytes:
        """The frame for a batch that was accepted."""
        length, between, tail = self._length, self._between, self._tail
        if self._has_log_start:
            return self._pack(length, correlation_id, between, index, 0, base_offset, append_time_ms, log_start, tail)
        return self._pack(length, correlation_id, between, index, 0, base_offset, append_time_ms, tail)


response_template = lru_cache(maxsize=_CACHED_TEMPLATES)(ResponseTemplate)


def encode_refusal(version: int, correlation_id: int, topic: str, part: ProducePartitionResponse) -> bytes:
    """The frame for a batch that was refused."""
    response = ProduceResponse(topics=(ProduceTopicResponse(name=topic, partitions=(part,)),))
    return frame_response(PRODUCE, version, correlation_id, response)
