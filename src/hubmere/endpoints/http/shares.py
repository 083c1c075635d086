"""Single events that were posted in one turn of the loop share a batch on disk, each with its own answer.

The costs of a batch (its header, its checksum, its write, its place in the group commit) are then paid once for all
requests that arrived together. Only events that name no key and no publisher share, and only where throughput is not
metered, because a refusal must be one request's own.
"""

import asyncio
from typing import Protocol

from hubmere.broker.live import LiveHub
from hubmere.broker.publish import Publisher
from hubmere.model.batch import Receipt
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.translate import messages_to_batch

# A shared batch grows up to this size: enough to make its costs vanish, small enough to be read in one go.
MAX_SHARED_BYTES = 256 * 1024

_Place = tuple[LiveHub, int | None]


class _Waiter(Protocol):
    """What waits for a share: a future of nothing."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class _Share:
    """The events of one turn for one place."""

    __slots__ = ("messages", "publisher", "size_bytes", "waiting")

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.messages: list[bytes] = []
        self.waiting: list[_Waiter] = []
        self.size_bytes = 0

    @property
    def place(self) -> _Place:
        """Where the events go."""
        return self.publisher.hub, self.publisher.partition

    def settle(self, error: Exception | None) -> None:
        """Tell everybody who waits."""
        for waiter in self.waiting:
            if not waiter.done():
                if error is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(error)

    def committed(self, receipt: Receipt) -> None:
        """The group commit has the batch, or has failed."""
        self.settle(receipt.error)


class Shares:
    """Gathers events and publishes them at the end of the turn.

    Thread rule: the node's loop only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[_Place, _Share] = {}

    def add(self, publisher: Publisher, message: bytes, size_bytes: int, waiting: _Waiter) -> None:
        """Publish an encoded event, of that size as it was sent, together with others of this turn."""
        place = (publisher.hub, publisher.partition)
        share = self._open.get(place)
        if share is not None and share.size_bytes + size_bytes > MAX_SHARED_BYTES:
            self._publish(share)
            share = None
        if share is None:
            share = self._open[place] = _Share(publisher)
            asyncio.get_running_loop().call_soon(self._publish, share)
        share.messages.append(message)
        share.waiting.append(waiting)
        share.size_bytes += size_bytes

    def _publish(self, share: _Share) -> None:
        if self._open.get(share.place) is not share:
            return
        del self._open[share.place]
        count = len(share.messages)
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
