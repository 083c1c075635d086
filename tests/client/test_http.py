"""The HTTP client: it keeps its connection, repeats what may be repeated, and reports errors with their reason."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from hubmere.client.http import HttpClient, HttpUnreachable


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[tuple[str, int]]] = set()
    requests: ClassVar[list[str]] = []
    # Close the connection after each response, without a header that says so.
    is_closing = False

    def _respond(self) -> None:
        self.connections.add(self.client_address)
        self.requests.append(self.command)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"nothing"
        self.send_response(418 if self.path == "/error" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Kind", "test")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.is_closing

    do_GET = do_POST = _respond  # noqa: N815  as the standard library calls them

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[str]:
    """A server on a free port, and its URL."""
    _Handler.connections, _Handler.requests, _Handler.is_closing = set(), [], False
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()
    thread.join()


def test_requests_share_one_connection(server: str) -> None:
    """A handshake per request would cost more than the request."""
    client = HttpClient(server, timeout_s=120)

    first = client.request("GET", "/", None, {})
    second = client.request("POST", "/error", b"body", {})
    client.close()

    assert (first.status, first.body, first.headers["x-kind"]) == (200, b"nothing", "test")
    assert (second.status, second.body) == (418, b"body")
    assert len(_Handler.connections) == 1


def test_get_request_is_repeated_on_a_new_connection(server: str) -> None:
    """The node may close an idle connection at any time."""
    _Handler.is_closing = True
    client = HttpClient(server, timeout_s=120)

    statuses = [client.request("GET", "/", None, {}).status for _ in range(3)]
    client.close()

    assert statuses == [200, 200, 200]
    assert len(_Handler.connections) == 3


def test_publication_is_not_repeated(server: str) -> None:
    """It may have arrived, and would be stored twice."""
    _Handler.is_closing = True
    client = HttpClient(server, timeout_s=120)
    client.request("GET", "/", None, {})

    with pytest.raises(HttpUnreachable):
        client.request("POST", "/", b"event", {})

    assert client.request("POST", "/", b"event", {}).status == 200
    assert _Handler.requests == ["GET", "POST"]
    client.close()


def test_unreachable_address_is_reported() -> None:
    """The text has the URL and the reason, for the output of a command."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}/", timeout_s=120)

    with pytest.raises(HttpUnreachable) as failure:
        client.request("GET", "/", None, {})

    assert str(failure.value).startswith(f"http://127.0.0.1:{port} cannot be reached: ")
    assert not failure.value.is_untrusted
