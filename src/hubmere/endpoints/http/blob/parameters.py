"""Parameters of requests to the Blob endpoint: leases, lists, checksums and block lists; refused where malformed."""

import base64
import binascii
import hashlib
import re
import uuid
from collections.abc import Callable
from typing import Final, TypeVar
from xml.etree import ElementTree

from hubmere.broker import blob_storage
from hubmere.endpoints.http.blob.request import BlobRequest
from hubmere.endpoints.http.blob.responses import ListOptions

_MD5_BYTES: Final = 16

T = TypeVar("T")

_LEASE_OPERATIONS: Final = {
    "acquire": (blob_storage.leases.acquire, 201),
    "renew": (blob_storage.leases.renew, 200),
    "change": (blob_storage.leases.change, 200),
    "release": (blob_storage.leases.release, 200),
    "break": (blob_storage.leases.break_lease, 202),
}
_GUID: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")


def lease_operation(request: BlobRequest) -> "tuple[Callable[[T, blob_storage.LeaseRequest, int], T], int]":
    """The lease operation that a request names, and the status of its response."""
    action = request.header("x-ms-lease-action").lower()
    if action not in _LEASE_OPERATIONS:
        name = "x-ms-lease-action"
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.INVALID_HEADER_VALUE, HeaderName=name, HeaderValue=action
        )
    operation, status = _LEASE_OPERATIONS[action]
    return operation, status  # type: ignore[return-value]  # each works on blobs and on containers


def lease_request(request: BlobRequest) -> blob_storage.LeaseRequest:
    """The parameters of a lease operation; missing and malformed ones are refused."""
    action = request.header("x-ms-lease-action").lower()
    seconds = request.number("x-ms-lease-duration", None)
    if action == "acquire" and seconds is None:
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.MISSING_REQUIRED_HEADER, HeaderName="x-ms-lease-duration"
        )
    proposed = _guid(request, "x-ms-proposed-lease-id")
    if action == "change" and not proposed:
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.MISSING_REQUIRED_HEADER, HeaderName="x-ms-proposed-lease-id"
        )
    lease_id = _guid(request, "x-ms-lease-id")
    if action in ("renew", "change", "release") and not lease_id:
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.MISSING_REQUIRED_HEADER, HeaderName="x-ms-lease-id")
    return blob_storage.LeaseRequest(
        lease_id=lease_id,
        proposed_id=proposed or str(uuid.uuid4()),
        seconds=-1 if seconds is None else seconds,
        break_seconds=request.number("x-ms-lease-break-period"),
    )


def _guid(request: BlobRequest, name: str) -> str:
    text = request.header(name).lower()
    if text and not _GUID.fullmatch(text):
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.INVALID_HEADER_VALUE, HeaderName=name, HeaderValue=text
        )
    return text


def list_options(request: BlobRequest) -> ListOptions:
    """The parameters of a list."""
    text = request.query.get("maxresults", str(blob_storage.MAX_RESULTS))
    if not text.isdigit() or not int(text):
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.INVALID_QUERY_PARAMETER_VALUE,
            QueryParameterName="maxresults",
            QueryParameterValue=text,
        )
    return ListOptions(
        request=blob_storage.ListRequest(
            prefix=request.query.get("prefix", ""),
            marker=request.query.get("marker", ""),
            max_results=min(int(text), blob_storage.MAX_RESULTS),
            delimiter=request.query.get("delimiter", ""),
        ),
        include=frozenset(request.query.get("include", "").split(",")),
    )


def check_md5(expected: str, body: bytes) -> None:
    """Refuse a body that does not match the checksum in the request, if there is one."""
    if not expected:
        return
    try:
        digest = base64.b64decode(expected, validate=True)
    except binascii.Error:
        digest = b""
    if len(digest) != _MD5_BYTES:
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.INVALID_MD5)
    actual = hashlib.md5(body, usedforsecurity=False).digest()
    if actual != digest:
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.MD5_MISMATCH,
            UserSpecifiedMd5=expected,
            ServerCalculatedMd5=base64.b64encode(actual).decode(),
        )


def parse_block_list(body: bytes) -> list[tuple[str, str]]:
    """The block list in a request: pairs of a kind and a block id."""
    # A document type could define entities that expand without bound.
    if b"<!DOCTYPE" in body.upper():
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.INVALID_XML)
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - without a document type there is nothing to expand
    except ElementTree.ParseError:
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.INVALID_XML) from None
    if root.tag != "BlockList":
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.INVALID_XML)
    return [(item.tag, (item.text or "").strip()) for item in root]
