"""The public names of the package, the declarations, and serial numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hubmere.wire.amqp as surface
from hubmere.wire.amqp import Condition, LocalProtocolError, RemoteProtocolError
from hubmere.wire.amqp.codec.composites import SHAPES, read_described, write_described
from hubmere.wire.amqp.codec.encode import array_of, encode_value
from hubmere.wire.amqp.codec.performatives import Attach, Close, Detach, Error, Open, Source
from hubmere.wire.amqp.codec.types import Described, Symbol, UInt, ULong
from hubmere.wire.amqp.serial import serial_add, serial_distance

FIELD_COUNTS = {
    0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1,
    0x1D: 3, 0x23: 2, 0x24: 0, 0x25: 1, 0x26: 0, 0x27: 3, 0x28: 11, 0x29: 7, 0x30: 1,
    0x40: 1, 0x41: 3, 0x42: 1, 0x43: 1, 0x44: 2, 0x70: 5, 0x73: 13,
}  # fmt: skip


def test_public_names_are_listed_and_exist() -> None:
    """Other packages may use only these names."""
    assert sorted(surface.__all__) == sorted(
        [
            "Connection", "EngineOptions", "Role", "Phase", "Session", "SessionState", "Link", "LinkState",
            "ClientCredentials", "Condition", "LocalProtocolError", "FrameTooLarge", "RemoteProtocolError",
            "decode_value", "skip_value", "encode_value", "array_of",
        ]
    )  # fmt: skip
    assert all(hasattr(surface, name) for name in surface.__all__)


def test_every_declared_type_has_the_fields_of_the_specification() -> None:
    """A missing field would shift all fields after it."""
    assert {shape.code: len(shape.rows) for shape in SHAPES.values()} == FIELD_COUNTS


@pytest.mark.parametrize("shape", [shape for shape in SHAPES.values() if shape.mandatory_count == 0])
def test_all_fields_are_written_even_when_all_are_null(shape: object) -> None:
    """Neither list0 nor a list without its trailing nulls is written."""
    cls, rows = shape.cls, shape.rows  # type: ignore[attr-defined]

    written = write_described(cls())

    assert written[0:2] == b"\x00\x53"
    assert written[3:] == (b"\x45" if not rows else bytes((0xC0, len(rows) + 1, len(rows))) + b"\x40" * len(rows))
    assert read_described(written) == (cls(), len(written))


def test_long_field_list_is_written_as_list32() -> None:
    """list8 has at most 255 bytes."""
    attach = Attach("x" * 300, 0, True)

    written = write_described(attach)

    assert written[3] == 0xD0
    assert read_described(written)[0] == attach


def test_single_symbol_is_read_as_an_array_of_one() -> None:
    """AMQP 1.0, 1.4: a field of several values may be one value without an array."""
    fields = [Symbol("offered"), array_of(["a", "b"])]
    body = encode_value(["name", UInt(0), True, *[None] * 8, *fields])

    attach, _end = read_described(b"\x00\x53\x12" + body)

    assert attach.offered_capabilities == ("offered",)
    assert attach.desired_capabilities == ("a", "b")


@pytest.mark.parametrize(
    "source",
    [
        Described(ULong(0x29), []),
        Described(Symbol("unknown"), []),
        Described(ULong(0x28), {}),
        "text",
        Described(ULong(0x28), [None] * 9 + [array_of([UInt(1)], UInt)]),
    ],
)
def test_field_with_another_described_type_is_refused(source: object) -> None:
    """A target is not a source, and an array of numbers is not a list of capabilities."""
    body = encode_value(["name", UInt(0), True, None, None, source])

    with pytest.raises(RemoteProtocolError) as refusal:
        read_described(b"\x00\x53\x12" + body)

    assert refusal.value.condition in (Condition.INVALID_FIELD, Condition.DECODE_ERROR)


@pytest.mark.parametrize(
    "value",
    [Open(), Attach("x", -1, True), Attach("x", 1 << 32, True), Detach(0, error=Error()), Close(Error("é"))],
)
def test_field_outside_its_type_is_an_error_of_ours(value: object) -> None:
    """It is detected before a byte is sent."""
    with pytest.raises(LocalProtocolError):
        write_described(value)


@pytest.mark.parametrize("length", range(1, 25))
def test_incomplete_performative_is_refused(length: int) -> None:
    """It may end anywhere."""
    written = write_described(Attach("name", 1, True, source=Source("a")))

    with pytest.raises(RemoteProtocolError) as refusal:
        read_described(written[:length])

    assert refusal.value.condition is Condition.DECODE_ERROR


def test_unknown_outcome_is_kept_unchanged() -> None:
    """A source may name an outcome that we do not know."""
    source = Source(default_outcome=Described(Symbol("com.example:later"), [True]))

    assert read_described(write_described(source))[0] == source


@given(st.integers(0, 0xFFFFFFFF), st.integers(-0x80000000, 0x7FFFFFFF))
def test_distance_undoes_addition(start: int, amount: int) -> None:
    """This also holds when numbers wrap around."""
    assert serial_distance(start, serial_add(start, amount)) == amount


@pytest.mark.parametrize(
    ("start", "end", "distance"),
    [(0, 0, 0), (0xFFFFFFFF, 0, 1), (0, 0xFFFFFFFF, -1), (0, 0x80000000, -0x80000000), (5, 2, -3)],
)
def test_distance_is_signed(start: int, end: int, distance: int) -> None:
    """RFC 1982."""
    assert serial_distance(start, end) == distance


def test_violation_has_its_condition_and_scope() -> None:
    """The text is written to logs and frames."""
    ending = RemoteProtocolError(Condition.SESSION_ERRANT_LINK, "late")

    assert str(ending) == "amqp:session:errant-link: late"
    assert ending.is_session_scoped
    assert not RemoteProtocolError(Condition.DECODE_ERROR, "x").is_session_scoped
