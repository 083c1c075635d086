"""Recovers logs after a crash in the background, beginning at the start of the node.

The engine names the logs that need it. A few at a time are opened, so that a log which a client waits for is opened
soon. Until a log is open, its hub counts its partition as recovering. Thread rule: the owner's thread only.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.opening import LogOpening
from hubmere.model.errors import Refusal
from hubmere.store.engine import LogEngine, LogId

# Logs that are recovered at once without a client that waits for them.
MAX_AT_ONCE: Final = 2


class Recovery:
    """The logs of a node that are to be recovered."""

    def __init__(self, engine: LogEngine, namespaces: Mapping[str, LiveNamespace]) -> None:
        self._engine = engine
        self._namespaces = namespaces
        self._queue: deque[tuple[LiveHub, int]] = deque()
        self._running = 0

    def start(self) -> None:
        """Find the logs that a crash has left to recover, and recover them."""
        self._engine.find_unrecovered(self._on_found)

    def _on_found(self, logs: Sequence[LogId]) -> None:
        hubs = {hub.entity.uid: hub for namespace in self._namespaces.values() for hub in namespace.hubs.values()}
        for log in logs:
            uid, _, number = log.rpartition("-")
            hub = hubs.get(uid)
            # The folder of a deleted hub is deleted by other means.
            if hub is not None and hub.expect_recovery(int(number)):
                self._queue.append((hub, int(number)))
        self._open_next()

    def _open_next(self) -> None:
        while self._queue and self._running < MAX_AT_ONCE:
            hub, partition = self._queue.popleft()
            try:
                hub.log(partition)
            except LogOpening as opening:
                self._wait(opening)
            except Refusal:
                continue  # its clients get the reason

    def _wait(self, opening: LogOpening) -> None:
        try:
            opening.wait(self._on_done, 0.0, max_wait_s=inf)
        except LogOpening:
            return  # too many requests wait; the log is still being opened
        self._running += 1

    def _on_done(self) -> None:
        self._running -= 1
        self._open_next()
