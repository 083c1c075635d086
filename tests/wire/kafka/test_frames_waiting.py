"""Frames that wait for memory: no byte is lost, and no frame is returned before it is admitted."""

import pytest

from hubmere.wire.kafka.framing import Frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize("cut", range(1, 60))
def test_frame_waits_until_it_is_admitted_for_any_split_of_the_input(cut: int) -> None:
    """Any split of the input gives the same frames, admitted early or late."""
    frames = Frames(100)
    answers = [False, True, True, True]
    frames.admits = lambda _: answers.pop(0)
    data = framed(b"a" * 20, b"b" * 30, b"c")
    got = [bytes(frame) for frame in frames.cut(data[:cut])]
    was_waiting = frames.is_waiting
    got += [bytes(frame) for frame in frames.cut(data[cut:])]
    while frames.is_waiting:
        assert frames.rest_bytes is None
        got += [bytes(frame) for frame in frames.resume()]

    assert got == [b"a" * 20, b"b" * 30, b"c"]
    assert was_waiting or cut < 4 or cut in (24, 25, 26, 27, 58, 59) or frames.held_bytes == 0


def test_waiting_frame_uses_only_the_memory_of_received_bytes() -> None:
    """No memory is used for its announced length until it is admitted."""
    frames = Frames(1_000_000)
    frames.admits = lambda _: False
    frames.cut(framed(bytes(900_000))[:100])
    waiting = frames.held_bytes
    frames.admits = lambda _: True
    frames.resume()

    assert (waiting, frames.held_bytes) == (96, 900_000)


def test_discarded_frame_uses_no_memory() -> None:
    """A closed connection releases its memory at once."""
    frames = Frames(1_000_000)
    frames.cut(framed(bytes(900_000))[:100])

    frames.discard_partial_frame()

    assert (frames.held_bytes, frames.missing_part()) == (0, None)
