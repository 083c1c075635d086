"""The deadlines of parked fetches of all connections: fetches that are due at about the same time share one timer.

A thousand idle consumers have a thousand parked fetches, and each timer of its own would wake the node. So:

1. A deadline is rounded up to the next tick. All fetches of one tick are answered by one call of the loop.
2. A tick with very many fetches is answered in several turns, so that other clients are served in between.

A fetch that waits only a moment has a timer of its own: a tick would be long compared with its wait.
"""

import logging
from collections.abc import Callable
from math import ceil
from typing import Final

from hubmere.endpoints.kafka.session import KafkaSession

log = logging.getLogger("hubmere.kafka")

TICK_S: Final = 0.01
# Shorter waits than this have a timer of their own: a tick is at most a tenth of what shares it.
SHORTEST_SHARED_S: Final = 0.1
# Fetches that are answered in one turn: about three milliseconds of work.
_PER_TURN: Final = 64

# Runs a call at a monotonic time.
CallAt = Callable[[float, Callable[[], None]], object]
CallSoon = Callable[[Callable[[], None]], object]
OnDue = Callable[[], None]


class SharedDeadline:
    """A deadline that can be cancelled (`stream.Timer`)."""

    __slots__ = ("_due", "_on_due")

    def __init__(self, due: "dict[OnDue, KafkaSession]", on_due: OnDue) -> None:
        self._due = due
        self._on_due = on_due

    def cancel(self) -> None:
        """Do not call; harmless after the call."""
        self._due.pop(self._on_due, None)


class SharedDeadlines:
    """The ticks with waiting fetches. Thread rule: the loop's thread only."""

    __slots__ = ("_call_at", "_call_soon", "_ticks")

    def __init__(self, call_at: CallAt, call_soon: CallSoon) -> None:
        self._call_at = call_at
        self._call_soon = call_soon
        self._ticks: dict[int, dict[OnDue, KafkaSession]] = {}

    def add(self, session: KafkaSession, when: float, on_due: OnDue) -> SharedDeadline:
        """Call `on_due` at a time, or up to a tick later. An exception in it ends its connection and no other."""
        tick = ceil(when / TICK_S)
        due = self._ticks.get(tick)
        if due is None:
            due = self._ticks[tick] = {}
            self._call_at(tick * TICK_S, lambda: self._begin(tick))
        due[on_due] = session
        return SharedDeadline(due, on_due)

    def _begin(self, tick: int) -> None:
        self._run(self._ticks.pop(tick))

    def _run(self, due: dict[OnDue, KafkaSession]) -> None:
        for _ in range(min(len(due), _PER_TURN)):
            if not due:  # a call has cancelled the others
                return
            on_due = next(iter(due))
            session = due.pop(on_due)
            try:
                on_due()
            except Exception:  # the top of a task: one client's error must not affect the others
                log.exception("the deadline of a fetch of %s failed", session.wire.peer)
                session.disconnect("the deadline of a fetch failed")
        if due:
            self._call_soon(lambda: self._run(due))
