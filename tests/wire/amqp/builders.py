"""Both ends of a connection in memory, and frames as existing clients write them. Every default is valid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from hubmere.wire.amqp import ClientCredentials, Connection, EngineOptions, Link, Role, Session
from hubmere.wire.amqp.codec.composites import read_described, write_described
from hubmere.wire.amqp.codec.frames import FRAME_HEADER, HEADER_AMQP, HEADER_BYTES, frame, frame_of
from hubmere.wire.amqp.codec.performatives import Attach, Begin, Flow, Open, Source, Target, Transfer
from hubmere.wire.amqp.signals import AttachRequested, DeliveriesReceived, Signal

S = TypeVar("S")
WHOLE = 1 << 30


def feed(engine: Connection, data: bytes, chunk: int = WHOLE, now: float = 0.0) -> list[Signal]:
    """Gives `data` to an engine in pieces of `chunk` bytes."""
    signals: list[Signal] = []
    for start in range(0, len(data), chunk):
        signals += engine.receive_data(data[start : start + chunk], now)
    return signals


def only(signals: list[Signal], kind: type[S]) -> S:
    """The one signal of a kind."""
    found = [signal for signal in signals if isinstance(signal, kind)]
    assert len(found) == 1, signals
    return found[0]


def kinds(signals: list[Signal]) -> list[str]:
    """The names of signals, to compare their order."""
    return [type(signal).__name__ for signal in signals]


def deliveries(signals: list[Signal]) -> list[tuple[int, int, bool, bytes]]:
    """Id, format, settled and payload of all deliveries, independent of their grouping into runs."""
    return [
        (delivery_id, run.message_format, run.settled, bytes(payload))
        for run in signals
        if isinstance(run, DeliveriesReceived)
        for delivery_id, payload in zip(run.ids, run.payloads, strict=True)
    ]


def frames_in(data: bytes) -> list[tuple[int, Any, bytes]]:
    """Channel, performative and payload of every frame; protocol headers and heartbeats have None as performative."""
    found: list[tuple[int, Any, bytes]] = []
    pos = 0
    while pos < len(data):
        if data[pos : pos + 4] == b"AMQP":
            found.append((0, None, data[pos : pos + HEADER_BYTES]))
            pos += HEADER_BYTES
            continue
        size, _offset, _kind, channel = FRAME_HEADER.unpack_from(data, pos)
        unit = data[pos : pos + size]
        body, end = read_described(unit, 8) if size > 8 else (None, 8)
        found.append((channel, body, unit[end:]))
        pos += size
    return found


def bodies(data: bytes) -> list[Any]:
    """The performatives in `data`."""
    return [body for _channel, body, _payload in frames_in(data) if body is not None]


@dataclass
class EnginePair:
    """A client engine and a server engine connected by two pipes that deliver `chunk` bytes at a time."""

    chunk: int = WHOLE
    client_options: EngineOptions = field(
        default_factory=lambda: EngineOptions(container_id="client", credentials=ClientCredentials())
    )
    server_options: EngineOptions = field(default_factory=lambda: EngineOptions(container_id="server"))
    now: float = 0.0

    def __post_init__(self) -> None:
        self.client = Connection(Role.CLIENT, self.client_options, self.now)
        self.server = Connection(Role.SERVER, self.server_options, self.now)
        self.to_server = b""
        self.to_client = b""

    def exchange(self) -> tuple[list[Signal], list[Signal]]:
        """Transfers bytes until both have nothing to send; returns the signals of server and client."""
        server_signals: list[Signal] = []
        client_signals: list[Signal] = []
        self.to_server = self.to_client = b""
        while True:
            upward, downward = self.client.data_to_send(), self.server.data_to_send()
            if not upward and not downward:
                return server_signals, client_signals
            self.to_server += upward
            self.to_client += downward
            server_signals += feed(self.server, upward, self.chunk, self.now)
            client_signals += feed(self.client, downward, self.chunk, self.now)

    def opened(self) -> EnginePair:
        """The pair after headers, SASL and open."""
        self.client.open()
        self.exchange()
        return self

    def session(self) -> Session:
        """The client's end of a new session."""
        session = self.client.begin()
        self.exchange()
        return session

    def link(self, *, client_sends: bool = True, credit: int = 100, **terms: Any) -> tuple[Link, Link]:
        """The client's and the server's end of a new link on a new session, with credit for the sender."""
        return self.link_on(self.session(), client_sends=client_sends, credit=credit, **terms)

    def link_on(
        self, session: Session, *, client_sends: bool = True, credit: int = 100, name: str = "link", **terms: Any
    ) -> tuple[Link, Link]:
        """The same on an existing session."""
        mine = session.attach(name, is_sender=client_sends, source=Source("from"), target=Target("to"), **terms)
        signals, _ = self.exchange()
        theirs = only(signals, AttachRequested).link
        theirs.accept(max_message_size=1 << 20)
        if client_sends and credit:
            theirs.grant(credit)
        self.exchange()
        if not client_sends and credit:
            mine.grant(credit)
            self.exchange()
        return mine, theirs


def an_open(**fields: Any) -> bytes:
    """An open frame."""
    return frame(Open(**{"container_id": "peer", "hostname": "localhost"} | fields))


def a_begin(channel: int = 0, **fields: Any) -> bytes:
    """A begin frame."""
    terms = {"next_outgoing_id": 0, "incoming_window": 2048, "outgoing_window": 2048}
    return frame(Begin(**terms | fields), channel)


def an_attach(channel: int = 0, *, sends: bool = True, **fields: Any) -> bytes:
    """An attach frame of a peer that sends, or receives."""
    terms: dict[str, Any] = {
        "name": "link",
        "handle": 0,
        "role": not sends,
        "source": Source("from"),
        "target": Target("to"),
        "initial_delivery_count": 0 if sends else None,
    }
    return frame(Attach(**terms | fields), channel)


def a_flow(channel: int = 0, **fields: Any) -> bytes:
    """A flow frame."""
    terms = {"next_incoming_id": 1, "incoming_window": 2048, "next_outgoing_id": 0, "outgoing_window": 2048}
    return frame(Flow(**terms | fields), channel)


def a_transfer(payload: bytes = b"event", channel: int = 0, **fields: Any) -> bytes:
    """A transfer frame with its payload."""
    terms: dict[str, Any] = {
        "handle": 0,
        "delivery_id": 0,
        "delivery_tag": b"tag0",
        "message_format": 0,
        "settled": False,
    }
    return frame_of(write_described(Transfer(**terms | fields)) + payload, channel)


PREAMBLE = HEADER_AMQP + an_open() + a_begin()


def a_server(data: bytes = PREAMBLE, **options: Any) -> tuple[Connection, list[Signal]]:
    """A server that has read `data` and sent its answers, with the signals."""
    server = Connection(Role.SERVER, EngineOptions(**options), 0.0)
    signals = server.receive_data(data, 0.0)
    server.data_to_send()
    return server, signals


def a_served_link(*, sends: bool = True, credit: int = 100, **options: Any) -> tuple[Connection, Link]:
    """A server with one accepted link to a peer that sends, or receives with `credit`."""
    server, signals = a_server(PREAMBLE + an_attach(sends=sends), **options)
    link = only(signals, AttachRequested).link
    link.accept(max_message_size=1 << 20)
    if sends:
        link.grant(credit)
    else:
        server.receive_data(a_flow(handle=0, delivery_count=0, link_credit=credit), 0.0)
    server.data_to_send()
    return server, link
