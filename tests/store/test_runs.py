"""Runs of batches: the log is the same as after single appends."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.model.errors import StorageFull
from hubmere.model.receipt import Receipt
from hubmere.records.header import CONTROL, TRANSACTIONAL, read_header, seal, write_header
from hubmere.store.engine import LogConfig
from hubmere.store.log.log import LocalLog
from hubmere.store.memory import MemoryFiles
from store.builders import LOG_0, Owner, a_batch, an_engine, everything, open_log, small_segments
from store.faulty_files import FaultyFiles, _used

NEWEST_MS = 2_000_000
ROOT = Path("/data")


def a_log(owner: Owner, config: LogConfig | None = None) -> LocalLog:
    """An empty log in memory."""
    return open_log(an_engine(Path("/memory"), owner, MemoryFiles()), LOG_0, config or LogConfig())


def append_run(log: LocalLog, batches: list[bytearray], now_ms: int = 5_000) -> Receipt:
    """Check and append batches as one run."""
    run = log.check_run(bytearray(b"".join(batches)), [len(batch) for batch in batches], NEWEST_MS)
    assert run is not None
    return log.append_run(run, now_ms)


some_batches = st.lists(
    st.builds(
        lambda count, size, time_ms, attributes: a_batch([b"x" * size] * count, time_ms=time_ms, attributes=attributes),
        st.integers(1, 4),
        st.integers(0, 300),
        st.integers(0, NEWEST_MS),
        st.sampled_from([0, 0x08]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(runs=st.lists(some_batches, min_size=1, max_size=4), append_time=st.booleans())
def test_run_has_the_same_result_as_single_appends(runs: list[list[bytearray]], append_time: bool) -> None:
    """Bytes, positions, times and indexes are the same; only the segments may end at other batches."""
    owner = Owner()
    one_by_one, by_runs = (
        a_log(owner, LogConfig(append_time=append_time)),
        a_log(owner, LogConfig(append_time=append_time)),
    )

    for turn, batches in enumerate(runs):
        receipts = [one_by_one.append(bytearray(batch), 5_000 + turn) for batch in batches]
        receipt = append_run(by_runs, batches, 5_000 + turn)
        owner.run()

        assert (receipt.sequence_number, receipt.offset) == (receipts[0].sequence_number, receipts[0].offset)
        assert receipt.count == sum(single.count for single in receipts)
        assert receipt.enqueued_at_ms == receipts[0].enqueued_at_ms
        assert (receipt.is_done, receipt.error) == (True, None)

    assert everything(by_runs) == everything(one_by_one)
    assert by_runs.state == one_by_one.state
    end = by_runs.state.committed
    assert [by_runs.offset_of(number) for number in range(end)] == [
        one_by_one.offset_of(number) for number in range(end)
    ]
    assert by_runs._segments.active.max_time_sequence == one_by_one._segments.active.max_time_sequence


@settings(max_examples=40, deadline=None)
@given(runs=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=9), min_size=1, max_size=4), first=st.integers(0))
def test_run_of_an_idempotent_producer_is_remembered_like_single_batches(runs: list[list[int]], first: int) -> None:
    """The bytes and the producer state are the same, so each duplicate gets its position."""
    owner, number = Owner(), (first + 2**31 - 9) % 2**31
    one_by_one, by_runs = a_log(owner), a_log(owner)

    for turn, counts in enumerate(runs):
        batches = []
        for count in counts:
            batches.append(a_batch([b"x"] * count, producer=(7, 0, number)))
            number = (number + count) % 2**31
        for batch in batches:
            one_by_one.append(bytearray(batch), 5_000 + turn)
        append_run(by_runs, batches, 5_000 + turn)
        owner.run()

    assert everything(by_runs) == everything(one_by_one)
    assert by_runs._producers.to_snapshot() == one_by_one._producers.to_snapshot()
    repeat = by_runs.append(bytearray(batches[-1]), 6_000)
    assert (repeat.is_duplicate, repeat.sequence_number) == (True, by_runs.state.committed - counts[-1])


@settings(max_examples=40, deadline=None)
@given(runs=st.lists(st.lists(st.sampled_from([-1, 7, 8]), min_size=1, max_size=20), min_size=1, max_size=3))
def test_run_of_several_producers_is_remembered_like_single_batches(runs: list[list[int]]) -> None:
    """Requests of many connections form one run; each producer has its own sequence and its own duplicates."""
    owner = Owner()
    one_by_one, by_runs = a_log(owner), a_log(owner)
    numbers = {7: 0, 8: 0}

    for turn, producers in enumerate(runs):
        batches = []
        for producer in producers:
            identity = (producer, 0, numbers[producer]) if producer >= 0 else (-1, -1, -1)
            batches.append(a_batch([b"x"], producer=identity))
            if producer >= 0:
                numbers[producer] += 1
        for batch in batches:
            one_by_one.append(bytearray(batch), 5_000 + turn)
        append_run(by_runs, batches, 5_000 + turn)
        owner.run()

    assert everything(by_runs) == everything(one_by_one)
    assert by_runs._producers.to_snapshot() == one_by_one._producers.to_snapshot()


@pytest.mark.parametrize(
    "producers",
    [
        [(7, 0, 2)],
        [(7, 0, 0)],
        [(7, 1, 5)],
        [(7, 0, 1), (7, 0, 1)],
        [(7, 0, 1), (7, 0, 3)],
        [(8, 0, 0), (7, 0, 2)],
        [(7, 0, 1), (8, 0, 0), (7, 0, 1)],
        [(7, 0, 1), (7, 1, 2)],
    ],
    ids=["gap", "repeat", "new epoch", "repeat within", "gap within", "gap of another", "repeat behind", "two epochs"],
)
def test_run_that_does_not_continue_the_sequence_is_not_accepted(producers: list[tuple[int, int, int]]) -> None:
    """Its batches are appended one by one: each duplicate gets its position, and each gap is refused."""
    owner = Owner()
    log = a_log(owner)
    log.append(a_batch(producer=(7, 0, 0)), 5_000)
    owner.run()
    batches = [a_batch(producer=producer) for producer in producers]

    run = log.check_run(bytearray(b"".join(batches)), [len(batch) for batch in batches], NEWEST_MS)

    assert run is None
    assert log._segments.end.sequence == 1


def test_log_of_runs_rolls_and_recovers(tmp_path: Path) -> None:
    """Segments stay within their size, and all acknowledged batches exist after reopening."""
    owner = Owner()
    log = open_log(an_engine(tmp_path, owner), LOG_0, small_segments())
    for _ in range(12):
        append_run(log, [a_batch([b"x" * 100]), a_batch([b"y" * 100, b"z"])])
    owner.run()
    before, segments = everything(log), log._segments.all
    log.abandon()

    again = open_log(an_engine(tmp_path, owner), LOG_0, small_segments())

    assert len(segments) > 2
    assert all(segment.size_bytes <= 1_000 for segment in segments)
    assert everything(again) == before
    assert again.state.committed == 36


def spoilt(**changes: int) -> bytearray:
    """A batch with some header fields replaced and a valid checksum."""
    batch = a_batch()
    write_header(batch, read_header(batch)._replace(**changes))
    seal(batch)
    return batch


def with_wrong_checksum() -> bytearray:
    batch = a_batch()
    batch[-1] ^= 1
    return batch


def without_checksum() -> bytearray:
    batch = a_batch()
    batch[17:21] = bytes(4)
    return batch


@pytest.mark.parametrize(
    "odd",
    [
        bytearray(60),
        spoilt(length=70),
        spoilt(magic=1),
        spoilt(last_delta=1),
        spoilt(record_count=0, last_delta=-1),
        spoilt(record_count=1_000, last_delta=999),
        spoilt(attributes=CONTROL),
        spoilt(attributes=TRANSACTIONAL),
        spoilt(attributes=5),
        spoilt(base_time_ms=NEWEST_MS + 1),
        spoilt(max_time_ms=NEWEST_MS + 1),
        a_batch(producer=(7, 0, -1)),
        with_wrong_checksum(),
        without_checksum(),
    ],
    ids=[
        "short", "length", "magic", "delta", "none", "more than bytes", "control", "transaction", "codec", "first time",
        "newest time", "producer", "checksum", "unsealed",
    ],
)  # fmt: skip
def test_run_with_a_batch_that_needs_a_full_check_is_not_accepted(odd: bytearray) -> None:
    """Its batches are appended one by one, so that each gets its own answer; the log has not changed."""
    log = a_log(Owner())
    batches = [a_batch(), odd, a_batch()]

    run = log.check_run(bytearray(b"".join(batches)), [len(batch) for batch in batches], NEWEST_MS)

    assert run is None
    assert log._segments.end.sequence == 0


def test_compacted_log_accepts_no_runs() -> None:
    """Its records must be decoded to check their keys."""
    log = a_log(Owner(), LogConfig(compact=True))

    assert log.check_run(a_batch(), [len(a_batch())], NEWEST_MS) is None


def test_run_larger_than_a_segment_is_not_accepted() -> None:
    """It does not fit into a segment; its single batches may fit."""
    log = a_log(Owner(), small_segments())
    batches = [a_batch([b"x" * 300])] * 4

    assert log.check_run(bytearray(b"".join(batches)), [len(batch) for batch in batches], NEWEST_MS) is None


def test_run_that_the_disk_refuses_changes_nothing() -> None:
    """The disk is full in the middle of a run: the written part is truncated."""
    owner, files = Owner(), FaultyFiles()
    files.make_directory(ROOT)
    log = open_log(an_engine(ROOT, owner, files), LOG_0, LogConfig())
    append_run(log, [a_batch([b"first"])])
    owner.run()
    files.capacity_bytes = _used(files._disk) + 100

    with pytest.raises(StorageFull):
        append_run(log, [a_batch([b"second"]), a_batch([b"third"])])

    files.capacity_bytes = None
    receipt = append_run(log, [a_batch([b"fourth"])])
    owner.run()
    assert receipt.sequence_number == 1
    assert [header.base_sequence_number for header, _ in everything(log)] == [0, 1]
