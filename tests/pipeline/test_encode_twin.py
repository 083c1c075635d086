"""The interpreted and the compiled encoder of the sink give the same batches for any rows."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hubmere.model.errors import InvalidArgument
from hubmere.pipeline.encode import Encoder, Row, Spread, UnwritableRows, group_rows, new_segment
from pipeline.twin import compiled_encoder

NOW_MS = 1_700_000_000_000
PARTITIONS = 3
MAP = pa.map_(pa.string(), pa.string())
COLUMNS = ("body", "partitionKey", "partition", "partitionId", "properties")
# Lengths around those at which a varint, a string or a key changes its form.
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.integers(60, 300).map("ü".__mul__)
KEYS = st.text(st.characters(codec="utf-8"), max_size=128)
BODIES = st.none() | st.binary(max_size=70) | st.sampled_from([63, 64, 8191, 8192, 200_000]).map(bytes)
PROPERTIES = st.none() | st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=70)
TARGETS = st.sampled_from([(None, None, None), ("k", None, None), (None, "2", None), (None, None, 1), (None, "0", 1)])
ROWS = st.tuples(BODIES, TARGETS, st.none() | KEYS, PROPERTIES)
# What a segment holds in these tests: a few rows, so that every group fills several.
FULL_BYTES = 3_000

Segments = list[list[tuple[int, bytearray]]]


def arrow(rows: list[tuple[Any, ...]], body: pa.DataType) -> pa.RecordBatch:
    """Rows of body, key, two partitions and properties, as Spark passes them."""
    types = (body, pa.string(), pa.string(), pa.int64(), MAP)
    columns = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(types)]
    return pa.record_batch(columns, list(COLUMNS))


def encoded(
    batches: list[pa.RecordBatch], encoder: Encoder | None, columns: tuple[str, ...] = COLUMNS
) -> tuple[Segments, int]:
    """All segments with one of the encoders, and the partition whose turn is next."""
    spread, segments = Spread(PARTITIONS, 1), []
    segment = new_segment(NOW_MS, encoder)
    for group in group_rows(batches, columns, encoder):
        while group.move_to(segment, spread, FULL_BYTES):
            if segment.size_bytes >= FULL_BYTES:
                segments.append(segment.close_all())
                segment = new_segment(NOW_MS, encoder)
    return [*segments, segment.close_all()], spread.turn


def assert_same(batches: list[pa.RecordBatch], columns: tuple[str, ...] = COLUMNS) -> None:
    assert encoded(batches, compiled_encoder(), columns) == encoded(batches, None, columns)


@settings(deadline=None)
@given(rows=st.lists(ROWS, max_size=12), cut=st.integers(0, 12))
@example(rows=[(b"x", ("k", None, None), "ü" * 128, [("a" * 64, None), ("", "b" * 256)])] * 3, cut=1)
def test_any_rows_give_the_same_batches(rows: list[Any], cut: int) -> None:
    """Rows have bodies, keys and properties of any length, or none; Spark may pass slices."""
    columns = [
        (body, key if target[0] is not None else None, *target[1:], properties)
        for body, target, key, properties in rows
    ]
    batch = arrow(columns, pa.binary())

    assert_same([batch, batch.slice(cut)])


@settings(deadline=None)
@given(bodies=st.lists(st.none() | TEXTS, min_size=1, max_size=12), start=st.integers(0, 12))
def test_texts_give_the_same_batches(bodies: list[str | None], start: int) -> None:
    """A body may be a text, and the only column."""
    batch = pa.record_batch([pa.array(bodies, pa.string())], ["body"])

    assert_same([batch.slice(start)], ("body",))


@settings(deadline=None)
@given(keys=st.lists(st.text(st.characters(codec="utf-8"), max_size=128), min_size=1, max_size=20))
def test_key_selects_the_same_partition(keys: list[str]) -> None:
    """Keys of any length: the hash reads 12 bytes at a time, so that the last piece may be full or short."""
    assert_same(
        [arrow([(b"", key, None, None, None) for key in [*keys, *("k" * size for size in range(40))]], pa.binary())]
    )


def test_other_arrow_types_are_written() -> None:
    """A setting of Spark makes offsets of 64 bits."""
    batch = pa.record_batch(
        [pa.array([b"a", None], pa.large_binary()), pa.array(["k", None], pa.large_string())], ["body", "partitionKey"]
    )

    assert_same([batch], ("body", "partitionKey"))


def test_many_rows_fill_batches_to_the_same_limit() -> None:
    """Batches and segments end at the same row."""
    encoder = compiled_encoder()
    batch = pa.record_batch([pa.array([b"%d" % number * 100 for number in range(20_000)])], ["body"])
    found = []
    for each in (encoder, None):
        segment, spread = new_segment(NOW_MS, each), Spread(2, 0)
        (group,) = group_rows([batch], ("body",), each)
        moved = [group.move_to(segment, spread, 4 << 20), group.move_to(segment, spread, 8 << 20)]
        found.append((moved, segment.size_bytes, segment.close_all()))

    assert found[0] == found[1]
    assert len(found[0][2]) > 20


def test_row_of_spark_is_added_between_arrow_batches() -> None:
    """Both kinds of groups write to the same segment."""
    row = Row(b"row", "key", None, (("a", "1"), ("b", None)))
    batches = []
    for encoder in (compiled_encoder(), None):
        segment = new_segment(NOW_MS, encoder)
        segment.add(1, Row(b"first", None, None, ()))
        segment.add(1, row)
        segment.add(0, Row(None, None, None, ()))
        batches.append(segment.close_all())

    assert batches[0] == batches[1]


@pytest.mark.parametrize(
    ("row", "refused", "message"),
    [
        ((b"x", "k", "1", None, None), UnwritableRows, "both a partition .'1'. and a partition key .'k'."),
        ((b"x", None, "x", None, None), UnwritableRows, "'x' is not a partition"),
        ((b"x", None, None, -1, None), UnwritableRows, "'-1' is not a partition"),
        ((b"x", None, None, PARTITIONS, None), UnwritableRows, "there is no partition 3; the hub has 3"),
        ((b"x", None, "9" * 30, None, None), UnwritableRows, "there is no partition 9+; the hub has 3"),
        ((b"x", "k" * 129, None, None, None), InvalidArgument, "at most 128 characters"),
    ],
)
def test_both_refuse_the_same_rows(row: tuple[Any, ...], refused: type[Exception], message: str) -> None:
    """The error names the value."""
    for encoder in (compiled_encoder(), None):
        with pytest.raises(refused, match=message):
            encoded([arrow([row], pa.binary())], encoder)


@pytest.mark.parametrize("column", ["body", "partitionKey", "properties"])
def test_both_refuse_invalid_texts(column: str) -> None:
    """Spark casts any bytes to text without a check."""
    texts = pa.array([b"good", b"\xff\xfe"], pa.binary()).view(pa.string())
    good = pa.array(["a", "b"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), good, texts if column == "properties" else good)
    batch = pa.record_batch(
        [texts if column == "body" else good, texts if column == "partitionKey" else good, maps],
        ["body", "partitionKey", "properties"],
    )
    for encoder in (compiled_encoder(), None):
        with pytest.raises(UnicodeDecodeError):
            encoded([batch], encoder, ("body", "partitionKey", "properties"))
