"""Measures event-loop lag: a timer that becomes due regularly, and how late it runs.

A turn of the loop that takes long delays every timer that becomes due in it. A turn that is longer than the interval is
always measured, less at most one interval; a shorter one is measured only if a timer becomes due in it. The interval is
25 ms while the loop works and 250 ms while it rests: a measurement takes 3 µs of a loop that runs anyway, but 100 µs of
one that is woken for it.
"""

import asyncio
import time
from typing import Final

from hubmere.broker.monitoring.loop_lag import LoopLag
from hubmere.model.clock import Clock

BUSY_INTERVAL_SECONDS: Final = 0.025
RESTING_INTERVAL_SECONDS: Final = 0.25
# Share of the time that the loop's thread has run since the last measurement, from which on the loop is busy.
_BUSY_SHARE: Final = 0.05


class LoopProbe:
    """The probe of one loop. Thread rule: the loop's thread only."""

    def __init__(
        self,
        lag: LoopLag,
        clock: Clock,
        *,
        busy_interval_s: float = BUSY_INTERVAL_SECONDS,
        resting_interval_s: float = RESTING_INTERVAL_SECONDS,
    ) -> None:
        self._lag = lag
        self._clock = clock
        self._busy_interval_s = busy_interval_s
        self._resting_interval_s = resting_interval_s
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._thread_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._thread_s = time.thread_time()
        self._schedule(time.monotonic(), self._busy_interval_s)

    def stop(self) -> None:
        """End measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, now: float, interval_s: float) -> None:
        self._due = now + interval_s
        self._timer = self._loop.call_later(interval_s, self._measure, interval_s)

    def _measure(self, interval_s: float) -> None:
        now, thread_s = time.monotonic(), time.thread_time()
        delay_s = max(now - self._due, 0.0)
        self._lag.observe(delay_s, self._clock.monotonic())
        is_busy = thread_s - self._thread_s > _BUSY_SHARE * (interval_s + delay_s)
        self._thread_s = thread_s
        self._schedule(now, self._busy_interval_s if is_busy else self._resting_interval_s)
