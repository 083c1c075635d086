"""Captured Avro records become record batches again: the same records, whatever published them."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.capture.cold import rebuild
from hubmere.capture.cold.files import FileParts
from hubmere.model.capture.cold import ColdBlock, ColdFile
from hubmere.pipeline.capture.files.avro import AvroFile
from hubmere.pipeline.capture.files.avro_layout import AvroLayout, Damaged
from hubmere.pipeline.decode import visible_batches
from hubmere.records.header import is_intact, read_header, split_batches
from hubmere.records.records import Record, decode_records, encode_batch
from hubmere.translate import publication_from_amqp
from hubmere.translate.view import events as views_of
from pipeline.batches import NOW_MS, fetched, kafka_batch, plain, stored
from pipeline.capture.test_avro import BLOBS, HEADERS, KINDS, PROPERTIES, TEXTS
from translate.builders import annotations, application_properties, compound, data, record_of, section, text

PARTITION, POSITION, END = 3, 5000, 1 << 40
Twin = Callable[[bytes, int, bool], Any]


def compiled() -> Twin:
    """The compiled twin; a tree without it fails here, and not by being slow."""
    from hubmere.capture.cold import _rebuild  # type: ignore[attr-defined]

    found: Twin = _rebuild.records_to_batches
    return found


def a_file(*batches: bytes, deflates: bool = False) -> tuple[io.BytesIO, ColdFile]:
    """The captured file of some batches."""
    sink = io.BytesIO()
    file = AvroFile(sink, "n", f"id/3/0-{END}", deflates=deflates, hub_id="the-hub")
    for batch in visible_batches(fetched(*batches, position=POSITION), 0, END):
        file.add(batch, PARTITION, 0, END)
    file.close()
    return sink, ColdFile(0, END, "n", len(sink.getvalue()), 0)


def load_all(sink: io.BytesIO, file: ColdFile, *, is_append_time: bool = False) -> list[ColdBlock]:
    """All parts of a file."""
    sink.seek(0)
    parts, found, at = FileParts(sink, file), [], file.first
    while at < file.end:
        found.append(parts.load(sink, at, is_append_time=is_append_time))
        at = found[-1].end
    return found


def keyed(records: Sequence[Record]) -> list[tuple[object, ...]]:
    return [(each.sequence_number, each.time_ms, each.key, each.value, each.headers) for each in records]


def records_in(data: bytes) -> list[Record]:
    return [record for batch in split_batches(data) for record in decode_records(batch)]


def assert_read_back(*batches: bytes, deflates: bool = False) -> None:
    """Sequence numbers, times, keys, values, headers and offsets are those of the log, and every batch is intact."""
    expected = views_of(b"".join(batches), POSITION, 0, 1_000_000)
    sink, file = a_file(*batches, deflates=deflates)
    blocks = load_all(sink, file)
    found = [view for block in blocks for view in views_of(block.data, 0, 0, 1_000_000, offsets=block.offsets)]
    assert found == expected
    for block in blocks:
        for batch in split_batches(block.data):
            assert is_intact(batch)
    originals = [record for batch in batches for record in decode_records(memoryview(batch))]
    assert keyed([each for block in blocks for each in records_in(block.data)]) == keyed(originals)
    assert_twins_agree(sink)


def assert_twins_agree(sink: io.BytesIO) -> None:
    """The compiled and the interpreted loop give the same bytes."""
    sink.seek(0)
    layout = AvroLayout(sink)
    layout.find_blocks(sink)
    for block in layout.blocks:
        content = layout.content(sink, block)
        for is_append_time in (False, True):
            one = rebuild.records_to_batches(content, block.events, is_append_time)
            other = compiled()(content, block.events, is_append_time)
            assert (bytes(one[0]), list(one[1]), list(one[2])) == (bytes(other[0]), list(other[1]), list(other[2]))


def amqp_event(*sections: bytes) -> bytes:
    return stored(publication_from_amqp(b"".join(sections), 0).batch, 0)


def test_amqp_event_with_every_kind_of_value_is_read_back() -> None:
    """The service's schema has four kinds of values and AMQP has many more."""
    properties = [(name, value) for name, (value, _) in KINDS.items()]
    batch = amqp_event(
        annotations(("x-opt-partition-key", text("k")), ("x-opt-publisher", text("p"))),
        section(0x73, compound(0xC0, [text("m-1"), b"\xa0\x02\x00\xff"])),
        application_properties(*properties, ("nothing", b"\x40")),
        data(b"body"),
    )

    assert_read_back(batch)


def test_times_of_events_keep_their_milliseconds() -> None:
    """Within a second, across seconds, backwards as producers may write them, and before 1970."""
    times = [0, 5, 5, 999, 1000, 1000, 1001, 3000, 2500, 2500, -1, -1500]
    records = [Record(index, NOW_MS + delta, None, b"x") for index, delta in enumerate(times)]

    assert_read_back(bytes(encode_batch(records)))
    assert_read_back(bytes(encode_batch([Record(0, -1, None, b"y"), Record(1, -86_400_001, None, b"z")])))


@pytest.mark.parametrize("deflates", [False, True])
def test_large_file_is_read_in_parts(deflates: bool) -> None:
    """Each about 1 MB, and always the same, wherever a reader begins."""
    body = bytes(range(256)) * 8
    batches = [
        kafka_batch([Record(number, NOW_MS, b"k", body + number.to_bytes(4)) for number in range(100)], base=base)
        for base in range(0, 3000, 100)
    ]
    sink, file = a_file(*batches, deflates=deflates)

    blocks = load_all(sink, file)

    assert deflates or len(blocks) > 4
    assert [each.sequence_number for block in blocks for each in records_in(block.data)] == list(range(3000))
    sink.seek(0)
    assert FileParts(sink, file).load(sink, 1717, is_append_time=False) in blocks


def test_append_times_are_those_of_the_log() -> None:
    """A batch of one millisecond each, with the mark by which clients know the kind of their timestamps."""
    batches = [stored(bytearray(encode_batch(plain(3))), base, NOW_MS + base) for base in (0, 3, 6)]
    sink, file = a_file(*batches)

    [block] = load_all(sink, file, is_append_time=True)

    headers = [read_header(batch) for batch in split_batches(block.data)]
    assert [header.is_append_time for header in headers] == [True] * 3
    assert [header.max_time_ms for header in headers] == [NOW_MS, NOW_MS + 3, NOW_MS + 6]


def test_numbers_without_events_end_a_batch() -> None:
    """Markers and aborted events of transactions have numbers, and are in no file."""
    batches = [kafka_batch(plain(2)), kafka_batch(plain(2), base=5)]
    sink, file = a_file(*batches)

    [block] = load_all(sink, file)

    assert (list(block.bases), list(block.ends)) == ([0, 5], [2, 7])
    assert [block.index_of(sequence) for sequence in (0, 1, 2, 4, 5, 6, 7)] == [0, 0, 1, 1, 1, 1, 2]


@given(
    records=st.lists(
        st.one_of(
            st.tuples(BLOBS, BLOBS, HEADERS),
            st.builds(
                lambda key, value, properties: ("row", key, value, properties), st.none() | TEXTS, BLOBS, PROPERTIES
            ),
        ),
        min_size=1,
        max_size=6,
    ),
    deflates=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_records_are_read_back(records: list[Any], deflates: bool) -> None:
    """Of Kafka producers and of AMQP publishers."""
    made = []
    for index, each in enumerate(records):
        if each[0] == "row":
            made.append(record_of(index, each[2], each[1], each[3].items()))
        else:
            made.append(Record(index, NOW_MS, each[0], each[1], each[2]))

    assert_read_back(kafka_batch(made), deflates=deflates)


@pytest.mark.parametrize("cut", [1, 5, 17, 40])
def test_damaged_file_is_refused(cut: int) -> None:
    """Whether it is cut off, or a marker was overwritten."""
    sink, file = a_file(kafka_batch(plain(50)))
    content = sink.getvalue()

    with pytest.raises(Damaged):
        load_all(io.BytesIO(content[:-cut]), file)
    with pytest.raises(Damaged):
        load_all(io.BytesIO(content[:-1] + bytes([content[-1] ^ 1])), file)


@given(at=st.integers(0, 400), value=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_any_wrong_byte_in_a_block_is_refused_or_read(at: int, value: int) -> None:
    """Both loops stay inside the block, and agree where both accept it; texts are checked by one of them only."""
    sink, _ = a_file(
        kafka_batch([Record(number, NOW_MS + number, b"key", b"v" * 20, (("h", b"x"),)) for number in range(9)])
    )
    sink.seek(0)
    layout = AvroLayout(sink)
    layout.find_blocks(sink)
    content = bytearray(layout.content(sink, layout.blocks[0]))
    content[at % len(content)] = value

    results = [_outcome(each, bytes(content)) for each in (rebuild.records_to_batches, compiled())]

    if None not in results:
        assert results[1] == results[0]


def _outcome(twin: Twin, content: bytes) -> tuple[bytes, list[Any], list[int]] | None:
    try:
        made, batches, offsets = twin(content, 9, False)
    except (ValueError, IndexError, OverflowError):
        return None
    return bytes(made), list(batches), list(offsets)
