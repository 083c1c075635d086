"""Described lists: how a class whose fields are declared with `wire` is read and written.

The order of the fields of a class is their order on the wire. The writer always writes the full field list, nulls
included, with a smallulong descriptor: deployed clients index fields by position. The reader accepts short lists,
list0, nulls, wide and symbolic descriptors, and checks the type of every field. Invalid input raises a
`RemoteProtocolError` with `amqp:decode-error` (no AMQP) or `amqp:invalid-field` (AMQP, but not this type).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

from hubmere.wire.amqp.codec.decode import DECODERS, MAX_DEPTH, PLAIN_UINT, PLAIN_ULONG, Decoder, decode_error
from hubmere.wire.amqp.codec.encode import (
    array_of,
    encode_value,
    write_binary,
    write_bool,
    write_compound,
    write_map,
    write_string,
    write_symbol,
    write_uint,
    write_ulong,
)
from hubmere.wire.amqp.codec.types import Array, Buffer, Described, Symbol, Value
from hubmere.wire.amqp.errors import Condition, LocalProtocolError, RemoteProtocolError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """How one type of field is written, and read by its constructor byte."""

    name: str
    write: Callable[[Any], bytes]
    readers: dict[int, Decoder]


def _pick(*codes: int) -> dict[int, Decoder]:
    return {code: DECODERS[code] for code in codes}


def _any_value(buf: Buffer, pos: int, depth: int) -> tuple[Value, int]:
    return DECODERS[buf[pos - 1]](buf, pos, depth)


def _one_symbol(code: int) -> Decoder:
    def read(buf: Buffer, pos: int, depth: int) -> tuple[tuple[str, ...], int]:
        symbol, pos = DECODERS[code](buf, pos, depth)
        return (symbol,), pos

    return read


def _many_symbols(code: int) -> Decoder:
    def read(buf: Buffer, pos: int, depth: int) -> tuple[tuple[str, ...], int]:
        array, pos = DECODERS[code](buf, pos, depth)
        assert isinstance(array, Array)
        if not all(type(item) is Symbol for item in array.items):
            raise _invalid("an array of symbols holds something else")
        return array.items, pos

    return read


def _write_symbols(value: tuple[str, ...]) -> bytes:
    return encode_value(array_of(value, Symbol))


def _plain_int(code: int) -> Decoder:
    read_typed = DECODERS[code]

    def read(buf: Buffer, pos: int, depth: int) -> tuple[int, int]:
        value, pos = read_typed(buf, pos, depth)
        return int(value), pos

    return read


def _pack_after(code: int, fmt: str) -> Callable[[int], bytes]:
    layout = struct.Struct(f">B{fmt}")
    return lambda value: layout.pack(code, value)


BOOLEAN = Kind("boolean", write_bool, _pick(0x41, 0x42, 0x56))
UBYTE = Kind("ubyte", _pack_after(0x50, "B"), {0x50: _plain_int(0x50)})
USHORT = Kind("ushort", _pack_after(0x60, "H"), {0x60: _plain_int(0x60)})
UINT = Kind("uint", write_uint, PLAIN_UINT)
ULONG = Kind("ulong", write_ulong, PLAIN_ULONG)
TIMESTAMP = Kind("timestamp", _pack_after(0x83, "q"), {0x83: _plain_int(0x83)})
BINARY = Kind("binary", write_binary, _pick(0xA0, 0xB0))
STRING = Kind("string", write_string, _pick(0xA1, 0xB1))
SYMBOL = Kind("symbol", write_symbol, _pick(0xA3, 0xB3))
MAP = Kind("map", write_map, _pick(0xC1, 0xD1))
SYMBOLS = Kind(
    "symbols",
    _write_symbols,
    {0xA3: _one_symbol(0xA3), 0xB3: _one_symbol(0xB3), 0xE0: _many_symbols(0xE0), 0xF0: _many_symbols(0xF0)},
)
ANY = Kind("*", encode_value, {code: _any_value for code in range(256) if code != 0x40})


def wire(kind: Kind, *, default: Any = None, mandatory: bool = False) -> Any:
    """A field of a wire type. Null and absent read as `default`; a mandatory field may be neither."""
    return field(default=default, metadata={"kind": kind, "mandatory": mandatory})


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One row of a field table."""

    name: str
    kind: Kind
    default: Any
    mandatory: bool


@dataclass(frozen=True, slots=True)
class WireShape:
    """The wire format of a declared class."""

    cls: type
    code: int
    symbol: str
    rows: tuple[FieldRow, ...]
    prefix: bytes
    # The same rows in the form that the reader and the writer need.
    readers: tuple[tuple[dict[int, Decoder], Any, bool], ...]
    mandatory_count: int
    values_of: Callable[[Any], tuple[Any, ...]]


SHAPES: dict[type, WireShape] = {}
_BY_CODE: dict[int, WireShape] = {}
_BY_SYMBOL: dict[str, WireShape] = {}


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


@dataclass_transform()
def described_type(code: int, symbol: str) -> Callable[[type[T]], type[T]]:
    """Makes a class a slotted dataclass of `wire` fields and registers it under its descriptor.

    Equality and repr are shared functions: generating them for each class would double the import time.
    """

    def register(plain: type[T]) -> type[T]:
        plain.__eq__ = _is_equal  # type: ignore[method-assign]
        plain.__repr__ = _describe  # type: ignore[method-assign]
        plain.__hash__ = None  # type: ignore[assignment]
        cls = dataclass(slots=True, eq=False, repr=False)(plain)
        rows = tuple(
            FieldRow(f.name, f.metadata["kind"], f.default, f.metadata["mandatory"])
            for f in fields(cls)  # type: ignore[arg-type]
        )
        shape = WireShape(
            cls=cls,
            code=code,
            symbol=symbol,
            rows=rows,
            prefix=bytes((0x00, 0x53, code)),
            readers=tuple((row.kind.readers, row.default, row.mandatory) for row in rows),
            mandatory_count=max((n for n, row in enumerate(rows, 1) if row.mandatory), default=0),
            values_of=_getter([row.name for row in rows]),
        )
        SHAPES[cls] = _BY_CODE[code] = _BY_SYMBOL[symbol] = shape
        return cls

    return register


def _is_equal(self: object, other: object) -> bool:
    if type(other) is not type(self):
        return NotImplemented  # type: ignore[no-any-return]
    values_of = SHAPES[type(self)].values_of
    return bool(values_of(self) == values_of(other))


def _describe(self: object) -> str:
    shape = SHAPES[type(self)]
    values = ", ".join(f"{row.name}={value!r}" for row, value in zip(shape.rows, shape.values_of(self), strict=True))
    return f"{shape.cls.__qualname__}({values})"


def _invalid(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(Condition.INVALID_FIELD, text)


_U32X2 = struct.Struct(">II")
_U64 = struct.Struct(">Q")


def _read_shape(buf: Buffer, pos: int) -> tuple[WireShape | None, int]:
    """The declared type whose descriptor is at `pos` (behind the 0x00), None when there is none."""
    code = buf[pos]
    if code == 0x53:
        return _BY_CODE.get(buf[pos + 1]), pos + 2
    if code == 0x80:
        return _BY_CODE.get(_U64.unpack_from(buf, pos + 1)[0]), pos + 9
    if code not in (0xA3, 0xB3):
        raise decode_error("a descriptor is neither ulong nor symbol")
    symbol, pos = DECODERS[code](buf, pos + 1, 0)
    return _BY_SYMBOL.get(symbol), pos


def _list_bounds(buf: Buffer, pos: int) -> tuple[int, int, int]:
    """Count, first field and end of the list at `pos`."""
    code = buf[pos]
    if code == 0xC0:
        count, start, end = buf[pos + 2], pos + 3, pos + 2 + buf[pos + 1]
    elif code == 0xD0:
        size, count = _U32X2.unpack_from(buf, pos + 1)
        start, end = pos + 9, pos + 5 + size
    elif code == 0x45:
        return 0, pos + 1, pos + 1
    else:
        raise decode_error("a described type is not a list")
    if not start <= end <= len(buf):
        raise decode_error("a list ends before its announced length")
    return count, start, end


def _wrong_field(shape: WireShape, index: int, code: int) -> RemoteProtocolError:
    row = shape.rows[index]
    fault = "is missing" if code == 0x40 else f"is not of type {row.kind.name}"
    return _invalid(f"{row.name} of {shape.symbol} {fault}")


def _read_fields(shape: WireShape, buf: Buffer, pos: int) -> tuple[Any, int]:
    count, pos, end = _list_bounds(buf, pos)
    rows = shape.rows
    if count > len(rows):
        raise decode_error(f"{shape.symbol} has {count} fields instead of at most {len(rows)}")
    if count < shape.mandatory_count:
        raise _invalid(f"{rows[shape.mandatory_count - 1].name} of {shape.symbol} is missing")
    values = []
    for readers, default, mandatory in shape.readers[:count]:
        code = buf[pos]
        reader = readers.get(code)
        if reader is not None:
            value, pos = reader(buf, pos + 1, MAX_DEPTH)
            values.append(value)
        elif code == 0x40 and not mandatory:
            values.append(default)
            pos += 1
        else:
            raise _wrong_field(shape, len(values), code)
    if pos != end:
        raise decode_error(f"the fields of {shape.symbol} do not fill its list")
    return shape.cls(*values), pos


def composite(name: str, *classes: type, fallback: bool = False) -> Kind:
    """A field that holds one of `classes`; others are refused, or kept as `Described` with `fallback`."""

    def read(buf: Buffer, pos: int, depth: int) -> tuple[Any, int]:
        shape, behind = _read_shape(buf, pos)
        if shape is not None and shape.cls in classes:
            return _read_fields(shape, buf, behind)
        if fallback:
            return DECODERS[0x00](buf, pos, depth)
        raise _invalid("a field holds another described type than it may")

    return Kind(name, _write_described, {0x00: read})


def read_described(data: Buffer, pos: int = 0) -> tuple[Any, int]:
    """The declared described type at `pos`, and the position behind it."""
    try:
        if data[pos] != 0x00:
            raise decode_error("a frame body is not a described type")
        shape, behind = _read_shape(data, pos + 1)
        if shape is None:
            raise decode_error("a descriptor names no known type")
        return _read_fields(shape, data, behind)
    except (IndexError, struct.error):
        raise decode_error("a frame body ends before its announced length") from None
    except UnicodeDecodeError:
        raise decode_error("a string is not UTF-8 or a symbol not ASCII") from None


def _write_described(value: Any) -> bytes:
    if type(value) is Described:
        return encode_value(value)
    shape = SHAPES[type(value)]
    if not shape.rows:
        return shape.prefix + b"\x45"
    parts = []
    for row, content in zip(shape.rows, shape.values_of(value), strict=True):
        if content is not None:
            parts.append(row.kind.write(content))
        elif row.mandatory:
            raise LocalProtocolError(f"{row.name} of {shape.symbol} is missing")
        else:
            parts.append(b"\x40")
    return shape.prefix + write_compound(0xC0, len(parts), b"".join(parts))


def write_described(value: Any) -> bytes:
    """A declared described type with all its fields."""
    try:
        return _write_described(value)
    except (struct.error, UnicodeEncodeError) as refused:
        raise LocalProtocolError(f"field of {type(value).__name__} outside its type: {refused}") from None
