"""Coalescing of closed batches: small Kafka requests that arrive in one turn of the loop are written as one run.

As in `coalesce`, clients with one small request in flight each would pay for a write, a receipt and a part in the group
commit with every request. Batches of Kafka clients stay closed, so they are not joined into one batch, but written one
behind the other (`Publisher.check_runs`). Each request keeps its own answer.

Algorithm:
1. `add` keeps a request until the end of the turn. The first one after a flush schedules the next with `defer`.
2. `flush` asks each request for its publisher, which checks the right to send, and sorts the requests by hub, partition
   and quota.
3. Requests with the same target are checked and published together, in the order of their arrival.
4. If it cannot be published as one run, because of one batch or of a quota, each half is tried. A few requests that
   cannot be published together are published one by one, so that each gets its own error or pause.
5. When the log has committed or refused a run, the callback of each request is called.

The requests of one connection must be published in their order: a connection calls `flush` before it publishes in
another way.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, Protocol

from hubmere.broker.coalesce import Defer
from hubmere.broker.publish import OverLimit, Publisher, RunPart
from hubmere.model.entity import Hub, TimestampType
from hubmere.model.errors import Refusal, ShuttingDown
from hubmere.model.receipt import Receipt
from hubmere.records.header import RECORD_COUNT_FIELD
from hubmere.records.runs import BatchRun

# The largest run: beyond this size the fixed costs do not matter.
MAX_RUN_BYTES: Final = 1024 * 1024
# Requests that are published one by one when they cannot be published together.
_FEW: Final = 4


class RunRequest(Protocol):
    """Small closed batches of one request, or of several of one connection, for one partition."""

    @property
    def partition(self) -> int:
        """The partition that the client names."""

    @property
    def data(self) -> bytes:
        """The batches, one behind the other."""

    @property
    def sizes(self) -> Sequence[int]:
        """The size of each batch."""

    def find_publisher(self, now: float, now_ms: int) -> Publisher | None:
        """The publisher of the client if it may still send; None if the request has to be published alone."""

    def publish_alone(self) -> None:
        """Publish the request by itself and answer it."""

    def on_written(self) -> None:
        """The batches are written; `on_committed` or `on_refused` follows."""

    def on_committed(self, offsets: Sequence[int], append_time_ms: int, log_start: int) -> None:
        """The batches are durable and have these base offsets; the time is -1 where clients set it themselves."""

    def on_refused(self, refusal: Refusal) -> None:
        """The batches could not be stored."""


class _Target:
    """Requests with the same target, and their batches."""

    __slots__ = ("data", "partition", "publisher", "requests", "sizes")

    def __init__(self, publisher: Publisher, partition: int) -> None:
        self.publisher = publisher
        self.partition = partition
        self.data = bytearray()
        self.sizes: list[int] = []
        self.requests: list[RunRequest] = []

    def add(self, request: RunRequest) -> None:
        """Add the batches of a request behind the others."""
        self.data += request.data
        self.sizes += request.sizes
        self.requests.append(request)


class RunCoalescer:
    """Collects requests and publishes them at the end of the turn. Thread rule: the owner's thread only.

    `newest_ms` gives the latest time that a record may have, for a hub and the current time.
    """

    __slots__ = ("_defer", "_newest_ms", "_waiting")

    def __init__(self, newest_ms: Callable[[Hub, int], int], defer: Defer) -> None:
        self._newest_ms = newest_ms
        self._defer = defer
        self._waiting: list[RunRequest] = []

    def add(self, request: RunRequest) -> None:
        """Publish a request with others of this turn."""
        if not self._waiting:
            self._defer(self.flush)
        self._waiting.append(request)

    def flush(self, now: float, now_ms: int) -> None:
        """Publish all collected requests."""
        waiting, self._waiting = self._waiting, []
        targets: dict[Hashable, _Target] = {}
        for request in waiting:
            publisher = request.find_publisher(now, now_ms)
            if publisher is None:
                # Behind earlier requests of its connection.
                self._publish_all(targets, now, now_ms)
                request.publish_alone()
                continue
            key = (publisher.quota_key, request.partition)
            target = targets.get(key)
            if target is not None and len(target.data) >= MAX_RUN_BYTES:
                self._publish(target, now, now_ms)
                target = None
            if target is None:
                target = targets[key] = _Target(publisher, request.partition)
            target.add(request)
        self._publish_all(targets, now, now_ms)

    def _publish_all(self, targets: dict[Hashable, _Target], now: float, now_ms: int) -> None:
        for target in targets.values():
            self._publish(target, now, now_ms)
        targets.clear()

    def _publish(self, target: _Target, now: float, now_ms: int) -> None:
        publisher = target.publisher
        part = RunPart(target.partition, target.data, target.sizes)
        try:
            runs = publisher.check_runs([part], self._newest_ms(publisher.entity, now_ms), now)
        except Refusal:
            runs = None
        if runs is None:
            self._divide(target, now, now_ms)
        else:
            _append(target, runs[0], now, now_ms)

    def _divide(self, target: _Target, now: float, now_ms: int) -> None:
        """Publish requests that cannot be published together in two halves, or each of them alone."""
        requests = target.requests
        if len(requests) <= _FEW:
            for request in requests:
                request.publish_alone()
            return
        middle = len(requests) // 2
        for some in (requests[:middle], requests[middle:]):
            half = _Target(target.publisher, target.partition)
            for request in some:
                half.add(request)
            self._publish(half, now, now_ms)


def _append(target: _Target, run: BatchRun, now: float, now_ms: int) -> None:
    publisher, requests = target.publisher, target.requests
    is_append_time = publisher.entity.timestamp_type is TimestampType.LOG_APPEND
    try:
        publisher.publish(
            run,
            count=run.events,
            size_bytes=len(run.data),
            partition=target.partition,
            now=now,
            now_ms=now_ms,
            callback=partial(_on_receipt, requests, run, is_append_time, publisher.log_start(target.partition)),
            requests=len(run.sizes),
            over_limit=OverLimit.DELAY,
        )
    except Refusal as refusal:
        for request in requests:
            request.on_refused(refusal)
        return
    for request in requests:
        request.on_written()


def _on_receipt(
    requests: Sequence[RunRequest], run: BatchRun, is_append_time: bool, log_start: int, receipt: Receipt
) -> None:
    if receipt.error is not None:
        refusal = receipt.error if isinstance(receipt.error, Refusal) else ShuttingDown()
        for request in requests:
            request.on_refused(refusal)
        return
    append_time_ms = receipt.enqueued_at_ms if is_append_time else -1
    offset, at, headers = receipt.sequence_number, 0, run.headers
    for request in requests:
        offsets = []
        for _ in request.sizes:
            offsets.append(offset)
            offset += headers[at][RECORD_COUNT_FIELD]
            at += 1
        request.on_committed(offsets, append_time_ms, log_start)
