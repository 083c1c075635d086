"""Message sections: split, decoded and encoded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.wire.amqp import Condition, LocalProtocolError, RemoteProtocolError
from hubmere.wire.amqp.codec import message
from hubmere.wire.amqp.codec.encode import encode_value
from hubmere.wire.amqp.codec.message import (
    AmqpValue,
    Data,
    Message,
    Section,
    Sequence,
    read_message,
    read_section,
    split_message,
    write_message,
    write_section,
)
from hubmere.wire.amqp.codec.performatives import Header, Properties
from hubmere.wire.amqp.codec.types import Described, Int, Symbol, ULong
from wire.amqp.values import SCALAR, SYMBOLS, TEXTS, VALUES, typed

ANNOTATIONS = st.dictionaries(SYMBOLS, VALUES, max_size=3)
BODIES = st.one_of(
    st.none(),
    VALUES.map(AmqpValue),
    st.lists(st.binary(max_size=300), min_size=1, max_size=4).map(lambda parts: Data(tuple(parts))),
    st.lists(st.lists(SCALAR, max_size=3), min_size=1, max_size=3).map(lambda parts: Sequence(tuple(parts))),
)
MESSAGES = st.builds(
    Message,
    header=st.none() | st.builds(Header, durable=st.none() | st.booleans(), ttl=st.none() | st.integers(0, 2**32 - 1)),
    delivery_annotations=st.none() | ANNOTATIONS,
    message_annotations=st.none() | ANNOTATIONS,
    properties=st.none() | st.builds(Properties, message_id=SCALAR, subject=st.none() | TEXTS),
    application_properties=st.none() | st.dictionaries(TEXTS, SCALAR, max_size=3),
    body=BODIES,
    footer=st.none() | ANNOTATIONS,
)


@given(MESSAGES)
def test_message_survives_a_round_trip(original: Message) -> None:
    """This includes types, null bodies and empty bodies."""
    written = write_message(original)

    again = read_message(written)

    assert write_message(again) == written
    assert typed(again.application_properties) == typed(original.application_properties)
    assert type(again.body) is type(original.body)
    assert again.header == original.header
    assert typed(again.message_annotations) == typed(original.message_annotations)


@given(MESSAGES)
def test_splitting_a_message_keeps_every_byte(original: Message) -> None:
    """Sections keep their bytes and their order."""
    written = write_message(original)

    sections = split_message(memoryview(written))

    found = [
        sections.header,
        sections.delivery_annotations,
        sections.message_annotations,
        sections.properties,
        sections.application_properties,
        *sections.body,
        sections.footer,
    ]
    assert b"".join(bytes(section.raw) for section in found if section is not None) == written


def test_sections_are_accepted_in_any_order() -> None:
    """The Python SDK writes delivery-annotations after the body."""
    data = write_section(Section.DATA, b"body") + write_section(Section.DELIVERY_ANNOTATIONS, {Symbol("a"): Int(1)})

    sections = split_message(data)

    assert sections.delivery_annotations is not None
    assert read_section(sections.delivery_annotations) == {"a": 1}
    assert bytes(sections.body[0].value_bytes) == b"\xa0\x04body"


def test_empty_sections_of_javascript_are_read() -> None:
    """It writes list0 as header and properties, and an empty map32 as annotations."""
    data = bytes.fromhex("0053704500537345005372d10000000400000000") + write_section(Section.DATA, b"")

    read = read_message(data)

    assert read == Message(header=Header(), properties=Properties(), message_annotations={}, body=Data((b"",)))


@pytest.mark.parametrize("descriptor", [b"\x80" + bytes(7) + b"\x77", b"\xa3\x11amqp:amqp-value:*"])
def test_wide_and_symbolic_descriptors_are_read(descriptor: bytes) -> None:
    """These forms are legal but rare."""
    assert read_message(b"\x00" + descriptor + b"\x40").body == AmqpValue(None)


def test_batch_has_one_section_per_event() -> None:
    """The envelope of an Event Hubs batch is split like any message."""
    inner = [write_message(Message(body=Data((b"%d" % n,)))) for n in range(3)]
    data = write_message(Message(body=Data(tuple(inner))))

    sections = split_message(data)

    assert [read_section(section) for section in sections.body] == inner


MALFORMED = {
    "no section": b"\x40",
    "unknown section": b"\x00\x53\x79\x40",
    "text as descriptor": b"\x00\xa1\x01x\x40",
    "unknown symbol": b"\x00\xa3\x01x\x40",
    "torn descriptor": b"\x00\x53",
    "torn value": b"\x00\x53\x75\xa0\x05x",
    "two headers": b"\x00\x53\x70\x45" * 2,
    "two values": b"\x00\x53\x77\x40" * 2,
    "data and value": b"\x00\x53\x75\xa0\x00\x00\x53\x77\x40",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_message_is_refused(data: bytes) -> None:
    """The endpoint rejects the delivery with this condition."""
    with pytest.raises(RemoteProtocolError) as refusal:
        split_message(data)

    assert refusal.value.condition is Condition.DECODE_ERROR


@pytest.mark.parametrize(
    ("section", "value"),
    [
        (Section.DATA, "text"),
        (Section.SEQUENCE, {}),
        (Section.APPLICATION_PROPERTIES, []),
        (Section.FOOTER, b""),
    ],
)
def test_section_with_content_of_another_type_is_refused(section: Section, value: Any) -> None:
    """Each section has one type; only a value section can have any."""
    with pytest.raises(LocalProtocolError):
        write_section(section, value)
    with pytest.raises(RemoteProtocolError):
        read_message(encode_value(Described(ULong(section), value)))


def test_wrong_fields_of_a_header_are_refused() -> None:
    """A priority is a ubyte."""
    with pytest.raises(RemoteProtocolError) as refusal:
        read_message(b"\x00\x53\x70\xc0\x05\x02\x40\xa1\x01x")

    assert refusal.value.condition is Condition.INVALID_FIELD


def test_number_of_body_sections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a message of the largest size could have millions of empty ones."""
    monkeypatch.setattr(message, "MAX_BODY_SECTIONS", 3)
    section = write_section(Section.DATA, b"")

    assert len(split_message(section * 3).body) == 3
    with pytest.raises(RemoteProtocolError):
        split_message(section * 4)
