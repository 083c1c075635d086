"""Runs of small Produce requests: the constant bytes of repeated requests are decoded once, then only compared.

The requests of one producer to one topic differ in four places: correlation id, partition, length and batch.

1. The ordinary reader decodes a request; the bytes around these four places become a `Pattern`.
2. Following requests whose bytes match the pattern are returned together as one `ProduceRun`, which is answered as a
   whole.
3. A request that does not match goes to the ordinary reader, so nothing is refused here.

Follows the Kafka protocol guide (Produce, versions 3 to 9) and KIP-482 for the lengths.
"""

from collections.abc import Iterator
from typing import Final

from hubmere.records.kernels import take_requests
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
_HEAD_BYTES: Final = 12
_INDEX_BYTES: Final = 4
# Partition, topic and request end with an empty tag section each (KIP-482).
_TAGS_BYTES: Final = 3


class ProduceRun:
    """The body of several Produce requests of one topic, with one batch each and acks=all, in the order they came.

    The lists are parallel: correlation ids, partitions and batches.
    """

    __slots__ = ("_begin", "batches", "correlation_ids", "data", "indexes", "timeout_ms", "topic", "version")

    acks: Final = ACKS_ALL

    def __init__(
        self,
        pattern: "Pattern",
        data: bytes | bytearray,
        begin: int,
        correlation_ids: list[int],
        indexes: list[int],
        batches: list[bytes],
    ) -> None:
        self.topic = pattern.topic
        self.version = pattern.version
        self.timeout_ms = pattern.timeout_ms
        self.data = data
        self.correlation_ids = correlation_ids
        self.indexes = indexes
        self.batches = batches
        self._begin = begin

    def __len__(self) -> int:
        return len(self.correlation_ids)

    def frames(self) -> Iterator[memoryview]:
        """The request frames as received, for the ordinary reader."""
        view, at = memoryview(self.data), self._begin
        for _ in self.batches:
            start = at + _LENGTH_BYTES
            at = start + int.from_bytes(view[at:start], "big")
            yield view[start:at]


class Pattern:
    """The constant bytes of the requests of one producer to one topic."""

    __slots__ = ("_is_flexible", "_key_and_version", "_middle", "timeout_ms", "topic", "version")

    def __init__(self, version: int, body: ProduceRequest, middle: bytes) -> None:
        self.version = version
        self.topic = body.topics[0].name
        self.timeout_ms = body.timeout_ms
        self._is_flexible = PRODUCE.is_flexible(version)
        self._key_and_version = PRODUCE.key.to_bytes(2) + version.to_bytes(2)
        # Everything between the correlation id and the partition.
        self._middle = middle

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
        before = len(frame) - body_at - len(records) - (_TAGS_BYTES if flexible else 0)
        length_bytes = uvarint_bytes(len(records) + 1) if flexible else _LENGTH_BYTES
        index_at = body_at + before - length_bytes - _INDEX_BYTES
        return cls(version, body, bytes(frame[_HEAD_BYTES - _LENGTH_BYTES : index_at]))

    def take(self, data: bytes | bytearray, at: int) -> tuple[ProduceRun, int]:
        """The requests from `at` on that match the pattern, and the position of the first one that does not."""
        if data.startswith(self._middle, at + _HEAD_BYTES):
            end, ids, indexes, batches = take_requests(
                bytes(data),
                at,
                self._key_and_version,
                self._middle,
                self._is_flexible,
                MAX_REPEATED_BYTES,
                MAX_RUN,
            )
            return ProduceRun(self, data, at, ids, indexes, batches), end
        return ProduceRun(self, data, at, [], [], []), at
