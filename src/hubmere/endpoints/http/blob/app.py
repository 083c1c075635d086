"""The ASGI application of the Blob endpoint, mounted under the name of each storage account.

The order of a request: find the operation, authenticate, read the body, run the handler. Every response has the headers
that all responses of the service have. A refusal becomes an error document; an unexpected error is logged and answered
with 500 and without details.
"""

import logging
import uuid
from typing import Final

from hubmere.broker import KeysPending, Resource, blob_storage
from hubmere.endpoints.http.authorization import parse_authorization
from hubmere.endpoints.http.blob.authentication import authenticate
from hubmere.endpoints.http.blob.handlers import BlobCall, find_handler
from hubmere.endpoints.http.blob.request import BlobRequest
from hubmere.endpoints.http.blob.responses import BlobResponse, error_response
from hubmere.endpoints.http.context import (
    Disconnected,
    HttpContext,
    Receive,
    Scope,
    Send,
    client_address,
    content_length,
    path_for_log,
    read_body,
)
from hubmere.model.entity import Rights
from hubmere.model.errors import (
    ClaimMissing,
    KeysUnavailable,
    NotSupported,
    Refusal,
    RoleMissing,
    ServerBusy,
    StorageRefusal,
)

log = logging.getLogger("hubmere.blob")

# The version of the service whose responses these are; a client's older version is repeated to it.
_VERSION: Final = "2024-11-04"
_NOT_MODIFIED: Final = 304


class BlobApp:
    """Serves all storage accounts. Thread rule: the node's loop only."""

    def __init__(self, context: HttpContext, accounts: blob_storage.BlobAccounts, *, max_bytes: int) -> None:
        self._context = context
        self._accounts = accounts
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = BlobRequest(scope)
        request_id = str(uuid.uuid4())
        try:
            response = await self._answer(request, receive)
        except KeysPending:
            raise  # the request starts again when the keys are there
        except Disconnected:
            return
        except blob_storage.BlobRefused as refusal:
            response = self._refuse(refusal, request, request_id)
        except NotSupported:
            response = self._refuse(self._too_large(0, self._max_bytes), request, request_id)
        except (StorageRefusal, ServerBusy) as refusal:
            log.warning("refused %s %s: %s", request.method, path_for_log(scope), refusal.text())
            response = self._refuse(
                blob_storage.BlobRefused(blob_storage.BlobErrorCode.SERVER_BUSY), request, request_id
            )
        except Exception:
            log.exception("a request to the Blob endpoint failed")
            response = self._refuse(
                blob_storage.BlobRefused(blob_storage.BlobErrorCode.INTERNAL_ERROR), request, request_id
            )
        await _send(response, request, request_id, send)

    async def _answer(self, request: BlobRequest, receive: Receive) -> BlobResponse:
        self._accounts.require_address(client_address(request.scope))
        handler = find_handler(request)
        grant = authenticate(request, self._accounts, self._context.now_s, lambda header: self._bearer(request, header))
        account = self._accounts.account(request.account)
        declared = content_length(dict(request.scope["headers"]))
        body = await read_body(receive, declared, self._max_bytes, self._context.memory, self._too_large)
        now_ms = self._context.clock.now_ms()
        return await handler(BlobCall(request=request, account=account, grant=grant, body=body, now_ms=now_ms))

    def _too_large(self, _size_bytes: int, limit_bytes: int) -> blob_storage.BlobRefused:
        return blob_storage.BlobRefused(blob_storage.BlobErrorCode.TOO_LARGE, MaxLimit=str(limit_bytes))

    def _bearer(self, request: BlobRequest, header: str) -> blob_storage.BlobGrant:
        """The administrator, and everybody who may read events of the node's namespace, may keep checkpoints."""
        now_s, address = self._context.now_s, client_address(request.scope)
        sign_in = self._context.broker.sign_in_to_blobs
        try:
            caller = sign_in(parse_authorization(header), address=address, now_s=now_s)
            caller.require(Rights.LISTEN, Resource.of_namespace(caller.namespace.name), now_s)
        except KeysPending:
            raise
        except (ClaimMissing, RoleMissing):
            raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.PERMISSION_MISMATCH) from None
        except KeysUnavailable:
            raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.SERVER_BUSY) from None
        except Refusal:
            raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.AUTHENTICATION_FAILED) from None
        return blob_storage.BlobGrant()

    def _refuse(self, refusal: blob_storage.BlobRefused, request: BlobRequest, request_id: str) -> BlobResponse:
        log.info(
            "refused %s %s: %s", request.method, path_for_log(request.scope), refusal.code.code,
            extra={"tracking_id": request_id, "peer": client_address(request.scope)},
        )  # fmt: skip
        return error_response(refusal, request_id, self._context.clock.now_ms())


async def _send(response: BlobResponse, request: BlobRequest, request_id: str, send: Send) -> None:
    has_body = request.method != "HEAD" and response.status != _NOT_MODIFIED
    headers = {
        "content-length": str(len(response.body)),
        **response.headers,
        "x-ms-request-id": request_id,
        "x-ms-version": request.header("x-ms-version") or _VERSION,
    }
    if client_id := request.header("x-ms-client-request-id"):
        headers["x-ms-client-request-id"] = client_id
    encoded = [(name.encode("latin-1"), value.encode("utf-8", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": encoded})
    await send({"type": "http.response.body", "body": response.body if has_body else b""})
