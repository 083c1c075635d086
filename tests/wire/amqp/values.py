"""AMQP values for property tests, and a comparison that includes types."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from hubmere.wire.amqp.codec.encode import array_of
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
)


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    """Integers of a width, often near the limits of the short encodings."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    borders = [n for n in (-129, -128, -1, 0, 1, 127, 128, 255, 256, low, high) if low <= n <= high]
    return st.sampled_from(borders) | st.integers(low, high)


SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)
TEXTS = st.text(max_size=300)
SCALARS: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    UByte: integers(8, False).map(UByte),
    UShort: integers(16, False).map(UShort),
    UInt: integers(32, False).map(UInt),
    ULong: integers(64, False).map(ULong),
    Byte: integers(8, True).map(Byte),
    Short: integers(16, True).map(Short),
    Int: integers(32, True).map(Int),
    Long: integers(64, True).map(Long),
    Timestamp: integers(64, True).map(Timestamp),
    Float: st.floats(width=32, allow_nan=False).map(Float),
    float: st.floats(allow_nan=False),
    Char: st.characters(exclude_categories=["Cs"]).map(Char),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    bytes: st.binary(max_size=300),
    str: TEXTS,
    Symbol: SYMBOLS,
}
_UUIDS = st.uuids()
SCALAR = st.one_of(st.none(), _UUIDS, *SCALARS.values())
_DESCRIPTORS = SYMBOLS | integers(64, False).map(ULong)


def _compounds(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(SYMBOLS, inner, max_size=5),
        st.builds(Described, _DESCRIPTORS, inner),
    )


def _arrays_of(kind: type) -> st.SearchStrategy[Array]:
    return st.lists(SCALARS[kind], max_size=6).map(lambda items: array_of(items, kind))


ARRAYS = st.sampled_from(list(SCALARS)).flatmap(_arrays_of)
ARRAYS_OF_COMPOUNDS = st.one_of(
    st.lists(st.lists(SCALAR, max_size=3), max_size=3).map(lambda items: array_of(items, list)),
    st.lists(st.dictionaries(SYMBOLS, SCALAR, max_size=3), max_size=3).map(lambda items: array_of(items, dict)),
    st.lists(ARRAYS, max_size=3).map(lambda items: Array(tuple(items), 0xF0)),
    st.lists(TEXTS, max_size=3).map(
        lambda items: Array(tuple(Described(Symbol("d"), item) for item in items), 0xB1, Symbol("d"))
    ),
)
VALUES = st.recursive(SCALAR | ARRAYS | ARRAYS_OF_COMPOUNDS, _compounds, max_leaves=12)


def typed(value: Any) -> Any:
    """A form of a value in which equal numbers of different types differ."""
    if isinstance(value, Described):
        return (Described, typed(value.descriptor), typed(value.value))
    if isinstance(value, Array):
        return (Array, value.code, typed(value.descriptor), [typed(item) for item in value.items])
    if isinstance(value, list):
        return (list, [typed(item) for item in value])
    if isinstance(value, dict):
        return (dict, [(typed(key), typed(item)) for key, item in value.items()])
    if isinstance(value, float):
        return (type(value), struct.pack(">d", value))
    return (type(value), value)
