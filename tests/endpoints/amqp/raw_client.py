"""A blocking AMQP client on our own engine, for tests that check single frames.

It waits for signals with a deadline and never sleeps. It does nothing by itself: a test attaches and sends explicitly.
"""

import contextlib
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from endpoints.amqp.amqp_node import AmqpNode
from hubmere.model.security.sas import make_token
from hubmere.wire.amqp import ClientCredentials, Connection, EngineOptions, Link, Role, Session
from hubmere.wire.amqp.codec.message import AmqpValue, Message, read_message, write_message
from hubmere.wire.amqp.codec.performatives import Attach, Properties, Rejected, Source, Target
from hubmere.wire.amqp.codec.types import Described, Symbol, Value
from hubmere.wire.amqp.signals import (
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    DeliveriesReceived,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    SessionBegun,
    Signal,
)

S = TypeVar("S")

WAIT_SECONDS = 240.0
SELECTOR = "apache.org:selector-filter:string"


class Gone(Exception):
    """The server closed the socket."""


class Refused(Exception):
    """The server detached a link."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


class RawClient:
    """One connection to a node; `stream` is used instead of a connection to its AMQP port."""

    def __init__(
        self,
        node: AmqpNode,
        *,
        credentials: ClientCredentials | None = None,
        is_plain_amqp: bool = False,
        hostname: str = "localhost",
        max_frame_size: int = 65536,
        idle_timeout_ms: int = 0,
        incoming_window: int = 5000,
        begins: bool = True,
        stream: socket.socket | None = None,
    ) -> None:
        options = EngineOptions(
            container_id="raw",
            hostname=hostname,
            max_frame_size=max_frame_size,
            idle_timeout_ms=idle_timeout_ms,
            incoming_window=incoming_window,
            credentials=None if is_plain_amqp else credentials or ClientCredentials(),
        )
        self._node = node
        self._begins = begins
        self.socket = stream or socket.create_connection(("127.0.0.1", node.port), WAIT_SECONDS)
        self.engine = Connection(Role.CLIENT, options, time.monotonic())
        self.transcript = bytearray()
        self._signals: deque[Signal] = deque()
        self._replies: Link | None = None
        self._requests: dict[str, Link] = {}
        self.session: Session | None = None

    def __enter__(self) -> Self:
        try:
            self.engine.open()
            self.flush()
            self.expect(ConnectionOpened)
            if self._begins:
                self.session = self.begin()
        except BaseException:
            self.socket.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    # --- bytes

    def flush(self) -> None:
        """Send the bytes that the engine has queued."""
        data = self.engine.data_to_send()
        if data:
            self.socket.sendall(data)

    def poll(self, wait_seconds: float = WAIT_SECONDS) -> bool:
        """Read once; False when nothing came in time."""
        self.flush()
        self.socket.settimeout(max(wait_seconds, 0.001))
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            return False
        if not data:
            raise Gone
        self.transcript += data
        self._signals.extend(self.engine.receive_data(data, time.monotonic()))
        self.flush()
        return True

    def until_gone(self) -> None:
        """Read until the server closes the socket."""
        with contextlib.suppress(Gone):
            while self.poll():
                pass

    def expect(self, kind: type[S], where: Callable[[S], bool] = lambda _: True, *, seconds: float = WAIT_SECONDS) -> S:
        """The first signal of a kind; other signals are kept for later."""
        deadline = time.monotonic() + seconds
        seen = 0
        while True:
            while seen < len(self._signals):
                signal = self._signals[seen]
                if isinstance(signal, kind) and where(signal):
                    del self._signals[seen]
                    return signal
                seen += 1
            left = deadline - time.monotonic()
            if left <= 0 or not self.poll(left):
                raise AssertionError(f"no {kind.__name__} came; {list(self._signals)}")

    def pending(self, kind: type[S]) -> list[S]:
        """Take all received signals of a kind."""
        found = [signal for signal in self._signals if isinstance(signal, kind)]
        self._signals = deque(signal for signal in self._signals if not isinstance(signal, kind))
        return cast("list[S]", found)

    # --- sessions and links

    def begin(self) -> Session:
        session = self.engine.begin()
        self.expect(SessionBegun, lambda signal: signal.session is session)
        return session

    def attach(self, name: str | None = None, *, session: Session | None = None, **terms: Any) -> tuple[Link, Attach]:
        """Attach a link and wait for the answer; raises `Refused` for a refusal."""
        link = (session or self._session).attach(name or uuid.uuid4().hex, **terms)
        answer = self.expect(LinkAttached, lambda signal: signal.link is link).attach
        if answer.source is None or answer.target is None:
            raise self.detached(link)
        return link, answer

    def detached(self, link: Link) -> Refused:
        """Wait until the server detaches a link; returns the reason."""
        error = self.expect(LinkDetached, lambda signal: signal.link is link).error
        assert error is not None
        return Refused(error.condition, error.description or "")

    def closed(self) -> Refused:
        """Wait until the server closes the connection; returns the reason."""
        signal = self.expect(ConnectionClosed)
        assert signal.error is not None
        return Refused(signal.error.condition, signal.error.description or "")

    def failed(self) -> ConnectionFailed:
        return self.expect(ConnectionFailed)

    @property
    def _session(self) -> Session:
        assert self.session is not None
        return self.session

    def sender(self, address: Value, **terms: Any) -> Link:
        return self.attach(is_sender=True, target=Target(address=address), **terms)[0]

    def reader(
        self, address: str = "orders/ConsumerGroups/$Default/Partitions/0", selector: str | None = None, **terms: Any
    ) -> Link:
        filters = {} if selector is None else {Symbol(SELECTOR): Described(Symbol(SELECTOR), selector)}
        source = Source(address=address, filter=cast("dict[Value, Value]", filters) or None)
        return self.attach(is_sender=False, source=source, **terms)[0]

    # --- tokens

    def authorize(self, path: str = "", *, rule: str = "RootManageSharedAccessKey", seconds: float = 3600) -> None:
        """Put a valid token for a path of the namespace."""
        status, description = self.put_token(path, self.token(path, rule=rule, seconds=seconds))
        assert status == 202, description

    def token(self, path: str = "", *, rule: str = "RootManageSharedAccessKey", seconds: float = 3600) -> str:
        key = self._node.rule(rule).primary_key
        return make_token(f"sb://localhost/{path}", rule, key, expires_at_s=int(time.time() + seconds))

    def put_token(
        self, path: str, token: Value, *, kind: str = "servicebus.windows.net:sastoken", message_id: Value = "1"
    ) -> tuple[int, str]:
        reply = self.ask(
            "$cbs",
            {"operation": "put-token", "type": kind, "name": f"sb://localhost/{path}"},
            body=AmqpValue(token),
            message_id=message_id,
        )
        properties = reply.application_properties or {}
        return int(properties["status-code"]), str(properties["status-description"])

    def ask(
        self,
        node: str,
        properties: dict[Value, Value],
        *,
        body: AmqpValue | None = None,
        message_id: Value = "1",
        reply_to: str | None = None,
    ) -> Message:
        """Send a request to a service node and return its reply; the links are created once."""
        if node not in self._requests:
            receiver, _ = self.attach(is_sender=False, source=Source(address=node), target=Target(address=f"to-{node}"))
            receiver.grant(100)
            self._requests[node] = self.sender(node)
        sender = self._requests[node]
        self.await_window(sender)
        request = Message(
            properties=Properties(message_id=message_id, reply_to=reply_to or f"to-{node}"),
            application_properties=properties,
            body=body or AmqpValue(None),
        )
        sender.send(write_message(request))
        self.flush()
        return read_message(self.expect(DeliveriesReceived).payloads[0])

    # --- events

    def send(self, link: Link, *payloads: bytes, message_format: int = 0, settled: bool = False) -> list[int]:
        """Send without waiting for outcomes; returns the delivery-ids."""
        ids = []
        for payload in payloads:
            self.await_window(link)
            ids.append(link.send(payload, message_format=message_format, settled=settled))
        self.flush()
        return ids

    def await_window(self, link: Link) -> None:
        """Wait until a link may send."""
        while not link.transfer_window():
            assert link.is_attached
            assert self.poll(), "the server gives no credit"

    def outcomes(self, ids: list[int]) -> dict[int, Any]:
        """The outcome of every delivery, when the server has settled all of them."""
        states: dict[int, Any] = {}
        wanted = frozenset(ids)
        while len(states) < len(ids):
            word = self.expect(DispositionReceived)
            assert word.by_receiver
            assert word.settled
            states |= {number: word.state for number in range(word.first, word.last + 1) if number in wanted}
        return states

    def publish(self, link: Link, *payloads: bytes, message_format: int = 0) -> None:
        """Send, and check that everything is accepted."""
        for state in self.outcomes(self.send(link, *payloads, message_format=message_format)).values():
            assert not isinstance(state, Rejected), state

    def receive(self, link: Link, count: int, *, credit: int | None = None) -> list[Message]:
        """Grant credit and receive a number of events, decoded."""
        if credit is None or credit > 0:
            link.grant(count if credit is None else credit)
        payloads: list[memoryview | bytes] = []
        while len(payloads) < count:
            payloads += self.expect(DeliveriesReceived, lambda signal: signal.link is link).payloads
        return [read_message(payload) for payload in payloads]
