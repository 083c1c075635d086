"""The rules for a produced batch, and the error code for one that breaks them (reference: kafka 3.5)."""

from typing import Final

from hubmere.model.entity import Hub, TimestampType
from hubmere.records.compression import Codec
from hubmere.records.header import Buffer, read_header
from hubmere.records.validate import HeaderFault, find_broken_rule
from hubmere.wire.kafka.errors import ErrorCode

# zstd came with Produce version 7 (KIP-110).
ZSTD_SINCE_PRODUCE: Final = 7

# How far ahead of our clock a producer's own time may be (reference: kafka 1.3); a later one would keep its segment
# beyond retention.
MAX_AHEAD_MS: Final = 3_600_000
_ANY_TIME_MS: Final = 2**63

_CODES: Final = {
    HeaderFault.TOO_SHORT: ErrorCode.CORRUPT_MESSAGE,
    HeaderFault.MAGIC: ErrorCode.INVALID_RECORD,
    # A length beyond the data is damage; data beyond the length is a second batch.
    HeaderFault.CUT_OFF: ErrorCode.CORRUPT_MESSAGE,
    HeaderFault.SECOND_BATCH: ErrorCode.INVALID_RECORD,
    HeaderFault.CHECKSUM: ErrorCode.CORRUPT_MESSAGE,
    HeaderFault.CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    HeaderFault.CONTROL: ErrorCode.INVALID_RECORD,
    HeaderFault.COUNT: ErrorCode.INVALID_RECORD,
    HeaderFault.LAST_DELTA: ErrorCode.INVALID_RECORD,
    HeaderFault.NO_PRODUCER: ErrorCode.INVALID_RECORD,
    HeaderFault.NO_SEQUENCE: ErrorCode.INVALID_RECORD,
    HeaderFault.NO_EPOCH: ErrorCode.INVALID_RECORD,
}


def newest_allowed_ms(hub: Hub, now_ms: int) -> int:
    """The latest time that a record may have; any where the log stamps records itself."""
    return now_ms + MAX_AHEAD_MS if hub.timestamp_type is TimestampType.CREATE else _ANY_TIME_MS


def check_produced(records: Buffer | None, *, produce_version: int, max_batch_bytes: int) -> ErrorCode:
    """Whether a producer may send this: exactly one batch that keeps the rules and is not too large.

    Reads the header and the checksum only. A time type bit that a client sets is no error: the log overwrites it.
    """
    if not records:
        return ErrorCode.INVALID_RECORD
    broken = find_broken_rule(records)
    # In Kafka's order: the framing, the size, the checksum, the other fields.
    is_framed = broken is None or broken.fault >= HeaderFault.CHECKSUM
    if is_framed and len(records) > max_batch_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    is_checked = broken is None or broken.fault > HeaderFault.CODEC
    if is_checked and produce_version < ZSTD_SINCE_PRODUCE and read_header(records).codec == Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE if broken is None else _CODES[broken.fault]
