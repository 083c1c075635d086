"""Variable-length integers, as records (zig-zag) and flexible Kafka messages (unsigned, KIP-482) use them.

The encoding is that of Protocol Buffers: seven bits to a byte, least significant first; the high bit says that more
bytes follow. Every reader takes (buffer, at, end) and returns (value, next position); writers append to a bytearray.
The kernels and the Cython modules have inlined copies: a call for each number would cost more than decoding it.
"""

from hubmere.records.faults import UnreadableRecords

Buffer = bytes | bytearray | memoryview


class BadVarint(UnreadableRecords):
    """A number that is cut off or has more bits than its type."""

    def __init__(self) -> None:
        super().__init__("a number is cut off or too long")


def read_uvarint(buffer: Buffer, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    """An unsigned varint of at most `bits` bits."""
    value = shift = 0
    while at < end and shift < bits:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, at
        shift += 7
    raise BadVarint


def read_varint(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """A zig-zag varint of at most 32 bits."""
    if at < end and (raw := buffer[at]) < 0x80:
        return (raw >> 1) ^ -(raw & 1), at + 1
    raw, at = read_uvarint(buffer, at, end)
    return (raw >> 1) ^ -(raw & 1), at


def read_varlong(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """A zig-zag varint of at most 64 bits."""
    raw, at = read_uvarint(buffer, at, end, 64)
    return (raw >> 1) ^ -(raw & 1), at


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a zig-zag varint of up to 64 bits."""
    write_uvarint(out, (value << 1) ^ (value >> 63))


def uvarint_bytes(value: int) -> int:
    """The size of an unsigned varint."""
    return max(1, -(-value.bit_length() // 7))
