"""Zig-zag varints, as records use them: Protocol Buffers' encoding of signed numbers of 32 and 64 bits.

Every reader takes (buffer, at) and gives (value, next position); every writer appends to a bytearray.
"""

from typing import Final

from hubmere.records.faults import UnreadableRecords

Buffer = bytes | bytearray | memoryview

# Seven bits per byte: five bytes hold 32 bits, ten hold 64.
MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10


def read_varint(buffer: Buffer, at: int) -> tuple[int, int]:
    """A zig-zag varint of at most 32 bits."""
    try:
        raw = buffer[at]
        at += 1
        if raw >= 0x80:
            raw, at = _read_rest(buffer, at, raw & 0x7F, MAX_VARINT_BYTES)
    except IndexError:
        raise UnreadableRecords("a varint is cut off") from None
    return (raw >> 1) ^ -(raw & 1), at


def read_varlong(buffer: Buffer, at: int) -> tuple[int, int]:
    """A zig-zag varint of at most 64 bits."""
    try:
        raw = buffer[at]
        at += 1
        if raw >= 0x80:
            raw, at = _read_rest(buffer, at, raw & 0x7F, MAX_VARLONG_BYTES)
    except IndexError:
        raise UnreadableRecords("a varlong is cut off") from None
    return (raw >> 1) ^ -(raw & 1), at


def _read_rest(buffer: Buffer, at: int, value: int, max_bytes: int) -> tuple[int, int]:
    byte = buffer[at]
    if byte < 0x80:
        return value | byte << 7, at + 1
    value |= (byte & 0x7F) << 7
    for shift in range(14, 7 * max_bytes, 7):
        at += 1
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> (32 if max_bytes == MAX_VARINT_BYTES else 64):
                break
            return value, at + 1
    raise UnreadableRecords(f"a varint is larger than its {max_bytes} bytes can hold")


def write_varint(out: bytearray, value: int) -> None:
    """Append a zig-zag varint of up to 64 bits."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
