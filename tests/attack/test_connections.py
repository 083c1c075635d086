"""Clients that hold connections without using them: each is closed in time, and others get in meanwhile."""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator

import pytest

from attack.floods import amqp_opening, websocket_frame, websocket_opening
from attack.innocent import (
    ANSWER_TIMEOUT_S,
    Ask,
    InnocentClient,
    address_of,
    amqp_sessions,
    connect,
    kafka_api_versions,
)
from hubmere.testing import Node

_PORTS = ("amqp", "amqps", "kafka", "kafkas", "http", "https")
_LIMIT = 60


@pytest.fixture(scope="module")
def impatient() -> Iterator[Node]:
    """A node that gives a new connection one second."""
    with Node(hubs=["orders"], settings={"handshake_timeout_s": 1}) as node:
        yield node


@pytest.fixture
def small() -> Iterator[Node]:
    """A node for 60 connections."""
    with Node(hubs=["orders"], settings={"max_connections": _LIMIT}) as node:
        yield node


def _closed(connection: socket.socket) -> bool:
    """Wait until the node has closed a connection, whatever it says before."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def _tls(node: Node, place: str) -> ssl.SSLSocket:
    trusted = ssl.create_default_context(cafile=node.ca_file)
    return trusted.wrap_socket(connect(place), server_hostname="localhost")


@pytest.mark.parametrize("port", _PORTS)
def test_connection_that_says_nothing_is_closed(impatient: Node, port: str) -> None:
    """One deadline from accept on every port; on a TLS port it holds for the handshake."""
    with connect(getattr(impatient, port)) as silent:
        assert _closed(silent)


@pytest.mark.parametrize("port", ["amqps", "kafkas", "https"])
def test_connection_that_says_nothing_after_tls_is_closed(impatient: Node, port: str) -> None:
    """A finished handshake is no request yet."""
    with _tls(impatient, getattr(impatient, port)) as silent:
        assert _closed(silent)


@pytest.mark.parametrize(
    ("port", "start"),
    [
        ("http", b"\r\n"),
        ("amqp", b"AMQP"),
        ("amqp", amqp_opening()),
        ("kafka", b"\x00\x00"),
        ("kafka", b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"),
        ("amqps", b"\x16\x03\x01\x02\x00\x01"),
        ("https", b"\x16\x03\x01\x02\x00\x01"),
    ],
    ids=[
        "blank line",
        "half a header",
        "no token",
        "half a length",
        "no sign-in",
        "half a hello",
        "half a hello https",
    ],
)
def test_connection_that_stops_before_sign_in_is_closed(impatient: Node, port: str, start: bytes) -> None:
    """Whatever was said before, the time until sign-in or the first request is bounded."""
    with connect(getattr(impatient, port)) as half:
        half.sendall(start)
        assert _closed(half)


def test_websocket_that_says_nothing_is_closed(impatient: Node) -> None:
    """AMQP over WebSocket has the same deadline as AMQP."""
    with connect(impatient.http) as silent:
        silent.sendall(websocket_opening())
        assert _closed(silent)


@pytest.mark.parametrize(
    "frames",
    [
        b"\x82\xff" + b"\xff" * 8 + b"\x00" * 4,
        websocket_frame(0x2, b"x" * 1024, is_final=False),
        websocket_frame(0x0, b"x"),
        websocket_frame(0x3),
        websocket_frame(0x9, b"x" * 126),
        websocket_frame(0x1, b"\xff"),
        b"\x82\x01x",
    ],
    ids=["huge length", "fragment without end", "continuation", "opcode", "long ping", "no UTF-8", "unmasked"],
)
def test_broken_websocket_frames_end_that_connection(impatient: Node, frames: bytes) -> None:
    """Frames that break RFC 6455, and messages that never end, cost their own connection only."""
    logged = len(impatient.logs())
    with connect(impatient.http) as broken, InnocentClient(impatient) as innocent:
        broken.sendall(websocket_opening())
        while b"\r\n\r\n" not in broken.recv(1 << 16):
            pass
        broken.sendall(frames)

        assert _closed(broken)
        innocent.await_answers(5)

    assert "Traceback" not in impatient.logs()[logged:]


def test_websocket_message_of_fragments_without_end_is_refused(impatient: Node) -> None:
    """Fragments add up: what one message may have is bounded before sign-in."""
    with connect(impatient.http) as sending:
        sending.sendall(websocket_opening())
        while b"\r\n\r\n" not in sending.recv(1 << 16):
            pass
        sending.sendall(websocket_frame(0x2, b"x", is_final=False))
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                sending.sendall(websocket_frame(0x0, b"x" * 65_536, is_final=False))

        assert _closed(sending)


@contextlib.contextmanager
def _health_by_new_connections(node: Node) -> Iterator[Ask]:
    """Health as a probe asks for it: a connection each time."""

    def ask() -> None:
        assert _answer(node, "/health")[0] == 200

    yield ask


@pytest.mark.parametrize("port", _PORTS)
def test_silent_connections_of_one_port_do_not_lock_others_out(small: Node, port: str) -> None:
    """As many as the node holds at all come on one port: the other protocols, and health, still serve newcomers."""
    probes = {"kafka": kafka_api_versions, "amqp": amqp_sessions, "http": _health_by_new_connections}
    if port in ("kafka", "amqp"):
        del probes[port]
    with contextlib.ExitStack() as stack:
        for _ in range(_LIMIT):
            stack.enter_context(connect(getattr(small, port)))

        for probe in probes.values():
            with InnocentClient(small, probe) as innocent:
                innocent.await_answers(3)


def test_health_and_management_are_served_by_a_full_node(small: Node) -> None:
    """All connections of all ports are in use: operators still connect, and publishers get a retriable refusal."""
    with contextlib.ExitStack() as stack:
        for port in _PORTS:
            for _ in range(_LIMIT):
                with contextlib.suppress(OSError):
                    stack.enter_context(connect(getattr(small, port)))

        answers = {path: _answer(small, path) for path in ("/health", "/ready", "/metrics", "/orders/messages")}

    assert {path: status for path, (status, _) in answers.items()} == {
        "/health": 200,
        "/ready": 200,
        "/metrics": 200,
        "/orders/messages": 503,
    }
    assert all(connection == "close" for _, connection in answers.values())


def _answer(node: Node, path: str) -> tuple[int, str | None]:
    connection = http.client.HTTPConnection(*address_of(node.http), timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("POST" if path.endswith("messages") else "GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("connection")
    finally:
        connection.close()
