"""Kafka's primitive types at a place in a buffer: varints, text, tag sections, UUIDs (fixed widths are `struct`'s).

Every reader takes (buffer, at) and gives (value, next place); every writer appends to a bytearray. A length is compared
with the bytes that are there before anything is allocated for it, and whatever is wrong with foreign bytes surfaces as
RemoteProtocolError. Nothing here knows a message. Follows the "Protocol Primitive Types" of the Kafka protocol guide;
varints are unsigned (KIP-482); those of records, which are signed, are `records.varint`.
"""

from typing import Final
from uuid import UUID

from hubmere.wire.kafka.errors import RemoteProtocolError

Buffer = bytes | bytearray | memoryview

ZERO_UUID: Final = UUID(int=0)

# Seven bits per byte: five bytes hold 32 bits.
MAX_VARINT_BYTES: Final = 5


def refuse_short(what: str, wanted: int, there: int) -> RemoteProtocolError:
    """A length that reaches beyond the message."""
    return RemoteProtocolError(f"{what} of length {wanted} with {there} bytes left")


def refuse_null(what: str) -> RemoteProtocolError:
    """A null where the protocol has none."""
    return RemoteProtocolError(f"{what} is null but must not be")


# --- varints ---------------------------------------------------------------------------------------------------------


def read_uvarint(buffer: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    try:
        byte = buffer[at]
        if byte < 0x80:
            return byte, at + 1
        return read_uvarint_rest(buffer, at + 1, byte)
    except IndexError:
        raise RemoteProtocolError("a varint is cut off") from None


def read_uvarint_rest(buffer: Buffer, at: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte said that there is more."""
    byte = buffer[at]
    if byte < 0x80:
        return first & 0x7F | byte << 7, at + 1
    value = first & 0x7F | (byte & 0x7F) << 7
    for shift in range(14, 7 * MAX_VARINT_BYTES, 7):
        at += 1
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, at + 1
    raise RemoteProtocolError(f"a varint is larger than its {MAX_VARINT_BYTES} bytes can hold")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# --- text ------------------------------------------------------------------------------------------------------------


def read_text(buffer: Buffer, at: int, length: int) -> str:
    """UTF-8 text of a known length."""
    if length > len(buffer) - at:
        raise refuse_short("a string", length, len(buffer) - at)
    try:
        return str(buffer[at : at + length], "utf-8")
    except UnicodeDecodeError:
        raise RemoteProtocolError("a string is not UTF-8") from None


# --- tag sections ----------------------------------------------------------------------------------------------------


def skip_tags(buffer: Buffer, at: int, count: int) -> int:
    """The place after a tag section whose count was read: nobody here knows its fields (KIP-482 wants them ignored)."""
    for _ in range(count):
        _, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        if size > len(buffer) - at:
            raise refuse_short("a tagged field", size, len(buffer) - at)
        at += size
    return at


def skip_tag_section(buffer: Buffer, at: int) -> int:
    """The place after a tag section of which no field is known."""
    count, at = read_uvarint(buffer, at)
    return skip_tags(buffer, at, count) if count else at


def write_tag(out: bytearray, tag: int, value: bytearray) -> None:
    """Append one tagged field: number, size, value."""
    write_uvarint(out, tag)
    write_uvarint(out, len(value))
    out += value


# --- uuids -----------------------------------------------------------------------------------------------------------


def uuid_from(data: Buffer) -> UUID:
    """A UUID from its sixteen bytes; the zero UUID, which means "none", is shared."""
    number = int.from_bytes(data, "big")
    return UUID(int=number) if number else ZERO_UUID
