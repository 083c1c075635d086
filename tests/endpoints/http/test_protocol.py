"""Hostile and broken clients on an HTTP connection."""

import contextlib
import logging
import socket
import time
from collections.abc import Iterator

import pytest

from endpoints.http.harness import ADMIN_TOKEN, HttpNode
from hubmere.endpoints.http.server import bounded
from log_records import lines_of
from node_clock import NodeClock


class Raw:
    """A TCP connection for arbitrary bytes."""

    def __init__(self, node: HttpNode) -> None:
        self._socket = socket.create_connection(("127.0.0.1", node.port), timeout=120)
        self._early = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> bytes:
        """One response: head and as many bytes as it declares."""
        data, self._early = self._early, b""
        while b"\r\n\r\n" not in data:
            data += self._received()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        while len(body) < length:
            body += self._received()
        self._early = body[length:]
        return head + b"\r\n\r\n" + body[:length]

    def rest(self) -> bytes:
        """Everything until the peer closes."""
        data = b""
        while piece := self._socket.recv(65536):
            data += piece
        return data

    def close(self) -> None:
        self._socket.close()

    def _received(self) -> bytes:
        piece = self._socket.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        return piece


@pytest.fixture
def raw(node: HttpNode) -> Iterator[Raw]:
    """A connection to the node."""
    connection = Raw(node)
    yield connection
    connection.close()


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def _post(node: HttpNode, *headers: str, path: str = "/orders/messages") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: {node.sas()}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 4"),
        ("Content-Length: 4", "Content-Length: 5"),
        ("Content-Length: +4",),
        ("Content-Length: 0x4",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding: xchunked",),
        ("X: a\nTransfer-Encoding: chunked",),
        ("X: a\rY: b",),
        ("X: a\x00b",),
        (" folded: line",),
    ],
    ids=repr,
)
def test_a_request_that_two_parsers_may_read_differently_is_refused(
    node: HttpNode, raw: Raw, headers: tuple[str, ...]
) -> None:
    """Request smuggling: there is one 400, and the rest of the input is never parsed."""
    raw.send(_post(node, *headers) + b"4\r\nabcd\r\n0\r\n\r\n" + _post(node, "Content-Length: 1") + b"x")

    answers = raw.rest()
    assert _status(answers) == 400
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b"<Error><Code>400</Code>" in answers
    assert node.stored("orders") == []


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"AMQP\x00\x01\x00\x00", b"GET\r\n\r\n", b"\x00" * 100, b"GET / HTTP/9\r\n\r\n"],
)
def test_input_that_is_not_http_is_refused(raw: Raw, garbage: bytes) -> None:
    """Examples are TLS on the plain port, AMQP on the HTTP port, and noise."""
    raw.send(garbage + b"\r\n\r\n")

    assert _status(raw.rest()) == 400


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"a" * 70_000,
        b"\r\n".join(b"X-%d: 1" % index for index in range(300)),
        b"a" * 70_000 + b": 1",
    ],
    ids=["long value", "many", "long name"],
)
def test_an_endless_head_is_refused(raw: Raw, head: bytes) -> None:
    """The limit bounds the memory of one header and of many."""
    raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")

    assert _status(raw.rest()) == 431


def test_a_long_request_line_is_refused(raw: Raw) -> None:
    """414 says which part of the head is too long."""
    raw.send(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert _status(raw.rest()) == 414


def test_the_host_of_an_absolute_target_wins_over_the_host_field(node: HttpNode, raw: Raw) -> None:
    """RFC 9112, 3.2.2: a request goes to the namespace that its target names, whatever Host says."""
    node.add_namespace("second")
    node.add_hub("orders", namespace="second")
    token = node.sas(host="second.localhost", key=node.key(namespace="second"))
    lines = ["POST http://second.localhost/orders/messages HTTP/1.1", "Host: localhost", f"Authorization: {token}"]

    raw.send(("\r\n".join(lines) + "\r\nContent-Length: 1\r\n\r\nx").encode())

    assert _status(raw.answer()) == 201
    assert len(node.stored("orders", namespace="second")) == 1
    assert node.stored("orders") == []


def test_a_trailer_is_not_a_header(node: HttpNode, raw: Raw) -> None:
    """RFC 9110, 6.5.1: a token after the body does not authorize the request."""
    raw.send(
        b"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        + f"1\r\nx\r\n0\r\nAuthorization: {node.sas()}\r\n\r\n".encode()
    )

    assert _status(raw.answer()) == 401
    assert node.stored("orders") == []


def test_a_head_within_the_limit_is_read(node: HttpNode, raw: Raw) -> None:
    """Large properties are allowed; the limit is on all of them together."""
    raw.send(_post(node, "Large: " + "a" * 30_000, "Content-Length: 1") + b"x")

    assert _status(raw.answer()) == 201


@pytest.mark.parametrize(
    "start",
    [
        b"POST /orders/messages HTTP/1.1\r\nHost: loc",
        b"POST /orders/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab",
    ],
    ids=["head", "body"],
)
def test_an_incomplete_request_times_out(
    node: HttpNode, raw: Raw, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for slow heads and slow bodies; nothing is stored."""
    monkeypatch.setattr(bounded, "REQUEST_SECONDS", 0.2)

    raw.send(start if b"\r\n\r\n" not in start else _post(node, "Content-Length: 9") + b"ab")

    assert _status(raw.rest()) == 408
    assert node.stored("orders") == []


def test_the_timeout_starts_with_each_request() -> None:
    """It does not start with the connection."""
    clock = NodeClock()
    with HttpNode(clock=clock) as node:
        node.add_hub("orders")
        raw = Raw(node)
        for _ in range(4):
            raw.send(_post(node, "Content-Length: 2") + b"a")
            node.await_requests_under_way(1)
            clock.advance(0.4 * bounded.REQUEST_SECONDS)
            raw.send(b"b")
            assert _status(raw.answer()) == 201
        raw.close()


def test_a_refused_body_is_dropped_only_up_to_a_limit(
    node: HttpNode, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that keeps sending after its 413 is disconnected."""
    monkeypatch.setattr(bounded, "MAX_DROPPED_BYTES", 1_000_000)
    raw.send(_post(node, "Content-Length: 900000000"))
    first = raw.answer()

    with pytest.raises(ConnectionError):
        raw.send(b"x" * 64_000_000)

    assert _status(first) == 413


def test_pipelined_requests_are_answered_in_order(node: HttpNode, raw: Raw) -> None:
    """Two publications arrive in one packet, before a request that is refused."""
    good = _post(node, "Content-Length: 1")

    raw.send(good + b"1" + good + b"2" + _post(node, "Content-Length: 1", path="/none/messages") + b"3")

    assert [_status(raw.answer()) for _ in range(3)] == [201, 201, 404]
    assert sorted(event.body or b"" for event in node.stored("orders")) == [b"1", b"2"]


def test_100_continue_is_sent_only_if_the_body_is_needed(node: HttpNode, raw: Raw) -> None:
    """`Expect: 100-continue` saves a refused client its upload."""
    raw.send(_post(node, "Content-Length: 2", "Expect: 100-continue"))
    interim = raw.answer()
    raw.send(b"ab")
    final = raw.answer()
    raw.send(_post(node, "Content-Length: 99999999", "Expect: 100-continue"))
    refused = raw.answer()

    assert [_status(answer) for answer in (interim, final, refused)] == [100, 201, 413]


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_an_offer_of_another_protocol_is_ignored(node: HttpNode, raw: Raw, pieces: int) -> None:
    """Java's client offers HTTP/2 with its first request."""
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ", "Content-Length: 5")
    request = _post(node, *offer) + b"hello"
    size = -(-len(request) // pieces)

    for begin in range(0, len(request), size):
        raw.send(request[begin : begin + size])
        time.sleep(0.01)
    first = raw.answer()
    raw.send(_post(node, "Content-Length: 4") + b"next")
    second = raw.answer()

    assert (_status(first), _status(second)) == (201, 201)
    assert sorted(event.body or b"" for event in node.stored("orders")) == [b"hello", b"next"]
    assert all(not event.properties for event in node.stored("orders"))


def test_an_offer_in_a_chunked_request_is_ignored(node: HttpNode, raw: Raw) -> None:
    """Its `Connection: close` is still obeyed."""
    head = _post(node, "Connection: close, Upgrade", "Upgrade: other/1", "Transfer-Encoding: chunked")

    raw.send(head + b"5\r\nhello\r\n0\r\n\r\n")

    answer = raw.rest()
    assert _status(answer) == 201
    assert b"connection: close" in answer
    assert [event.body for event in node.stored("orders")] == [b"hello"]


def test_an_incomplete_body_stores_nothing(node: HttpNode, raw: Raw) -> None:
    """The client disconnects before the end of its body."""
    raw.send(_post(node, "Content-Length: 10") + b"abc")
    raw.close()

    with node.client(Authorization=node.sas()) as client:
        assert client.post("/orders/messages", content=b"whole").status_code == 201
    assert [event.body for event in node.stored("orders")] == [b"whole"]


@pytest.mark.parametrize(
    "path",
    ["/orders/../orders/messages", "/%2e%2e/messages", "/orders%2f..%2f/messages", "/..%5c/messages", "//messages",
     "/orders%00/messages", "/orders;x=y/messages", "/messages", "http://evil.example/orders2/messages"],
)  # fmt: skip
def test_path_traversal_reaches_no_hub(node: HttpNode, raw: Raw, path: str) -> None:
    """Names are looked up, and never used as file names."""
    raw.send(_post(node, "Content-Length: 1", path=path) + b"x")

    assert _status(raw.answer()) in (400, 401, 404)
    assert node.stored("orders") == []


def test_secrets_are_neither_logged_nor_answered(node: HttpNode) -> None:
    """No log line and no refusal contains a key, a token or a body."""
    key, token = node.key(), node.sas("other")
    answers = []

    with lines_of("hubmere", "uvicorn", "asyncio", level=logging.DEBUG) as lines:
        with node.client() as client:
            for credential in (token, f"Bearer {ADMIN_TOKEN}x", "SharedAccessSignature sr=x&sig=hush&se=1&skn=y"):
                headers = {"Authorization": credential}
                answers.append(client.post(f"/orders/messages?token={key}", content=b"secret-body", headers=headers))
                answers.append(client.get("/orders", headers=headers))
        with node.manager() as manager:
            answers.append(manager.post("/none/messages", content=b"secret-body"))

    seen = "\n".join([*lines, *(answer.text for answer in answers)])
    secrets = (key, token.partition("sig=")[2].partition("&")[0], ADMIN_TOKEN, "hush", "secret-body")
    assert [secret for secret in secrets if secret in seen] == []


def test_a_stopping_node_finishes_requests_and_closes_the_rest(node: HttpNode) -> None:
    """Idle connections are closed at once."""
    connection = Raw(node)
    connection.send(_post(node, "Content-Length: 1") + b"x")
    assert _status(connection.answer()) == 201

    node.run(node.stop_serving())

    assert connection.rest() == b""
    connection.close()


def test_a_client_that_does_not_read_its_answers_is_closed(
    node: HttpNode, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests wait while the socket buffers are full, and its connection times out."""
    monkeypatch.setattr(bounded, "UNREAD_SECONDS", 0.5)
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"

    with contextlib.suppress(ConnectionError):
        for _ in range(100_000):
            raw.send(request * 100)

    node.await_connections(0)
