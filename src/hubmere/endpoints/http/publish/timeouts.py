"""Timeouts of requests that wait for their events to be durable.

Thousands of requests a second wait for a few milliseconds each, so a timer for each of them would cost more than the
request. The requests that begin in one turn of the loop and have the same timeout share one timer.
"""

import asyncio
from collections.abc import Callable

from hubmere.endpoints.http.errors import NotDurableInTime

# Called once for a request: None when its events are durable, else the error.
OnDone = Callable[[Exception | None], None]


class _Group:
    """Requests of one turn with the same timeout."""

    __slots__ = ("_timeout_s", "_timer", "pending")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._timer: asyncio.Handle | None = None
        self.pending: dict[_PendingRequest, None] = {}

    def start_timer(self) -> None:
        """Begin the timeout, unless every request is done."""
        if self.pending:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._on_timeout)

    def remove(self, request: "_PendingRequest") -> None:
        """Forget a request that is done; the last one stops the timer."""
        del self.pending[request]
        if not self.pending and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        for request in list(self.pending):
            request.finish(NotDurableInTime(self._timeout_s))


class _PendingRequest:
    """One request that waits."""

    __slots__ = ("_group", "_on_done")

    def __init__(self, group: _Group, on_done: OnDone) -> None:
        self._group = group
        self._on_done: OnDone | None = on_done

    def finish(self, error: Exception | None) -> None:
        """Call the request's callback, the first time."""
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            self._group.remove(self)
            on_done(error)


class Timeouts:
    """The timeouts of all requests. Thread rule: the node's loop only."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        # Groups that requests of the current turn join.
        self._open: dict[float, _Group] = {}

    def watch(self, on_done: OnDone, timeout_s: float) -> OnDone:
        """Start the timeout of a request. Returns the callback that ends the wait and calls `on_done`."""
        group = self._open.get(timeout_s)
        if group is None:
            group = self._open[timeout_s] = _Group(timeout_s)
            asyncio.get_running_loop().call_soon(self._start, timeout_s)
        request = _PendingRequest(group, on_done)
        group.pending[request] = None
        return request.finish

    def _start(self, timeout_s: float) -> None:
        self._open.pop(timeout_s).start_timer()
