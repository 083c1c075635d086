"""The header of a record batch: its fields, its layout in bytes, its checksum.

A batch is Kafka's record batch, version 2: a 61-byte big-endian header and the records behind it. The CRC-32C covers
everything from byte 21 to the end. The base sequence number and the leader epoch come before that, so numbering a batch
leaves its checksum valid. Nothing here reads a record.

Field names follow this project, where an event's Kafka offset is its sequence number and "offset" means a byte offset.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from hubmere.records.faults import UnreadableRecords

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
# Bytes that the length field does not count: the base sequence number and the length itself.
LENGTH_PREFIX_BYTES: Final = 12
MAGIC: Final = 2

# Positions of single fields, for code that reads or changes one field without the others.
LENGTH_AT: Final = 8
CRC_AT: Final = 17
# The checksum covers everything from the attributes on.
CHECKED_FROM: Final = 21
RECORD_COUNT_AT: Final = 57

# The bits of the attributes.
CODEC_MASK: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1
# Sequence numbers of a producer have 31 bits: 0 follows the largest one.
PRODUCER_SEQUENCE_MASK: Final = 0x7FFFFFFF
# A batch made inside the node carries this in place of a checksum until the log seals it.
UNSEALED: Final = 0

HEADER: Final = Struct(">qiibIhiqqqhii")
# Two parts of the same layout, for the inner loop of an append. Numbering and sealing write the first, from byte 0:
# base sequence number, length, leader epoch, magic, checksum. Stamping a time writes the second, from CHECKED_FROM:
# attributes, last delta, base time, newest time.
NUMBER_PART: Final = Struct(">qiibI")
TIME_PART: Final = Struct(">hiqq")
_CRC: Final = Struct(">I")
_LENGTH: Final = Struct(">i")
assert HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The fields of a header, in wire order; the comments give Kafka's name where it differs."""

    base_sequence_number: int  # baseOffset
    length: int  # batchLength
    leader_epoch: int  # partitionLeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_delta: int  # lastOffsetDelta
    base_time_ms: int  # baseTimestamp
    max_time_ms: int  # maxTimestamp
    producer_id: int
    producer_epoch: int
    producer_sequence: int  # baseSequence
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def next_sequence_number(self) -> int:
        """The first sequence number after this batch."""
        return self.base_sequence_number + self.last_delta + 1

    @property
    def codec(self) -> int:
        """Compression of the records, a `compression.Codec` if it is known."""
        return self.attributes & CODEC_MASK

    @property
    def is_append_time(self) -> bool:
        """Whether every record has `max_time_ms` as its time (Kafka: LogAppendTime)."""
        return bool(self.attributes & APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of events."""
        return bool(self.attributes & CONTROL)


# Positions in the tuple that `HEADER` unpacks, for loops in which making a `BatchHeader` would cost too much.
ATTRIBUTES_FIELD: Final = BatchHeader._fields.index("attributes")
MAX_TIME_FIELD: Final = BatchHeader._fields.index("max_time_ms")
PRODUCER_ID_FIELD: Final = BatchHeader._fields.index("producer_id")
RECORD_COUNT_FIELD: Final = BatchHeader._fields.index("record_count")


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header at a position; at least 61 bytes must follow it."""
    return BatchHeader(*HEADER.unpack_from(buffer, at))


def write_header(buffer: bytearray | memoryview, header: BatchHeader, at: int = 0) -> None:
    """Write a header over the first 61 bytes of a batch."""
    HEADER.pack_into(buffer, at, *header)


def checksum(batch: Buffer) -> int:
    """CRC-32C of the checked part of one whole batch."""
    return int(crc32c(memoryview(batch)[CHECKED_FROM:]))


def is_intact(batch: Buffer) -> bool:
    """Whether the checksum in the header matches the bytes of one whole batch."""
    return len(batch) >= HEADER_BYTES and checksum(batch) == _CRC.unpack_from(batch, CRC_AT)[0]


def seal(batch: bytearray | memoryview) -> None:
    """Write the checksum into the header, after a change of the checked part."""
    _CRC.pack_into(batch, CRC_AT, checksum(batch))


def split_batches(records: Buffer) -> Iterator[memoryview]:
    """The batches of a record set, each as a view; raises UnreadableRecords if the last one is cut off."""
    view = memoryview(records)
    at = 0
    while at < len(view):
        left = len(view) - at
        size_bytes = _LENGTH.unpack_from(view, at + LENGTH_AT)[0] + LENGTH_PREFIX_BYTES if left >= HEADER_BYTES else 0
        if not HEADER_BYTES <= size_bytes <= left:
            raise UnreadableRecords(f"a batch of {size_bytes} bytes with {left} bytes left")
        yield view[at : at + size_bytes]
        at += size_bytes
