"""One request to the Blob endpoint: account, container and blob from the path, parameters, headers and conditions."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from urllib.parse import parse_qsl, unquote

from hubmere.broker import blob_storage
from hubmere.endpoints.http.context import HEADER_NAMES, Scope

# More than any operation has, the parameters of a shared access signature included.
_MAX_PARAMETERS = 64
_METADATA = "x-ms-meta-"


class RangeNotSatisfiable(blob_storage.BlobRefused):
    """A range behind the end of a blob; the response has the blob's size."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(blob_storage.BlobErrorCode.INVALID_RANGE)
        self.size_bytes = size_bytes


class BlobRequest:
    """One request. Its path is `/account/container/blob`; a blob's name may have slashes."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.raw_path: str = scope["raw_path"].decode("ascii", "replace")
        account, _, rest = self.raw_path.lstrip("/").partition("/")
        container, _, blob = rest.partition("/")
        self.account = unquote(account)
        self.container = unquote(container)
        self.blob = unquote(blob)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name."""
        return {name.decode("latin-1"): value.decode("utf-8", "replace") for name, value in self.scope["headers"]}

    @cached_property
    def query(self) -> Mapping[str, str]:
        """Query parameters by lower-case name."""
        try:
            pairs = parse_qsl(
                self.scope["query_string"].decode(), keep_blank_values=True, max_num_fields=_MAX_PARAMETERS
            )
        except ValueError:
            raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.INVALID_QUERY_PARAMETER_VALUE) from None
        return {name.lower(): value for name, value in pairs}

    @property
    def operation(self) -> tuple[str, str, str, str]:
        """Method, level, `restype` and `comp`: what selects the handler."""
        level = "blob" if self.blob else "container" if self.container else "account"
        return self.method, level, self.query.get("restype", ""), self.query.get("comp", "")

    def header(self, name: str) -> str:
        """One header, empty if it is missing."""
        return self.headers.get(name, "")

    def number(self, name: str, default: int | None = None) -> int | None:
        """A header that is a whole number."""
        text = self.header(name)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise blob_storage.BlobRefused(
                blob_storage.BlobErrorCode.INVALID_HEADER_VALUE, HeaderName=name, HeaderValue=text
            ) from None

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Metadata with names as the client wrote them."""
        names = self.scope.get(HEADER_NAMES) or [name for name, _ in self.scope["headers"]]
        found: dict[str, str] = {}
        for name, (_, value) in zip(names, self.scope["headers"], strict=True):
            text = name.decode("latin-1")
            if text.lower().startswith(_METADATA):
                found[text[len(_METADATA) :]] = value.decode("utf-8", "replace")
        return found

    @property
    def blob_headers(self) -> blob_storage.BlobHeaders:
        """The properties that a new blob gets."""
        return blob_storage.BlobHeaders(
            content_type=self.header("x-ms-blob-content-type")
            or self.header("content-type")
            or "application/octet-stream",
            content_encoding=self.header("x-ms-blob-content-encoding"),
            content_language=self.header("x-ms-blob-content-language"),
            content_disposition=self.header("x-ms-blob-content-disposition"),
            cache_control=self.header("x-ms-blob-cache-control"),
        )

    @property
    def conditions(self) -> blob_storage.RequestConditions:
        """The conditions and the lease id of the request."""
        return blob_storage.RequestConditions(
            if_match=_etag(self.headers.get("if-match")),
            if_none_match=_etag(self.headers.get("if-none-match")),
            if_modified_since_ms=_date_ms(self.headers.get("if-modified-since")),
            if_unmodified_since_ms=_date_ms(self.headers.get("if-unmodified-since")),
            lease_id=self.header("x-ms-lease-id").lower(),
        )

    def byte_range(self, size_bytes: int) -> tuple[int, int] | None:
        """First byte and count of the requested range; None if the request has none."""
        text = self.header("x-ms-range") or self.header("range")
        if not text.startswith("bytes="):
            return None
        first, _, last = text[len("bytes=") :].partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        start = int(first)
        if start >= size_bytes:
            raise RangeNotSatisfiable(size_bytes)
        return start, (min(int(last), size_bytes - 1) if last else size_bytes - 1) - start + 1


def _etag(text: str | None) -> str | None:
    return None if text is None else text.strip().strip('"')


def _date_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, TypeError):
        raise blob_storage.BlobRefused(blob_storage.BlobErrorCode.INVALID_HEADER_VALUE) from None


def http_date(at_ms: int) -> str:
    """A time as HTTP writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
