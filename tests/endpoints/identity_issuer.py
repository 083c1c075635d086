"""An OAuth issuer over HTTP for tests: serves discovery and keys, and counts the requests for keys."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from broker.issuers import jwks, rsa_key


class HttpIssuer:
    """An issuer on a free port for the length of a `with` block."""

    def __init__(self) -> None:
        self.key_requests = 0
        self.keys = jwks()
        self.is_failing = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/tenant"

    def rotate(self, name: str) -> None:
        """Publish one more key."""
        self.keys = jwks(rsa_key(), rsa_key(name))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.answer(self)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        if request.path.endswith("/keys"):
            self.key_requests += 1
            body = self.keys
        else:
            body = json.dumps({"issuer": self.url, "jwks_uri": self.url + "/keys"})
        request.send_response(500 if self.is_failing else 200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body.encode())
