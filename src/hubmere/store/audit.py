"""The audit log: one line of JSON for each management action, in a file of its own that is rotated by size.

It says who asked, from where, for what, and what came of it; never a key, a token or a body. A line is handed to the
operating system before the action's caller is told, and is not waited for on disk: the catalog is the truth about
entities, this is the story. A disk that takes no line holds no action up; the owner is told once, and the latest lines
stay in memory, where the portal and the command read them.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from hubmere.store.files import Files, exists, unlink_if_there, write_all

# Its name in the data folder; older files have a number behind it, the oldest the highest.
AUDIT_FILE = "audit.log"
# Files that are kept, the current one included.
KEPT_FILES = 5
# Lines that are kept in memory: what a person looks through. About 300 bytes each.
LATEST_LINES = 500
# What is read of the file to fill them after a start: the longest names make a line of about 1 KB.
_TAIL_BYTES = 512 * 1024
DONE = "done"
REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One management action: `reason` is the name of the refusal when the outcome is not `done`."""

    at_ms: int
    actor: str
    peer: str
    action: str
    target: str
    outcome: str
    reason: str = ""
    tracking_id: str = ""

    def text(self) -> str:
        """The line as it stands in the file, its time readable."""
        fields = asdict(self)
        at = datetime.fromtimestamp(fields.pop("at_ms") / 1000, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": at, **fields}, ensure_ascii=False)

    @classmethod
    def parse(cls, text: str) -> "AuditLine":
        """A line of the file; raises ValueError when it is none."""
        try:
            fields = json.loads(text)
            at_ms = round(datetime.fromisoformat(fields.pop("time")).timestamp() * 1000)
            return cls(at_ms=at_ms, **fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not an audit line") from error


class AuditLog:
    """The audit log of a node. Without a path it is kept in memory only.

    Thread rule: the owner's thread only. `on_failure` is called when the disk begins to refuse lines.
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
        """Keep a line."""
        # What the file held before must be read before the file grows, or a line would be seen twice.
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
        """Let the file go; the next line opens it again."""
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
                # A crash in the middle of a line: ours begins on its own.
                data = b"\n" + data
        write_all(self._files, self._fd, data)
        self._size_bytes += len(data)

    def _rotate(self, path: Path) -> None:
        """Every file gets the next number; the oldest goes."""
        unlink_if_there(self._files, _numbered(path, KEPT_FILES - 1))
        for number in range(KEPT_FILES - 2, -1, -1):
            older = _numbered(path, number)
            if exists(self._files, older):
                self._files.rename(older, _numbered(path, number + 1))

    def _load(self) -> None:
        """Take the end of what an earlier run has left; the first who asks pays for it, not the start."""
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


def _numbered(path: Path, number: int) -> Path:
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def _lines(data: bytes) -> Iterator[AuditLine]:
    """The lines that can be read; a torn one is passed over."""
    for text in data.decode("utf-8", "replace").splitlines():
        with suppress(ValueError):
            yield AuditLine.parse(text)
