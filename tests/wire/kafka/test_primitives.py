"""Kafka's primitive types: bytes written by hand, round trips, and wrong lengths."""

from uuid import UUID

import pytest

from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.primitives import (
    ZERO_UUID,
    read_text,
    read_uvarint,
    skip_tag_section,
    uuid_from,
)


@pytest.mark.parametrize("wire", ["", "80", "8080", "ffffffffff01", "ffffffff1f", "808080808001"])
def test_incomplete_or_too_long_varint_is_refused(wire: str) -> None:
    """Neither the end of the input nor a sixth byte is read."""
    data = bytes.fromhex(wire)

    with pytest.raises(RemoteProtocolError):
        read_uvarint(data, 0)


@pytest.mark.parametrize(("wire", "length"), [("", 1), ("6162", 3), ("ff", 1), ("c3", 1)])
def test_text_beyond_its_input_or_not_utf8_is_refused(wire: str, length: int) -> None:
    """The length is compared with the remaining bytes, and the text must be UTF-8."""
    data = bytes.fromhex(wire)

    with pytest.raises(RemoteProtocolError):
        read_text(memoryview(data), 0, length)


def test_text_is_read_from_any_buffer() -> None:
    """It may be a view of a receive buffer or bytes."""
    data = "x\u00e9".encode()

    assert read_text(data, 1, 2) == read_text(memoryview(data), 1, 2) == "\u00e9"


def test_unknown_tagged_fields_are_skipped() -> None:
    """KIP-482: a newer peer may send unknown tags."""
    section = bytes.fromhex("02 05 03 616263 8001 00")

    after = skip_tag_section(section + b"next", 0)

    assert after == len(section)


@pytest.mark.parametrize("wire", ["", "01", "0105", "010503", "0105036162", "ffffffff0f"])
def test_incomplete_tag_section_is_refused(wire: str) -> None:
    """Both the count and the size of a field are checked."""
    data = bytes.fromhex(wire)

    with pytest.raises(RemoteProtocolError):
        skip_tag_section(data, 0)


def test_zero_uuid_is_shared() -> None:
    """Most requests have the zero id, which means "none"."""
    some = UUID("0190f8a2-5b1c-7e3d-8a4f-1c2d3e4f5a6b")

    assert uuid_from(bytes(16)) is ZERO_UUID
    assert uuid_from(some.bytes) == some
