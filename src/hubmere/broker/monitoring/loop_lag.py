"""Event-loop lag: how late the loop runs what is due, as a histogram and as the longest delay of the last minute.

The node measures it (`node.runtime.loop_probe`); metrics and portal read it here. All connections share one loop, so
the lag is what every client waits in addition to its own request. Thread rule: the owner's thread only.
"""

from collections import deque
from itertools import accumulate
from typing import Final

# Upper bounds of the histogram in seconds, as Prometheus counts them; one more bucket has no bound.
LAG_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# The longest delay is kept for each of the last periods, so that several scrapers see the same one.
_PERIOD_SECONDS: Final = 10.0
_PERIODS: Final = 6


class LoopLag:
    """The delays of one node's event loop."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._counts = [0] * (len(LAG_BOUNDS_S) + 1)
        # Number of a period, and the longest delay in it; oldest first.
        self._longest: deque[tuple[int, float]] = deque(maxlen=_PERIODS)

    def observe(self, delay_s: float, now: float) -> None:
        """Count one delay that was measured at `now`."""
        self.total_s += delay_s
        index = 0
        for bound in LAG_BOUNDS_S:
            if delay_s <= bound:
                break
            index += 1
        self._counts[index] += 1
        period = int(now // _PERIOD_SECONDS)
        if not self._longest or self._longest[-1][0] != period:
            self._longest.append((period, delay_s))
        elif delay_s > self._longest[-1][1]:
            self._longest[-1] = (period, delay_s)

    @property
    def count(self) -> int:
        """How many delays were measured."""
        return sum(self._counts)

    def cumulative_counts(self) -> list[int]:
        """For each bound of `LAG_BOUNDS_S`, how many delays were at most that long."""
        return list(accumulate(self._counts[:-1]))

    def longest_s(self, now: float) -> float:
        """The longest delay of the last minute."""
        oldest = int(now // _PERIOD_SECONDS) - _PERIODS
        return max((delay_s for period, delay_s in self._longest if period > oldest), default=0.0)
