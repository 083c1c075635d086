"""The only place that reads the time; everything else takes `now` as an argument.

Wall time is integer milliseconds since 1970 UTC (what events are stamped with); monotonic time is float seconds (what
timers and buckets use). The two are never mixed.

`SteadyClock` is the node's clock: the machine's wall clock, except when that jumps. Wall clocks are set by operators,
by time servers, and by hypervisors that resume a machine. An event that is stamped with a time years ahead keeps it for
ever, and retention that trusts such a time deletes everything. So each reading is compared with the time that has
passed since the last one on a clock that cannot be set:

1. Within `TOLERANCE_MS` of it the wall clock is trusted, so that small corrections are followed.
2. A larger step, forward or backward, is not trusted: time continues from before the step.
3. A step that lasts for `confirm_s` is a correction: it is trusted from then on. A step that goes away has no effect.

The time that has passed includes time in which the machine was suspended, where the system reports it.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Clock(Protocol):
    """The source of time of a node."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""
        return time.monotonic()

    def since_boot(self) -> float:
        """Seconds since the machine started, including suspension if the operating system reports it."""
        return time.clock_gettime(_ELAPSED) if _ELAPSED is not None else time.monotonic()


_ELAPSED: int | None = getattr(time, "CLOCK_BOOTTIME", None)

# A step that is followed at once: far more than a time server corrects without a step (NTP: 0.128 s).
TOLERANCE_MS = 10_000


class Anchor(NamedTuple):
    """A wall time that was trusted, and what the clock that cannot be set showed at that moment."""

    wall_ms: int
    elapsed_s: float


class SteadyClock:
    """A clock without jumps over another clock. Thread rule: the owner's thread only."""

    def __init__(
        self, source: Clock, elapsed: Callable[[], float], *, confirm_s: float, anchor: Anchor | None = None
    ) -> None:
        """`anchor` is a time that an earlier run of the node trusted."""
        self._wall_ms = source.now_ms
        self.monotonic = source.monotonic
        self._elapsed = elapsed
        self._confirm_s = confirm_s
        self._anchor = anchor or Anchor(source.now_ms(), elapsed())
        self._monotonic_s = source.monotonic() if anchor is None else float("-inf")
        self._step_since_s = 0.0
        self.step_ms = 0  # how far the wall clock is from the trusted time; 0 while it is trusted
        self.confirmed_steps = 0

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 UTC, without steps."""
        wall_ms, monotonic_s = self._wall_ms(), self.monotonic()
        ahead_ms = wall_ms - self._anchor.wall_ms - (monotonic_s - self._monotonic_s) * 1000
        if -TOLERANCE_MS <= ahead_ms <= TOLERANCE_MS:
            return self._trust(wall_ms, monotonic_s)
        return self._judge(wall_ms, monotonic_s)

    def _trust(self, wall_ms: int, monotonic_s: float) -> int:
        if monotonic_s - self._monotonic_s >= 1.0 or self.step_ms:
            # Not at every reading: steps below the tolerance must not add up within a second.
            self._anchor = Anchor(wall_ms, self._elapsed())
            self._monotonic_s = monotonic_s
            self.step_ms = 0
        return wall_ms

    def _judge(self, wall_ms: int, monotonic_s: float) -> int:
        """Handle an unexpected reading: the machine was suspended, or its clock was set."""
        elapsed_s = self._elapsed()
        trusted_ms = self._anchor.wall_ms + round((elapsed_s - self._anchor.elapsed_s) * 1000)
        step_ms = wall_ms - trusted_ms
        if -TOLERANCE_MS <= step_ms <= TOLERANCE_MS:
            return self._restart(wall_ms, monotonic_s, elapsed_s)
        if not self.step_ms or abs(step_ms - self.step_ms) > TOLERANCE_MS:
            self.step_ms, self._step_since_s = step_ms, elapsed_s
        if elapsed_s - self._step_since_s >= self._confirm_s:
            self.confirmed_steps += 1
            return self._restart(wall_ms, monotonic_s, elapsed_s)
        return trusted_ms

    def _restart(self, wall_ms: int, monotonic_s: float, elapsed_s: float) -> int:
        self._anchor = Anchor(wall_ms, elapsed_s)
        self._monotonic_s = monotonic_s
        self.step_ms = 0
        return wall_ms

    @property
    def anchor(self) -> Anchor:
        """The last trusted reading, for the next run of the node."""
        return self._anchor
