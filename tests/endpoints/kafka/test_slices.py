"""How much of a long request is done in one turn."""

import time
from collections.abc import Iterator

import pytest

from hubmere.endpoints.kafka.slices import SLICE_ENTRIES, SLICE_SECONDS, run_slice


class Clock:
    """A clock that a request moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def steps(self, count: int, seconds_each: float) -> Iterator[None]:
        for _ in range(count):
            self.now += seconds_each
            yield


def test_slice_of_long_entries_ends_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that creates 100 hubs must not keep other clients waiting until the last one exists."""
    clock = Clock(monkeypatch)
    steps = clock.steps(100, SLICE_SECONDS / 9.5)

    slices = 1
    while run_slice(steps) is False:
        slices += 1

    # Ten entries each, and one in which the request ends.
    assert slices == 11


def test_slice_of_short_entries_ends_after_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every request is done in its first slice."""
    clock = Clock(monkeypatch)
    steps = clock.steps(SLICE_ENTRIES + 1, 0.0)

    assert (run_slice(steps), run_slice(steps)) == (False, True)
