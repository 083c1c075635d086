"""How much of a long request is processed in one turn."""

import time
from collections.abc import Iterator

import pytest

from hubmere.endpoints.kafka.slices import SLICE_ENTRIES, SLICE_SECONDS, run_slice


class Clock:
    """A clock that the request advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def steps(self, count: int, seconds_each: float) -> Iterator[None]:
        for _ in range(count):
            self.now += seconds_each
            yield


def test_slice_of_slow_entries_ends_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that creates 100 hubs must not delay other clients until the last one exists."""
    clock = Clock(monkeypatch)
    steps = clock.steps(100, SLICE_SECONDS / 9.5)

    slices = 1
    while run_slice(steps) is False:
        slices += 1

    # There are ten entries each, and the request ends in the last slice.
    assert slices == 11


def test_slice_of_fast_entries_ends_after_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Almost every request is done in its first slice."""
    clock = Clock(monkeypatch)
    steps = clock.steps(SLICE_ENTRIES + 1, 0.0)

    assert (run_slice(steps), run_slice(steps)) == (False, True)
