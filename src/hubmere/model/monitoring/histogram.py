"""A histogram of durations, as Prometheus counts them: how many were at most as long as each bound, and their sum.

Observing costs one search in a dozen bounds and takes no lock. Thread rule: the owner's thread only.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

# From a tenth of a millisecond, which a flush to memory takes, to the longest that a client waits.
LATENCY_BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class Histogram:
    """Durations in seconds, counted by upper bounds; one more bucket has no bound."""

    __slots__ = ("_counts", "bounds_s", "total_s")

    def __init__(self, bounds_s: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds_s = tuple(bounds_s)
        self.total_s = 0.0
        self._counts = [0] * (len(self.bounds_s) + 1)

    def observe(self, duration_s: float, times: int = 1) -> None:
        """Count a duration, `times` times."""
        self._counts[bisect_left(self.bounds_s, duration_s)] += times
        self.total_s += duration_s * times

    @property
    def count(self) -> int:
        """How many durations were observed."""
        return sum(self._counts)

    def cumulative_counts(self) -> list[int]:
        """For each bound, how many durations were at most that long."""
        return list(accumulate(self._counts[:-1]))
