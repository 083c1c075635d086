"""Which records of a refused batch are at fault (KIP-467): their places in the batch, and why each was not taken.

Only a batch that was refused is opened for this. Kafka names records for two rules: a time too far ahead, and a record
without a key on a compacted topic. The list is bounded, since it is longer than the records that it is about.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from hubmere.broker.live import LiveHub
from hubmere.records.faults import UnreadableRecords
from hubmere.records.records import decode_records
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import RecordError
from hubmere.wire.kafka.primitives import Buffer

# A client repairs or drops the records that are named and sends the rest again; the next answer names more.
MAX_RECORD_ERRORS: Final = 100
_SHOWN: Final = 3

# The partition's records at fault, and the text for the partition as a whole.
Faults = tuple[tuple[RecordError, ...], str | None]


def faults_of(code: int, records: Buffer | None, hub: LiveHub, partition: int, newest_ms: int) -> Faults:
    """The records of a batch for which it was refused with this code; none where the batch as a whole is at fault."""
    if code == ErrorCode.INVALID_TIMESTAMP:
        errors = _listed(_too_new(records, newest_ms))
        return errors, "One or more records have been rejected due to invalid timestamp"
    if code == ErrorCode.INVALID_RECORD and hub.entity.retention.is_compacted:
        errors = _listed(_without_key(records, f"{hub.name}-{partition}"))
        return errors, _summary(errors) if errors else None
    return (), None


def _listed(errors: Iterator[RecordError]) -> tuple[RecordError, ...]:
    try:
        return tuple(islice(errors, MAX_RECORD_ERRORS))
    except UnreadableRecords:
        # The batch cannot be opened: then it is not single records that are wrong.
        return ()


def _too_new(records: Buffer | None, newest_ms: int) -> Iterator[RecordError]:
    for place, record in enumerate(decode_records(records or b"")):
        if record.time_ms > newest_ms:
            yield RecordError(
                batch_index=place,
                message=f"Timestamp {record.time_ms} of message with offset {place} is out of range. "
                f"The timestamp should be at most {newest_ms}.",
            )


def _without_key(records: Buffer | None, partition: str) -> Iterator[RecordError]:
    for place, record in enumerate(decode_records(records or b"")):
        if record.key is None:
            message = f"Compacted topic cannot accept message without key in topic partition {partition}."
            yield RecordError(batch_index=place, message=message)


def _summary(errors: tuple[RecordError, ...]) -> str:
    shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:_SHOWN])
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: {shown}"
    )
