"""Builders of records, and of batches in the form in which the log stores them."""

from hubmere.records.header import APPEND_TIME, read_header, seal, write_header
from hubmere.records.records import Record


def a_record(
    sequence_number: int = 0,
    *,
    time_ms: int = 1_700_000_000_000,
    key: bytes | None = None,
    value: bytes | None = b"value",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> Record:
    """A valid record."""
    return Record(sequence_number, time_ms, key, value, headers)


def some_records(count: int = 3) -> list[Record]:
    """Valid records from sequence number 0 on."""
    return [a_record(index, time_ms=1_700_000_000_000 + index, value=b"value %d" % index) for index in range(count)]


def number_batch(batch: bytearray, base_sequence_number: int) -> None:
    """Number a batch as the log does; its checksum stays valid."""
    write_header(batch, read_header(batch)._replace(base_sequence_number=base_sequence_number, leader_epoch=0))


def stamp_append_time(batch: bytearray, now_ms: int) -> None:
    """Give every record of a batch the time of its append, as the log does, and seal the batch."""
    header = read_header(batch)
    write_header(batch, header._replace(attributes=header.attributes | APPEND_TIME, max_time_ms=now_ms))
    seal(batch)
