"""How a message is laid out in a record, and the varints and tables for writing and reading records.

    key       the partition key
    value     the body: data as it is, several data joined, text and binary values bare, other values encoded, else null
    headers   n application properties, each value with its AMQP encoding; m exported properties as text; the envelope
    envelope  version u8, flags u8, uvarint n, uvarint m, body detail, raw sections in their order, and last the
              delivery annotations if the publisher wrote some behind the body

The envelope is the header `x-opt-amqp`. The body detail is, for several data, their number and all sizes but the last
(uvarints); for a bare value its constructor. A plain event without key has no headers at all. Records have Kafka's
format, version 2, with zig-zag varints.
"""

from typing import Final

from .amqp_values import Malformed

# Events of one batch: bounds the loops over a forged record count.
MAX_RECORDS: Final = 16_777_216
# Bounds of the two caches of property names, in names and in bytes of a name: under 1 MB together.
MAX_CACHED_NAMES: Final = 2_048
MAX_CACHED_NAME_BYTES: Final = 128
# Entries of the varint tables; longer values are computed. 4,096 keeps them near 400 KB.
TABLE_SIZE: Final = 4_096

ENVELOPE_NAME: Final = b"x-opt-amqp"
ENVELOPE_VERSION: Final = 1

KIND_DATA: Final = 0
KIND_MANY_DATA: Final = 1
KIND_VALUE: Final = 2
KIND_SEQUENCE: Final = 3
KIND_MASK: Final = 0x03
FLAG_ENCODED: Final = 0x04
FLAG_HEADER: Final = 0x08
FLAG_ANNOTATIONS: Final = 0x10
FLAG_PROPERTIES: Final = 0x20
FLAG_FOOTER: Final = 0x40
# The application properties are stored as a raw section: an empty map, or a map whose keys are not all strings, cannot
# be stored as headers.
FLAG_RAW_APPLICATION: Final = 0x80


def encode_uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_UVARINTS: Final[list[bytes]] = [encode_uvarint(n) for n in range(TABLE_SIZE)]
# Zig-zag form of 0 .. TABLE_SIZE - 1, for lengths and counts.
LENGTHS: Final[list[bytes]] = [encode_uvarint(n * 2) for n in range(TABLE_SIZE)]
# What follows a record's length: attributes 0, time delta 0, offset delta; and the same with a null key behind it.
DELTAS: Final[list[bytes]] = [b"\x00\x00" + LENGTHS[n] for n in range(TABLE_SIZE)]
KEYLESS: Final[list[bytes]] = [DELTAS[n] + b"\x01" for n in range(TABLE_SIZE)]
NULL: Final = b"\x01"


def length_of(number: int) -> bytes:
    return LENGTHS[number] if number < TABLE_SIZE else encode_uvarint(number * 2)


def uvarint_of(number: int) -> bytes:
    return _UVARINTS[number] if number < TABLE_SIZE else encode_uvarint(number)


def with_length(content: bytes) -> bytes:
    return length_of(len(content)) + content


def read_uvarint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most 64 bits, and what follows it."""
    number = 0
    shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise Malformed("a varint is cut short or too long")


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A zig-zag varint, and what follows it."""
    number, at = read_uvarint(data, at, end)
    return (number >> 1) ^ -(number & 1), at


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """A length-prefixed piece of a record, None for length -1."""
    size, at = _read_varint(data, at, end)
    if size < 0:
        if size != -1:
            raise Malformed("a length is negative")
        return None, at
    if at + size > end:
        raise Malformed("a record is cut short")
    return data[at : at + size], at + size


ENVELOPE_LEAD: Final = with_length(ENVELOPE_NAME)
# The headers of an event with a key and one plain Data body: one header, an envelope without flags.
PLAIN_ENVELOPE: Final = length_of(1) + ENVELOPE_LEAD + with_length(bytes((ENVELOPE_VERSION, 0, 0, 0)))
PLAIN_HEADERS: Final[list[tuple[bytes, bytes | None]]] = [(ENVELOPE_NAME, bytes((ENVELOPE_VERSION, 0, 0, 0)))]


def read_records(
    records: bytes, at: int, count: int
) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]]:
    """The records of an uncompressed batch: time delta, offset delta, key, value, headers."""
    end = len(records)
    if count < 0 or count > MAX_RECORDS:
        raise Malformed("a record count is not possible")
    found: list[tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]] = []
    for _ in range(count):
        size, at = _read_varint(records, at, end)
        if size < 0 or at + size > end:
            raise Malformed("a record is cut short")
        found.append(read_record(records, at, at + size))
        at += size
    if at != end:
        raise Malformed("a batch holds more than its records")
    return found


def skip_records(records: bytes, at: int, limit: int, max_bytes: int) -> tuple[int, int]:
    """How many records follow a position, and where they end: at most `limit`, and one, or `max_bytes` of them."""
    end = len(records)
    stop = at
    count = 0
    while count < limit and stop < end:
        size = records[stop]
        following = stop + 1
        if size >= 0x80:
            size, following = read_uvarint(records, stop, end)
        following += size >> 1
        if size & 1 or following > end:
            raise Malformed("a record is cut short")
        if count and following - at > max_bytes:
            break
        stop = following
        count += 1
    return count, stop


def offset_delta(records: bytes, at: int) -> int:
    """The offset delta of the record at a position."""
    end = len(records)
    _, at = _read_varint(records, at, end)
    _, at = _read_varint(records, at + 1, end)
    delta, _ = _read_varint(records, at, end)
    return delta


def read_record(
    data: bytes, at: int, stop: int
) -> tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]:
    """One record behind its length: time delta, offset delta, key, value, headers; all of it must be used.

    Most lengths take one byte, which is then even (zig-zag) and below 0x80. A step past `stop` needs no check of its
    own: nothing moves back, so it shows at the end.
    """
    try:
        time_delta = data[at + 1]
        if time_delta & 0x81:
            time_delta, at = _read_varint(data, at + 1, stop)
        else:
            time_delta >>= 1
            at += 2
        delta = data[at]
        if delta & 0x81:
            delta, at = _read_varint(data, at, stop)
        else:
            delta >>= 1
            at += 1
        size = data[at]
        if size & 0x81:
            key, at = _read_bytes(data, at, stop)
        else:
            begin = at + 1
            at = begin + (size >> 1)
            key = data[begin:at]
        size = data[at]
        begin = at + 1
        if size & 0x81 == 0x80 and data[begin] < 0x80:
            size = (size & 0x7F) | data[begin] << 7
            begin += 1
            at = begin + (size >> 1)
            value: bytes | None = data[begin:at]
        elif size & 0x81:
            value, at = _read_bytes(data, at, stop)
        else:
            at = begin + (size >> 1)
            value = data[begin:at]
        count = data[at]
        # (A compiled slice must not end before it begins.)
        if count == 2 and at < stop and data[at:stop] == PLAIN_ENVELOPE:
            return time_delta, delta, key, value, PLAIN_HEADERS
        if count & 0x81:
            count, at = _read_varint(data, at, stop)
        else:
            count >>= 1
            at += 1
        if count < 0:
            raise Malformed("a header count is negative")
        headers: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            size = data[at]
            if size & 0x81:
                name, at = _read_bytes(data, at, stop)
                if name is None:
                    raise Malformed("a header has no name")
            else:
                begin = at + 1
                at = begin + (size >> 1)
                name = data[begin:at]
            size = data[at]
            if size & 0x81:
                content, at = _read_bytes(data, at, stop)
            else:
                begin = at + 1
                at = begin + (size >> 1)
                content = data[begin:at]
            headers.append((name, content))
    except IndexError:
        raise Malformed("a record is cut short") from None
    if at != stop:
        raise Malformed("a record holds more or less than its fields")
    return time_delta, delta, key, value, headers
