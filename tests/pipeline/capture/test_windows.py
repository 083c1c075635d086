"""When files are closed: single cases, and random logs with random times of checks."""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.pipeline.capture.planning.windows import (
    LARGEST_FILE_BYTES,
    FilePlan,
    Rules,
    Window,
    first_window,
    plan,
)

START = 1_000_000
RULES = Rules(interval_s=60, size_limit_bytes=100, skips_empty=True)


@dataclass
class Log:
    """A partition with one event per batch: time and size of each."""

    events: list[tuple[int, int]] = field(default_factory=list)
    first: int = 0

    @property
    def end(self) -> int:
        return len(self.events)

    def second_at(self, sequence: int) -> int:
        return self.events[sequence][0]

    def first_at(self, second: int) -> int | None:
        return next((index for index, (at, _) in enumerate(self.events) if at >= second), None)

    def bytes_from(self, sequence: int) -> int | None:
        return sum(size for _, size in self.events[sequence:])

    def after_bytes(self, sequence: int, size_bytes: int) -> int:
        sizes = [size for _, size in self.events[sequence:]]
        totals = [sum(sizes[: index + 1]) for index in range(len(sizes))]
        return min(self.end, sequence + bisect_left(totals, size_bytes) + 1)


def test_window_stays_open_until_its_interval_ends() -> None:
    """One event, one file, named by the window's start (reference: service 11, check 50)."""
    log = Log([(START + 10, 10)])
    window = Window(0, START)

    assert plan(window, log, RULES, START + 59) == ((), window)
    files, after = plan(window, log, RULES, START + 60)

    assert files == (FilePlan(0, 1, START),)
    assert after == Window(1, START + 60)


def test_size_limit_closes_a_file_before_the_interval() -> None:
    """25 MB under a limit of 10 are two files by size and one by time (check 51)."""
    log = Log([(START + second, 10) for second in range(25)])

    files, window = plan(Window(0, START), log, RULES, START + 30)
    later, _ = plan(window, log, RULES, window.start_s + 60)

    assert [(file.first, file.end) for file in files] == [(0, 10), (10, 20)]
    assert [(file.first, file.end) for file in later] == [(20, 25)]


def test_empty_window_has_a_file_unless_disabled() -> None:
    """Check 52."""
    keeps_pace = Rules(interval_s=60, size_limit_bytes=100, skips_empty=False)

    files, window = plan(Window(0, START), Log(), keeps_pace, START + 61)

    assert files == (FilePlan(0, 0, START),)
    assert window == Window(0, START + 60)
    assert plan(Window(0, START), Log(), RULES, START + 61).files == ()


def test_job_that_was_stopped_writes_files_of_the_usual_length() -> None:
    """The events of each window are in a separate file, however late it is written."""
    log = Log([(START + 5, 1), (START + 59, 1), (START + 60, 1), (START + 700, 1)])

    files, window = plan(Window(0, START), log, RULES, START + 3000)

    assert files == (FilePlan(0, 2, START), FilePlan(2, 3, START + 60), FilePlan(3, 4, START + 660))
    assert window == Window(4, START + 3000)


def test_second_file_of_the_same_second_waits_for_the_next_second() -> None:
    """Names have whole seconds (reference: service 6)."""
    log = Log([(START, 60)] * 4)

    assert plan(Window(0, START), log, RULES, START).files == ()
    files, window = plan(Window(0, START), log, RULES, START + 1)

    # There is one name per second: this file has all waiting events.
    assert files == (FilePlan(0, 4, START),)
    assert window == Window(4, START + 1)


def test_file_never_exceeds_the_largest_size() -> None:
    """This holds even if there are not enough seconds for names."""
    log = Log([(START, LARGEST_FILE_BYTES // 2)] * 6)

    (file,), _ = plan(Window(0, START), log, RULES, START + 1)

    assert (file.first, file.end) == (0, 2)


def test_run_with_once_leaves_no_window_open() -> None:
    """`--once` closes windows before their time."""
    log = Log([(START, 60)] * 3)

    files, window = plan(Window(0, START), log, RULES, START, closes_all=True)

    assert files[-1].end == 3
    assert window.start_s == START + len(files)
    assert plan(window, log, RULES, START, closes_all=True).files == ()


def test_events_that_retention_deleted_are_skipped() -> None:
    """The window continues at the oldest existing event."""
    log = Log([(START, 1)] * 5, first=3)

    (file,), _ = plan(Window(0, START), log, RULES, START + 60)

    assert (file.first, file.end) == (3, 5)


def test_first_window_starts_with_its_first_event() -> None:
    """The first file of a job that starts late is named by the first captured event, not by the start of the job."""
    log = Log([(START, 1), (START + 7, 1)])

    assert first_window(log, 1, START + 100) == Window(1, START + 7)
    assert first_window(log, 2, START + 100) == Window(2, START + 100)


def test_event_with_a_time_in_the_far_future_does_not_keep_its_window_open() -> None:
    """Producers may set times (CreateTime): an event of the year 2100 must not hold back all events after it."""
    log = Log([(START + 10**9, 1), (START + 5, 1)])

    assert plan(Window(0, START), log, RULES, START + 59).files == ()
    files, window = plan(Window(0, START), log, RULES, START + 60)

    assert files == (FilePlan(0, 2, START),)
    assert window == Window(2, START + 60)


@settings(max_examples=300)
@given(
    seconds=st.lists(st.integers(0, 200) | st.integers(0, 10**9), min_size=1, max_size=30),
    pauses=st.lists(st.integers(0, 100), max_size=30),
)
def test_every_event_is_in_a_file_soon_whatever_times_producers_set(seconds: list[int], pauses: list[int]) -> None:
    """All events are there from the beginning. A time of up to one interval ahead may keep a window open until then."""
    log, window, now = Log([(START + second, 1) for second in seconds]), Window(0, START), START
    files: list[FilePlan] = []
    # After the pauses, enough checks for events that are just less than an interval ahead, again and again.
    for pause in (*pauses, *[RULES.interval_s] * (3 * len(seconds) + 3)):
        now += pause
        planned, window = plan(window, log, RULES, now)
        files += planned

    assert [file.first for file in files] == [0, *(file.end for file in files[:-1])]
    assert window.at == files[-1].end == log.end
    assert all(earlier.second < later.second for earlier, later in pairwise(files))


@settings(max_examples=300)
@given(
    events=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 60)), max_size=40),
    looks=st.lists(st.integers(0, 100), min_size=1, max_size=30),
    skips_empty=st.booleans(),
)
def test_any_log_is_divided_without_gap_overlap_or_repeated_name(
    events: list[tuple[int, int]], looks: list[int], skips_empty: bool
) -> None:
    """Events arrive and windows are checked at random times; in the end every event is in a file."""
    rules = Rules(interval_s=60, size_limit_bytes=100, skips_empty=skips_empty)
    arrivals, now = [], START
    for pause, size in events:
        now += pause
        arrivals.append((now, size))
    files: list[FilePlan] = []
    log, window, now = Log(), Window(0, START), START
    for pause in looks:
        now += pause
        log.events = [event for event in arrivals if event[0] <= now]
        planned, window = plan(window, log, rules, now)
        files += planned
    log.events = arrivals
    while window.at < log.end:
        planned, window = plan(window, log, rules, max(now, arrivals[-1][0]), closes_all=True)
        files += planned

    assert [file.first for file in files] == [0, *(file.end for file in files[:-1])][: len(files)]
    assert sum(file.end - file.first for file in files) == len(arrivals)
    assert all(earlier.second < later.second for earlier, later in pairwise(files))
    for file in files:
        held = log.events[file.first : file.end]
        assert all(second < file.second + rules.interval_s for second, _ in held)
        assert skips_empty <= bool(held)
