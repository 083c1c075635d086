"""The frame buffer: any split of the input gives the same frames, and little memory is kept."""

from __future__ import annotations

import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.wire.amqp import Condition, RemoteProtocolError
from hubmere.wire.amqp.codec.frames import EMPTY_FRAME, FrameBuffer, frame_of, shorten

BODIES = st.lists(st.binary(max_size=60), max_size=8)


@given(BODIES, st.lists(st.integers(1, 50), min_size=1, max_size=30), st.booleans())
def test_any_split_of_the_input_gives_the_same_frames(bodies: list[bytes], cuts: list[int], reuse: bool) -> None:
    """A caller may reuse its buffer after every read."""
    frames = [frame_of(body) for body in bodies]
    data = b"".join(frames)
    buffer, seen, pos, turn = FrameBuffer(), [], 0, 0

    while pos < len(data):
        step = cuts[turn % len(cuts)]
        chunk = bytearray(data[pos : pos + step])
        pos, turn = pos + step, turn + 1
        buffer.feed(chunk)
        while (unit := buffer.take_frame(1000)) is not None:
            seen.append(bytes(unit))
        buffer.keep_rest()
        if reuse:
            chunk[:] = b"\xee" * len(chunk)

    assert seen == frames
    assert not buffer.is_torn


def test_complete_frame_is_a_view_and_an_incomplete_one_a_copy() -> None:
    """A payload is copied once, when its delivery is complete."""
    data = EMPTY_FRAME * 2 + EMPTY_FRAME[:3]
    buffer = FrameBuffer()

    buffer.feed(data)
    unit = buffer.take_frame(100)
    buffer.take_frame(100)

    assert unit is not None
    assert unit.obj is data
    assert buffer.take_frame(100) is None
    assert buffer.keep_rest() == 3
    assert buffer.is_torn


def test_caller_may_overwrite_a_buffer_that_is_not_bytes() -> None:
    """Signals of one read are handled after the next read has begun."""
    data = bytearray(EMPTY_FRAME)
    buffer = FrameBuffer()

    buffer.feed(data)
    data[:] = bytes(len(data))

    unit = buffer.take_frame(100)
    assert unit is not None
    assert bytes(unit) == EMPTY_FRAME


@pytest.mark.parametrize("chunk", [1, 3, 8, 100])
@pytest.mark.parametrize("size", [0, 7, 101, 0xFFFFFFFF])
def test_size_is_checked_before_memory_is_reserved(size: int, chunk: int) -> None:
    """Eight bytes must not reserve four gigabytes."""
    buffer = FrameBuffer()
    data = size.to_bytes(4, "big") + b"\x02\x00\x00\x00"

    with pytest.raises(RemoteProtocolError) as refusal:
        _feed(buffer, data, chunk)

    assert refusal.value.condition is Condition.CONNECTION_FRAMING_ERROR


def _feed(buffer: FrameBuffer, data: bytes, chunk: int) -> None:
    for start in range(0, len(data), chunk):
        buffer.feed(data[start : start + chunk])
        buffer.take_frame(100)


def test_buffers_with_other_item_types_are_read_as_bytes() -> None:
    """A memoryview need not have bytes as items."""
    buffer = FrameBuffer()

    buffer.feed(memoryview(array.array("I", [1, 2, 3, 4])))

    assert buffer.end == 16
    assert buffer.take_header() is not None


def test_empty_buffer_has_nothing_to_release() -> None:
    """There may be no incomplete frame."""
    buffer = FrameBuffer()

    buffer.reclaim()

    assert buffer.take_frame(100) is None
    assert buffer.keep_rest() == 0


def test_reason_is_truncated_between_characters() -> None:
    """Half a character would not be UTF-8."""
    assert shorten("é" * 200) == "é" * 100
    assert shorten("short") == "short"
