"""Requests of the commands to a node: adds the credential, and turns failures into lines that a person can act on."""

import json
import re
from collections.abc import Mapping
from xml.sax.saxutils import unescape

from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.node import NodeTarget
from hubmere.client.http import HttpClient, HttpResponse, HttpUnreachable, UnusableCaFile

# Longer than a node delays a response on purpose: `wait` when reading events, `timeout` of a publication.
TIMEOUT_S = 90.0
_FIRST_ERROR = 400
_UNAUTHORIZED = 401
NOT_FOUND = 404
_BUSY = 503
_DETAIL = re.compile(r"<Detail>(.*?)</Detail>", re.DOTALL)
_SUB_CODE = re.compile(r"^SubCode=\d+\. ")
_TRACKING = re.compile(r"\s*TrackingId:(\S+?),.*$", re.DOTALL)
_TRUST_HINT = "name the CA certificate by --ca-file; `hubmere cert` on the node's machine prints where it is"

_PORT_HINT = "a connection string does not name the HTTP port: if the node has another, name its address by --url"


class Unreachable(CommandFailed):
    """There is no working connection to the node."""


class Refused(CommandFailed):
    """The node answered with an error status."""

    def __init__(self, status: int, *lines: str, retry_after_s: float | None = None) -> None:
        super().__init__(Exit.NOT_FOUND if status == NOT_FOUND else Exit.FAILED, *lines)
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed a moment later: the node is busy, or about to restart."""
        return self.status == _BUSY


class NodeHttp:
    """A client of one node, with its credential. Thread rule: one owner."""

    def __init__(self, target: NodeTarget, timeout_s: float = TIMEOUT_S) -> None:
        self._target = target
        self._client = HttpClient(target.url, ca_file=target.ca_file, timeout_s=timeout_s)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._client.close()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """The response to a request. Raises Refused for an error status, Unreachable if there is no response."""
        all_headers = {"Authorization": self._target.credential.header(), **(headers or {})}
        if self._target.host is not None:
            all_headers["Host"] = self._target.host
        try:
            response = self._client.request(method, path, body, all_headers)
        except UnusableCaFile as error:
            raise CommandFailed(Exit.USAGE, str(error)) from error
        except HttpUnreachable as error:
            raise Unreachable(Exit.FAILED, str(error), *self._hints(error)) from error
        if response.status >= _FIRST_ERROR:
            raise _to_refused(response)
        return response

    def _hints(self, error: HttpUnreachable) -> tuple[str, ...]:
        if error.is_untrusted:
            return (_TRUST_HINT,)
        return (_PORT_HINT,) if self._target.is_port_assumed else ()


def _to_refused(response: HttpResponse) -> Refused:
    text = _error_text(response.body) or f"{response.status} {response.reason}"
    tracking = _TRACKING.search(text)
    lines = [_SUB_CODE.sub("", _TRACKING.sub("", text))]
    if tracking is not None:
        lines.append(f"the node's log has it under {tracking.group(1)}")
    if response.status == _UNAUTHORIZED:
        lines.append("the credential does not allow this; --token takes the administrator's token of the node")
    after = response.headers.get("retry-after", "")
    return Refused(response.status, *lines, retry_after_s=float(after) if after.isdigit() else None)


def _error_text(content: bytes) -> str:
    """The message in an error's body: ARM's JSON, or the XML of the data plane."""
    text = content.decode("utf-8", "replace")
    if detail := _DETAIL.search(text):
        return unescape(detail.group(1))
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
