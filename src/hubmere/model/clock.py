"""The only place that reads the time; everything else takes `now` as an argument.

Wall time is integer milliseconds since 1970 UTC (what events are stamped with); monotonic time is float seconds (what
timers and buckets use). The two are never mixed.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What a node asks for the time."""

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

    def elapsed(self) -> float:
        """Seconds since the machine was started, time in suspension included where the system can tell."""
        return time.clock_gettime(_ELAPSED) if _ELAPSED is not None else time.monotonic()


_ELAPSED: int | None = getattr(time, "CLOCK_BOOTTIME", None)
