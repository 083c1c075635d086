"""Captured files in Azure Blob Storage or Data Lake Storage Gen2: `az://account/container[/prefix]`.

A task stages blocks under the blob's own name, which are not visible; the driver commits the block list, which creates
the whole blob unless one exists. The service deletes blocks that are never committed after a week.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from typing import Any, BinaryIO, Final, cast
from urllib.parse import quote, urlsplit

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobClient, ContainerClient

from hubmere.pipeline.capture.destinations.base import (
    DestinationFailed,
    InvalidDestination,
    NameTaken,
    Stored,
    Token,
    span_from_metadata,
)
from hubmere.pipeline.capture.destinations.parts import Parts
from hubmere.pipeline.capture.files.names import NameFormat, Span

# Metadata names are C# identifiers.
_SPAN: Final = "hubmere_span"
# 63 blocks make the largest file; a blob may have 50,000.
_BLOCK_BYTES: Final = 8 * 1024 * 1024
_PUBLIC_ENDPOINT: Final = "https://{account}.blob.core.windows.net"
_CONDITION: Final = "ConditionNotMet"


def open_destination(url: str, options: Mapping[str, str]) -> "BlobContainer":
    """The container of a URL."""
    parts = urlsplit(url)
    container, _, prefix = parts.path.strip("/").partition("/")
    if not parts.netloc or not container:
        raise InvalidDestination(url, "is not of the form az://account/container[/prefix]")
    return BlobContainer(url, _client(parts.netloc, container, options), f"{prefix}/" if prefix else "")


def _client(account: str, container: str, options: Mapping[str, str]) -> ContainerClient:
    if text := options.get("connection_string"):
        return ContainerClient.from_connection_string(text, container)
    endpoint = (options.get("endpoint") or _PUBLIC_ENDPOINT.format(account=account)).rstrip("/")
    if key := options.get("account_key"):
        # The node's own storage account may have a certificate of the node's private CA.
        verify = options.get("ca_file") or True
        credential = {"account_name": account, "account_key": key}
        return ContainerClient(endpoint, container, credential=credential, connection_verify=verify)
    return ContainerClient(endpoint, container, credential=options.get("sas_token"))


class BlobContainer:
    """See `base.Destination`."""

    def __init__(self, url: str, client: ContainerClient, prefix: str) -> None:
        self._url = url
        self._client = client
        self._prefix = prefix

    def url_of(self, name: str) -> str:
        """The URL of a blob, without the query, which may carry a signature."""
        base = str(self._client.url).partition("?")[0]
        return f"{base}/{quote(self._prefix + name)}"

    def upload(self, name: str, span: Span, attempt: str) -> "BlobUpload":
        """Start to stage blocks."""
        return BlobUpload(self._blob(name), attempt)

    def publish(self, name: str, span: Span, token: Token) -> None:
        """Commit the block list."""
        blocks = [BlobBlock(block_id=block) for block in cast("list[str]", token["blocks"])]
        try:
            self._blob(name).commit_block_list(blocks, metadata={_SPAN: span.text()}, if_none_match="*")
        except AzureError as error:
            if not _is_refused_as_there(error) or self.span_of(name) != span:
                raise _to_failure(self._url, error, self.url_of(name)) from None

    def has(self, name: str) -> bool:
        """Whether any blob has the name."""
        return self._metadata(name) is not None

    def span_of(self, name: str) -> Span | None:
        """The span of the published blob of a name."""
        return span_from_metadata(self._metadata(name), _SPAN, self.url_of(name))

    def _metadata(self, name: str) -> Mapping[str, str] | None:
        try:
            return self._blob(name).get_blob_properties().metadata or {}
        except ResourceNotFoundError:
            return None
        except AzureError as error:
            raise _to_failure(self._url, error, self.url_of(name)) from None

    def sweep(self, hub_id: str, names: NameFormat) -> None:
        """Nothing to do: the service deletes uncommitted blocks."""

    def files(self, prefix: str) -> Iterator[Stored]:
        """The published blobs whose names have the prefix; blobs without a commit are not listed."""
        try:
            for blob in self._client.list_blobs(name_starts_with=self._prefix + prefix):
                yield Stored(str(blob.name).removeprefix(self._prefix), int(blob.size))
        except AzureError as error:
            raise _to_failure(self._url, error, self._url) from None

    def open(self, name: str) -> BinaryIO:
        """Open a published blob for reading."""
        try:
            return BytesIO(self._blob(name).download_blob().readall())
        except AzureError as error:
            raise _to_failure(self._url, error, self.url_of(name)) from None

    def _blob(self, name: str) -> BlobClient:
        return self._client.get_blob_client(self._prefix + name)


class BlobUpload:
    """See `base.Upload`."""

    def __init__(self, blob: BlobClient, attempt: str) -> None:
        self._blob = blob
        # Ids of one blob have one length, and no two attempts have the same.
        self._attempt = sha256(attempt.encode()).hexdigest()[:32]
        self._blocks: list[str] = []
        self._parts = Parts(_BLOCK_BYTES, self._stage)

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes."""
        return self._parts.write(data)

    def finish(self) -> Token:
        """Stage the rest."""
        self._parts.close()
        return {"blocks": self._blocks}

    def abandon(self) -> None:
        """Nothing to do: the service deletes uncommitted blocks."""

    def _stage(self, data: bytes) -> None:
        block = b64encode(f"{self._attempt}-{len(self._blocks):06d}".encode()).decode()
        try:
            self._blob.stage_block(block, data, length=len(data))
        except AzureError as error:
            raise _to_failure(self._blob.container_name, error, self._blob.blob_name) from None
        self._blocks.append(block)


def _is_refused_as_there(error: AzureError) -> bool:
    code = str(getattr(error, "error_code", "") or "")
    return isinstance(error, ResourceExistsError) or code == _CONDITION


def _to_failure(place: Any, error: AzureError, url: str) -> DestinationFailed:
    """A failure in one line: the text of the SDK contains whole requests."""
    if _is_refused_as_there(error):
        return NameTaken(url)
    code = getattr(error, "error_code", None) or type(error).__name__
    status = getattr(error, "status_code", None)
    return DestinationFailed(f"{place}: {code}{f' ({status})' if status else ''}: {str(error.message).splitlines()[0]}")
