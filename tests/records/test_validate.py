"""The validation of produced records: refusals, both implementations, and that accepted records can be decoded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.records import kernels, validate
from hubmere.records.compression import Codec, compress
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import HEADER_BYTES
from hubmere.records.records import Record, decode_records, encode_batch
from hubmere.records.validate import RecordFault, check_records, first_fault, first_fault_interpreted, is_readable

_FORMS = [first_fault_interpreted, *([first_fault] if first_fault is not first_fault_interpreted else [])]
_REAL = [codec for codec in Codec if codec is not Codec.NONE]


def records_of(*values: bytes, key: bytes | None = b"k") -> bytes:
    """The uncompressed records of a valid batch."""
    records = [Record(n, 1_000 + n, key, value, (("name", b"x"), ("none", None))) for n, value in enumerate(values)]
    return bytes(encode_batch(records)[HEADER_BYTES:])


def faults_of(body: bytes, count: int, *, keys_required: bool = False) -> list[validate.Fault | None]:
    """The faults that each implementation reports."""
    return [form(body, 0, len(body), count, keys_required) for form in _FORMS]


def test_valid_records_pass() -> None:
    """The ordinary case has keys, values, headers and a null header value."""
    body = records_of(b"one", b"", b"three" * 100)

    assert set(faults_of(body, 3)) == {None}


# Each row has a name, the bytes, the count in the header, and the expected fault.
_PLAIN = b"\x0e\x00\x00\x00\x01\x02a\x00"
_BROKEN = [
    ("fewer records than the count", _PLAIN, 2, 1, RecordFault.VARINT),
    ("more records than the count", _PLAIN + b"\x0e\x00\x00\x02\x01\x02a\x00", 1, 1, RecordFault.TRAILING),
    ("a record longer than the batch", b"\x7e" + _PLAIN[1:], 1, 0, RecordFault.LENGTH),
    ("a record of negative length", b"\x01" + _PLAIN[1:], 1, 0, RecordFault.LENGTH),
    ("an offset delta that is not the index", b"\x0e\x00\x00\x06\x01\x02a\x00", 1, 0, RecordFault.DELTA),
    ("a value longer than its record", b"\x0e\x00\x00\x00\x01\x7ea\x00", 1, 0, RecordFault.BLOB),
    ("a key of length -2", b"\x0e\x00\x00\x00\x03\x02a\x00", 1, 0, RecordFault.BLOB),
    ("a negative header count", b"\x0e\x00\x00\x00\x01\x02a\x01", 1, 0, RecordFault.HEADERS),
    ("more headers than the record holds", b"\x0e\x00\x00\x00\x01\x02a\x08", 1, 0, RecordFault.VARINT),
    ("a header without a name", b"\x12\x00\x00\x00\x01\x02a\x02\x01\x01", 1, 0, RecordFault.BLOB),
    ("bytes behind the fields of a record", b"\x10\x00\x00\x00\x01\x02a\x00\x00", 1, 0, RecordFault.END),
    ("a varint of more than 32 bits", b"\xff\xff\xff\xff\x7f", 1, 0, RecordFault.VARINT),
    ("a count of zero", b"", 0, 0, RecordFault.COUNT),
    ("a count beyond every limit", _PLAIN, kernels.MAX_RECORDS + 1, 0, RecordFault.COUNT),
]


@pytest.mark.parametrize(
    ("body", "count", "index", "reason"), [row[1:] for row in _BROKEN], ids=[r[0] for r in _BROKEN]
)
def test_malformed_records_are_reported_with_index_and_reason(body: bytes, count: int, index: int, reason: int) -> None:
    """The error names the record and the reason."""
    assert set(faults_of(body, count)) == {(index, reason)}


def test_record_without_a_key_is_reported_where_keys_are_required() -> None:
    """Compaction keeps the newest record of each key, so each record needs one."""
    body = records_of(b"one", key=None)

    assert set(faults_of(body, 1, keys_required=True)) == {(0, RecordFault.NO_KEY)}
    assert set(faults_of(body, 1)) == {None}


def test_gaps_of_compaction_are_accepted_in_a_stored_batch() -> None:
    """Offset deltas must still increase."""
    records = [Record(offset, 1_000, b"k", b"v") for offset in (0, 3, 7)]
    kept = encode_batch(records)
    unordered = encode_batch([records[1], records[0]], base_sequence_number=0)

    assert validate.why_unreadable(kept, HEADER_BYTES, 0, 3) is None
    assert "does not follow" in (validate.why_unreadable(unordered, HEADER_BYTES, 0, 2) or "")
    body = bytes(kept[HEADER_BYTES:])
    assert {form(body, 0, len(body), 3, False, False) for form in _FORMS} == {None}


@pytest.mark.parametrize("codec", _REAL)
def test_garbage_marked_as_compressed_is_refused(codec: Codec) -> None:
    """The checksum of such a batch is valid, so no other check detects it."""
    garbage = b"this is no compressed data at all"

    with pytest.raises(UnreadableRecords):
        check_records(garbage, 0, len(garbage), codec, 1)
    assert not is_readable(garbage, 0, len(garbage), codec, 1)


@pytest.mark.parametrize("codec", _REAL)
def test_compression_bomb_is_refused(codec: Codec) -> None:
    """A few kilobytes must not use all of the memory."""
    bomb = compress(codec, bytes(80 * 1024 * 1024))

    assert not is_readable(bomb, 0, len(bomb), codec, 1)


@pytest.mark.parametrize("codec", _REAL)
def test_false_count_in_a_compressed_batch_is_refused(codec: Codec) -> None:
    """The client writes the count in the header, so it must be checked."""
    packed = compress(codec, records_of(b"one", b"two"))

    with pytest.raises(UnreadableRecords, match="bytes follow the last record"):
        check_records(packed, 0, len(packed), codec, 1)
    check_records(packed, 0, len(packed), codec, 2)


@settings(max_examples=400, deadline=None)
@given(
    values=st.lists(st.binary(max_size=200), min_size=1, max_size=4),
    at=st.integers(0, 10_000),
    byte=st.integers(0, 255),
    extra=st.integers(-2, 2),
)
def test_both_implementations_agree_and_accepted_records_can_be_decoded(
    values: list[bytes], at: int, byte: int, extra: int
) -> None:
    """An accepted batch never stops a reader: both the AMQP encoder and the record decoder can read it."""
    body = bytearray(records_of(*values))
    body[at % len(body)] = byte
    count = len(values) + extra

    found = faults_of(bytes(body), count)

    assert len(set(found)) == 1
    if found[0] is None:
        messages, _ = kernels.encode_messages(bytes(body), 0, count, count - 1, 0, 0, len(body) + 61, 1_000, False)
        assert len(messages) == count
        batch = encode_batch([Record(n, 0, None, b"") for n in range(count)])[:HEADER_BYTES] + body
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        assert len(decode_records(batch)) == count
