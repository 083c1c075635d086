"""Values and rows of a table, and how rows become events."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.records import kernels
from hubmere.translate.columns import record_of, row_of, text_of
from hubmere.wire.amqp.codec import types as amqp
from hubmere.wire.amqp.codec.decode import decode_value
from hubmere.wire.amqp.codec.message import split_message

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=400)


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


@given(
    body=st.none() | st.binary(max_size=50),
    key=st.none() | NAMES,
    properties=st.dictionaries(NAMES, TEXTS, max_size=4),
)
def test_row_becomes_an_event_that_is_equal_for_every_reader(
    body: bytes | None, key: str | None, properties: dict[str, str]
) -> None:
    """Spark and AMQP receivers read what a query has written."""
    record = record_of(0, body, key, properties.items())
    headers = [(name.encode(), content) for name, content in record.headers]

    row = row_of(record.key, record.value, headers)
    sections = split_message(kernels.message_of(record.key, record.value, headers))

    assert (row.partition_key, row.properties) == (key, properties)
    annotations = decode_value(sections.message_annotations.value_bytes)[0] if sections.message_annotations else {}
    assert annotations.get("x-opt-partition-key") == key
    application = sections.application_properties
    assert (decode_value(application.value_bytes)[0] if application else {}) == properties


def test_property_without_a_value_is_null() -> None:
    """Spark's maps may hold null."""
    record = record_of(0, b"x", None, [("a", None)])

    row = row_of(record.key, record.value, [(name.encode(), content) for name, content in record.headers])

    assert row.properties == {"a": "null"}


def test_invalid_envelope_is_an_ordinary_header() -> None:
    """A Kafka client may write what looks like an envelope."""
    headers: list[tuple[bytes, bytes | None]] = [(b"color", b"red"), (kernels.ENVELOPE_NAME, b"\x01\x00\x07\x00")]

    row = row_of(b"key", b"x", headers)

    assert row.properties == {"color": "red", "x-opt-amqp": "\x01\x00\x07\x00"}
    assert row.system_properties == {"x-opt-kafka-key": "key"}
