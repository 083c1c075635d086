"""One keep-alive connection to a node: ask and be answered, with every failure as lines that a person can act on.

Knows neither ARM nor events. A request that may be repeated is, once, when a kept connection turns out to be gone; a
publication is not, since it may have arrived.
"""

import http.client
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from xml.sax.saxutils import unescape

from hubmere.cli.commands.target import Where
from hubmere.cli.exit_codes import CommandFailed, Exit

# Longer than a node holds back an answer on purpose: `wait` of the events' look-up and `timeout` of a publication.
TIMEOUT_S = 90.0
# A connection that was idle for longer may be closed at the other end; a new one costs less than the doubt.
_STALE_AFTER_S = 30.0
_REPEATABLE = frozenset({"GET", "PUT", "PATCH", "DELETE"})
_FIRST_ERROR = 400
_UNAUTHORIZED = 401
_BUSY = 503
_DETAIL = re.compile(r"<Detail>(.*?)</Detail>", re.DOTALL)
_SUB_CODE = re.compile(r"^SubCode=\d+\. ")
_TRACKING = re.compile(r"\s*TrackingId:(\S+?),.*$", re.DOTALL)


class Unreachable(CommandFailed):
    """There is no working connection to the node."""


class Refused(CommandFailed):
    """The node answered, and the answer is no."""

    def __init__(self, status: int, *lines: str, retry_after_s: float | None = None) -> None:
        super().__init__(Exit.FAILED, *lines)
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed a moment later: the node is busy, or about to restart."""
        return self.status == _BUSY


@dataclass(frozen=True, slots=True)
class Answer:
    """What the node said."""

    status: int
    body: bytes


class Http:
    """A client of one node. Thread rule: one owner."""

    def __init__(self, where: Where, timeout_s: float = TIMEOUT_S) -> None:
        self._where = where
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._used_at_s = 0.0

    def close(self) -> None:
        """Let the connection go; the next request makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer to a request; Refused for one of the error statuses, Unreachable without any."""
        all_headers = {"Authorization": self._where.credential.header(), **(headers or {})}
        if self._where.host is not None:
            all_headers["Host"] = self._where.host
        try:
            response, content = self._exchange(method, path, body, all_headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from error
        if response.status >= _FIRST_ERROR:
            raise _refused(response, content)
        return Answer(response.status, content)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if time.monotonic() - self._used_at_s > _STALE_AFTER_S:
            self.close()
        is_kept = self._connection is not None
        try:
            return self._exchange_once(method, path, body, headers)
        except (ConnectionError, http.client.RemoteDisconnected):
            self.close()
            if not is_kept or method not in _REPEATABLE:
                raise
            return self._exchange_once(method, path, body, headers)

    def _exchange_once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is None:
            self._connection = self._opened()
        self._connection.request(method, path, body, dict(headers))
        response = self._connection.getresponse()
        content = response.read()
        self._used_at_s = time.monotonic()
        return response, content

    def _opened(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._where.url)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self._timeout_s)
        import ssl

        context = ssl.create_default_context(cafile=self._where.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=self._timeout_s, context=context)

    def _unreachable(self, error: Exception) -> Unreachable:
        # By name: the command for a node without TLS need not load the library to know its errors.
        if type(error).__name__ == "SSLCertVerificationError":
            hint = (
                "name the authority's certificate by --ca-file; `hubmere cert` tells where it is on the node's machine"
            )
            return Unreachable(Exit.FAILED, f"the certificate of {self._where.url} is not trusted: {error}", hint)
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Unreachable(Exit.FAILED, f"{self._where.url} cannot be reached: {why}")


def _refused(response: http.client.HTTPResponse, content: bytes) -> Refused:
    text = _told(content) or f"{response.status} {response.reason}"
    tracking = _TRACKING.search(text)
    lines = [_SUB_CODE.sub("", _TRACKING.sub("", text))]
    if tracking is not None:
        lines.append(f"the node's log has it under {tracking.group(1)}")
    if response.status == _UNAUTHORIZED:
        lines.append("the credential does not open this; --token takes the administrator's token of the node")
    after = response.getheader("Retry-After") or ""
    return Refused(response.status, *lines, retry_after_s=float(after) if after.isdigit() else None)


def _told(content: bytes) -> str:
    """The sentence in an error's body: ARM's JSON, or the XML of the data plane."""
    text = content.decode("utf-8", "replace")
    if detail := _DETAIL.search(text):
        return unescape(detail.group(1))
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
