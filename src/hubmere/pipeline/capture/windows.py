"""When a file ends: by size, by time, or because everything that is there is wanted. Pure decisions over one partition.

A partition has one open window: the next event that goes into a file, and the second at which the window began, which
names the file. Windows lie in a row: the time they follow is that of the log, so that a job that was away writes the
same files as one that was not, but for windows without events that passed meanwhile. A window that closes by size
gives way to one that begins later by at least a second, since names have no finer time. Reference: service 6.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

# The largest file that the service can be asked for; ours grow up to it only when names run out of seconds.
LARGEST_FILE_BYTES: Final = 524_288_000
# Files of one partition in one micro-batch: enough to keep cores busy with one long partition, few enough that a
# micro-batch ends soon when the job is told to stop.
MAX_FILES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When a file is closed and whether one without events is written."""

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
    """A partition as it is now: what the decisions ask of it."""

    @property
    def first(self) -> int:
        """The oldest event that is still there."""

    @property
    def end(self) -> int:
        """Behind the newest event."""

    def second_at(self, sequence: int) -> int:
        """When an event was enqueued."""

    def first_at(self, second: int) -> int | None:
        """The first event that was enqueued at a second or later."""

    def bytes_from(self, sequence: int) -> int | None:
        """How much lies from an event to the end; None where nobody counts."""

    def after_bytes(self, sequence: int, size_bytes: int) -> int:
        """The end of the batch with which a reader has so many bytes; the end of the log when it comes first."""


class Planned(NamedTuple):
    """The files that can be written now, and the window that is open behind them."""

    files: tuple[FilePlan, ...]
    window: Window


def first_window(log: LogView, since: int, now_s: int) -> Window:
    """The window that Capture begins with: at once, or when the first of its events came, if that was before."""
    at = max(since, log.first)
    return Window(at, min(now_s, log.second_at(at)) if at < log.end else now_s)


def plan(window: Window, log: LogView, rules: Rules, now_s: int, *, closes_all: bool = False) -> Planned:
    """Close what is to be closed; `closes_all` leaves no event behind."""
    files: list[FilePlan] = []
    while len(files) < MAX_FILES:
        at = max(window.at, log.first)
        closed = (
            _closed(Window(at, window.start_s), log, rules, now_s, closes_all=closes_all)
            if at < log.end
            else _closed_empty(Window(at, window.start_s), rules, now_s)
        )
        if closed is None:
            break
        file, window = closed
        files.append(file)
    return Planned(tuple(files), window)


def _closed(
    window: Window, log: LogView, rules: Rules, now_s: int, *, closes_all: bool
) -> tuple[FilePlan, Window] | None:
    start_s = _window_of(window.start_s, min(log.second_at(window.at), now_s), rules.interval_s)
    deadline_s = start_s + rules.interval_s
    by_time = _cut_by_time(log, window.at, deadline_s, now_s)
    # A run that takes all has no next second to wait for: its names run ahead of the clock instead.
    limit_bytes = rules.size_limit_bytes if closes_all else _limit(log, window.at, start_s, now_s, rules)
    by_size = _cut_by_size(log, window.at, limit_bytes)
    if by_time is not None and (by_size is None or by_time <= by_size):
        return _file(window.at, by_time, start_s, deadline_s)
    if by_size is not None:
        next_s = max(start_s + 1, min(log.second_at(by_size), now_s) if by_size < log.end else now_s)
        # Reference, service 6: two files of one second would have one name, so the second one waits.
        return _file(window.at, by_size, start_s, next_s) if next_s <= now_s or closes_all else None
    if now_s >= deadline_s:
        return _file(window.at, log.end, start_s, _window_of(start_s, now_s, rules.interval_s))
    return _file(window.at, log.end, start_s, max(start_s + 1, now_s)) if closes_all else None


def _file(first: int, end: int, second: int, next_s: int) -> tuple[FilePlan, Window]:
    return FilePlan(first, end, second), Window(end, next_s)


def _closed_empty(window: Window, rules: Rules, now_s: int) -> tuple[FilePlan, Window] | None:
    """A window without events: a file that keeps the pace, unless that is not wanted."""
    if rules.skips_empty or now_s < window.start_s + rules.interval_s:
        return None
    return _file(window.at, window.at, window.start_s, _window_of(window.start_s, now_s, rules.interval_s))


def _window_of(start_s: int, second: int, interval_s: int) -> int:
    """The beginning of the window, in the row that begins at `start_s`, that a second lies in."""
    return start_s + max(0, (second - start_s) // interval_s) * interval_s


def _cut_by_time(log: LogView, at: int, deadline_s: int, now_s: int) -> int | None:
    """The first event that belongs to a later window. Producers' own times may run backwards: those never cut."""
    if deadline_s > now_s:
        return None
    found = log.first_at(deadline_s)
    return found if found is not None and at < found < log.end else None


def _cut_by_size(log: LogView, at: int, limit_bytes: int) -> int | None:
    waiting = log.bytes_from(at)
    return None if waiting is None or waiting < limit_bytes else log.after_bytes(at, limit_bytes)


def _limit(log: LogView, at: int, start_s: int, now_s: int, rules: Rules) -> int:
    """The size limit, or more where so many files would need more names than there are seconds."""
    waiting = log.bytes_from(at) or 0
    share = -(-waiting // max(1, now_s - start_s))
    return max(rules.size_limit_bytes, min(share, LARGEST_FILE_BYTES))
