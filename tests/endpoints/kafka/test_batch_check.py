"""The error codes for produced batches."""

from typing import Any

import pytest

from hubmere.endpoints.kafka.produce import check
from hubmere.endpoints.kafka.produce.check import check_produced
from hubmere.records.compression import Codec
from hubmere.records.header import APPEND_TIME, CONTROL, HEADER_BYTES, TRANSACTIONAL
from hubmere.records.records import encode_batch
from hubmere.records.validate import HeaderFault
from hubmere.wire.kafka.errors import ErrorCode
from records.builders import a_record, patched, some_records


def test_every_fault_has_a_code() -> None:
    """A new rule without a code would fail in the middle of a request."""
    assert set(check._CODES) == set(HeaderFault)


def _check(records: bytes | bytearray | None, **changed: Any) -> ErrorCode:
    return check_produced(records, **{"produce_version": 9, "max_batch_bytes": 1 << 20, **changed})


def test_valid_batch_is_accepted() -> None:
    """This holds for every codec."""
    batches = [encode_batch(some_records(), codec=codec) for codec in Codec]

    assert [_check(batch) for batch in batches] == [ErrorCode.NONE] * len(Codec)


@pytest.mark.parametrize(
    ("code", "at", "value", "error"),
    [
        (">i", 8, 1 << 20, ErrorCode.CORRUPT_MESSAGE),  # longer than the received data
        (">i", 8, -5, ErrorCode.CORRUPT_MESSAGE),
        (">i", 8, 60, ErrorCode.INVALID_RECORD),  # bytes follow the batch
        (">b", 16, 1, ErrorCode.INVALID_RECORD),  # the magic number of an older format
        (">h", 21, CONTROL, ErrorCode.INVALID_RECORD),
        (">h", 21, 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (">i", 23, 1, ErrorCode.INVALID_RECORD),  # the last offset delta is not count - 1
        (">i", 57, 0, ErrorCode.INVALID_RECORD),
        (">q", 43, 9, ErrorCode.INVALID_RECORD),  # a producer id without a sequence number
        (">h", 21, TRANSACTIONAL, ErrorCode.INVALID_RECORD),  # a transaction without a producer id
        (">h", 21, APPEND_TIME, ErrorCode.NONE),  # the log overwrites it
        (">q", 0, 17, ErrorCode.NONE),  # the log assigns another number
    ],
)
def test_invalid_batch_is_refused_with_its_code(code: str, at: int, value: int, error: ErrorCode) -> None:
    """The rows are those of reference 3.5."""
    batch = patched(encode_batch(some_records(3)), code, at, value)

    assert _check(batch) is error


def test_flipped_bit_is_reported_as_corrupt() -> None:
    """The checksum covers everything after it."""
    batch = encode_batch(some_records(1))

    for at in range(21, len(batch)):
        flipped = bytearray(batch)
        flipped[at] ^= 1
        assert _check(flipped) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(HEADER_BYTES - 1), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_missing_batch_is_refused(records: bytes | None, error: ErrorCode) -> None:
    """Every partition of a produce request must have a batch."""
    assert _check(records) is error


def test_two_batches_for_one_partition_are_refused() -> None:
    """Produce 3 and later: exactly one batch for each partition."""
    batch = encode_batch(some_records())

    assert _check(batch + batch) is ErrorCode.INVALID_RECORD


def test_size_limit_applies_to_the_compressed_batch() -> None:
    """The limit includes the header."""
    records = [a_record(value=b"a" * 10_000)]
    plain, compressed = encode_batch(records), encode_batch(records, codec=Codec.ZSTD)

    assert _check(plain, max_batch_bytes=5000) is ErrorCode.MESSAGE_TOO_LARGE
    assert _check(compressed, max_batch_bytes=len(compressed)) is ErrorCode.NONE
    assert _check(compressed, max_batch_bytes=len(compressed) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_7() -> None:
    """KIP-110: older clients could not read it."""
    batch = encode_batch(some_records(), codec=Codec.ZSTD)

    assert _check(batch, produce_version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert _check(batch, produce_version=7) is ErrorCode.NONE
