"""Decides when a hub is checked next, and how long a failed one waits. Reads the monotonic clock only.

A hub in which events wait for the end of their window is checked every second, because windows have whole seconds.
A hub without waiting events is checked less often, up to the longest interval: a window that closes by size is then
closed later by that time at most.
"""

import time
from collections.abc import Callable
from typing import Final

_CHECK_S: Final = 1.0
_IDLE_CHECK_S: Final = 5.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class Schedule:
    """One hub. Thread rule: one owner at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._check_s = _CHECK_S
        self._pause_s = _FIRST_PAUSE_S
        self._next_s = 0.0
        self.failures = 0

    def is_due(self) -> bool:
        """Whether the hub has to be checked now."""
        return self._clock() >= self._next_s

    def on_success(self, *, has_waiting: bool) -> None:
        """A run has ended without an error."""
        self.failures, self._pause_s = 0, _FIRST_PAUSE_S
        self._check_s = _CHECK_S if has_waiting else min(2 * self._check_s, _IDLE_CHECK_S)
        self._next_s = self._clock() + self._check_s

    def on_failure(self) -> float:
        """A run has failed; returns the seconds until the next."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self.failures += 1
        self._next_s = self._clock() + pause_s
        return pause_s
