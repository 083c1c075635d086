"""The HTTP client of the project: one keep-alive connection to a node, for the commands, the capture job and the demo.

Knows neither ARM nor events, and gives every response as it is, errors included. A kept connection may have been closed
by the node in the meantime. Then a request that may be repeated is sent once more on a new connection; a publication is
not, because it may have arrived.
`endpoints/http/pairing/partners.py` has its own client, since endpoints may not import this package.
"""

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

# An idle connection older than this may be closed at the other end; opening a new one is cheap.
_STALE_AFTER_S = 30.0
_REPEATABLE = frozenset({"GET", "PUT", "PATCH", "DELETE"})


class HttpUnreachable(Exception):
    """There is no working connection. `is_untrusted`: the node's certificate was not accepted."""

    def __init__(self, url: str, why: str, *, is_untrusted: bool = False) -> None:
        super().__init__(url, why)
        self.url = url
        self.why = why
        self.is_untrusted = is_untrusted

    def __str__(self) -> str:
        if self.is_untrusted:
            return f"the certificate of {self.url} is not trusted: {self.why}"
        return f"{self.url} cannot be reached: {self.why}"


class UnusableCaFile(HttpUnreachable):
    """The file of the private CA cannot be read, or holds no certificate; no request was sent."""

    def __init__(self, url: str, path: str, why: str) -> None:
        super().__init__(url, why)
        self.path = path

    def __str__(self) -> str:
        return f"the CA file {self.path} cannot be used: {self.why}"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response; names of headers are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """A client of one node, by its URL (`http://host:port` or `https://host:port`). Thread rule: one owner.

    `ca_file` is the certificate of a private CA; without it the system's trust store counts.
    """

    def __init__(self, url: str, *, ca_file: str | None = None, timeout_s: float) -> None:
        self._url = url.rstrip("/")
        self._ca_file = ca_file
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._used_at_s = 0.0

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HttpResponse:
        """Send a request and read the whole response; raises HttpUnreachable if there is none."""
        try:
            return self._send(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # By name: a client of plain HTTP need not load the ssl module to know its errors.
            is_untrusted = type(error).__name__ == "SSLCertVerificationError"
            raise HttpUnreachable(self._url, _why(error), is_untrusted=is_untrusted) from error

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HttpResponse:
        if time.monotonic() - self._used_at_s > _STALE_AFTER_S:
            self.close()
        is_kept = self._connection is not None
        try:
            return self._send_once(method, path, body, headers)
        except (ConnectionError, http.client.RemoteDisconnected):
            self.close()
            if not is_kept or method not in _REPEATABLE:
                raise
            return self._send_once(method, path, body, headers)

    def _send_once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HttpResponse:
        if self._connection is None:
            self._connection = self._open()
        self._connection.request(method, path, body, dict(headers))
        response = self._connection.getresponse()
        content = response.read()
        self._used_at_s = time.monotonic()
        received = {name.lower(): value for name, value in response.getheaders()}
        return HttpResponse(response.status, response.reason, received, content)

    def _open(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=self._timeout_s)
        import ssl

        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            why = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror or str(error)
            raise UnusableCaFile(self._url, str(self._ca_file), why) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return http.client.HTTPSConnection(host, parts.port, timeout=self._timeout_s, context=context)


def _why(error: Exception) -> str:
    """Why there is no answer; a wrong scheme shows itself by how the handshake or the request fails."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
        return "the port does not use TLS; try http://"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer; a port with TLS needs https://"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
