"""Varints: bytes written by hand, round trips, and numbers that do not end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.records.faults import UnreadableRecords
from hubmere.records.varint import read_uvarint, read_varint, read_varlong, uvarint_bytes, write_uvarint, write_varint


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varint_has_the_bytes_of_protocol_buffers(value: int, wire: str) -> None:
    """Each byte has seven bits, least significant first; the high bit means that more bytes follow."""
    out = bytearray()

    write_uvarint(out, value)

    assert out.hex() == wire
    assert uvarint_bytes(value) == len(out)
    assert read_uvarint(out, 0, len(out)) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_signed_varint_is_zig_zag(value: int, wire: str) -> None:
    """Records use zig-zag so that -1, the length of null, is one byte."""
    out = bytearray()

    write_varint(out, value)

    assert out.hex() == wire
    assert read_varint(out, 0, len(out)) == (value, len(out))


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_survives_a_round_trip(value: int) -> None:
    """Timestamp deltas may have up to 64 bits."""
    out = bytearray()

    write_varint(out, value)

    assert read_varlong(out, 0, len(out)) == (value, len(out))


@pytest.mark.parametrize("wire", ["", "ff" * 10, "80" * 11, "ff" * 9 + "7f"])
def test_varlong_that_is_incomplete_or_too_long_is_refused(wire: str) -> None:
    """64 bits take at most ten bytes, and the last one has a single bit."""
    data = bytes.fromhex(wire)

    with pytest.raises(UnreadableRecords):
        read_varlong(data, 0, len(data))


@pytest.mark.parametrize("wire", ["8001", "ac02", "ffffffff0f"])
def test_varint_does_not_read_past_its_record(wire: str) -> None:
    """A number ends with its record, even if the buffer has more bytes."""
    data = bytes.fromhex(wire)

    with pytest.raises(UnreadableRecords):
        read_varint(data, 0, len(data) - 1)
