"""Coalescing: small events that arrive in one turn of the loop share one batch.

A batch has fixed costs: its header, its checksum, its write and its part in the group commit. Clients that send one
small event at a time would pay them for each event. The events of one turn that have the same target are therefore
published as one batch, also when they come from different connections and protocols. Each request keeps its own
callback.

Algorithm:
1. `add` puts the events of one request into the open batch of their target: a hub and a partition, or a hub alone.
   The first event after a flush schedules the next flush with `defer`.
2. A batch that would exceed its limit is published at once, and the events begin a new one. A long run of events
   also makes its batch go at once, because waiting for others would gain nothing. `add_single` only queues one event of
   a client with no other event in flight; it takes no time argument because it never publishes.
3. At the end of the turn `flush` publishes every open batch.
4. When the log has committed or refused a batch, the callback of each request is called once.
5. A batch that contains a malformed event, or that exceeds a quota as a whole, is split into its requests, so that
   only those requests are refused that have to be.

Events may share a batch if they have no partition key and are on a publisher without a name and without idempotent
numbering (`Publisher.can_coalesce`), and if they count against the same quotas: throughput units are those of the
namespace, but each application group has its own. The right to send is checked before an event is added.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Final

from hubmere.broker.publish import Publisher
from hubmere.model.errors import Refusal, UndecodableMessage
from hubmere.model.receipt import Receipt

# The largest shared batch. Beyond this size the fixed costs do not matter, and readers get the batch in one read.
MAX_SHARED_BYTES: Final = 256 * 1024
# A run of this many events does not wait for others.
LONG_RUN_EVENTS: Final = 16

# Called once per request: with None when its events are durable, else with the reason.
OnSettled = Callable[[Exception | None], None]
# Called instead of `OnSettled` when an event of the request is malformed: its owner then publishes them one by one.
OnMalformed = Callable[[], None]
# Encodes events as one batch; raises UndecodableMessage if one of them is malformed.
Encode = Callable[[Sequence[bytes]], bytearray]
# Runs a call at the end of the current turn, with the time then: monotonic seconds and Unix milliseconds.
Defer = Callable[[Callable[[float, int], None]], object]


class _Request:
    """The events of one request."""

    __slots__ = ("messages", "on_malformed", "on_settled", "publisher", "size_bytes")

    def __init__(
        self,
        publisher: Publisher,
        messages: Sequence[bytes],
        size_bytes: int,
        on_settled: OnSettled,
        on_malformed: OnMalformed | None,
    ) -> None:
        self.publisher = publisher
        self.messages = messages
        self.size_bytes = size_bytes
        self.on_settled = on_settled
        self.on_malformed = on_malformed


class _OpenBatch:
    """Requests for one target that are published together."""

    __slots__ = ("limit_bytes", "requests", "size_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.requests: list[_Request] = []
        self.size_bytes = 0
        self.limit_bytes = limit_bytes


class Coalescer:
    """Collects events and publishes them at the end of the turn. Thread rule: the owner's thread only."""

    __slots__ = ("_defer", "_encode", "_full", "_is_scheduled", "_open")

    def __init__(self, encode: Encode, defer: Defer) -> None:
        self._encode = encode
        self._defer = defer
        self._open: dict[Hashable, _OpenBatch] = {}
        # Batches that are full and are published before the others.
        self._full: list[_OpenBatch] = []
        self._is_scheduled = False

    def add_single(self, publisher: Publisher, message: bytes, on_settled: OnSettled) -> None:
        """Publish one encoded event together with others, at the end of this turn."""
        target, size_bytes = publisher.coalescing_target, len(message)
        batch = self._open.get(target)
        if batch is not None and batch.size_bytes + size_bytes > batch.limit_bytes:
            self._full.append(batch)
            batch = None
        if batch is None:
            batch = self._open[target] = _OpenBatch(shared_limit_bytes(publisher))
            if not self._is_scheduled:
                self._schedule()
        batch.requests.append(_Request(publisher, (message,), size_bytes, on_settled, None))
        batch.size_bytes += size_bytes

    def add(
        self,
        publisher: Publisher,
        messages: Sequence[bytes],
        *,
        size_bytes: int,
        on_settled: OnSettled,
        now: float,
        now_ms: int,
        on_malformed: OnMalformed | None = None,
    ) -> None:
        """Publish encoded events together with others of this turn; `size_bytes` is what the client sent.

        The events of one call stay together, in their order. Callers cut longer runs with `split_run`.
        """
        self._publish_full(now, now_ms)
        target = publisher.coalescing_target
        batch = self._open.get(target)
        if batch is not None and batch.size_bytes + size_bytes > batch.limit_bytes:
            del self._open[target]
            self._publish(batch.requests, batch.size_bytes, now, now_ms)
            batch = None
        request = _Request(publisher, messages, size_bytes, on_settled, on_malformed)
        is_long = len(messages) >= LONG_RUN_EVENTS
        if batch is None:
            if is_long:
                self._publish([request], size_bytes, now, now_ms)
                return
            batch = self._open[target] = _OpenBatch(shared_limit_bytes(publisher))
            self._schedule()
        batch.requests.append(request)
        batch.size_bytes += size_bytes
        if is_long:
            del self._open[target]
            self._publish(batch.requests, batch.size_bytes, now, now_ms)

    def flush_target(self, publisher: Publisher, now: float, now_ms: int) -> None:
        """Publish the open batch of a publisher's target, so that what the publisher sends next comes after it."""
        self._publish_full(now, now_ms)
        batch = self._open.pop(publisher.coalescing_target, None)
        if batch is not None:
            self._publish(batch.requests, batch.size_bytes, now, now_ms)

    def flush(self, now: float, now_ms: int) -> None:
        """Publish every open batch."""
        self._is_scheduled = False
        try:
            self._publish_full(now, now_ms)
            while self._open:
                _, batch = self._open.popitem()
                self._publish(batch.requests, batch.size_bytes, now, now_ms)
        finally:
            if self._open or self._full:  # a callback failed: the other batches are published in the next turn
                self._schedule()

    def _publish_full(self, now: float, now_ms: int) -> None:
        while self._full:
            batch = self._full.pop(0)
            self._publish(batch.requests, batch.size_bytes, now, now_ms)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._defer(self.flush)

    def _publish(self, requests: list[_Request], size_bytes: int, now: float, now_ms: int) -> None:
        first = requests[0]
        is_alone = len(requests) == 1
        messages = first.messages if is_alone else [message for request in requests for message in request.messages]
        if not is_alone and not first.publisher.has_ingress(size_bytes, len(messages), now):
            self._publish_each(requests, now, now_ms)
            return
        try:
            batch = self._encode(messages)
        except UndecodableMessage as refusal:
            if is_alone:
                _refuse_malformed(first, refusal)
            else:
                self._publish_each(requests, now, now_ms)
            return
        # The events themselves are not kept until the commit: the batch holds them.
        callbacks = [first.on_settled] if is_alone else [request.on_settled for request in requests]
        try:
            first.publisher.publish(
                batch,
                count=len(messages),
                size_bytes=size_bytes,
                key=None,
                now=now,
                now_ms=now_ms,
                callback=partial(_on_receipt, callbacks),
                requests=len(requests),
            )
        except Refusal as refusal:
            _settle(callbacks, refusal)

    def _publish_each(self, requests: list[_Request], now: float, now_ms: int) -> None:
        """Publish requests that cannot share a batch; a callback that fails does not keep the others from it."""
        failure: Exception | None = None
        for request in requests:
            try:
                self._publish([request], request.size_bytes, now, now_ms)
            except Exception as raised:  # noqa: BLE001 - raised again below, where the caller logs it
                failure = failure or raised
        if failure is not None:
            raise failure


def shared_limit_bytes(publisher: Publisher) -> int:
    """The largest batch that events of a publisher may share."""
    return min(MAX_SHARED_BYTES, publisher.limit_bytes)


def split_run(messages: Sequence[bytes], limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut a run of events into parts of at most `limit_bytes`; a larger event is a part of its own."""
    start = filled = 0
    for index, size_bytes in enumerate(map(len, messages)):
        if filled and filled + size_bytes > limit_bytes:
            yield start, index
            start, filled = index, 0
        filled += size_bytes
    if start < len(messages):
        yield start, len(messages)


def _refuse_malformed(request: _Request, refusal: UndecodableMessage) -> None:
    if request.on_malformed is None:
        request.on_settled(refusal)
    else:
        request.on_malformed()


def _on_receipt(callbacks: Sequence[OnSettled], receipt: Receipt) -> None:
    _settle(callbacks, receipt.error)


def _settle(callbacks: Sequence[OnSettled], error: Exception | None) -> None:
    """Call every callback; one that fails does not keep the others from being called."""
    failure: Exception | None = None
    for on_settled in callbacks:
        try:
            on_settled(error)
        except Exception as raised:  # noqa: BLE001 - raised again below, where the caller logs it
            failure = failure or raised
    if failure is not None:
        raise failure
