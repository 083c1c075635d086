"""Builders of records, and of batches in the form in which the log stores them."""

from collections.abc import Mapping
from struct import pack_into

from hypothesis import strategies as st

from hubmere.records.compression import Codec
from hubmere.records.header import APPEND_TIME, read_header, seal, write_header
from hubmere.records.records import Record, encode_batch


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
    """Write sequence numbers into a batch as the log does; its checksum stays valid."""
    write_header(batch, read_header(batch)._replace(base_sequence_number=base_sequence_number, leader_epoch=0))


def stamp_append_time(batch: bytearray, now_ms: int) -> None:
    """Set the append time of every record of a batch, as the log does, and seal the batch."""
    header = read_header(batch)
    write_header(batch, header._replace(attributes=header.attributes | APPEND_TIME, max_time_ms=now_ms))
    seal(batch)


def patched(batch: bytearray, code: str, at: int, value: int) -> bytearray:
    """A copy of a batch with one number changed and a valid checksum."""
    changed = bytearray(batch)
    pack_into(code, changed, at, value)
    seal(changed)
    return changed


def a_changed_batch(changes: Mapping[str, int], codec: Codec = Codec.NONE) -> bytearray:
    """A valid batch of three records with some header fields replaced and a valid checksum."""
    batch = encode_batch(some_records(3), codec=codec)
    write_header(batch, read_header(batch)._replace(**changes))
    seal(batch)
    return batch


# Values at and near every limit of the rules.
_FIELDS = {
    "length": st.integers(-(2**31), 2**31 - 1) | st.integers(40, 140),
    "magic": st.sampled_from([0, 1, 2, 3]),
    "attributes": st.integers(0, 0x3F),
    "last_delta": st.integers(-2, 4),
    "producer_id": st.integers(-2, 2),
    "producer_epoch": st.integers(-2, 2),
    "producer_sequence": st.integers(-2, 2),
    "record_count": st.integers(-2, 4),
}
HEADER_CHANGES: st.SearchStrategy[dict[str, int]] = st.lists(
    st.sampled_from(sorted(_FIELDS)), max_size=3, unique=True
).flatmap(lambda names: st.fixed_dictionaries({name: _FIELDS[name] for name in names}))
