"""Logs are opened on worker threads: other requests continue, and openings that are no longer needed are dropped."""

import threading
from pathlib import Path

import pytest

from hubmere.model.errors import PartitionOffline, Refusal, ShuttingDown, StorageFull
from hubmere.store.engine import LogConfig, LogId, PartitionLog
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from store.builders import LOG_0, LOG_1, a_batch, log_ids, open_log
from store.test_commit import PATIENCE_S, ThreadedOwner

Answer = PartitionLog | Refusal


class GatedDirectories(Files):
    """Real files; the test decides when the worker thread can create the directory of one log."""

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


class OpeningHarness:
    """An engine with real threads, and one log whose opening waits for the test."""

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
def harness(tmp_path: Path) -> OpeningHarness:
    return OpeningHarness(tmp_path)


def test_other_logs_are_opened_and_written_while_one_is_opened(harness: OpeningHarness) -> None:
    """A slow log must not delay the owner's thread or another log."""
    harness.open()
    assert harness.files.arrived.wait(PATIENCE_S)

    other = open_log(harness.engine, LOG_1, LogConfig(), harness.owner.run_until)
    receipt = other.append(a_batch(), 1_000)
    harness.owner.run_until(lambda: receipt.is_done)

    assert (receipt.error, harness.answers) == (None, [])
    harness.files.gate.set()
    harness.await_answers(1)
    assert not isinstance(harness.answers[0], Refusal)
    harness.engine.close()


def test_several_requests_for_one_log_get_the_same_object(harness: OpeningHarness) -> None:
    """The log is opened once; if it is already open, the answer comes inside the call."""
    harness.open()
    harness.open()
    harness.files.gate.set()
    harness.await_answers(2)

    harness.open()

    assert len(harness.answers) == 3
    assert len({id(answer) for answer in harness.answers}) == 1
    harness.engine.close()


def test_failed_opening_is_answered_and_the_next_attempt_starts_again(harness: OpeningHarness) -> None:
    """A full disk refuses; when there is space again, the log opens."""
    harness.files.error = OSError(28, "No space left on device")
    harness.files.gate.set()
    harness.open()
    harness.await_answers(1)

    harness.files.error = None
    harness.open()
    harness.await_answers(2)

    assert isinstance(harness.answers[0], StorageFull)
    assert not isinstance(harness.answers[1], Refusal)
    harness.engine.close()


def test_log_that_is_deleted_during_its_opening_leaves_no_folder(harness: OpeningHarness) -> None:
    """The hub was deleted; a log with the same id can be opened again, and is empty."""
    harness.open()
    assert harness.files.arrived.wait(PATIENCE_S)
    deleted: list[str] = []
    harness.engine.delete(LOG_0, lambda: deleted.append(LOG_0))
    harness.files.gate.set()
    harness.await_answers(1)
    harness.owner.run_until(lambda: bool(deleted))
    after_deletion = log_ids(harness.engine)

    harness.open()
    harness.await_answers(2)

    assert isinstance(harness.answers[0], PartitionOffline)
    assert after_deletion == []
    assert not isinstance(harness.answers[1], Refusal)
    assert log_ids(harness.engine) == [LOG_0]
    harness.engine.close()


def test_log_that_is_requested_during_its_deletion_is_opened_after_it(harness: OpeningHarness) -> None:
    """The new log must not get the files of the old one."""
    harness.open()
    assert harness.files.arrived.wait(PATIENCE_S)
    harness.engine.delete(LOG_0)
    harness.open()
    harness.files.gate.set()

    harness.await_answers(2)

    assert isinstance(harness.answers[0], PartitionOffline)
    assert not isinstance(harness.answers[1], Refusal)
    harness.engine.close()


def test_closing_engine_completes_running_openings_and_refuses_the_others(harness: OpeningHarness) -> None:
    """Every caller gets an answer; a recovered log gets a recovery point like every other log."""
    harness.open()
    assert harness.files.arrived.wait(PATIENCE_S)
    harness.files.gate.set()

    harness.engine.close()
    harness.open(LOG_1)

    assert not isinstance(harness.answers[0], Refusal)
    assert isinstance(harness.answers[1], ShuttingDown)
    harness.owner.run_waiting()
    assert len(harness.answers) == 2


def test_internal_error_during_an_opening_is_answered_with_a_refusal(
    harness: OpeningHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker thread must always answer; the error is in the log file."""
    harness.files.error = ValueError("a bug")  # type: ignore[assignment]
    harness.files.gate.set()
    harness.open()
    harness.await_answers(1)

    assert isinstance(harness.answers[0], PartitionOffline)
    assert "a bug" in caplog.text
    harness.engine.close()


def test_failing_callback_does_not_affect_the_others(harness: OpeningHarness, caplog: pytest.LogCaptureFixture) -> None:
    """An error of one caller must not affect the others."""

    def fail(_: Answer) -> None:
        raise ValueError("a bug")

    harness.engine.open(LOG_0, LogConfig(), fail)
    harness.open()
    harness.files.gate.set()
    harness.await_answers(1)

    assert not isinstance(harness.answers[0], Refusal)
    assert "the callback of its opening failed" in caplog.text
    harness.engine.close()
