"""Rows of the sink to record batches, without Spark."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.pipeline.encode import BATCH_BYTES, Row, Segment, UnwritableRows, read_rows
from hubmere.records.header import read_header, seal
from hubmere.records.records import decode_records, encode_batch
from hubmere.translate.columns import record_of

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
