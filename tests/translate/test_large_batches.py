"""Large batches: they are decoded in slices, give the same events as small ones, and take bounded memory."""

from typing import Any

import pytest

from hubmere.records.compression import Codec
from hubmere.records.header import HEADER_BYTES, read_header, seal, write_header
from hubmere.records.records import Record, encode_batch
from hubmere.translate import DecodedCache, Emission, events, open_batch, trace_parents
from hubmere.translate.slices import SLICE_BYTES, SLICE_EVENTS, SMALL_BYTES, WHOLE_EVENTS, open_small
from translate.builders import LOG, NOW_MS, deliveries, emit

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def records(count: int, *, step: int = 1, value: bytes = b"v") -> list[Record]:
    return [Record(index * step, NOW_MS + index, None, value + b"%d" % index, ()) for index in range(count)]


def a_large_batch(
    count: int, *, step: int = 1, value: bytes = b"v", codec: Codec = Codec.NONE, last_delta: int | None = None
) -> bytes:
    last = (count - 1) * step if last_delta is None else last_delta
    return bytes(encode_batch(records(count, step=step, value=value), codec=codec, last_delta=last))


def payloads(batch: bytes, start: int = 0, **options: Any) -> tuple[list[bytes], list[Emission]]:
    """Everything that a reader gets from a sequence number on, in calls of about 64 KB."""
    cache = DecodedCache()
    got: list[bytes] = []
    emissions: list[Emission] = []
    sequence, end = start, read_header(batch).next_sequence_number
    while sequence < end:
        emission = emit(batch, sequence, max_bytes=64 * 1024, max_frame_size=64 * 1024, cache=cache, **options)
        emissions.append(emission)
        got += [delivered.payload for delivered in deliveries(emission.frames)]
        sequence = emission.next_sequence
        if emission.long_message is not None:
            got.append(emission.long_message)
            sequence += 1
        if emission.closed is not None:
            cache.opened.put(emission.closed.key, open_batch(emission.closed.header, emission.closed.data))
    return got, emissions


def one_by_one(batch: bytes, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[bytes]:
    """The same with the whole batch decoded at once."""
    with monkeypatch.context() as patch:
        for module in ("slices", "deliver"):
            patch.setattr(f"hubmere.translate.{module}.WHOLE_EVENTS", 1 << 30)
            patch.setattr(f"hubmere.translate.{module}.SMALL_BYTES", 1 << 30)
        return payloads(batch, **options)[0]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("step", [1, 3], ids=["dense", "compacted"])
def test_slices_give_the_same_messages_as_the_whole_batch(
    codec: Codec, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets, sequence numbers and times do not depend on how a batch is decoded."""
    batch = a_large_batch(5 * SLICE_EVENTS + 7, step=step, codec=codec, last_delta=step * 6 * SLICE_EVENTS)

    got, emissions = payloads(batch)

    assert len(got) == 5 * SLICE_EVENTS + 7
    assert got == one_by_one(batch, monkeypatch)
    assert emissions[-1].next_sequence == read_header(batch).next_sequence_number


def test_own_offsets_belong_to_the_events_of_every_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that were captured have offsets of their own."""
    count = 3 * SLICE_EVENTS
    batch = a_large_batch(count)
    offsets = {0: [10 * index for index in range(count)]}

    got, _ = payloads(batch, offsets=offsets)

    assert got == one_by_one(batch, monkeypatch, offsets=offsets)


def test_reader_in_the_middle_of_a_large_batch_gets_the_rest() -> None:
    """A reader may start anywhere, also between the events that compaction has left."""
    batch = a_large_batch(4 * SLICE_EVENTS, step=2)
    whole, _ = payloads(batch)

    for start in (0, 1, 2 * SLICE_EVENTS - 1, 2 * SLICE_EVENTS, 2 * SLICE_EVENTS + 1, 8 * SLICE_EVENTS - 2):
        assert payloads(batch, start)[0] == whole[(start + 1) // 2 :]


def test_large_events_are_in_small_slices() -> None:
    """Memory is bounded by bytes as well: 1,024 events may be very large."""
    batch = a_large_batch(300, value=bytes(20_000), codec=Codec.ZSTD)
    opened = open_batch(read_header(batch), memoryview(batch))

    part = opened.slice_from(150)

    assert opened.size_bytes > 300 * 20_000
    assert part.sequence <= 150 < part.next_sequence
    assert len(part.records) <= SLICE_BYTES
    assert len(payloads(batch)[0]) == 300


def test_batch_that_inflates_is_not_decompressed_by_the_loop() -> None:
    """The caller opens it in a thread; the events before it are delivered."""
    batch = a_large_batch(40, value=bytes(SMALL_BYTES // 20), codec=Codec.GZIP)
    assert len(batch) < SMALL_BYTES // 100

    emission = emit(batch)

    assert emission.closed is not None
    assert (emission.count, emission.next_sequence, emission.closed.header) == (0, 0, read_header(batch))
    assert open_small(read_header(batch), memoryview(batch)) is None


def test_memory_for_a_million_tiny_events_is_bounded() -> None:
    """Messages are a hundred times larger than the events that a producer repeats in a compressed batch."""
    cache = DecodedCache()
    batch = a_large_batch(100_000, codec=Codec.ZSTD, value=b"")
    sequence = 0

    while sequence < 100_000:
        emission = emit(batch, sequence, max_bytes=64 * 1024, max_frame_size=64 * 1024, cache=cache)
        if emission.closed is not None:
            cache.opened.put(emission.closed.key, open_batch(emission.closed.header, emission.closed.data))
        sequence = emission.next_sequence
        assert cache.used_bytes <= 8 * 1024 * 1024


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
def test_large_batch_that_is_cut_short_is_unreadable(codec: Codec) -> None:
    """Its slices cannot be found."""
    batch = bytearray(a_large_batch(WHOLE_EVENTS + 1, codec=codec))
    header = read_header(batch)
    write_header(batch, header._replace(record_count=WHOLE_EVENTS + 100, last_delta=WHOLE_EVENTS + 99))
    seal(batch)

    got, emissions = payloads(bytes(batch))

    assert got == []
    assert [found for emission in emissions for found in emission.unreadable] == [(0, WHOLE_EVENTS + 100)]


def test_events_before_a_broken_slice_are_delivered() -> None:
    """The rest of the batch is reported."""
    batch = bytearray(a_large_batch(3 * SLICE_EVENTS))
    at = batch.index(b"v%d" % (SLICE_EVENTS + 5))
    # The length of the value, which is the byte before it.
    batch[at - 1] += 2
    seal(batch)
    assert at > HEADER_BYTES

    got, emissions = payloads(bytes(batch))
    reported: list[tuple[int, int]] = []
    seen = events(
        bytes(batch), 0, 0, 10_000, on_unreadable=lambda first, following: reported.append((first, following))
    )

    assert len(got) == len(seen) == SLICE_EVENTS
    assert [found for emission in emissions for found in emission.unreadable] == reported
    assert reported == [(SLICE_EVENTS, 3 * SLICE_EVENTS)]


def test_events_of_a_large_batch_are_shown_from_any_position() -> None:
    """The portal and the command line show a few events of millions."""
    batch = a_large_batch(5 * SLICE_EVENTS, codec=Codec.LZ4)

    found = events(batch, 0, 3 * SLICE_EVENTS - 2, 5)

    assert [event.sequence for event in found] == list(range(3 * SLICE_EVENTS - 2, 3 * SLICE_EVENTS + 3))
    assert found[0].body == b"v%d" % (3 * SLICE_EVENTS - 2)


def test_traces_of_delivered_events_are_found_in_a_large_batch() -> None:
    """Only slices that were delivered and contain a trace context are decoded."""
    given = records(3 * SLICE_EVENTS)
    given[2000] = given[2000]._replace(headers=(("traceparent", TRACE),))
    batch = bytes(encode_batch(given))

    assert trace_parents(batch, 1990, 2010, 5) == [TRACE.decode()]
    assert trace_parents(batch, 0, 2000, 5) == []


def test_only_one_of_many_opened_batches_is_kept_beyond_the_limit() -> None:
    """A reader of one has to make progress, and many readers must not fill the memory."""
    cache = DecodedCache(opened_bytes=100_000)
    batch = a_large_batch(3 * SLICE_EVENTS, value=bytes(100))
    opened = open_batch(read_header(batch), memoryview(batch))

    for number in range(5):
        cache.opened.put((LOG, number, 0), opened)

    assert cache.opened.used_bytes == opened.size_bytes > 100_000
    assert cache.opened.get((LOG, 4, 0)) is opened
