"""Refusal to status: one table for the whole HTTP surface, and the two bodies in which a refusal is told.

The data plane and the Atom plane answer in XML, the ARM plane and our own JSON extensions in ARM's error envelope
(reference: service 3, 4.2). Every refusal carries a tracking id that is also in the log. A text never holds a secret:
it is the refusal's own.
"""

import json
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from hubmere.broker import CoordinationRefused
from hubmere.model import errors as refusals
from hubmere.model.errors import Refusal, ServerBusy

XML_TYPE = "application/xml; charset=utf-8"
JSON_TYPE = "application/json; charset=utf-8"
# SDKs pause four seconds on a busy node whatever they are told, so that is what everybody is told.
RETRY_AFTER_SECONDS = 4
# The last part of a tracking id names the gateway in the service; a node is its own and only one.
_GATEWAY = "G0"

# What XML 1.0 cannot hold even when it is escaped; a path or a name may bring it in.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# --- refusals that only HTTP knows -----------------------------------------------------------------------------------


class MalformedRequest(Refusal):
    """A request that cannot be read: its path, a header, a parameter or its body."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The request is malformed: {self.why}."


class RequestTooLarge(Refusal):
    """More bytes in a request than are read at all."""

    def __init__(self, what: str, limit_bytes: int) -> None:
        super().__init__(what, limit_bytes)
        self.what = what
        self.limit_bytes = limit_bytes

    def text(self) -> str:
        return f"The {self.what} is larger than the {self.limit_bytes} bytes that are read."


class HeadTooLarge(RequestTooLarge):
    """Request line and headers together are too large."""


class TargetTooLong(RequestTooLarge):
    """The request target alone is too long."""


class RequestTooSlow(Refusal):
    """The request was not there in time."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s

    def text(self) -> str:
        return f"The request did not arrive within {self.limit_s:g} seconds."


class NodeFull(Refusal):
    """All connections are in use; what is left is kept for health checks and management."""

    def text(self) -> str:
        return "The node holds as many connections as it may; only health checks and management are served."


class OutOfMemory(Refusal):
    """The node's memory budget is used up, and this request holds much of it or came too late."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"{self.why} Try again later."


class NotDurableInTime(Refusal):
    """The publication was not on disk within the time that the client gave; it may be later."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s

    def text(self) -> str:
        return f"The operation did not complete within {self.limit_s:g} seconds; it may still take effect."


class MethodNotAllowed(Refusal):
    """The resource exists but not for this method."""

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(method, allowed)
        self.method = method
        self.allowed = allowed

    def text(self) -> str:
        return f"The method {self.method} is not allowed here; {self.allowed} is."


class PathNotFound(Refusal):
    """No resource has a path like this."""

    def text(self) -> str:
        return "There is no resource at this path."


class PartnerUnreachable(Refusal):
    """The node of a partner gave no answer."""

    def __init__(self, partner: str, why: str) -> None:
        super().__init__(partner, why)
        self.partner = partner
        self.why = why

    def text(self) -> str:
        return f"The node of the partner namespace '{self.partner}' cannot be reached: {self.why}."


class InternalFailure(Refusal):
    """Our own bug, told without its details."""

    def text(self) -> str:
        return "The server was unable to process the request; please retry the operation."


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """How one family of refusals is told: `arm_status` where ARM differs, `code` is ARM's word."""

    status: int
    code: str
    arm_status: int | None = None
    sub_code: int | None = None
    is_retriable: bool = False


_BAD_REQUEST = ErrorRow(status=400, code="BadRequest")
_NOT_FOUND = ErrorRow(status=404, code="ResourceNotFound")
_CONFLICT = ErrorRow(status=409, code="Conflict")
_BUSY = ErrorRow(status=503, code="ServerBusy", is_retriable=True)
_TOO_LARGE = ErrorRow(status=413, code="RequestEntityTooLarge")
_QUOTA = ErrorRow(status=403, code="Conflict", arm_status=409, sub_code=40300)

# Service 2.4, 3, 4.1, 4.2 and the decisions of 13; the nearest class in a refusal's family counts.
ROWS: Mapping[type[Refusal], ErrorRow] = {
    refusals.Unauthorized: ErrorRow(status=401, code="Unauthorized"),
    refusals.NotFound: _NOT_FOUND,
    refusals.PartitionNotFound: _BAD_REQUEST,
    refusals.AlreadyExists: _CONFLICT,
    refusals.Conflict: _CONFLICT,
    refusals.FailedOver: ErrorRow(status=410, code="Gone"),
    # RFC 9110, 15.5.20: this server does not answer for the name that the client used.
    refusals.AliasElsewhere: ErrorRow(status=421, code="MisdirectedRequest"),
    refusals.InvalidArgument: _BAD_REQUEST,
    refusals.PartitionCountFixed: ErrorRow(status=400, code="BadRequest", sub_code=40000),
    refusals.PartitionKeyMismatch: _BAD_REQUEST,
    refusals.PositionBeyondEnd: _BAD_REQUEST,
    refusals.NotSupported: _BAD_REQUEST,
    refusals.NotInTier: _BAD_REQUEST,
    refusals.EntityUpdated: ErrorRow(status=409, code="Conflict"),
    refusals.EntityDisabled: ErrorRow(status=403, code="Forbidden"),
    refusals.LimitReached: _QUOTA,
    refusals.ReceiverLimit: _QUOTA,
    refusals.PublicationTooLarge: _TOO_LARGE,
    refusals.ServerBusy: _BUSY,
    refusals.ReaderRefused: _CONFLICT,
    refusals.SequenceOutOfRange: _BAD_REQUEST,
    refusals.LeaderEpochRefused: _BAD_REQUEST,
    refusals.ProducerRefused: _CONFLICT,
    CoordinationRefused: _CONFLICT,
    refusals.StorageRefusal: _BUSY,
    refusals.CorruptBatch: ErrorRow(status=500, code="InternalServerError"),
    refusals.InvalidBatch: _BAD_REQUEST,
    refusals.UndecodableMessage: _BAD_REQUEST,
    MalformedRequest: _BAD_REQUEST,
    RequestTooLarge: _TOO_LARGE,
    HeadTooLarge: ErrorRow(status=431, code="RequestHeaderFieldsTooLarge"),
    TargetTooLong: ErrorRow(status=414, code="UriTooLong"),
    RequestTooSlow: ErrorRow(status=408, code="RequestTimeout"),
    NodeFull: _BUSY,
    OutOfMemory: _BUSY,
    NotDurableInTime: ErrorRow(status=504, code="GatewayTimeout", is_retriable=True),
    MethodNotAllowed: ErrorRow(status=405, code="MethodNotAllowed"),
    PathNotFound: _NOT_FOUND,
    PartnerUnreachable: _BUSY,
    InternalFailure: ErrorRow(status=500, code="InternalServerError"),
}


def row_of(kind: type[Refusal]) -> ErrorRow:
    """The row of a refusal: its own, or that of the nearest class it descends from."""
    for base in kind.__mro__:
        row = ROWS.get(base)
        if row is not None:
            return row
    raise KeyError(kind)


# --- the answers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """By what a refused request is found again in the log."""

    id: str
    system: str
    at_ms: int

    @classmethod
    def begin(cls, system: str, now_ms: int) -> "Tracking":
        """A fresh id for a refusal on a resource such as `namespace:hub`."""
        return cls(id=f"{uuid.uuid4()}_{_GATEWAY}", system=system, at_ms=now_ms)

    def __str__(self) -> str:
        """How the service ends its texts."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"TrackingId:{self.id}, SystemTracker:{self.system}, Timestamp:{at}"


def xml_text(text: str) -> str:
    """Text as it may stand between two XML tags."""
    return escape(_NOT_XML.sub("\ufffd", text))


def full_text(refusal: Refusal, tracking: Tracking) -> str:
    """The whole sentence: what was wrong, and by what it is found in the log."""
    return f"{refusal.text().rstrip('.')}. {tracking}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """An ASGI application that tells a refusal and nothing else: no framework has to be loaded for it."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    async def __call__(
        self, _scope: object, _receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> None:
        """Send it."""
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def xml_error(refusal: Refusal, tracking: Tracking) -> ErrorResponse:
    """A refusal as the data plane and the Atom plane tell it."""
    row = row_of(type(refusal))
    body = f"<Error><Code>{row.status}</Code><Detail>{xml_text(full_text(refusal, tracking))}</Detail></Error>"
    return _response(refusal, row, row.status, XML_TYPE, body)


def json_error(refusal: Refusal, tracking: Tracking) -> ErrorResponse:
    """A refusal as ARM tells it."""
    row = row_of(type(refusal))
    prefix = "" if row.sub_code is None else f"SubCode={row.sub_code}. "
    error = {"code": row.code, "message": prefix + full_text(refusal, tracking), "details": []}
    return _response(refusal, row, row.arm_status or row.status, JSON_TYPE, json.dumps({"error": error}))


def _response(refusal: Refusal, row: ErrorRow, status: int, content_type: str, text: str) -> ErrorResponse:
    body = text.encode()
    headers = {
        **_extra_headers(refusal, row),
        "content-length": str(len(body)),
        "content-type": content_type,
    }
    return ErrorResponse(status_code=status, headers=headers, body=body)


def _extra_headers(refusal: Refusal, row: ErrorRow) -> dict[str, str]:
    if isinstance(refusal, MethodNotAllowed):
        return {"allow": refusal.allowed}
    if isinstance(refusal, ServerBusy) or row.is_retriable:
        return {"retry-after": str(RETRY_AFTER_SECONDS)}
    return {}
