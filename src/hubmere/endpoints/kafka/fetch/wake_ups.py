"""Parked fetches whose partitions have moved: those of all connections are read again in one call of the loop.

A commit moves a partition for all of its readers at once. A call of the loop for each of them would cost a tenth of the
CPU time of its answer. So:

1. `add` keeps a fetch. The first one after a call schedules the next call.
2. The call reads the fetches in the order in which they were added. Of very many, some are read in the next turns, so
   that other clients are served in between.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from hubmere.endpoints.kafka.session import KafkaSession

log = logging.getLogger("hubmere.kafka")

# Fetches that are read in one turn: less than ten milliseconds of work.
_PER_TURN: Final = 256

CallSoon = Callable[[Callable[[], None]], object]


class Waiting(Protocol):
    """A fetch that waits for more bytes."""

    @property
    def session(self) -> KafkaSession:
        """Its connection."""

    def read_again(self) -> None:
        """Read the partitions that have moved."""


class WakeUps:
    """The fetches to be read again. Thread rule: the loop's thread only."""

    __slots__ = ("_call_soon", "_fetches")

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._fetches: deque[Waiting] = deque()

    def add(self, fetch: Waiting) -> None:
        """Read a fetch when all commits of this turn are known. An exception ends its connection and no other."""
        if not self._fetches:
            self._call_soon(self._run)
        self._fetches.append(fetch)

    def _run(self) -> None:
        waiting = self._fetches
        fetches = [waiting.popleft() for _ in range(min(len(waiting), _PER_TURN))]
        if waiting:
            self._call_soon(self._run)
        for fetch in fetches:
            try:
                if not fetch.session.is_lost:
                    fetch.read_again()
            except Exception:  # the top of a task: one client's error must not affect the others
                log.exception("a fetch of %s failed", fetch.session.wire.peer)
                fetch.session.disconnect("a fetch failed")
