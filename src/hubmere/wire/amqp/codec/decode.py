"""Decodes AMQP values (AMQP 1.0, part 1), or skips them.

Undecodable input raises `RemoteProtocolError` with `amqp:decode-error` and nothing else. Depth, element counts and
sizes are checked against the bytes at hand before anything is allocated. Constructors are looked up in one table.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from hubmere.wire.amqp.codec.types import (
    Array,
    Buffer,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from hubmere.wire.amqp.errors import Condition, RemoteProtocolError

# Reads the value after its constructor byte: (buffer, position, levels left) to (value, position behind it).
Decoder: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]

# Described types, lists, maps and arrays inside each other. Real messages stay below 6; the stack allows far more.
MAX_DEPTH = 32
# Elements of zero width (null, true, list0...) cost the sender no bytes, but cost us 8 bytes each.
MAX_ZERO_WIDTH_ELEMENTS = 4096


def decode_error(text: str) -> RemoteProtocolError:
    """The error for bytes that are not an AMQP value."""
    return RemoteProtocolError(Condition.DECODE_ERROR, text)


_TRUNCATED = "the value ends before its announced length"


def _constant(value: Value) -> Decoder:
    return lambda _buf, pos, _depth: (value, pos)


def _fixed_width(fmt: str, make: Callable[[Any], Any] | None = None) -> Decoder:
    layout = struct.Struct(">" + fmt)
    size = layout.size
    unpack = layout.unpack_from
    if make is None:
        return lambda buf, pos, _depth: (unpack(buf, pos)[0], pos + size)
    wrap = make
    return lambda buf, pos, _depth: (wrap(unpack(buf, pos)[0]), pos + size)


def _read_bool(buf: Buffer, pos: int, _depth: int) -> tuple[bool, int]:
    value = buf[pos]
    if value > 1:
        raise decode_error("a boolean is neither 0 nor 1")
    return value == 1, pos + 1


def _read_char(buf: Buffer, pos: int, _depth: int) -> tuple[Char, int]:
    (point,) = _U32.unpack_from(buf, pos)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise decode_error("a char is no Unicode scalar")
    return Char(chr(point)), pos + 4


_U32 = struct.Struct(">I")
_U32X2 = struct.Struct(">II")


def _slice8(buf: Buffer, pos: int) -> tuple[int, int]:
    start = pos + 1
    end = start + buf[pos]
    if end > len(buf):
        raise decode_error(_TRUNCATED)
    return start, end


def _slice32(buf: Buffer, pos: int) -> tuple[int, int]:
    start = pos + 4
    end = start + _U32.unpack_from(buf, pos)[0]
    if end > len(buf):
        raise decode_error(_TRUNCATED)
    return start, end


def _variable(bounds: Callable[[Buffer, int], tuple[int, int]], make: Callable[[Buffer], Any]) -> Decoder:
    def read(buf: Buffer, pos: int, _depth: int) -> tuple[Any, int]:
        start, end = bounds(buf, pos)
        return make(buf[start:end]), end

    return read


def _text(raw: Buffer) -> str:
    return str(raw, "utf-8")


def _symbol(raw: Buffer) -> Symbol:
    return Symbol(str(raw, "ascii"))


def _uuid(raw: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=raw)


def _compound_bounds(buf: Buffer, pos: int, narrow: bool) -> tuple[int, int, int]:
    """Count, first element and end of a list, map or array whose size field is at `pos`."""
    if narrow:
        size, count = buf[pos], buf[pos + 1]
        start, end = pos + 2, pos + 1 + size
    else:
        size, count = _U32X2.unpack_from(buf, pos)
        start, end = pos + 8, pos + 4 + size
    if start > end or end > len(buf):
        raise decode_error(_TRUNCATED)
    return count, start, end


def _read_items(buf: Buffer, pos: int, narrow: bool, depth: int) -> tuple[list[Value], int]:
    if depth <= 0:
        raise decode_error(f"values are nested deeper than {MAX_DEPTH} levels")
    count, pos, end = _compound_bounds(buf, pos, narrow)
    if count > end - pos:
        raise decode_error("a list or map announces more elements than it has bytes")
    items = []
    depth -= 1
    for _ in range(count):
        value, pos = DECODERS[buf[pos]](buf, pos + 1, depth)
        items.append(value)
    if pos != end:
        raise decode_error("the elements of a list or map do not fill it")
    return items, pos


def _list(narrow: bool) -> Decoder:
    return lambda buf, pos, depth: _read_items(buf, pos, narrow, depth)


def _map(narrow: bool) -> Decoder:
    def read(buf: Buffer, pos: int, depth: int) -> tuple[dict[Value, Value], int]:
        items, pos = _read_items(buf, pos, narrow, depth)
        pairs = iter(items)
        try:
            result = dict(zip(pairs, pairs, strict=True))
        except (TypeError, ValueError):
            raise decode_error("a map has an odd number of elements or a compound key") from None
        if len(result) * 2 != len(items):
            # AMQP 1.0, 1.6.23: a map in which two keys are identical is invalid.
            raise decode_error("a map holds a key twice")
        return result, pos

    return read


def _read_constructor(buf: Buffer, pos: int, depth: int) -> tuple[Value, int, int]:
    """Descriptor (None without), type code and the position behind the constructor of an array's elements."""
    descriptor, code = None, buf[pos]
    if not code:
        descriptor, pos = _read_any(buf, pos + 1, depth - 1)
        code = buf[pos]
        if descriptor is None:
            raise decode_error("an array element has a null descriptor")
    if not code or code not in _CODES:
        raise decode_error(f"0x{code:02x} is no type of array elements")
    return descriptor, code, pos + 1


def _array(narrow: bool) -> Decoder:
    def read(buf: Buffer, pos: int, depth: int) -> tuple[Array, int]:
        if depth <= 0:
            raise decode_error(f"values are nested deeper than {MAX_DEPTH} levels")
        count, pos, end = _compound_bounds(buf, pos, narrow)
        descriptor, code, pos = _read_constructor(buf, pos, depth)
        if count > max(end - pos, MAX_ZERO_WIDTH_ELEMENTS if code in _ZERO_WIDTH else 0):
            raise decode_error("an array announces more elements than it may have")
        read_element = DECODERS[code]
        items = []
        for _ in range(count):
            value, pos = read_element(buf, pos, depth - 1)
            items.append(value if descriptor is None else Described(descriptor, value))
        if pos != end:
            raise decode_error("the elements of an array do not fill it")
        return Array(tuple(items), _WIDEST.get(code, code), descriptor), pos

    return read


def _read_described(buf: Buffer, pos: int, depth: int) -> tuple[Described, int]:
    if depth <= 0:
        raise decode_error(f"values are nested deeper than {MAX_DEPTH} levels")
    descriptor, pos = _read_any(buf, pos, depth - 1)
    value, pos = _read_any(buf, pos, depth - 1)
    return Described(descriptor, value), pos


def _read_unknown(buf: Buffer, pos: int, _depth: int) -> tuple[Value, int]:
    raise decode_error(f"0x{buf[pos - 1]:02x} is no type of AMQP")


def _read_any(buf: Buffer, pos: int, depth: int) -> tuple[Value, int]:
    return DECODERS[buf[pos]](buf, pos + 1, depth)


# Constructors of unsigned numbers that performatives use, read as plain integers.
PLAIN_UINT: dict[int, Decoder] = {0x43: _constant(0), 0x52: _fixed_width("B"), 0x70: _fixed_width("I")}
PLAIN_ULONG: dict[int, Decoder] = {0x44: _constant(0), 0x53: _fixed_width("B"), 0x80: _fixed_width("Q")}

_CODES: dict[int, Decoder] = {
    0x00: _read_described,
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(UInt(0)),
    0x44: _constant(ULong(0)),
    0x45: lambda _buf, pos, _depth: ([], pos),
    0x50: _fixed_width("B", UByte),
    0x51: _fixed_width("b", Byte),
    0x52: _fixed_width("B", UInt),
    0x53: _fixed_width("B", ULong),
    0x54: _fixed_width("b", Int),
    0x55: _fixed_width("b", Long),
    0x56: _read_bool,
    0x60: _fixed_width("H", UShort),
    0x61: _fixed_width("h", Short),
    0x70: _fixed_width("I", UInt),
    0x71: _fixed_width("i", Int),
    0x72: _fixed_width("f", Float),
    0x73: _read_char,
    0x74: _fixed_width("4s", Decimal32),
    0x80: _fixed_width("Q", ULong),
    0x81: _fixed_width("q", Long),
    0x82: _fixed_width("d"),
    0x83: _fixed_width("q", Timestamp),
    0x84: _fixed_width("8s", Decimal64),
    0x94: _fixed_width("16s", Decimal128),
    0x98: _fixed_width("16s", _uuid),
    0xA0: _variable(_slice8, bytes),
    0xA1: _variable(_slice8, _text),
    0xA3: _variable(_slice8, _symbol),
    0xB0: _variable(_slice32, bytes),
    0xB1: _variable(_slice32, _text),
    0xB3: _variable(_slice32, _symbol),
    0xC0: _list(True),
    0xC1: _map(True),
    0xD0: _list(False),
    0xD1: _map(False),
    0xE0: _array(True),
    0xF0: _array(False),
}
# Indexed by constructor byte; the positions that are passed in are behind it.
DECODERS: tuple[Decoder, ...] = tuple(_CODES.get(code, _read_unknown) for code in range(256))

_ZERO_WIDTH = frozenset({0x40, 0x41, 0x42, 0x43, 0x44, 0x45})
_WIDEST = {
    0x41: 0x56,
    0x42: 0x56,
    0x43: 0x70,
    0x44: 0x80,
    0x45: 0xD0,
    0x52: 0x70,
    0x53: 0x80,
    0x54: 0x71,
    0x55: 0x81,
    0xA0: 0xB0,
    0xA1: 0xB1,
    0xA3: 0xB3,
    0xC0: 0xD0,
    0xC1: 0xD1,
    0xE0: 0xF0,
}


def decode_value(data: Buffer, pos: int = 0) -> tuple[Value, int]:
    """The value whose constructor is at `pos`, and the position behind it."""
    try:
        return DECODERS[data[pos]](data, pos + 1, MAX_DEPTH)
    except (IndexError, struct.error):
        raise decode_error(_TRUNCATED) from None
    except UnicodeDecodeError:
        raise decode_error("a string is not UTF-8 or a symbol not ASCII") from None


# Width of the fixed types by the upper half of the constructor: AMQP 1.0, 1.2.
_FIXED_WIDTH = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def skip_value(data: Buffer, pos: int = 0) -> int:
    """The position behind the value at `pos`, found from lengths alone; the value is not decoded."""
    values_left, steps_left = 1, MAX_DEPTH * 2
    try:
        while values_left:
            code = data[pos]
            if code == 0:
                values_left, steps_left, pos = values_left + 1, steps_left - 1, pos + 1
                if not steps_left:
                    raise decode_error(f"values are nested deeper than {MAX_DEPTH} levels")
                continue
            pos = _skip_one(data, pos + 1, code)
            values_left -= 1
    except (IndexError, struct.error):
        raise decode_error(_TRUNCATED) from None
    return pos


def _skip_one(data: Buffer, pos: int, code: int) -> int:
    width = _FIXED_WIDTH.get(code >> 4)
    if width is not None:
        pos += width
    elif code >> 4 in (0xA, 0xC, 0xE):
        pos += 1 + data[pos]
    elif code >> 4 in (0xB, 0xD, 0xF):
        pos += 4 + int(_U32.unpack_from(data, pos)[0])
    else:
        raise decode_error(f"0x{code:02x} is no type of AMQP")
    if pos > len(data):
        raise decode_error(_TRUNCATED)
    return pos
