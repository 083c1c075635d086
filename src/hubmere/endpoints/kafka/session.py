"""One connection: bytes become requests, requests go to their handler, responses leave in the order of the requests.

Decides when a peer that proves nothing or says nothing is cut off, when reading stops (too much unanswered, too much
unsent, a producer over its units), and when bytes are written: once for each read and once for each round of commits.
What a request means is its handler's business; what a refusal is called is in `errors`. Kafka has no closing frame: a
peer that breaks the protocol loses its connection without a word, after the answers to what came before.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from hubmere.broker.access import Principal
from hubmere.broker.broker import Broker
from hubmere.broker.coordinator.coordinators import Coordinator
from hubmere.broker.live import LiveNamespace
from hubmere.broker.management.connections import MAX_LINKS, ConnectionView, display_text
from hubmere.broker.management.manager import Actor
from hubmere.broker.network import require_address
from hubmere.broker.revocation import Judge
from hubmere.endpoints.kafka.reach import Followed, Reach
from hubmere.endpoints.kafka.slices import Slices, Steps, run_slice
from hubmere.endpoints.memory import UNCOUNTED_BYTES, Account, MemoryBudget
from hubmere.endpoints.stream import SCRATCH, Timer, Wire
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import BrokenStream, Request, ServedApis, ServerConnection
from hubmere.wire.kafka.primitives import Buffer

log = logging.getLogger("hubmere.kafka")

# A peer that has not signed in sends names, versions and one credential.
UNPROVEN_REQUEST_BYTES = 64 * 1024
# Requests larger than this close the connection, unless the tier takes larger publications (reference: kafka 1.4).
MAX_REQUEST_BYTES = 4 * 1024 * 1024
# Room for a request's own fields around a publication of the largest size.
_REQUEST_SLACK_BYTES = 64 * 1024
# Requests that may wait for their answer: well above the five that ordered producers and the thousand that others of
# librdkafka's size keep in flight; a peer that sends more is read again when some are answered.
MAX_UNANSWERED = 2048
# Publications of one connection that wait for their commit; more are left in the socket.
MAX_WAITING_BYTES = 32 * 1024 * 1024
# From here on the rest of a request is read straight to its place. Less is read with what follows it: a copy of so few
# bytes costs less than one more system call.
PLACED_FROM_BYTES = 32 * 1024
# Publications that wait for their commit count against the node's memory from here on; less is gone in milliseconds.
_COUNTED_WAITING_BYTES = 64 * 1024
# TLS takes what it is given without saying how much of it is sent: large answers go to it in slices, so that what it
# has not taken is counted and can be let go.
_TLS_SLICE_BYTES = 256 * 1024
# Answers that may be in memory before they are written and the socket is looked at: about ten writes.
MAX_UNSENT_BYTES = 1024 * 1024
# Kafka clients find our only node under this id.
NODE_ID = 0

Handler = Callable[["KafkaSession", Request], None]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Shared:
    """What all connections of the endpoint have in common."""

    broker: Broker
    clock: Clock
    addresses: Addresses
    memory: MemoryBudget
    served: ServedApis
    handlers: Mapping[int, Handler]
    open_handlers: Mapping[int, Handler]  # what a peer may ask before it has signed in
    idle_timeout_s: float
    handshake_timeout_s: float
    auto_create_hubs: bool
    slices: Slices
    watch_deadlines: Callable[[], None]  # to be called after anything that may have set a coordinator's deadline


@dataclass(slots=True)
class SignIn:
    """How far a peer has come in proving who it is."""

    mechanism: str | None = None


class KafkaSession:
    """What one connection does (`endpoints.stream.Session`) and tells those who look (`broker.LiveConnection`).

    Thread rule: the loop's thread only.
    """

    __slots__ = (
        "_account",
        "_backlog",
        "_backlog_bytes",
        "_engine",
        "_handlers",
        "_is_closing",
        "_is_flush_planned",
        "_is_heavy",
        "_is_in_turn",
        "_is_lost",
        "_is_paused",
        "_is_placed",
        "_is_slicing",
        "_muted_until",
        "_pinned_bytes",
        "_queue",
        "_reach",
        "_seen_at",
        "_timer",
        "_unsent_bytes",
        "_waiting_bytes",
        "_wire",
        "cleanups",
        "client_id",
        "fetch_sessions",
        "followed",
        "full_reading",
        "host",
        "is_secure",
        "now",
        "now_ms",
        "shared",
        "sign_in",
        "software",
    )

    def __init__(self, shared: Shared, *, is_secure: bool) -> None:
        self.shared = shared
        self.is_secure = is_secure
        self.sign_in = SignIn()
        self.host = shared.addresses.host
        self.now = 0.0
        self.now_ms = 0
        # Kept by the fetch handlers; freed with the connection.
        self.fetch_sessions: dict[int, object] = {}
        self.full_reading: object = None
        # What the last fetch asked for, for monitoring.
        self.followed: Collection[Followed] = ()
        # Client id and software, for monitoring.
        self.client_id = ""
        self.software = ""
        # What to call when the connection is gone: parked requests that watch something.
        self.cleanups: dict[Callable[[], None], None] = {}
        self._engine: ServerConnection | None = None
        self._wire: Wire | None = None
        self._handlers = shared.open_handlers
        self._reach: Reach | None = None
        self._seen_at = 0.0
        self._timer: Timer | None = None
        self._muted_until = 0.0
        self._waiting_bytes = 0
        self._is_paused = False
        self._is_placed = False
        # Whether an answer is being made in slices: requests behind it wait.
        self._is_slicing = False
        self._is_in_turn = False
        self._is_flush_planned = False
        self._is_closing = False
        self._is_lost = False
        # Requests that were read and wait for their turn, and whether the last one gave reason to look at limits.
        self._queue: deque[Request] = deque()
        self._is_heavy = False
        self._unsent_bytes = 0
        # Answers that the socket has not taken yet, in order.
        self._backlog: deque[Buffer] = deque()
        self._backlog_bytes = 0
        # What was handed to the socket of answers that it has not taken whole: they are in memory until it has.
        self._pinned_bytes = 0
        self._account: Account = shared.memory.account(self)

    # --- what the stream calls ---

    def on_connected(self, wire: Wire) -> None:
        """A client is there: it has some time to say who it is."""
        self._wire = wire
        self._engine = ServerConnection(served=self.shared.served, max_request_bytes=UNPROVEN_REQUEST_BYTES)
        self._engine.admit_frames(self._account.admits)
        self._seen_at = self.shared.clock.monotonic()
        self._timer = wire.call_at(self._seen_at + self.shared.handshake_timeout_s, self._check_idle)
        self.shared.broker.connections.add(self, self.shared.clock.now_ms())

    def get_buffer(self) -> memoryview:
        """The rest of a large request that arrives in pieces is read straight to its place."""
        rest = None if self._is_closing else self.engine.receive_buffer()
        if rest is None or len(rest) < PLACED_FROM_BYTES:
            self._is_placed = False
            return SCRATCH[: self._account.read_bytes] if self._account.is_tight else SCRATCH
        self._is_placed = True
        return rest

    def buffer_updated(self, count: int) -> None:
        """Bytes from the client: requests that are complete are handled, then all answers go out in one write."""
        if self._is_placed:
            self._take(self.engine.read_buffer, count)
        else:
            # Memory that can be written to: the log numbers and stamps batches where they are.
            self.on_data(bytearray(SCRATCH[:count]))

    def on_data(self, data: bytes | bytearray) -> None:
        """As `buffer_updated`, for bytes that came otherwise."""
        self._take(self.engine.receive_data, data)

    def _take(self, read: Callable[[T], list[Request]], what: T) -> None:
        if self._is_closing:
            return
        self._begin_turn()
        try:
            self._queue += read(what)
        except BrokenStream as broken:
            self._queue += broken.complete
            self._work()
            self.drop(str(broken))
        else:
            self._work()
            if self.engine.is_waiting:
                self._account.wait(self._on_memory)

    def _work(self) -> None:
        """Handle what was read, in order; what comes after too much at a time waits with the socket."""
        queue = self._queue
        self._is_in_turn = True
        while queue and not self._is_closing:
            self._handle(queue.popleft())
            if self._is_heavy:
                self._flush()
                self._is_heavy = self._is_over()
                if self._is_heavy:
                    break
        self._is_in_turn = False
        self._flush()
        if self._waiting_bytes and not self._is_closing:
            # Where a commit needs no disk its answers are ready when this turn's calls have run: one turn saved.
            self._flush_soon()

    def _handle(self, request: Request) -> None:
        handler = self._handlers.get(request.api.key)
        if handler is None:
            self.drop(f"{request!r} before sign-in")
        else:
            handler(self, request)

    def on_writable(self) -> None:
        """The socket has room again."""
        if self._backlog:
            self._write_backlog()
        self._count_memory()
        self._read_again()

    def on_lost(self) -> None:
        """The connection is gone: whoever waits for it is told, and everything it held is free."""
        self._is_lost = self._is_closing = True
        self.shared.broker.connections.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        cleanups, self.cleanups = self.cleanups, {}
        for cleanup in cleanups:
            cleanup()
        self.fetch_sessions.clear()
        self.full_reading = None
        self.followed = ()
        self._queue.clear()
        self._backlog.clear()
        self.engine.discard_partial_frame()
        self._account.close()
        if self._reach is not None:
            self._reach.forget()
            self._reach.namespace.counters.connections_closed += 1

    def stop(self) -> None:
        """The node is stopping: Kafka has no good-bye, clients come back by themselves."""
        self._is_closing = True
        self._flush()
        self._write_everything()
        self.wire.close()

    # --- monitoring (broker.LiveConnection) ---

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        """The connection as it is now."""
        reach = self._reach
        return ConnectionView(
            number=number,
            protocol="Kafka",
            client=display_text(self.client_id),
            software=display_text(self.software),
            rule="" if reach is None else reach.principal.rule,
            peer=self.wire.peer,
            namespace="" if reach is None else reach.namespace_key,
            is_secure=self.is_secure,
            opened_ms=opened_ms,
            idle_s=max(self.shared.clock.monotonic() - self._seen_at, 0.0),
            links=() if reach is None else tuple(islice(reach.links(self.followed), MAX_LINKS)),
        )

    def callers(self) -> Iterable[Principal]:
        """Who has signed in."""
        return () if self._reach is None else (self._reach.principal,)

    def disconnect(self, why: str) -> None:
        """Close the connection; Kafka has no place for a reason."""
        self.drop(why)

    def review(self, judge: Judge) -> None:
        """Close the connection when the rules in force do not allow what it does; else go by them from now on."""
        reach = self._reach
        if reach is None or self._is_closing:
            return
        try:
            require_address(reach.namespace.entity, self.wire.peer)
            self.shared.broker.require_kafka(reach.namespace.entity)
            principal = judge(reach.principal, self.shared.clock.now_ms() / 1000)
            reach.require_open(principal.rights)
        except Refusal as refusal:
            self.drop(f"its credential is revoked: {refusal}")
            return
        if principal.is_rotated or principal.rights == reach.principal.rights:
            reach.principal = principal
        else:
            # Parked fetches and remembered topics see another object, and ask again.
            self._reach = Reach(self.shared.broker, reach.namespace, principal)
            reach.forget()

    # --- what handlers use ---

    @property
    def wire(self) -> Wire:
        """The connection's transport."""
        assert self._wire is not None
        return self._wire

    @property
    def engine(self) -> ServerConnection:
        """The protocol."""
        assert self._engine is not None
        return self._engine

    @property
    def reach(self) -> Reach:
        """What the client may do; another object whenever that is to be asked anew."""
        assert self._reach is not None
        return self._reach

    @property
    def namespace(self) -> LiveNamespace:
        """The namespace that the client has signed in to."""
        return self.reach.namespace

    @property
    def principal(self) -> Principal:
        """Who the client is."""
        return self.reach.principal

    @property
    def is_signed_in(self) -> bool:
        """Whether the client has proven who it is."""
        return self._reach is not None

    @property
    def is_lost(self) -> bool:
        """Whether nobody is there to answer to."""
        return self._is_lost

    @property
    def port(self) -> int:
        """The port of the kind by which the client came."""
        addresses = self.shared.addresses
        return (addresses.kafkas if self.is_secure else addresses.kafka) or 0

    @property
    def coordinator(self) -> Coordinator:
        """Groups, offsets and transactions of the client's namespace."""
        return self.shared.broker.coordinators.of(self.namespace, self.now, self.now_ms)

    def actor(self) -> Actor:
        """Who changes things here, for the audit log; Kafka has no place to tell a tracking id."""
        return Actor(name=f"kafka:{self.principal.rule}", now_ms=self.now_ms, now=self.now, peer=self.wire.peer)

    def respond(self, request: Request, body: object) -> None:
        """Answer a request; what is given while a read is handled goes out at its end, else at the end of the turn."""
        if self._is_lost:
            return
        self.engine.respond(request, body)
        if not self._is_in_turn:
            self._flush_soon()

    def respond_frames(self, request: Request, frames: bytes) -> None:
        """As `respond`, with whole frames: one, or those of a run."""
        if self._is_lost:
            return
        self.engine.respond_frames(request, frames)
        if not self._is_in_turn:
            self._flush_soon()

    def respond_buffers(self, request: Request, frame: list[Buffer]) -> None:
        """As `respond_frames`, with one frame in several buffers."""
        if self._is_lost:
            return
        self.engine.respond_buffers(request, frame)
        if not self._is_in_turn:
            self._flush_soon()

    def resume(self, work: Callable[[], None]) -> None:
        """Have a handler that waited go on in a turn of its own: what it answers is written at its end."""
        if self._is_in_turn:
            work()
            return
        self.now = self.shared.clock.monotonic()
        self._is_in_turn = True
        work()
        self._is_in_turn = False
        self._flush()

    def work_in_slices(self, steps: Steps) -> None:
        """Handle a request whose work may be long: one slice now, what is left in turns with other connections."""
        if not run_slice(steps) and not self._is_closing:
            self._is_slicing = self._is_heavy = True
            self.shared.slices.add(self, steps)

    def go_on(self, steps: Steps) -> bool:
        """Do the next slice of a long answer; whether there is more to do."""
        is_done = self._is_closing

        def work() -> None:
            nonlocal is_done
            is_done = run_slice(steps)
            self._is_slicing = not is_done

        if not is_done:
            self.resume(work)
        return not is_done

    def handle_next(self, requests: list[Request]) -> None:
        """Requests that stand in the place of the one that is being handled."""
        self._queue.extendleft(reversed(requests))

    def drop(self, why: str) -> None:
        """Close the connection without a word, after the answers that are ready."""
        if not self._is_closing:
            log.info("a connection from %s is closed: %s", self.wire.peer, why)
            self._is_closing = True
            self._flush()
            self._write_everything()
            self.wire.close()

    def signed_in(self, namespace: LiveNamespace, principal: Principal, host: str) -> None:
        """The client is known from now on."""
        if self._reach is None:
            namespace.counters.connections_opened += 1
        self._reach, self.host = Reach(self.shared.broker, namespace, principal), host
        self._handlers = self.shared.handlers
        self.engine.expects_bare_tokens = False
        self.engine.can_receive_runs = True
        self.wire.trust_peer()
        largest = namespace.limits.publication_bytes + _REQUEST_SLACK_BYTES
        self.engine.max_request_bytes = max(MAX_REQUEST_BYTES, largest)

    # --- pushing back ---

    def hold(self, size_bytes: int) -> None:
        """A publication waits for its commit."""
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._is_heavy = True

    def release(self, size_bytes: int) -> None:
        """A publication was committed, or failed."""
        self._waiting_bytes -= size_bytes

    def weigh(self, size_bytes: int) -> None:
        """An answer is this large: write before there is too much of it in memory."""
        self._unsent_bytes += size_bytes
        if size_bytes > UNCOUNTED_BYTES:
            self._account.set(self._account.held_bytes + size_bytes)
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            self._is_heavy = True

    def mute(self, seconds: float) -> None:
        """Read nothing more for a while: the client is over its units (KIP-219)."""
        until = self.now + seconds
        if seconds > 0 and until > self._muted_until:
            self._muted_until = until
            self._is_heavy = True
            self.wire.call_at(until, self._read_again)

    # --- the node's memory (memory.Holder) ---

    @property
    def account(self) -> Account:
        """What the connection holds of the node's memory."""
        return self._account

    def held_bytes(self) -> int:
        """Unfinished and uncommitted requests, and answers that the client has not read."""
        engine, unsent_bytes = self.engine, self.wire.unsent_bytes
        if self._pinned_bytes and not unsent_bytes:
            self._pinned_bytes = _sent_bytes(self._backlog[0]) if self._backlog else 0
        held = engine.held_bytes + engine.blocked_bytes + self._backlog_bytes + max(unsent_bytes, self._pinned_bytes)
        return held + self._waiting_bytes if self._waiting_bytes > _COUNTED_WAITING_BYTES else held

    def _count_memory(self) -> None:
        held = self.held_bytes()
        if held > UNCOUNTED_BYTES or self._account.held_bytes:
            self._account.set(held)

    def refuse_memory(self, why: str) -> None:
        """Close the connection at once; Kafka has no place for a reason."""
        log.info("a connection from %s is closed: %s", self.wire.peer, why)
        self._is_closing = True
        self._backlog.clear()
        self._backlog_bytes = self._pinned_bytes = 0
        self.engine.discard_partial_frame()
        self.wire.abort()

    def _on_memory(self) -> None:
        """There is room for the request that waits, unless somebody else was faster."""
        if not self._is_closing and self.engine.is_waiting:
            self._take(lambda _: self.engine.resume(), None)
            self._read_again()

    def _is_over(self) -> bool:
        return (
            self._waiting_bytes > MAX_WAITING_BYTES
            or self.engine.is_waiting
            or bool(self._backlog)
            or self.engine.blocked_bytes > MAX_WAITING_BYTES
            or self.engine.in_flight > MAX_UNANSWERED
            or self._is_slicing
            or not self.wire.is_writable
            or (self._muted_until > 0 and self._muted_until > self.shared.clock.monotonic())
        )

    def _read_again(self) -> None:
        if not self._is_paused or self._is_in_turn or self._is_closing or self._is_over():
            return
        self._is_paused = self._is_heavy = False
        if self._queue:
            self._begin_turn()
            self._work()
        if not self._is_paused:
            self.wire.resume_reading()

    # --- writing ---

    def _flush(self) -> None:
        wire = self.wire
        data = self.engine.data_to_send()
        if self._backlog or (self.is_secure and self._unsent_bytes > _TLS_SLICE_BYTES):
            self._backlog += data
            self._backlog_bytes += sum(map(len, data))
            self._write_backlog()
        else:
            wire.write(*data)
            self._pinned_bytes += self._unsent_bytes
        self._unsent_bytes = 0
        self._count_memory()
        if self._is_paused:
            self._read_again()
        elif self._is_over():
            self._is_paused = True
            wire.pause_reading()

    def _write_backlog(self) -> None:
        """Write slice after slice while the socket takes them."""
        wire, backlog = self.wire, self._backlog
        while backlog and wire.is_writable:
            parts: list[Buffer] = []
            room = _TLS_SLICE_BYTES
            while backlog and room:
                part = backlog.popleft()
                self._pinned_bytes += len(part)
                self._backlog_bytes -= len(part)
                if len(part) > room:
                    view = memoryview(part)
                    backlog.appendleft(view[room:])
                    self._pinned_bytes -= len(part) - room
                    self._backlog_bytes += len(part) - room
                    part = view[:room]
                parts.append(part)
                room -= len(part)
            wire.write(*parts)

    def _write_everything(self) -> None:
        """The connection is about to be closed: what is ready goes out before that."""
        self.wire.write(*self._backlog)
        self._backlog.clear()
        self._backlog_bytes = 0

    def _flush_soon(self) -> None:
        if not self._is_flush_planned:
            self._is_flush_planned = True
            self.wire.call_soon(self._flush_planned)

    def _flush_planned(self) -> None:
        self._is_flush_planned = False
        self._flush()

    # --- time ---

    def _begin_turn(self) -> None:
        clock = self.shared.clock
        self.now = self._seen_at = clock.monotonic()
        self.now_ms = clock.now_ms()
        reach = self._reach
        if reach is None:
            return
        if reach.is_gone:
            self.drop("its namespace is gone")
        elif reach.principal.is_expired(self.now_ms / 1000):
            # KIP-368: a session that has outlived its credential ends with its next request.
            self.drop("its credential has expired")

    def _check_idle(self) -> None:
        shared = self.shared
        limit_s = shared.idle_timeout_s if self.is_signed_in else 0.0
        now = shared.clock.monotonic()
        if self.engine.in_flight and self.is_signed_in:
            self._seen_at = now
        if now >= self._seen_at + limit_s:
            self.drop("it did not sign in in time" if not limit_s else "it was silent for too long")
            return
        self._timer = self.wire.call_at(self._seen_at + limit_s, self._check_idle)


def _sent_bytes(rest: Buffer) -> int:
    """What was sent of an answer of which this is the rest."""
    return memoryview(rest.obj).nbytes - len(rest) if isinstance(rest, memoryview) else 0
