"""A small blocking AMQP 1.0 client: signs in with a key, sends to a hub and reads partitions. Thread rule: one owner.

It does what the demo needs: plain TCP, one session, one link per hub. A send returns when the node accepted the event,
which means that it is on disk. Failures raise AmqpFailure; nothing is retried.
"""

import socket
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self, TypeVar

from hubmere.client.failures import ClientFailure
from hubmere.wire.amqp import ClientCredentials, Connection, EngineOptions, Link, Role, Session
from hubmere.wire.amqp.codec.message import Data, Message, read_message, write_message
from hubmere.wire.amqp.codec.performatives import Accepted, Source, Target
from hubmere.wire.amqp.codec.types import Described, Symbol, Value
from hubmere.wire.amqp.signals import (
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    CreditChanged,
    DeliveriesReceived,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    SessionBegun,
    Signal,
)

_READ_BYTES = 256 * 1024
_ANSWER_SECONDS = 60.0
# Credit of a reader; renewed when half of it is used.
_CREDIT = 500
_PARTITION_KEY = Symbol("x-opt-partition-key")
_SELECTOR = Symbol("apache.org:selector-filter:string")

S = TypeVar("S")


class AmqpFailure(ClientFailure):
    """The node refused, closed the connection or did not respond; the text has its reason."""


class AmqpPeer:
    """One connection for the length of a `with` block."""

    def __init__(self, host: str, port: int, rule: str, key: str, *, container_id: str) -> None:
        options = EngineOptions(
            container_id=container_id, hostname=host, credentials=ClientCredentials.plain(rule, key)
        )  # fmt: skip
        self._address = (host, port)
        self._engine = Connection(Role.CLIENT, options, time.monotonic())
        self._socket: socket.socket | None = None
        self._session: Session | None = None
        self._signals: deque[Signal] = deque()
        self._senders: dict[str, Link] = {}
        self._left: dict[Link, int] = {}

    def __enter__(self) -> Self:
        """Connect, sign in and begin a session."""
        try:
            self._socket = socket.create_connection(self._address, _ANSWER_SECONDS)
            self._engine.open()
            self._expect(ConnectionOpened)
            self._session = self._engine.begin()
            self._expect(SessionBegun)
        except BaseException as error:
            self._disconnect()
            if isinstance(error, OSError):
                raise AmqpFailure(f"{self._address[0]}:{self._address[1]}: {error}") from error
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection, with a close frame unless it failed."""
        try:
            if kind is None and not self._engine.is_closed:
                self._engine.close()
                self._flush()
        finally:
            self._disconnect()

    # --- events ----------------------------------------------------------------------------------------------------

    def send(self, hub: str, body: bytes, key: str, properties: dict[str, str]) -> None:
        """Publish one event and wait until it is accepted."""
        link = self._senders.get(hub) or self._new_sender(hub)
        while link.transfer_window() < 1:
            self._expect(CreditChanged)
        message = Message(
            message_annotations={_PARTITION_KEY: key},
            application_properties=dict[Value, Value](properties),
            body=Data((body,)),
        )
        link.send(write_message(message))
        settled = self._expect(DispositionReceived)
        if not isinstance(settled.state, Accepted):
            raise AmqpFailure(f"the event was not accepted: {settled.state}")

    def _new_sender(self, hub: str) -> Link:
        link = self._attach(f"to-{hub}", is_sender=True, target=Target(address=hub))
        self._senders[hub] = link
        return link

    def read_from(self, hub: str, group: str, partition: int) -> None:
        """Start reading a partition at its end."""
        source = Source(
            address=f"{hub}/ConsumerGroups/{group}/Partitions/{partition}",
            filter={_SELECTOR: Described(_SELECTOR, "amqp.annotation.x-opt-offset > '@latest'")},
        )
        link = self._attach(f"{group}-{partition}", is_sender=False, source=source)
        self._left[link] = _CREDIT
        link.grant(_CREDIT)
        self._flush()

    def receive_bodies(self, wait_seconds: float) -> Iterator[bytes]:
        """Yield the bodies of received events, after waiting at most once, and settle them."""
        if not self._signals:
            self._poll(wait_seconds)
        while self._signals:
            signal = self._signals.popleft()
            self._check(signal)
            if isinstance(signal, DeliveriesReceived):
                self._settle(signal)
                yield from (_body(payload) for payload in signal.payloads)
        self._flush()

    def _settle(self, signal: DeliveriesReceived) -> None:
        if not signal.settled:
            signal.link.settle(signal.ids[0], signal.ids[-1], state=Accepted())
        self._left[signal.link] -= len(signal.ids)
        if self._left[signal.link] < _CREDIT // 2:
            self._left[signal.link] = _CREDIT
            signal.link.grant(_CREDIT)

    # --- frames ----------------------------------------------------------------------------------------------------

    def _attach(
        self, name: str, *, is_sender: bool, source: Source | None = None, target: Target | None = None
    ) -> Link:
        assert self._session is not None
        link = self._session.attach(name, is_sender=is_sender, source=source or Source(), target=target or Target())
        self._expect(LinkAttached)
        return link

    def _expect(self, kind: type[S]) -> S:
        """Wait for a signal of this type. Deliveries that arrive before it are kept, other signals are dropped."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        kept: list[Signal] = []
        try:
            while True:
                while self._signals:
                    signal = self._signals.popleft()
                    self._check(signal)
                    if isinstance(signal, kind):
                        return signal
                    if isinstance(signal, DeliveriesReceived):
                        kept.append(signal)
                if not self._poll(deadline - time.monotonic()):
                    raise AmqpFailure(f"no response within {_ANSWER_SECONDS:g} s")
        finally:
            self._signals.extendleft(reversed(kept))

    def _check(self, signal: Signal) -> None:
        if isinstance(signal, ConnectionFailed):
            raise AmqpFailure(str(signal.violation))
        if isinstance(signal, ConnectionClosed | LinkDetached):
            raise AmqpFailure("the node closed the link" if signal.error is None else str(signal.error))

    def _poll(self, wait_seconds: float) -> bool:
        """Read from the socket once; returns False after the timeout."""
        self._flush()
        assert self._socket is not None
        self._socket.settimeout(max(wait_seconds, 0.001))
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            self._signals.extend(self._engine.advance(time.monotonic()))
            return False
        except OSError as error:
            raise AmqpFailure(str(error)) from error
        if not data:
            raise AmqpFailure("the node closed the connection")
        self._signals.extend(self._engine.receive_data(data, time.monotonic()))
        return True

    def _flush(self) -> None:
        assert self._socket is not None
        if data := self._engine.data_to_send():
            self._socket.settimeout(_ANSWER_SECONDS)
            try:
                self._socket.sendall(data)
            except OSError as error:
                raise AmqpFailure(str(error)) from error

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _body(payload: bytes | memoryview) -> bytes:
    body = read_message(payload).body
    return b"".join(section or b"" for section in body.sections) if isinstance(body, Data) else b""
