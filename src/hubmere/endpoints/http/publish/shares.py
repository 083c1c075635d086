"""Single events that were posted in one turn of the loop share a batch on disk, each with its own answer.

The costs of a batch (its header, its checksum, its write, its place in the group commit) are then paid once for all
requests that arrived together. Only events that name no key and no publisher share, and only where throughput is not
metered, because a refusal must be one request's own.
"""

import asyncio
from typing import Protocol

from hubmere.broker.live import LiveHub
from hubmere.broker.publish import Publisher
from hubmere.endpoints.http.errors import NotDurableInTime
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.model.receipt import Receipt
from hubmere.translate import messages_to_batch

# A shared batch grows up to this size: enough to make its costs vanish, small enough to be read in one go.
MAX_SHARED_BYTES = 256 * 1024

_Place = tuple[LiveHub, int | None, float]


class Waiter(Protocol):
    """What waits for a share: a future of nothing, or something like it."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


def settle(waiter: Waiter, error: Exception | None) -> None:
    """Tell who waits, unless that is over."""
    if not waiter.done():
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


class _Share:
    """The events of one turn for one place, whose senders give the node the same time."""

    __slots__ = ("_timer", "messages", "publisher", "size_bytes", "timeout_s", "waiting")

    def __init__(self, publisher: Publisher, timeout_s: float) -> None:
        self._timer: asyncio.Handle | None = None
        self.publisher = publisher
        self.timeout_s = timeout_s
        self.messages: list[bytes] = []
        self.waiting: list[Waiter] = []
        self.size_bytes = 0

    @property
    def place(self) -> _Place:
        """Where the events go."""
        return self.publisher.hub, self.publisher.partition, self.timeout_s

    def watch_the_clock(self) -> None:
        """Give up when the senders do."""
        self._timer = asyncio.get_running_loop().call_later(self.timeout_s, self._give_up)

    def _give_up(self) -> None:
        self.settle(NotDurableInTime(self.timeout_s))

    def settle(self, error: Exception | None) -> None:
        """Tell everybody who waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiter in self.waiting:
            settle(waiter, error)

    def committed(self, receipt: Receipt) -> None:
        """The group commit has the batch, or has failed."""
        self.settle(receipt.error)


class Coalescer:
    """Gathers events and publishes them at the end of the turn.

    Thread rule: the node's loop only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[_Place, _Share] = {}

    def add(self, publisher: Publisher, message: bytes, size_bytes: int, waiting: Waiter, timeout_s: float) -> None:
        """Publish an encoded event, of that size as it was sent, together with others of this turn."""
        place = (publisher.hub, publisher.partition, timeout_s)
        share = self._open.get(place)
        if share is not None and share.size_bytes + size_bytes > MAX_SHARED_BYTES:
            self._publish(share)
            share = None
        if share is None:
            share = self._open[place] = _Share(publisher, timeout_s)
            asyncio.get_running_loop().call_soon(self._publish, share)
        share.messages.append(message)
        share.waiting.append(waiting)
        share.size_bytes += size_bytes

    def _publish(self, share: _Share) -> None:
        if self._open.get(share.place) is not share:
            return
        del self._open[share.place]
        count = len(share.messages)
        share.watch_the_clock()
        try:
            batch = messages_to_batch(share.messages)
            share.publisher.publish(
                batch,
                count=count,
                size_bytes=share.size_bytes,
                key=None,
                now=self._clock.monotonic(),
                now_ms=self._clock.now_ms(),
                callback=share.committed,
                requests=count,
            )
        except Refusal as refusal:
            share.settle(refusal)
