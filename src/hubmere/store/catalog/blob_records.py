"""Containers, blobs and uncommitted blocks of the Blob endpoint, as state records of the catalog.

Plain values whose fields are the columns of the catalog's tables. Small bodies are in the row; larger ones are files
that the row names (`store.blob_files`). A row and its file names change in one transaction, so a blob is never half
written.
"""

import json
from dataclasses import dataclass
from typing import NamedTuple

RecordKey = tuple[str | int, ...]


class BodyPart(NamedTuple):
    """One file with a part of a body."""

    file: str
    size_bytes: int


def encode_parts(parts: tuple[BodyPart, ...]) -> str:
    """The parts of a body as text for a column."""
    return json.dumps([list(part) for part in parts], separators=(",", ":")) if parts else ""


def decode_parts(text: str) -> tuple[BodyPart, ...]:
    """The parts of a body from their column."""
    return tuple(BodyPart(*part) for part in json.loads(text)) if text else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseColumns:
    """The lease of a container or a blob; `broker.blobs.leases` interprets the columns."""

    lease_id: str = ""  # empty: no lease
    lease_seconds: int = 0  # -1: infinite
    lease_until_ms: int = 0  # end of the lease, or of the break period; -1: never
    is_lease_broken: int = 0  # 1: a break was requested


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord(LeaseColumns):
    """A container."""

    account: str
    name: str
    etag: str
    modified_ms: int
    metadata: str = "{}"

    @property
    def key(self) -> RecordKey:
        """Primary key."""
        return (self.account, self.name)

    @property
    def parent(self) -> RecordKey:
        """Parent key: records with the same parent are listed together."""
        return (self.account,)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRecord(LeaseColumns):
    """A block blob with its properties. `body` is base64; `parts` names files for larger bodies."""

    account: str
    container: str
    name: str
    etag: str
    created_ms: int
    modified_ms: int
    size_bytes: int
    content_type: str = "application/octet-stream"
    content_encoding: str = ""
    content_language: str = ""
    content_disposition: str = ""
    cache_control: str = ""
    content_md5: str = ""
    metadata: str = "{}"
    body: str = ""
    parts: str = ""
    blocks: str = ""  # committed blocks as JSON: [[id, size], ...]

    @property
    def key(self) -> RecordKey:
        """Primary key."""
        return (self.account, self.container, self.name)

    @property
    def parent(self) -> RecordKey:
        """Parent key: records with the same parent are listed together."""
        return (self.account, self.container)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRecord:
    """A block that was staged and is not part of a blob yet."""

    account: str
    container: str
    blob: str
    block_id: str
    file: str
    size_bytes: int
    staged_ms: int

    @property
    def key(self) -> RecordKey:
        """Primary key."""
        return (self.account, self.container, self.blob, self.block_id)

    @property
    def parent(self) -> RecordKey:
        """Parent key: records with the same parent are listed together."""
        return (self.account, self.container, self.blob)


BlobStateRecord = ContainerRecord | BlobRecord | BlockRecord
