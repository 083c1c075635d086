"""The audit log: one line of JSON for each management action, in a file of its own that is rotated by size.

A line has the actor, its address, the action, the target and the outcome; never a key, a token or a body. A line is
written before the action's caller gets its response, but not flushed: the catalog is the truth about entities. If the
disk refuses a line, the action still succeeds, `on_failure` is called once, and the latest lines stay in memory, where
the portal and the command line read them.

A busy disk can hold up even a small write, so a thread writes the lines, in their order; all lines that wait are
written together. `write` and `when_written` call back on the owner's thread when the lines are in the file.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from hubmere.store.files import Files, exists, unlink_if_exists, write_all
from hubmere.store.log.commit import Post, Workers

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


Then = Callable[[], None]


class _Job:
    """What the thread does in one go: write lines, after it has read those of an earlier run if nobody has yet."""

    __slots__ = ("failures", "is_finished", "lines", "loaded", "then")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.then: list[Then] = []
        self.loaded: Sequence[AuditLine] = ()
        self.failures: list[OSError] = []
        self.is_finished = False


class AuditLog:
    """The audit log of a node; in memory only if it has no path.

    Thread rule: the owner's thread only; the methods under "the file" run on the thread that writes. It returns to the
    owner's thread through `post`; without `post` the owner's thread writes. `on_failure` is called once when writing
    starts to fail.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_bytes: int = 0,
        files: Files | None = None,
        post: Post | None = None,
        on_failure: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files or Files()
        self._post = post
        self._on_failure = on_failure
        self._latest: deque[AuditLine] = deque(maxlen=LATEST_LINES)
        self._workers = Workers("hubmere-audit", 0 if post is None else 1)
        self._running: _Job | None = None
        self._next: _Job | None = None
        # State of the thread that writes.
        self._fd: int | None = None
        self._size_bytes = 0
        self._is_failing = False
        self._is_loaded = path is None

    @property
    def is_written(self) -> bool:
        """Whether every line is in the file, or was refused by the disk."""
        return self._running is None

    def write(self, line: AuditLine, then: Then | None = None) -> None:
        """Append a line; `then` is called when it is in the file, or was refused by the disk."""
        self._latest.append(line)
        if self._path is not None:
            self._enqueue(f"{line.text()}\n".encode(), then)
        elif then is not None:
            then()

    def when_written(self, then: Then) -> None:
        """Call `then` when every line so far is in the file, or was refused by the disk."""
        if self._running is None:
            then()
        else:
            self._enqueue(None, then)

    def latest(self, count: int = LATEST_LINES) -> list[AuditLine]:
        """The latest lines, newest first; those of an earlier run once `load` has called back."""
        if not self._is_loaded and self._running is None:
            self._enqueue(None, None)
        return list(reversed(self._latest))[:count]

    def load(self, then: Then) -> None:
        """Read the last lines of an earlier run, if that was not done yet, so that the start does not wait for it."""
        if self._is_loaded and self._running is None:
            then()
        else:
            self._enqueue(None, then)

    def close(self) -> None:
        """Write what waits, and close the file; the next line opens it again."""
        while (job := self._running) is not None:
            self._workers.stop()
            self._finish(job)
        self._workers.stop()
        self._close_file()

    def _enqueue(self, line: bytes | None, then: Then | None) -> None:
        job = self._next = self._next or _Job()
        if line is not None:
            job.lines.append(line)
        if then is not None:
            job.then.append(then)
        if self._running is None:
            self._start()

    def _start(self) -> None:
        job, self._next = self._next, None
        self._running = job
        if job is not None:
            self._workers.ensure_threads(1)
            self._workers.run(lambda: self._do(job))
            if self._post is None:
                self._finish(job)

    def _finish(self, job: _Job) -> None:
        if job.is_finished:
            return
        job.is_finished = True
        if job.loaded:
            self._latest = deque([*job.loaded, *self._latest], maxlen=LATEST_LINES)
        for error in job.failures:
            self._on_failure(error)
        self._start()
        for then in job.then:
            then()

    # --- the file ---

    def _do(self, job: _Job) -> None:
        assert self._path is not None
        # Read the existing lines before the file grows, or these lines would be listed twice.
        if not self._is_loaded:
            with suppress(OSError):
                job.loaded = _last_lines(self._tail(self._path))
            self._is_loaded = True
        for line in job.lines:
            try:
                self._append(self._path, line)
                self._is_failing = False
            except OSError as error:
                self._close_file()
                if not self._is_failing:
                    self._is_failing = True
                    job.failures.append(error)
        if self._post is not None:
            self._post(lambda: self._finish(job))

    def _close_file(self) -> None:
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None

    def _append(self, path: Path, data: bytes) -> None:
        if self._fd is not None and self._size_bytes + len(data) > self._max_bytes:
            self._close_file()
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


def _last_lines(data: bytes) -> list[AuditLine]:
    """The last lines that can be parsed; an incomplete one is skipped."""
    return list(_parse_lines(data.decode("utf-8", "replace").splitlines()[-LATEST_LINES:]))


def _parse_lines(lines: Sequence[str]) -> Iterator[AuditLine]:
    for text in lines:
        with suppress(ValueError):
            yield AuditLine.parse(text)
