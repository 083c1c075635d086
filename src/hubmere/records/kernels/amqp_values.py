"""AMQP 1.0 values and message sections: where they begin and end, checked byte by byte.

Follows AMQP 1.0 part 1 (types) and part 3 (message sections). Nothing here decodes a value that is only passed on.
"""

from typing import Final

# Nesting of lists, maps, arrays and described values: more than any client writes, far less than our stack.
MAX_DEPTH: Final = 32
# Elements of an array whose elements have no bytes: its size does not bound its count, so this does (the generic codec
# of `wire` has the same bound).
MAX_HOLLOW_ELEMENTS: Final = 4_096

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

DATA8: Final = b"\x00\x53\x75\xa0"
DATA32: Final = b"\x00\x53\x75\xb0"
EMPTY_DATA: Final = b"\x00\x53\x75\xa0\x00"
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
    """Input that breaks the format; the text names the fault."""


# Shape of a value by its constructor: bytes that follow when fixed, else one of the negative marks.
_UNKNOWN: Final = -1
VARIABLE8: Final = -2
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
        VARIABLE8: b"\xa0\xa1\xa3",
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


SHAPES: Final[list[int]] = _value_shapes()


def read_u32(data: bytes, at: int, end: int) -> int:
    if at + 4 > end:
        raise Malformed("a length is cut short")
    return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


def value_end(data: bytes, at: int, end: int, depth: int) -> int:
    """Where the AMQP value at `at` ends; every byte of it has been checked."""
    if at >= end:
        raise Malformed("a value is missing")
    code = data[at]
    shape = SHAPES[code]
    if shape >= 0:
        at += 1 + shape
        if at > end:
            raise Malformed("a value is cut short")
        return at
    if shape == VARIABLE8:
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
    """The end of the content of a variable-width value, whose constructor precedes it or the array that it is in."""
    shape = SHAPES[code]
    if shape == VARIABLE8:
        if at >= end:
            raise Malformed("a length is cut short")
        at += 1 + data[at]
    elif shape == _VARIABLE32:
        at += 4 + read_u32(data, at, end)
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
    stop, count, at = _compound_head(data, SHAPES[code], at, end)
    if SHAPES[code] <= _ARRAY8:
        at = _elements_end(data, count, at, stop, depth + 1)
    else:
        if code & 0x0F == 1 and count & 1:
            raise Malformed("a map has a key without a value")
        at = values_end(data, count, at, stop, depth + 1)
    if at != stop:
        raise Malformed("a compound's size and content disagree")
    return stop


def values_end(data: bytes, count: int, at: int, stop: int, depth: int) -> int:
    """The end of consecutive values; the usual shapes are stepped over here without a call."""
    for _ in range(count):
        if at >= stop:
            raise Malformed("a value is missing")
        shape = SHAPES[data[at]]
        if shape >= 0:
            at += 1 + shape
        elif shape == VARIABLE8 and at + 1 < stop:
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
        stop = at + 4 + read_u32(data, at, end)
        count = read_u32(data, at + 4, end)
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
    shape = SHAPES[code]
    if shape >= 0:
        if shape == 0 and count > MAX_HOLLOW_ELEMENTS:
            raise Malformed("an array of empty elements is too long")
        return at + 1 + count * shape
    at += 1
    for _ in range(count):
        at = _content_end(data, code, at, stop, depth)
    return at


def text_of(data: bytes, at: int, stop: int) -> bytes:
    """The characters of a string or symbol, empty for any other value."""
    code = data[at]
    if code == 0xA3 or code == 0xA1:
        return data[at + 2 : stop]
    if code == 0xB3 or code == 0xB1:
        return data[at + 5 : stop]
    return b""


def integer_of(data: bytes, at: int, stop: int) -> int:
    """The number in an integer value of any width."""
    code = data[at]
    if code == 0x43 or code == 0x44:
        return 0
    if code not in b"\x50\x51\x52\x53\x54\x55\x60\x61\x70\x71\x80\x81":
        raise Malformed("a producer annotation is not an integer")
    return int.from_bytes(data[at + 1 : stop], "big", signed=code in b"\x51\x54\x55\x61\x71\x81")


def encode_sized(code: int, content: bytes) -> bytes:
    """A variable-width value in its short or long form; `code` is the short constructor."""
    size = len(content)
    if size < 256:
        return bytes((code, size)) + content
    return bytes((code + 0x10,)) + size.to_bytes(4, "big") + content


def map_section(section: int, count: int, entries: bytes) -> bytes:
    """A described map in its shortest form."""
    size = len(entries) + 1
    if size < 256 and count < 256:
        return bytes((0, 0x53, section, 0xC1, size, count)) + entries
    return bytes((0, 0x53, section, 0xD1)) + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big") + entries


DATA_HEADS: Final[list[bytes]] = [DATA8 + bytes((n,)) for n in range(256)]


def section_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Code of the section at `at`, and where its value begins; the descriptor may have any of its legal forms."""
    if at + 3 > end or data[at] != 0:
        raise Malformed("a section is expected")
    form = data[at + 1]
    if form == 0x53:
        return data[at + 2], at + 3
    stop = value_end(data, at + 1, end, 0)
    if form == 0x80:
        return int.from_bytes(data[at + 2 : stop], "big"), stop
    return _SECTION_NAMES.get(text_of(data, at + 1, stop), -1), stop


def map_head(data: bytes, at: int, end: int) -> tuple[int, int, int]:
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


def list_head(data: bytes, at: int, end: int) -> tuple[int, int, int]:
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


def list_end(data: bytes, at: int, end: int) -> int:
    """The end of a section's list, all of it checked."""
    list_head(data, at, end)
    return value_end(data, at, end, 0)


def data_extent(data: bytes, at: int, end: int) -> tuple[int, int]:
    """First byte and end of the binary in a Data section."""
    if at + 2 > end:
        raise Malformed("a data section is cut short")
    if data[at] == 0xA0:
        first = at + 2
        stop = first + data[at + 1]
    elif data[at] == 0xB0:
        first = at + 5
        stop = first + read_u32(data, at + 1, end)
    else:
        raise Malformed("a data section does not hold binary")
    if stop > end:
        raise Malformed("a data section is cut short")
    return first, stop


def is_text(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
