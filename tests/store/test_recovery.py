"""Opening a log: scan, truncation, and rebuilt indexes."""

from pathlib import Path

import pytest

from hubmere.model.errors import CorruptBatch
from hubmere.model.position import Position
from hubmere.store.log.committed_file import COMMITTED
from hubmere.store.log.log import LocalLog
from hubmere.store.log.segments.segment import INDEX, LOG, TIME_INDEX, stem
from hubmere.store.recovery import checkpointer
from hubmere.store.recovery.manifest import RECOVERY, SEGMENTS
from store.builders import LOG_0, Owner, a_batch, an_engine, everything, open_log, small_segments
from store.faulty_files import FaultyFiles, Loss

ROOT = Path("/data")
FOLDER = ROOT / "log" / LOG_0


def a_disk() -> FaultyFiles:
    files = FaultyFiles()
    files.make_directory(ROOT)
    files.sync_directory(Path("/"))
    return files


def a_written_disk(count: int = 20, *, is_clean: bool = True) -> FaultyFiles:
    files, owner = a_disk(), Owner()
    engine = an_engine(ROOT, owner, files)
    log = open_log(engine, LOG_0, small_segments())
    for number in range(count):
        log.append(a_batch([b"x" * 100]), 1_000 + number)
        owner.run()
    if is_clean:
        engine.close()
    return files.after_cut(Loss.NONE)


def reopened(files: FaultyFiles) -> LocalLog:
    return open_log(an_engine(ROOT, Owner(), files), LOG_0, small_segments())


def bases(log: LocalLog) -> list[int]:
    return [header.base_sequence_number for header, _ in everything(log)]


def test_a_clean_log_opens_without_reading_any_batch() -> None:
    """The time of a restart must not grow with the amount of stored data."""
    files = a_written_disk()

    log = reopened(files)

    assert "pread" not in files.log
    assert log.state.committed == 20


def test_state_is_the_same_after_a_restart() -> None:
    """Sequence numbers, byte positions and times continue."""
    files = a_written_disk()
    before = reopened(files).state

    after = reopened(a_written_disk(is_clean=False)).state

    assert before == after
    assert (before.committed, before.last_enqueued_ms) == (20, 1_019)


@pytest.mark.parametrize("garbage", [b"\0" * 300, b"\xff" * 80, b"short", bytes(a_batch([b"y"]))])
def test_data_after_the_last_complete_batch_is_truncated(garbage: bytes) -> None:
    """A torn write, a zero-filled tail, or a complete batch with a wrong sequence number was never acknowledged."""
    files = a_written_disk(is_clean=False)
    _append(files, FOLDER / (stem(15) + LOG), garbage)

    log = reopened(files)

    assert bases(log) == list(range(20))
    owner = Owner()
    fresh = open_log(an_engine(ROOT, owner, files), LOG_0, small_segments())
    fresh.append(a_batch([b"new"]), 2_000)
    owner.run()
    assert bases(fresh) == list(range(21))


def test_only_data_after_the_recovery_point_is_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash the time to open a log depends on the distance of recovery points, not on its size."""
    monkeypatch.setitem(checkpointer.CHECKPOINT_BYTES, "fsync", 400)
    files, owner = a_disk(), Owner()
    log = open_log(an_engine(ROOT, owner, files), LOG_0, small_segments(segment_bytes=1 << 20))
    for number in range(500):
        log.append(a_batch([b"x" * 100]), 1_000 + number)
        owner.run()
    crashed = files.after_cut(Loss.NONE)

    again = open_log(an_engine(ROOT, owner, crashed), LOG_0, small_segments())

    assert crashed.log.count("pread") <= 1
    assert bases(again) == list(range(500))


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("damage", ["gone", "zeros", "half"])
def test_missing_and_wrong_indexes_are_rebuilt(suffix: str, damage: str) -> None:
    """Indexes can always be rebuilt from the batches."""
    files, owner = a_disk(), Owner()
    engine = an_engine(ROOT, owner, files)
    log = open_log(engine, LOG_0, small_segments(segment_bytes=40_000))
    for number in range(500):
        log.append(a_batch([b"x" * 100]), 1_000 + number)
        owner.run()
    offsets = [log.offset_of(sequence) for sequence in range(0, 500, 7)]
    engine.close()
    path = FOLDER / (stem(0) + suffix)
    size = files.size(path)
    assert size > 0
    files.unlink(path)
    if damage != "gone":
        _append(files, path, b"\0" * size if damage == "zeros" else b"\1" * (size // 2))

    again = open_log(an_engine(ROOT, owner, files), LOG_0, small_segments())

    assert bases(again) == list(range(500))
    assert [again.offset_of(sequence) for sequence in range(0, 500, 7)] == offsets
    assert [again.find(Position.time(1_000 + number, inclusive=True)) for number in range(0, 500, 9)] == list(
        range(0, 500, 9)
    )


def test_data_before_a_recovery_point_is_flushed_with_durability_os() -> None:
    """With durability `os` commits do not flush, so the recovery point must flush first."""
    files, owner = a_disk(), Owner()
    engine = an_engine(ROOT, owner, files, durability="os")
    log = open_log(engine, LOG_0, small_segments())
    for number in range(20):
        log.append(a_batch([b"x" * 100]), 1_000 + number)
        owner.run()
    engine.maintain(2_000)
    owner.run()

    again = reopened(files.after_cut(Loss.ALL))

    assert bases(again) == list(range(20))


def test_lost_recovery_point_causes_a_full_scan() -> None:
    """Everything is scanned from the first retained segment on; no event is lost."""
    files = a_written_disk()
    files.unlink(FOLDER / RECOVERY)

    log = reopened(files)

    assert bases(log) == list(range(20))


def test_a_lost_list_of_segments_is_rebuilt_if_the_first_segment_exists() -> None:
    """From sequence number 0 on, the byte positions follow from the sizes of the segments."""
    files = a_written_disk()
    offsets = [reopened(files).offset_of(sequence) for sequence in range(20)]
    files.unlink(FOLDER / SEGMENTS)

    log = reopened(files)

    assert [log.offset_of(sequence) for sequence in range(20)] == offsets


def test_a_damaged_list_of_segments_is_refused() -> None:
    """Wrong byte positions would move the checkpoint of every reader."""
    files = a_written_disk()
    files.corrupt(FOLDER / SEGMENTS, 4)
    engine = an_engine(ROOT, Owner(), files)

    for _ in range(2):
        with pytest.raises(CorruptBatch):
            open_log(engine, LOG_0, small_segments())

    (named,) = engine.damage.ranges(LOG_0)
    assert str(named).startswith("the log cannot be opened: 'hubmere-segments'")
    files.corrupt(FOLDER / SEGMENTS, 4)
    assert open_log(engine, LOG_0, small_segments()).state.committed == 20
    assert engine.damage.is_empty


def test_a_missing_segment_in_the_middle_is_refused_by_name() -> None:
    """A file was deleted: serving a log with a gap would hide this."""
    files = a_written_disk()
    files.unlink(FOLDER / (stem(5) + LOG))

    with pytest.raises(CorruptBatch, match=stem(5)):
        reopened(files)


def test_a_file_that_ends_before_the_recovery_point_is_reported_and_numbers_are_not_reused() -> None:
    """The disk has lost acknowledged data: this is reported, and checkpoints of readers stay valid."""
    files, owner = a_written_disk(), Owner()
    offset = reopened(files).state.last_offset
    path = FOLDER / (stem(15) + LOG)
    fd = files.open(path, write=True)
    files.truncate(fd, 200)

    engine = an_engine(ROOT, owner, files)
    log = open_log(engine, LOG_0, small_segments())
    receipt = log.append(a_batch([b"new"]), 3_000)
    owner.run()

    (lost,) = engine.damage.ranges(LOG_0)
    assert (lost.first_sequence, lost.next_sequence) == (16, 20)
    assert receipt.sequence_number == 20
    assert receipt.offset > offset
    assert bases(log) == [*range(16), 20]


def test_temporary_files_of_a_crash_are_deleted() -> None:
    """Incomplete files of writes, deletions and compactions have special names."""
    files = a_written_disk()
    for name in ("x.tmp", stem(0) + ".log.deleted", stem(5) + ".log.cleaned", stem(77) + LOG):
        _append(files, FOLDER / name, b"left")

    log = reopened(files)

    names = files.names(FOLDER)
    assert not [name for name in names if name.endswith((".tmp", ".deleted", ".cleaned")) or name.startswith(stem(77))]
    assert bases(log) == list(range(20))


def test_an_interrupted_deletion_is_finished_at_the_next_start() -> None:
    """A deleted log must not be opened again."""
    files = a_written_disk()
    files.rename(FOLDER, FOLDER.with_name(f"{LOG_0}.1-delete"))

    engine = an_engine(ROOT, Owner(), files)

    assert files.names(ROOT / "log") == [COMMITTED]
    assert open_log(engine, LOG_0, small_segments()).state.committed == 0


def test_opening_a_log_reads_only_the_sizes_of_its_segments() -> None:
    """Indexes and data are read when a reader needs them."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(ROOT)
    engine = an_engine(ROOT, owner, files, durability="os")
    log = open_log(engine, LOG_0, small_segments(segment_bytes=80))
    for _ in range(1_000):
        log.append(a_batch([b"x" * 20]), 1_000)
    owner.run()
    engine.close()

    again = an_engine(ROOT, owner, files, durability="os")
    open_before = files.open_count
    reopened_log = open_log(again, LOG_0, small_segments())

    assert files.open_count == open_before
    assert reopened_log.state.committed == 1_000
    assert reopened_log.offset_of(500) == 500 * reopened_log.offset_of(1)


def _append(files: FaultyFiles, path: Path, data: bytes) -> None:
    fd = files.open(path, create=True)
    files.write(fd, data)
    files.fdatasync(fd)
    files.close(fd)
