"""AMQP over WebSocket: the endpoint and its wire, with a simple session."""

import socket
import struct
from collections.abc import Callable, Iterator

import pytest
import websocket
from hypothesis import given
from hypothesis import strategies as st

from endpoints.http.harness import HttpNode
from hubmere.broker.broker import Broker
from hubmere.endpoints.http.server.websocket import FrameSplitter
from hubmere.endpoints.stream import Session, Wire


def _frame(payload: bytes) -> bytes:
    return struct.pack(">IBBH", 8 + len(payload), 2, 0, 0) + payload


class Echo:
    """A session that echoes its input and records its callbacks."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen
        self._wire: Wire
        self.flood = 0

    def on_connected(self, wire: Wire) -> None:
        self._wire = wire
        self._seen.append(f"connected {wire.peer} {wire.is_secure}")

    def on_data(self, data: bytes) -> None:
        if data == b"close":
            self._wire.write(_frame(b"bye"))
            self._wire.close()
        elif data == b"fail":
            raise RuntimeError("a bug of this session")
        elif data == b"later":
            self._wire.call_soon(lambda: self._wire.write(_frame(b"later")))
        elif data == b"flood":
            while self._wire.is_writable:
                self._wire.write(_frame(b"x" * 60_000))
                self.flood += 1
            self._seen.append("full")
        else:
            self._wire.write(data)

    def on_writable(self) -> None:
        self._seen.append("writable")

    def on_lost(self) -> None:
        self._seen.append("lost")

    def stop(self) -> None:
        self._wire.write(_frame(b"stopping"))
        self._wire.close()


@pytest.fixture
def seen() -> list[str]:
    """What happened to sessions."""
    return []


@pytest.fixture
def door(seen: list[str]) -> Iterator[HttpNode]:
    """A node whose AMQP sessions are echoes."""

    def sessions(broker: Broker) -> Callable[[], Session]:
        return lambda: Echo(seen)

    with HttpNode(amqp_session=sessions) as node:
        yield node


class Connect:
    """Opens WebSockets to a node, and closes them all in the end."""

    def __init__(self, node: HttpNode) -> None:
        self._node = node
        self._opened: list[websocket.WebSocket] = []

    def __call__(self, path: str = "/$servicebus/websocket", *protocols: str) -> websocket.WebSocket:
        url = f"ws://127.0.0.1:{self._node.port}{path}"
        client = websocket.create_connection(url, subprotocols=list(protocols or ("AMQPWSB10",)), timeout=120)
        self._opened.append(client)
        return client

    def close(self) -> None:
        for client in self._opened:
            client.shutdown()


@pytest.fixture
def connect(door: HttpNode) -> Iterator[Connect]:
    """Connections for the length of a test."""
    made = Connect(door)
    yield made
    made.close()


@pytest.mark.parametrize("path", ["/$servicebus/websocket", "/$servicebus/websocket/", "/%24ServiceBus/WebSocket"])
def test_the_path_is_that_of_the_service(connect: Connect, door: HttpNode, path: str) -> None:
    """A trailing slash makes no difference."""
    client = connect(path)

    client.send_binary(_frame(b"hello"))

    assert client.recv() == _frame(b"hello")
    client.close()


def test_the_upgrade_is_answered_as_strict_clients_parse_it(door: HttpNode) -> None:
    """The Java client expects exactly these lines."""
    request = (
        b"GET /$servicebus/websocket HTTP/1.1\r\nHost: ns.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
    )

    with socket.create_connection(("127.0.0.1", door.port), timeout=120) as client:
        client.sendall(request)
        lines = client.recv(4096).split(b"\r\n")

    assert lines[0] == b"HTTP/1.1 101 Switching Protocols"
    assert {
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Protocol: AMQPWSB10",
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    } <= set(lines)


def test_the_registered_subprotocol_is_accepted_too(connect: Connect, door: HttpNode) -> None:
    """`amqp` is the registered name."""
    client = connect("/$servicebus/websocket", "other", "amqp")

    assert client.getsubprotocol() == "amqp"
    client.close()


@pytest.mark.parametrize(("path", "protocol"), [("/$servicebus/websocket", "mqtt"), ("/elsewhere", "AMQPWSB10")])
def test_another_path_is_refused(connect: Connect, door: HttpNode, path: str, protocol: str) -> None:
    """It is refused before the upgrade."""
    with pytest.raises(websocket.WebSocketBadStatusException) as refusal:
        connect(path, protocol)

    assert refusal.value.status_code == 403


def test_incoming_boundaries_are_ignored_and_outgoing_messages_are_frames(connect: Connect, door: HttpNode) -> None:
    """Half a frame and one and a half frames arrive; two messages of one frame each are sent."""
    client = connect()
    stream = b"AMQP\x00\x01\x00\x00" + _frame(b"one") + _frame(b"two")

    for piece in (stream[:3], stream[3:15], stream[15:]):
        client.send_binary(piece)

    assert [client.recv() for _ in range(3)] == [stream[:8], _frame(b"one"), _frame(b"two")]
    client.close()


def test_a_ping_is_answered(connect: Connect, door: HttpNode) -> None:
    """The asynchronous Python client pings every ten seconds."""
    client = connect()

    client.ping("here?")
    opcode, frame = client.recv_data_frame(control_frame=True)

    assert (opcode, frame.data) == (websocket.ABNF.OPCODE_PONG, b"here?")
    client.close()


def test_text_is_refused(connect: Connect, door: HttpNode) -> None:
    """AMQP uses binary messages."""
    client = connect()

    client.send("text")
    opcode, data = client.recv_data(control_frame=True)

    assert (opcode, data[:2]) == (websocket.ABNF.OPCODE_CLOSE, struct.pack(">H", 1003))


def test_a_closing_session_sends_its_queue_first(connect: Connect, door: HttpNode, seen: list[str]) -> None:
    """The session learns exactly once that the connection is closed."""
    client = connect()

    client.send_binary(b"close")
    last = client.recv()
    opcode, data = client.recv_data(control_frame=True)
    client.close()
    door.await_requests_done()

    assert last == _frame(b"bye")
    assert (opcode, data[:2]) == (websocket.ABNF.OPCODE_CLOSE, struct.pack(">H", 1000))
    assert seen == ["connected 127.0.0.1 False", "lost"]


def test_a_failing_session_closes_its_own_connection_only(connect: Connect, door: HttpNode) -> None:
    """Another connection continues."""
    failing, healthy = connect(), connect()

    failing.send_binary(b"fail")
    opcode, data = failing.recv_data(control_frame=True)
    healthy.send_binary(b"later")

    assert (opcode, data[:2]) == (websocket.ABNF.OPCODE_CLOSE, struct.pack(">H", 1011))
    assert healthy.recv() == _frame(b"later")
    healthy.close()


def test_a_client_that_does_not_read_stops_the_session_until_it_does(
    connect: Connect, door: HttpNode, seen: list[str]
) -> None:
    """The session is called again once the queue has drained."""
    client = connect()
    client.send_binary(b"flood")

    received = client.recv()
    while "writable" not in seen:
        received = client.recv()

    assert received == _frame(b"x" * 60_000)
    assert seen.index("full") < seen.index("writable")
    client.close()


def test_websocket_connections_are_counted(connect: Connect, door: HttpNode) -> None:
    """They count like those of the AMQP ports."""
    client = connect()
    client.send_binary(_frame(b"x"))
    client.recv()
    during = door.broker.counters.active_connections
    client.close()
    door.await_connections(0)

    assert during == 1
    assert door.broker.counters.connections_opened == 1


def test_a_stopping_node_closes_sessions_in_order(connect: Connect, door: HttpNode) -> None:
    """AMQP is closed before the WebSocket."""
    client = connect()
    client.send_binary(_frame(b"x"))
    client.recv()

    door.run(door.stop_serving())

    assert client.recv() == _frame(b"stopping")


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.data())
def test_any_split_of_the_stream_gives_the_same_frames(payloads: list[bytes], data: st.DataObject) -> None:
    """Frames are split by their length, however the session writes."""
    frames = [b"AMQP\x03\x01\x00\x00", *map(_frame, payloads)]
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=6)))
    splitter = FrameSplitter()

    split: list[bytes] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        split += splitter.split(stream[begin:end])

    assert split == frames
