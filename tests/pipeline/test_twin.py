"""The interpreted and the compiled decoder give the same arrays for any log."""

from random import Random

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hubmere.pipeline.decode import Columns, decode
from hubmere.records import kernels
from hubmere.records.header import seal
from hubmere.records.records import Record
from hubmere.translate import publication_from_amqp
from pipeline.batches import NOW_MS, decoded, fetched, kafka_batch, stored
from pipeline.twin import compiled_columns
from translate.builders import record_of
from translate.messages import a_message

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
BLOBS = st.none() | st.binary(max_size=40) | TEXTS.map(str.encode)
HEADERS = st.lists(st.tuples(TEXTS, BLOBS), max_size=5).map(tuple)
NEAR_ENVELOPES = st.sampled_from(
    (b"\x01\x00\x00\x00", b"\x01\x00\x01\x00", b"\x01\x00\x02\x00", b"\x02\x00\x00\x00", b"")
)


@settings(deadline=None)
@given(records=st.lists(st.tuples(BLOBS, BLOBS, HEADERS, st.none() | NEAR_ENVELOPES), min_size=1, max_size=8))
def test_any_kafka_record_gives_the_same_row(
    records: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], bytes | None]],
) -> None:
    """There are keys and headers of any bytes, repeated names, and headers that look like an envelope."""
    batch = []
    for index, (key, value, headers, envelope) in enumerate(records):
        last = () if envelope is None else ((kernels.ENVELOPE_NAME.decode(), envelope),)
        batch.append(Record(index, NOW_MS, key, value, (*headers, *last)))

    assert len(decoded(kafka_batch(batch), position=123)) == len(records)


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.none() | st.binary(max_size=300), st.none() | TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3)),
        min_size=1,
        max_size=8,
    )
)
def test_any_written_row_gives_the_same_row(rows: list[tuple[bytes | None, str | None, dict[str, str]]]) -> None:
    """The source reads the rows of the sink."""
    batch = [record_of(index, body, key, properties.items()) for index, (body, key, properties) in enumerate(rows)]

    found = decoded(kafka_batch(batch))

    assert [(row["body"], row["partitionKey"], row["properties"]) for row in found] == rows


@settings(deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_any_amqp_message_gives_the_same_row(seed: int) -> None:
    """This covers every section and every type of AMQP."""
    batch = publication_from_amqp(a_message(Random(seed)).payload, 0).batch

    assert len(decoded(stored(batch, 0))) == 1


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 32))
@example(seed=0)
def test_damaged_batch_is_skipped_by_both_decoders(seed: int) -> None:
    """A producer may write anything; other batches must not be affected."""
    random = Random(seed)
    good = kafka_batch([Record(index, NOW_MS, b"k", b"v", (("h", b"x"),)) for index in range(5)], base=0)
    damaged = bytearray(kafka_batch([Record(index, NOW_MS, b"k", b"v", (("h", b"x"),)) for index in range(5)], base=5))
    for _ in range(random.randrange(1, 4)):
        damaged[random.randrange(61, len(damaged))] = random.randrange(256)
    seal(damaged)

    found = decoded(good, bytes(damaged), kafka_batch([Record(0, NOW_MS, None, b"last")], base=10))

    assert [row["sequenceNumber"] for row in found][:5] == list(range(5))
    assert found[-1]["body"] == b"last"


def test_record_with_many_headers_gives_the_same_row() -> None:
    """It has more headers than the fixed table of the compiled decoder."""
    headers = tuple((f"name {number}", b"%d" % number) for number in range(100))

    (row,) = decoded(kafka_batch([Record(0, NOW_MS, None, b"x", headers)]))

    assert len(row["properties"]) == 100


def test_times_beyond_the_calendar_are_moved_to_its_bounds() -> None:
    """On a hub with CreateTime, producers may write any time."""
    batch = bytearray(kafka_batch([Record(0, 1 << 62, None, b"x"), Record(1, -(1 << 62), None, b"y")]))
    batch[22] &= ~0x08
    seal(batch)

    # Python has no such dates, so the arrays are compared as numbers.
    columns = [decode(fetched(bytes(batch)), 3, 0, 9, columns_of=each) for each in (Columns, compiled_columns())]
    times = [next(each).column("enqueuedTime").cast(pa.int64()).to_pylist() for each in columns]

    assert times[0] == times[1] == [9_223_372_036_854_775_000, -9_223_372_036_854_775_000]
