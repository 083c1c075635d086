"""The clock of a node in the test process, and of its event loop.

It goes with the machine's clock, but a test decides what depends on time, however busy the machine is:

- `stop` before something that must happen within a time: no time passes, so a bucket does not refill.
- `advance` instead of a wait: a deadline of minutes has passed, and what came before it had minutes.
"""

import asyncio
import threading

from hubmere.model.clock import SystemClock


class NodeClock:
    """A `model.clock.Clock` that tests stop and advance. Thread-safe; it drives loops of asyncio, not of uvloop."""

    def __init__(self, *, is_stopped: bool = False) -> None:
        self._system = SystemClock()
        self._lock = threading.Lock()
        self._loops: list[asyncio.AbstractEventLoop] = []
        # What is added to the machine's clock, and what the machine's clock showed when this one was stopped.
        self._added_s = 0.0
        self._stopped_at: tuple[int, float] | None = None
        if is_stopped:
            self.stop()

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 UTC."""
        with self._lock:
            now_ms = self._system.now_ms() if self._stopped_at is None else self._stopped_at[0]
            return now_ms + round(self._added_s * 1000)

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""
        with self._lock:
            now = self._system.monotonic() if self._stopped_at is None else self._stopped_at[1]
            return now + self._added_s

    def drive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the timers of a loop follow this clock. Before the loop runs."""
        loop.time = self.monotonic  # type: ignore[method-assign]
        self._loops.append(loop)

    def stop(self) -> None:
        """Let no time pass until `resume`, except by `advance`."""
        with self._lock:
            self._stopped_at = (self._system.now_ms(), self._system.monotonic())

    def resume(self) -> None:
        """Continue with the time at which the clock was stopped."""
        with self._lock:
            if self._stopped_at is not None:
                self._added_s -= self._system.monotonic() - self._stopped_at[1]
                self._stopped_at = None
        self._wake()

    def advance(self, seconds: float) -> None:
        """Let this time pass at once."""
        assert seconds >= 0
        with self._lock:
            self._added_s += seconds
        self._wake()

    def _wake(self) -> None:
        """Loops compute their next timer again."""
        for loop in self._loops:
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda: None)
