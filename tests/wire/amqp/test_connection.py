"""The connection: headers, open and close, heartbeats, limits, and the end of a connection."""

from __future__ import annotations

from typing import Any

import pytest

from hubmere.wire.amqp import (
    ClientCredentials,
    Condition,
    Connection,
    EngineOptions,
    LocalProtocolError,
    Phase,
    Role,
)
from hubmere.wire.amqp.codec.frames import (
    EMPTY_FRAME,
    HEADER_AMQP,
    HEADER_SASL,
    MAX_FRAME_BYTES,
    MAX_PERFORMATIVE_BYTES,
    MAX_UNOPENED_FRAME_BYTES,
    frame,
    frame_of,
)
from hubmere.wire.amqp.codec.performatives import Attach, Begin, Close, Detach, End, Error, Flow, Open, SaslInit
from hubmere.wire.amqp.signals import (
    AttachRequested,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    SessionBegun,
    SessionEnded,
)
from hubmere.wire.amqp.timers import CLOSE_TIMEOUT_SECONDS, MIN_HEARTBEAT_SECONDS
from wire.amqp.builders import (
    PREAMBLE,
    EnginePair,
    a_begin,
    a_flow,
    a_served_link,
    a_server,
    a_transfer,
    an_attach,
    an_open,
    bodies,
    feed,
    frames_in,
    kinds,
    only,
)


def failure(signals: list[Any]) -> tuple[Condition, str]:
    """Condition and text of the violation that ended a connection."""
    violation = only(signals, ConnectionFailed).violation
    assert isinstance(signals[-1], ConnectionFailed)
    return violation.condition, violation.description


def test_two_engines_open_a_connection(pair: EnginePair) -> None:
    """Headers, SASL and open need no decision of the caller."""
    pair.client.open()

    server_signals, client_signals = pair.exchange()

    assert only(server_signals, ConnectionOpened).open.container_id == "client"
    assert only(client_signals, ConnectionOpened).open.container_id == "server"
    assert pair.client.phase is pair.server.phase is Phase.OPENED


def test_header_without_sasl_layer_equals_anonymous() -> None:
    """JavaScript clients that use a signature as credential do not use SASL."""
    server, signals = a_server(HEADER_AMQP + an_open())

    assert kinds(signals) == ["ConnectionOpened"]
    assert server.phase is Phase.OPENED


@pytest.mark.parametrize(
    "header", [b"AMQP\x01\x01\x00\x00", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"GET / HT"]
)
def test_unsupported_header_is_answered_with_a_supported_one(header: bytes) -> None:
    """AMQP 1.0, 2.2: the peer gets a supported header, then the transport is closed."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    signals = server.receive_data(header, 0.0)

    assert failure(signals)[0] is Condition.CONNECTION_FRAMING_ERROR
    assert server.data_to_send() == HEADER_SASL
    assert server.is_closed
    assert server.receive_data(PREAMBLE, 0.0) == []


@pytest.mark.parametrize("chunk", [1 << 20, 1, 13])
def test_pipelined_frames_are_answered_in_order(chunk: int) -> None:
    """The Python SDK writes header, open, begin and two attaches before it reads anything."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)
    data = PREAMBLE + an_attach() + an_attach(sends=False, name="other", handle=1)

    signals = feed(server, data, chunk)
    for signal in signals[2:]:
        signal.link.accept(max_message_size=1 << 20)  # type: ignore[union-attr]
    signals[2].link.grant(100)  # type: ignore[union-attr]

    sent = [type(body) for _channel, body, _payload in frames_in(server.data_to_send())]
    assert kinds(signals) == ["ConnectionOpened", "SessionBegun", "AttachRequested", "AttachRequested"]
    assert sent == [type(None), Open, Begin, Attach, Attach, Flow]


def test_open_has_the_fields_that_clients_need() -> None:
    """Without max-frame-size a Python client crashes; .NET refuses an idle time-out below five seconds."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)
    server.receive_data(HEADER_AMQP + an_open(), 0.0)

    (ours,) = bodies(server.data_to_send())

    assert (ours.max_frame_size, ours.channel_max, ours.idle_time_out) == (65536, 4999, 120_000)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"), [(512, 65536, 512), (1 << 20, 65536, 65536), (0xFFFFFFFF, 512, 512)]
)
def test_frame_size_is_the_smaller_of_both(theirs: int, ours: int, expected: int) -> None:
    """Java announces 4096 over WebSocket, JavaScript nothing at all."""
    server, _ = a_server(HEADER_AMQP + an_open(max_frame_size=theirs), max_frame_size=ours)

    assert server.outbox.limit_bytes == expected


def test_peer_may_not_announce_frames_below_the_minimum() -> None:
    """AMQP 1.0, 2.7.1."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    signals = server.receive_data(HEADER_AMQP + an_open(max_frame_size=511), 0.0)

    assert failure(signals)[0] is Condition.INVALID_FIELD
    assert [type(body) for body in bodies(server.data_to_send())] == [Open, Close]


@pytest.mark.parametrize("size", [511, MAX_FRAME_BYTES + 1])
def test_our_own_frame_size_has_bounds(size: int) -> None:
    """A smaller one is forbidden; with a larger one a single frame could block a connection."""
    with pytest.raises(LocalProtocolError):
        EngineOptions(max_frame_size=size)


FRAMING: list[tuple[str, bytes, Condition]] = [
    ("size below header", b"\x00\x00\x00\x07\x02\x00\x00\x00", Condition.CONNECTION_FRAMING_ERROR),
    ("size above limit", b"\x00\x01\x00\x01\x02\x00\x00\x00", Condition.CONNECTION_FRAMING_ERROR),
    ("offset below header", b"\x00\x00\x00\x08\x01\x00\x00\x00", Condition.CONNECTION_FRAMING_ERROR),
    ("offset beyond frame", b"\x00\x00\x00\x08\x03\x00\x00\x00", Condition.CONNECTION_FRAMING_ERROR),
    ("sasl frame", frame(SaslInit("ANONYMOUS"), 0, 1), Condition.CONNECTION_FRAMING_ERROR),
    ("no described type", frame_of(b"\x40"), Condition.DECODE_ERROR),
    ("unknown type", frame_of(b"\x00\x53\x99\x45"), Condition.DECODE_ERROR),
    ("descriptor of a strange type", frame_of(b"\x00\xa1\x01x\x45"), Condition.DECODE_ERROR),
    ("torn list", frame_of(b"\x00\x53\x13\xc0\xff\x01\x40"), Condition.DECODE_ERROR),
    ("map as body", frame_of(b"\x00\x53\x13\xc1\x01\x00"), Condition.DECODE_ERROR),
    ("too many fields", frame_of(b"\x00\x53\x17\xc0\x03\x02\x40\x40"), Condition.DECODE_ERROR),
    ("fields that leave a gap", frame_of(b"\x00\x53\x17\xc0\x03\x01\x40\x40"), Condition.DECODE_ERROR),
    ("bytes behind a flow", frame_of(a_flow()[8:] + b"\x00"), Condition.CONNECTION_FRAMING_ERROR),
    ("text as flow window", frame_of(b"\x00\x53\x13\xc0\x05\x02\x40\xa1\x01x"), Condition.INVALID_FIELD),
    ("nothing mandatory", frame_of(b"\x00\x53\x12\x45"), Condition.INVALID_FIELD),
    ("null for mandatory", frame_of(b"\x00\x53\x15\xc0\x03\x02\x40\x43"), Condition.INVALID_FIELD),
    ("text that is not UTF-8", frame_of(b"\x00\x53\x12\xc0\x06\x03\xa1\x01\xff\x43\x42"), Condition.DECODE_ERROR),
    ("second open", an_open(), Condition.ILLEGAL_STATE),
    ("sasl body in an AMQP frame", frame(SaslInit("ANONYMOUS")), Condition.ILLEGAL_STATE),
    ("frame on an unmapped channel", a_flow(channel=9), Condition.ILLEGAL_STATE),
    ("channel beyond channel-max", a_begin(channel=5000), Condition.CONNECTION_FRAMING_ERROR),
    ("channel in use", a_begin(), Condition.NOT_ALLOWED),
    ("begin that answers nothing", a_begin(channel=3, remote_channel=7), Condition.ILLEGAL_STATE),
]


@pytest.mark.parametrize("chunk", [1 << 20, 1])
@pytest.mark.parametrize(("data", "condition"), [row[1:] for row in FRAMING], ids=[row[0] for row in FRAMING])
def test_violation_closes_with_its_condition(data: bytes, condition: Condition, chunk: int) -> None:
    """The closing frame is queued, the end of everything open is reported, and the violation is the last signal."""
    server, _ = a_server()

    signals = feed(server, data, chunk)

    close = bodies(server.data_to_send())[-1]
    assert failure(signals)[0] is condition
    assert kinds(signals) == ["SessionEnded", "ConnectionFailed"]
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == condition
    assert close.error.description
    assert server.is_closed


def test_signals_before_a_violation_are_not_lost() -> None:
    """Frames before the violation are reported, however the bytes were split."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    signals = server.receive_data(PREAMBLE + b"\x00\x00\x00\x00\x02\x00\x00\x00", 0.0)

    assert kinds(signals) == ["ConnectionOpened", "SessionBegun", "SessionEnded", "ConnectionFailed"]


def test_open_of_an_unauthenticated_peer_is_limited() -> None:
    """Before its open a peer must not fill the memory, whatever frame size is announced later."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    signals = server.receive_data(HEADER_AMQP + an_open(container_id="x" * MAX_UNOPENED_FRAME_BYTES), 0.0)

    assert failure(signals)[0] is Condition.CONNECTION_FRAMING_ERROR


def test_performative_is_limited_even_if_frames_are_large() -> None:
    """Only the payload may fill a large frame: decoded fields need many times their size."""
    server, link = a_served_link(max_frame_size=MAX_FRAME_BYTES)
    large = b"x" * (MAX_PERFORMATIVE_BYTES + 1)

    assert kinds(server.receive_data(a_transfer(large), 0.0)) == ["DeliveriesReceived"]
    assert failure(server.receive_data(a_flow(properties={"a": large}), 0.0))[0] is Condition.DECODE_ERROR
    assert not link.is_attached


def test_extended_frame_header_is_skipped() -> None:
    """AMQP 1.0, 2.3.1: a larger data offset means an unknown extended header."""
    body = a_flow()[8:]
    data = (len(body) + 12).to_bytes(4, "big") + b"\x03\x00\x00\x00" + b"\xff" * 4 + body
    server, _ = a_server()

    assert server.receive_data(data, 0.0) == []
    assert not server.is_closed


def test_heartbeat_is_sent_at_half_of_the_peers_time_out() -> None:
    """Java announces 30 seconds and closes if nothing arrives."""
    server, _ = a_server(HEADER_AMQP + an_open(idle_time_out=30_000))

    assert server.next_deadline() == 15.0
    assert server.advance(14.9) == []
    assert server.data_to_send() == b""
    assert server.advance(15.0) == []
    assert server.data_to_send() == EMPTY_FRAME
    assert server.next_deadline() == 30.0


def test_output_delays_the_heartbeat() -> None:
    """Any frame shows that the connection is alive."""
    server, _ = a_server(HEADER_AMQP + an_open(idle_time_out=30_000))

    server.receive_data(a_begin(), 10.0)
    server.data_to_send()

    assert server.next_deadline() == 25.0


def test_heartbeats_are_limited_in_number() -> None:
    """A peer that requests one every millisecond gets a few per second."""
    server, _ = a_server(HEADER_AMQP + an_open(idle_time_out=1))

    assert server.next_deadline() == MIN_HEARTBEAT_SECONDS


def test_silent_peer_is_closed_after_twice_our_time_out() -> None:
    """Any received byte counts as activity, even half of a frame."""
    server, _ = a_server(HEADER_AMQP + an_open(idle_time_out=1_000_000) + a_begin())
    server.receive_data(a_flow()[:5], 100.0)

    assert server.next_deadline() == 340.0
    signals = server.advance(340.0)

    assert failure(signals)[0] is Condition.CONNECTION_FORCED
    assert isinstance(bodies(server.data_to_send())[-1], Close)
    assert server.next_deadline() is None
    assert server.advance(1000.0) == []


def test_silent_peer_gets_one_reason_for_links_sessions_and_connection() -> None:
    """As in the service: clients connect again after this condition, and treat another one as final."""
    attaches = an_attach() + an_attach(sends=False, name="other", handle=1) + an_attach(name="unanswered", handle=2)
    server, signals = a_server(PREAMBLE + a_begin(1) + attaches, container_id="node")
    links = [signal.link for signal in signals if isinstance(signal, AttachRequested)]
    for link in links[:2]:
        link.accept(max_message_size=1 << 20)
    server.data_to_send()

    signals = server.advance(240.0)

    text = (
        "The connection was inactive for more than the allowed 240000 milliseconds and is closed by container 'node'."
    )
    sent = bodies(server.data_to_send())
    assert [type(body) for body in sent] == [Detach, Detach, End, End, Close]
    assert [body.error for body in sent] == [Error(Condition.CONNECTION_FORCED, text)] * 5
    assert kinds(signals) == [*["LinkDetached"] * 3, "SessionEnded", "SessionEnded", "ConnectionFailed"]


def test_peer_without_a_time_out_is_sent_a_flow_with_echo() -> None:
    """Its answer keeps the connection alive in address translators; the service does so after 119 seconds."""
    server, _ = a_server()

    assert server.advance(118.9) == []
    assert server.data_to_send() == b""
    assert server.advance(119.0) == []
    (flow,) = bodies(server.data_to_send())

    assert (type(flow), flow.handle, flow.echo, flow.incoming_window) == (Flow, None, True, 5000)
    assert server.receive_data(a_flow(), 119.1) == []
    assert server.next_deadline() == 238.0


def test_peer_without_a_session_is_sent_an_empty_frame() -> None:
    """A flow needs a session; the empty frame keeps the connection alive."""
    server, _ = a_server(HEADER_AMQP + an_open())

    server.advance(119.0)

    assert server.data_to_send() == EMPTY_FRAME


def test_short_time_out_sends_the_flow_at_half_of_it() -> None:
    """One second before its end would be too late, or at once."""
    server, _ = a_server(PREAMBLE, idle_timeout_ms=1000)

    assert server.next_deadline() == 0.5


def test_without_time_outs_there_is_no_deadline() -> None:
    """Neither side has announced a time-out."""
    server, _ = a_server(HEADER_AMQP + an_open(), idle_timeout_ms=0)

    assert server.next_deadline() is None
    assert server.advance(1e9) == []


def test_peer_that_never_opens_is_closed() -> None:
    """A connection without an open must not keep its socket."""
    server, _ = a_server(HEADER_AMQP, handshake_seconds=30.0)

    assert server.next_deadline() == 30.0
    signals = server.advance(30.0)

    assert failure(signals)[0] is Condition.RESOURCE_LIMIT_EXCEEDED
    assert [type(body) for body in bodies(server.data_to_send())] == [Open, Close]


def test_empty_frames_and_empty_input_have_no_effect() -> None:
    """An empty frame counts as activity; an empty read does not."""
    server, _ = a_server()

    assert server.receive_data(EMPTY_FRAME, 50.0) == []
    assert server.receive_data(b"", 90.0) == []
    assert server.next_deadline() == 119.0
    server.advance(200.0)
    assert server.advance(289.9) == []
    assert failure(server.advance(290.0))[0] is Condition.CONNECTION_FORCED


def test_close_is_answered_and_ends_everything(pair: EnginePair) -> None:
    """Links, sessions and the connection are reported in this order on both sides."""
    pair.opened().link()

    pair.client.close("amqp:connection:forced", "going away")
    server_signals, client_signals = pair.exchange()

    assert kinds(server_signals) == ["LinkDetached", "SessionEnded", "ConnectionClosed"]
    assert kinds(client_signals) == ["LinkDetached", "SessionEnded", "ConnectionClosed"]
    assert only(server_signals, ConnectionClosed).error == Error("amqp:connection:forced", "going away")
    assert pair.client.is_closed
    assert pair.server.is_closed
    assert not pair.client.close()


def test_frames_after_our_close_are_discarded() -> None:
    """The peer has not seen our close yet."""
    server, _ = a_served_link()
    server.close()

    assert server.receive_data(a_transfer() + a_begin(channel=5), 0.0) == []
    assert kinds(server.receive_data(frame(Close()), 0.0)) == ["LinkDetached", "SessionEnded", "ConnectionClosed"]


def test_unanswered_close_ends_after_a_timeout() -> None:
    """Some clients never answer.

    A close may come long after the last input, so the time starts at the next `advance`.
    """
    server, _ = a_server()
    server.close()
    assert server.next_deadline() == 0.0
    assert server.advance(100.0) == []

    assert server.next_deadline() == 100.0 + CLOSE_TIMEOUT_SECONDS
    assert server.advance(99.0 + CLOSE_TIMEOUT_SECONDS) == []
    assert kinds(server.advance(100.0 + CLOSE_TIMEOUT_SECONDS)) == ["SessionEnded", "ConnectionClosed"]


def test_garbage_after_our_close_is_not_answered() -> None:
    """A connection sends one close."""
    server, _ = a_server()
    server.close()
    server.data_to_send()

    signals = server.receive_data(b"\x00" * 8, 0.0)

    assert kinds(signals) == ["SessionEnded", "ConnectionFailed"]
    assert server.data_to_send() == b""


def test_close_before_the_open_sends_nothing() -> None:
    """A stopping node also has connections that are not open yet."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    assert server.close()

    assert server.is_closed
    assert server.data_to_send() == b""


def test_lost_transport_reports_the_end_of_links_sessions_and_connection() -> None:
    """Python clients reset the connection; their receivers must still be released."""
    server, _ = a_served_link()

    signals = server.on_connection_lost()

    assert kinds(signals) == ["LinkDetached", "SessionEnded", "ConnectionClosed"]
    assert server.on_connection_lost() == []


def test_client_opens_once() -> None:
    """A second open, or an open by a server, is a bug of ours."""
    client = Connection(Role.CLIENT, EngineOptions(credentials=ClientCredentials()), 0.0)
    client.open()

    with pytest.raises(LocalProtocolError):
        client.open()
    with pytest.raises(LocalProtocolError):
        Connection(Role.SERVER, EngineOptions(), 0.0).open()


def test_client_without_credentials_uses_no_sasl() -> None:
    """The header is followed by the open at once."""
    pair = EnginePair(client_options=EngineOptions())

    pair.opened()

    assert pair.to_server.startswith(HEADER_AMQP)
    assert pair.client.phase is Phase.OPENED


def test_client_fails_on_an_unexpected_header() -> None:
    """There is no answer that the peer would understand."""
    client = Connection(Role.CLIENT, EngineOptions(), 0.0)
    client.open()
    client.data_to_send()

    signals = client.receive_data(HEADER_SASL, 0.0)

    assert failure(signals)[0] is Condition.CONNECTION_FRAMING_ERROR
    assert client.data_to_send() == b""


def test_client_fails_with_a_close_on_a_bad_open() -> None:
    """Its own open was already sent."""
    client = Connection(Role.CLIENT, EngineOptions(), 0.0)
    client.open()
    client.data_to_send()

    client.receive_data(HEADER_AMQP + an_open(max_frame_size=1), 0.0)

    assert [type(body) for body in bodies(client.data_to_send())] == [Close]


def test_session_is_answered_on_the_peers_channel() -> None:
    """This makes traces easy to read, and all clients accept it."""
    _, signals = a_server(HEADER_AMQP + an_open() + a_begin(channel=7))

    session = only(signals, SessionBegun).session
    assert session.channel == 7
    assert repr(session) == "<Session 7, MAPPED, 0 links>"


def test_answering_channel_respects_the_peers_channel_max() -> None:
    """A peer may use high channels and still allow only low ones."""
    server, signals = a_server(HEADER_AMQP + an_open(channel_max=0) + a_begin(channel=7))

    assert only(signals, SessionBegun).session.channel == 0
    assert failure(server.receive_data(a_begin(channel=8), 0.0))[0] is Condition.NOT_ALLOWED


def test_begin_takes_the_lowest_channel_that_is_free(pair: EnginePair) -> None:
    """Channels are reused after an end."""
    pair.opened()
    sessions = [pair.session() for _ in range(3)]
    sessions[1].end()
    pair.exchange()

    assert [session.channel for session in sessions] == [0, 1, 2]
    assert pair.session().channel == 1


def test_begin_needs_an_open_connection_and_a_channel() -> None:
    """Both are checked before a frame is written."""
    client = Connection(Role.CLIENT, EngineOptions(), 0.0)
    with pytest.raises(LocalProtocolError):
        client.begin()

    pair = EnginePair(server_options=EngineOptions(channel_max=0)).opened()
    pair.session()
    with pytest.raises(LocalProtocolError):
        pair.client.begin()


def test_second_end_is_tolerated() -> None:
    """It has no effect."""
    server, _ = a_server()

    signals = server.receive_data(frame(End()) + frame(End()), 0.0)

    assert kinds(signals) == ["SessionEnded"]
    assert bodies(server.data_to_send()) == [End()]


def test_frames_after_an_end_are_discarded_until_the_channel_is_used_again() -> None:
    """The Azure SDK for Python detaches links after the end of their session."""
    server, _ = a_served_link()
    server.receive_data(frame(End()), 0.0)

    late = server.receive_data(frame(Detach(0, True)) + a_flow() + a_transfer(), 0.0)
    again = server.receive_data(a_begin() + an_attach(), 0.0)

    assert late == []
    assert kinds(again) == ["SessionBegun", "AttachRequested"]


def test_end_and_close_may_be_empty_lists() -> None:
    """JavaScript and Qpid write list0."""
    server, _ = a_server()

    signals = server.receive_data(frame_of(b"\x00\x53\x17\x45") + frame_of(b"\x00\x53\x18\x45"), 0.0)

    assert only(signals, SessionEnded).error is None
    assert only(signals, ConnectionClosed).error is None


def test_symbolic_and_wide_descriptors_are_read() -> None:
    """These forms are legal; no Azure SDK writes them, but other clients may."""
    server, _ = a_server(HEADER_AMQP)
    fields = an_open()[11:]

    signals = server.receive_data(frame_of(b"\x00\xa3\x0eamqp:open:list" + fields), 0.0)
    signals += server.receive_data(frame_of(b"\x00\x80" + bytes(7) + b"\x11" + a_begin()[11:]), 0.0)

    assert kinds(signals) == ["ConnectionOpened", "SessionBegun"]


def test_reason_that_does_not_fit_the_peers_frames_is_truncated() -> None:
    """Clients use the condition; the text is for people."""
    server, _ = a_server(HEADER_AMQP + an_open(max_frame_size=512))

    server.close("amqp:connection:forced", "é" * 1000)

    data = server.data_to_send()
    (close,) = bodies(data)
    assert len(data) <= 512
    assert close.error.condition == "amqp:connection:forced"
    assert close.error.description == "é" * 100


def test_transfer_on_a_channel_of_another_session_is_refused() -> None:
    """The cached layout of the last transfer belongs to one channel."""
    server, _ = a_served_link()

    signals = server.receive_data(a_transfer() + a_transfer(channel=1, delivery_id=1), 0.0)

    assert failure(signals)[0] is Condition.ILLEGAL_STATE
