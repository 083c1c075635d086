"""AMQP values: bytes written by hand from the specification, round trips, and hostile input."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubmere.wire.amqp.codec.decode import MAX_DEPTH, MAX_ZERO_WIDTH_ELEMENTS, decode_value, skip_value
from hubmere.wire.amqp.codec.encode import array_of, encode_value
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
from hubmere.wire.amqp.errors import Condition, LocalProtocolError, RemoteProtocolError
from wire.amqp.values import VALUES, typed

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

# Value, and its bytes as we write them.
WRITTEN: list[tuple[Any, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(7), "5007"),
    (UShort(258), "600102"),
    (UInt(0), "43"),
    (UInt(255), "52ff"),
    (UInt(256), "7000000100"),
    (ULong(0), "44"),
    (ULong(255), "53ff"),
    (ULong(256), "800000000000000100"),
    (Byte(-1), "51ff"),
    (Short(-2), "61fffe"),
    (Int(-128), "5480"),
    (Int(128), "7100000080"),
    (Long(-1), "55ff"),
    (Long(1 << 40), "810000010000000000"),
    (Float(1.5), "723fc00000"),
    (1.5, "823ff8000000000000"),
    (Decimal32(b"abcd"), "7461626364"),
    (Decimal64(b"abcdefgh"), "846162636465666768"),
    (Decimal128(b"abcdefghijklmnop"), "946162636465666768696a6b6c6d6e6f70"),
    (Char("é"), "73000000e9"),
    (Timestamp(-1), "83ffffffffffffffff"),
    (UUID, "9800112233445566778899aabbccddeeff"),
    (b"\x00\x01", "a0020001"),
    ("é", "a102c3a9"),
    (Symbol("ab"), "a3026162"),
    ([], "45"),
    ([None, True], "c003024041"),
    ({}, "c10100"),
    ({Symbol("a"): UInt(1)}, "c10602a301615201"),
    (Described(ULong(0x24), []), "00532445"),
    (Described(Symbol("x"), "y"), "00a30178a10179"),
    (array_of(["a", "b"]), "e00602a301610162"),
    (array_of([UInt(1), UInt(2)], UInt), "e00a02700000000100000002"),
    (array_of([True, False], bool), "e00402560100"),
    (array_of([], str), "e00200a1"),
    (Array((None, None), 0x40), "e0020240"),
    (Array((Described(ULong(1), "a"),), 0xB1, ULong(1)), "e00701005301a10161"),
    (Array(([], [True]), 0xD0), "e01302d00000000400000000000000050000000141"),
    (Array(({},), 0xD1), "e00a01d10000000400000000"),
    (Array((array_of([UByte(1)], UByte),), 0xF0), "e00c01f000000006000000015001"),
]


@pytest.mark.parametrize(("value", "expected"), WRITTEN)
def test_value_is_written_in_its_shortest_encoding_and_read_back(value: Any, expected: str) -> None:
    """The bytes come from part 1 of the specification, not from this writer."""
    data = bytes.fromhex(expected)

    assert encode_value(value).hex() == expected
    assert typed(decode_value(data)[0]) == typed(value)
    assert skip_value(data) == len(data)


# Other encodings of a value that peers write.
READ: list[tuple[str, Any]] = [
    ("5601", True),
    ("5600", False),
    ("7000000001", UInt(1)),
    ("800000000000000001", ULong(1)),
    ("7100000001", Int(1)),
    ("810000000000000001", Long(1)),
    ("b00000000161", b"a"),
    ("b10000000161", "a"),
    ("b30000000161", Symbol("a")),
    ("d0000000050000000140", [None]),
    ("d10000000400000000", {}),
    ("e00c02b300000001610000000162", array_of(["a", "b"])),
    ("f00000000900000002a301610162", array_of(["a", "b"])),
    ("e0020341", array_of([True, True, True], bool)),
    ("e0020243", array_of([UInt(0), UInt(0)], UInt)),
    ("e0020144", array_of([ULong(0)], ULong)),
    ("e0020145", Array(([],), 0xD0)),
    ("e003015401", Array((Int(1),), 0x71)),
]


@pytest.mark.parametrize(("data", "expected"), READ)
def test_longer_and_older_encodings_are_read(data: str, expected: Any) -> None:
    """Python writes sym32 and boolean 0x56, JavaScript list32, map32 and array32."""
    raw = bytes.fromhex(data)

    value, end = decode_value(raw)

    assert typed(value) == typed(expected)
    assert end == len(raw) == skip_value(raw)


@given(VALUES)
@example({Symbol("a" * 300): [b"x" * 300, "y" * 300, array_of(["z" * 300], str)]})
@example(Array(tuple(UInt(n) for n in range(100)), 0x70))
@example(Array((Array(("x" * 300,), 0xB1),), 0xF0))
def test_every_value_survives_a_round_trip_with_its_type(value: Any) -> None:
    """A consumer that checks for long must not get an int."""
    written = encode_value(value)

    again, end = decode_value(written)

    assert typed(again) == typed(value)
    assert end == len(written) == skip_value(written)
    assert encode_value(again) == written


@given(VALUES, st.data())
def test_every_truncation_is_refused(value: Any, data: st.DataObject) -> None:
    """A length is compared with the available bytes before it is used."""
    written = encode_value(value)
    cut = data.draw(st.integers(0, len(written) - 1))

    for read in (decode_value, skip_value):
        with pytest.raises(RemoteProtocolError) as refusal:
            read(written[:cut])

        assert refusal.value.condition is Condition.DECODE_ERROR


HOSTILE = {
    "string longer than its bytes": "a105616263",
    "wide string longer than its bytes": "b100000005616263",
    "wide list longer than its bytes": "d0000000ff0000000140",
    "unknown constructor": "ff",
    "unknown constructor of the fixed range": "99" + "00" * 16,
    "boolean of 2": "5602",
    "char beyond Unicode": "7300110000",
    "surrogate char": "730000d800",
    "string that is not UTF-8": "a101ff",
    "symbol that is not ASCII": "a301e9",
    "list with more elements than bytes": "c0020540",
    "list whose elements overrun it": "c003017000000001",
    "list with bytes to spare": "c003014040",
    "list without a count": "c00040",
    "map of three elements": "c10403404142",
    "map with a list as key": "c103024540",
    "map with a key twice": "c1050441404142",
    "array of nothing known": "e0020099",
    "array of described described": "e0040000530000",
    "array with a null descriptor": "e004000040a1",
    "array with too many bytes": "e00401500102",
    "array with more elements than bytes": "f00000000500ffffff50",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_malformed_value_is_refused(data: str) -> None:
    """Each case is a different kind of malformed value."""
    with pytest.raises(RemoteProtocolError) as refusal:
        decode_value(bytes.fromhex(data))

    assert refusal.value.condition is Condition.DECODE_ERROR


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100_000,
        b"\x00\xa1\x01a" * 40_000,
        b"\xc0\xff\x01" * 50_000,
        b"\xd0\x00\x0f\xff\xff\x00\x00\x00\x01" * 5_000,
        b"\xf0\x00\x00\x40\x00\x00\x00\x00\x01\xf0" + b"\x00\x00\x30\x00\x00\x00\x00\x01\xf0" * 2_000,
    ],
)
def test_nesting_is_limited(data: bytes) -> None:
    """Without a limit a frame of zeros, which are descriptors, would exhaust the stack."""
    with pytest.raises(RemoteProtocolError):
        decode_value(data)


@pytest.mark.parametrize("data", ["70000000", "a105616263", "b100000005616263", "d0000000ff0000000140", "ff", "10"])
def test_skipping_past_the_end_is_refused(data: str) -> None:
    """Skipping relies on lengths, so they are checked."""
    with pytest.raises(RemoteProtocolError):
        skip_value(bytes.fromhex(data))


def test_skipping_nested_descriptors_is_limited() -> None:
    """Compounds are skipped by their size, but descriptors have none."""
    with pytest.raises(RemoteProtocolError):
        skip_value(b"\x00" * 100_000)


def test_nesting_up_to_the_limit_is_read() -> None:
    """The limit is large for users and small for the stack."""
    value: Any = None
    for _ in range(MAX_DEPTH):
        value = [value]

    assert decode_value(encode_value(value))[0] == value
    for one_too_many in ([value], {Symbol("key"): value}, Array(([value],), 0xD0), Described(Symbol("d"), value)):
        with pytest.raises(RemoteProtocolError):
            decode_value(encode_value(one_too_many))


def test_array_of_empty_values_is_limited() -> None:
    """Four bytes must not become 32 GiB of nulls."""
    allowed = b"\xf0\x00\x00\x00\x05" + MAX_ZERO_WIDTH_ELEMENTS.to_bytes(4, "big") + b"\x40"
    bomb = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"

    assert len(decode_value(allowed)[0].items) == MAX_ZERO_WIDTH_ELEMENTS
    with pytest.raises(RemoteProtocolError):
        decode_value(bomb)


@pytest.mark.parametrize(
    "value",
    [
        1,
        object(),
        UByte(256),
        UInt(-1),
        ULong(1 << 64),
        Long(1 << 63),
        Int(1 << 31),
        Float(1e300),
        Symbol("é"),
        "\ud800",
        Char("ab"),
        Char("\ud800"),
        Decimal32(b"abc"),
        [1],
        Array((1,), 0x71),
        Array(("a", b"b"), 0xB1),
    ],
)
def test_value_without_an_amqp_type_is_an_error_of_ours(value: Any) -> None:
    """A Python int could be eight types; guessing one would break clients that check the type."""
    with pytest.raises(LocalProtocolError):
        encode_value(value)


@pytest.mark.parametrize("raw", [bytearray(b"ab"), memoryview(b"ab")])
def test_any_buffer_is_written_as_binary(raw: Any) -> None:
    """Payloads are usually memoryviews."""
    assert encode_value(raw) == b"\xa0\x02ab"


def test_repr_of_a_value_has_its_type() -> None:
    """A failed comparison of Int(5) and Long(5) must be readable."""
    assert repr([Int(5), Symbol("a"), Timestamp(-1)]) == "[Int(5), Symbol('a'), Timestamp(-1)]"
