"""The audit log: one line of JSON for each management action, in a file of its own that is rotated by size.

A line has the actor, its address, the action, the target and the outcome; never a key, a token or a body. A line is
written before the action's caller gets its response, but not flushed: the catalog is the truth about entities. If the
disk refuses a line, the action still succeeds, `on_failure` is called once, and the latest lines stay in memory, where
the portal and the command line read them.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from hubmere.store.files import Files, exists, unlink_if_exists, write_all

# Name in the data folder; older files have a number as suffix, the oldest the highest.
AUDIT_FILE = "audit.log"
# Number of files, including the current one.
KEPT_FILES = 5
# Lines in memory, for the portal and the command line; about 300 bytes each.
LATEST_LINES = 500
# Bytes of the file that are read to fill them after a start; a line with the longest names has about 1 KB.
_TAIL_BYTES = 512 * 1024
DONE = "done"
REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One management action; `reason` is the name of the refusal if the outcome is not `done`."""

    at_ms: int
    actor: str
    peer: str
    action: str
    target: str
    outcome: str
    reason: str = ""
    tracking_id: str = ""

    def text(self) -> str:
        """The line in the format of the file, with a readable time."""
        fields = asdict(self)
        at = datetime.fromtimestamp(fields.pop("at_ms") / 1000, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": at, **fields}, ensure_ascii=False)

    @classmethod
    def parse(cls, text: str) -> "AuditLine":
        """Parse a line of the file; raises ValueError if it is not an audit line."""
        try:
            fields = json.loads(text)
            at_ms = round(datetime.fromisoformat(fields.pop("time")).timestamp() * 1000)
            return cls(at_ms=at_ms, **fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not an audit line") from error


class AuditLog:
    """The audit log of a node; in memory only if it has no path.

    Thread rule: the owner's thread only. `on_failure` is called once when writing starts to fail.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_bytes: int = 0,
        files: Files | None = None,
        on_failure: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files or Files()
        self._on_failure = on_failure
        self._latest: deque[AuditLine] = deque(maxlen=LATEST_LINES)
        self._fd: int | None = None
        self._size_bytes = 0
        self._is_failing = False
        self._is_loaded = path is None

    def write(self, line: AuditLine) -> None:
        """Append a line."""
        # Read the existing lines before the file grows, or this line would be listed twice.
        self._load()
        self._latest.append(line)
        if self._path is None:
            return
        try:
            self._append(self._path, f"{line.text()}\n".encode())
            self._is_failing = False
        except OSError as error:
            self.close()
            if not self._is_failing:
                self._is_failing = True
                self._on_failure(error)

    def latest(self, count: int = LATEST_LINES) -> list[AuditLine]:
        """The latest lines, newest first."""
        self._load()
        return list(reversed(self._latest))[:count]

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None

    # --- the file ---

    def _append(self, path: Path, data: bytes) -> None:
        if self._fd is not None and self._size_bytes + len(data) > self._max_bytes:
            self.close()
            self._rotate(path)
        if self._fd is None:
            self._fd = self._files.open(path, create=True)
            self._size_bytes = self._files.size(path)
            if self._size_bytes and self._files.pread(self._fd, 1, self._size_bytes - 1) != b"\n":
                # A crash interrupted the last line: start a new one.
                data = b"\n" + data
        write_all(self._files, self._fd, data)
        self._size_bytes += len(data)

    def _rotate(self, path: Path) -> None:
        """Give every file the next number and delete the oldest."""
        unlink_if_exists(self._files, _rotated_path(path, KEPT_FILES - 1))
        for number in range(KEPT_FILES - 2, -1, -1):
            older = _rotated_path(path, number)
            if exists(self._files, older):
                self._files.rename(older, _rotated_path(path, number + 1))

    def _load(self) -> None:
        """Read the last lines of an earlier run; on first use, so that it does not slow down the start."""
        if self._is_loaded or self._path is None:
            return
        self._is_loaded = True
        with suppress(OSError):
            self._latest.extend(_lines(self._tail(self._path)))

    def _tail(self, path: Path) -> bytes:
        size_bytes = self._files.size(path)
        fd = self._files.open(path)
        try:
            data = self._files.pread(fd, _TAIL_BYTES, max(size_bytes - _TAIL_BYTES, 0))
        finally:
            self._files.close(fd)
        return data if size_bytes <= _TAIL_BYTES else data.partition(b"\n")[2]


def _rotated_path(path: Path, number: int) -> Path:
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def _lines(data: bytes) -> Iterator[AuditLine]:
    """The lines that can be parsed; an incomplete one is skipped."""
    for text in data.decode("utf-8", "replace").splitlines():
        with suppress(ValueError):
            yield AuditLine.parse(text)
