"""HTTP request heads that never end, are ambiguous or unreadable: each is refused with an HTTP status, and the node
continues.
"""

import socket

import pytest

from attack.floods import websocket_opening
from attack.normal_client import Flood, NormalClient, connect
from hubmere.testing import Node

_MIB = 1024 * 1024


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def _rest(connection: socket.socket) -> bytes:
    """Everything that the node sends until it closes."""
    data = b""
    try:
        while piece := connection.recv(1 << 16):
            data += piece
    except ConnectionResetError:
        pass
    return data


def _exchange(node: Node, request: bytes) -> bytes:
    with connect(node.http) as connection:
        connection.sendall(request)
        return _rest(connection)


@pytest.mark.parametrize(
    ("start", "piece", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"a", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", b"a", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", b"X: a\r\n", 431),
        (b"GET /", b"a", 414),
        (b"GET /?", b"a", 414),
        (b"POST /a/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a", 431),
        (b"POST /a/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a", 431),
        (b"POST /a/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a", 431),
        (b"POST /a/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: a\r\n", 431),
    ],
    ids=["value", "name", "headers", "path", "query", "extension", "trailer value", "trailer name", "trailers"],
)
def test_head_without_an_end_is_refused_while_it_arrives(node: Node, start: bytes, piece: bytes, status: int) -> None:
    """Incomplete data is counted: the node answers and closes long before it has megabytes, and serves others."""
    connection = connect(node.http)
    connection.sendall(start)

    with Flood(connection, piece * 4096, max_bytes=256 * _MIB) as flood, NormalClient(node) as client:
        client.await_answers(10)
        assert flood.await_closed()

    assert flood.sent_bytes < 32 * _MIB
    if flood.received:  # A client that keeps sending may get a reset instead of the answer.
        assert _status(flood.received) in (status, 401)


@pytest.mark.parametrize(("head", "status"), [(b"X: " + b"a" * 70_000, 431), (b"a" * 70_000, 431)])
def test_head_over_the_limit_is_answered(node: Node, head: bytes, status: int) -> None:
    """A client that stops sending gets the refusal, although its header was never complete."""
    with connect(node.http) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n" + head)
        answer = _rest(connection)

    assert _status(answer) == status
    assert b"connection: close" in answer.lower()


def test_target_over_the_limit_is_answered_414(node: Node) -> None:
    """The answer names the part that is too long, before the request line has ended."""
    assert _status(_exchange(node, b"GET /" + b"a" * 70_000)) == 414


@pytest.mark.parametrize(
    "request_head",
    [
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT a:1 HTTP/1.0\r\n\r\n",
    ],
    ids=["tunnel", "path", "upgrade", "1.0"],
)
def test_connect_is_refused_once(node: Node, request_head: bytes) -> None:
    """A broker is not a proxy: there is one short answer, and the head is not parsed again and again."""
    logged = len(node.logs())

    answer = _exchange(node, request_head)

    assert _status(answer) == 405
    assert b"\r\nallow: GET" in answer
    assert "Traceback" not in node.logs()[logged:]
    assert len(node.logs()) - logged < 2000


def test_many_upgrade_offers_in_one_read_are_answered_one_by_one(node: Node) -> None:
    """Each head is parsed again without its offer, in a loop: hundreds of them do not exhaust the stack."""
    offer = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    count = 1500

    answers = _exchange(node, offer * count + last)

    assert answers.count(b"HTTP/1.1 200 ") == count + 1


@pytest.mark.parametrize("method", ["TRACE", "OPTIONS", "PRI", "SOURCE", "M-SEARCH", "SUBSCRIBE", "QUERY", "LINK"])
def test_unknown_method_is_refused(node: Node, method: str) -> None:
    """For any method the parser accepts, the answer is a refusal that does not repeat the request."""
    answer = _exchange(node, f"{method} /secret HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: echo\r\n\r\n".encode())

    assert _status(answer) in (400, 404, 405)
    assert b"echo" not in answer


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nhost: b\r\n",
        b"GET /health HTTP/1.1\r\n",
        b"GET /health HTTP/1.1\r\nHost: \xff\r\n",
        b"GET /health HTTP/1.1\r\nHost: a b\r\n",
        b"GET /health HTTP/1.1\r\nHost: a/b\r\n",
        b"GET /health HTTP/1.1\r\nHost: u@a\r\n",
        b"GET http://u@a/health HTTP/1.1\r\nHost: a\r\n",
        b"GET ftp://a/health HTTP/1.1\r\nHost: a\r\n",
        b"GET a:1 HTTP/1.1\r\nHost: a\r\n",
        b"POST /a/messages HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
        b"POST /a/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
        b"POST /a/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    ],
    ids=repr,
)
def test_ambiguous_head_is_refused(node: Node, lines: bytes) -> None:
    """RFC 9112, 3.2 and 6: one Host, one length, a target that is a path or an HTTP URL."""
    answer = _exchange(node, lines + b"\r\n")

    assert _status(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("target", [b"http://localhost/health", b"HTTP://localhost:80/health?x=1", b"/health"])
def test_absolute_target_is_accepted(node: Node, target: bytes) -> None:
    """Clients of a proxy send the whole URL (RFC 9112, 3.2.2)."""
    answer = _exchange(node, b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target)

    assert _status(answer) == 200


@pytest.mark.parametrize(
    "opening",
    [
        websocket_opening(host=b"\xff"),
        websocket_opening(host=b"xn--a\x80"),
        websocket_opening().replace(b"AMQPWSB10", b"\xff\xfe"),
        websocket_opening().replace(b"Key: ", b"Key: \xff"),
        websocket_opening().replace(b"Version: 13", b"Version: \xff"),
        websocket_opening().replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Extensions: \xff\r\n\r\n"),
        websocket_opening() + b"\x89\x80\x00\x00\x00\x00",
    ],
    ids=["host", "idna", "protocol", "key", "version", "extensions", "early data"],
)
def test_node_stops_cleanly_after_an_unreadable_websocket_handshake(opening: bytes) -> None:
    """The handshake is refused without leftovers, and SIGTERM ends the node with exit code 0."""
    with Node() as node:
        answer = _exchange(node, opening)
        node.stop()

        assert _status(answer) == 400
        assert "Traceback" not in node.logs()


def test_other_headers_may_contain_any_bytes(node: Node) -> None:
    """Header values are bytes (RFC 9110, 5.5): invalid text in other headers has no effect."""
    request = b"GET /health HTTP/1.1\r\nHost: a\r\nX: \xff\xfe\r\nUser-Agent: \xff\r\nConnection: close\r\n\r\n"

    assert _status(_exchange(node, request)) == 200


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /orders/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
    ],
    ids=["openapi", "metrics", "publication"],
)
def test_client_that_disconnects_during_pipelined_requests_causes_no_traceback(node: Node, request_head: bytes) -> None:
    """That is no failure of the node."""
    logged = len(node.logs())
    for count in (3, 30) * 40:
        connection = connect(node.http)
        connection.sendall(request_head * count)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.close()
    with NormalClient(node) as client:
        client.await_answers(20)

    assert "Traceback" not in node.logs()[logged:]
