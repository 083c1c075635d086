"""Frames in the middle of a large delivery: taken from a shared buffer, they give exactly the signals of the general
reader."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.wire.amqp import Connection
from hubmere.wire.amqp.codec.frames import EMPTY_FRAME
from hubmere.wire.amqp.signals import AttachRequested, ConnectionFailed, DeliveryOversized, SessionEnded, Signal
from wire.amqp.builders import a_flow, a_served_link, a_transfer, an_attach, deliveries, feed, kinds, only

# Deliveries with these sizes of frames; the fields may be in every frame or in the first one only.
DELIVERIES = st.lists(
    st.tuples(st.lists(st.sampled_from([0, 1, 40, 1500, 1500, 1500]), min_size=1, max_size=8), st.booleans()),
    max_size=5,
)


def feed_shared(engine: Connection, data: bytes, chunk: int) -> list[Signal]:
    """Give `data` to an engine as a stream does: every read is in the same buffer, which is overwritten after it."""
    signals: list[Signal] = []
    shared = bytearray(chunk)
    for start in range(0, len(data), chunk):
        read = data[start : start + chunk]
        shared[: len(read)] = read
        taken, found = engine.receive_pieces(memoryview(shared)[: len(read)], 0.0)
        signals += found
        signals += engine.receive_data(bytes(shared[taken : len(read)]), 0.0)
        shared[:] = b"\xee" * chunk
    return signals


def frames_of(rows: list[tuple[list[int], bool]]) -> list[bytes]:
    """The frames of deliveries; each payload byte depends on its position."""
    frames = []
    for number, (sizes, is_repeated) in enumerate(rows):
        for index, size in enumerate(sizes):
            terms: dict[str, Any] = {"delivery_id": number}
            if index and not is_repeated:
                terms = {"delivery_id": None, "delivery_tag": None, "message_format": None, "settled": None}
            payload = bytes((number * 31 + index * 7 + place) & 0xFF for place in range(size))
            frames.append(a_transfer(payload, more=index < len(sizes) - 1, **terms))
    return frames


@settings(deadline=None)
@given(DELIVERIES, st.integers(1, 6000), st.lists(st.integers(0, 40), max_size=3))
def test_shared_buffers_give_the_same_deliveries(
    rows: list[tuple[list[int], bool]], chunk: int, beats: list[int]
) -> None:
    """Frames may be cut anywhere, and heartbeats may come between them."""
    frames = frames_of(rows)
    for place in beats:
        frames.insert(min(place, len(frames)), EMPTY_FRAME)
    data = b"".join(frames)
    general, shared = a_served_link()[0], a_served_link()[0]

    expected = feed(general, data)
    found = feed_shared(shared, data, chunk)

    assert deliveries(found) == deliveries(expected)
    assert len(deliveries(found)) == len(rows)
    assert shared.input_bytes == general.input_bytes == 0
    assert shared.data_to_send() == general.data_to_send()
    assert next(shared.links()).session.next_incoming_id == next(general.links()).session.next_incoming_id


def test_middle_frames_are_taken_from_the_shared_buffer() -> None:
    """The fast path is used for whole frames, and for the rest of a frame that was cut."""
    server, _ = a_served_link()
    frames = [a_transfer(bytes([index]) * 2000, more=True) for index in range(4)]
    data = memoryview(b"".join(frames))
    server.receive_data(data[: len(frames[0]) + 100], 0.0)

    taken, signals = server.receive_pieces(data[len(frames[0]) + 100 : -5], 0.0)

    assert not signals
    assert taken == len(data) - len(frames[0]) - 100 - len(frames[3])
    assert server.input_bytes == 6000


def test_nothing_is_taken_before_a_large_delivery_began() -> None:
    """The general reader decodes the first frame of a delivery."""
    server, _ = a_served_link()
    whole = a_transfer(b"x" * 2000)

    assert server.receive_pieces(memoryview(whole), 0.0) == (0, [])
    assert len(deliveries(server.receive_data(whole, 0.0))) == 1
    assert server.receive_pieces(memoryview(whole), 0.0) == (0, [])


def test_link_limit_holds_for_pieces() -> None:
    """A delivery that is too large is reported once, with its whole size."""
    server, link = a_served_link()
    link.max_message_size = 3000
    frames = [a_transfer(b"x" * 1000, more=index < 9) for index in range(10)]

    signals = feed_shared(server, b"".join(frames), 2500)

    assert only(signals, DeliveryOversized).size_bytes == 10_000
    assert server.input_bytes == 0


def test_memory_limit_holds_for_pieces() -> None:
    """A violation closes the connection as it does in the general reader; the rest of the input is ignored."""
    data = b"".join(a_transfer(b"x" * 2000, more=True) for _ in range(10))
    general, shared = a_served_link(max_held_bytes=5000)[0], a_served_link(max_held_bytes=5000)[0]

    expected = feed(general, data)
    found = feed_shared(shared, data, 4500)

    assert kinds(found) == kinds(expected)
    assert kinds(found)[-1] == ConnectionFailed.__name__
    assert shared.data_to_send() == general.data_to_send()


def test_frames_of_an_ended_session_are_not_taken() -> None:
    """A peer may still have sent pieces when it reads our end."""
    server, link = a_served_link()
    piece = a_transfer(b"x" * 2000, more=True)
    server.receive_data(piece, 0.0)
    link.session.end()

    signals = feed_shared(server, piece * 3, 3000)

    assert not [signal for signal in signals if not isinstance(signal, SessionEnded)]
    assert not deliveries(signals)


def test_other_links_may_send_between_pieces() -> None:
    """Transfers of two links may alternate frame by frame."""
    general, shared = a_served_link()[0], a_served_link()[0]
    for server in (general, shared):
        only(server.receive_data(an_attach(handle=1, name="other"), 0.0), AttachRequested).link.accept()
        server.data_to_send()
    pieces = [a_transfer(bytes([index]) * 1000, more=index < 5, delivery_id=9) for index in range(6)]
    others = [a_transfer(b"%d" % index, handle=1, delivery_id=10 + index) for index in range(6)]
    data = b"".join(piece + other + a_flow() for piece, other in zip(pieces, others, strict=True))

    assert deliveries(feed_shared(shared, data, 1700)) == deliveries(feed(general, data))
