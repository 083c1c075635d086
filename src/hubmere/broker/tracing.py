"""Spans of what is published and delivered, for a node that is told to keep them; others never come here.

A `Tracer` is given to the broker once, before anything is opened. Publishers and subscriptions are then of the classes
below, which tell it what they do; without one they are the plain classes, so that tracing which is off costs nothing.
What a span holds and where it goes is the tracer's business.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hubmere.broker.publish import Charged, Publisher, Settled
from hubmere.broker.read import Subscription
from hubmere.model.errors import Refusal
from hubmere.model.receipt import Receipt
from hubmere.records.header import Buffer
from hubmere.records.runs import BatchRun
from hubmere.store.engine import Chunk

# Ends a span: with what went wrong, or None.
Ended = Callable[[Exception | None], None]


class Tracer(Protocol):
    """Whoever keeps spans. Thread rule: the owner's thread only."""

    def publishing(self, namespace: str, hub: str, batch: Buffer, count: int) -> Ended:
        """A publication begins; what is given back is called when it is durable or refused."""

    def delivered(
        self,
        namespace: str,
        hub: str,
        partition: int,
        group: str,
        data: Buffer,
        first_sequence: int,
        next_sequence: int,
    ) -> None:
        """A reader was given the events from one sequence number up to another."""


class TracedPublisher(Publisher):
    """A way into a hub whose publications are spans."""

    __slots__ = ("tracer",)

    tracer: Tracer

    def publish(self, batch: bytearray, *, callback: Settled | None = None, **given: Any) -> Receipt:
        """Take one publication, as a span."""
        ended = self._begun(batch, given["count"])
        try:
            return super().publish(batch, callback=_both(ended, callback), **given)
        except Refusal as refusal:
            ended(refusal)
            raise

    def publish_charged(
        self, batch: bytearray | memoryview, partition: int, *, callback: Settled | None = None, **given: Any
    ) -> Charged:
        """Take one publication whatever the units say, as a span."""
        ended = self._begun(batch, given["count"])
        try:
            return super().publish_charged(batch, partition, callback=_both(ended, callback), **given)
        except Refusal as refusal:
            ended(refusal)
            raise

    def check_run(self, data: bytearray, sizes: Sequence[int], partition: int, newest_ms: int) -> BatchRun | None:
        """Every publication is a span of its own, so none are taken together."""
        return None

    def _begun(self, batch: Buffer, count: int) -> Ended:
        return self.tracer.publishing(self.hub.namespace.entity.name, self.hub.name, batch, count)


def _both(ended: Ended, callback: Settled | None) -> Settled:
    def settled(receipt: Receipt) -> None:
        ended(receipt.error)
        if callback is not None:
            callback(receipt)

    return settled


class TracedSubscription(Subscription):
    """A reader whose deliveries are spans; `place` is the names of its namespace and hub."""

    __slots__ = ("_chunk", "place", "tracer")

    tracer: Tracer
    place: tuple[str, str]

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._chunk: Chunk | None = None

    def read(self, max_bytes: int) -> Chunk | None:
        """Closed batches from the reader's position on, remembered until they are delivered."""
        self._chunk = super().read(max_bytes)
        return self._chunk

    def delivered(self, next_sequence: int, events: int, size_bytes: int, now: float) -> None:
        """Move on, and tell what was delivered."""
        first_sequence = self.next_sequence
        super().delivered(next_sequence, events, size_bytes, now)
        if self._chunk is not None and events:
            data = self._chunk.data
            self.tracer.delivered(*self.place, self.partition, self.group, data, first_sequence, next_sequence)
