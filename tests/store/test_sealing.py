"""The stop of a node with many logs: their last recovery points are written together, with a few flushes for all."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from hubmere.records.header import is_intact, split_batches
from hubmere.store import local
from hubmere.store.engine import LogConfig, LogId, log_id
from hubmere.store.local import LocalEngine
from hubmere.store.log.log import LocalLog
from hubmere.store.log.segments.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from hubmere.store.log.segments.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, stem
from hubmere.store.memory import MemoryFiles
from hubmere.store.recovery.manifest import read_recovery_point
from hubmere.store.recovery.sealing import TOGETHER_FROM_LOGS
from hubmere.store.recovery.unrecovered import needs_recovery
from store.builders import Owner, a_batch, an_engine, everything, open_log
from store.faulty_files import FaultyFiles, Loss, PowerCut

ROOT = Path("/data")
FLUSHES = ("fdatasync", "sync_directory", "sync_file_system")
CONFIG = LogConfig()


def an_empty_disk() -> FaultyFiles:
    files = FaultyFiles()
    files.make_directory(ROOT)
    files.sync_directory(Path("/"))
    return files


def ids(count: int) -> list[LogId]:
    return [log_id("hub", number) for number in range(count)]


def a_written_engine(files: FaultyFiles, count: int, durability: str = "fsync") -> tuple[LocalEngine, Owner]:
    """An engine whose logs have an old recovery point, and committed events after it, some of a producer."""
    owner = Owner()
    engine = an_engine(ROOT, owner, files, durability=durability)
    logs = [open_log(engine, log, CONFIG) for log in ids(count)]
    for step in range(2):
        for number, log in enumerate(logs):
            producer = (7, 0, step) if number % 2 else (-1, -1, -1)
            # Large enough for entries of the indexes.
            log.append(a_batch([b"%d" % step * 5_000], producer=producer), 1_000 + step)
        owner.run()
        if not step:
            engine.maintain(1_000)
            owner.run()
    return engine, owner


def opened(files: FaultyFiles, count: int) -> list[LocalLog]:
    engine = an_engine(ROOT, Owner(), files)
    return [open_log(engine, log, CONFIG) for log in ids(count)]


def unsealed(files: FaultyFiles, count: int) -> list[LogId]:
    return [log for log in ids(count) if needs_recovery(files, ROOT / "log" / log)]


def check_recovery_point(files: FaultyFiles, directory: Path) -> None:
    """The recovery point in force can be read, and everything that it covers is on the disk."""
    point = read_recovery_point(files, directory)
    assert point is not None
    first = directory / stem(0)
    data = files.read(first.with_name(first.name + LOG))
    batches = list(split_batches(data[: point.position]))
    assert [is_intact(batch) for batch in batches] == [True] * point.sequence
    for suffix, size_bytes in (
        (INDEX, point.index_entries * OFFSET_ENTRY_BYTES),
        (TIME_INDEX, point.time_entries * TIME_ENTRY_BYTES),
    ):
        assert not size_bytes or files.size(first.with_name(first.name + suffix)) >= size_bytes
    if point.snapshot >= 0:
        assert files.size(directory / (stem(point.snapshot) + SNAPSHOT))


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_number_of_flushes_does_not_grow_with_the_logs(durability: str) -> None:
    """Each flush waits for the disk: a node with thousands of partitions must stop in a second or two."""
    flushes = []
    for count in (TOGETHER_FROM_LOGS, 2 * TOGETHER_FROM_LOGS):
        files = an_empty_disk()
        engine, _ = a_written_engine(files, count, durability)
        files.log.clear()
        engine.close()
        flushes.append([call for call in files.log if call in FLUSHES])
        assert not unsealed(files.after_cut(Loss.ALL), count)

    assert flushes[0] == flushes[1]
    assert flushes[0].count("sync_file_system") >= 2


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_clean_stop_of_many_logs_survives_a_power_cut(durability: str) -> None:
    """Nothing that was written is lost, nothing has to be recovered, and producers are remembered."""
    count, files = TOGETHER_FROM_LOGS, an_empty_disk()
    engine, _ = a_written_engine(files, count, durability)
    engine.close()

    after = files.after_cut(Loss.ALL)

    assert not unsealed(after, count)
    assert an_engine(ROOT, Owner(), after).was_clean
    for number, log in enumerate(opened(after, count)):
        assert len(everything(log)) == 2
        assert log.producer_last_sequence(7) == ((0, 1) if number % 2 else None)


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_power_cut_at_any_call_of_a_stop_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, durability: str, loss: Loss
) -> None:
    """With `fsync` no acknowledged event is lost; with `os` only what was never flushed, and no log is broken."""
    monkeypatch.setattr(local, "TOGETHER_FROM_LOGS", 2)
    count, whole = 3, an_empty_disk()
    engine, _ = a_written_engine(whole, count, durability)
    first = whole.calls + 1
    engine.close()
    assert "sync_file_system" in whole.log

    for cut_at in range(first, whole.calls + 1):
        files = an_empty_disk()
        files.cut_at = cut_at
        with suppress(PowerCut):
            a_written_engine(files, count, durability)[0].close()
        assert files.is_cut

        after = files.after_cut(loss, seed=cut_at)
        for log_id_ in ids(count):
            check_recovery_point(after, ROOT / "log" / log_id_)
        for number, log in enumerate(opened(after, count)):
            events = len(everything(log))
            is_lossy = durability == "os" and loss is not Loss.NONE
            assert events in ((1, 2) if is_lossy else (2,)), f"log {number} after a cut at call {cut_at}"
            known = log.producer_last_sequence(7)
            assert known in ([(0, 0), (0, 1)] if is_lossy else [(0, 1)]) if number % 2 else known is None


@pytest.mark.parametrize("call", ["open", "write", "rename", "truncate"])
def test_log_that_fails_once_is_sealed_on_its_own(call: str) -> None:
    """A failure of one log does not concern the others; the log tries again when it is closed."""
    count, files = TOGETHER_FROM_LOGS, an_empty_disk()
    engine, _ = a_written_engine(files, count)
    failures = iter([None, OSError(errno.EIO, "the disk is broken")])
    files.fails = lambda name: next(failures, None) if name == call else None

    engine.close()

    files.fails = lambda _name: None
    assert next(failures, None) is None
    assert not unsealed(files.after_cut(Loss.ALL), count)


@pytest.mark.parametrize("flush", [0, 1])
def test_logs_are_sealed_one_by_one_if_a_flush_fails(flush: int) -> None:
    """The error of a flush does not say which log it concerns."""
    count, files = TOGETHER_FROM_LOGS, an_empty_disk()
    engine, _ = a_written_engine(files, count)
    results: list[OSError | None] = [None] * flush + [OSError(errno.EIO, "the disk is broken")]
    failures = iter(results)
    files.fails = lambda name: next(failures, None) if name == "sync_file_system" else None

    engine.close()

    files.fails = lambda _name: None
    after = files.after_cut(Loss.ALL)
    assert not unsealed(after, count)
    assert [len(everything(log)) for log in opened(after, count)] == [2] * count


def test_few_logs_are_sealed_without_a_flush_of_the_file_system() -> None:
    """Such a flush also waits for what other programs have written."""
    files = an_empty_disk()
    engine, _ = a_written_engine(files, 3)
    files.log.clear()

    engine.close()

    assert "sync_file_system" not in files.log
    assert not unsealed(files.after_cut(Loss.ALL), 3)


def test_logs_in_memory_are_closed_without_a_flush() -> None:
    """Their descriptors mean nothing to the system."""
    files, owner = MemoryFiles(), Owner()
    files.make_directory(ROOT)
    engine = an_engine(ROOT, owner, files)
    for log in ids(TOGETHER_FROM_LOGS):
        open_log(engine, log, CONFIG).append(a_batch(), 1_000)
    owner.run()

    engine.close()

    assert an_engine(ROOT, Owner(), files).was_clean


def test_old_snapshots_are_removed() -> None:
    """Only the last recovery point needs one."""
    count, files = TOGETHER_FROM_LOGS, an_empty_disk()
    engine, _ = a_written_engine(files, count)

    engine.close()

    for number, log in enumerate(ids(count)):
        snapshots = [name for name in files.names(ROOT / "log" / log) if name.endswith(".snapshot")]
        assert len(snapshots) == number % 2
