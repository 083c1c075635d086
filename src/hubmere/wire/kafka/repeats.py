"""Runs of small Produce requests: the constant bytes of repeated requests are decoded once, then only compared.

The requests of one producer to one topic differ in four places: correlation id, partition, length and batch.

1. The ordinary reader decodes a request; the bytes around these four places become a `Pattern`.
2. Following requests whose bytes match the pattern are returned together as one `ProduceRun`, which is answered as a
   whole.
3. A request that does not match goes to the ordinary reader, so nothing is refused here.

Follows the Kafka protocol guide (Produce, versions 3 to 9) and KIP-482 for the lengths.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from hubmere.records.varint import uvarint_bytes
from hubmere.wire.kafka.codegen import writer_of
from hubmere.wire.kafka.messages.produce import PRODUCE, ProduceRequest
from hubmere.wire.kafka.primitives import Buffer

# Up to this size, decoding a request costs more than copying it; larger ones mostly arrive one per read.
MAX_REPEATED_BYTES: Final = 16 * 1024
# Requests in one run: about as many as fit the largest read.
MAX_RUN: Final = 1024

ACKS_ALL: Final = -1
_LENGTH_BYTES: Final = 4
# Frame length, API key with version, correlation id.
_HEAD: Final = Struct(">iii")
_KEY_AND_VERSION: Final = Struct(">i")
_INDEX: Final = Struct(">i")
_INDEX_AND_LENGTH: Final = Struct(">ii")
_unpack_head, _unpack_index, _unpack_both = _HEAD.unpack_from, _INDEX.unpack_from, _INDEX_AND_LENGTH.unpack_from
# Partition, topic and request end with a tag section each; only empty ones match (KIP-482).
_NO_TAGS: Final = bytes(3)


class ProduceRun:
    """The body of several Produce requests of one topic, with one batch each and acks=all, in the order they came.

    The lists are parallel: correlation ids, partitions, and where each batch begins and ends in `data`.
    """

    __slots__ = (
        "_begin",
        "_tail_bytes",
        "correlation_ids",
        "data",
        "ends",
        "indexes",
        "starts",
        "timeout_ms",
        "topic",
        "version",
    )

    acks: Final = ACKS_ALL

    def __init__(self, pattern: "Pattern", data: bytes | bytearray, begin: int) -> None:
        self.topic = pattern.topic
        self.version = pattern.version
        self.timeout_ms = pattern.timeout_ms
        self.data = data
        self.correlation_ids: list[int] = []
        self.indexes: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._begin = begin
        self._tail_bytes = pattern.tail_bytes

    def __len__(self) -> int:
        return len(self.correlation_ids)

    def frames(self) -> Iterator[memoryview]:
        """The request frames as received, for the ordinary reader."""
        view, at = memoryview(self.data), self._begin
        for end in self.ends:
            stop = end + self._tail_bytes
            yield view[at + _LENGTH_BYTES : stop]
            at = stop


class Pattern:
    """The constant bytes of the requests of one producer to one topic."""

    __slots__ = (
        "_is_flexible",
        "_key_and_version",
        "_least_bytes",
        "_middle",
        "tail_bytes",
        "timeout_ms",
        "topic",
        "version",
    )

    def __init__(self, version: int, body: ProduceRequest, middle: bytes) -> None:
        self.version = version
        self.topic = body.topics[0].name
        self.timeout_ms = body.timeout_ms
        self._is_flexible = PRODUCE.is_flexible(version)
        self.tail_bytes = len(_NO_TAGS) if self._is_flexible else 0
        self._key_and_version: int = _KEY_AND_VERSION.unpack(PRODUCE.key.to_bytes(2) + version.to_bytes(2))[0]
        # Everything between the correlation id and the partition.
        self._middle = middle
        # Partition, a length in its widest supported form, and one byte of a batch.
        self._least_bytes = _HEAD.size - _LENGTH_BYTES + len(middle) + 8 + 1

    @classmethod
    def of(cls, version: int, frame: Buffer, body_at: int, body: ProduceRequest) -> "Pattern | None":
        """The pattern of a decoded request; None if it is of a kind that runs do not support."""
        if len(frame) > MAX_REPEATED_BYTES or body.acks != ACKS_ALL or body.transactional_id is not None:
            return None
        if len(body.topics) != 1 or len(body.topics[0].partitions) != 1 or not body.topics[0].partitions[0].records:
            return None
        flexible = PRODUCE.is_flexible(version)
        parts = writer_of(ProduceRequest, version, flexible)(body, bytearray())
        if b"".join(parts) != frame[body_at:]:
            return None  # it has bytes that we would not write, for example unknown tags
        records = body.topics[0].partitions[0].records
        before = len(frame) - body_at - len(records) - (len(_NO_TAGS) if flexible else 0)
        length_bytes = uvarint_bytes(len(records) + 1) if flexible else _LENGTH_BYTES
        index_at = body_at + before - length_bytes - _INDEX.size
        return cls(version, body, bytes(frame[_HEAD.size - _LENGTH_BYTES : index_at]))

    def take(self, data: bytes | bytearray, at: int) -> tuple[ProduceRun, int]:
        """The requests from `at` on that match the pattern, and the position of the first one that does not.

        The inner loop of producing, without function calls: a call would cost as much as the work in it.
        """
        run = ProduceRun(self, data, at)
        ids, indexes, starts, ends = run.correlation_ids, run.indexes, run.starts, run.ends
        middle, wanted, least, flexible = self._middle, self._key_and_version, self._least_bytes, self._is_flexible
        index_at, last = _HEAD.size + len(middle), len(data) - _LENGTH_BYTES - least
        while at <= last and len(ids) < MAX_RUN:
            length, key_and_version, correlation_id = _unpack_head(data, at)
            stop = at + _LENGTH_BYTES + length
            if (
                key_and_version != wanted
                or not least <= length <= MAX_REPEATED_BYTES
                or stop > len(data)
                or not data.startswith(middle, at + _HEAD.size)
            ):
                break
            start = at + index_at
            if flexible:
                (index,) = _unpack_index(data, start)
                size, start = data[start + 4], start + 5
                if size > 127:
                    size, start = size & 127 | data[start] << 7, start + 1
                    if size > 0x3FFF:
                        break  # three bytes of length: above MAX_REPEATED_BYTES
                size -= 1
                end = start + size
                if end + 3 != stop or data[end:stop] != _NO_TAGS:
                    break
            else:
                index, size = _unpack_both(data, start)
                start += 8
                end = start + size
                if end != stop:
                    break
            if size <= 0:
                break
            ids.append(correlation_id)
            indexes.append(index)
            starts.append(start)
            ends.append(end)
            at = stop
        return run, at
