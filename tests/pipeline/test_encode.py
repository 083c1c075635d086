"""Rows of the sink to record batches, without Spark."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.pipeline.encode import BATCH_BYTES, Row, Segment, UnwritableRows, read_rows
from hubmere.records import kernels
from hubmere.records.header import read_header, seal
from hubmere.records.records import Record, decode_records, encode_batch
from hubmere.translate.columns import row_of
from hubmere.wire.amqp.codec.decode import decode_value
from hubmere.wire.amqp.codec.message import split_message
from translate.builders import record_of

NOW_MS = 1_700_000_000_000
MAP = pa.map_(pa.string(), pa.string())
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ROWS = st.builds(
    Row,
    st.none() | st.binary(max_size=300),
    st.none() | TEXTS,
    st.none(),
    st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=3).map(tuple),
)


def sealed(batch: bytearray) -> bytes:
    """A batch as the producer sends it, but for its number."""
    seal(batch)
    return bytes(batch)


@given(st.lists(ROWS, min_size=1, max_size=20))
def test_batch_is_the_same_as_from_records(rows: list[Row]) -> None:
    """The same rows must give the same bytes in every version, or a repeat after an upgrade would be no repeat."""
    segment = Segment(NOW_MS)
    for row in rows:
        segment.add(0, row)

    records = [record_of(index, row.body, row.partition_key, row.properties) for index, row in enumerate(rows)]
    expected = encode_batch([record._replace(time_ms=NOW_MS) for record in records])

    assert [(partition, sealed(batch)) for partition, batch in segment.close_all()] == [(0, bytes(expected))]


def only_record(row: Row) -> Record:
    """The record of a row, as a reader gets it."""
    segment = Segment(NOW_MS)
    segment.add(0, row)
    ((_, batch),) = segment.close_all()
    (record,) = decode_records(sealed(batch))
    return record


@given(
    body=st.none() | st.binary(max_size=50),
    key=st.none() | TEXTS,
    properties=st.dictionaries(TEXTS, TEXTS, max_size=4),
)
def test_row_becomes_an_event_that_is_equal_for_every_reader(
    body: bytes | None, key: str | None, properties: dict[str, str]
) -> None:
    """Spark and AMQP receivers read what a query has written."""
    record = only_record(Row(body, key, None, tuple(properties.items())))
    headers = [(name.encode(), content) for name, content in record.headers]

    row = row_of(record.key, record.value, headers)
    sections = split_message(kernels.message_of(record.key, record.value, headers))

    assert (row.partition_key, row.properties) == (key, properties)
    annotations = decode_value(sections.message_annotations.value_bytes)[0] if sections.message_annotations else {}
    assert annotations.get("x-opt-partition-key") == key
    application = sections.application_properties
    assert (decode_value(application.value_bytes)[0] if application else {}) == properties


def test_property_without_a_value_is_null() -> None:
    """Spark's maps may hold null."""
    record = only_record(Row(b"x", None, None, (("a", None),)))

    row = row_of(record.key, record.value, [(name.encode(), content) for name, content in record.headers])

    assert row.properties == {"a": "null"}


def test_batches_stay_below_their_limit_and_keep_the_order() -> None:
    """Small records: more than the tables of encoded numbers have entries."""
    segment = Segment(NOW_MS)
    for number in range(40_000):
        segment.add(number % 2, Row(b"%d" % number, None, None, ()))

    batches = segment.close_all()

    assert max(len(batch) for _, batch in batches) <= BATCH_BYTES
    assert max(read_header(batch).record_count for _, batch in batches) > 4096
    for wanted in range(2):
        records = [
            record for partition, batch in batches if partition == wanted for record in decode_records(sealed(batch))
        ]
        assert [int(record.value or b"") for record in records] == list(range(wanted, 40_000, 2))


def test_rows_of_a_slice_have_their_own_properties() -> None:
    """Spark may pass slices, whose maps share their keys and items with the rest."""
    maps = pa.array([[("a", "1")], [], [("b", None), ("c", "3")], [("d", "4")]], MAP)
    batch = pa.record_batch([pa.array([b"0", b"1", b"2", b"3"]), maps], ["body", "properties"]).slice(1, 2)

    rows = list(read_rows([batch], ("body", "properties")))

    assert rows == [Row(b"1", None, None, ()), Row(b"2", None, None, [("b", None), ("c", "3")])]


def test_null_maps_and_text_bodies_are_read() -> None:
    """A null map has no properties."""
    batch = pa.record_batch(
        [pa.array(["ü", None]), pa.array([None, [("a", "1")]], MAP), pa.array([1, None])],
        ["body", "properties", "partition"],
    )

    rows = list(read_rows([batch], ("body", "partition", "properties")))

    assert rows == [Row("ü".encode(), None, 1, ()), Row(None, None, None, [("a", "1")])]


@pytest.mark.parametrize("partition", ["x", "-1", "1.5"])
def test_partition_that_is_no_number_is_refused(partition: str) -> None:
    """The error names the value."""
    batch = pa.record_batch([pa.array([b"0"]), pa.array([partition])], ["body", "partition"])

    with pytest.raises(UnwritableRows, match=f"'{partition}' is not a partition"):
        list(read_rows([batch], ("body", "partition")))
