"""The inner loops over events: AMQP messages become record bodies, records become AMQP messages and transfer frames.

One call handles a run of events. The file is written for the interpreter (tables, slices, one join per run) and may be
compiled ahead of time by mypyc from this same source; both give the same bytes and the same errors. It imports nothing
of ours, keeps no state but two bounded tables of property names, and answers any malformed input with `Malformed`,
never with another exception.

Formats: AMQP 1.0 part 1 (types) and part 3 (message sections); Kafka record batch v2 with zig-zag varints. How a
message lies in a record (key, value, headers, and the envelope header `x-opt-amqp`):

    key       the partition key
    value     the body: data as it is, several data joined, text and binary values bare, other values encoded, else null
    headers   n application properties, each value with its AMQP encoding; m exported properties as text; the envelope
    envelope  version u8, flags u8, uvarint n, uvarint m, body detail, raw sections in their order, and last the
              delivery annotations if the publisher wrote some behind the body

The body detail is, for several data, their number and all sizes but the last (uvarints); for a bare value its
constructor. A plain event without key has no headers at all.
"""

import binascii
from struct import Struct
from typing import Final

# --- limits ----------------------------------------------------------------------------------------------------------

# Nesting of lists, maps, arrays and described values: more than any client writes, far less than our stack.
MAX_DEPTH: Final = 32
# Elements of an array whose elements have no bytes: its size does not bound its count, so this does (the generic codec
# of `wire` has the same bound).
MAX_HOLLOW_ELEMENTS: Final = 4_096
# Events of one batch, a bound on what a forged record count can make a loop do.
MAX_RECORDS: Final = 16_777_216
# Names of application properties whose checked form is remembered, and the longest of them: under 1 MB together.
MAX_REMEMBERED_NAMES: Final = 2_048
MAX_REMEMBERED_BYTES: Final = 128
# Entries of the varint tables; longer values are computed. 4,096 keeps them near 400 KB.
TABLE_SIZE: Final = 4_096

# --- names and section codes -----------------------------------------------------------------------------------------

ENVELOPE_NAME: Final = b"x-opt-amqp"
ENVELOPE_VERSION: Final = 1

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

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
# The application properties are kept as a raw section: an empty map, or one whose keys are not all strings, cannot be
# told from headers.
FLAG_RAW_APPLICATION: Final = 0x80

_DATA8: Final = b"\x00\x53\x75\xa0"
_DATA32: Final = b"\x00\x53\x75\xb0"
_EMPTY_DATA: Final = b"\x00\x53\x75\xa0\x00"

_PARTITION_KEY: Final = b"x-opt-partition-key"
_PRODUCER_ID: Final = b"com.microsoft:producer-id"
_PRODUCER_EPOCH: Final = b"com.microsoft:producer-epoch"
_PRODUCER_SEQUENCE: Final = b"com.microsoft:producer-sequence-number"
# Annotations that only the broker may state: what a publisher sends under these names is not stored.
_OWNED: Final = frozenset(
    (
        _PARTITION_KEY,
        b"x-opt-sequence-number-epoch",
        b"x-opt-sequence-number",
        b"x-opt-offset",
        b"x-opt-enqueued-time",
        b"x-opt-publisher",
        b"x-opt-kafka-key",
    )
)
_PRODUCER_NAMES: Final = (_PRODUCER_ID, _PRODUCER_EPOCH, _PRODUCER_SEQUENCE)
_SECTION_NAMES: Final = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}


class Malformed(ValueError):
    """Input that breaks the format; says what is wrong with it."""


# --- AMQP values -----------------------------------------------------------------------------------------------------

# Shape of a value by its constructor: bytes that follow when fixed, else one of the negative marks.
_UNKNOWN: Final = -1
_VARIABLE8: Final = -2
_VARIABLE32: Final = -3
_COMPOUND8: Final = -4
_COMPOUND32: Final = -5
_ARRAY8: Final = -6
_ARRAY32: Final = -7
_DESCRIBED: Final = -8


def _value_shapes() -> list[int]:
    shapes = [_UNKNOWN] * 256
    by_shape: dict[int, bytes] = {
        0: b"\x40\x41\x42\x43\x44\x45",
        1: b"\x50\x51\x52\x53\x54\x55\x56",
        2: b"\x60\x61",
        4: b"\x70\x71\x72\x73\x74",
        8: b"\x80\x81\x82\x83\x84",
        16: b"\x94\x98",
        _VARIABLE8: b"\xa0\xa1\xa3",
        _VARIABLE32: b"\xb0\xb1\xb3",
        _COMPOUND8: b"\xc0\xc1",
        _COMPOUND32: b"\xd0\xd1",
        _ARRAY8: b"\xe0",
        _ARRAY32: b"\xf0",
        _DESCRIBED: b"\x00",
    }
    for shape, codes in by_shape.items():
        for code in codes:
            shapes[code] = shape
    return shapes


_SHAPES: Final[list[int]] = _value_shapes()


def _u32(data: bytes, at: int, end: int) -> int:
    if at + 4 > end:
        raise Malformed("a length is cut short")
    return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


def value_end(data: bytes, at: int, end: int, depth: int) -> int:
    """Where the AMQP value at `at` ends; every byte of it has been checked."""
    if at >= end:
        raise Malformed("a value is missing")
    code = data[at]
    shape = _SHAPES[code]
    if shape >= 0:
        at += 1 + shape
        if at > end:
            raise Malformed("a value is cut short")
        return at
    if shape == _VARIABLE8:
        if at + 1 >= end:
            raise Malformed("a length is cut short")
        at += 2 + data[at + 1]
        if at > end:
            raise Malformed("a value is cut short")
        return at
    if shape == _DESCRIBED:
        if depth >= MAX_DEPTH:
            raise Malformed("values are nested too deeply")
        return value_end(data, value_end(data, at + 1, end, depth + 1), end, depth + 1)
    if shape <= _COMPOUND8:
        return _compound_end(data, code, at + 1, end, depth)
    return _content_end(data, code, at + 1, end, depth)


def _content_end(data: bytes, code: int, at: int, end: int, depth: int) -> int:
    """Where the content of a value of variable width ends; its constructor stands before it, or before an array."""
    shape = _SHAPES[code]
    if shape == _VARIABLE8:
        if at >= end:
            raise Malformed("a length is cut short")
        at += 1 + data[at]
    elif shape == _VARIABLE32:
        at += 4 + _u32(data, at, end)
    elif shape in (_UNKNOWN, _DESCRIBED):
        raise Malformed("a constructor is not known")
    else:
        return _compound_end(data, code, at, end, depth)
    if at > end:
        raise Malformed("a value is cut short")
    return at


def _compound_end(data: bytes, code: int, at: int, end: int, depth: int) -> int:
    """The end of a list, map or array: its size, its count and each element must agree."""
    if depth >= MAX_DEPTH:
        raise Malformed("values are nested too deeply")
    stop, count, at = _compound_head(data, _SHAPES[code], at, end)
    if _SHAPES[code] <= _ARRAY8:
        at = _elements_end(data, count, at, stop, depth + 1)
    else:
        if code & 0x0F == 1 and count & 1:
            raise Malformed("a map has a key without a value")
        at = _values_end(data, count, at, stop, depth + 1)
    if at != stop:
        raise Malformed("a compound's size and content disagree")
    return stop


def _values_end(data: bytes, count: int, at: int, stop: int, depth: int) -> int:
    """The end of consecutive values; the usual shapes are stepped over here without a call."""
    for _ in range(count):
        if at >= stop:
            raise Malformed("a value is missing")
        shape = _SHAPES[data[at]]
        if shape >= 0:
            at += 1 + shape
        elif shape == _VARIABLE8 and at + 1 < stop:
            at += 2 + data[at + 1]
        else:
            at = value_end(data, at, stop, depth)
    return at


def _compound_head(data: bytes, shape: int, at: int, end: int) -> tuple[int, int, int]:
    """End, element count and first element of a compound, read after its constructor."""
    if shape in (_COMPOUND8, _ARRAY8):
        if at + 2 > end:
            raise Malformed("a compound is cut short")
        stop = at + 1 + data[at]
        count = data[at + 1]
        at += 2
    else:
        stop = at + 4 + _u32(data, at, end)
        count = _u32(data, at + 4, end)
        at += 8
    if stop > end or at > stop:
        raise Malformed("a compound is cut short")
    return stop, count, at


def _elements_end(data: bytes, count: int, at: int, stop: int, depth: int) -> int:
    """The end of an array's elements, which share one constructor that may be described."""
    while at < stop and data[at] == 0:
        at = value_end(data, at + 1, stop, depth)
        depth += 1
        if depth >= MAX_DEPTH:
            raise Malformed("values are nested too deeply")
    if at >= stop:
        raise Malformed("an array has no constructor")
    code = data[at]
    shape = _SHAPES[code]
    if shape >= 0:
        if shape == 0 and count > MAX_HOLLOW_ELEMENTS:
            raise Malformed("an array of empty elements is too long")
        return at + 1 + count * shape
    at += 1
    for _ in range(count):
        at = _content_end(data, code, at, stop, depth)
    return at


def _text_of(data: bytes, at: int, stop: int) -> bytes:
    """The characters of a string or symbol, empty for any other value."""
    code = data[at]
    if code == 0xA3 or code == 0xA1:
        return data[at + 2 : stop]
    if code == 0xB3 or code == 0xB1:
        return data[at + 5 : stop]
    return b""


def _integer_of(data: bytes, at: int, stop: int) -> int:
    """The number in an integer value of any width."""
    code = data[at]
    if code == 0x43 or code == 0x44:
        return 0
    if code not in b"\x50\x51\x52\x53\x54\x55\x60\x61\x70\x71\x80\x81":
        raise Malformed("a producer annotation is not an integer")
    return int.from_bytes(data[at + 1 : stop], "big", signed=code in b"\x51\x54\x55\x61\x71\x81")


def _sized(code: int, content: bytes) -> bytes:
    """A variable-width value in its short or long form; `code` is the short constructor."""
    size = len(content)
    if size < 256:
        return bytes((code, size)) + content
    return bytes((code + 0x10,)) + size.to_bytes(4, "big") + content


def _map_section(section: int, count: int, entries: bytes) -> bytes:
    """A described map in its shortest form."""
    size = len(entries) + 1
    if size < 256 and count < 256:
        return bytes((0, 0x53, section, 0xC1, size, count)) + entries
    return bytes((0, 0x53, section, 0xD1)) + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big") + entries


# --- Kafka varints ---------------------------------------------------------------------------------------------------


def _uvarint_bytes(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_UVARINTS: Final[list[bytes]] = [_uvarint_bytes(n) for n in range(TABLE_SIZE)]
# Zig-zag form of 0 .. TABLE_SIZE - 1, for lengths and counts.
_LENGTHS: Final[list[bytes]] = [_uvarint_bytes(n * 2) for n in range(TABLE_SIZE)]
# What follows a record's length: attributes 0, time delta 0, offset delta; and the same with a null key behind it.
_DELTAS: Final[list[bytes]] = [b"\x00\x00" + _LENGTHS[n] for n in range(TABLE_SIZE)]
_KEYLESS: Final[list[bytes]] = [_DELTAS[n] + b"\x01" for n in range(TABLE_SIZE)]
_NULL: Final = b"\x01"
_DATA_HEADS: Final[list[bytes]] = [_DATA8 + bytes((n,)) for n in range(256)]
# A short Data section that holds a short Data section and nothing else, by the size of the outer one.
_NESTED_HEADS: Final[list[bytes]] = [b""] * 5 + [_DATA_HEADS[n] + _DATA_HEADS[n - 5] for n in range(5, 256)]


def _length(number: int) -> bytes:
    return _LENGTHS[number] if number < TABLE_SIZE else _uvarint_bytes(number * 2)


def _uvarint(number: int) -> bytes:
    return _UVARINTS[number] if number < TABLE_SIZE else _uvarint_bytes(number)


def _prefixed(content: bytes) -> bytes:
    return _length(len(content)) + content


def _read_uvarint(data: bytes, at: int, end: int) -> tuple[int, int]:
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
    number, at = _read_uvarint(data, at, end)
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


# --- messages to records ---------------------------------------------------------------------------------------------

_ENVELOPE_LEAD: Final = _prefixed(ENVELOPE_NAME)
# The headers of an event with a key and one plain Data body: one header, an envelope without flags.
_PLAIN_ENVELOPE: Final = _length(1) + _ENVELOPE_LEAD + _prefixed(bytes((ENVELOPE_VERSION, 0, 0, 0)))
_PLAIN_HEADERS: Final[list[tuple[bytes, bytes | None]]] = [(ENVELOPE_NAME, bytes((ENVELOPE_VERSION, 0, 0, 0)))]
_BATCH_HEADER: Final = bytes(61)
# Fields of the properties section that Kafka readers see as headers, by their place in the list.
_EXPORT_LEADS: Final[list[bytes]] = [
    _prefixed(name) if name else b""
    for name in (
        b"message-id",
        b"user-id",
        b"to",
        b"",  # subject
        b"reply-to",
        b"",  # correlation-id
        b"content-type",
        b"content-encoding",
        b"",  # absolute-expiry-time
        b"creation-time",
    )
]
# Names of application properties, encoded as AMQP strings, to the beginnings of their record headers; and back.
_HEADER_LEADS: Final[dict[bytes, bytes]] = {}
_PROPERTY_LEADS: Final[dict[bytes, bytes]] = {}


def _section_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Code of the section at `at`, and where its value begins; the descriptor may have any of its legal forms."""
    if at + 3 > end or data[at] != 0:
        raise Malformed("a section is expected")
    form = data[at + 1]
    if form == 0x53:
        return data[at + 2], at + 3
    stop = value_end(data, at + 1, end, 0)
    if form == 0x80:
        return int.from_bytes(data[at + 2 : stop], "big"), stop
    return _SECTION_NAMES.get(_text_of(data, at + 1, stop), -1), stop


def _map_head(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """End, element count and first element of a section's map."""
    if at + 3 <= end and data[at] == 0xC1:
        stop = at + 2 + data[at + 1]
        count = data[at + 2]
        at += 3
        if stop > end or at > stop:
            raise Malformed("a compound is cut short")
    elif at < end and data[at] == 0xD1:
        stop, count, at = _compound_head(data, _COMPOUND32, at + 1, end)
    else:
        raise Malformed("a section does not hold a map")
    if count & 1:
        raise Malformed("a map has a key without a value")
    return stop, count, at


def _list_head(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """End, element count and first element of a section's list."""
    if at + 3 <= end and data[at] == 0xC0:
        stop = at + 2 + data[at + 1]
        count = data[at + 2]
        at += 3
        if stop > end or at > stop:
            raise Malformed("a compound is cut short")
        return stop, count, at
    if at < end and data[at] == 0x45:
        return at + 1, 0, at + 1
    if at < end and data[at] == 0xD0:
        return _compound_head(data, _COMPOUND32, at + 1, end)
    raise Malformed("a section does not hold a list")


def _checked_list(data: bytes, at: int, end: int) -> int:
    """The end of a section's list, all of it checked."""
    _list_head(data, at, end)
    return value_end(data, at, end, 0)


def _data_extent(data: bytes, at: int, end: int) -> tuple[int, int]:
    """First byte and end of the binary in a Data section."""
    if at + 2 > end:
        raise Malformed("a data section is cut short")
    if data[at] == 0xA0:
        first = at + 2
        stop = first + data[at + 1]
    elif data[at] == 0xB0:
        first = at + 5
        stop = first + _u32(data, at + 1, end)
    else:
        raise Malformed("a data section does not hold binary")
    if stop > end:
        raise Malformed("a data section is cut short")
    return first, stop


def annotated_key(data: bytes, at: int, end: int, only_before_data: bool) -> bytes | None:
    """The partition key in a message's annotations; a key that is not a string is no key."""
    while at < end:
        section, at = _section_at(data, at, end)
        if section == MESSAGE_ANNOTATIONS:
            return _key_in(data, at, end)
        if section == DATA and only_before_data:
            return None
        at = value_end(data, at, end, 0)
    return None


def _key_in(data: bytes, at: int, end: int) -> bytes | None:
    stop, count, at = _map_head(data, at, end)
    for _ in range(count >> 1):
        middle = value_end(data, at, stop, 1)
        after = value_end(data, middle, stop, 1)
        if _text_of(data, at, middle) == _PARTITION_KEY:
            if data[middle] == 0xA1 or data[middle] == 0xB1:
                return _text_of(data, middle, after)
            return None
        at = after
    return None


def first_message(payload: bytes) -> tuple[int, int]:
    """Extent of the first inner message of a batch (message format 0x80013700); zero length when there is none."""
    at = 0
    end = len(payload)
    while at < end:
        section, at = _section_at(payload, at, end)
        if section == DATA:
            return _data_extent(payload, at, end)
        at = value_end(payload, at, end, 0)
    return end, end


def split_batch(payload: bytes, key: bytes | None, added: bytes, producers: list[int] | None) -> tuple[bytearray, int]:
    """The inner messages of a batch as records behind 61 bytes of header space, and how many they are.

    `key` goes on every event; `added` is one annotation entry to store with each, or empty. The producer id, epoch and
    sequence number of each event that carries them are appended to `producers`.
    """
    parts: list[bytes] = [_BATCH_HEADER]
    key_part = _NULL if key is None else _prefixed(key)
    tail = b"\x00" if key is None else _PLAIN_ENVELOPE
    fixed = len(key_part) + len(tail)
    is_plain = not added
    at = 0
    end = len(payload)
    index = 0
    while at < end:
        if is_plain and at + 10 <= end and payload[at : at + 10] == _NESTED_HEADS[payload[at + 4]]:
            first = at + 5
            body_at = at + 10
            stop = first + payload[at + 4]
        elif payload[at : at + 4] == _DATA32:
            first = at + 8
            stop = first + _u32(payload, at + 4, end)
            body_at = -1
            if is_plain and payload[first : first + 4] == _DATA32 and _u32(payload, first + 4, end) == stop - first - 8:
                body_at = first + 8
        else:
            first, stop = _next_message(payload, at, end, index)
            if first < 0:
                at = stop
                continue
            body_at = -1
        if stop > end:
            raise Malformed("a data section is cut short")
        at = stop
        delta = _DELTAS[index] if index < TABLE_SIZE else b"\x00\x00" + _uvarint_bytes(index * 2)
        index += 1
        if body_at < 0:
            body = _record_body(payload, first, stop, key, added, producers)
            parts += (_length(len(delta) + len(body)), delta, body)
            continue
        size = stop - body_at
        value = _LENGTHS[size] if size < TABLE_SIZE else _uvarint_bytes(size * 2)
        size += len(delta) + fixed + len(value)
        length = _LENGTHS[size] if size < TABLE_SIZE else _uvarint_bytes(size * 2)
        parts += (length, delta, key_part, value, payload[body_at:stop], tail)
    if index == 0:
        raise Malformed("the batch holds no message")
    return bytearray().join(parts), index


def _next_message(payload: bytes, at: int, end: int, index: int) -> tuple[int, int]:
    """Extent of the message in the batch's section at `at`; (-1, its end) for a section that holds none."""
    section, at = _section_at(payload, at, end)
    if section == DATA:
        return _data_extent(payload, at, end)
    if section < HEADER or section > FOOTER or SEQUENCE <= section <= VALUE:
        raise Malformed("a batch holds a section other than data")
    if section == MESSAGE_ANNOTATIONS and index:
        raise Malformed("a batch has annotations after its data")
    return -1, value_end(payload, at, end, 0)


def join_messages(payloads: list[bytes], key: bytes | None, added: bytes) -> bytearray:
    """Single messages as the records of one batch, behind 61 bytes of header space; key and annotation as above."""
    parts: list[bytes] = [_BATCH_HEADER]
    is_plain = key is None and not added
    index = 0
    for payload in payloads:
        stop = len(payload)
        delta = _DELTAS[index] if index < TABLE_SIZE else b"\x00\x00" + _uvarint_bytes(index * 2)
        index += 1
        lead = payload[:4]
        if is_plain and lead == _DATA8 and stop >= 5 and payload[4] == stop - 5:
            first = 5
        elif is_plain and lead == _DATA32 and stop >= 8 and _u32(payload, 4, stop) == stop - 8:
            first = 8
        else:
            body = _record_body(payload, 0, stop, key, added, None)
            parts += (_length(len(delta) + len(body)), delta, body)
            continue
        size = stop - first
        value = _LENGTHS[size] if size < TABLE_SIZE else _uvarint_bytes(size * 2)
        size += len(delta) + 2 + len(value)
        length = _LENGTHS[size] if size < TABLE_SIZE else _uvarint_bytes(size * 2)
        parts += (length, delta, _NULL, value, payload[first:stop], b"\x00")
    return bytearray().join(parts)


def single_record(payload: bytes, key: bytes | None, added: bytes, producers: list[int] | None) -> bytearray:
    """One message as the only record of a batch, behind 61 bytes of header space."""
    body = _record_body(payload, 0, len(payload), key, added, producers)
    return bytearray().join((_BATCH_HEADER, _length(3 + len(body)), _DELTAS[0], body))


def _record_body(data: bytes, at: int, end: int, key: bytes | None, added: bytes, producers: list[int] | None) -> bytes:
    """Key, value and headers of the record that keeps one message: everything behind the offset delta.

    Sections may come in any order; each but Data and Sequence may come once. Delivery annotations belong to the hop
    that ended here and are dropped, except behind the body, where one client writes them and the service keeps them.
    """
    if at >= end:
        raise Malformed("a message has no section")
    flags = 0
    seen = 0
    bodies: list[bytes] = []
    body_section = 0
    header = b""
    annotations = b""
    properties = b""
    raw_application = b""
    footer = b""
    trailing = b""
    application = 0
    exported = 0
    application_headers = b""
    exported_headers = b""
    while at < end:
        if at + 3 <= end and data[at] == 0 and data[at + 1] == 0x53:
            section = data[at + 2]
            at += 3
        else:
            section, at = _section_at(data, at, end)
        if section == DATA:
            if at + 2 <= end and data[at] == 0xA0 and at + 2 + data[at + 1] <= end:
                stop = at + 2 + data[at + 1]
                at += 2
            else:
                at, stop = _data_extent(data, at, end)
        elif section == MESSAGE_ANNOTATIONS:
            stop, annotations = _stored_annotations(data, at, end, added, producers)
        elif section == APPLICATION_PROPERTIES:
            stop, application, application_headers = _application_headers(data, at, end)
            if application == 0:
                flags |= FLAG_RAW_APPLICATION
                raw_application = b"\x00\x53\x74" + data[at:stop]
        elif section == PROPERTIES:
            stop, exported, exported_headers = _exported_headers(data, at, end)
            flags |= FLAG_PROPERTIES
            properties = b"\x00\x53\x73" + data[at:stop]
        elif section == HEADER:
            stop = _checked_list(data, at, end)
            flags |= FLAG_HEADER
            header = b"\x00\x53\x70" + data[at:stop]
        elif section == VALUE:
            stop = value_end(data, at, end, 0)
        elif section == SEQUENCE:
            stop = _checked_list(data, at, end)
        elif section == DELIVERY_ANNOTATIONS:
            _map_head(data, at, end)
            stop = value_end(data, at, end, 0)
            if body_section:
                trailing = b"\x00\x53\x71" + data[at:stop]
        elif section == FOOTER:
            _map_head(data, at, end)
            stop = value_end(data, at, end, 0)
            flags |= FLAG_FOOTER
            footer = b"\x00\x53\x78" + data[at:stop]
        else:
            raise Malformed("a section is not known")
        if DATA <= section <= VALUE:
            if body_section and (section != body_section or section == VALUE):
                raise Malformed("a message has two bodies")
            body_section = section
            bodies.append(data[at:stop])
        else:
            bit = 1 << (section - HEADER)
            if seen & bit:
                raise Malformed("a section comes twice")
            seen |= bit
        at = stop

    if added and not annotations:
        annotations = _map_section(MESSAGE_ANNOTATIONS, 2, added)
    if annotations:
        flags |= FLAG_ANNOTATIONS

    detail = b""
    value: bytes | None
    if len(bodies) == 1 and body_section == DATA:
        value = bodies[0]
    else:
        kind, value, detail = _other_body(body_section, bodies)
        flags |= kind
    key_part = _NULL if key is None else _prefixed(key)
    value_part = _NULL if value is None else _prefixed(value)
    if key is None and flags == 0 and application == 0 and not trailing:
        return key_part + value_part + b"\x00"
    if application < 0x80 and exported < 0x80:
        counts = bytes((ENVELOPE_VERSION, flags, application, exported))
    else:
        counts = bytes((ENVELOPE_VERSION, flags)) + _uvarint(application) + _uvarint(exported)
    envelope = b"".join((counts, detail, header, annotations, properties, raw_application, footer, trailing))
    return b"".join(
        (
            key_part,
            value_part,
            _length(application + exported + 1),
            application_headers,
            exported_headers,
            _ENVELOPE_LEAD,
            _length(len(envelope)),
            envelope,
        )
    )


def _other_body(section: int, bodies: list[bytes]) -> tuple[int, bytes | None, bytes]:
    """Flags, value and detail of a body that is not one Data section."""
    if section == SEQUENCE:
        return KIND_SEQUENCE | FLAG_ENCODED, b"".join(bodies), b""
    if section == VALUE:
        value = bodies[0]
        code = value[0]
        if code == 0x40:
            return KIND_VALUE, None, value
        if code == 0xA0 or code == 0xA1:
            return KIND_VALUE, value[2:], value[:1]
        if code == 0xB0 or code == 0xB1:
            return KIND_VALUE, value[5:], value[:1]
        return KIND_VALUE | FLAG_ENCODED, value, b""
    if not bodies:
        return KIND_MANY_DATA, None, _uvarint(0)
    sizes = b"".join([_uvarint(len(part)) for part in bodies[:-1]])
    return KIND_MANY_DATA, b"".join(bodies), _uvarint(len(bodies)) + sizes


def _stored_annotations(data: bytes, at: int, end: int, added: bytes, producers: list[int] | None) -> tuple[int, bytes]:
    """The end of the annotations, and the section to store: without what the broker owns, with what it adds."""
    begin = at
    stop, count, at = _map_head(data, at, end)
    kept: list[bytes] = []
    producer: dict[bytes, int] = {}
    for _ in range(count >> 1):
        middle = value_end(data, at, stop, 1)
        after = value_end(data, middle, stop, 1)
        name = _text_of(data, at, middle)
        if name in _OWNED:
            at = after
            continue
        if producers is not None and name in _PRODUCER_NAMES and data[middle] != 0x40:
            producer[name] = _integer_of(data, middle, after)
        kept.append(data[at:after])
        at = after
    if at != stop:
        raise Malformed("a compound's size and content disagree")
    if producer and producers is not None:
        if len(producer) != 3:
            raise Malformed("producer id, epoch and sequence number come together")
        producers += (producer[_PRODUCER_ID], producer[_PRODUCER_EPOCH], producer[_PRODUCER_SEQUENCE])
    if added:
        kept.append(added)
    elif len(kept) * 2 == count:
        return stop, b"\x00\x53\x72" + data[begin:stop] if kept else b""
    if not kept:
        return stop, b""
    return stop, _map_section(MESSAGE_ANNOTATIONS, len(kept) * 2, b"".join(kept))


def _application_headers(data: bytes, at: int, end: int) -> tuple[int, int, bytes]:
    """The end of the application properties, their number, and them as record headers with their encoding verbatim.

    Zero of them says that the section must be kept as it is: it is empty, or a key is not a string.
    """
    stop, count, at = _map_head(data, at, end)
    parts: list[bytes] = []
    are_headers = count > 0
    for _ in range(count >> 1):
        middle = at + 2 + data[at + 1] if at + 1 < stop and data[at] == 0xA1 else value_end(data, at, stop, 1)
        name = data[at:middle]
        lead = _HEADER_LEADS.get(name)
        if lead is None:
            lead = _header_lead(name)
            if not lead:
                are_headers = False
        at = middle
        if at >= stop:
            raise Malformed("a value is missing")
        shape = _SHAPES[data[at]]
        if shape >= 0:
            middle = at + 1 + shape
        elif shape == _VARIABLE8 and at + 1 < stop:
            middle = at + 2 + data[at + 1]
        else:
            middle = value_end(data, at, stop, 1)
        size = middle - at
        parts += (lead, _LENGTHS[size] if size < TABLE_SIZE else _uvarint_bytes(size * 2), data[at:middle])
        at = middle
    if at != stop:
        raise Malformed("a compound's size and content disagree")
    if not are_headers:
        return stop, 0, b""
    return stop, count >> 1, b"".join(parts)


def _header_lead(encoded: bytes) -> bytes:
    """An encoded property name as the beginning of a record header; empty when it is not a string."""
    if encoded[:1] != b"\xa1" and encoded[:1] != b"\xb1":
        return b""
    name = _text_of(encoded, 0, len(encoded))
    if not _is_text(name):
        raise Malformed("a property's name is not UTF-8")
    lead = _prefixed(name)
    if len(_HEADER_LEADS) < MAX_REMEMBERED_NAMES and len(encoded) < MAX_REMEMBERED_BYTES:
        _HEADER_LEADS[encoded] = lead
    return lead


def _exported_headers(data: bytes, at: int, end: int) -> tuple[int, int, bytes]:
    """The end of the properties, and those that Kafka readers see as headers in plain text, with their number."""
    stop, count, at = _list_head(data, at, end)
    parts: list[bytes] = []
    exported = 0
    for place in range(count):
        if at >= stop:
            raise Malformed("a value is missing")
        code = data[at]
        if code == 0x40:
            at += 1
            continue
        if (code == 0xA1 or code == 0xA3) and at + 1 < stop:
            after = at + 2 + data[at + 1]
        else:
            after = value_end(data, at, stop, 1)
        lead = _EXPORT_LEADS[place] if place < len(_EXPORT_LEADS) else b""
        if lead:
            text = data[at + 2 : after] if code == 0xA1 or code == 0xA3 else _plain_text(data, at, after, place == 1)
            if text is not None:
                exported += 1
                parts += (lead, _length(len(text)), text)
        at = after
    if at != stop:
        raise Malformed("a compound's size and content disagree")
    return stop, exported, b"".join(parts)


def _plain_text(data: bytes, at: int, stop: int, is_user: bool) -> bytes | None:
    """A property other than a short string as text: ids in canonical form, times as ISO 8601, binary as base64.

    The binary of a user's name is text already, mostly.
    """
    code = data[at]
    if code == 0xB1 or code == 0xB3:
        return data[at + 5 : stop]
    if code == 0xA0 or code == 0xB0:
        content = data[at + 2 : stop] if code == 0xA0 else data[at + 5 : stop]
        return content if is_user and _is_text(content) else binascii.b2a_base64(content, newline=False)
    if code == 0x98:
        digits = data[at + 1 : stop].hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()
    if code == 0x83:
        return _instant(int.from_bytes(data[at + 1 : stop], "big", signed=True))
    if code == 0x44:
        return b"0"
    if code == 0x53 or code == 0x80:
        return str(int.from_bytes(data[at + 1 : stop], "big")).encode()
    return None


def _is_text(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


# Days from 0000-03-01 to 1970-01-01 in the proleptic Gregorian calendar, and the days of its 400-year cycle.
_EPOCH_DAYS: Final = 719_468
_CYCLE_DAYS: Final = 146_097
_LAST_YEAR: Final = 9_999


def _instant(time_ms: int) -> bytes:
    """A time in ISO 8601, UTC, with milliseconds; outside years 1 to 9999 the bare number of milliseconds."""
    days, ms = divmod(time_ms, 86_400_000)
    cycle, day = divmod(days + _EPOCH_DAYS, _CYCLE_DAYS)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    year += cycle * 400
    if month >= 10:
        year += 1
        month -= 9
    else:
        month += 3
    if year < 1 or year > _LAST_YEAR:
        return str(time_ms).encode()
    seconds, ms = divmod(ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    return f"{year:04}-{month:02}-{day:02}T{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{ms:03}Z".encode()


# --- records to messages ---------------------------------------------------------------------------------------------

# The epoch (int -1: the hub was never restored or replicated) is constant, so it is written with the next name.
_SEQUENCE_ENTRY: Final = b"\xa3\x1bx-opt-sequence-number-epoch\x54\xff\xa3\x15x-opt-sequence-number\x81"
_OFFSET_ENTRY: Final = b"\xa3\x0cx-opt-offset\xa1"
_TIME_ENTRY: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_PARTITION_KEY_ENTRY: Final = b"\xa3\x13x-opt-partition-key"
_KAFKA_KEY_ENTRY: Final = b"\xa3\x0fx-opt-kafka-key"
# Bytes of the four entries without the digits of the offset: names, epoch, two 8-byte numbers, one length.
_ENTRIES_BYTES: Final = len(_SEQUENCE_ENTRY) + 8 + len(_OFFSET_ENTRY) + 1 + len(_TIME_ENTRY) + 8
# The annotations of an event by the number of digits of its offset: lead, sequence number, name, digits, name, time.
_LEADS: Final[list[bytes]] = [
    bytes((0, 0x53, MESSAGE_ANNOTATIONS, 0xC1, _ENTRIES_BYTES + digits + 1, 8)) + _SEQUENCE_ENTRY
    for digits in range(21)
]
_OFFSET_LEADS: Final[list[bytes]] = [_OFFSET_ENTRY + bytes((digits,)) for digits in range(21)]
_ENTRIES: Final[list[Struct]] = [
    Struct(f">{len(_SEQUENCE_ENTRY)}sq{len(_OFFSET_LEADS[digits])}s{digits}s{len(_TIME_ENTRY)}sq")
    for digits in range(21)
]
# The same with a field less, for events that share their time.
_ANNOTATIONS: Final[list[Struct]] = [
    Struct(f">{len(_LEADS[digits])}sq{len(_OFFSET_LEADS[digits])}s{digits}s{len(_TIME_ENTRY) + 8}s")
    for digits in range(21)
]


def encode_messages(
    records: bytes,
    at: int,
    count: int,
    last_delta: int,
    base_sequence: int,
    offset: int,
    size_bytes: int,
    time_ms: int,
    is_append_time: bool,
) -> tuple[list[bytes], list[int]]:
    """The events of one batch as encoded AMQP messages, and their sequence numbers.

    The numbers are left out (an empty list) when they are dense from `base_sequence`. `records` is uncompressed from
    `at` to its end. The byte number of an event is `offset` plus its share of `size_bytes`; a size of zero says that
    offsets are sequence numbers. `time_ms` is every event's time when `is_append_time`, else their deltas' base.
    """
    end = len(records)
    messages: list[bytes] = []
    numbers: list[int] = []
    if count < 0 or count > last_delta + 1 or count > MAX_RECORDS:
        raise Malformed("a record count is not possible")
    spread = last_delta + 1
    width = 0
    pack = _ANNOTATIONS[width].pack
    lead = _LEADS[width]
    offset_lead = _OFFSET_LEADS[width]
    time_entry = _TIME_ENTRY + time_ms.to_bytes(8, "big", signed=True)
    is_dense = True
    for index in range(count):
        if at + 2 > end:
            raise Malformed("a record is cut short")
        size = records[at]
        if size < 0x80:
            at += 1
        elif records[at + 1] < 0x80:
            size = (size & 0x7F) | records[at + 1] << 7
            at += 2
        else:
            size, at = _read_uvarint(records, at, end)
        stop = at + (size >> 1)
        if size & 1 or stop > end:
            raise Malformed("a record is cut short")

        # The plain event: attributes 0, time delta 0, the expected offset delta, no key, a value, no headers.
        prefix = _KEYLESS[index] if index < TABLE_SIZE else b"\x00\x00" + _uvarint_bytes(index * 2) + b"\x01"
        first = at + len(prefix)
        if is_dense and records[at:first] == prefix and first + 1 < stop and records[stop - 1] == 0:
            size = records[first]
            if size < 0x80:
                first += 1
            elif records[first + 1] < 0x80:
                size = (size & 0x7F) | records[first + 1] << 7
                first += 2
            else:
                size, first = _read_uvarint(records, first, stop)
            if first + (size >> 1) == stop - 1 and not size & 1:
                sequence = base_sequence + index
                digits = b"%d" % (offset + index * size_bytes // spread if size_bytes else sequence)
                if len(digits) != width:
                    width = len(digits)
                    pack = _ANNOTATIONS[width].pack
                    lead = _LEADS[width]
                    offset_lead = _OFFSET_LEADS[width]
                size >>= 1
                messages.append(
                    pack(lead, sequence, offset_lead, digits, time_entry)
                    + (_DATA_HEADS[size] if size < 256 else _DATA32 + size.to_bytes(4, "big"))
                    + records[first : stop - 1]
                )
                at = stop
                continue

        time_delta, delta, key, value, headers = _record(records, at, stop)
        if delta > last_delta or delta < index or (numbers and base_sequence + delta <= numbers[-1]):
            raise Malformed("offset deltas do not increase")
        if is_dense and delta != index:
            is_dense = False
            numbers = [base_sequence + n for n in range(index)]
        if not is_dense:
            numbers.append(base_sequence + delta)
        sequence = base_sequence + delta
        digits = b"%d" % (offset + delta * size_bytes // spread if size_bytes else sequence)
        entries = _ENTRIES[len(digits)].pack(
            _SEQUENCE_ENTRY,
            sequence,
            _OFFSET_LEADS[len(digits)],
            digits,
            _TIME_ENTRY,
            time_ms if is_append_time else _time_of(time_ms, time_delta),
        )
        messages.append(_message(key, value, headers, entries, 8))
        at = stop
    if at != end:
        raise Malformed("a batch holds more than its records")
    return messages, numbers


def _time_of(time_ms: int, delta: int) -> int:
    """An event's own time, inside 64 bits whatever a producer wrote."""
    return min(max(time_ms + delta, -0x8000_0000_0000_0000), 0x7FFF_FFFF_FFFF_FFFF)


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
        found.append(_record(records, at, at + size))
        at += size
    if at != end:
        raise Malformed("a batch holds more than its records")
    return found


def _record(
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
        if count == 2 and at < stop and data[at:stop] == _PLAIN_ENVELOPE:
            return time_delta, delta, key, value, _PLAIN_HEADERS
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


def message_of(key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]]) -> bytes:
    """The message that a reader gets of a record, but for the four annotations that say where it stands."""
    return _message(key, value, headers, b"", 0)


def _message(
    key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]], entries: bytes, count: int
) -> bytes:
    """The message of a record: rebuilt from its envelope, or the AMQP view of a Kafka record.

    `entries` are `count` keys and values of annotations to begin with. A Kafka client may write what looks like an
    envelope: it is honoured when it comes last and all of it holds, else it is a header like any other.
    """
    is_ours = headers is _PLAIN_HEADERS and value is not None and key is not None and key.isascii()
    if is_ours and key is not None:
        count += 2
        entries = entries + _PARTITION_KEY_ENTRY + _sized(0xA1, key)
    elif headers:
        name, envelope = headers[-1]
        if name == ENVELOPE_NAME and envelope is not None:
            try:
                return _from_envelope(key, value, headers, entries, count, envelope)
            except Malformed:
                pass
    if key is not None and not is_ours:
        count += 2
        entries = entries + _KAFKA_KEY_ENTRY + _sized(0xA0, key)
    section = _map_section(MESSAGE_ANNOTATIONS, count, entries)
    if headers and not is_ours:
        section += _binary_properties(headers)
    if not value:
        return section + _EMPTY_DATA
    size = len(value)
    return section + (_DATA_HEADS[size] if size < 256 else _DATA32 + size.to_bytes(4, "big")) + value


def _binary_properties(headers: list[tuple[bytes, bytes | None]]) -> bytes:
    """Headers of a Kafka producer as application properties: untouched bytes, of a repeated name the last."""
    last: dict[bytes, bytes] = {}
    for name, content in headers:
        lead = _PROPERTY_LEADS.get(name)
        if lead is None:
            lead = _property_lead(name if _is_text(name) else name.decode("utf-8", "replace").encode())
        last[lead] = b"\x40" if content is None else _sized(0xA0, content)
    parts: list[bytes] = []
    for lead, encoded in last.items():
        parts += (lead, encoded)
    return _map_section(APPLICATION_PROPERTIES, len(parts), b"".join(parts))


def _from_envelope(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[bytes, bytes | None]],
    entries: bytes,
    count: int,
    envelope: bytes,
) -> bytes:
    """The message as it was sent, but for its header section, which the service does not deliver either.

    A reader that honours a header's time-to-live would discard events that the hub still keeps.
    """
    end = len(envelope)
    if end < 4 or envelope[0] != ENVELOPE_VERSION:
        raise Malformed("an envelope is of another version")
    flags = envelope[1]
    if envelope[2] < 0x80 and envelope[3] < 0x80:
        application = envelope[2]
        exported = envelope[3]
        at = 4
    else:
        application, at = _read_uvarint(envelope, 2, end)
        exported, at = _read_uvarint(envelope, at, end)
    if application + exported + 1 != len(headers):
        raise Malformed("an envelope does not fit its headers")
    if flags & 0x07 == 0 and value is not None:
        size = len(value)
        body = (_DATA_HEADS[size] if size < 256 else _DATA32 + size.to_bytes(4, "big")) + value
    else:
        body, at = _body_sections(value, envelope, at, end)

    if flags & FLAG_HEADER:
        at = _raw_section(envelope, at, end, HEADER)
    if key is not None:
        if not _is_text(key):
            raise Malformed("a partition key is not UTF-8")
        count += 2
        entries = entries + _PARTITION_KEY_ENTRY + _sized(0xA1, key)
    if flags & FLAG_ANNOTATIONS:
        begin = at + 3
        at = _raw_section(envelope, at, end, MESSAGE_ANNOTATIONS)
        _, stored, first = _map_head(envelope, begin, at)
        count += stored
        entries = entries + envelope[first:at]
    begin = at
    if flags & FLAG_PROPERTIES:
        at = _raw_section(envelope, at, end, PROPERTIES)
    if flags & FLAG_RAW_APPLICATION:
        if application:
            raise Malformed("application properties are given twice")
        at = _raw_section(envelope, at, end, APPLICATION_PROPERTIES)
    properties = envelope[begin:at]
    begin = at
    if flags & FLAG_FOOTER:
        at = _raw_section(envelope, at, end, FOOTER)
    if at < end:
        at = _raw_section(envelope, at, end, DELIVERY_ANNOTATIONS)
    if at != end:
        raise Malformed("an envelope holds more than its sections")
    return b"".join(
        (
            _map_section(MESSAGE_ANNOTATIONS, count, entries),
            properties,
            _verbatim_properties(headers, application) if application else b"",
            body,
            envelope[begin:],
        )
    )


def _raw_section(envelope: bytes, at: int, end: int, section: int) -> int:
    """The end of a section in an envelope, which must be the wanted one and sound."""
    if at + 4 > end or envelope[at] != 0 or envelope[at + 1] != 0x53 or envelope[at + 2] != section:
        raise Malformed("an envelope lacks a section")
    if section in (HEADER, PROPERTIES):
        stop, count, at = _list_head(envelope, at + 3, end)
    else:
        stop, count, at = _map_head(envelope, at + 3, end)
    if _values_end(envelope, count, at, stop, 1) != stop:
        raise Malformed("a compound's size and content disagree")
    return stop


def _verbatim_properties(headers: list[tuple[bytes, bytes | None]], count: int) -> bytes:
    """The first headers as application properties, each with the encoding that its publisher chose."""
    parts: list[bytes] = []
    for name, content in headers[:count]:
        lead = _PROPERTY_LEADS.get(name)
        if lead is None:
            lead = _property_lead(name)
        if not content:
            raise Malformed("a header is not an application property")
        size = len(content)
        shape = _SHAPES[content[0]]
        is_plain = shape == size - 1 or (shape == _VARIABLE8 and size > 1 and content[1] == size - 2)
        if not is_plain and value_end(content, 0, size, 1) != size:
            raise Malformed("a header is not an application property")
        parts += (lead, content)
    return _map_section(APPLICATION_PROPERTIES, count * 2, b"".join(parts))


def _property_lead(name: bytes) -> bytes:
    """The name of a property as an AMQP string."""
    if not _is_text(name):
        raise Malformed("a property's name is not UTF-8")
    lead = _sized(0xA1, name)
    if len(_PROPERTY_LEADS) < MAX_REMEMBERED_NAMES and len(name) < MAX_REMEMBERED_BYTES:
        _PROPERTY_LEADS[name] = lead
    return lead


def _body_sections(value: bytes | None, envelope: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The body sections of a stored message, and where the envelope goes on after their detail."""
    flags = envelope[1]
    kind = flags & KIND_MASK
    if kind == KIND_MANY_DATA:
        return _data_sections(value, envelope, at, end)
    if flags & FLAG_ENCODED:
        if value is None:
            raise Malformed("a body is missing")
        return (_sequence_sections(value) if kind == KIND_SEQUENCE else _value_section(value)), at
    if kind != KIND_VALUE or at >= end:
        raise Malformed("a body does not fit its kind")
    code = envelope[at]
    if code == 0x40 and value is None:
        return b"\x00\x53\x77\x40", at + 1
    if value is not None:
        if (code == 0xA0 or code == 0xA1) and len(value) < 256:
            return bytes((0, 0x53, VALUE, code, len(value))) + value, at + 1
        if code == 0xB0 or code == 0xB1:
            return bytes((0, 0x53, VALUE, code)) + len(value).to_bytes(4, "big") + value, at + 1
    raise Malformed("a body does not fit its kind")


def _value_section(value: bytes) -> bytes:
    if value_end(value, 0, len(value), 0) != len(value):
        raise Malformed("a body is not one value")
    return b"\x00\x53\x77" + value


def _sequence_sections(value: bytes) -> bytes:
    """One section for each list that lies in the record's value."""
    parts: list[bytes] = []
    at = 0
    end = len(value)
    while at < end:
        stop = _checked_list(value, at, end)
        parts += (b"\x00\x53\x76", value[at:stop])
        at = stop
    if not parts:
        raise Malformed("a body is missing")
    return b"".join(parts)


def _data_sections(value: bytes | None, envelope: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Several data sections cut out of the record's value, or none."""
    count, at = _read_uvarint(envelope, at, end)
    if count == 0 and value is None:
        return b"", at
    if count == 0 or value is None:
        raise Malformed("a body does not fit its kind")
    parts: list[bytes] = []
    begin = 0
    for _ in range(count - 1):
        size, at = _read_uvarint(envelope, at, end)
        if begin + size > len(value):
            raise Malformed("a body does not fit its kind")
        parts += (b"\x00\x53\x75", _sized(0xA0, value[begin : begin + size]))
        begin += size
    parts += (b"\x00\x53\x75", _sized(0xA0, value[begin:]))
    return b"".join(parts), at


# --- messages to transfer frames -------------------------------------------------------------------------------------

# From the delivery-tag to the payload: an empty tag, message-format 0, settled, more false, four nulls, batchable
# (AMQP 1.0, 2.7.5).
_TRANSFER_TAIL: Final = b"\xa0\x00\x43\x41\x42\x40\x40\x40\x40\x41"


def frame_template(channel: int, handle: int) -> tuple[Struct, bytes]:
    """What the transfers of one link share: their layout, and the bytes before the delivery-id.

    Every field of the transfer is written, the nulls too. Deliveries are settled and have an empty tag.
    """
    handle_part = bytes((0x52, handle)) if handle < 256 else b"\x70" + handle.to_bytes(4, "big")
    size = len(handle_part) + 16
    lead = bytes((2, 0, channel >> 8, channel & 0xFF, 0, 0x53, 0x14, 0xC0, size, 11)) + handle_part + b"\x70"
    return Struct(f">I{len(lead)}sI{len(_TRANSFER_TAIL)}s"), lead


def frame_messages(
    messages: list[bytes],
    first: int,
    limit: int,
    room_bytes: int,
    max_frame_size: int,
    template: tuple[Struct, bytes],
    delivery_id: int,
    annotations: bytes,
) -> tuple[list[bytes], int, int]:
    """Messages as whole single-frame transfers: the pieces to join, how many, and the bytes that they fill.

    Stops at `limit` frames, before the frame that would overfill `room_bytes`, and before a message that needs more
    than one frame. `annotations` is a section of delivery annotations to begin each message with, or empty.
    """
    layout, lead = template
    pack = layout.pack
    extra = layout.size + len(annotations)
    frames: list[bytes] = []
    filled = 0
    count = 0
    for message in messages[first : first + limit]:
        size = extra + len(message)
        filled += size
        if size > max_frame_size or filled > room_bytes:
            filled -= size
            break
        frames.append(pack(size, lead, (delivery_id + count) & 0xFFFF_FFFF, _TRANSFER_TAIL))
        count += 1
        if annotations:
            frames.append(annotations)
        frames.append(message)
    return frames, count, filled
