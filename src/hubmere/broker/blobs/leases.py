"""Leases on blobs and containers: a pure state machine over the columns of a record.

States (Azure Blob service, "Lease Blob"): available, leased, expired, breaking, broken. An expired lease keeps its id
until the blob is written or leased again, so that its owner can renew it. Time is an argument, in Unix
milliseconds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeVar

from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.store.catalog.blob_records import LeaseColumns

INFINITE: Final = -1
_MIN_SECONDS: Final = 15
_MAX_SECONDS: Final = 60
_NEVER: Final = -1

R = TypeVar("R", bound=LeaseColumns)


class LeaseState(Enum):
    """The state of a lease, by the service's names."""

    AVAILABLE = "available"
    LEASED = "leased"
    EXPIRED = "expired"
    BREAKING = "breaking"
    BROKEN = "broken"

    @property
    def is_locked(self) -> bool:
        """Whether a write needs the lease id."""
        return self in (LeaseState.LEASED, LeaseState.BREAKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """The parameters of a lease operation; each operation uses some of them."""

    lease_id: str = ""
    proposed_id: str = ""
    seconds: int = INFINITE
    break_seconds: int | None = None


def lease_state(record: LeaseColumns, now_ms: int) -> LeaseState:
    """The state of a record's lease at a time."""
    if not record.lease_id:
        return LeaseState.AVAILABLE
    is_over = record.lease_until_ms != _NEVER and now_ms >= record.lease_until_ms
    if record.is_lease_broken:
        return LeaseState.BROKEN if is_over else LeaseState.BREAKING
    return LeaseState.EXPIRED if is_over else LeaseState.LEASED


def acquire(record: R, request: LeaseRequest, now_ms: int) -> R:
    """Take the lease under the proposed id, or change the duration of one's own lease."""
    _check_seconds(request.seconds)
    state = lease_state(record, now_ms)
    if state.is_locked and record.lease_id != request.proposed_id:
        raise BlobRefused(BlobErrorCode.LEASE_ALREADY_PRESENT)
    if state is LeaseState.BREAKING:
        raise BlobRefused(BlobErrorCode.LEASE_BREAKING_ACQUIRE)
    return _with_lease(record, request.proposed_id, request.seconds, now_ms)


def renew(record: R, request: LeaseRequest, now_ms: int) -> R:
    """Start the duration of a lease again; an expired lease can be renewed."""
    _require_id(record, request.lease_id)
    if lease_state(record, now_ms) in (LeaseState.BREAKING, LeaseState.BROKEN):
        raise BlobRefused(BlobErrorCode.LEASE_BROKEN_RENEW)
    return _with_lease(record, record.lease_id, record.lease_seconds, now_ms)


def change(record: R, request: LeaseRequest, now_ms: int) -> R:
    """Give the lease another id. Repeating the request has no further effect."""
    state = lease_state(record, now_ms)
    if not state.is_locked:
        raise BlobRefused(BlobErrorCode.LEASE_NOT_PRESENT)
    if record.lease_id not in (request.lease_id, request.proposed_id):
        raise BlobRefused(BlobErrorCode.LEASE_MISMATCH)
    if state is LeaseState.BREAKING:
        raise BlobRefused(BlobErrorCode.LEASE_BREAKING_CHANGE)
    return replace(record, lease_id=request.proposed_id)


def release(record: R, request: LeaseRequest, _now_ms: int) -> R:
    """End a lease at once."""
    _require_id(record, request.lease_id)
    return without_lease(record)


def break_lease(record: R, request: LeaseRequest, now_ms: int) -> R:
    """End a lease without its id, after the break period or at the end of the lease, whichever is first."""
    state = lease_state(record, now_ms)
    if state is LeaseState.AVAILABLE:
        raise BlobRefused(BlobErrorCode.LEASE_NOT_PRESENT)
    if request.break_seconds is not None and not 0 <= request.break_seconds <= _MAX_SECONDS:
        raise BlobRefused(BlobErrorCode.INVALID_HEADER_VALUE, HeaderName="x-ms-lease-break-period")
    if not state.is_locked:
        return replace(record, is_lease_broken=1, lease_until_ms=now_ms)
    wanted_ms = _NEVER if request.break_seconds is None else now_ms + request.break_seconds * 1000
    if record.lease_until_ms == _NEVER:
        until_ms = now_ms if wanted_ms == _NEVER else wanted_ms
    else:
        until_ms = record.lease_until_ms if wanted_ms == _NEVER else min(record.lease_until_ms, wanted_ms)
    return replace(record, is_lease_broken=1, lease_until_ms=until_ms)


def remaining_seconds(record: LeaseColumns, now_ms: int) -> int:
    """Seconds until a lease that is being broken is free."""
    return max(0, -((now_ms - record.lease_until_ms) // 1000)) if record.lease_until_ms != _NEVER else 0


def require_write(record: LeaseColumns, lease_id: str, now_ms: int, *, is_container: bool = False) -> None:
    """Refuse a write without the id of an active lease, or with an id that is not the lease's."""
    state = lease_state(record, now_ms)
    if state.is_locked:
        if not lease_id:
            raise BlobRefused(BlobErrorCode.LEASE_ID_MISSING)
        if lease_id != record.lease_id:
            raise BlobRefused(_MISMATCH[is_container])
    elif lease_id:
        is_lost = state is not LeaseState.AVAILABLE and lease_id == record.lease_id
        raise BlobRefused(BlobErrorCode.LEASE_LOST if is_lost else _NOT_PRESENT[is_container])


def require_read(record: LeaseColumns, lease_id: str, now_ms: int, *, is_container: bool = False) -> None:
    """Refuse a read that names a lease which the record does not have. A read needs no lease id."""
    if lease_id:
        require_write(record, lease_id, now_ms, is_container=is_container)


def after_write(record: R, now_ms: int) -> R:
    """The record after a write: a lease that is not active any more is forgotten."""
    return record if lease_state(record, now_ms).is_locked else without_lease(record)


def without_lease(record: R) -> R:
    """The record with its lease available."""
    return replace(record, lease_id="", lease_seconds=0, lease_until_ms=0, is_lease_broken=0)


_MISMATCH: Final = (BlobErrorCode.LEASE_BLOB_MISMATCH, BlobErrorCode.LEASE_CONTAINER_MISMATCH)
_NOT_PRESENT: Final = (BlobErrorCode.LEASE_BLOB_NOT_PRESENT, BlobErrorCode.LEASE_CONTAINER_NOT_PRESENT)

LeaseOperation = Callable[[R, LeaseRequest, int], R]


def _with_lease(record: R, lease_id: str, seconds: int, now_ms: int) -> R:
    until_ms = _NEVER if seconds == INFINITE else now_ms + seconds * 1000
    return replace(record, lease_id=lease_id, lease_seconds=seconds, lease_until_ms=until_ms, is_lease_broken=0)


def _require_id(record: LeaseColumns, lease_id: str) -> None:
    if not record.lease_id or lease_id != record.lease_id:
        raise BlobRefused(BlobErrorCode.LEASE_MISMATCH)


def _check_seconds(seconds: int) -> None:
    if seconds != INFINITE and not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise BlobRefused(BlobErrorCode.INVALID_HEADER_VALUE, HeaderName="x-ms-lease-duration")
