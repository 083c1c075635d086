"""Values of properties from JSON and the names of their types."""

import uuid

import pytest

from hubmere.translate import HttpEvent, events, parse_typed_value, publication_from_http
from hubmere.wire.amqp.codec import types as amqp
from translate.builders import stored

ID = "0d8c6c3e-94a1-4f1c-8a2e-6a3c5ce2b1f0"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("ubyte", 255, amqp.UByte(255)),
        ("ushort", 5, amqp.UShort(5)),
        ("uint", 5, amqp.UInt(5)),
        ("ulong", str(2**64 - 1), amqp.ULong(2**64 - 1)),
        ("byte", -5, amqp.Byte(-5)),
        ("short", -5, amqp.Short(-5)),
        ("int", 5, amqp.Int(5)),
        ("long", 5, amqp.Long(5)),
        ("timestamp", -1, amqp.Timestamp(-1)),
        ("float", 0.5, amqp.Float(0.5)),
        ("double", "inf", float("inf")),
        ("decimal32", "AAAAAQ==", amqp.Decimal32(b"\0\0\0\1")),
        ("decimal64", "AAAAAAAAAAE=", amqp.Decimal64(b"\0" * 7 + b"\1")),
        ("decimal128", "AAAAAAAAAAAAAAAAAAAAAQ==", amqp.Decimal128(b"\0" * 15 + b"\1")),
        ("char", "ü", amqp.Char("ü")),
        ("string", "5", "5"),
        ("symbol", "s", amqp.Symbol("s")),
        ("uuid", ID, uuid.UUID(ID)),
        ("binary", "/wA=", b"\xff\0"),
    ],
)
def test_value_is_stored_and_shown_with_its_type(name: str, value: object, expected: object) -> None:
    """The names are those of `view`, which shows the event."""
    parsed = parse_typed_value(name, value)

    publication = publication_from_http([HttpEvent(b"body", {"p": parsed})])
    (view,) = events(stored(publication.batch), 0, 0, 1)

    assert (view.properties["p"].type, view.properties["p"].value) == (name, expected)
    assert type(parsed) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shape", 5), ("list", []), ("null", 5), ("boolean", 1), ("int", True), ("int", 1.5), ("int", "x"),
        ("double", True), ("double", "x"), ("string", 5), ("char", "ab"), ("uuid", "x"), ("uuid", 5), ("binary", "*"),
        ("decimal32", "AAA="), ("timestamp", None),
    ],
)  # fmt: skip
def test_value_of_another_form_is_refused(name: str, value: object) -> None:
    """The caller names the property."""
    with pytest.raises(ValueError, match=r"."):
        parse_typed_value(name, value)
