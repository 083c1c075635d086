"""Conditions of a request (If-Match and its relatives), checked against a container or a blob."""

from dataclasses import dataclass

from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.store.catalog.blob_records import BlobRecord, ContainerRecord

ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestConditions:
    """Etags without quotes, times in Unix milliseconds; None if a condition is not given."""

    if_match: str | None = None
    if_none_match: str | None = None
    if_modified_since_ms: int | None = None
    if_unmodified_since_ms: int | None = None
    lease_id: str = ""


def check_write(record: BlobRecord | ContainerRecord | None, conditions: RequestConditions) -> None:
    """Refuse a write whose conditions do not hold; `record` is None if nothing exists yet."""
    if record is None:
        if conditions.if_match is not None:
            raise BlobRefused(BlobErrorCode.CONDITION_NOT_MET)
        return
    if conditions.if_none_match == ANY:
        raise BlobRefused(BlobErrorCode.BLOB_ALREADY_EXISTS)
    if _is_unmet(record, conditions) or _is_unchanged(record, conditions):
        raise BlobRefused(BlobErrorCode.CONDITION_NOT_MET)


def check_read(record: BlobRecord | ContainerRecord, conditions: RequestConditions) -> None:
    """Refuse a read whose conditions do not hold, with "not modified" where HTTP asks for it."""
    if _is_unmet(record, conditions):
        raise BlobRefused(BlobErrorCode.CONDITION_NOT_MET)
    if _is_unchanged(record, conditions):
        raise BlobRefused(BlobErrorCode.NOT_MODIFIED)


def _is_unmet(record: BlobRecord | ContainerRecord, conditions: RequestConditions) -> bool:
    if conditions.if_match is not None and conditions.if_match not in (ANY, record.etag):
        return True
    since_ms = conditions.if_unmodified_since_ms
    return since_ms is not None and _whole_second(record.modified_ms) > since_ms


def _is_unchanged(record: BlobRecord | ContainerRecord, conditions: RequestConditions) -> bool:
    if conditions.if_none_match is not None:
        return conditions.if_none_match in (ANY, record.etag)
    since_ms = conditions.if_modified_since_ms
    return since_ms is not None and _whole_second(record.modified_ms) <= since_ms


def _whole_second(at_ms: int) -> int:
    """HTTP dates have whole seconds."""
    return at_ms // 1000 * 1000
