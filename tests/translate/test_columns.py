"""Values and rows of a table."""

import uuid
from typing import Any

import pytest

from hubmere.records import kernels
from hubmere.translate.columns import row_of, text_of
from hubmere.wire.amqp.codec import types as amqp


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("plain", "plain"),
        ('with "quotes"', 'with "quotes"'),
        (amqp.Symbol("sym"), "sym"),
        (amqp.Char("c"), "c"),
        (amqp.UByte(200), "200"),
        (amqp.ULong(2**64 - 1), "18446744073709551615"),
        (amqp.Int(-5), "-5"),
        (amqp.Long(2**40), "1099511627776"),
        (1.5, "1.5"),
        (b"\x00\xff", "[0,-1]"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (amqp.Timestamp(1_700_000_000_123), '"2023-11-14T22:13:20.123Z"'),
        (amqp.Timestamp(2**62), f'"{2**62}"'),
        (amqp.Described(amqp.Symbol("com.microsoft:uri"), "http://x/"), "http://x/"),
        (amqp.Decimal32(b"\x00\x00\x00\x05"), "5"),
        ([amqp.Int(1), "a"], '[1,"a"]'),
        ({"k": amqp.Int(1)}, '{"k":1}'),
        (amqp.Array((amqp.Int(1), amqp.Int(2)), 0x71), "[1,2]"),
    ],
    ids=repr,
)
def test_value_has_the_text_of_the_connector(value: Any, text: str) -> None:
    """Strings are raw and everything else is JSON, so that existing code can parse these cells."""
    assert text_of(value) == text


def test_invalid_envelope_is_an_ordinary_header() -> None:
    """A Kafka client may write what looks like an envelope."""
    headers: list[tuple[bytes, bytes | None]] = [(b"color", b"red"), (kernels.ENVELOPE_NAME, b"\x01\x00\x07\x00")]

    row = row_of(b"key", b"x", headers)

    assert row.properties == {"color": "red", "x-opt-amqp": "\x01\x00\x07\x00"}
    assert row.system_properties == {"x-opt-kafka-key": "key"}
