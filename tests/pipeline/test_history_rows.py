"""Rows of captured files equal those of the log, for every publisher and every encoding."""

import io
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.files.avro import AvroFile, Records, RecordsLike
from hubmere.pipeline.capture.files.content import ParquetFile
from hubmere.pipeline.capture.files.originals import TIME, pack, unpack
from hubmere.pipeline.decode import SCHEMA, visible_batches
from hubmere.pipeline.history.rows import read_rows
from hubmere.records.records import Record, encode_batch
from hubmere.translate import publication_from_amqp
from pipeline.batches import NOW_MS, decoded, fetched, kafka_batch, plain, rows, stored
from pipeline.capture.test_avro import BLOBS, HEADERS, KINDS, PROPERTIES, TEXTS, events
from pipeline.twin import compiled_twins
from translate.builders import annotations, application_properties, compound, data, record_of, section, text

PARTITION, POSITION = 3, 5000
TWINS: list[Callable[[], RecordsLike]] = [Records, lambda: compiled_twins().Records()]
ENCODINGS = [CaptureEncoding.AVRO, CaptureEncoding.AVRO_DEFLATE, CaptureEncoding.PARQUET]


def captured(encoding: CaptureEncoding, batches: Sequence[bytes], twin: Callable[[], RecordsLike] = Records) -> bytes:
    """The file of some batches."""
    sink = io.BytesIO()
    file: AvroFile | ParquetFile
    if encoding is CaptureEncoding.PARQUET:
        file = ParquetFile(sink, "id/3/0-9", PARTITION, "the-hub")
    else:
        deflates = encoding is CaptureEncoding.AVRO_DEFLATE
        file = AvroFile(sink, "n", "id/3/0-9", deflates=deflates, hub_id="the-hub", records_of=twin)
    for batch in visible_batches(fetched(*batches, position=POSITION), 0, 1 << 40):
        file.add(batch, PARTITION, 0, 1 << 40)
    file.close()
    return sink.getvalue()


def assert_same_rows(batches: Sequence[bytes], encodings: Sequence[CaptureEncoding] = tuple(ENCODINGS)) -> None:
    """Files of every encoding give the rows of the log, in all nine columns."""
    expected = decoded(*batches, position=POSITION)
    for encoding in encodings:
        for twin in TWINS if encoding is not CaptureEncoding.PARQUET else TWINS[:1]:
            content = io.BytesIO(captured(encoding, batches, twin))
            name = "f.parquet" if encoding is CaptureEncoding.PARQUET else "f.avro"
            found = list(read_rows(name, content, PARTITION, 0, 1 << 40))
            assert all(batch.schema == SCHEMA for batch in found)
            assert rows(found) == expected, encoding


def amqp_event(*sections: bytes) -> bytes:
    return stored(publication_from_amqp(b"".join(sections), 0).batch, 0)


def test_amqp_event_with_every_kind_of_value_is_read_back() -> None:
    """The service's schema has four kinds of values and AMQP has many more; binary must not become a Kafka header."""
    properties = [(name, value) for name, (value, _) in KINDS.items()]
    batch = amqp_event(
        annotations(("x-opt-partition-key", text("k")), ("x-opt-publisher", text("p"))),
        section(0x73, compound(0xC0, [text("m-1"), b"\xa0\x02\x00\xff"])),
        application_properties(*properties, ("nothing", b"\x40")),
        data(b"body"),
    )

    assert_same_rows([batch])


def test_times_of_events_keep_their_milliseconds() -> None:
    """Times are within a second, across seconds, decreasing (as producers may write them), and before 1970."""
    times = [0, 5, 5, 999, 1000, 1000, 1001, 3000, 2500, 2500, -1, -1500]
    records = [Record(index, NOW_MS + delta, None, b"x") for index, delta in enumerate(times)]
    batch = bytes(encode_batch(records))
    old = bytes(encode_batch([Record(0, -1, None, b"y"), Record(1, -86_400_001, None, b"z")]))

    assert_same_rows([batch])
    assert_same_rows([old])


def test_time_is_stored_only_if_it_is_not_a_whole_second() -> None:
    """A batch has one time: its first event stores it, and a file grows by some bytes for each batch."""
    found = events(captured(CaptureEncoding.AVRO, [kafka_batch(plain(3)), kafka_batch(plain(2), base=3)]))

    assert [event["SystemProperties"] for event in found] == [{TIME: NOW_MS}, {}, {}, {}, {}]


def test_names_of_our_own_properties_may_be_used_by_publishers() -> None:
    """A publisher with an annotation of such a name gets it back, and the time does not change."""
    batch = amqp_event(annotations((TIME, b"\x81" + bytes(8)), ("x-hubmere-record", text("mine"))), data(b"b"))

    assert_same_rows([batch])


KAFKA_RECORDS = st.builds(
    lambda key, value, headers, delta: (key, value, headers, delta),
    BLOBS, BLOBS, HEADERS, st.integers(-5_000, 5_000),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(KAFKA_RECORDS, min_size=1, max_size=6))
def test_any_kafka_record_is_read_back(
    given_records: list[tuple[bytes | None, bytes | None, tuple[object, ...], int]],
) -> None:
    """There are any key, headers with repeated names, nulls and invalid UTF-8; each has its own time."""
    records = [
        Record(index, NOW_MS + delta, key, value, headers)  # type: ignore[arg-type]
        for index, (key, value, headers, delta) in enumerate(given_records)
    ]

    assert_same_rows([bytes(encode_batch(records))])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | TEXTS, PROPERTIES), min_size=1, max_size=5))
def test_any_row_that_spark_wrote_is_read_back(
    given_rows: list[tuple[bytes | None, str | None, dict[str, str | None]]],
) -> None:
    """Events have a partition key and text properties, like most events."""
    records = [record_of(index, body, key, props.items()) for index, (body, key, props) in enumerate(given_rows)]

    assert_same_rows([stored(encode_batch(records), 0)])


@given(BLOBS, st.lists(st.tuples(st.binary(max_size=9), BLOBS), max_size=4))
def test_packed_record_can_be_unpacked(key: bytes | None, headers: list[tuple[bytes, bytes | None]]) -> None:
    """Key and headers are exact, with any content."""
    assert unpack(pack(key, headers)) == (key, headers)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("start", "end"), [(0, 3), (2500, 2600), (7990, 9000), (4000, 4000), (9000, 9999)])
def test_part_of_a_file_is_read(encoding: CaptureEncoding, start: int, end: int) -> None:
    """Tasks split ranges anywhere; blocks and row groups outside of their range are skipped."""
    batches = [
        kafka_batch([Record(index, NOW_MS, None, b"%d " % index + b"x" * 500) for index in range(100)], base=base)
        for base in range(0, 8000, 100)
    ]
    name = "f.parquet" if encoding is CaptureEncoding.PARQUET else "f.avro"

    found = rows(read_rows(name, io.BytesIO(captured(encoding, batches)), PARTITION, start, end))

    assert [row["sequenceNumber"] for row in found] == list(range(start, min(end, 8000)))
