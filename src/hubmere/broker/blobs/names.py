"""Rules for names and metadata of containers and blobs (Azure Blob service, "Naming and referencing containers")."""

import re
from collections.abc import Mapping
from typing import Final

from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.model.names import CONTAINER_RULE

_SYSTEM_CONTAINERS: Final = frozenset({"$root", "$logs", "$web"})
_MAX_BLOB: Final = 1024
# C# identifiers, as the service asks for; SDKs send them in any case.
_METADATA_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_METADATA_BYTES: Final = 8 * 1024


def check_container(name: str) -> None:
    """Refuse a name that a container cannot have."""
    if name in _SYSTEM_CONTAINERS:
        return
    if not CONTAINER_RULE.shortest <= len(name) <= CONTAINER_RULE.longest:
        raise BlobRefused(BlobErrorCode.OUT_OF_RANGE_NAME)
    if not CONTAINER_RULE.pattern.fullmatch(name):
        raise BlobRefused(BlobErrorCode.INVALID_RESOURCE_NAME)


def check_blob(name: str) -> None:
    """Refuse a name that a blob cannot have."""
    if not 0 < len(name) <= _MAX_BLOB:
        raise BlobRefused(BlobErrorCode.OUT_OF_RANGE_NAME)


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Refuse metadata with names that are no identifiers, or larger than 8 KiB."""
    if any(not _METADATA_NAME.fullmatch(name) for name in metadata):
        raise BlobRefused(BlobErrorCode.INVALID_METADATA)
    if sum(len(name) + len(value.encode()) for name, value in metadata.items()) > _MAX_METADATA_BYTES:
        raise BlobRefused(BlobErrorCode.METADATA_TOO_LARGE)
