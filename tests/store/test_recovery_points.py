"""When recovery points are written; they limit the scan after a crash."""

from pathlib import Path

import pytest

from hubmere.store.engine import LogConfig, log_id
from hubmere.store.memory import MemoryFiles
from hubmere.store.recovery import checkpointer
from hubmere.store.recovery.manifest import read_recovery_point
from store.builders import LOG_0, Owner, a_batch, an_engine, open_log
from store.faulty_files import FaultyFiles

ROOT = Path("/memory")


class RecoveryPointHarness:
    """A log in memory, and the recovery point that the next start would find."""

    def __init__(self) -> None:
        self.owner, self.files = Owner(), MemoryFiles()
        self.engine = an_engine(ROOT, self.owner, self.files)
        self.log = open_log(self.engine, LOG_0, LogConfig())

    def append(self, count: int) -> None:
        for _ in range(count):
            self.log.append(a_batch(), 1_000)
            self.owner.run()

    @property
    def covered(self) -> int:
        point = read_recovery_point(self.files, ROOT / "log" / LOG_0)
        return -1 if point is None else point.sequence


def test_recovery_point_is_written_after_a_number_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of small batches have few bytes, but take long to scan."""
    monkeypatch.setattr(checkpointer, "CHECKPOINT_BATCHES", 100)
    harness = RecoveryPointHarness()

    harness.append(99)
    before = harness.covered
    harness.append(1)
    at_bound = harness.covered
    harness.append(99)

    assert (before, at_bound, harness.covered) == (-1, 100, 100)
    harness.append(1)
    assert harness.covered == 200


def test_busy_log_gets_a_recovery_point_within_two_upkeeps() -> None:
    """The log is busy at each upkeep: the commit after the second upkeep writes the recovery point."""
    harness = RecoveryPointHarness()
    for _ in range(2):
        harness.log.append(a_batch(), 1_000)
        harness.engine.maintain(1_000)  # the append is not committed yet, so the log is busy
        before = harness.covered
        harness.owner.run()

    assert (before, harness.covered) == (-1, 2)


def test_idle_log_gets_a_recovery_point_at_the_next_upkeep() -> None:
    """After that, nothing has to be scanned."""
    harness = RecoveryPointHarness()
    harness.append(3)

    harness.engine.maintain(1_000)
    harness.owner.run()

    assert harness.covered == 3


def test_recovery_point_of_a_small_log_syncs_its_directory_once() -> None:
    """It has no new index entries, so only the name of the recovery point must become durable."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(ROOT)
    engine = an_engine(ROOT, owner, files)
    log = open_log(engine, LOG_0, LogConfig())
    log.append(a_batch(), 1_000)
    owner.run()
    begin = len(files.log)

    log.checkpoint()

    assert files.log[begin:].count("sync_directory") == 1


def test_upkeep_of_many_logs_takes_several_turns() -> None:
    """Planning recovery points for thousands of logs in one turn would delay every client."""
    owner = Owner()
    engine = an_engine(ROOT, owner, MemoryFiles())
    logs = [open_log(engine, log_id("many", number), LogConfig()) for number in range(450)]
    for log in logs:
        log.append(a_batch(), 1_000)
    owner.run()

    engine.maintain(1_000)
    first = sum(log.is_sealed for log in logs)
    engine.delete(log_id("many", 449))
    owner.run()

    assert first == 200
    assert all(log.is_sealed for log in logs[:-1])
