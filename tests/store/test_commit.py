"""Group commit with real threads: rounds, order, and one move of the committed end per partition."""

import errno
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from hubmere.model.receipt import Receipt
from hubmere.store.engine import LogConfig, log_id
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from hubmere.store.log.commit import SYNCFS_FROM_FILES
from store.builders import Owner, a_batch, an_engine, everything, open_log
from store.faulty_files import FaultyFiles

PATIENCE_S = 240.0


class ThreadedOwner:
    """An owner's thread with a queue for the calls of other threads."""

    def __init__(self) -> None:
        self._turns: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def post(self, turn: Callable[[], None]) -> None:
        self._turns.put(turn)

    def run_waiting(self) -> None:
        while not self._turns.empty():
            self._turns.get()()

    def run_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._turns.get(timeout=PATIENCE_S)()


class GatedFiles(Files):
    """Real files whose flush waits until the test allows it."""

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.flushes = 0
        self.lock = threading.Lock()
        self.fdatasync = self._gated

    def _gated(self, fd: int) -> None:
        assert self.gate.acquire(timeout=PATIENCE_S)
        with self.lock:
            self.flushes += 1
        Files.fdatasync(fd)


def test_appends_during_a_round_are_committed_by_the_next(tmp_path: Path) -> None:
    """One round runs at a time, and the next one covers all waiting appends: eleven appends need two flushes."""
    owner, files = ThreadedOwner(), GatedFiles()
    files.gate.release(1_000)
    engine = LocalEngine(tmp_path, post=owner.post, files=files)
    log = open_log(engine, log_id("hub", 0), LogConfig(), owner.run_until)
    owner.run_waiting()
    while files.gate.acquire(blocking=False):
        pass
    files.flushes = 0

    receipts = [log.append(a_batch(), 1_000)]
    owner.run_until(lambda: True)
    owner._turns.get(timeout=PATIENCE_S)()
    receipts += [log.append(a_batch(), 1_000) for _ in range(10)]
    files.gate.release()
    owner.run_until(lambda: receipts[0].is_done)
    waiting = [receipt.is_done for receipt in receipts[1:]]
    files.gate.release()
    owner.run_until(lambda: receipts[-1].is_done)

    assert waiting == [False] * 10
    assert all(receipt.is_done for receipt in receipts)
    assert files.flushes == 2
    files.gate.release(1_000)
    engine.close()


def test_rounds_of_many_partitions_keep_the_order_of_each(tmp_path: Path) -> None:
    """Flushes run in parallel; a round moves each partition once, and receipts complete in the order of appends."""
    owner = ThreadedOwner()
    engine = LocalEngine(tmp_path, post=owner.post)
    logs = [open_log(engine, log_id("hub", number), LogConfig(), owner.run_until) for number in range(12)]
    done: list[list[int]] = [[] for _ in logs]
    left = len(logs) * 30

    def note(number: int) -> Callable[[Receipt], None]:
        def callback(receipt: Receipt) -> None:
            nonlocal left
            left -= 1
            done[number].append(receipt.sequence_number)

        return callback

    for _ in range(30):
        for number, log in enumerate(logs):
            log.append(a_batch(), 1_000, note(number))
    owner.run_until(lambda: left == 0)

    assert done == [list(range(30))] * 12
    assert [len(everything(log)) for log in logs] == [30] * 12
    engine.close()


def test_closing_completes_pending_appends(tmp_path: Path) -> None:
    """A stop acknowledges durable appends, without a running event loop."""
    owner = ThreadedOwner()
    engine = LocalEngine(tmp_path, post=owner.post)
    log = open_log(engine, log_id("hub", 0), LogConfig(), owner.run_until)
    receipts = [log.append(a_batch(), 1_000) for _ in range(5)]

    engine.close()

    assert all(receipt.is_done and receipt.error is None for receipt in receipts)
    again = LocalEngine(tmp_path, post=owner.post)
    assert again.was_clean
    assert open_log(again, log_id("hub", 0), LogConfig(), owner.run_until).state.committed == 5
    again.close()


def test_writer_that_appends_in_its_receipt_callback_does_not_block_the_turn(tmp_path: Path) -> None:
    """Without flushes, a chain of appends must still return to the event loop."""
    owner = ThreadedOwner()
    engine = LocalEngine(tmp_path, post=owner.post, durability="os")
    log = open_log(engine, log_id("hub", 0), LogConfig(), owner.run_until)
    owner.run_waiting()

    def again(_: Receipt) -> None:
        log.append(a_batch(), 1_000, again)

    log.append(a_batch(), 1_000, again)
    for _ in range(2_000):
        owner._turns.get(timeout=PATIENCE_S)()

    assert log.state.committed == 2_000
    log.unwatch(lambda: None)
    engine.delete(log_id("hub", 0))
    engine.close()


def test_a_round_of_many_files_is_one_flush_of_the_file_system() -> None:
    """This needs one journal commit instead of one per file; if it fails, none of the files counts as durable."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(Path("/data"))
    engine = an_engine(Path("/data"), owner, files)
    logs = [open_log(engine, log_id("hub", number), LogConfig()) for number in range(SYNCFS_FROM_FILES)]
    begin = len(files.log)

    good = [log.append(a_batch(), 1_000) for log in logs]
    owner.run()
    calls = files.log[begin:]
    files.fails = lambda call: OSError(errno.EIO, "broken") if call == "sync_file_system" else None
    bad = [log.append(a_batch(), 1_000) for log in logs]
    owner.run()

    assert (calls.count("sync_file_system"), calls.count("fdatasync")) == (1, 0)
    assert all(receipt.is_done and receipt.error is None for receipt in good)
    assert all(receipt.error is not None for receipt in bad)
