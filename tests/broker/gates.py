"""Delays the opening of a hub's logs until a test allows it, like logs that take long to create or recover."""

from typing import cast

from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.opening import MAX_WAIT_S, WaitingRequests
from hubmere.broker.upkeep import Upkeep
from hubmere.model.errors import Refusal
from hubmere.store.engine import LogConfig, LogEngine, LogId, OnOpened


class Gate:
    """Delays the opening of some partitions of a hub; none of them is open before."""

    def __init__(self, hub: LiveHub, *partitions: int) -> None:
        self._hub = hub
        self._engine = hub._engine
        self._partitions = partitions
        self._held: dict[int, list[tuple[LogId, LogConfig, OnOpened]]] = {}
        hub._engine = cast("LogEngine", self)

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def open(self, log: LogId, config: LogConfig, on_opened: OnOpened) -> None:
        """Open like the real engine, except for the partitions that are held back."""
        partition = int(log.rpartition("-")[2])
        if partition in self._partitions:
            self._held.setdefault(partition, []).append((log, config, on_opened))
        else:
            self._engine.open(log, config, on_opened)

    def release(self) -> None:
        """Open all partitions that were held back, and delay no later ones."""
        self._partitions = ()
        for held in self._held.values():
            for log, config, on_opened in held:
                self._engine.open(log, config, on_opened)
        self._held.clear()

    def fail(self, refusal: Refusal) -> None:
        """Fail the opening of all partitions that were held back."""
        for held in self._held.values():
            for _, _, on_opened in held:
                on_opened(refusal)
        self._held.clear()

    @property
    def waiting(self) -> WaitingRequests:
        """The requests that wait until a log is open."""
        return self._hub._requests


def expire(upkeep: Upkeep, now: float) -> None:
    """Advance time by the longest wait that a request is allowed."""
    upkeep.expire_openings(now + MAX_WAIT_S)
