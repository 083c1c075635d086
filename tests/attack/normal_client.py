"""A normal client that works during an attack, and the attacker that floods one connection.

A test asserts structural facts: every request of the normal client was answered, and a number of answers came during
the attack. `bench/attack.py` prints the latencies; no test asserts one.
"""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from hubmere.model.security.connection_string import ConnectionString
from hubmere.records.records import Record, encode_batch
from hubmere.testing import Node
from hubmere.wire.amqp import ClientCredentials, Connection, EngineOptions, Role
from hubmere.wire.amqp.signals import ConnectionOpened, SessionBegun, SessionEnded, Signal
from hubmere.wire.kafka.connection import ClientConnection
from hubmere.wire.kafka.messages.metadata import ApiVersionsRequest
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

# A request that takes longer than this counts as not answered: much longer than any goal, so that a busy machine does
# not fail a test.
ANSWER_TIMEOUT_S = 240.0
# No flood of a test lasts longer or sends more than this.
FLOOD_SECONDS = 60.0
FLOOD_BYTES = 1 << 30

Ask = Callable[[], None]
Probe = Callable[[Node], AbstractContextManager[Ask]]


def address_of(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or of a URL."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    assert parts.port is not None
    return "127.0.0.1", parts.port


def connect(address: str, *, receive_buffer_bytes: int | None = None) -> socket.socket:
    """A plain TCP connection to an address of the ready file."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    made.settimeout(ANSWER_TIMEOUT_S)
    made.connect(address_of(address))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


# --- requests of the normal client ----------------------------------------------------------------------------------


@contextlib.contextmanager
def http_health(node: Node) -> Iterator[Ask]:
    """`GET /health` on one keep-alive connection."""
    connection = http.client.HTTPConnection(*address_of(node.http), timeout=ANSWER_TIMEOUT_S)

    def ask() -> None:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status

    try:
        yield ask
    finally:
        connection.close()


class _Kafka:
    """A signed-in Kafka connection."""

    def __init__(self, node: Node) -> None:
        self.socket = connect(node.kafka)
        self._engine = ClientConnection(client_id="normal")
        self.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = b"\0$ConnectionString\0" + node.connection_string.encode()
        answer = self.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == 0, answer.error_message

    def call(self, body: Any, version: int) -> Any:
        self._engine.request(body, version)
        self.socket.sendall(b"".join(self._engine.data_to_send()))
        while True:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the node has closed the connection")
            answers = self._engine.receive_data(data)
            if answers:
                return answers[0].body


@contextlib.contextmanager
def kafka_api_versions(node: Node) -> Iterator[Ask]:
    """ApiVersions on a signed-in Kafka connection."""
    client = _Kafka(node)

    def ask() -> None:
        assert client.call(ApiVersionsRequest(), 0).error_code == 0

    with client.socket:
        yield ask


def kafka_produce(hub: str, partition: int = 0) -> Probe:
    """Produce one record with acks=all to a partition of a hub."""
    batch = bytes(encode_batch([Record(0, 1_700_000_000_000, None, b"normal")]))
    part = ProducePartition(index=partition, records=batch)
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topics=(ProduceTopic(name=hub, partitions=(part,)),),
    )

    @contextlib.contextmanager
    def probe(node: Node) -> Iterator[Ask]:
        client = _Kafka(node)

        def ask() -> None:
            (topic,) = client.call(request, 7).topics
            assert topic.partitions[0].error_code == 0

        with client.socket:
            yield ask

    return probe


class _Amqp:
    """An AMQP connection that signed in with SASL PLAIN."""

    def __init__(self, node: Node) -> None:
        self.socket = connect(node.amqp)
        parts = ConnectionString.parse(node.emulator_connection_string)
        credentials = ClientCredentials.plain(parts.key_name or "", parts.key or "")
        options = EngineOptions(container_id="normal", hostname="localhost", credentials=credentials)
        self.engine = Connection(Role.CLIENT, options, time.monotonic())
        self._signals: list[Signal] = []
        self.engine.open()
        self.expect(ConnectionOpened)

    def expect(self, kind: type[Signal]) -> None:
        while not any(isinstance(signal, kind) for signal in self._signals):
            if queued := self.engine.data_to_send():
                self.socket.sendall(queued)
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the node has closed the connection")
            self._signals += self.engine.receive_data(data, time.monotonic())
        self._signals.clear()


@contextlib.contextmanager
def amqp_sessions(node: Node) -> Iterator[Ask]:
    """Begin and end a session on one AMQP connection."""
    client = _Amqp(node)

    def ask() -> None:
        session = client.engine.begin()
        client.expect(SessionBegun)
        session.end()
        client.expect(SessionEnded)

    with client.socket:
        yield ask


PROBES: dict[str, Probe] = {"HTTP": http_health, "Kafka": kafka_api_versions, "AMQP": amqp_sessions}


class NormalClient:
    """Sends the same request repeatedly in a thread, for the length of a `with` block.

    The end of the block stops the thread and raises the error of a failed request, unless errors are only recorded.
    """

    def __init__(self, node: Node, probe: Probe = http_health, *, pause_s: float = 0.002, raises: bool = True) -> None:
        self._node = node
        self._probe = probe
        self._pause_s = pause_s
        self._raises = raises
        self._is_over = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="normal", daemon=True)
        self.latencies_s: list[float] = []
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(2 * ANSWER_TIMEOUT_S)
        assert not self._thread.is_alive(), "a request of the normal client was never answered"
        if self._raises and self.error is not None and kind is None:
            raise AssertionError("a request of the normal client failed") from self.error

    def await_answers(self, count: int, *, seconds: float = 2 * ANSWER_TIMEOUT_S) -> None:
        """Wait until a number of further requests are answered."""
        with self._changed:
            wanted = len(self.latencies_s) + count
            self._changed.wait_for(lambda: self.error is not None or len(self.latencies_s) >= wanted, seconds)
            if self.error is not None:
                raise AssertionError("a request of the normal client failed") from self.error
            assert len(self.latencies_s) >= wanted, f"{wanted - len(self.latencies_s)} of {count} answers are missing"

    def _run(self) -> None:
        try:
            with self._probe(self._node) as ask:
                while not self._is_over.is_set():
                    began = time.perf_counter()
                    ask()
                    self._note(time.perf_counter() - began)
                    self._is_over.wait(self._pause_s)
        except BaseException as error:
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _note(self, latency_s: float) -> None:
        with self._changed:
            self.latencies_s.append(latency_s)
            self._changed.notify_all()


def percentile_ms(latencies_s: Sequence[float], share: float) -> float:
    """The latency that this share of the requests stayed below, in milliseconds."""
    ordered = sorted(latencies_s)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000


# --- the attacker ----------------------------------------------------------------------------------------------------


class Flood:
    """Sends the same bytes repeatedly on one connection and discards the answers, for a `with` block.

    It is limited in bytes and time. `is_served` says whether the node still reads it.
    """

    def __init__(
        self,
        connection: socket.socket,
        chunk: bytes,
        *,
        reads: bool = True,
        max_bytes: int = FLOOD_BYTES,
        seconds: float = FLOOD_SECONDS,
    ) -> None:
        self._socket = connection
        self._chunk = chunk
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._is_over = threading.Event()
        self._is_closed = threading.Event()
        self._threads = [threading.Thread(target=self._send, name="flood", daemon=True)]
        if reads:
            self._threads.append(threading.Thread(target=self._read, name="flood-reader", daemon=True))
        self.sent_bytes = 0
        self.received_bytes = 0
        # The last bytes of the node, which contain its refusal.
        self.received = b""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(ANSWER_TIMEOUT_S)
        self._socket.close()

    @property
    def is_served(self) -> bool:
        """Whether the connection is open and the flood still running."""
        return not self._is_closed.is_set() and self._threads[0].is_alive()

    def await_closed(self, seconds: float = FLOOD_SECONDS) -> bool:
        """Wait until the node has closed the connection."""
        return self._is_closed.wait(seconds)

    def _send(self) -> None:
        deadline = time.monotonic() + self._seconds
        try:
            while not self._is_over.is_set() and time.monotonic() < deadline and self.sent_bytes < self._max_bytes:
                self._socket.sendall(self._chunk)
                self.sent_bytes += len(self._chunk)
        except TimeoutError:
            return
        except OSError:
            self._is_closed.set()

    def _read(self) -> None:
        try:
            while data := self._socket.recv(1 << 20):
                self.received_bytes += len(data)
                self.received = (self.received + data)[-4096:]
        except OSError:
            pass
        self._is_closed.set()
