"""Hostile bytes for the AMQP engine. The test checks that only signals come out, that the output is in proportion to
the input, that memory stays within the limits, and that the split of the input does not change the signals. The corpus
holds conversations of real clients' shape, which are mutated, and every input that once broke something.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.wire.amqp import Connection, EngineOptions, RemoteProtocolError, Role
from hubmere.wire.amqp.codec.composites import SHAPES, read_described
from hubmere.wire.amqp.codec.decode import decode_value, skip_value
from hubmere.wire.amqp.codec.encode import encode_value
from hubmere.wire.amqp.codec.frames import HEADER_AMQP, HEADER_SASL, frame, frame_of
from hubmere.wire.amqp.codec.message import read_message, split_message
from hubmere.wire.amqp.codec.performatives import (
    ACCEPTED,
    Close,
    Detach,
    Disposition,
    End,
    Rejected,
    SaslInit,
)
from hubmere.wire.amqp.signals import AttachRequested, CredentialsOffered, CreditChanged, DeliveriesReceived, Signal
from wire.amqp.builders import (
    PREAMBLE,
    a_begin,
    a_flow,
    a_transfer,
    an_attach,
    an_open,
    deliveries,
    feed,
)
from wire.amqp.values import VALUES

CORPUS = sorted((Path(__file__).parent / "corpus" / "amqp").glob("*.bin"))
LIMITS = EngineOptions(max_frame_size=4096, max_held_bytes=10_000, max_links=50, channel_max=20, handle_max=20)

CONVERSATION = [
    HEADER_SASL,
    frame(SaslInit("ANONYMOUS"), 0, 1),
    frame(SaslInit("PLAIN", b"\x00user\x00key"), 0, 1),
    HEADER_AMQP,
    an_open(),
    an_open(max_frame_size=512, idle_time_out=1),
    a_begin(),
    a_begin(channel=1, handle_max=0),
    an_attach(),
    an_attach(sends=False, handle=1, name="r", snd_settle_mode=1),
    an_attach(channel=1, handle=3, name="x" * 400),
    a_flow(handle=1, delivery_count=0, link_credit=50),
    a_flow(handle=1, link_credit=5, drain=True, echo=True, next_incoming_id=None),
    a_flow(echo=True),
    a_transfer(),
    a_transfer(delivery_id=1, settled=True),
    a_transfer(b"x" * 3000, delivery_id=2, more=True),
    a_transfer(b"y" * 3000, delivery_id=2),
    a_transfer(b"", delivery_id=2, aborted=True),
    a_transfer(handle=7),
    frame(Disposition(True, 0, 5, False, ACCEPTED)),
    frame(Disposition(True, 0, 0xFFFFFFFF, True, Rejected())),
    frame(Detach(0, True)),
    frame(Detach(1, False)),
    frame(End()),
    frame(Close()),
    b"\x00\x00\x00\x08\x02\x00\x00\x00",
]


def react(engine: Connection, signals: list[Signal]) -> list[Signal]:
    """Answer like an endpoint, so that all states are reached."""
    heard = list(signals)
    for signal in heard:
        if isinstance(signal, CredentialsOffered):
            heard += engine.accept_credentials(0.0)
        elif isinstance(signal, AttachRequested):
            if len(signal.link.name) % 3 == 2:
                signal.link.refuse("amqp:not-found", "no")
            elif signal.link.accept(max_message_size=5000) and not signal.link.is_sender:
                signal.link.grant(10)
        elif isinstance(signal, DeliveriesReceived):
            signal.link.settle(signal.ids[0], signal.ids[-1], state=ACCEPTED)
        elif isinstance(signal, CreditChanged) and signal.link.is_attached:
            while signal.link.transfer_window() and signal.link.delivery_count < 60:
                signal.link.send(b"event" * 50)
            if signal.link.drain:
                signal.link.complete_drain()
    return heard


def drive(data: bytes, chunk: int) -> tuple[Connection, list[Signal], int]:
    """Feed a server and let it answer; returns all signals and the number of written bytes."""
    engine = Connection(Role.SERVER, LIMITS, 0.0)
    heard: list[Signal] = []
    written = 0
    for start in range(0, len(data), chunk):
        heard += react(engine, engine.receive_data(data[start : start + chunk], 0.0))
        written += len(engine.data_to_send())
        assert engine.held_bytes <= LIMITS.max_held_bytes
        assert engine.link_count <= LIMITS.max_links
    heard += engine.on_connection_lost()
    assert engine.held_bytes == 0
    assert engine.link_count == 0
    return engine, heard, written


def check(data: bytes) -> None:
    """The assertions of this module."""
    _, heard, written = drive(data, 1 << 20)
    assert written <= 20_000 + 40 * len(data)
    names = [type(signal).__name__ for signal in heard]
    assert names.count("LinkDetached") == names.count("AttachRequested")
    assert names.count("SessionEnded") == names.count("SessionBegun")
    assert sum(name in ("ConnectionClosed", "ConnectionFailed") for name in names) == 1


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Frames in a likely order, some of them damaged."""
    parts = draw(st.lists(st.sampled_from(CONVERSATION), max_size=25))
    start = draw(st.sampled_from([b"", PREAMBLE, PREAMBLE + an_attach(), PREAMBLE + an_attach(sends=False, handle=1)]))
    data = bytearray(start + b"".join(parts))
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@settings(max_examples=300, deadline=None)
@given(conversations())
def test_damaged_conversation_ends_in_signals_only(data: bytes) -> None:
    """There is no other exception, the output is limited, and everything that begins has an end."""
    check(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", HEADER_AMQP, HEADER_SASL, PREAMBLE, PREAMBLE + an_attach()]))
def test_random_bytes_end_in_signals_only(data: bytes, start: bytes) -> None:
    """This includes every state of the handshake."""
    check(start + data)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([shape.code for shape in SHAPES.values()]), st.lists(VALUES, max_size=15), st.integers(0, 2))
def test_performatives_of_random_fields_end_in_signals_only(code: int, fields: list[Any], channel: int) -> None:
    """Valid AMQP without meaning is the harder case."""
    body = bytes((0x00, 0x53, code)) + encode_value(fields)

    check(PREAMBLE + an_attach() + frame_of(body, channel) + frame_of(body + b"payload", channel))


@settings(max_examples=100, deadline=None)
@given(conversations(), st.integers(1, 40))
def test_split_of_the_input_does_not_change_the_signals(data: bytes, chunk: int) -> None:
    """There are no answers in between, which would be sent at other times."""
    whole, cut = (Connection(Role.SERVER, LIMITS, 0.0) for _ in range(2))

    at_once, in_pieces = whole.receive_data(data, 0.0), feed(cut, data, chunk)

    assert deliveries(at_once) == deliveries(in_pieces)
    assert _signal_names(at_once) == _signal_names(in_pieces)
    assert whole.data_to_send() == cut.data_to_send()


def _signal_names(signals: list[Signal]) -> list[str]:
    return [type(signal).__name__ for signal in signals if not isinstance(signal, DeliveriesReceived)]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | VALUES.map(encode_value), st.integers(0, 199), st.integers(0, 255))
def test_values_and_messages_are_refused_with_one_type_only(data: bytes, at: int, byte: int) -> None:
    """Values that endpoints decode themselves may be hostile, too."""
    damaged = data[:at] + bytes((byte,)) + data[at + 1 :]

    for read in (decode_value, skip_value, read_described, read_message, split_message):
        try:
            read(damaged)
        except RemoteProtocolError as refusal:
            assert refusal.description  # noqa: PT017


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_corpus_ends_in_signals_only(path: Path) -> None:
    """Each file once broke something, or covers a case that is hard to reach by chance."""
    data = path.read_bytes()

    check(data)
    drive(data, 1)


def test_corpus_exists() -> None:
    """A glob without files would pass unnoticed."""
    assert len(CORPUS) >= 5
