"""Runs of incoming AMQP transfers: frames whose constant bytes are equal, read in one loop."""

from struct import pack

import pytest

from hubmere.records.kernels import take_transfers

HEAD, TAG, TAIL = b"\x02\x00\x00\x00head\x70", b"\xa0\x02", b"tail"
LARGEST = 100


def a_frame(
    delivery_id: int, payload: bytes, *, head: bytes = HEAD, tag: bytes = TAG, tail: bytes = TAIL, id_format: str = "I"
) -> bytes:
    body = head + pack(f">{id_format}", delivery_id) + tag + b"no" + tail + payload
    return pack(">I", 4 + len(body)) + body


def take(data: bytes, at: int = 0, end: int | None = None, id_bytes: int = 4) -> tuple[int, list[int], list[bytes]]:
    end = len(data) if end is None else end
    return take_transfers(data, at, end, HEAD, id_bytes, TAG, 2, TAIL, LARGEST)


def test_run_returns_ids_and_payloads() -> None:
    """Sizes may differ from frame to frame, and a payload may be empty."""
    before = b"something else"
    frames = a_frame(7, b"first") + a_frame(2**32 - 1, b"") + a_frame(0, b"third")

    assert take(before + frames, len(before)) == (len(before + frames), [7, 2**32 - 1, 0], [b"first", b"", b"third"])


def test_small_ids_have_one_byte() -> None:
    """AMQP 1.0, 1.6.7: `smalluint`."""
    frames = a_frame(7, b"first", id_format="B") + a_frame(255, b"second", id_format="B")

    assert take(frames, id_bytes=1) == (len(frames), [7, 255], [b"first", b"second"])


@pytest.mark.parametrize(
    "other",
    [
        a_frame(2, b"other", head=HEAD.replace(b"head", b"haed")),
        a_frame(2, b"other", tag=b"\xa0\x03"),
        a_frame(2, b"other", tail=b"tell"),
        a_frame(2, bytes(LARGEST)),
        a_frame(2, b"cut off")[:-1],
        pack(">I", 8) + a_frame(2, b"shorter than its own head")[4:],
        b"\x00",
        b"",
    ],
    ids=["head", "tag", "tail", "too large", "incomplete", "too small", "torn size", "end"],
)
def test_run_ends_before_the_first_frame_that_differs(other: bytes) -> None:
    """The general reader decodes that frame, waits for the rest of it, or refuses it."""
    first = a_frame(1, b"one")

    assert take(first + other) == (len(first), [1], [b"one"])


def test_run_does_not_read_beyond_the_end() -> None:
    """The bytes after the end are not part of the received data."""
    first, second = a_frame(1, b"one"), a_frame(2, b"two")

    assert take(first + second, end=len(first) + len(second) - 1) == (len(first), [1], [b"one"])
