"""A raw AMQP client: the engine of `wire.amqp` connects and attaches links, `pump.c` sends and receives transfers.

A `Client` is one connection with one session, to Hubmere or to any other broker. After the attach, only the C code uses
the links; the state of the engine is then out of date. Nothing is retried: a failure raises `BenchFailed`.
"""

import ctypes
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from bench.load.library import BenchFailed, Library

from hubmere.wire.amqp import ClientCredentials, Connection, EngineOptions, Link, Role, Session
from hubmere.wire.amqp.codec.frames import frame
from hubmere.wire.amqp.codec.performatives import SND_SETTLED, Attach, Source, Target, Transfer
from hubmere.wire.amqp.codec.types import Described, Long, Symbol, Value
from hubmere.wire.amqp.signals import (
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    CreditChanged,
    LinkAttached,
    LinkDetached,
    SessionBegun,
    Signal,
)

S = TypeVar("S")

BATCH_FORMAT: Final = 0x8001_3700
SELECTOR: Final = "apache.org:selector-filter:string"
RECEIVE_CREDIT: Final = 20_000
_ANSWER_SECONDS = 10.0
_SOURCE = Path(__file__).with_name("pump.c")
_FAILURES = {
    -1: "the connection was lost",
    -2: "the peer detached the link or closed the connection",
    -3: "the peer did not accept a delivery",
    -4: "the peer fell silent",
    -5: "the peer wrote a frame that the client does not read",
}
# Placeholder for a delivery-id in a template; its position is found, and the id is replaced in each copy.
_MARK = 0xD1D2D3D4
_READING = b'{"device":"pump-17","at":"2026-05-04T10:11:12.345Z","celsius":21.375,"ok":true}'


class _Outcome(ctypes.Structure):
    _fields_ = (("deliveries", ctypes.c_uint64), ("seconds", ctypes.c_double))


class _Template(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("id_places", ctypes.POINTER(ctypes.c_uint32)),
        ("id_count", ctypes.c_size_t),
        ("frames", ctypes.c_uint32),
    )


class _Terms(ctypes.Structure):
    _fields_ = (
        ("next_id", ctypes.c_uint32),
        ("next_outgoing", ctypes.c_uint32),
        ("credit", ctypes.c_uint32),
        ("delivery_count", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
        ("next_incoming", ctypes.c_uint32),
        ("channel", ctypes.c_uint16),
        ("handle", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Host and port of a broker, and the credential of a client."""

    host: str
    port: int
    user: str
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Number of deliveries, and the duration."""

    deliveries: int
    seconds: float

    @property
    def rate(self) -> float:
        """Deliveries per second."""
        return self.deliveries / self.seconds if self.seconds else 0.0


class Pump:
    """The C code, compiled for the length of a `with` block."""

    def __init__(self) -> None:
        self._library = Library(_SOURCE)

    def __enter__(self) -> Self:
        self._library.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.__exit__(kind, error, trace)

    def send(self, client: "Client", link: Link, payload: bytes, *, batch: bool, in_flight: int, seconds: float) -> Run:
        """Send copies of one payload for `seconds`, with at most `in_flight` deliveries unsettled."""
        outcome = _Outcome()
        template = _template(link, payload, BATCH_FORMAT if batch else 0)
        terms = _terms(link, link.credit)
        self._call(
            "send_run",
            client.fileno,
            ctypes.byref(template),
            ctypes.byref(terms),
            ctypes.c_uint64(in_flight),
            ctypes.c_uint64(1 << 31),
            ctypes.c_double(seconds),
            ctypes.byref(outcome),
        )
        return Run(deliveries=outcome.deliveries, seconds=outcome.seconds)

    def receive(self, client: "Client", link: Link, *, limit: int, seconds: float) -> Run:
        """Receive for `seconds`, or until `limit` events have arrived."""
        outcome = _Outcome()
        terms = _terms(link, RECEIVE_CREDIT)
        self._call(
            "receive_run",
            client.fileno,
            ctypes.byref(terms),
            ctypes.c_uint64(limit),
            ctypes.c_double(seconds),
            ctypes.byref(outcome),
        )
        return Run(deliveries=outcome.deliveries, seconds=outcome.seconds)

    def latencies_ms(
        self, sending: tuple["Client", Link], receiving: tuple["Client", Link], payload: bytes, *, rate: int, count: int
    ) -> list[float]:
        """Sorted latencies, from the time at which an event was due to be sent until its arrival."""
        waits = (ctypes.c_uint64 * count)()
        template = _template(sending[1], payload, 0)
        send_terms, receive_terms = _terms(sending[1], sending[1].credit), _terms(receiving[1], RECEIVE_CREDIT)
        self._call(
            "latency_run",
            sending[0].fileno,
            ctypes.byref(template),
            ctypes.byref(send_terms),
            receiving[0].fileno,
            ctypes.byref(receive_terms),
            ctypes.c_uint64(1_000_000_000 // rate),
            ctypes.c_uint64(count),
            waits,
        )
        return sorted(wait / 1e6 for wait in waits)

    def _call(self, name: str, *arguments: object) -> None:
        code: int = getattr(self._library.code, name)(*arguments)
        if code:
            raise BenchFailed(f"{name}: {_FAILURES.get(code, code)}")


class Client:
    """One connection with one session, for the length of a `with` block. Not thread-safe."""

    def __init__(self, address: Address) -> None:
        options = EngineOptions(
            container_id="bench",
            hostname=address.host,
            idle_timeout_ms=0,
            incoming_window=1 << 20,
            credentials=ClientCredentials.plain(address.user, address.password),
        )
        self._address = address
        self._engine = Connection(Role.CLIENT, options, time.monotonic())
        self._socket: socket.socket | None = None
        self._session: Session | None = None
        self._signals: list[Signal] = []
        self._links = 0

    def __enter__(self) -> Self:
        self._socket = socket.create_connection((self._address.host, self._address.port), _ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._engine.open()
        self._expect(ConnectionOpened)
        self._session = self._engine.begin()
        self._expect(SessionBegun)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._socket is not None
        self._socket.close()

    @property
    def fileno(self) -> int:
        """The socket, for the C code."""
        assert self._socket is not None
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send bytes without the engine."""
        assert self._socket is not None
        self._socket.sendall(data)

    def receive(self, size_bytes: int) -> bytes:
        """Receive bytes without the engine."""
        assert self._socket is not None
        data = self._socket.recv(size_bytes)
        if not data:
            raise BenchFailed("the peer closed the connection")
        return data

    @property
    def session(self) -> Session:
        """The one session."""
        assert self._session is not None
        return self._session

    def sender(self, target: str) -> Link:
        """Attach a link for sending, and wait for its first credit."""
        link = self.session.attach(self._link_name(), is_sender=True, target=Target(address=target))
        self._expect(LinkAttached)
        if not link.credit:
            self._expect(CreditChanged)
        return link

    def receiver(self, source: str, filters: dict[Value, Value] | None = None, *, epoch: int | None = None) -> Link:
        """Attach a link for receiving settled events, without credit; with an epoch, as an exclusive reader."""
        link = self.session.attach(
            self._link_name(),
            is_sender=False,
            source=Source(address=source, filter=filters),
            snd_settle_mode=SND_SETTLED,
            properties=None if epoch is None else {Symbol("com.microsoft:epoch"): Long(epoch)},
        )
        self._expect(LinkAttached)
        return link

    def _link_name(self) -> str:
        self._links += 1
        return f"bench-{self._links}"

    def _expect(self, kind: type[S]) -> S:
        """The next signal of a kind; a detach, end or close is a failure."""
        while True:
            while self._signals:
                signal = self._signals.pop(0)
                if isinstance(signal, kind):
                    _check_answer(signal)
                    return signal
                if isinstance(signal, LinkDetached | ConnectionClosed | ConnectionFailed):
                    raise BenchFailed(f"the peer refused: {signal!r}")
            self._exchange()

    def _exchange(self) -> None:
        assert self._socket is not None
        self._socket.sendall(self._engine.data_to_send())
        data = self._socket.recv(1 << 16)
        if not data:
            raise BenchFailed("the peer closed the connection")
        self._signals += self._engine.receive_data(data, time.monotonic())
        self._socket.sendall(self._engine.data_to_send())


def _check_answer(signal: object) -> None:
    # AMQP 1.0, 2.6.3: a refused link is attached without its terminus, and a detach follows.
    if isinstance(signal, LinkAttached):
        attach: Attach = signal.attach
        terminus = attach.target if signal.link.is_sender else attach.source
        if terminus is None:
            raise BenchFailed(f"the peer refused a link: {attach!r}")


def _terms(link: Link, credit: int) -> _Terms:
    session = link.session
    return _Terms(
        next_id=session.next_delivery_id,
        next_outgoing=session.next_outgoing_id,
        credit=credit,
        delivery_count=link.delivery_count,
        window=session.transfer_window(),
        next_incoming=session.next_incoming_id or 0,
        channel=link.channel,
        handle=link.handle,
    )


def _template(link: Link, payload: bytes, message_format: int) -> _Template:
    """The frames of one delivery, and the positions of its id and tag in them."""
    pieces = _pieces(link, payload, message_format)
    mark = _MARK.to_bytes(4, "big")
    places, at = [], 0
    for piece, head_bytes in pieces:
        places += [at + place for place in _all_places(piece[:head_bytes], mark)]
        at += len(piece)
    data = b"".join(piece for piece, _ in pieces)
    return _Template(
        bytes=data,
        size=len(data),
        id_places=(ctypes.c_uint32 * len(places))(*places),
        id_count=len(places),
        frames=len(pieces),
    )


def delivery_template(link: Link, payload: bytes) -> _Template:
    """The frames of one delivery of one event, for other C code."""
    return _template(link, payload, 0)


def _pieces(link: Link, payload: bytes, message_format: int) -> Sequence[tuple[bytes, int]]:
    """The complete frames of a delivery, each with the length of its header."""
    head = Transfer(
        handle=link.handle,
        delivery_id=_MARK,
        delivery_tag=_MARK.to_bytes(4, "big"),
        message_format=message_format,
        settled=False,
        more=True,
    )
    head_bytes = len(frame(head, link.channel))
    room = link.max_frame_size - head_bytes
    starts = range(0, len(payload), room)
    pieces = []
    for start in starts:
        head.more = start != starts[-1]
        body = frame(head, link.channel)[8:] + payload[start : start + room]
        pieces.append(((len(body) + 8).to_bytes(4, "big") + frame(head, link.channel)[4:8] + body, head_bytes))
    return pieces


def _all_places(data: bytes, mark: bytes) -> list[int]:
    places, at = [], data.find(mark)
    while at >= 0:
        places.append(at)
        at = data.find(mark, at + len(mark))
    return places


def event(size_bytes: int) -> bytes:
    """An encoded message with one Data section that contains a sensor reading."""
    body = (_READING * (size_bytes // len(_READING) + 1))[:size_bytes]
    if size_bytes < 256:
        return b"\x00\x53\x75\xa0" + bytes((size_bytes,)) + body
    return b"\x00\x53\x75\xb0" + size_bytes.to_bytes(4, "big") + body


def batch_of(message: bytes, count: int) -> bytes:
    """A batch message in the service's format: each message is in a separate Data section."""
    size = len(message)
    head = b"\x00\x53\x75\xa0" + bytes((size,)) if size < 256 else b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")
    return (head + message) * count


def from_first() -> dict[Value, Value]:
    """The service's filter that starts at the oldest retained event."""
    return _after("-1")


def from_now() -> dict[Value, Value]:
    """The service's filter that starts with the next event."""
    return _after("@latest")


def _after(offset: str) -> dict[Value, Value]:
    name = Symbol(SELECTOR)
    return {name: Described(name, f"amqp.annotation.x-opt-offset > '{offset}'")}
