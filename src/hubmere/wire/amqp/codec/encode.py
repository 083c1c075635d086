"""AMQP values to bytes (AMQP 1.0, part 1), in the shortest encoding of their type.

A value without a single AMQP type, or outside the range of its type, raises `LocalProtocolError`. Writers are looked up
by the exact class of a value.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from hubmere.wire.amqp.codec.types import (
    Array,
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
from hubmere.wire.amqp.errors import LocalProtocolError

_U32 = struct.Struct(">I")
_U32X2 = struct.Struct(">II")
_U32_AFTER_CODE = struct.Struct(">BI")
_COMPOUND32 = struct.Struct(">BII")


def _pack(code: int, fmt: str) -> Callable[[Any], bytes]:
    layout = struct.Struct(f">B{fmt}")
    return lambda value: layout.pack(code, value)


_WIDE_UINT, _WIDE_ULONG, _WIDE_INT, _WIDE_LONG = _pack(0x70, "I"), _pack(0x80, "Q"), _pack(0x71, "i"), _pack(0x81, "q")


def write_bool(value: bool) -> bytes:
    """boolean in its one-byte form"""
    return b"\x41" if value else b"\x42"


def write_uint(value: int) -> bytes:
    """uint in its shortest form"""
    if 0 < value < 256:
        return bytes((0x52, value))
    return _WIDE_UINT(value) if value else b"\x43"


def write_ulong(value: int) -> bytes:
    """ulong in its shortest form"""
    if 0 < value < 256:
        return bytes((0x53, value))
    return _WIDE_ULONG(value) if value else b"\x44"


def _write_int(value: int) -> bytes:
    return bytes((0x54, value & 0xFF)) if -128 <= value < 128 else _WIDE_INT(value)


def _write_long(value: int) -> bytes:
    return bytes((0x55, value & 0xFF)) if -128 <= value < 128 else _WIDE_LONG(value)


def _with_size(narrow: int, raw: bytes) -> bytes:
    if len(raw) < 256:
        return bytes((narrow, len(raw))) + raw
    return _U32_AFTER_CODE.pack(narrow + 0x10, len(raw)) + raw


def write_binary(value: bytes) -> bytes:
    """binary"""
    return _with_size(0xA0, value)


def write_string(value: str) -> bytes:
    """string"""
    return _with_size(0xA1, value.encode("utf-8"))


def write_symbol(value: str) -> bytes:
    """symbol"""
    return _with_size(0xA3, value.encode("ascii"))


def write_compound(narrow: int, count: int, body: bytes) -> bytes:
    """A list (0xc0) or map (0xc1) of `count` already encoded elements, narrow when it fits."""
    if len(body) < 255 and count < 256:
        return bytes((narrow, len(body) + 1, count)) + body
    return _COMPOUND32.pack(narrow + 0x10, len(body) + 4, count) + body


def _write_list(value: list[Value]) -> bytes:
    if not value:
        return b"\x45"
    return write_compound(0xC0, len(value), b"".join([_write(item) for item in value]))


def write_map(value: dict[Value, Value]) -> bytes:
    """map; keys and values keep their own types"""
    body = b"".join([_write(item) for pair in value.items() for item in pair])
    return write_compound(0xC1, len(value) * 2, body)


def _write_described(value: Described) -> bytes:
    return b"\x00" + _write(value.descriptor) + _write(value.value)


def _write_array(value: Array) -> bytes:
    described_type = value.descriptor is not None
    plain = [item.value for item in value.items] if described_type else list(value.items)
    if any(_ELEMENT_CODE.get(type(item)) != value.code for item in plain):
        raise LocalProtocolError("an array holds elements of another type")
    code, elements = _write_elements(value.code, plain)
    head = (b"\x00" + _write(value.descriptor) if described_type else b"") + bytes((code,))
    return write_compound(0xE0, len(plain), head + elements)


def _write_elements(code: int, items: list[Value]) -> tuple[int, bytes]:
    """The constructor that fits all items, and their bytes without constructors."""
    if code in _ELEMENT_WRITERS:
        return code, b"".join([_ELEMENT_WRITERS[code](item) for item in items])
    raw = [_TO_BYTES[code](item) for item in items]
    if all(len(item) < 256 for item in raw):
        return code - 0x10, b"".join([bytes((len(item),)) + item for item in raw])
    return code, b"".join([_U32.pack(len(item)) + item for item in raw])


def _write_wide_compound(items: list[Value]) -> bytes:
    body = b"".join([_write(item) for item in items])
    return _U32X2.pack(len(body) + 4, len(items)) + body


def _write_wide_map(value: dict[Value, Value]) -> bytes:
    return _write_wide_compound([item for pair in value.items() for item in pair])


def _write_wide_array(value: Array) -> bytes:
    narrow_or_wide = _write_array(value)
    if narrow_or_wide[0] == 0xF0:
        return narrow_or_wide[1:]
    return _U32X2.pack(len(narrow_or_wide) - 3 + 4, len(value.items)) + narrow_or_wide[3:]


def _element(fmt: str) -> Callable[[Any], bytes]:
    return struct.Struct(">" + fmt).pack


def _char_point(value: Char) -> int:
    if len(value) != 1 or 0xD800 <= ord(value) <= 0xDFFF:
        raise LocalProtocolError("a char is one Unicode scalar")
    return ord(value)


def _raw(code: int, width: int) -> Callable[[bytes], bytes]:
    def write(value: bytes) -> bytes:
        if len(value) != width:
            raise LocalProtocolError(f"a decimal of this type has {width} bytes")
        return bytes((code,)) + value

    return write


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _value: b"\x40",
    bool: write_bool,
    UByte: _pack(0x50, "B"),
    UShort: _pack(0x60, "H"),
    UInt: write_uint,
    ULong: write_ulong,
    Byte: _pack(0x51, "b"),
    Short: _pack(0x61, "h"),
    Int: _write_int,
    Long: _write_long,
    Float: _pack(0x72, "f"),
    float: _pack(0x82, "d"),
    Timestamp: _pack(0x83, "q"),
    Char: lambda value: b"\x73" + _U32.pack(_char_point(value)),
    Decimal32: _raw(0x74, 4),
    Decimal64: _raw(0x84, 8),
    Decimal128: _raw(0x94, 16),
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    bytes: write_binary,
    bytearray: write_binary,
    memoryview: lambda value: _with_size(0xA0, bytes(value)),
    str: write_string,
    Symbol: write_symbol,
    list: _write_list,
    dict: write_map,
    Described: _write_described,
    Array: _write_array,
}

_ELEMENT_CODE: dict[type, int] = {
    type(None): 0x40,
    bool: 0x56,
    UByte: 0x50,
    UShort: 0x60,
    UInt: 0x70,
    ULong: 0x80,
    Byte: 0x51,
    Short: 0x61,
    Int: 0x71,
    Long: 0x81,
    Float: 0x72,
    float: 0x82,
    Timestamp: 0x83,
    Char: 0x73,
    Decimal32: 0x74,
    Decimal64: 0x84,
    Decimal128: 0x94,
    uuid.UUID: 0x98,
    bytes: 0xB0,
    str: 0xB1,
    Symbol: 0xB3,
    list: 0xD0,
    dict: 0xD1,
    Array: 0xF0,
}
_ELEMENT_WRITERS: dict[int, Callable[[Any], bytes]] = {
    0x40: lambda _value: b"",
    0x56: lambda value: b"\x01" if value else b"\x00",
    0x50: _element("B"),
    0x60: _element("H"),
    0x70: _element("I"),
    0x80: _element("Q"),
    0x51: _element("b"),
    0x61: _element("h"),
    0x71: _element("i"),
    0x81: _element("q"),
    0x72: _element("f"),
    0x82: _element("d"),
    0x83: _element("q"),
    0x73: lambda value: _U32.pack(_char_point(value)),
    0x74: bytes,
    0x84: bytes,
    0x94: bytes,
    0x98: lambda value: bytes(value.bytes),
    0xD0: _write_wide_compound,
    0xD1: _write_wide_map,
    0xF0: _write_wide_array,
}
_TO_BYTES: dict[int, Callable[[Any], bytes]] = {
    0xB0: bytes,
    0xB1: lambda value: value.encode("utf-8"),
    0xB3: lambda value: value.encode("ascii"),
}


def _write(value: Value) -> bytes:
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise LocalProtocolError(f"{type(value).__name__} has no single AMQP type; wrap the value")
    return writer(value)


def encode_value(value: Value) -> bytes:
    """The value in the shortest encoding of its type."""
    try:
        return _write(value)
    except (struct.error, OverflowError, UnicodeEncodeError) as refused:
        raise LocalProtocolError(f"value outside its AMQP type: {refused}") from None


def array_of(items: Iterable[Value], kind: type = Symbol) -> Array:
    """An array of `kind`, one of the classes for AMQP types; plain text is converted to it."""
    return Array(tuple(item if type(item) is kind else kind(item) for item in items), _ELEMENT_CODE[kind])
