"""The values of AMQP 1.0 (part 1) in Python, with the AMQP type kept.

Every integer type has its own class, so that a decoded value is encoded again with its type. The writer refuses a plain
`int`, because it could be one of eight types. `bool`, `str`, `bytes`, `float` (double), `list`, `dict`, `uuid.UUID` and
`None` stand for themselves. `decode` and `encode` convert bytes to these values and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
# An AMQP value: one of the classes below, or a plain Python value.
Value: TypeAlias = Any


class _Integer(int):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class UByte(_Integer):
    """ubyte"""

    __slots__ = ()


class UShort(_Integer):
    """ushort"""

    __slots__ = ()


class UInt(_Integer):
    """uint"""

    __slots__ = ()


class ULong(_Integer):
    """ulong"""

    __slots__ = ()


class Byte(_Integer):
    """byte"""

    __slots__ = ()


class Short(_Integer):
    """short"""

    __slots__ = ()


class Int(_Integer):
    """int"""

    __slots__ = ()


class Long(_Integer):
    """long"""

    __slots__ = ()


class Timestamp(_Integer):
    """timestamp: milliseconds since 1970-01-01 UTC, negative before"""

    __slots__ = ()


class Float(float):
    """float: 32 bits; a plain Python float is a double"""

    __slots__ = ()


class Symbol(str):
    """symbol: ASCII; equal to the string of the same text, so that maps can be searched with plain text"""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


class Char(str):
    """char: one Unicode scalar"""

    __slots__ = ()


class _Raw(bytes):
    __slots__ = ()


class Decimal32(_Raw):
    """decimal32, passed through without decoding"""

    __slots__ = ()


class Decimal64(_Raw):
    """decimal64, passed through without decoding"""

    __slots__ = ()


class Decimal128(_Raw):
    """decimal128, passed through without decoding"""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor, which is a `Symbol` or a `ULong`."""

    descriptor: Value
    value: Value


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type. `code` is the widest constructor of that type; described elements are `Described`."""

    items: tuple[Value, ...]
    code: int
    descriptor: Value = None
