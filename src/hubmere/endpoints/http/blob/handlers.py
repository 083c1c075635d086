"""Handlers of the Blob endpoint: one function for each operation that is offered, found in a table."""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from hubmere.broker import blob_storage
from hubmere.endpoints.http.blob.parameters import (
    check_md5,
    lease_operation,
    lease_request,
    list_options,
    parse_block_list,
)
from hubmere.endpoints.http.blob.request import BlobRequest
from hubmere.endpoints.http.blob.responses import (
    BlobResponse,
    blob_headers,
    block_list,
    etag_headers,
    lease_headers,
    list_blobs,
    list_containers,
    metadata_headers,
    xml_response,
)
from hubmere.endpoints.http.context import PendingResult

_READ, _LIST, _DELETE = (
    blob_storage.BlobPermission.READ,
    blob_storage.BlobPermission.LIST,
    blob_storage.BlobPermission.DELETE,
)
_WRITE = blob_storage.BlobPermission.WRITE | blob_storage.BlobPermission.CREATE

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobCall:
    """One authenticated request to an account, with its body."""

    request: BlobRequest
    account: blob_storage.BlobAccount
    grant: blob_storage.BlobGrant
    body: bytes
    now_ms: int

    def require(self, needed: blob_storage.BlobPermission) -> None:
        """Refuse what the credential does not allow."""
        self.grant.require(needed, self.request.container, self.request.blob)

    @property
    def endpoint(self) -> str:
        """The URL of the account."""
        return f"{self.request.scope['scheme']}://{self.request.header('host')}/{self.account.name}"


Handler = Callable[[BlobCall], Awaitable[BlobResponse]]


# --- account ---


async def _list_containers(call: BlobCall) -> BlobResponse:
    call.require(_LIST)
    options = list_options(call.request)
    page = call.account.list_containers(options.request)
    return xml_response(list_containers(page, call.endpoint, options, call.now_ms))


async def _service_properties(call: BlobCall) -> BlobResponse:
    call.require(_READ)
    return xml_response("<StorageServiceProperties><Cors /></StorageServiceProperties>")


async def _account_information(call: BlobCall) -> BlobResponse:
    call.require(blob_storage.BlobPermission.ALL)
    return BlobResponse(status=200, headers={"x-ms-sku-name": "Standard_LRS", "x-ms-account-kind": "StorageV2"})


# --- containers ---


async def _create_container(call: BlobCall) -> BlobResponse:
    call.require(_WRITE)
    request = call.request
    result = PendingResult[blob_storage.ContainerRecord]()
    call.account.create_container(request.container, request.metadata, call.now_ms, result)
    record = await result
    return BlobResponse(status=201, headers=etag_headers(record))


async def _container_properties(call: BlobCall) -> BlobResponse:
    call.require(_READ)
    record = call.account.container(call.request.container, call.request.conditions, call.now_ms)
    return BlobResponse(
        status=200,
        headers={
            **etag_headers(record),
            **metadata_headers(record),
            **lease_headers(record, call.now_ms),
            "x-ms-has-immutability-policy": "false",
            "x-ms-has-legal-hold": "false",
        },
    )


async def _set_container_metadata(call: BlobCall) -> BlobResponse:
    call.require(blob_storage.BlobPermission.WRITE)
    request = call.request
    result = PendingResult[blob_storage.ContainerRecord]()
    call.account.set_container_metadata(request.container, request.metadata, request.conditions, call.now_ms, result)
    record = await result
    return BlobResponse(status=200, headers=etag_headers(record))


async def _container_policy(call: BlobCall) -> BlobResponse:
    call.require(_READ)
    record = call.account.container(call.request.container, call.request.conditions, call.now_ms)
    return xml_response("<SignedIdentifiers />", etag_headers(record))


async def _delete_container(call: BlobCall) -> BlobResponse:
    call.require(_DELETE)
    request = call.request
    result = PendingResult[None]()
    call.account.delete_container(request.container, request.conditions, call.now_ms, result)
    await result
    return BlobResponse(status=202)


async def _list_blobs(call: BlobCall) -> BlobResponse:
    call.require(_LIST)
    container, options = call.request.container, list_options(call.request)
    page = call.account.list_blobs(container, options.request)
    return xml_response(list_blobs(page, call.endpoint, container, options, call.now_ms))


async def _lease_container(call: BlobCall) -> BlobResponse:
    call.require(_WRITE | _DELETE)
    request = call.request
    operation, status = lease_operation(request)
    result = PendingResult[blob_storage.ContainerRecord]()
    call.account.lease_container(
        request.container, operation, lease_request(request), request.conditions, call.now_ms, result
    )
    record = await result
    return _lease_response(call, record, status)


# --- blobs ---


async def _put_blob(call: BlobCall) -> BlobResponse:
    call.require(_WRITE)
    request = call.request
    if "x-ms-copy-source" in request.headers:
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.UNSUPPORTED_HEADER, HeaderName="x-ms-copy-source")
    kind = request.header("x-ms-blob-type")
    if not kind:
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.MISSING_REQUIRED_HEADER, HeaderName="x-ms-blob-type")
    if kind != "BlockBlob":
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.INVALID_BLOB_TYPE)
    check_md5(request.header("content-md5"), call.body)
    result = PendingResult[blob_storage.BlobRecord]()
    call.account.put_blob(
        request.container,
        request.blob,
        call.body,
        request.blob_headers,
        request.metadata,
        request.conditions,
        call.now_ms,
        result,
    )
    record = await result
    headers = {**etag_headers(record), "content-md5": record.content_md5, "x-ms-request-server-encrypted": "false"}
    return BlobResponse(status=201, headers=headers)


async def _get_blob(call: BlobCall) -> BlobResponse:
    call.require(_READ)
    record = _find_blob(call)
    headers = blob_headers(record, call.now_ms)
    wanted = call.request.byte_range(record.size_bytes)
    first, count = wanted or (0, record.size_bytes)
    result = PendingResult[bytes]()
    call.account.read(record, first, count, result)
    body = await result
    if wanted is None:
        return BlobResponse(status=200, headers=headers | _md5_header("content-md5", record), body=body)
    headers["content-range"] = f"bytes {first}-{first + count - 1}/{record.size_bytes}"
    return BlobResponse(status=206, headers=headers | _md5_header("x-ms-blob-content-md5", record), body=body)


async def _blob_properties(call: BlobCall) -> BlobResponse:
    call.require(_READ)
    record = _find_blob(call)
    headers = blob_headers(record, call.now_ms) | _md5_header("content-md5", record)
    return BlobResponse(status=200, headers={**headers, "content-length": str(record.size_bytes)})


async def _blob_metadata(call: BlobCall) -> BlobResponse:
    call.require(_READ)
    record = _find_blob(call)
    return BlobResponse(status=200, headers={**etag_headers(record), **metadata_headers(record)})


async def _set_blob_metadata(call: BlobCall) -> BlobResponse:
    call.require(blob_storage.BlobPermission.WRITE)
    request = call.request
    result = PendingResult[blob_storage.BlobRecord]()
    call.account.set_metadata(
        request.container, request.blob, request.metadata, request.conditions, call.now_ms, result
    )
    record = await result
    return BlobResponse(status=200, headers={**etag_headers(record), "x-ms-request-server-encrypted": "false"})


async def _set_blob_properties(call: BlobCall) -> BlobResponse:
    call.require(blob_storage.BlobPermission.WRITE)
    request = call.request
    result = PendingResult[blob_storage.BlobRecord]()
    call.account.set_headers(
        request.container,
        request.blob,
        replace(request.blob_headers, content_type=request.header("x-ms-blob-content-type")),
        request.header("x-ms-blob-content-md5"),
        request.conditions,
        call.now_ms,
        result,
    )
    record = await result
    return BlobResponse(status=200, headers=etag_headers(record))


async def _delete_blob(call: BlobCall) -> BlobResponse:
    call.require(_DELETE)
    request = call.request
    result = PendingResult[None]()
    call.account.delete_blob(request.container, request.blob, request.conditions, call.now_ms, result)
    await result
    return BlobResponse(status=202, headers={"x-ms-delete-type-permanent": "true"})


async def _lease_blob(call: BlobCall) -> BlobResponse:
    call.require(_WRITE | _DELETE)
    request = call.request
    operation, status = lease_operation(request)
    result = PendingResult[blob_storage.BlobRecord]()
    call.account.lease_blob(
        request.container, request.blob, operation, lease_request(request), request.conditions, call.now_ms, result
    )
    record = await result
    return _lease_response(call, record, status)


# --- blocks ---


async def _put_block(call: BlobCall) -> BlobResponse:
    call.require(_WRITE)
    request = call.request
    check_md5(request.header("content-md5"), call.body)
    result = PendingResult[None]()
    call.account.stage_block(
        request.container,
        request.blob,
        request.query.get("blockid", ""),
        call.body,
        request.conditions,
        call.now_ms,
        result,
    )
    await result
    # As the service does: the checksum is confirmed if the client has sent one.
    md5 = request.header("content-md5")
    headers = {"content-md5": md5} if md5 else {}
    return BlobResponse(status=201, headers={**headers, "x-ms-request-server-encrypted": "false"})


async def _put_block_list(call: BlobCall) -> BlobResponse:
    call.require(_WRITE)
    request = call.request
    wanted = parse_block_list(call.body)
    properties = replace(
        request.blob_headers, content_type=request.header("x-ms-blob-content-type") or "application/octet-stream"
    )
    result = PendingResult[blob_storage.BlobRecord]()
    call.account.commit_blocks(
        request.container,
        request.blob,
        wanted,
        properties,
        request.metadata,
        request.conditions,
        call.now_ms,
        result,
    )
    record = await result
    # The checksum of the request, not of the blob.
    md5 = base64.b64encode(hashlib.md5(call.body, usedforsecurity=False).digest()).decode()
    headers = {**etag_headers(record), "content-md5": md5, "x-ms-request-server-encrypted": "false"}
    return BlobResponse(status=201, headers=headers)


async def _get_block_list(call: BlobCall) -> BlobResponse:
    call.require(_READ)
    request = call.request
    kind = request.query.get("blocklisttype", "committed").lower()
    if kind not in ("committed", "uncommitted", "all"):
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.INVALID_QUERY_PARAMETER_VALUE, QueryParameterName="blocklisttype"
        )
    staged = call.account.staged_blocks(request.container, request.blob)
    try:
        record = _find_blob(call)
    except blob_storage.BlobRefused as refusal:
        if refusal.code is not blob_storage.BlobErrorCode.BLOB_NOT_FOUND or not staged:
            raise
        return xml_response(block_list(None, staged, kind))
    headers = {**etag_headers(record), "x-ms-blob-content-length": str(record.size_bytes)}
    return xml_response(block_list(record, staged, kind), headers)


# --- the table: method, level, restype, comp ---

HANDLERS: Mapping[tuple[str, str, str, str], Handler] = {
    ("GET", "account", "", "list"): _list_containers,
    ("GET", "account", "service", "properties"): _service_properties,
    ("GET", "account", "account", "properties"): _account_information,
    ("HEAD", "account", "account", "properties"): _account_information,
    ("PUT", "container", "container", ""): _create_container,
    ("GET", "container", "container", ""): _container_properties,
    ("HEAD", "container", "container", ""): _container_properties,
    ("DELETE", "container", "container", ""): _delete_container,
    ("PUT", "container", "container", "metadata"): _set_container_metadata,
    ("GET", "container", "container", "metadata"): _container_properties,
    ("HEAD", "container", "container", "metadata"): _container_properties,
    ("GET", "container", "container", "acl"): _container_policy,
    ("HEAD", "container", "container", "acl"): _container_policy,
    ("PUT", "container", "container", "lease"): _lease_container,
    ("GET", "container", "container", "list"): _list_blobs,
    ("PUT", "blob", "", ""): _put_blob,
    ("GET", "blob", "", ""): _get_blob,
    ("HEAD", "blob", "", ""): _blob_properties,
    ("DELETE", "blob", "", ""): _delete_blob,
    ("PUT", "blob", "", "metadata"): _set_blob_metadata,
    ("GET", "blob", "", "metadata"): _blob_metadata,
    ("HEAD", "blob", "", "metadata"): _blob_metadata,
    ("PUT", "blob", "", "properties"): _set_blob_properties,
    ("PUT", "blob", "", "lease"): _lease_blob,
    ("PUT", "blob", "", "block"): _put_block,
    ("PUT", "blob", "", "blocklist"): _put_block_list,
    ("GET", "blob", "", "blocklist"): _get_block_list,
}


def find_handler(request: BlobRequest) -> Handler:
    """The handler of a request; an operation that is not offered gets the service's own error code."""
    handler = HANDLERS.get(request.operation)
    if handler is not None:
        return handler
    _, level, restype, comp = request.operation
    if any((other, level, restype, comp) in HANDLERS for other in ("GET", "PUT", "DELETE")):
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.UNSUPPORTED_HTTP_VERB)
    name = "comp" if comp else "restype" if restype else ""
    if not name:
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.UNSUPPORTED_HTTP_VERB)
    raise blob_storage.BlobRefused(
        blob_storage.BlobErrorCode.UNSUPPORTED_QUERY_PARAMETER,
        QueryParameterName=name,
        QueryParameterValue=comp or restype,
    )


# --- shared steps ---


def _find_blob(call: BlobCall) -> blob_storage.BlobRecord:
    if "snapshot" in call.request.query or "versionid" in call.request.query:
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.UNSUPPORTED_QUERY_PARAMETER, QueryParameterName="snapshot"
        )
    return call.account.blob(call.request.container, call.request.blob, call.request.conditions, call.now_ms)


def _lease_response(
    call: BlobCall, record: blob_storage.BlobRecord | blob_storage.ContainerRecord, status: int
) -> BlobResponse:
    headers = etag_headers(record)
    if call.request.header("x-ms-lease-action").lower() == "break":
        headers["x-ms-lease-time"] = str(blob_storage.leases.remaining_seconds(record, call.now_ms))
    elif record.lease_id:
        headers["x-ms-lease-id"] = record.lease_id
    return BlobResponse(status=status, headers=headers)


def _md5_header(name: str, record: blob_storage.BlobRecord) -> dict[str, str]:
    return {name: record.content_md5} if record.content_md5 else {}
