"""Leases on blobs: the outcome of every operation in every state, as in the service's table."""

import pytest

from hubmere.broker.blobs import leases
from hubmere.broker.blobs.leases import LeaseRequest, LeaseState, lease_state
from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.store.catalog.blob_records import BlobRecord

_NOW = 1_700_000_000_000
_A, _B = "a" * 8, "b" * 8


def a_blob() -> BlobRecord:
    return BlobRecord(account="account", container="c", name="n", etag="0x1", created_ms=0, modified_ms=0, size_bytes=0)


def a_blob_in(state: LeaseState) -> BlobRecord:
    """A blob whose lease A is in a state at `_NOW`."""
    leased = leases.acquire(a_blob(), LeaseRequest(proposed_id=_A, seconds=30), _NOW)
    blobs = {
        LeaseState.AVAILABLE: a_blob(),
        LeaseState.LEASED: leased,
        LeaseState.EXPIRED: leases.acquire(a_blob(), LeaseRequest(proposed_id=_A, seconds=30), _NOW - 30_000),
        LeaseState.BREAKING: leases.break_lease(leased, LeaseRequest(break_seconds=10), _NOW),
        LeaseState.BROKEN: leases.break_lease(leased, LeaseRequest(break_seconds=0), _NOW),
    }
    assert lease_state(blobs[state], _NOW) is state
    return blobs[state]


_OPERATIONS = {
    "acquire A": (leases.acquire, LeaseRequest(proposed_id=_A, seconds=15)),
    "acquire B": (leases.acquire, LeaseRequest(proposed_id=_B, seconds=15)),
    "renew A": (leases.renew, LeaseRequest(lease_id=_A)),
    "renew B": (leases.renew, LeaseRequest(lease_id=_B)),
    "change A to B": (leases.change, LeaseRequest(lease_id=_A, proposed_id=_B)),
    "release A": (leases.release, LeaseRequest(lease_id=_A)),
    "release B": (leases.release, LeaseRequest(lease_id=_B)),
    "break": (leases.break_lease, LeaseRequest()),
}
_MISMATCH, _NOT_PRESENT = BlobErrorCode.LEASE_MISMATCH, BlobErrorCode.LEASE_NOT_PRESENT
_S = LeaseState
# Columns: available, leased by A, expired, breaking, broken.
_OUTCOMES: dict[str, tuple[LeaseState | BlobErrorCode, ...]] = {
    "acquire A": (_S.LEASED, _S.LEASED, _S.LEASED, BlobErrorCode.LEASE_BREAKING_ACQUIRE, _S.LEASED),
    "acquire B": (
        _S.LEASED,
        BlobErrorCode.LEASE_ALREADY_PRESENT,
        _S.LEASED,
        BlobErrorCode.LEASE_ALREADY_PRESENT,
        _S.LEASED,
    ),
    "renew A": (_MISMATCH, _S.LEASED, _S.LEASED, BlobErrorCode.LEASE_BROKEN_RENEW, BlobErrorCode.LEASE_BROKEN_RENEW),
    "renew B": (_MISMATCH, _MISMATCH, _MISMATCH, _MISMATCH, _MISMATCH),
    "change A to B": (
        _NOT_PRESENT,
        _S.LEASED,
        _NOT_PRESENT,
        BlobErrorCode.LEASE_BREAKING_CHANGE,
        _NOT_PRESENT,
    ),
    "release A": (_MISMATCH, _S.AVAILABLE, _S.AVAILABLE, _S.AVAILABLE, _S.AVAILABLE),
    "release B": (_MISMATCH, _MISMATCH, _MISMATCH, _MISMATCH, _MISMATCH),
    "break": (_NOT_PRESENT, _S.BREAKING, _S.BROKEN, _S.BREAKING, _S.BROKEN),
}


@pytest.mark.parametrize("name", list(_OPERATIONS))
def test_each_operation_has_the_outcome_of_the_service(name: str) -> None:
    """Event processors decide by these outcomes who owns a partition."""
    operation, request = _OPERATIONS[name]
    outcomes: list[LeaseState | BlobErrorCode] = []
    for state in (_S.AVAILABLE, _S.LEASED, _S.EXPIRED, _S.BREAKING, _S.BROKEN):
        try:
            outcomes.append(lease_state(operation(a_blob_in(state), request, _NOW), _NOW))
        except BlobRefused as refusal:
            outcomes.append(refusal.code)

    assert tuple(outcomes) == _OUTCOMES[name]


@pytest.mark.parametrize(
    ("state", "lease_id", "expected"),
    [
        (_S.AVAILABLE, "", None),
        (_S.AVAILABLE, _A, BlobErrorCode.LEASE_BLOB_NOT_PRESENT),
        (_S.LEASED, "", BlobErrorCode.LEASE_ID_MISSING),
        (_S.LEASED, _A, None),
        (_S.LEASED, _B, BlobErrorCode.LEASE_BLOB_MISMATCH),
        (_S.BREAKING, _A, None),
        (_S.EXPIRED, "", None),
        (_S.EXPIRED, _A, BlobErrorCode.LEASE_LOST),
        (_S.EXPIRED, _B, BlobErrorCode.LEASE_BLOB_NOT_PRESENT),
        (_S.BROKEN, "", None),
        (_S.BROKEN, _A, BlobErrorCode.LEASE_LOST),
    ],
)
def test_a_write_needs_the_id_of_an_active_lease(
    state: LeaseState, lease_id: str, expected: BlobErrorCode | None
) -> None:
    """A processor that lost its lease must not overwrite its successor's checkpoint."""
    found = None
    try:
        leases.require_write(a_blob_in(state), lease_id, _NOW)
    except BlobRefused as refusal:
        found = refusal.code

    assert found is expected


def test_a_write_after_expiry_ends_the_lease_for_good() -> None:
    """Otherwise the old owner could renew although another client has written meanwhile."""
    blob = leases.after_write(a_blob_in(_S.EXPIRED), _NOW)

    with pytest.raises(BlobRefused) as refusal:
        leases.renew(blob, LeaseRequest(lease_id=_A), _NOW)
    assert refusal.value.code is BlobErrorCode.LEASE_MISMATCH


def test_a_break_never_lasts_longer_than_the_lease() -> None:
    """The break period is an upper bound, and the remaining lease another."""
    leased = leases.acquire(a_blob(), LeaseRequest(proposed_id=_A, seconds=20), _NOW)

    broken = leases.break_lease(leased, LeaseRequest(break_seconds=60), _NOW + 5_000)

    assert leases.remaining_seconds(broken, _NOW + 5_000) == 15


def test_an_infinite_lease_is_broken_at_once() -> None:
    """Without a break period there is nothing to wait for."""
    leased = leases.acquire(a_blob(), LeaseRequest(proposed_id=_A), _NOW)

    broken = leases.break_lease(leased, LeaseRequest(), _NOW)

    assert lease_state(broken, _NOW) is _S.BROKEN


@pytest.mark.parametrize("seconds", [0, 14, 61])
def test_a_lease_lasts_fifteen_to_sixty_seconds_or_for_ever(seconds: int) -> None:
    """The service refuses other durations, and clients rely on none of them."""
    with pytest.raises(BlobRefused) as refusal:
        leases.acquire(a_blob(), LeaseRequest(proposed_id=_A, seconds=seconds), _NOW)
    assert refusal.value.code is BlobErrorCode.INVALID_HEADER_VALUE
