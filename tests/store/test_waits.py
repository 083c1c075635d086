"""The owner's thread never waits for the disk: other threads do."""

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hubmere.model.errors import PartitionOffline
from hubmere.store.engine import LogConfig
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from hubmere.store.log.log import LocalLog
from store.builders import LOG_0, a_batch, compact, everything, open_log, small_segments
from store.test_commit import ThreadedOwner


class WatchedFiles(Files):
    """Real files that record which thread waits for the disk, and whose flush can fail."""

    def __init__(self) -> None:
        self.waits: list[int] = []
        self.is_broken = False
        fdatasync = self.fdatasync

        def watched_fdatasync(fd: int) -> None:
            self.waits.append(threading.get_ident())
            if self.is_broken:
                raise OSError(errno.EIO, "Input/output error")
            fdatasync(fd)

        self.fdatasync = watched_fdatasync

    def sync_directory(self, path: Path) -> None:
        self.waits.append(threading.get_ident())
        super().sync_directory(path)

    def sync_file_system(self, fd: int) -> None:
        self.waits.append(threading.get_ident())
        super().sync_file_system(fd)


class ThreadedEngineHarness:
    """An engine with real threads."""

    def __init__(self, root: Path) -> None:
        self.owner = ThreadedOwner()
        self.files = WatchedFiles()
        self.engine = LocalEngine(root, post=self.owner.post, files=self.files)

    def open(self, config: LogConfig) -> LocalLog:
        log = open_log(self.engine, LOG_0, config, self.owner.run_until)
        self.owner.run_waiting()
        self.files.waits.clear()
        return log

    def publish(self, log: LocalLog, count: int) -> None:
        """Publish keyed events, and wait until they are committed."""
        receipts = [log.append(a_batch(events=[(b"k", b"x" * 100)]), 1_000) for _ in range(count)]
        self.owner.run_until(lambda: all(receipt.is_done for receipt in receipts))
        assert [receipt.error for receipt in receipts] == [None] * count

    def run_until_idle(self, is_done: Callable[[], bool]) -> None:
        """Run the owner's thread until a condition holds and the background threads are idle."""
        self.owner.run_until(lambda: is_done() and not self.engine._commit._background_tasks)

    def waits_of_owner(self) -> int:
        return self.files.waits.count(threading.get_ident())


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ThreadedEngineHarness]:
    harness = ThreadedEngineHarness(tmp_path)
    yield harness
    harness.engine.close()


def test_rolling_and_trimming_do_not_wait_for_the_disk(harness: ThreadedEngineHarness) -> None:
    """A roll waited 10 ms for each 256 MB that the file system had not written, and delayed every client."""
    log = harness.open(small_segments())

    harness.publish(log, 40)
    log.trim(30)
    harness.run_until_idle(lambda: len(list((harness.engine._folder / LOG_0).glob("*.log"))) < 4)

    assert harness.waits_of_owner() == 0
    assert harness.files.waits
    assert not (harness.engine._folder / LOG_0 / "hubmere-segments.next").exists()
    assert log.state.log_start == 30


def test_adopting_a_compaction_does_not_wait_for_the_disk(harness: ThreadedEngineHarness) -> None:
    """Each rewritten segment caused two waits."""
    log = harness.open(small_segments(compact=True, retention_ms=None, tombstone_retention_ms=0))
    harness.publish(log, 40)
    harness.engine.maintain(2_000)
    harness.run_until_idle(lambda: True)
    run = log.compaction_pass(3_000)
    assert run is not None
    run.rewrite()
    harness.files.waits.clear()

    reclaimed = run.adopt(3_000)
    harness.run_until_idle(lambda: True)

    assert (reclaimed > 0, harness.waits_of_owner()) == (True, 0)
    assert compact(log, 3_000) == 0


def test_deleting_a_log_does_not_wait_for_the_disk(harness: ThreadedEngineHarness) -> None:
    """A hub has up to 1,024 logs. Pending appends are acknowledged, and the files are deleted."""
    log = harness.open(small_segments())
    receipt = log.append(a_batch(), 1_000)
    deleted: list[str] = []

    harness.engine.delete(LOG_0, lambda: deleted.append(LOG_0))
    harness.run_until_idle(lambda: bool(deleted))

    assert (receipt.is_done, receipt.error, harness.waits_of_owner()) == (True, None, 0)
    assert [path.name for path in harness.engine._folder.iterdir() if path.is_dir()] == []


def test_verifying_a_log_after_a_failed_flush_does_not_wait_for_the_disk(harness: ThreadedEngineHarness) -> None:
    """Committed events are read again, which takes as long as recovery after a crash."""
    log = harness.open(small_segments())
    harness.publish(log, 10)
    harness.files.is_broken = True
    failed = log.append(a_batch(), 1_000)
    harness.owner.run_until(lambda: failed.is_done)
    harness.files.is_broken = False

    with pytest.raises(PartitionOffline):
        log.append(a_batch(), 2_000)
    assert len(everything(log)) == 10
    harness.run_until_idle(lambda: not log.is_offline)
    harness.publish(log, 1)

    assert harness.waits_of_owner() == 0
    assert [header.base_sequence_number for header, _ in everything(log)] == list(range(11))
