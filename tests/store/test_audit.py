"""The audit log on disk: lines, rotation, restarts, and a disk that refuses."""

import errno
import json
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
    """Takes no byte until it is freed."""

    def __init__(self) -> None:
        self.is_full = True
        self.write = self._write

    def _write(self, fd: int, data: Buffer) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return Files.write(fd, data)


def test_line_is_json_with_everything_in_it(tmp_path: Path) -> None:
    """Collectors read it without knowing us."""
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


def test_torn_line_is_passed_over_and_the_next_begins_on_its_own(tmp_path: Path) -> None:
    """A crash in the middle of a line costs that line and no other."""
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


def test_memory_is_bounded() -> None:
    """A node without a disk keeps the latest lines and no more."""
    log = AuditLog()

    for number in range(LATEST_LINES + 1):
        log.write(a_line(f"hubmere/hub{number}"))

    assert len(log.latest()) == LATEST_LINES
    assert log.latest(1)[0].target == f"hubmere/hub{LATEST_LINES}"


@pytest.mark.parametrize("text", ["", "[]", '"x"', "{}", '{"time": 1}', '{"time": "2023-11-14", "other": 1}'])
def test_text_that_is_no_line_is_refused(text: str) -> None:
    """The reader of the file decides what to do about it."""
    with pytest.raises(ValueError):
        AuditLine.parse(text)
