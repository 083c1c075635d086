"""Refusal to HTTP status: one table for all handlers, and the two formats of an error response.

Publishing and Atom answer in XML, ARM and our own JSON extensions in ARM's error envelope (reference: service 3, 4.2).
Every error response has a tracking id that is also in the log. Its text is the refusal's own and holds no secret.
"""

import json
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hubmere.broker import CoordinationRefused, blob_storage
from hubmere.broker import refusals as coordination
from hubmere.model import errors as refusals
from hubmere.model.errors import Refusal, ServerBusy, setting_hint

XML_TYPE = "application/xml; charset=utf-8"
JSON_TYPE = "application/json; charset=utf-8"
# SDKs pause for four seconds when a node is busy, whatever the header says; other clients get the same number.
RETRY_AFTER_SECONDS = 4
# The last part of a tracking id names the gateway in the Azure service; a node has one gateway.
_GATEWAY = "G0"

# Characters that XML 1.0 cannot represent even when escaped; a path or a name may contain them.
_NOT_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


# --- refusals of the HTTP endpoint ------------------------------------------------------------------------------------


class MalformedRequest(Refusal):
    """A request that cannot be read: its path, a header, a parameter or its body."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The request is malformed: {self.why}."


class RequestTooLarge(Refusal):
    """A request has more bytes than the node reads."""

    def __init__(self, what: str, limit_bytes: int) -> None:
        super().__init__(what, limit_bytes)
        self.what = what
        self.limit_bytes = limit_bytes

    def text(self) -> str:
        return f"The {self.what} is larger than the limit of {self.limit_bytes} bytes."


class HeadTooLarge(RequestTooLarge):
    """Request line and headers together are too large."""


class TargetTooLong(RequestTooLarge):
    """The request target alone is too long."""


class RequestTooSlow(Refusal):
    """The request did not arrive in time."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s

    def text(self) -> str:
        return f"The request did not arrive within {self.limit_s:g} seconds."


class NodeFull(Refusal):
    """All connections are in use; the reserved ones are for health checks and management."""

    def text(self) -> str:
        full = "The node has reached its connection limit; only health checks and management are served."
        return f"{full} {setting_hint('max_connections')}"


class OutOfMemory(Refusal):
    """The node's memory budget is used up, and this request uses much of it or arrived too late."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"{self.why} Try again later."


class NotDurableInTime(Refusal):
    """The publication was not durable within the client's timeout; it may become durable later."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s

    def text(self) -> str:
        return f"The operation did not complete within {self.limit_s:g} seconds; it may still take effect."


class MethodNotAllowed(Refusal):
    """The resource exists but does not support the method."""

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(method, allowed)
        self.method = method
        self.allowed = allowed

    def text(self) -> str:
        return f"The method {self.method} is not allowed for this resource. Allowed: {self.allowed}."


class PathNotFound(Refusal):
    """No resource has this path."""

    def text(self) -> str:
        return "There is no resource at this path."


class PartnerUnreachable(Refusal):
    """The node of a partner did not answer."""

    def __init__(self, partner: str, why: str) -> None:
        super().__init__(partner, why)
        self.partner = partner
        self.why = why

    def text(self) -> str:
        return f"The node of the partner namespace '{self.partner}' cannot be reached: {self.why}."


class InternalFailure(Refusal):
    """An unexpected error; the client gets no details."""

    def text(self) -> str:
        return "The server was unable to process the request; please retry the operation."


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """Status and ARM error code of one kind of refusal; `arm_status` is set where ARM uses another status."""

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

# Reference: service 2.4, 3, 4.1, 4.2 and 13. A refusal without a row uses that of its nearest base class.
ROWS: Mapping[type[Refusal], ErrorRow] = {
    refusals.Unauthorized: ErrorRow(status=401, code="Unauthorized"),
    refusals.RoleMissing: ErrorRow(status=403, code="AuthorizationFailed"),
    refusals.KeysUnavailable: _BUSY,
    refusals.NotFound: _NOT_FOUND,
    refusals.PartitionNotFound: _BAD_REQUEST,
    refusals.AlreadyExists: _CONFLICT,
    refusals.Conflict: _CONFLICT,
    refusals.FailedOver: ErrorRow(status=410, code="Gone"),
    # RFC 9110, 15.5.20: this server does not serve the host name that the client used.
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
    # The Blob endpoint answers these itself, by a table of its own (`blob.responses`).
    blob_storage.BlobRefused: _BAD_REQUEST,
    coordination.GroupUnknown: _NOT_FOUND,
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
    """The row of a refusal: its own, or that of its nearest base class."""
    for base in kind.__mro__:
        row = ROWS.get(base)
        if row is not None:
            return row
    raise KeyError(kind)


# --- responses -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """The id by which a request is found in the log, with the resource and the time."""

    id: str
    system: str
    at_ms: int

    @classmethod
    def begin(cls, system: str, now_ms: int) -> "Tracking":
        """A new id for a request on a resource such as `namespace:hub`."""
        return cls(id=f"{uuid.uuid4()}_{_GATEWAY}", system=system, at_ms=now_ms)

    def __str__(self) -> str:
        """The form in which the Azure service ends its texts."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"TrackingId:{self.id}, SystemTracker:{self.system}, Timestamp:{at}"


def xml_text(text: str) -> str:
    """Text escaped for the content of an XML element."""
    # `xml.sax.saxutils` has the same, and loads an HTTP client. `re` keeps the compiled pattern, which takes 5 ms.
    return re.sub(_NOT_XML, "\ufffd", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def full_text(refusal: Refusal, tracking: Tracking) -> str:
    """The text of a refusal with its tracking."""
    return f"{refusal.text().rstrip('.')}. {tracking}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """An ASGI application that sends one error response, without loading a web framework."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    async def __call__(
        self, _scope: object, _receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> None:
        """Send the response."""
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def xml_error(refusal: Refusal, tracking: Tracking) -> ErrorResponse:
    """The error response of publishing and Atom."""
    row = row_of(type(refusal))
    body = f"<Error><Code>{row.status}</Code><Detail>{xml_text(full_text(refusal, tracking))}</Detail></Error>"
    return _response(refusal, row, row.status, XML_TYPE, body)


def json_error(refusal: Refusal, tracking: Tracking) -> ErrorResponse:
    """The error response of ARM."""
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
