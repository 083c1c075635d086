"""Responses of the Blob endpoint: headers, error documents and lists, in the format of the Azure Blob service."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import quoteattr

from hubmere.broker import blob_storage
from hubmere.endpoints.http.blob.request import RangeNotSatisfiable, http_date
from hubmere.endpoints.http.errors import xml_text

XML_TYPE: Final = "application/xml"
_DECLARATION: Final = '<?xml version="1.0" encoding="utf-8"?>'

_CODE: Final = blob_storage.BlobErrorCode
# HTTP status of each error code; the service's page "Blob service error codes" has the same table.
STATUS: Mapping[blob_storage.BlobErrorCode, int] = {
    _CODE.CONTAINER_NOT_FOUND: 404,
    _CODE.CONTAINER_ALREADY_EXISTS: 409,
    _CODE.BLOB_NOT_FOUND: 404,
    _CODE.BLOB_ALREADY_EXISTS: 409,
    _CODE.CONDITION_NOT_MET: 412,
    _CODE.NOT_MODIFIED: 304,
    _CODE.INVALID_RESOURCE_NAME: 400,
    _CODE.OUT_OF_RANGE_NAME: 400,
    _CODE.INVALID_METADATA: 400,
    _CODE.METADATA_TOO_LARGE: 400,
    _CODE.INVALID_HEADER_VALUE: 400,
    _CODE.MISSING_REQUIRED_HEADER: 400,
    _CODE.UNSUPPORTED_HEADER: 400,
    _CODE.INVALID_QUERY_PARAMETER_VALUE: 400,
    _CODE.UNSUPPORTED_QUERY_PARAMETER: 400,
    _CODE.UNSUPPORTED_HTTP_VERB: 405,
    _CODE.INVALID_BLOB_TYPE: 409,
    _CODE.INVALID_BLOCK_ID: 400,
    _CODE.INVALID_BLOCK_LIST: 400,
    _CODE.BLOCK_COUNT_EXCEEDS_LIMIT: 409,
    _CODE.INVALID_XML: 400,
    _CODE.INVALID_RANGE: 416,
    _CODE.MD5_MISMATCH: 400,
    _CODE.INVALID_MD5: 400,
    _CODE.TOO_LARGE: 413,
    _CODE.LEASE_ALREADY_PRESENT: 409,
    _CODE.LEASE_BREAKING_ACQUIRE: 409,
    _CODE.LEASE_BREAKING_CHANGE: 409,
    _CODE.LEASE_BROKEN_RENEW: 409,
    _CODE.LEASE_NOT_PRESENT: 409,
    _CODE.LEASE_MISMATCH: 409,
    _CODE.LEASE_ID_MISSING: 412,
    _CODE.LEASE_BLOB_MISMATCH: 412,
    _CODE.LEASE_CONTAINER_MISMATCH: 412,
    _CODE.LEASE_BLOB_NOT_PRESENT: 412,
    _CODE.LEASE_CONTAINER_NOT_PRESENT: 412,
    _CODE.LEASE_LOST: 412,
    _CODE.AUTHENTICATION_FAILED: 403,
    _CODE.NO_AUTHENTICATION: 401,
    _CODE.PERMISSION_MISMATCH: 403,
    _CODE.RESOURCE_TYPE_MISMATCH: 403,
    _CODE.SERVICE_MISMATCH: 403,
    _CODE.PROTOCOL_MISMATCH: 403,
    _CODE.AUTHORIZATION_FAILURE: 403,
    _CODE.KEYS_NOT_PERMITTED: 403,
    _CODE.SERVER_BUSY: 503,
    _CODE.INTERNAL_ERROR: 500,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobResponse:
    """Status, headers and body of a response."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def error_response(refusal: blob_storage.BlobRefused, request_id: str, now_ms: int) -> BlobResponse:
    """The error document of a refusal."""
    at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    text = xml_text(f"{refusal.text()}\nRequestId:{request_id}\nTime:{at}")
    details = "".join(f"<{name}>{xml_text(value)}</{name}>" for name, value in refusal.details.items())
    body = f"{_DECLARATION}<Error><Code>{refusal.code.code}</Code><Message>{text}</Message>{details}</Error>"
    headers = {"x-ms-error-code": refusal.code.code, "content-type": XML_TYPE}
    if refusal.code is blob_storage.BlobErrorCode.NO_AUTHENTICATION:
        headers["www-authenticate"] = "Bearer"
    if isinstance(refusal, RangeNotSatisfiable):
        headers["content-range"] = f"bytes */{refusal.size_bytes}"
    return BlobResponse(status=STATUS[refusal.code], headers=headers, body=body.encode())


def xml_response(content: str, headers: Mapping[str, str] | None = None) -> BlobResponse:
    """A document."""
    return BlobResponse(
        status=200, headers={"content-type": XML_TYPE, **(headers or {})}, body=f"{_DECLARATION}{content}".encode()
    )


def etag_headers(record: blob_storage.BlobRecord | blob_storage.ContainerRecord) -> dict[str, str]:
    """Etag and modification time."""
    return {"etag": f'"{record.etag}"', "last-modified": http_date(record.modified_ms)}


def metadata_headers(record: blob_storage.BlobRecord | blob_storage.ContainerRecord) -> dict[str, str]:
    """The metadata, with names as the client wrote them."""
    return {f"x-ms-meta-{name}": value for name, value in blob_storage.decode_metadata(record).items()}


def lease_headers(record: blob_storage.BlobRecord | blob_storage.ContainerRecord, now_ms: int) -> dict[str, str]:
    """The state of the lease."""
    state = blob_storage.lease_state(record, now_ms)
    headers = {"x-ms-lease-state": state.value, "x-ms-lease-status": _status(state)}
    if state is blob_storage.LeaseState.LEASED:
        headers["x-ms-lease-duration"] = _duration(record)
    return headers


def blob_headers(record: blob_storage.BlobRecord, now_ms: int) -> dict[str, str]:
    """All properties of a blob."""
    headers = {
        **etag_headers(record),
        **metadata_headers(record),
        **lease_headers(record, now_ms),
        "content-type": record.content_type,
        "x-ms-blob-type": "BlockBlob",
        "x-ms-creation-time": http_date(record.created_ms),
        "x-ms-server-encrypted": "false",
        "accept-ranges": "bytes",
    }
    optional = {
        "content-encoding": record.content_encoding,
        "content-language": record.content_language,
        "content-disposition": record.content_disposition,
        "cache-control": record.cache_control,
    }
    return headers | {name: value for name, value in optional.items() if value}


def list_containers(
    page: blob_storage.Page[blob_storage.ContainerRecord], endpoint: str, options: "ListOptions", now_ms: int
) -> str:
    """The document with the containers of an account."""
    items = "".join(_container_item(record, options, now_ms) for record in page.records)
    return (
        f"<EnumerationResults ServiceEndpoint={quoteattr(endpoint)}>{options.elements()}"
        f"<Containers>{items}</Containers>{_element('NextMarker', page.next_marker)}</EnumerationResults>"
    )


def list_blobs(
    page: blob_storage.Page[blob_storage.BlobRecord],
    endpoint: str,
    container: str,
    options: "ListOptions",
    now_ms: int,
) -> str:
    """The document with the blobs of a container."""
    blobs = "".join(_blob_item(record, options, now_ms) for record in page.records)
    blobs += "".join(f"<BlobPrefix>{_element('Name', folder)}</BlobPrefix>" for folder in page.folders)
    return (
        f"<EnumerationResults ServiceEndpoint={quoteattr(endpoint)} ContainerName={quoteattr(container)}>"
        f"{options.elements()}<Blobs>{blobs}</Blobs>"
        f"{_element('NextMarker', page.next_marker)}</EnumerationResults>"
    )


def block_list(record: blob_storage.BlobRecord | None, staged: Sequence[blob_storage.BlockRecord], kind: str) -> str:
    """The document with the committed and the staged blocks of a blob."""
    committed = json.loads(record.blocks) if record is not None and record.blocks else []
    parts = ""
    if kind in ("committed", "all"):
        parts += f"<CommittedBlocks>{''.join(_block(name, size) for name, size in committed)}</CommittedBlocks>"
    if kind in ("uncommitted", "all"):
        items = "".join(_block(block.block_id, block.size_bytes) for block in staged)
        parts += f"<UncommittedBlocks>{items}</UncommittedBlocks>"
    return f"<BlockList>{parts}</BlockList>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The parameters of a list."""

    request: blob_storage.ListRequest
    include: frozenset[str] = frozenset()

    def elements(self) -> str:
        """The parameters, as the document repeats them."""
        request = self.request
        delimiter = _element("Delimiter", request.delimiter) if request.delimiter else ""
        return (
            _element("Prefix", request.prefix)
            + _element("Marker", request.marker)
            + _element("MaxResults", str(request.max_results))
            + delimiter
        )


def _block(name: str, size_bytes: int) -> str:
    return f"<Block>{_element('Name', name)}{_element('Size', str(size_bytes))}</Block>"


def _container_item(record: blob_storage.ContainerRecord, options: ListOptions, now_ms: int) -> str:
    properties = _element("Last-Modified", http_date(record.modified_ms)) + _element("Etag", f'"{record.etag}"')
    properties += _lease_elements(record, now_ms)
    return (
        f"<Container>{_element('Name', record.name)}<Properties>{properties}</Properties>"
        f"{_metadata_element(record, options)}</Container>"
    )


def _blob_item(record: blob_storage.BlobRecord, options: ListOptions, now_ms: int) -> str:
    values = (
        ("Creation-Time", http_date(record.created_ms)),
        ("Last-Modified", http_date(record.modified_ms)),
        ("Etag", record.etag),
        ("Content-Length", str(record.size_bytes)),
        ("Content-Type", record.content_type),
        ("Content-Encoding", record.content_encoding),
        ("Content-Language", record.content_language),
        ("Content-MD5", record.content_md5),
        ("Cache-Control", record.cache_control),
        ("Content-Disposition", record.content_disposition),
        ("BlobType", "BlockBlob"),
        ("AccessTier", "Hot"),
        ("AccessTierInferred", "true"),
        ("ServerEncrypted", "false"),
    )
    properties = "".join(_element(name, value) for name, value in values) + _lease_elements(record, now_ms)
    return (
        f"<Blob>{_element('Name', record.name)}<Properties>{properties}</Properties>"
        f"{_metadata_element(record, options)}</Blob>"
    )


def _lease_elements(record: blob_storage.BlobRecord | blob_storage.ContainerRecord, now_ms: int) -> str:
    state = blob_storage.lease_state(record, now_ms)
    text = _element("LeaseStatus", _status(state)) + _element("LeaseState", state.value)
    return text + (_element("LeaseDuration", _duration(record)) if state is blob_storage.LeaseState.LEASED else "")


def _metadata_element(record: blob_storage.BlobRecord | blob_storage.ContainerRecord, options: ListOptions) -> str:
    if "metadata" not in options.include:
        return ""
    items = "".join(_element(name, value) for name, value in blob_storage.decode_metadata(record).items())
    return f"<Metadata>{items}</Metadata>"


def _element(name: str, value: str) -> str:
    return f"<{name}>{xml_text(value)}</{name}>" if value else f"<{name} />"


def _status(state: blob_storage.LeaseState) -> str:
    return "locked" if state.is_locked else "unlocked"


def _duration(record: blob_storage.BlobRecord | blob_storage.ContainerRecord) -> str:
    return "infinite" if record.lease_seconds < 0 else "fixed"
