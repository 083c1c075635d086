"""What a leader's error codes mean for a batch: whether it may have been appended, and the refusal for its sender."""

from typing import Final

from hubmere.model.errors import (
    ClusterBusy,
    ClusterOutcomeUnknown,
    InvalidBatch,
    ProducerFenced,
    Refusal,
    SequenceGap,
    TransactionAbortable,
    TransactionRefused,
)
from hubmere.records.header import BatchHeader
from hubmere.wire.kafka.errors import ErrorCode

LOST_NUMBERS: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
# The leader may have appended the batch although it answers with this error.
UNKNOWN_FATE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
# The batch itself is at fault: sending it again does not help.
BAD_BATCH: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.POLICY_VIOLATION,
    }
)


def refusal_of(code: int | None, header: BatchHeader, why: str, *, is_unknown: bool) -> Refusal:
    """The refusal of a batch that a leader has answered with this code; None: it has not answered."""
    if code in BAD_BATCH:
        return InvalidBatch(why)
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return SequenceGap(header.producer_id, header.producer_sequence, -1)
    if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
        return ProducerFenced(header.producer_id, header.producer_epoch, header.producer_epoch + 1)
    if code == ErrorCode.TRANSACTION_ABORTABLE:
        return TransactionAbortable(why)
    if code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        return TransactionRefused(why)
    return busy(why, is_unknown=is_unknown)


def busy(why: str, *, is_unknown: bool) -> Refusal:
    """The refusal of a batch that may be sent again later; `is_unknown`: it may have been appended."""
    return ClusterOutcomeUnknown(why) if is_unknown else ClusterBusy(why)
