"""The requests of the .NET libraries to Blob storage, written from their public documentation and source.

.NET itself is not needed: a conversation is a list of requests as Azure.Storage.Blobs 12 and the older
Microsoft.Azure.Storage.Blob 11 send them, signed with the account's key ("Authorize with Shared Key").
"""

import base64
import hashlib
import hmac
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit
from xml.etree import ElementTree

import httpx

_SIGNED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip
_PATIENCE_S = 240.0
# What the libraries read of a response beside status and error code.
_COMPARED = ("x-ms-lease-state", "x-ms-lease-status", "x-ms-lease-id", "x-ms-blob-type", "content-length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library, as it appears in requests."""

    user_agent: str
    version: str


CURRENT = Library(user_agent="azsdk-net-Storage.Blobs/12.24.0 (.NET 8.0.14; Ubuntu 22.04.5 LTS)", version="2025-05-05")
LEGACY = Library(user_agent="Azure-Storage/11.1.7 (.NET Core; Linux 6.8)", version="2019-07-07")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response, as the library reads it."""

    status: int
    code: str | None
    headers: Mapping[str, str]
    metadata: Mapping[str, str]
    body: bytes

    @property
    def etag(self) -> str:
        return self.headers["etag"]

    @property
    def comparable(self) -> dict[str, Any]:
        """What must be the same for every server."""
        found: dict[str, Any] = {name: self.headers.get(name) for name in _COMPARED}
        if self.status >= 400 or self.body.startswith(b"<?xml"):
            del found["content-length"]
        return {"status": self.status, "code": self.code, "metadata": dict(self.metadata), **found}


class DotnetClient:
    """Sends requests as a .NET library does."""

    def __init__(self, connection_string: str, library: Library) -> None:
        parts = dict(part.split("=", 1) for part in connection_string.rstrip(";").split(";"))
        self._account, self._key = parts["AccountName"], base64.b64decode(parts["AccountKey"])
        self._endpoint, self._library = parts["BlobEndpoint"].rstrip("/"), library
        self._http = httpx.Client(timeout=_PATIENCE_S)
        # Each conversation has a container of its own.
        self.box = f"box-{uuid.uuid4().hex}"
        self.answers: list[tuple[str, Answer]] = []

    def close(self) -> None:
        self._http.close()

    def send(self, name: str, method: str, path: str, query: str = "", body: bytes = b"", **headers: str) -> Answer:
        """Send a request; underscores in the names of headers are dashes."""
        request_id = str(uuid.uuid4())
        # Each segment of a blob's name is escaped, and the slashes stay.
        escaped = "/".join(quote(segment, safe="-_.~") for segment in path.split("/"))
        url = f"{self._endpoint}/{escaped}" + (f"?{query}" if query else "")
        sent = {
            "User-Agent": self._library.user_agent,
            "x-ms-version": self._library.version,
            "x-ms-client-request-id": request_id,
            "x-ms-return-client-request-id": "true",
            "x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "Accept": "application/xml",
            "traceparent": f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-00",
            **{key.replace("_", "-"): value for key, value in headers.items()},
        }
        if method == "PUT":
            sent["Content-Length"] = str(len(body))
        sent["Authorization"] = self._sign(method, url, sent)
        found = self._http.request(method, url, headers=sent, content=body or None)
        # Azurite leaves it out of refusals; a wrong one makes .NET throw.
        assert found.headers.get("x-ms-client-request-id", request_id) == request_id
        answer = _answer(found)
        self.answers.append((name, answer))
        return answer

    def _sign(self, method: str, url: str, headers: Mapping[str, str]) -> str:
        lower = {name.lower(): value.strip() for name, value in headers.items()}
        values = [lower.get(name, "") for name in _SIGNED]
        values[2] = "" if values[2] == "0" else values[2]
        special = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower) if name.startswith("x-ms-"))
        parts = urlsplit(url)
        query = "".join(f"\n{name}:{value}" for name, value in sorted(parse_qsl(parts.query)))
        text = "\n".join([method, *values, ""]) + special + f"/{self._account}{parts.path}{query}"
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        return f"SharedKey {self._account}:{base64.b64encode(digest).decode()}"


def _answer(found: httpx.Response) -> Answer:
    headers = {name.lower(): value for name, value in found.headers.items()}
    prefix = "x-ms-meta-"
    return Answer(
        status=found.status_code,
        code=headers.get("x-ms-error-code"),
        headers=headers,
        metadata={name.removeprefix(prefix): value for name, value in headers.items() if name.startswith(prefix)},
        body=found.content,
    )


def listed(answer: Answer) -> dict[str, dict[str, str]]:
    """Names, metadata and etag of the blobs in a list."""
    blobs = {}
    for blob in ElementTree.fromstring(answer.body.decode("utf-8-sig")).iter("Blob"):
        metadata = blob.find("Metadata")
        found = {} if metadata is None else {item.tag: item.text or "" for item in metadata}
        blobs[blob.findtext("Name", "")] = found
    return blobs
