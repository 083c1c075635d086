"""The node's clock: the machine's wall clock, except where it jumps.

Wall clocks are set: by an operator, by a time server, by a hypervisor that resumes a machine. An event that is stamped
with a time years ahead keeps it for ever, and retention that believes such a time deletes everything. So each reading
is compared with the time that has passed since the last one on a clock that cannot be set:

1. Within `TOLERANCE_MS` of it the wall clock is believed, so that small corrections are followed.
2. A larger step, forward or backward, is not believed: time goes on from before the step.
3. A step that lasts for `confirm_s` is a correction: it is believed from then on. One that goes away has had no effect.

The time that has passed includes time in which the machine was suspended, where the system can tell.
"""

from collections.abc import Callable
from typing import NamedTuple

from hubmere.model.clock import Clock

# A step that is followed at once: far more than a time server corrects without a step (NTP: 0.128 s).
TOLERANCE_MS = 10_000


class Anchor(NamedTuple):
    """A wall time that is believed, and what the clock that cannot be set showed then."""

    wall_ms: int
    elapsed_s: float


class SteadyClock:
    """A Clock over another one. Thread rule: the owner's thread only."""

    def __init__(
        self, source: Clock, elapsed: Callable[[], float], *, confirm_s: float, anchor: Anchor | None = None
    ) -> None:
        """`anchor` is a time that was believed before, by an earlier run of the node."""
        self._wall_ms = source.now_ms
        self.monotonic = source.monotonic
        self._elapsed = elapsed
        self._confirm_s = confirm_s
        self._anchor = anchor or Anchor(source.now_ms(), elapsed())
        self._monotonic_s = source.monotonic() if anchor is None else float("-inf")
        self._step_since_s = 0.0
        self.step_ms = 0  # by how much the wall clock is away from what is believed; 0 while it is believed
        self.confirmed_steps = 0

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 UTC, without steps."""
        wall_ms, monotonic_s = self._wall_ms(), self.monotonic()
        ahead_ms = wall_ms - self._anchor.wall_ms - (monotonic_s - self._monotonic_s) * 1000
        if -TOLERANCE_MS <= ahead_ms <= TOLERANCE_MS:
            return self._believe(wall_ms, monotonic_s)
        return self._judge(wall_ms, monotonic_s)

    def _believe(self, wall_ms: int, monotonic_s: float) -> int:
        if monotonic_s - self._monotonic_s >= 1.0 or self.step_ms:
            # Not at every reading: steps below the tolerance must not add up within a second.
            self._anchor = Anchor(wall_ms, self._elapsed())
            self._monotonic_s = monotonic_s
            self.step_ms = 0
        return wall_ms

    def _judge(self, wall_ms: int, monotonic_s: float) -> int:
        """A reading that does not fit: the machine was suspended, or its clock was set."""
        elapsed_s = self._elapsed()
        believed_ms = self._anchor.wall_ms + round((elapsed_s - self._anchor.elapsed_s) * 1000)
        step_ms = wall_ms - believed_ms
        if -TOLERANCE_MS <= step_ms <= TOLERANCE_MS:
            return self._anew(wall_ms, monotonic_s, elapsed_s)
        if not self.step_ms or abs(step_ms - self.step_ms) > TOLERANCE_MS:
            self.step_ms, self._step_since_s = step_ms, elapsed_s
        if elapsed_s - self._step_since_s >= self._confirm_s:
            self.confirmed_steps += 1
            return self._anew(wall_ms, monotonic_s, elapsed_s)
        return believed_ms

    def _anew(self, wall_ms: int, monotonic_s: float, elapsed_s: float) -> int:
        self._anchor = Anchor(wall_ms, elapsed_s)
        self._monotonic_s = monotonic_s
        self.step_ms = 0
        return wall_ms

    @property
    def anchor(self) -> Anchor:
        """The last reading that was believed, for the next run of the node."""
        return self._anchor
