"""Threads for the captures of hubs: one for each hub that is being captured at the moment, up to a limit.

They are daemon threads: a destination that does not answer must not delay the end of the process.
"""

import queue
import threading
from collections.abc import Callable
from typing import Final

# A hub whose destination is slow occupies one thread and delays no other hub; more hubs than this wait for a thread.
_MAX_THREADS: Final = 64


class Workers:
    """A pool of threads. Thread rule: `submit` is called by one owner."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Run a function that does not raise, on an idle thread or on a new one."""
        if not self._idle.acquire(blocking=False) and self._threads < _MAX_THREADS:
            self._threads += 1
            threading.Thread(target=self._run, name=f"capture-{self._threads}", daemon=True).start()
        self._work.put(work)

    def _run(self) -> None:
        while True:
            self._work.get()()
            self._idle.release()
