"""Whether a produced batch is acceptable, and the error code if it is not (reference: kafka 3.5)."""

from typing import Final

from hubmere.records.compression import Codec
from hubmere.records.header import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    checksum,
    read_header,
)
from hubmere.wire.kafka.errors import ErrorCode

# zstd came with Produce version 7 (KIP-110).
_ZSTD_SINCE_PRODUCE: Final = 7


def check_produced(
    records: Buffer | None,
    *,
    produce_version: int,
    max_batch_bytes: int,
    time_bounds_ms: tuple[int, int] | None = None,
) -> ErrorCode:
    """Whether a producer may send this: exactly one batch that is whole, intact and honest about itself.

    Looks at the header and the checksum only. `time_bounds_ms` are the oldest and newest times allowed where records
    keep the producer's time. A time type bit set by the client is no error: the log overwrites it.
    """
    if records is None or len(records) == 0:
        return ErrorCode.INVALID_RECORD
    if len(records) < HEADER_BYTES:
        return ErrorCode.CORRUPT_MESSAGE
    header = read_header(records)
    if header.magic != MAGIC:
        return ErrorCode.INVALID_RECORD
    if header.size_bytes != len(records):
        return _wrong_size(header, len(records))
    if len(records) > max_batch_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    if checksum(records) != header.crc:
        return ErrorCode.CORRUPT_MESSAGE
    return _check_header(header, produce_version, time_bounds_ms)


def _wrong_size(header: BatchHeader, there: int) -> ErrorCode:
    """A length beyond the data is damage; data beyond the length is a second batch."""
    if HEADER_BYTES <= header.size_bytes < there:
        return ErrorCode.INVALID_RECORD
    return ErrorCode.CORRUPT_MESSAGE


def _check_header(header: BatchHeader, produce_version: int, time_bounds_ms: tuple[int, int] | None) -> ErrorCode:
    codec = header.attributes & CODEC_MASK
    if codec > Codec.ZSTD or (codec == Codec.ZSTD and produce_version < _ZSTD_SINCE_PRODUCE):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if header.attributes & CONTROL:
        return ErrorCode.INVALID_RECORD
    if header.record_count < 1 or header.last_delta != header.record_count - 1:
        return ErrorCode.INVALID_RECORD
    if header.producer_id >= 0 and header.producer_sequence < 0:
        return ErrorCode.INVALID_RECORD
    if time_bounds_ms is not None and not _is_within(header, time_bounds_ms):
        return ErrorCode.INVALID_TIMESTAMP
    return ErrorCode.NONE


def _is_within(header: BatchHeader, bounds_ms: tuple[int, int]) -> bool:
    oldest, newest = bounds_ms
    first, last = header.base_time_ms, header.max_time_ms
    return (first == NO_TIMESTAMP or oldest <= first <= newest) and (last == NO_TIMESTAMP or last <= newest)
