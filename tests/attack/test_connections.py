"""Clients that hold connections without using them: each is closed in time, and other clients can connect."""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator

import pytest

from attack.floods import amqp_opening, websocket_frame, websocket_opening
from attack.normal_client import (
    ANSWER_TIMEOUT_S,
    Ask,
    NormalClient,
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
    """A node with a handshake timeout of one second."""
    with Node(hubs=["orders"], settings={"handshake_timeout_s": 1}) as node:
        yield node


@pytest.fixture(scope="module")
def patient() -> Iterator[Node]:
    """A node whose clients have to do something before its handshake timeout, also on a busy machine."""
    with Node(hubs=["orders"], settings={"handshake_timeout_s": 15}) as node:
        yield node


@pytest.fixture
def small() -> Iterator[Node]:
    """A node with 60 connections."""
    with Node(hubs=["orders"], settings={"max_connections": _LIMIT}) as node:
        yield node


def _closed(connection: socket.socket) -> bool:
    """Wait until the node has closed a connection, and discard what it sends before."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def _await_upgrade(connection: socket.socket) -> None:
    """Read the answer to the request for a WebSocket."""
    received = b""
    while b"\r\n\r\n" not in received:
        data = connection.recv(1 << 16)
        assert data, received
        received += data


def _tls(node: Node, address: str) -> ssl.SSLSocket:
    trusted = ssl.create_default_context(cafile=node.ca_file)
    return trusted.wrap_socket(connect(address), server_hostname="localhost")


@pytest.mark.parametrize("port", _PORTS)
def test_silent_connection_is_closed(impatient: Node, port: str) -> None:
    """There is one deadline from accept on every port; on a TLS port it includes the handshake."""
    with connect(getattr(impatient, port)) as silent:
        assert _closed(silent)


@pytest.mark.parametrize("port", ["amqps", "kafkas", "https"])
def test_silent_connection_after_tls_is_closed(patient: Node, port: str) -> None:
    """A completed handshake is not a request."""
    with _tls(patient, getattr(patient, port)) as silent:
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
    """After any input, the time until sign-in or the first request is limited."""
    with connect(getattr(impatient, port)) as half:
        half.sendall(start)
        assert _closed(half)


def test_silent_websocket_is_closed(impatient: Node) -> None:
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
def test_invalid_websocket_frames_close_only_that_connection(patient: Node, frames: bytes) -> None:
    """This includes frames that violate RFC 6455, and messages that never end."""
    logged = len(patient.logs())
    with connect(patient.http) as broken, NormalClient(patient) as client:
        broken.sendall(websocket_opening())
        _await_upgrade(broken)
        broken.sendall(frames)

        assert _closed(broken)
        client.await_answers(5)

    assert "Traceback" not in patient.logs()[logged:]


def test_websocket_message_of_fragments_without_end_is_refused(patient: Node) -> None:
    """Fragments are added up: the size of one message is limited before sign-in."""
    with connect(patient.http) as sending:
        sending.sendall(websocket_opening())
        _await_upgrade(sending)
        sending.sendall(websocket_frame(0x2, b"x", is_final=False))
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                sending.sendall(websocket_frame(0x0, b"x" * 65_536, is_final=False))

        assert _closed(sending)


@contextlib.contextmanager
def _health_by_new_connections(node: Node) -> Iterator[Ask]:
    """Health requests as a probe sends them, each on a new connection."""

    def ask() -> None:
        assert _answer(node, "/health")[0] == 200

    yield ask


@pytest.mark.parametrize("port", _PORTS)
def test_silent_connections_on_one_port_do_not_exclude_others(small: Node, port: str) -> None:
    """One port gets as many connections as the node allows: other protocols and health still accept new clients."""
    probes = {"kafka": kafka_api_versions, "amqp": amqp_sessions, "http": _health_by_new_connections}
    if port in ("kafka", "amqp"):
        del probes[port]
    with contextlib.ExitStack() as stack:
        for _ in range(_LIMIT):
            stack.enter_context(connect(getattr(small, port)))

        for probe in probes.values():
            with NormalClient(small, probe) as client:
                client.await_answers(3)


def test_health_and_management_are_served_by_a_full_node(small: Node) -> None:
    """All connections of all ports are in use: operators can still connect, and publishers get a retriable refusal."""
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
