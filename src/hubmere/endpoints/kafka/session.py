"""One Kafka connection: bytes become requests, requests go to their handlers, responses leave in the requests' order.

Decides when an idle or unauthenticated client is disconnected, when reading pauses (too many requests in flight, too
many unsent bytes, a client over its quota), and when responses are written: once for each read and once for each round
of commits. Kafka has no closing frame, so a client that breaks the protocol is disconnected without an error, after the
responses to its earlier requests.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hubmere.broker import Caller, ConnectionView, Judge, Principal, Waiting
from hubmere.endpoints.kafka.client import SessionClient, log_closed
from hubmere.endpoints.kafka.context import KafkaContext
from hubmere.endpoints.kafka.pressure import MAX_GATHERED_IN_FLIGHT, MAX_UNSENT_BYTES, BackPressure
from hubmere.endpoints.kafka.produce.gathered import gather
from hubmere.endpoints.kafka.slices import LongRequest, WaitingSteps
from hubmere.endpoints.kafka.writer import ResponseWriter
from hubmere.endpoints.memory import UNCOUNTED_BYTES, Account
from hubmere.endpoints.stream import SCRATCH, Timer, Wire
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import BrokenStream, Request, ServerConnection
from hubmere.wire.kafka.messages.groups import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from hubmere.wire.kafka.messages.offsets import FIND_COORDINATOR
from hubmere.wire.kafka.messages.sasl import SASL_HANDSHAKE
from hubmere.wire.kafka.primitives import Buffer

if TYPE_CHECKING:
    from hubmere.endpoints.kafka.fetch.sessions import FetchSession
    from hubmere.endpoints.kafka.fetch.state import CachedPartition, SessionlessFetch


# Before sign-in a client sends names, versions and one credential.
SIGN_IN_REQUEST_BYTES = 64 * 1024
# Larger requests close the connection, unless the tier accepts larger publications (reference: kafka 1.4).
MAX_REQUEST_BYTES = 4 * 1024 * 1024
# For the fields of a request around a publication of the largest size.
_REQUEST_SLACK_BYTES = 64 * 1024
# The rest of a request is read directly into its frame if it is at least this long. Less is read together with what
# follows it: copying so few bytes costs less than one more system call.
DIRECT_READ_BYTES = 32 * 1024
# Requests that are followed by others of their kind, and that many clients send at once: a member joins a group.
_PATIENT = frozenset(
    api.key for api in (FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, LEAVE_GROUP, HEARTBEAT, SASL_HANDSHAKE)
)
T = TypeVar("T")


class KafkaSession(SessionClient):
    """One connection (`endpoints.stream.Session`), which monitoring can see (`broker.LiveConnection`).

    Thread rule: the loop's thread only.
    """

    __slots__ = (
        "_account",
        "_engine",
        "_handlers",
        "_is_direct_read",
        "_is_flush_scheduled",
        "_is_in_turn",
        "_is_paused",
        "_is_waiting",
        "_last_read_at",
        "_queue",
        "_timer",
        "_writer",
        "can_wait",
        "cleanups",
        "client_id",
        "fetch_sessions",
        "fetched_partitions",
        "forwarded",
        "has_gathered",
        "host",
        "is_closing",
        "is_lost",
        "mechanism",
        "pressure",
        "sessionless_fetch",
        "software",
    )

    def __init__(self, context: KafkaContext, *, is_secure: bool) -> None:
        super().__init__(context, is_secure=is_secure)
        # The SASL mechanism of the last handshake, until the client authenticates.
        self.mechanism: str | None = None
        # State of the fetch handler, by session id and for requests without a session.
        self.fetch_sessions: dict[int, FetchSession] = {}
        self.sessionless_fetch: SessionlessFetch | None = None
        # For monitoring: the partitions of the last fetch, and what the client says about itself.
        self.fetched_partitions: Collection[CachedPartition] = ()
        self.client_id = ""
        self.software = ""
        # Called when the connection is lost, by handlers that watch something.
        self.cleanups: dict[Callable[[], None], None] = {}
        # The names under which requests of this connection are passed on to a cluster.
        self.forwarded: set[str] = set()
        # Whether other connections are served first when there is too much work: it signs in, or its last request was
        # one of a group's member.
        self.can_wait = True
        # Whether the connection is gone: nobody reads a response.
        self.is_lost = False
        self.pressure = BackPressure()
        self._engine: ServerConnection | None = None
        self._writer: ResponseWriter | None = None
        self._handlers = context.sign_in_handlers
        self._last_read_at = 0.0
        self._timer: Timer | None = None
        # Requests that were read and are not handled yet.
        self._queue: deque[Request] = deque()
        self._is_paused = False
        self._is_direct_read = False
        self._is_in_turn = False
        self._is_flush_scheduled = False
        # Whether the connection is about to be closed: nothing more is read or handled.
        self.is_closing = False
        # Whether requests of this turn wait in the node's `RunCoalescer`.
        self.has_gathered = False
        # Whether a long request waits for a log.
        self._is_waiting = False
        self._account: Account = context.memory.account(self)

    # --- called by the stream ---

    def on_connected(self, wire: Wire) -> None:
        """Give the client some time to authenticate."""
        self._wire = wire
        self._writer = ResponseWriter(wire, is_secure=self.is_secure)
        self._engine = ServerConnection(served=self.context.served, max_request_bytes=SIGN_IN_REQUEST_BYTES)
        self._engine.admit_frames(self._account.admits)
        self._last_read_at = self.context.clock.monotonic()
        self._timer = wire.call_at(self._last_read_at + self.context.handshake_timeout_s, self._check_idle)
        self.context.broker.connections.add(self, self.context.clock.now_ms())

    def get_buffer(self) -> memoryview:
        """Buffer for the next read: the frame itself for the rest of a large request."""
        rest = None if self.is_closing else self.engine.receive_buffer()
        if rest is None or len(rest) < DIRECT_READ_BYTES:
            self._is_direct_read = False
            return SCRATCH[: self._account.read_bytes] if self._account.is_tight else SCRATCH
        self._is_direct_read = True
        return rest

    def buffer_updated(self, count: int) -> None:
        """Handle the requests that are complete now, then write all responses at once."""
        if self._is_direct_read:
            self._receive(self.engine.read_buffer, count)
        else:
            self.on_data(SCRATCH[:count])

    def on_data(self, data: bytes | memoryview) -> None:
        """As `buffer_updated`, for bytes from another buffer."""
        # A copy that can be changed: the log numbers and stamps batches in place.
        copied = bytearray(data)
        engine = self.engine
        if not (engine.knows_runs and self._is_far_from_limits(engine) and gather(self, engine, copied)):
            self._receive(engine.receive_data, copied)

    def _receive(self, read: Callable[[T], list[Request]], argument: T) -> None:
        if self.is_closing:
            return
        clock = self.context.clock
        if self.has_gathered:
            # Requests of one connection keep their order.
            self.context.run_coalescer.flush(clock.monotonic(), clock.now_ms())
        self.start_turn(clock.monotonic(), clock.now_ms())
        try:
            self._queue += read(argument)
        except BrokenStream as broken:
            self._queue += broken.complete
            self._handle_queue()
            self.disconnect(str(broken))
        else:
            if self._is_waiting:
                self.wire.pause_reading()
            else:
                self._handle_queue()
            if self.engine.is_waiting:
                self._account.wait(self._on_memory)

    def _is_far_from_limits(self, engine: ServerConnection) -> bool:
        """Whether requests may be gathered, without a check of the limits."""
        is_free = not (self.is_closing or self._is_paused or self._is_waiting or self._queue)
        return is_free and self.pressure.is_low and engine.in_flight < MAX_GATHERED_IN_FLIGHT

    def handle(self, request: Request) -> None:
        """Handle a request that was gathered, in a turn that has started."""
        self._queue.append(request)
        self._handle_queue()

    def _handle_queue(self) -> None:
        """Handle requests in order until a limit is reached; the others wait until reading resumes."""
        queue, pressure = self._queue, self.pressure
        self._is_in_turn = True
        while queue and not self.is_closing:
            self._handle(queue.popleft())
            if pressure.is_check_due:
                self._flush()
                pressure.is_check_due = self._is_over_limits()
                if pressure.is_check_due:
                    break
        self._is_in_turn = False
        self._flush()
        if pressure.uncommitted_bytes and not self.is_closing:
            # Where a commit needs no disk its responses are ready when this turn's calls have run: one turn saved.
            self._flush_soon()

    def _handle(self, request: Request) -> None:
        key = request.api.key
        handler = self._handlers.get(key)
        self.can_wait = key in _PATIENT
        if handler is None:
            self.disconnect(f"{request.api.name} before sign-in; set security.protocol to SASL_PLAINTEXT or SASL_SSL")
        else:
            handler(self, request)

    def on_writable(self) -> None:
        """Write queued responses."""
        self.writer.write_backlog()
        self._count_memory()
        self._resume_reading()

    def on_lost(self) -> None:
        """Free everything that the connection holds."""
        self.is_lost = self.is_closing = True
        self.context.broker.connections.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        cleanups, self.cleanups = self.cleanups, {}
        for cleanup in cleanups:
            cleanup()
        self.fetch_sessions.clear()
        self.sessionless_fetch = None
        self.fetched_partitions = ()
        self._queue.clear()
        self.writer.discard()
        self.engine.discard_partial_frame()
        self._account.close()
        if self._caller is not None:
            self._caller.close_connection()

    def stop(self) -> None:
        """The node stops: Kafka has no closing message, and clients reconnect by themselves."""
        self.is_closing = True
        self._flush()
        self.writer.write_all()
        self.wire.close()

    # --- called by monitoring and management (broker.LiveConnection) ---

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        """Snapshot of the connection."""
        return self.context.connection_view(self, number, opened_ms)

    def callers(self) -> Iterable[Principal]:
        """The authenticated principal."""
        return () if self._caller is None else (self._caller.principal,)

    def disconnect(self, why: str) -> None:
        """Close the connection after the responses that are ready; Kafka cannot carry a reason."""
        if not self.is_closing:
            log_closed(self.wire.peer, why)
            self.is_closing = True
            self._flush()
            self.writer.write_all()
            self.wire.close()

    def review(self, judge: Judge) -> None:
        """Close the connection if the current rules do not allow what it does."""
        if self._caller is None or self.is_closing:
            return
        try:
            self._caller.review_connection(judge, self.context.clock.now_ms() / 1000)
        except Refusal as refusal:
            self.disconnect(f"its credential is revoked: {refusal}")

    # --- used by handlers ---

    @property
    def writer(self) -> ResponseWriter:
        """The output."""
        assert self._writer is not None
        return self._writer

    @property
    def engine(self) -> ServerConnection:
        """The protocol engine."""
        assert self._engine is not None
        return self._engine

    @property
    def idle_s(self) -> float:
        """Seconds since the last read."""
        return max(self.context.clock.monotonic() - self._last_read_at, 0.0)

    def respond(self, request: Request, body: object) -> None:
        """Queue a response; it is written at the end of this turn."""
        if self.is_lost:
            return
        self.engine.respond(request, body)
        if not self._is_in_turn:
            self._flush_soon()

    def respond_frames(self, request: Request, frames: bytes) -> None:
        """As `respond`, with encoded frames: one, or those of a run."""
        self.respond_buffers(request, [frames])

    def respond_buffers(self, request: Request, frame: list[Buffer]) -> None:
        """As `respond_frames`, with one frame in several buffers."""
        if self.is_lost:
            return
        self.engine.respond_buffers(request, frame)
        if not self._is_in_turn:
            self._flush_soon()

    def respond_at_once(self, request: Request, frames: bytes) -> None:
        """Like `respond_frames`, for a small response outside of a turn: it is written now."""
        if self.is_lost:
            return
        engine, wire = self.engine, self.wire
        is_direct = not (self._is_in_turn or self._is_paused or self._account.held_bytes or self.writer.has_backlog)
        if is_direct and engine.complete(request):
            wire.write(frames)
        else:
            engine.respond_frames(request, frames)
            if self._is_in_turn:
                return
            if not is_direct:
                self._flush()
                return
            for part in engine.data_to_send():
                wire.write(part)
        if not wire.is_writable:
            self._flush()

    def resume(self, work: Callable[[], None]) -> None:
        """Continue a request that waited, in a turn of its own: its response is written at the end."""
        if self._is_in_turn:
            work()
            return
        self.now = self.context.clock.monotonic()
        self._is_in_turn = True
        work()
        self._is_in_turn = False
        self._flush()

    def run_in_slices(self, steps: WaitingSteps) -> None:
        """Handle a request whose work may be long: one slice now, the rest in turns with other connections."""
        LongRequest(self, steps).start()

    def begin_wait(self, waiting: Waiting) -> None:
        """A long request waits for a log. The connection is read until its next request, to notice when it is lost."""
        self._is_waiting = True
        self.cleanups[waiting.cancel] = None
        if self._is_paused:
            self.wire.resume_reading()

    def end_wait(self, waiting: Waiting) -> None:
        """The wait is over; reading resumes when the request is answered."""
        self._is_waiting = False
        self.cleanups.pop(waiting.cancel, None)
        self.wire.pause_reading()

    def handle_next(self, requests: list[Request]) -> None:
        """Handle these requests in place of the one that is being handled."""
        self._queue.extendleft(reversed(requests))

    def on_signed_in(self, caller: Caller, host: str) -> None:
        """Serve all requests from now on; `host` is the name under which the client finds the node."""
        self._caller, self.host = caller, host
        self._handlers = self.context.handlers
        self.engine.expects_bare_tokens = False
        self.engine.can_receive_runs = True
        self.wire.trust_peer()
        largest = caller.namespace.limits.publication_bytes + _REQUEST_SLACK_BYTES
        self.engine.max_request_bytes = max(MAX_REQUEST_BYTES, largest)

    # --- back-pressure ---

    def count_response(self, size_bytes: int) -> None:
        """Count a large response, so that it is written before there are too many in memory."""
        writer = self.writer
        writer.unsent_bytes += size_bytes
        if size_bytes > UNCOUNTED_BYTES:
            self._account.set(self._account.held_bytes + size_bytes)
        if writer.unsent_bytes > MAX_UNSENT_BYTES:
            self.pressure.is_check_due = True

    def throttle(self, seconds: float) -> None:
        """Read nothing more for a while: the client is over its quota (KIP-219)."""
        until = self.now + seconds
        if seconds > 0 and self.pressure.throttle(until):
            self.wire.call_at(until, partial(self._end_throttle, until))

    def _end_throttle(self, until: float) -> None:
        self.pressure.end_throttle(until)
        self._resume_reading()

    def _is_over_limits(self) -> bool:
        return self.pressure.is_over(self.engine, self.writer, self.wire, self.context.clock)

    def _resume_reading(self) -> None:
        if not self._is_paused or self._is_in_turn or self.is_closing or self._is_over_limits():
            return
        self._is_paused = self.pressure.is_check_due = False
        if self._queue:
            self.start_turn(self.context.clock.monotonic(), self.context.clock.now_ms())
            self._handle_queue()
        if not self._is_paused:
            self.wire.resume_reading()

    # --- the node's memory (memory.Holder) ---

    @property
    def account(self) -> Account:
        """What the connection holds of the node's memory."""
        return self._account

    def held_bytes(self) -> int:
        """Incomplete and uncommitted requests, and responses that the client has not read."""
        engine = self.engine
        return engine.held_bytes + engine.blocked_bytes + self.writer.held_bytes() + self.pressure.counted_bytes

    def refuse_memory(self, why: str) -> None:
        """Close the connection at once; Kafka cannot carry a reason."""
        log_closed(self.wire.peer, why)
        self.is_closing = True
        self.writer.discard()
        self.engine.discard_partial_frame()
        self.wire.abort()

    def _count_memory(self) -> None:
        held = self.held_bytes()
        if held > UNCOUNTED_BYTES or self._account.held_bytes:
            self._account.set(held)

    def _on_memory(self) -> None:
        if not self.is_closing and self.engine.is_waiting:
            self._receive(lambda _: self.engine.resume(), None)
            self._resume_reading()

    # --- writing ---

    def _flush(self) -> None:
        engine, writer = self.engine, self.writer
        data = engine.data_to_send()
        if data or writer.has_backlog:
            writer.write(data)
        if engine.is_small and not self._is_paused and self.pressure.is_none and writer.is_empty:
            if self._account.held_bytes:
                self._account.set(0)
            return
        self._count_memory()
        if self._is_paused:
            self._resume_reading()
        elif self._is_over_limits():
            self._is_paused = True
            if not self._is_waiting:
                self.wire.pause_reading()

    def _flush_soon(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self.wire.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_flush_scheduled = False
        self._flush()

    # --- time ---

    def start_turn(self, now: float, now_ms: int) -> None:
        """Begin to handle what was read; a client that may not be served any more is disconnected."""
        self.now = self._last_read_at = now
        self.now_ms = now_ms
        caller = self._caller
        if caller is None:
            return
        if caller.is_namespace_gone:
            self.disconnect("its namespace was deleted")
        elif caller.principal.is_expired(now_ms / 1000):
            # KIP-368: a session that has outlived its credential ends with its next request.
            self.disconnect("its credential has expired")

    def _check_idle(self) -> None:
        context = self.context
        limit_s = context.idle_timeout_s if self.is_signed_in else 0.0
        now = context.clock.monotonic()
        if self.engine.in_flight and self.is_signed_in:
            self._last_read_at = now
        if now >= self._last_read_at + limit_s:
            self.disconnect("it did not authenticate in time" if not limit_s else "it was idle for too long")
            return
        self._timer = self.wire.call_at(self._last_read_at + limit_s, self._check_idle)
