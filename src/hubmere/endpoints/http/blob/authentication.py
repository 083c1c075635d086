"""Authentication of the Blob endpoint: shared key, shared access signatures and bearer tokens.

Builds the string that the client has signed, as the Azure service defines it; the broker verifies the signature.
Stored access policies, user delegation signatures and SharedKeyLite are not offered and fail the authentication.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl

from hubmere.broker import blob_storage
from hubmere.endpoints.http.blob.request import BlobRequest

# Headers of the string to sign, in order ("Authorize with Shared Key").
_SIGNED_HEADERS: Final = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
# Signatures have one field more from this version on, for an encryption scope.
_ENCRYPTION_SCOPE_VERSION: Final = "2020-12-06"
# The oldest version whose string to sign is known here.
_OLDEST_VERSION: Final = "2018-11-09"
# Fields that override headers of the response.
_RESPONSE_FIELDS: Final = ("rscc", "rscd", "rsce", "rscl", "rsct")

Bearer = Callable[[str], blob_storage.BlobGrant]


def authenticate(
    request: BlobRequest, accounts: blob_storage.BlobAccounts, now_s: float, bearer: Bearer
) -> blob_storage.BlobGrant:
    """What the credential of a request allows; refused without a valid one. `bearer` verifies bearer tokens."""
    scheme, _, value = request.header("authorization").partition(" ")
    if scheme == "SharedKey":
        account, _, signature = value.partition(":")
        if account != request.account:
            raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.AUTHENTICATION_FAILED)
        return accounts.verify(account, shared_key_string(request, account), signature, blob_storage.BlobGrant())
    if scheme.lower() == "bearer":
        return bearer(request.header("authorization"))
    if "sig" in request.query:
        return _verify_signature(request, accounts, now_s)
    raise blob_storage.BlobRefused(
        blob_storage.BlobErrorCode.AUTHENTICATION_FAILED if scheme else blob_storage.BlobErrorCode.NO_AUTHENTICATION
    )


def shared_key_string(request: BlobRequest, account: str) -> str:
    """The string that a client with the account's key signs."""
    values = [request.header(name) for name in _SIGNED_HEADERS]
    if values[2] == "0":
        values[2] = ""
    special = sorted((name, value) for name, value in request.headers.items() if name.startswith("x-ms-"))
    headers = "".join(f"{name}:{value.strip()}\n" for name, value in special)
    grouped: dict[str, list[str]] = {}
    for name, value in parse_qsl(request.scope["query_string"].decode(), keep_blank_values=True):
        grouped.setdefault(name.lower(), []).append(value)
    query = "".join(f"\n{name}:{','.join(sorted(grouped[name]))}" for name in sorted(grouped))
    return "\n".join((request.method, *values, "")) + headers + f"/{account}{request.raw_path}" + query


def _verify_signature(
    request: BlobRequest, accounts: blob_storage.BlobAccounts, now_s: float
) -> blob_storage.BlobGrant:
    query = request.query
    if query.get("sv", "") < _OLDEST_VERSION or "si" in query or "skoid" in query:
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.AUTHENTICATION_FAILED)
    _check_times(query.get("st", ""), query.get("se", ""), now_s)
    if query.get("spr", "") == "https" and request.scope["scheme"] != "https":
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.PROTOCOL_MISMATCH)
    _check_address(query.get("sip", ""), request)
    is_account = "ss" in query
    text = _account_string(request) if is_account else _service_string(request)
    permissions = blob_storage.parse_permissions(query.get("sp", ""))
    if is_account:
        _check_account_scope(request)
        return accounts.verify(request.account, text, query["sig"], blob_storage.BlobGrant(permissions=permissions))
    blob = request.blob if query.get("sr") == "b" else ""
    grant = blob_storage.BlobGrant(permissions=permissions, container=request.container, blob=blob)
    return accounts.verify(request.account, text, query["sig"], grant)


def _service_string(request: BlobRequest) -> str:
    query = request.query
    kind = query.get("sr", "")
    if kind not in ("b", "c"):
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.AUTHENTICATION_FAILED)
    resource = f"/blob/{request.account}/{request.container}" + (f"/{request.blob}" if kind == "b" else "")
    scope = [query.get("ses", "")] if query["sv"] >= _ENCRYPTION_SCOPE_VERSION else []
    fields = [query.get(name, "") for name in ("sp", "st", "se")]
    fields += [resource, *(query.get(name, "") for name in ("si", "sip", "spr", "sv", "sr")), "", *scope]
    return "\n".join((*fields, *(query.get(name, "") for name in _RESPONSE_FIELDS)))


def _account_string(request: BlobRequest) -> str:
    query = request.query
    fields = [query.get(name, "") for name in ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv")]
    if query["sv"] >= _ENCRYPTION_SCOPE_VERSION:
        fields.append(query.get("ses", ""))
    return "".join(f"{field}\n" for field in (request.account, *fields))


def _check_account_scope(request: BlobRequest) -> None:
    if "b" not in request.query.get("ss", ""):
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.SERVICE_MISMATCH)
    level = "o" if request.blob else "c" if request.container else "s"
    # Listing blobs is an operation on a container.
    if level not in request.query.get("srt", ""):
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.RESOURCE_TYPE_MISMATCH)


def _check_times(start: str, expiry: str, now_s: float) -> None:
    try:
        is_valid = _time_s(expiry) > now_s and (not start or _time_s(start) <= now_s)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise blob_storage.BlobRefused(
            blob_storage.BlobErrorCode.AUTHENTICATION_FAILED,
            AuthenticationErrorDetail="Signature not valid in the specified time frame",
        )


def _time_s(text: str) -> float:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _check_address(wanted: str, request: BlobRequest) -> None:
    if not wanted:
        return
    from ipaddress import ip_address

    first, _, last = wanted.partition("-")
    client = (request.scope.get("client") or ("",))[0]
    try:
        is_inside = ip_address(first) <= ip_address(client) <= ip_address(last or first)  # type: ignore[operator]
    except (ValueError, TypeError):
        is_inside = False
    if not is_inside:
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.AUTHENTICATION_FAILED)
