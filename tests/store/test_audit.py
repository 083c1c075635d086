"""The audit log on disk: lines, rotation, restarts, and a disk that cannot be written."""

import errno
import json
import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hubmere.records.header import Buffer
from hubmere.store.audit import AUDIT_FILE, KEPT_FILES, LATEST_LINES, AuditLine, AuditLog
from hubmere.store.files import Files


def a_line(target: str = "hubmere/orders", **given: str) -> AuditLine:
    """A line with valid defaults."""
    return AuditLine(
        at_ms=1_700_000_000_123,
        actor="RootManageSharedAccessKey",
        peer="127.0.0.1",
        action="create hub",
        target=target,
        outcome=given.get("outcome", "done"),
        reason=given.get("reason", ""),
        tracking_id="t-1",
    )


class FullDisk(Files):
    """A disk without free space until the test frees it."""

    def __init__(self) -> None:
        self.is_full = True
        self.write = self._write

    def _write(self, fd: int, data: Buffer) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return Files.write(fd, data)


def test_line_is_json_with_every_field(tmp_path: Path) -> None:
    """Log collectors can read it without code of this project."""
    log = AuditLog(tmp_path / AUDIT_FILE, max_bytes=10_000)

    log.write(a_line())
    log.close()

    [line] = (tmp_path / AUDIT_FILE).read_text().splitlines()
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123+00:00",
        "actor": "RootManageSharedAccessKey",
        "peer": "127.0.0.1",
        "action": "create hub",
        "target": "hubmere/orders",
        "outcome": "done",
        "reason": "",
        "tracking_id": "t-1",
    }


def test_latest_lines_survive_a_restart(tmp_path: Path) -> None:
    """After a restart the earlier lines are listed, newest first and each once."""
    first = AuditLog(tmp_path / AUDIT_FILE, max_bytes=10_000)
    first.write(a_line("hubmere/one"))
    first.close()

    second = AuditLog(tmp_path / AUDIT_FILE, max_bytes=10_000)
    second.write(a_line("hubmere/two"))

    assert [line.target for line in second.latest()] == ["hubmere/two", "hubmere/one"]
    second.close()


def test_incomplete_line_is_skipped_and_the_next_line_is_complete(tmp_path: Path) -> None:
    """A crash in the middle of a line loses only that line."""
    path = tmp_path / AUDIT_FILE
    path.write_text(a_line("hubmere/whole").text() + '\n{"time": "2023-')

    log = AuditLog(path, max_bytes=10_000)
    log.write(a_line("hubmere/after"))
    log.close()

    again = AuditLog(path, max_bytes=10_000)
    assert [line.target for line in again.latest()] == ["hubmere/after", "hubmere/whole"]


def test_full_file_is_rotated_and_the_oldest_deleted(tmp_path: Path) -> None:
    """The number of files is bounded, and no line is split."""
    size_bytes = len(a_line().text()) + 1
    log = AuditLog(tmp_path / AUDIT_FILE, max_bytes=2 * size_bytes)

    for number in range(2 * KEPT_FILES + 3):
        log.write(a_line(f"hubmere/hub{number:02}"))
    log.close()

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [AUDIT_FILE, *(f"{AUDIT_FILE}.{number}" for number in range(1, KEPT_FILES))]
    texts = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert all(AuditLine.parse(text) for text in texts)
    assert "hubmere/hub00" not in "".join(texts)


def test_disk_error_is_reported_once_and_lines_stay_in_memory(tmp_path: Path) -> None:
    """An action does not fail because of its audit line; lines are written to the file again when there is space."""
    failures: list[OSError] = []
    disk = FullDisk()
    log = AuditLog(tmp_path / AUDIT_FILE, max_bytes=10_000, files=disk, on_failure=failures.append)

    log.write(a_line("hubmere/one"))
    log.write(a_line("hubmere/two"))
    disk.is_full = False
    log.write(a_line("hubmere/three"))
    log.close()

    assert [error.errno for error in failures] == [errno.ENOSPC]
    assert [line.target for line in log.latest()] == ["hubmere/three", "hubmere/two", "hubmere/one"]
    assert "hubmere/three" in (tmp_path / AUDIT_FILE).read_text()


def test_number_of_lines_in_memory_is_limited() -> None:
    """A node without a disk keeps only the latest lines."""
    log = AuditLog()

    for number in range(LATEST_LINES + 1):
        log.write(a_line(f"hubmere/hub{number}"))

    assert len(log.latest()) == LATEST_LINES
    assert log.latest(1)[0].target == f"hubmere/hub{LATEST_LINES}"


@pytest.mark.parametrize("text", ["", "[]", '"x"', "{}", '{"time": 1}', '{"time": "2023-11-14", "other": 1}'])
def test_text_that_is_not_a_line_is_refused(text: str) -> None:
    """The code that reads the file decides how to handle it."""
    with pytest.raises(ValueError):
        AuditLine.parse(text)


class StuckDisk(Files):
    """A disk on which no write returns until the test lets it."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.write = self._write

    def _write(self, fd: int, data: Buffer) -> int:
        self.goes_on.wait()
        return Files.write(fd, data)


def _file_targets(path: Path) -> list[str]:
    return [AuditLine.parse(text).target for text in path.read_text().splitlines()]


def _answer(answered: list[tuple[str, list[str]]], name: str, path: Path) -> None:
    answered.append((name, _file_targets(path)))


def test_lines_are_written_by_a_thread_in_their_order(tmp_path: Path) -> None:
    """A stuck disk holds up the responses about the changes, and nothing else of the node."""
    path, disk, posted = tmp_path / AUDIT_FILE, StuckDisk(), queue.SimpleQueue[Callable[[], None]]()
    log = AuditLog(path, max_bytes=10_000, files=disk, post=posted.put)
    answered: list[tuple[str, list[str]]] = []
    names = [f"hubmere/hub{number}" for number in range(5)]

    for name in names:
        log.write(a_line(name), partial(_answer, answered, name, path))
    log.when_written(partial(_answer, answered, "all", path))
    answered_while_stuck, listed = list(answered), [line.target for line in log.latest()]
    is_written_while_stuck = log.is_written
    disk.goes_on.set()
    while not log.is_written:
        posted.get()()

    assert answered_while_stuck == []
    assert not is_written_while_stuck
    assert listed == names[::-1]
    assert [name for name, _ in answered] == [*names, "all"]
    assert all(name in found for name, found in answered[:-1])
    assert answered[-1][1] == names
    log.close()


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    """A node that stops calls back for every line, although its loop runs no posted call any more."""
    path = tmp_path / AUDIT_FILE
    answered: list[int] = []
    log = AuditLog(path, max_bytes=10_000, post=lambda _call: None)

    for number in range(3):
        log.write(a_line(f"hubmere/hub{number}"), partial(answered.append, number))
    log.close()

    assert answered == [0, 1, 2]
    assert _file_targets(path) == [f"hubmere/hub{number}" for number in range(3)]


def test_lines_of_an_earlier_run_are_read_by_the_thread(tmp_path: Path) -> None:
    """The list shows them once `load` has called back, and each line once."""
    path, posted = tmp_path / AUDIT_FILE, queue.SimpleQueue[Callable[[], None]]()
    path.write_text(f"{a_line('hubmere/earlier').text()}\n")
    log = AuditLog(path, max_bytes=10_000, post=posted.put)
    seen: list[list[str]] = []

    log.write(a_line("hubmere/now"))
    log.load(lambda: seen.append([line.target for line in log.latest()]))
    while not log.is_written:
        posted.get()()

    assert seen == [["hubmere/now", "hubmere/earlier"]]
    log.close()
