"""Kafka's primitive types in a buffer: varints, text, tag sections, UUIDs (`struct` reads those of fixed width).

Every reader takes (buffer, at) and returns (value, next position); every writer appends to a bytearray. A length is
compared with the available bytes before anything is allocated for it, and invalid input raises RemoteProtocolError.
Nothing here knows a message. Follows the "Protocol Primitive Types" of the Kafka protocol guide; varints are unsigned
(KIP-482).
"""

from typing import Final
from uuid import UUID

from hubmere.records import varint
from hubmere.records.varint import BadVarint, write_uvarint
from hubmere.wire.kafka.errors import RemoteProtocolError

Buffer = bytes | bytearray | memoryview

ZERO_UUID: Final = UUID(int=0)


def refuse_short(what: str, wanted: int, there: int) -> RemoteProtocolError:
    """The error for a length that exceeds the message."""
    return RemoteProtocolError(f"{what} of length {wanted} with {there} bytes left")


def refuse_null(what: str) -> RemoteProtocolError:
    """The error for a null that the protocol does not allow."""
    return RemoteProtocolError(f"{what} is null but must not be")


# --- varints ---------------------------------------------------------------------------------------------------------


def read_uvarint(buffer: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    try:
        return varint.read_uvarint(buffer, at, len(buffer))
    except BadVarint as broken:
        raise RemoteProtocolError(broken.why) from None


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
    """The position after a tag section whose count was read; its unknown fields are ignored (KIP-482)."""
    for _ in range(count):
        _, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        if size > len(buffer) - at:
            raise refuse_short("a tagged field", size, len(buffer) - at)
        at += size
    return at


def skip_tag_section(buffer: Buffer, at: int) -> int:
    """The position after a tag section of which no field is known."""
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
