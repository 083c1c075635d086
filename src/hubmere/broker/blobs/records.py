"""Conversions between the stored records of containers and blobs and the values in requests."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.store.catalog.blob_records import BlobRecord, BlockRecord, BodyPart, ContainerRecord, decode_parts

# Limit of the service.
_MAX_BLOCK_ID_BYTES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobHeaders:
    """Properties of a blob that a client chooses."""

    content_type: str = "application/octet-stream"
    content_encoding: str = ""
    content_language: str = ""
    content_disposition: str = ""
    cache_control: str = ""


def decode_metadata(record: BlobRecord | ContainerRecord) -> dict[str, str]:
    """The metadata of a record."""
    metadata: dict[str, str] = json.loads(record.metadata)
    return metadata


def encode_metadata(metadata: Mapping[str, str]) -> str:
    """Metadata as text for a column."""
    return json.dumps(dict(metadata), separators=(",", ":"))


def with_headers(record: BlobRecord, headers: BlobHeaders) -> BlobRecord:
    """The record with other HTTP properties."""
    return replace(
        record,
        content_type=headers.content_type,
        content_encoding=headers.content_encoding,
        content_language=headers.content_language,
        content_disposition=headers.content_disposition,
        cache_control=headers.cache_control,
    )


def require_blob(record: BlobRecord | None) -> BlobRecord:
    """The record, or the refusal that the blob does not exist."""
    if record is None:
        raise BlobRefused(BlobErrorCode.BLOB_NOT_FOUND)
    return record


def part_of(block: BlockRecord) -> BodyPart:
    """The file of a staged block."""
    return BodyPart(block.file, block.size_bytes)


def committed_blocks(record: BlobRecord | None) -> dict[str, BodyPart]:
    """The committed blocks of a blob by id; none if it was written in one piece."""
    if record is None or not record.blocks:
        return {}
    ids = [str(block_id) for block_id, _ in json.loads(record.blocks)]
    return dict(zip(ids, decode_parts(record.parts), strict=True))


def find_block(kind: str, block_id: str, staged: Mapping[str, BodyPart], committed: Mapping[str, BodyPart]) -> BodyPart:
    """The file of a block that a block list names; Latest prefers the staged one."""
    sources = {"Committed": (committed,), "Uncommitted": (staged,), "Latest": (staged, committed)}.get(kind, ())
    for blocks in sources:
        if block_id in blocks:
            return blocks[block_id]
    raise BlobRefused(BlobErrorCode.INVALID_BLOCK_LIST)


def check_block_id(block_id: str) -> None:
    """Refuse an id that is not base64 of 1 to 64 bytes."""
    try:
        decoded = base64.b64decode(block_id, validate=True)
    except binascii.Error:
        decoded = b""
    if not 0 < len(decoded) <= _MAX_BLOCK_ID_BYTES:
        raise BlobRefused(BlobErrorCode.INVALID_QUERY_PARAMETER_VALUE, QueryParameterName="blockid")
