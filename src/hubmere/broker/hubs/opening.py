"""Logs that are being opened, and the requests that wait for them.

Opening a log may take long: it is created on disk, recovered after a crash, or reached over a network. A request that
needs such a log is not refused; it waits, while all other requests are served. All protocols wait in the same way:

1. `LiveHub.log` returns an open log. While the log is being opened it raises `LogOpening`, a refusal that clients
   retry. At this point the client has passed every check.
2. Code that can wait calls `LogOpening.wait` with a callback. Other code passes the refusal to its client.
3. The callback runs once: when the log is open, when it cannot be opened, or when the time is over (`expire`). It
   executes the request again, which then succeeds or is refused.
4. `Waiting.cancel` ends a wait whose client is gone.

The number of waiting requests, and the bytes of their publications, are bounded for the whole node. Thread rule: the
owner's thread only.
"""

from collections.abc import Callable
from typing import Final

from hubmere.model.errors import PartitionOpening

# How long a request waits for a log. Clients give up on a request after 30 s at the earliest.
MAX_WAIT_S: Final = 15.0
# Requests of all clients that wait at once, and the bytes of the publications among them.
MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024

OnDone = Callable[[], None]


class WaitingRequests:
    """Counts and bounds the requests of a node that wait for logs."""

    __slots__ = ("count", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether one more request may wait; a publication larger than the limit may wait alone."""
        is_small = not self.size_bytes or self.size_bytes + size_bytes <= MAX_WAITING_BYTES
        return self.count < MAX_WAITING and is_small


class Waiting:
    """One request that waits for a log."""

    __slots__ = ("_on_done", "_opening", "_size_bytes", "until")

    def __init__(self, opening: "Opening", on_done: OnDone, until: float, size_bytes: int) -> None:
        self._opening: Opening | None = opening
        self._on_done = on_done
        self._size_bytes = size_bytes
        self.until = until
        opening.waiting[self] = None
        opening.requests.count += 1
        opening.requests.size_bytes += size_bytes

    def cancel(self) -> None:
        """Wait no longer: the client is gone. Does nothing when the wait is over."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.requests.count -= 1
            opening.requests.size_bytes -= self._size_bytes
            del opening.waiting[self]

    def end(self) -> None:
        """The wait is over: call back, once."""
        if self._opening is not None:
            self.cancel()
            self._on_done()


class Opening:
    """A log that is being opened, and the requests that wait for it in the order of their arrival."""

    __slots__ = ("hub", "is_slow", "partition", "requests", "waiting")

    def __init__(self, hub: str, partition: int, requests: WaitingRequests) -> None:
        self.hub = hub
        self.partition = partition
        self.requests = requests
        self.waiting: dict[Waiting, None] = {}
        # Whether the log is being recovered, which takes longer than creating a new one.
        self.is_slow = False

    def end(self) -> None:
        """The log is open, or cannot be opened: let every request continue."""
        _end_all(list(self.waiting))

    def expire(self, now: float) -> None:
        """Called every second: let the requests continue whose time is over; they are refused."""
        self.is_slow = True
        _end_all([waiting for waiting in self.waiting if now >= waiting.until])


def _end_all(waiting: list[Waiting]) -> None:
    """End every wait; one whose callback fails does not keep the others waiting."""
    failure: Exception | None = None
    for each in waiting:
        try:
            each.end()
        except Exception as raised:  # noqa: BLE001 - raised again below, where the caller logs it
            failure = failure or raised
    if failure is not None:
        raise failure


class LogOpening(PartitionOpening):
    """The log of a partition is being opened; `wait` calls back when that has ended."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening.hub, opening.partition)
        self._opening = opening

    def is_same(self, other: "LogOpening") -> bool:
        """Whether both are about one opening: a request that has waited for it has waited too long."""
        return self._opening is other._opening

    @property
    def is_slow(self) -> bool:
        """Whether the log is being recovered: it may take much longer than creating a new one."""
        return self._opening.is_slow

    def wait(self, on_done: OnDone, now: float, *, max_wait_s: float = MAX_WAIT_S, size_bytes: int = 0) -> Waiting:
        """Call `on_done` in a later turn, when the log is open or the time is over.

        `size_bytes` is what the request holds in memory. Raises this refusal when too many requests wait already.
        """
        if not self._opening.requests.has_room(size_bytes):
            raise self
        return Waiting(self._opening, on_done, now + max_wait_s, size_bytes)
