"""Indexes: the bytes are those of Kafka, and look-ups equal those in a sorted list."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hubmere.store.log.segments.index import AbortedEntry, OffsetIndex, TimeIndex, aborted_from_bytes
from hubmere.store.log.segments.segment import ABORTED_INDEX, INDEX, LOG, TIME_INDEX, stem
from store.builders import LOG_0, Owner, a_batch, an_engine, open_log, small_segments

ASCENDING = st.lists(st.tuples(st.integers(1, 5_000), st.integers(1, 9_000)), max_size=50).map(
    lambda steps: [
        (sum(step for step, _ in steps[: n + 1]), sum(step for _, step in steps[: n + 1])) for n in range(len(steps))
    ]
)


def test_entries_are_written_as_kafka_writes_them() -> None:
    """Big-endian: i32 relative sequence number and i32 position; i64 time and i32 relative sequence number."""
    offsets, times = OffsetIndex(), TimeIndex()
    offsets.append(5, 4_100)
    offsets.append(9, 70_000)
    times.append(1_700_000_000_000, 5)

    assert offsets.to_bytes() == bytes.fromhex("00000005 00001004 00000009 00011170")
    assert times.to_bytes() == bytes.fromhex("0000018bcfe56800 00000005")
    assert offsets.to_bytes(1) == bytes.fromhex("00000009 00011170")
    assert AbortedEntry(7, 1, 3, 4).to_bytes() == bytes.fromhex(
        "0000 0000000000000007 0000000000000001 0000000000000003 0000000000000004"
    )


@given(entries=ASCENDING, asked=st.integers(0, 300_000))
def test_lookup_returns_the_last_entry_at_or_before_a_value(entries: list[tuple[int, int]], asked: int) -> None:
    """Before the first entry it returns the beginning."""
    index = OffsetIndex()
    for sequence, position in entries:
        index.append(sequence, position)

    by_sequence = max((position for sequence, position in entries if sequence <= asked), default=0)
    by_position = max((position for _, position in entries if position <= asked), default=0)

    assert index.entry_of_sequence(asked)[1] == by_sequence
    assert index.floor_of_position(asked) == by_position
    assert OffsetIndex.from_bytes(index.to_bytes() + b"torn").to_bytes() == index.to_bytes()


@given(entries=ASCENDING, asked=st.integers(0, 300_000))
def test_time_lookup_returns_a_strictly_older_entry(entries: list[tuple[int, int]], asked: int) -> None:
    """Events with the requested time may be before the entry of that time."""
    index = TimeIndex()
    for sequence, time_ms in entries:
        index.append(time_ms, sequence)
        index.append(time_ms, sequence + 1)  # not newer, so it is omitted

    expected = max((sequence for sequence, time_ms in entries if time_ms < asked), default=-1)

    assert index.floor(asked) == expected
    assert TimeIndex.from_bytes(index.to_bytes() + b"torn").to_bytes() == index.to_bytes()


@given(entries=st.lists(st.tuples(*[st.integers(0, 2**62)] * 4), max_size=10))
def test_aborted_transactions_survive_a_round_trip(entries: list[tuple[int, int, int, int]]) -> None:
    """An incomplete entry at the end is ignored."""
    written = [AbortedEntry(*entry) for entry in entries]

    assert aborted_from_bytes(b"".join(entry.to_bytes() for entry in written) + b"torn") == written


def test_sealed_segment_has_the_files_that_kafka_expects(tmp_path: Path) -> None:
    """One entry per more than 4,096 bytes: the batch's last event and first byte; the newest time comes last."""
    owner = Owner()
    engine = an_engine(tmp_path, owner)
    log = open_log(engine, LOG_0, small_segments(segment_bytes=20_000))
    for number in range(30):
        log.append(a_batch([b"x" * 1_000, b"y"]), 5_000 + number)
    log.append(a_batch(producer=(9, 0, 0), attributes=0x10), 6_000)
    log.append_marker(9, 0, 6_000, commit=False)
    engine.close()

    folder = tmp_path / "log" / LOG_0
    size = (folder / (stem(0) + LOG)).stat().st_size // 18
    index = OffsetIndex.from_bytes((folder / (stem(0) + INDEX)).read_bytes())
    times = TimeIndex.from_bytes((folder / (stem(0) + TIME_INDEX)).read_bytes())
    assert list(zip(index.sequences, index.positions, strict=True)) == [
        (9, 4 * size),
        (17, 8 * size),
        (25, 12 * size),
        (33, 16 * size),
    ]
    assert list(zip(times.times, times.sequences, strict=True)) == [
        (5_004, 9),
        (5_008, 17),
        (5_012, 25),
        (5_016, 33),
        (5_017, 35),
    ]
    assert aborted_from_bytes((folder / (stem(36) + ABORTED_INDEX)).read_bytes()) == [(9, 60, 61, 62)]
    assert (folder / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
