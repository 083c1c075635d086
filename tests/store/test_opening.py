"""Logs are opened on worker threads: other requests meanwhile, and openings that are not needed any more."""

import threading
from pathlib import Path

import pytest

from hubmere.model.errors import PartitionOffline, Refusal, ShuttingDown, StorageFull
from hubmere.store.engine import LogConfig, LogId, PartitionLog
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from store.builders import LOG_0, LOG_1, a_batch, log_ids
from store.test_commit import PATIENCE_S, ThreadedOwner

Answer = PartitionLog | Refusal


class GatedDirectories(Files):
    """Real files; the test decides when the directory of one log is created, on the thread that opens the log."""

    def __init__(self, gated: LogId) -> None:
        self._gated = gated
        self.gate = threading.Event()
        self.arrived = threading.Event()
        self.error: OSError | None = None

    def make_directory(self, path: Path) -> None:
        if path.name == self._gated:
            self.arrived.set()
            assert self.gate.wait(PATIENCE_S)
            if self.error is not None:
                raise self.error
        super().make_directory(path)


class Bench:
    """An engine with real threads, and one log whose opening is held back."""

    def __init__(self, root: Path) -> None:
        self.owner = ThreadedOwner()
        self.files = GatedDirectories(LOG_0)
        self.engine = LocalEngine(root, post=self.owner.post, files=self.files)
        self.answers: list[Answer] = []

    def open(self, log: LogId = LOG_0) -> None:
        self.engine.open(log, LogConfig(), self.answers.append)

    def await_answers(self, count: int) -> None:
        self.owner.run_until(lambda: len(self.answers) == count)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_other_logs_are_opened_and_written_meanwhile(bench: Bench) -> None:
    """One log that takes long must not keep the owner or another log waiting."""
    bench.open()
    assert bench.files.arrived.wait(PATIENCE_S)

    other = bench.engine.open_now(LOG_1, LogConfig())
    receipt = other.append(a_batch(), 1_000)
    bench.owner.run_until(lambda: receipt.is_done)

    assert (receipt.error, bench.answers) == (None, [])
    bench.files.gate.set()
    bench.await_answers(1)
    assert not isinstance(bench.answers[0], Refusal)
    bench.engine.close()


def test_several_who_ask_for_one_log_get_the_same(bench: Bench) -> None:
    """The log is opened once; a log that is open is answered inside the call."""
    bench.open()
    bench.open()
    bench.files.gate.set()
    bench.await_answers(2)

    bench.open()

    assert len(bench.answers) == 3
    assert len({id(answer) for answer in bench.answers}) == 1
    bench.engine.close()


def test_failure_is_an_answer_and_the_next_attempt_starts_anew(bench: Bench) -> None:
    """A full disk refuses; with space again the log opens."""
    bench.files.error = OSError(28, "No space left on device")
    bench.files.gate.set()
    bench.open()
    bench.await_answers(1)

    bench.files.error = None
    bench.open()
    bench.await_answers(2)

    assert isinstance(bench.answers[0], StorageFull)
    assert not isinstance(bench.answers[1], Refusal)
    bench.engine.close()


def test_log_that_is_deleted_while_it_is_opened_leaves_no_folder(bench: Bench) -> None:
    """The hub is gone; a log of the same id can be opened again, and is empty."""
    bench.open()
    assert bench.files.arrived.wait(PATIENCE_S)
    deleted: list[str] = []
    bench.engine.delete(LOG_0, lambda: deleted.append(LOG_0))
    bench.files.gate.set()
    bench.await_answers(1)
    bench.owner.run_until(lambda: bool(deleted))
    after_deletion = log_ids(bench.engine)

    bench.open()
    bench.await_answers(2)

    assert isinstance(bench.answers[0], PartitionOffline)
    assert after_deletion == []
    assert not isinstance(bench.answers[1], Refusal)
    assert log_ids(bench.engine) == [LOG_0]
    bench.engine.close()


def test_log_that_is_asked_for_again_while_it_is_deleted_is_opened_after_that(bench: Bench) -> None:
    """The new log must not get the files of the old one."""
    bench.open()
    assert bench.files.arrived.wait(PATIENCE_S)
    bench.engine.delete(LOG_0)
    bench.open()
    bench.files.gate.set()

    bench.await_answers(2)

    assert isinstance(bench.answers[0], PartitionOffline)
    assert not isinstance(bench.answers[1], Refusal)
    bench.engine.close()


def test_engine_that_closes_finishes_what_has_begun_and_refuses_the_rest(bench: Bench) -> None:
    """Every caller gets an answer; a recovered log gets a recovery point like every other log."""
    bench.open()
    assert bench.files.arrived.wait(PATIENCE_S)
    bench.files.gate.set()

    bench.engine.close()
    bench.open(LOG_1)

    assert not isinstance(bench.answers[0], Refusal)
    assert isinstance(bench.answers[1], ShuttingDown)
    bench.owner.run_waiting()
    assert len(bench.answers) == 2


def test_error_of_our_own_is_a_refusal(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A worker thread must always answer; the log has the error."""
    bench.files.error = ValueError("a bug")  # type: ignore[assignment]
    bench.files.gate.set()
    bench.open()
    bench.await_answers(1)

    assert isinstance(bench.answers[0], PartitionOffline)
    assert "a bug" in caplog.text
    bench.engine.close()


def test_callback_that_fails_does_not_concern_the_others(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """One caller's error is its own."""

    def fail(_: Answer) -> None:
        raise ValueError("a bug")

    bench.engine.open(LOG_0, LogConfig(), fail)
    bench.open()
    bench.files.gate.set()
    bench.await_answers(1)

    assert not isinstance(bench.answers[0], Refusal)
    assert "the callback of its opening failed" in caplog.text
    bench.engine.close()
