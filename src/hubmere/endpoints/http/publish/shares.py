"""Single events posted in one turn of the loop share a batch on disk; each request keeps its own answer.

The costs of a batch (header, checksum, write, entry in the group commit) are then paid once for all requests that
arrived together. Only events without key and publisher share, and only where throughput is not metered, because a
refusal must be one request's own.
"""

import asyncio
from collections.abc import Callable

from hubmere.broker.live import LiveHub
from hubmere.broker.publish import Publisher
from hubmere.endpoints.http.errors import NotDurableInTime
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.model.receipt import Receipt
from hubmere.translate import messages_to_batch

# A shared batch grows up to this size: large enough to make its fixed costs vanish, small enough to be read at once.
MAX_SHARED_BYTES = 256 * 1024

# Called once for a request: None when its events are durable, else the error.
OnDone = Callable[[Exception | None], None]
_Destination = tuple[LiveHub, int | None, float]


class PendingPublication:
    """Requests whose events wait for one commit, at most as long as their clients do.

    Thread rule: the node's loop only.
    """

    __slots__ = ("_callbacks", "_timeout_s", "_timer")

    def __init__(self, callbacks: list[OnDone], timeout_s: float) -> None:
        self._callbacks = callbacks
        self._timeout_s = timeout_s
        self._timer: asyncio.Handle | None = None

    def start_timer(self) -> None:
        """Report a failure when the clients' timeout passes, unless the commit came first."""
        if self._callbacks:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._on_timeout)

    def _on_timeout(self) -> None:
        self.finish(NotDurableInTime(self._timeout_s))

    def on_committed(self, receipt: Receipt) -> None:
        """Commit callback: the group commit has the events, or has failed."""
        self.finish(receipt.error)

    def finish(self, error: Exception | None) -> None:
        """Call every callback, once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        callbacks, self._callbacks = self._callbacks, []
        for on_done in callbacks:
            on_done(error)


class _Share:
    """The events of one turn for one destination, whose clients use the same timeout."""

    __slots__ = ("callbacks", "destination", "messages", "publisher", "size_bytes")

    def __init__(self, publisher: Publisher, destination: _Destination) -> None:
        self.publisher = publisher
        self.destination = destination
        self.messages: list[bytes] = []
        self.callbacks: list[OnDone] = []
        self.size_bytes = 0


class Coalescer:
    """Collects events and publishes them at the end of the turn.

    Thread rule: the node's loop only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[_Destination, _Share] = {}

    def add(self, publisher: Publisher, message: bytes, size_bytes: int, on_done: OnDone, timeout_s: float) -> None:
        """Publish an encoded event together with others of this turn; `size_bytes` is its size as sent."""
        destination = (publisher.hub, publisher.partition, timeout_s)
        share = self._open.get(destination)
        # An event over the limit of a publication is alone in its batch, so that it is refused alone.
        if share is not None and share.size_bytes + size_bytes > min(MAX_SHARED_BYTES, publisher.limit_bytes):
            self._publish(share)
            share = None
        if share is None:
            share = self._open[destination] = _Share(publisher, destination)
            asyncio.get_running_loop().call_soon(self._publish, share)
        share.messages.append(message)
        share.callbacks.append(on_done)
        share.size_bytes += size_bytes

    def _publish(self, share: _Share) -> None:
        if self._open.get(share.destination) is not share:
            return
        del self._open[share.destination]
        count = len(share.messages)
        pending = PendingPublication(share.callbacks, share.destination[2])
        pending.start_timer()
        try:
            share.publisher.publish(
                messages_to_batch(share.messages),
                count=count,
                size_bytes=share.size_bytes,
                key=None,
                now=self._clock.monotonic(),
                now_ms=self._clock.now_ms(),
                callback=pending.on_committed,
                requests=count,
            )
        except Refusal as refusal:
            pending.finish(refusal)
