"""The Kafka v2 record batch as the unit of storage: its header, its stamp, its checksum, and the receipt of an append.

A batch is never opened here. Layout: Kafka record batch v2, 61-byte big-endian header, CRC-32C from byte 21 to the end;
base offset and leader epoch stand before the checksum, so that numbering a batch does not touch it.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
# Bytes before the part that `batch_length` counts: base offset and the length itself.
LENGTH_PREFIX_BYTES = 12
CHECKED_FROM = 21
MAGIC = 2

CODEC_MASK = 0x07
APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

NO_PRODUCER = -1
# A batch made inside the node carries this in place of a checksum until the log seals it.
UNSEALED = 0

_HEADER = Struct(">qiibIhiqqqhii")
# The same bytes in two pieces, for the append's inner loop: what numbering and sealing write (from byte 0), and what
# stamping a time writes (from byte 21: attributes, last delta, base time, newest time).
HEADER = _HEADER
NUMBER_PART = Struct(">qiibI")
TIME_PART = Struct(">hiqq")
_CRC = Struct(">I")
_STAMP = Struct(">qii")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
assert _HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records, in wire order."""

    base_sequence_number: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_time_ms: int
    max_time_ms: int
    producer_id: int
    producer_epoch: int
    producer_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch on disk and on the wire."""
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def next_sequence_number(self) -> int:
        """The first sequence number after this batch."""
        return self.base_sequence_number + self.last_delta + 1

    @property
    def is_control(self) -> bool:
        """Whether this is a transaction marker rather than events."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def codec(self) -> int:
        """Compression of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK


class BatchRun(NamedTuple):
    """Closed batches for one partition, one behind the other; `headers` are their fields in wire order.

    They are all of one producer with numbers that follow each other, or all of producers that do not number.
    """

    data: bytearray
    sizes: Sequence[int]
    headers: Sequence[tuple[int, ...]]
    events: int


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header at a place; the caller has made sure that 61 bytes are there."""
    return BatchHeader(*_HEADER.unpack_from(buffer, at))


def write_header(buffer: bytearray | memoryview, header: BatchHeader, at: int = 0) -> None:
    """Lay a header over the first 61 bytes of a batch."""
    _HEADER.pack_into(buffer, at, *header)


def checksum(batch: Buffer) -> int:
    """CRC-32C of the checked part of one whole batch."""
    return int(crc32c(memoryview(batch)[CHECKED_FROM:]))


def is_intact(batch: Buffer) -> bool:
    """Whether the checksum in the header is that of the bytes."""
    return checksum(batch) == int(_CRC.unpack_from(batch, 17)[0])


def seal(batch: bytearray | memoryview) -> None:
    """Write the checksum after the checked part was changed."""
    _CRC.pack_into(batch, 17, checksum(batch))


def stamp(batch: bytearray | memoryview, *, base_sequence_number: int, leader_epoch: int) -> None:
    """Number a batch: outside the checksum, so nothing else changes."""
    _STAMP.pack_into(batch, 0, base_sequence_number, len(batch) - LENGTH_PREFIX_BYTES, leader_epoch)


def stamp_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Give every event of a batch the time of its append, and seal it (Kafka: LogAppendTime)."""
    attributes: int = _ATTRIBUTES.unpack_from(batch, CHECKED_FROM)[0]
    _ATTRIBUTES.pack_into(batch, CHECKED_FROM, attributes | APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(batch, 35, now_ms)
    seal(batch)


class Receipt:
    """What a publish returns: where the events will stand, and whether they are durable yet.

    Thread rule: made and completed on the thread that owns the partition. `sequence_number`, `offset` and
    `enqueued_at_ms` hold from the moment `is_done` (an engine in front of a cluster learns them only then).
    """

    __slots__ = (
        "_callback",
        "count",
        "enqueued_at_ms",
        "error",
        "is_done",
        "is_duplicate",
        "offset",
        "sequence_number",
        "size_bytes",
    )

    def __init__(self, count: int, size_bytes: int, callback: "Callable[[Receipt], None] | None" = None) -> None:
        self.count = count
        self.size_bytes = size_bytes
        self.sequence_number = -1
        self.offset = -1
        self.enqueued_at_ms = -1
        self.is_duplicate = False
        self.is_done = False
        self.error: Exception | None = None
        self._callback = callback

    def complete(self, error: Exception | None = None) -> None:
        """Settle the receipt once: durable, or failed with the refusal to hand on."""
        self.error = error
        self.is_done = True
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)


def spread_offset(batch_offset: int, size_bytes: int, count: int, index: int) -> int:
    """The byte number of one event: the batch's bytes shared out over its events.

    A batch has more bytes than events, so the numbers are unique and increasing and stay inside the batch.
    """
    return batch_offset + index * size_bytes // count


def index_at_offset(batch_offset: int, size_bytes: int, count: int, offset: int) -> int:
    """The first event of a batch whose byte number is at or after `offset`; `count` when there is none."""
    if offset <= batch_offset:
        return 0
    # Smallest i with i * size // count >= d, which is the ceiling of d * count / size.
    return min(count, -(-(offset - batch_offset) * count // size_bytes))
