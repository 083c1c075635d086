"""Answers of group coordinators, a bounded number in each turn of the loop.

A rebalance of a large group ends with the answers to all its members at once. Encoding and sending them takes about
0.1 ms for each member, and nobody else is served meanwhile. So:

1. The first answers of a turn are sent at once. Small groups need no more.
2. Further ones wait. Each following turn sends as many, in order, until none is left.

Thread rule: the loop's thread only.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hubmere.endpoints.kafka.session import KafkaSession

log = logging.getLogger("hubmere.kafka")

# About three milliseconds of work.
REPLIES_PER_TURN: Final = 32


class GroupReplies:
    """The answers that are due, of all connections."""

    __slots__ = ("_call_soon", "_left", "_waiting")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` runs a call in the next turn of the loop."""
        self._call_soon = call_soon
        # How many may still be sent in this turn.
        self._left = REPLIES_PER_TURN
        self._waiting: deque[tuple[KafkaSession, Callable[[], None]]] = deque()

    def send(self, session: "KafkaSession", respond: Callable[[], None]) -> None:
        """Call `respond` in this turn, or in a later one if many answers are due."""
        if self._left == REPLIES_PER_TURN:
            self._call_soon(self._begin_turn)
        if self._left and not self._waiting:
            self._left -= 1
            respond()
        else:
            self._waiting.append((session, respond))

    def _begin_turn(self) -> None:
        self._left = REPLIES_PER_TURN
        waiting = self._waiting
        if not waiting:
            return
        self._call_soon(self._begin_turn)
        while self._left and waiting:
            self._left -= 1
            session, respond = waiting.popleft()
            try:
                respond()
            except Exception:  # the top of a task: one client's error must not affect the others
                log.exception("an answer of a group to %s failed", session.wire.peer)
                session.disconnect("an answer of a group failed")
