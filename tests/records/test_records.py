"""Record batches: bytes written by hand, bytes of other builders, validation, and markers."""

import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.records.compression import Codec
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import (
    APPEND_TIME,
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    is_intact,
    read_header,
    split_batches,
)
from hubmere.records.records import Marker, Record, decode_records, encode_batch, encode_marker, read_marker
from hubmere.records.validate import find_broken_rule
from records import librdkafka_batches
from records.builders import a_record, patched, some_records
from records.foreign import AioBatch, AioBuilder, KafkaPythonBuilder, KafkaPythonRecords

_BLOB = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=10), _BLOB), max_size=3).map(tuple)


# --- layout ----------------------------------------------------------------------------------------------------------


def test_batch_has_the_bytes_of_the_specification() -> None:
    """The header has 61 bytes; the record has 1-byte varints, a key, a null value and one header."""
    record = a_record(7, time_ms=1000, key=b"k", value=None, headers=(("h", b""),))

    batch = encode_batch([record], base_sequence_number=7, leader_epoch=2)

    assert batch[:12] == bytes.fromhex("0000000000000007 0000003c")
    assert batch[12:17] == bytes.fromhex("00000002 02")
    assert batch[21:61] == bytes.fromhex(
        "0000 00000000 00000000000003e8 00000000000003e8 ffffffffffffffff ffff ffffffff 00000001"
    )
    assert batch[61:] == bytes.fromhex("14 00 00 00 02 6b 01 02 02 68 00")
    assert batch[17:21] == struct.pack(">I", crc32c(batch[21:]))


def test_header_names_every_field() -> None:
    """The positions are those of Kafka's definition."""
    batch = encode_batch(
        some_records(3),
        leader_epoch=4,
        codec=Codec.GZIP,
        attributes=TRANSACTIONAL,
        producer_id=99,
        producer_epoch=3,
        producer_sequence=12,
    )

    header = read_header(batch)

    assert header == BatchHeader(
        base_sequence_number=0,
        length=len(batch) - 12,
        leader_epoch=4,
        magic=2,
        crc=header.crc,
        attributes=0x11,
        last_delta=2,
        base_time_ms=1_700_000_000_000,
        max_time_ms=1_700_000_000_002,
        producer_id=99,
        producer_epoch=3,
        producer_sequence=12,
        record_count=3,
    )
    assert (header.codec, header.is_transactional, header.is_control) == (Codec.GZIP, True, False)
    assert (header.size_bytes, header.next_sequence_number, header.is_append_time) == (len(batch), 3, False)
    assert is_intact(batch)


@settings(deadline=None)
@given(
    st.lists(st.tuples(_BLOB, _BLOB, _HEADERS, st.integers(-(2**40), 2**40)), min_size=1, max_size=5),
    st.sampled_from(Codec),
    st.integers(0, 2**40),
)
def test_records_survive_a_round_trip(rows: list[Any], codec: Codec, base_sequence_number: int) -> None:
    """Keys, values and headers keep their values, null and empty differ, in any codec and at any offset."""
    records = [
        Record(base_sequence_number + index, 1_700_000_000_000 + delta_ms, key, value, headers)
        for index, (key, value, headers, delta_ms) in enumerate(rows)
    ]

    batch = encode_batch(records, base_sequence_number=base_sequence_number, codec=codec)

    assert decode_records(batch) == records


def test_long_batch_survives_a_round_trip() -> None:
    """Offsets and times far from the first ones take more than one byte."""
    records = [a_record(index, time_ms=1_700_000_000_000 + index * 1000) for index in range(300)]

    assert decode_records(encode_batch(records)) == records


def test_append_time_is_the_time_of_every_record() -> None:
    """LogAppendTime: max_timestamp is the time of all records."""
    batch = patched(encode_batch(some_records(2), attributes=APPEND_TIME), ">q", 35, 1_800_000_000_000)

    records = decode_records(batch)

    assert [record.time_ms for record in records] == [1_800_000_000_000] * 2


def test_compacted_batch_keeps_its_range_of_offsets() -> None:
    """Records may be removed, but offsets do not change, and the last offset of the batch stays the same."""
    kept = [a_record(11), a_record(13)]

    batch = encode_batch(kept, base_sequence_number=10, last_delta=9)

    assert decode_records(batch) == kept
    assert read_header(batch).next_sequence_number == 20
    assert decode_records(encode_batch([], base_sequence_number=10, last_delta=9)) == []


def test_header_key_that_is_not_text_does_not_hide_the_record() -> None:
    """Kafka's own readers replace invalid UTF-8."""
    batch = bytearray(encode_batch([a_record(headers=(("k", b"v"),))]))
    batch[-3:-2] = b"\xff"

    (record,) = decode_records(batch)

    assert record.headers == (("\N{REPLACEMENT CHARACTER}", b"v"),)


# --- foreign bytes ---------------------------------------------------------------------------------------------------

_FOREIGN_ROWS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b"value", [("header", b"1"), ("header", b"2"), ("none", None)]),
    (None, b"", []),
    (b"", None, []),
    (b"k" * 200, b"v" * 40_000, [("long", b"x" * 300)]),
]
_FOREIGN_RECORDS = [
    Record(index, 1_700_000_000_000 + index, key, value, tuple(headers))
    for index, (key, value, headers) in enumerate(_FOREIGN_ROWS)
]


def _built_by(builder_type: Any, codec: Codec) -> bytes:
    builder = builder_type(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=5,
        producer_epoch=1,
        base_sequence=8,
        batch_size=1 << 20,
    )
    for record in _FOREIGN_RECORDS:
        builder.append(record.sequence_number, record.time_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_batch_from_aiokafka_is_read(codec: Codec) -> None:
    """Its builder is written in Cython and frames the codecs in its own way."""
    batch = _built_by(AioBuilder, codec)

    records = decode_records(batch)

    assert records == _FOREIGN_RECORDS
    assert find_broken_rule(batch) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_batch_from_kafka_python_is_read(codec: Codec) -> None:
    """Its builder is written in Python and is independent of the other one."""
    batch = _built_by(KafkaPythonBuilder, codec)

    records = decode_records(batch)

    assert records == _FOREIGN_RECORDS
    assert find_broken_rule(batch) is None


@pytest.mark.parametrize("codec", Codec)
def test_batch_from_librdkafka_is_read(codec: Codec) -> None:
    """These are recorded bytes of the client that most languages use, in every codec."""
    batch = librdkafka_batches.BATCHES[codec]

    records = decode_records(batch)

    assert read_header(batch).codec == codec
    assert records == librdkafka_batches.RECORDS
    assert find_broken_rule(batch) is None


def test_our_uncompressed_batch_equals_that_of_librdkafka() -> None:
    """All bytes are equal, except the fields that a broker sets."""
    theirs = librdkafka_batches.BATCHES[Codec.NONE]

    ours = encode_batch(librdkafka_batches.RECORDS)

    assert ours[:12] == theirs[:12]
    assert decode_records(ours) == decode_records(theirs)
    assert ours[HEADER_BYTES:] == theirs[HEADER_BYTES:]


def test_our_uncompressed_batch_equals_that_of_aiokafka() -> None:
    """All bytes are equal, since there is only one encoding of these records."""
    theirs = _built_by(AioBuilder, Codec.NONE)

    ours = encode_batch(_FOREIGN_RECORDS, producer_id=5, producer_epoch=1, producer_sequence=8)

    # The broker sets the base offset before the length and the leader epoch after it.
    assert ours[16:] == theirs[16:]
    assert ours[8:12] == theirs[8:12]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_our_batch_is_read_by_aiokafka(codec: Codec) -> None:
    """Other clients can decompress what we compress."""
    batch = AioBatch(bytes(encode_batch(_FOREIGN_RECORDS, codec=codec)))

    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == _FOREIGN_RECORDS


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_our_batches_are_read_by_kafka_python(codec: Codec) -> None:
    """There are two batches one after the other, as in a fetch response."""
    record_set = bytes(encode_batch(_FOREIGN_RECORDS, codec=codec) * 2)

    read = KafkaPythonRecords(record_set)

    for _ in range(2):
        batch = read.next_batch()
        assert batch.validate_crc()
        assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == _FOREIGN_RECORDS


# --- record sets -----------------------------------------------------------------------------------------------------


def test_record_set_is_split_into_views_of_its_batches() -> None:
    """Splitting uses only the lengths."""
    one, two = encode_batch(some_records(1)), encode_batch(some_records(2), base_sequence_number=0)

    batches = list(split_batches(one + two))

    assert batches == [one, two]


@pytest.mark.parametrize("left", [1, 11, 12, 61, 62])
def test_incomplete_batch_at_the_end_is_refused(left: int) -> None:
    """The batches before it are still returned."""
    one, two = encode_batch(some_records(1)), encode_batch(some_records(2))
    record_set = one + two[:left]

    batches = split_batches(record_set)

    assert next(batches) == one
    with pytest.raises(UnreadableRecords, match=f"with {left} bytes left"):
        next(batches)


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_batch_shorter_than_its_header_is_refused(length: int) -> None:
    """A length of zero must not cause an endless loop."""
    batch = patched(encode_batch(some_records(1)), ">i", 8, length)

    with pytest.raises(UnreadableRecords):
        list(split_batches(batch))


# --- broken records --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        "",  # a record is missing
        "0e 00 00 00 01 01",  # the record is shorter than its length
        "0e 00 00 00 01 01 00 00",  # a byte remains in the record
        "0c 00 00 00 01 01 00 00",  # a byte remains after the record
        "01 00 00 00 01 01 00",  # the length is negative
        "0c 00 00 00 04 61 62",  # the record ends after the key
        "0c 00 00 00 7e 01 00",  # the key ends beyond the record
        "0c 00 00 00 01 01 7e",  # there are more headers than bytes
        "0c 00 00 00 01 01 01",  # the number of headers is negative
        "10 00 00 00 01 01 02 01 01",  # a header has no key
        "0c 00 ff ff ff ff ff",  # a varint does not end
    ],
)
def test_malformed_record_is_refused(payload: str) -> None:
    """Every length inside a record is compared with the record's end."""
    header = bytearray(encode_batch(some_records(1))[:HEADER_BYTES])
    batch = header + bytes.fromhex(payload)
    struct.pack_into(">i", batch, 8, len(batch) - 12)

    with pytest.raises(UnreadableRecords):
        decode_records(batch)


@pytest.mark.parametrize(("code", "at", "value"), [(">b", 16, 1), (">i", 8, 7), (">i", 57, 2**31 - 1), (">i", 57, -1)])
def test_batch_with_inconsistent_header_is_not_decoded(code: str, at: int, value: int) -> None:
    """Magic, length and count are checked before the first record is decoded."""
    batch = patched(encode_batch(some_records(2)), code, at, value)

    with pytest.raises(UnreadableRecords):
        decode_records(batch)


def test_data_shorter_than_a_header_is_refused() -> None:
    """A header has 61 bytes."""
    with pytest.raises(UnreadableRecords, match="61"):
        decode_records(bytes(60))


# --- markers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_survives_a_round_trip(is_commit: bool) -> None:
    """The end of a transaction is a control batch of one record."""
    marker = Marker(producer_id=7, producer_epoch=2, is_commit=is_commit, coordinator_epoch=5)

    batch = encode_marker(marker, time_ms=1000, base_sequence_number=40)

    header = read_header(batch)
    assert read_marker(batch) == marker
    assert (header.is_control, header.is_transactional, header.base_sequence_number) == (True, True, 40)
    (record,) = decode_records(batch)
    assert record.key == bytes([0, 0, 0, int(is_commit)])
    assert record.value == bytes.fromhex("0000 00000005")


def test_control_record_of_another_kind_is_not_a_marker() -> None:
    """Kafka's own logs contain other control records, which readers skip."""
    batch = encode_batch([a_record(key=bytes.fromhex("00000002"))], attributes=CONTROL)

    assert read_marker(batch) is None


@pytest.mark.parametrize(
    ("key", "value", "attributes"),
    [
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", 0),
        (None, b"\x00\x00\x00\x00\x00\x00", CONTROL),
        (b"\x00", b"\x00\x00\x00\x00\x00\x00", CONTROL),
        (b"\x00\x00\x00\x01", None, CONTROL),
        (b"\x00\x00\x00\x01", b"\x00", CONTROL),
    ],
)
def test_malformed_marker_is_refused(key: bytes | None, value: bytes | None, attributes: int) -> None:
    """A marker decides the outcome of a transaction, so its content must be certain."""
    batch = encode_batch([a_record(key=key, value=value)], attributes=attributes)

    with pytest.raises(UnreadableRecords):
        read_marker(batch)
