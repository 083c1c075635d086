"""Which records of a refused batch are at fault (KIP-467): their indexes in the batch, and why each was refused.

Only a refused batch is opened for this. Kafka names records for two rules: a timestamp too far ahead, and a record
without a key on a compacted topic. The list is bounded, since it is longer than the records that it names.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from hubmere.model.entity import Hub
from hubmere.records.faults import UnreadableRecords
from hubmere.records.records import decode_records
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.produce import RecordError
from hubmere.wire.kafka.primitives import Buffer

# A client repairs or drops the named records and sends the rest again; the next response names more.
MAX_RECORD_ERRORS: Final = 100
_SUMMARIZED: Final = 3

# The faulty records, and the error message of the partition.
RecordErrors = tuple[tuple[RecordError, ...], str | None]


def find_record_errors(code: int, records: Buffer | None, hub: Hub, partition: int, newest_ms: int) -> RecordErrors:
    """The records for which a batch was refused with this code; none if the batch as a whole is at fault."""
    if code == ErrorCode.INVALID_TIMESTAMP:
        errors = _first_errors(_too_new(records, newest_ms))
        return errors, "One or more records have been rejected due to invalid timestamp"
    if code == ErrorCode.INVALID_RECORD and hub.retention.is_compacted:
        errors = _first_errors(_without_key(records, f"{hub.name}-{partition}"))
        return errors, _summary(errors) if errors else None
    return (), None


def _first_errors(errors: Iterator[RecordError]) -> tuple[RecordError, ...]:
    try:
        return tuple(islice(errors, MAX_RECORD_ERRORS))
    except UnreadableRecords:
        # The batch cannot be opened: then single records are not the reason.
        return ()


def _too_new(records: Buffer | None, newest_ms: int) -> Iterator[RecordError]:
    for index, record in enumerate(decode_records(records or b"")):
        if record.time_ms > newest_ms:
            yield RecordError(
                batch_index=index,
                message=f"Timestamp {record.time_ms} of message with offset {index} is out of range. "
                f"The timestamp should be at most {newest_ms}.",
            )


def _without_key(records: Buffer | None, partition: str) -> Iterator[RecordError]:
    for index, record in enumerate(decode_records(records or b"")):
        if record.key is None:
            message = f"Compacted topic cannot accept message without key in topic partition {partition}."
            yield RecordError(batch_index=index, message=message)


def _summary(errors: tuple[RecordError, ...]) -> str:
    listed = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:_SUMMARIZED])
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: {listed}"
    )
