"""Capture windows: when a file is closed, by size, by time or because the run must take everything. Pure functions.

A partition has one open window: the next event that goes into a file, and the second at which the window began, which
names the file. Windows are consecutive and follow enqueue times, not the clock of the job: a job that was stopped
writes the same files later, except for empty windows that passed meanwhile. After a window that closes by size the next
one begins at least a second later, because names have whole seconds. Reference: service 6.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

# The largest configurable file size of the service; files grow beyond the limit only if names run out of seconds.
LARGEST_FILE_BYTES: Final = 524_288_000
# Files of one partition in one micro-batch: enough to keep cores busy with one long partition, few enough that a
# micro-batch ends soon when the job has to stop.
MAX_FILES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When a file is closed, and whether empty files are written."""

    interval_s: int
    size_limit_bytes: int
    skips_empty: bool


class Window(NamedTuple):
    """The open window of a partition."""

    at: int
    start_s: int


class FilePlan(NamedTuple):
    """One file: the events from `first` up to, and not including, `end`, and the second that names it."""

    first: int
    end: int
    second: int


class LogView(Protocol):
    """A partition as it is now, for the decisions below."""

    @property
    def first(self) -> int:
        """The oldest retained event."""

    @property
    def end(self) -> int:
        """One after the newest event."""

    def second_at(self, sequence: int) -> int:
        """When an event was enqueued."""

    def first_at(self, second: int) -> int | None:
        """The first event that was enqueued at a second or later."""

    def bytes_from(self, sequence: int) -> int | None:
        """Size from an event to the end, in bytes; None if it is unknown."""

    def after_bytes(self, sequence: int, size_bytes: int) -> int:
        """The end of the batch at which a reader has read this number of bytes, at most the end of the log."""


class Planned(NamedTuple):
    """The files to write now, and the window that is open after them."""

    files: tuple[FilePlan, ...]
    window: Window


def first_window(log: LogView, since: int, now_s: int) -> Window:
    """The first window of a partition: starts now, or at its first event if that is earlier."""
    at = max(since, log.first)
    return Window(at, min(now_s, log.second_at(at)) if at < log.end else now_s)


def plan(window: Window, log: LogView, rules: Rules, now_s: int, *, closes_all: bool = False) -> Planned:
    """Close the windows that are due; with `closes_all` every event ends up in a file."""
    files: list[FilePlan] = []
    while len(files) < MAX_FILES:
        at = max(window.at, log.first)
        closed = (
            _close(Window(at, window.start_s), log, rules, now_s, closes_all=closes_all)
            if at < log.end
            else _close_empty(Window(at, window.start_s), rules, now_s)
        )
        if closed is None:
            break
        file, window = closed
        files.append(file)
    return Planned(tuple(files), window)


def _close(
    window: Window, log: LogView, rules: Rules, now_s: int, *, closes_all: bool
) -> tuple[FilePlan, Window] | None:
    second = _plausible_second(log.second_at(window.at), now_s, rules.interval_s)
    start_s = _window_of(window.start_s, second, rules.interval_s)
    deadline_s = start_s + rules.interval_s
    by_time = _cut_by_time(log, window.at, deadline_s, now_s)
    # A run that takes everything cannot wait for the next second: its names may run ahead of the clock.
    limit_bytes = rules.size_limit_bytes if closes_all else _limit(log, window.at, start_s, now_s, rules)
    by_size = _cut_by_size(log, window.at, limit_bytes)
    if by_time is not None and (by_size is None or by_time <= by_size):
        return _file(window.at, by_time, start_s, deadline_s)
    if by_size is not None:
        next_s = max(start_s + 1, min(log.second_at(by_size), now_s) if by_size < log.end else now_s)
        # Two files of the same second would have the same name, so the second one waits (reference: service 6).
        return _file(window.at, by_size, start_s, next_s) if next_s <= now_s or closes_all else None
    if now_s >= deadline_s:
        return _file(window.at, log.end, start_s, _window_of(start_s, now_s, rules.interval_s))
    return _file(window.at, log.end, start_s, max(start_s + 1, now_s)) if closes_all else None


def _plausible_second(second: int, now_s: int, interval_s: int) -> int:
    """When the first event of a window was enqueued. A time that is further ahead than the next window was set by a
    producer or by a clock that was wrong: its window would stay open until then, and the events after it with it."""
    return now_s - interval_s if second > now_s + interval_s else min(second, now_s)


def _file(first: int, end: int, second: int, next_s: int) -> tuple[FilePlan, Window]:
    return FilePlan(first, end, second), Window(end, next_s)


def _close_empty(window: Window, rules: Rules, now_s: int) -> tuple[FilePlan, Window] | None:
    """Close a window without events, with an empty file unless empty files are disabled."""
    if rules.skips_empty or now_s < window.start_s + rules.interval_s:
        return None
    return _file(window.at, window.at, window.start_s, _window_of(window.start_s, now_s, rules.interval_s))


def _window_of(start_s: int, second: int, interval_s: int) -> int:
    """The start of the window that contains a second, for windows that begin at `start_s`."""
    return start_s + max(0, (second - start_s) // interval_s) * interval_s


def _cut_by_time(log: LogView, at: int, deadline_s: int, now_s: int) -> int | None:
    """The first event that belongs to a later window. Times set by producers may go backwards; such an event never
    closes a window."""
    if deadline_s > now_s:
        return None
    found = log.first_at(deadline_s)
    return found if found is not None and at < found < log.end else None


def _cut_by_size(log: LogView, at: int, limit_bytes: int) -> int | None:
    waiting = log.bytes_from(at)
    return None if waiting is None or waiting < limit_bytes else log.after_bytes(at, limit_bytes)


def _limit(log: LogView, at: int, start_s: int, now_s: int, rules: Rules) -> int:
    """The size limit, or more if there would be more files than seconds to name them."""
    waiting = log.bytes_from(at) or 0
    share = -(-waiting // max(1, now_s - start_s))
    return max(rules.size_limit_bytes, min(share, LARGEST_FILE_BYTES))
