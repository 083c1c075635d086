"""Small Produce requests of many connections, gathered per turn of the loop and published together by the broker.

A read that holds nothing but a few small requests to one partition, in the form of the connection's earlier requests
(`wire.kafka.repeats`), is handled here: it is passed to the `RunCoalescer` of the node, and its responses are written
when its batches are committed. All other requests are handled by `produce`, after those that were gathered before.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from hubmere.broker import Publisher, RunCoalescer
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.produce.check import ZSTD_SINCE_PRODUCE, newest_allowed_ms
from hubmere.endpoints.kafka.produce.responses import encode_refusal, response_template
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import Request, ServerConnection
from hubmere.wire.kafka.messages.produce import ProducePartitionResponse
from hubmere.wire.kafka.repeats import ProduceRun

if TYPE_CHECKING:
    from hubmere.endpoints.kafka.session import KafkaSession

log = logging.getLogger("hubmere.kafka")

# A longer run of one connection is published at once: waiting for others would gain nothing.
MAX_GATHERED_REQUESTS: Final = 16


def build_run_coalescer(clock: Clock, call_soon: Callable[[Callable[[], None]], object]) -> RunCoalescer:
    """A coalescer whose requests are published at the end of each loop turn."""

    def defer(flush: Callable[[float, int], None]) -> None:
        call_soon(lambda: flush(clock.monotonic(), clock.now_ms()))

    return RunCoalescer(newest_allowed_ms, defer)


def gather(session: "KafkaSession", engine: ServerConnection, data: bytearray) -> bool:
    """Gather the requests of one read; False, without any effect, if `produce` has to handle them."""
    run = engine.peek_run(data)
    if run is None or run.version < ZSTD_SINCE_PRODUCE:
        return False
    indexes = run.indexes
    count = len(indexes)
    if count > 1 and (count >= MAX_GATHERED_REQUESTS or indexes.count(indexes[0]) < count):
        return False
    session.has_gathered = True
    session.context.run_coalescer.add(GatheredRun(session, engine.accept_run(run)))
    return True


class GatheredRun:
    """The requests of one read (`broker.RunRequest`). Thread rule: the loop's thread only."""

    __slots__ = ("_held_bytes", "_request", "_session", "data", "partition", "sizes")

    def __init__(self, session: "KafkaSession", request: Request) -> None:
        run: ProduceRun = request.body
        self._session = session
        self._request = request
        self.partition = run.indexes[0]
        batches = run.batches
        self.data = batches[0] if len(batches) == 1 else b"".join(batches)
        self.sizes: Sequence[int] = [len(batch) for batch in batches]
        self._held_bytes = 0

    def find_publisher(self, now: float, now_ms: int) -> Publisher | None:
        """The publisher of the connection, if it may still send; None if the request is refused or dropped."""
        session = self._session
        session.has_gathered = False
        session.start_turn(now, now_ms)
        if session.is_closing:
            return None
        try:
            return session.caller.publisher(self._request.body.topic, now_ms / 1000)
        except Refusal:
            return None

    def publish_alone(self) -> None:
        """Handle the requests by `produce`, so that each gets its own error or pause."""
        try:
            self._session.handle(self._request)
        except Exception:  # noqa: BLE001 - the top of a task: one client's error must not affect the others
            self._on_failure()

    def on_written(self) -> None:
        """Count the bytes that wait for their commit."""
        self._held_bytes = len(self.data)
        self._session.pressure.hold(self._held_bytes)

    def on_committed(self, offsets: Sequence[int], append_time_ms: int, log_start: int) -> None:
        """Send the responses."""
        run: ProduceRun = self._request.body
        encode = response_template(run.topic, run.version).encode
        ids, index = run.correlation_ids, self.partition
        if len(ids) == 1:
            frames = encode(ids[0], index, offsets[0], append_time_ms, log_start)
        else:
            pairs = zip(ids, offsets, strict=True)
            frames = b"".join([encode(one, index, offset, append_time_ms, log_start) for one, offset in pairs])
        self._respond(frames)

    def on_refused(self, refusal: Refusal) -> None:
        """Answer every request with the error."""
        run: ProduceRun = self._request.body
        part = ProducePartitionResponse(
            index=self.partition,
            error_code=code_of(refusal),
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
            error_message=refusal.text(),
        )
        self._respond(b"".join([encode_refusal(run.version, one, run.topic, part) for one in run.correlation_ids]))

    def _respond(self, frames: bytes) -> None:
        session = self._session
        session.pressure.release(self._held_bytes)
        try:
            session.respond_at_once(self._request, frames)
        except Exception:  # noqa: BLE001 - the top of a task: one client's error must not affect the others
            self._on_failure()

    def _on_failure(self) -> None:
        log.exception("a produce request of %s failed", self._session.wire.peer)
        self._session.disconnect("a produce request failed")
