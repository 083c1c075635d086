"""One connection: signals become broker calls.

Decides which namespace a connection means, when a peer that proves nothing is cut off, and when bytes are written. The
engine does the protocol, `peer` decides about links, the parts in `link.context` do the rest. A refusal ends at most
the link that it concerns; only a peer that breaks the protocol, or that may not be here at all, loses its connection.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from hubmere.broker.access import Principal
from hubmere.broker.broker import Broker
from hubmere.broker.coalesce import Coalescer
from hubmere.broker.live import LiveNamespace
from hubmere.broker.management.connections import MAX_LINKS as MAX_SHOWN_LINKS
from hubmere.broker.management.connections import ConnectionView, display_text
from hubmere.broker.network import is_allowed, require_address
from hubmere.broker.revocation import Judge
from hubmere.endpoints.amqp.addresses import HubAddress, parse_address
from hubmere.endpoints.amqp.errors import RecentlyBusy, entity_name, row_of, tracked
from hubmere.endpoints.amqp.idempotence import Producers
from hubmere.endpoints.amqp.links import LinkPart
from hubmere.endpoints.amqp.outbound import HeldBytes
from hubmere.endpoints.amqp.peer import Peer, Shared
from hubmere.endpoints.coalescing import build_coalescer
from hubmere.endpoints.memory import UNCOUNTED_BYTES, Account, MemoryBudget
from hubmere.endpoints.stream import SCRATCH, Timer, Wire
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.errors import AddressNotAllowed, LimitReached, NotSupported, Refusal, ShuttingDown
from hubmere.translate import DecodedCache
from hubmere.wire.amqp import Condition, Connection, EngineOptions, Link, Phase, Role
from hubmere.wire.amqp.codec.performatives import ROLE_RECEIVER, Attach, Source, Target
from hubmere.wire.amqp.codec.types import Value
from hubmere.wire.amqp.sasl import PLAIN
from hubmere.wire.amqp.signals import (
    AttachRequested,
    ConnectionFailed,
    ConnectionOpened,
    CredentialsOffered,
    CreditChanged,
    DeliveriesReceived,
    DeliveryOversized,
    LinkDetached,
    SessionBegun,
    Signal,
    WindowOpened,
)

log = logging.getLogger("hubmere.amqp")

# Links of one connection: one per partition of the largest hub, for reading and for writing, and some.
MAX_LINKS = 4096
# The largest message of any tier; announced where a tier knows no limit.
MAX_MESSAGE_BYTES = 20 << 20
# Publications of one connection that wait for their commit; more are left in the socket.
MAX_WAITING_BYTES = 16 << 20
# What may be queued for a peer that does not read, beyond the socket's own high-water mark; then it is not read either.
MAX_OVERRUN_BYTES = 1 << 20
# Sessions and links that a peer may have before it has proven anything: the claims node and the management node take
# two links each, and some clients begin a session for each pair.
MAX_UNPROVEN = 16
# What links may keep of the log between two turns, over all connections.
HELD_PIECES_BYTES = 64 << 20
# Publications that wait for their commit count against the node's memory from here on; less is gone in milliseconds.
_COUNTED_WAITING_BYTES = 64 << 10
# How long a peer that is refused for the node's memory has to answer the close.
_REFUSED_SECONDS = 1.0
# Tokens are renewed late by clients that are busy, and clocks differ; a link outlives its token by this much.
TOKEN_GRACE_S = 60.0


class AmqpEndpoint:
    """AMQP for a node: makes the session of each connection. Thread rule: the loop's thread only.

    `takes_certificates` says that TLS listeners let in only clients with a certificate, which is all that the SASL
    mechanism EXTERNAL proves.
    """

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        addresses: Addresses,
        *,
        idle_timeout_s: float,
        handshake_timeout_s: float,
        token_grace_s: float = TOKEN_GRACE_S,
        takes_certificates: bool = False,
        memory: MemoryBudget | None = None,
        coalescer: Coalescer | None = None,
    ) -> None:
        self.memory = memory or MemoryBudget()
        self.handshake_timeout_s = handshake_timeout_s
        self.takes_certificates = takes_certificates
        self.options = EngineOptions(
            container_id=f"{addresses.namespace}_G1",
            idle_timeout_ms=int(idle_timeout_s * 1000),
            handshake_seconds=handshake_timeout_s,
            max_links=MAX_LINKS,
            max_message_bytes=MAX_MESSAGE_BYTES,
        )
        self.shared = Shared(
            broker=broker,
            clock=clock,
            cache=DecodedCache(),
            pieces=HeldBytes(min(HELD_PIECES_BYTES, self.memory.limit_bytes // 8)),
            producers=Producers(),
            coalescer=coalescer or build_coalescer(clock),
            busy=RecentlyBusy(),
            max_message_bytes=MAX_MESSAGE_BYTES,
            token_grace_s=token_grace_s,
        )

    def session(self, protocol: str = "AMQP") -> "AmqpSession":
        """The session of one new connection; `protocol` is what it is called by those who look at it."""
        return AmqpSession(self, protocol)


class AmqpSession:
    """What one connection does (`endpoints.stream.Session`) and tells those who look (`broker.LiveConnection`).

    Thread rule: the loop's thread only.
    """

    __slots__ = (
        "_account",
        "_blocked",
        "_endpoint",
        "_engine",
        "_is_flush_planned",
        "_is_paused",
        "_is_proven",
        "_is_short_of_memory",
        "_is_stopping",
        "_overrun_bytes",
        "_peer",
        "_principal",
        "_protocol",
        "_prove_by",
        "_timer",
        "_timer_at",
        "_unproven",
        "_waiting_bytes",
        "_wire",
    )

    def __init__(self, endpoint: AmqpEndpoint, protocol: str = "AMQP") -> None:
        self._endpoint = endpoint
        self._protocol = protocol
        self._engine: Connection | None = None
        self._wire: Wire | None = None
        self._peer: Peer | None = None
        self._principal: Principal | None = None
        self._is_proven = False
        self._prove_by = 0.0
        self._unproven = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._is_flush_planned = False
        self._is_paused = False
        self._is_stopping = False
        self._overrun_bytes = 0
        self._waiting_bytes = 0
        self._blocked: list[LinkPart] | None = None
        self._account: Account = endpoint.memory.account(self)
        self._is_short_of_memory = False

    # --- what the stream calls

    def on_connected(self, wire: Wire) -> None:
        """A client is there: it has some time to say who it is."""
        now = self.clock.monotonic()
        self._wire = wire
        self._engine = Connection(Role.SERVER, self._endpoint.options, now)
        self._prove_by = now + self._endpoint.handshake_timeout_s
        self._endpoint.shared.broker.connections.add(self, self.clock.now_ms())
        self._arm()

    def get_buffer(self) -> memoryview:
        """Frames are taken apart as they come: none has a place to be read to."""
        return SCRATCH[: self._account.read_bytes] if self._account.is_tight else SCRATCH

    def buffer_updated(self, count: int) -> None:
        """Bytes from the client."""
        self.on_data(bytes(SCRATCH[:count]))

    def on_data(self, data: bytes) -> None:
        """As `buffer_updated`, for bytes that came otherwise."""
        self._take(self.engine.receive_data(data, self.clock.monotonic()))
        self.flush()
        if self.engine.input_bytes or self._account.held_bytes:
            self._count_memory()

    def on_writable(self) -> None:
        """The socket has room again: who waited for it goes on."""
        self._overrun_bytes = 0
        self._count_memory()
        self._go_on()

    def _go_on(self) -> None:
        self._read_again()
        blocked, self._blocked = self._blocked, None
        for part in blocked or ():
            part.credit_moved()
        self.flush()

    def on_lost(self) -> None:
        """The connection is gone: everything that it held is free."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._blocked = None
        self._account.close()
        self._endpoint.shared.broker.connections.remove(self)
        self._take(self.engine.on_connection_lost())
        if self._peer is not None:
            self._peer.namespace.counters.connections_closed += 1
            self._peer = None

    def stop(self) -> None:
        """The node is stopping: links are detached once what they took is settled, then the connection is closed."""
        self._is_stopping = True
        if self._peer is not None:
            self._peer.evict_all(ShuttingDown())
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._waiting_bytes:
            return
        if self.engine.phase is Phase.OPENED:
            self._close(Condition.CONNECTION_FORCED, ShuttingDown().text())
            self.flush()
        elif self.engine.phase is not Phase.CLOSING:
            self.wire.close()

    # --- monitoring (broker.LiveConnection) ---

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        """The connection as it is now."""
        peer = self._peer
        return ConnectionView(
            number=number,
            protocol=self._protocol,
            client="" if peer is None else peer.client,
            software="" if peer is None else peer.software,
            rule="" if peer is None else ", ".join(peer.claims.rules),
            peer=self.wire.peer,
            namespace="" if peer is None else peer.namespace.entity.key[0],
            is_secure=self.wire.is_secure,
            opened_ms=opened_ms,
            idle_s=max(self.clock.monotonic() - self.engine.last_received, 0.0),
            links=() if peer is None else tuple(islice(peer.views(), MAX_SHOWN_LINKS)),
        )

    def callers(self) -> Iterable[Principal]:
        """Whose claims it holds."""
        return () if self._peer is None else self._peer.claims.all

    def disconnect(self, why: str) -> None:
        """Close the connection, with the reason; one that is not open yet has no place for it."""
        if self.engine.phase is not Phase.OPENED:
            self.wire.close()
            return
        self._close(Condition.CONNECTION_FORCED, why)
        self.flush()
        # A peer that never answers the close must not stay.
        self._arm()

    def review(self, judge: Judge) -> None:
        """Detach links that the rules in force do not allow; a peer that may not be here loses its connection.

        A peer that has no claim left, but can put a new token, has as long for that as a new connection.
        """
        peer = self._peer
        if peer is None or self.engine.phase is not Phase.OPENED:
            return  # judged when it opens
        if not is_allowed(peer.namespace.entity, self.wire.peer):
            self.disconnect(AddressNotAllowed().text())
            return
        why = peer.review(judge)
        if why is None:
            self.flush_soon()
            self._arm()
            return
        log.info("the credential of a connection from %s is revoked: %s", self.wire.peer, why)
        if self._principal is not None:
            self.disconnect(why.text())
            return
        self._is_proven = False
        self._unproven = 0
        self._prove_by = self.clock.monotonic() + self._endpoint.handshake_timeout_s
        self.flush_soon()
        self._arm()

    # --- what links ask for (links.Host)

    @property
    def clock(self) -> Clock:
        """The node's clock."""
        return self._endpoint.shared.clock

    @property
    def wire(self) -> Wire:
        """The connection's transport."""
        assert self._wire is not None
        return self._wire

    @property
    def engine(self) -> Connection:
        """The protocol."""
        assert self._engine is not None
        return self._engine

    def flush(self) -> None:
        """Write what the engine has queued."""
        data = self.engine.data_to_send()
        if data:
            self.wire.write(data)
            if not self.wire.is_writable:
                self._overrun_bytes += len(data)
                if self._overrun_bytes > MAX_OVERRUN_BYTES:
                    self._pause_reading()
            if len(data) > UNCOUNTED_BYTES or self._account.held_bytes:
                self._count_memory()
        if self.engine.is_closed:
            self.wire.close()

    def flush_soon(self) -> None:
        """Write at the end of this turn, so that many settlements share one write."""
        if not self._is_flush_planned:
            self._is_flush_planned = True
            self.wire.call_soon(self._flush_planned)

    def _flush_planned(self) -> None:
        self._is_flush_planned = False
        if self._is_stopping:
            self._say_goodbye()
        self.flush()

    def explain(self, refusal: Refusal, entity: str) -> tuple[Condition, str]:
        """Condition and description of a refusal."""
        namespace = "" if self._peer is None else self._peer.namespace.entity.name
        return row_of(refusal).condition, tracked(refusal.text(), namespace, entity, self.clock.now_ms())

    def hold(self, size_bytes: int) -> None:
        """A publication waits for its commit."""
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._pause_reading()

    def release(self, size_bytes: int) -> None:
        """It waits no longer."""
        self._waiting_bytes -= size_bytes
        self._read_again()

    def links(self) -> Iterator[Link]:
        """Every link of the connection."""
        return self.engine.links()

    @property
    def may_send(self) -> bool:
        """Whether the socket, and the node's memory, have room for more."""
        wire = self.wire
        if self._account.is_tight and wire.unsent_bytes > UNCOUNTED_BYTES:
            return False
        return wire.is_writable

    def retry_when_writable(self, part: LinkPart) -> None:
        """Have a part go on once the socket, or the node's memory, has room."""
        self._blocked = self._blocked or []
        if part not in self._blocked:
            self._blocked.append(part)
        if self.wire.is_writable:
            self._wait_for_memory()

    # --- the node's memory (memory.Holder)

    def held_bytes(self) -> int:
        """Unfinished and uncommitted deliveries, and what the peer has not read."""
        held = self.engine.input_bytes + self.wire.unsent_bytes
        return held + self._waiting_bytes if self._waiting_bytes > _COUNTED_WAITING_BYTES else held

    def _count_memory(self) -> None:
        self._account.set(self.held_bytes())
        if self._account.is_tight and self.engine.input_bytes:
            self._pause_reading()
            self._wait_for_memory()

    def _wait_for_memory(self) -> None:
        if not self._is_short_of_memory:
            self._is_short_of_memory = True
            self._account.wait(self._on_memory)

    def _on_memory(self) -> None:
        self._is_short_of_memory = False
        if self._peer is not None and not self.engine.is_closed:
            self._go_on()

    def refuse_memory(self, why: str) -> None:
        """Close the connection with the reason, unless its peer does not read; what it holds is let go at once."""
        log.info("a connection from %s is closed: %s", self.wire.peer, why)
        self.engine.discard_partial_deliveries()
        if self.engine.phase is not Phase.OPENED or self.wire.unsent_bytes > UNCOUNTED_BYTES:
            self.wire.abort()
            return
        self._close(Condition.RESOURCE_LIMIT_EXCEEDED, why)
        self.flush()
        self.wire.call_at(self.clock.monotonic() + _REFUSED_SECONDS, self.wire.abort)

    def _pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.wire.pause_reading()

    def _read_again(self) -> None:
        if self._is_short_of_memory or self._overrun_bytes:
            return
        if self._is_paused and self._waiting_bytes <= MAX_WAITING_BYTES // 2:
            self._is_paused = False
            self.wire.resume_reading()

    # --- signals

    def _take(self, signals: Iterable[Signal]) -> None:
        for signal in signals:
            handle = _HANDLERS.get(type(signal))
            if handle is not None:
                handle(self, signal)

    def _credentials_offered(self, offer: CredentialsOffered) -> None:
        if self.engine.phase is not Phase.AUTHENTICATION:
            return  # too much came behind the credentials, and the connection is closing
        try:
            self._principal = self._sign_in(offer)
        except Refusal as refusal:
            log.info("sign-in from %s is refused: %s", self.wire.peer, refusal)
            self.engine.refuse_credentials()
        else:
            self._take(self.engine.accept_credentials(self.clock.monotonic()))

    def _sign_in(self, offer: CredentialsOffered) -> Principal | None:
        broker = self._endpoint.shared.broker
        namespace = broker.namespace_for_host(offer.hostname)
        require_address(namespace.entity, self.wire.peer)
        if offer.mechanism == PLAIN:
            return broker.access.by_key(namespace.entity, offer.user, offer.password)
        if not (self._endpoint.takes_certificates and self.wire.is_secure):
            raise NotSupported("EXTERNAL without a client certificate")
        return None

    def _opened(self, signal: ConnectionOpened) -> None:
        try:
            namespace = self._endpoint.shared.broker.namespace_for_host(signal.open.hostname)
            require_address(namespace.entity, self.wire.peer)
            _require_room(namespace)
        except Refusal as refusal:
            self._close(*self.explain(refusal, ""))
            return
        namespace.counters.connections_opened += 1
        client, software = display_text(signal.open.container_id), _software(signal.open.properties or {})
        self._peer = Peer(self._endpoint.shared, self, namespace, self._proven, client=client, software=software)
        try:
            if self._principal is not None:
                self._peer.grant(self._principal)
        except Refusal as refusal:
            self._close(*self.explain(refusal, ""))
        self._arm()

    def _proven(self) -> None:
        self._is_proven = True
        self.wire.trust_peer()
        self._arm()

    def _begun(self, signal: SessionBegun) -> None:
        self._count_unproven()

    def _attach_requested(self, signal: AttachRequested) -> None:
        self._count_unproven()
        link, peer = signal.link, self._peer
        if peer is None:
            return  # the connection was refused, and is closing
        try:
            peer.attach(link, signal.attach)
        except Refusal as refusal:
            link.refuse(*self.explain(refusal, _entity_named(signal.attach)))

    def _count_unproven(self) -> None:
        if self._is_proven:
            return
        self._unproven += 1
        if self._unproven > MAX_UNPROVEN:
            text = f"A connection without a token has at most {MAX_UNPROVEN} sessions and links."
            self._close(Condition.RESOURCE_LIMIT_EXCEEDED, text)

    def _link_detached(self, signal: LinkDetached) -> None:
        part = _part(signal.link)
        signal.link.context = None
        if part is not None:
            part.closed()

    def _deliveries_received(self, run: DeliveriesReceived) -> None:
        part = _part(run.link)
        # AMQP 1.0, 2.4.6: what was on its way when we closed is read and discarded; its sender is told nothing of it.
        if part is not None and self.engine.phase is Phase.OPENED:
            part.received(run)

    def _delivery_oversized(self, delivery: DeliveryOversized) -> None:
        part = _part(delivery.link)
        if part is not None:
            part.oversized(delivery)

    def _credit_changed(self, signal: CreditChanged) -> None:
        part = _part(signal.link)
        if part is not None:
            part.credit_moved()

    def _window_opened(self, signal: WindowOpened) -> None:
        for link in list(signal.session.links.values()):
            part = _part(link) if link.is_sender else None
            if part is not None:
                part.credit_moved()

    def _failed(self, signal: ConnectionFailed) -> None:
        log.info("a connection from %s is closed: %s", self.wire.peer, signal.violation)

    def _close(self, condition: Condition, description: str) -> None:
        if self.engine.phase is Phase.OPENED:
            self.engine.close(condition, description)

    # --- time

    def _arm(self) -> None:
        """Set the one timer to the earliest moment at which something is due, unless it goes off before that."""
        deadline = self._deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.wire.call_at(deadline, self._tick)

    def _deadline(self) -> float | None:
        due = [self.engine.next_deadline()]
        if not self._is_proven:
            due.append(self._prove_by)
        elif self._peer is not None:
            expiry_s = self._peer.next_expiry_s()
            due.append(None if expiry_s is None else self.clock.monotonic() + max(expiry_s, 0.0))
        return min((moment for moment in due if moment is not None), default=None)

    def _tick(self) -> None:
        self._timer = None
        now = self.clock.monotonic()
        self._take(self.engine.advance(now))
        if not self._is_proven and now >= self._prove_by:
            self._prove_by = float("inf")
            self._close(Condition.CONNECTION_FORCED, "The connection was closed because no token came in time.")
        elif self._peer is not None:
            self._peer.detach_expired()
        self.flush()
        if not self.engine.is_closed:
            self._arm()


def _part(link: Link) -> LinkPart | None:
    """What we keep with a link; none while it was refused or is not ours any more."""
    return cast("LinkPart | None", link.context)


def _entity_named(attach: Attach) -> str:
    """The hub, partition and group that an attach names, for the text of a refusal."""
    end = attach.source if attach.role == ROLE_RECEIVER else attach.target
    if not isinstance(end, Source | Target):
        return ""
    try:
        address = parse_address(end.address)
    except Refusal:
        return ""
    return entity_name(address.hub, address.partition, address.group) if isinstance(address, HubAddress) else ""


def _software(properties: Mapping[Value, Value]) -> str:
    """What a peer says it is made of: the SDKs' user agent where there is one, else product and version."""
    agent = properties.get("user-agent")
    named = [properties[name] for name in ("product", "version") if name in properties]
    return display_text(agent) if agent is not None else display_text(" ".join(map(str, named)))


def _require_room(namespace: LiveNamespace) -> None:
    """Refuse a connection beyond the tier's number."""
    limit = namespace.limits.all_connections(namespace.entity.capacity)
    if limit is not None and namespace.counters.active_connections >= limit:
        namespace.counters.quota_exceeded_errors += 1
        raise LimitReached("connections", limit)


_HANDLERS: Mapping[type[Signal], Callable[[AmqpSession, Any], None]] = {
    CredentialsOffered: AmqpSession._credentials_offered,
    ConnectionOpened: AmqpSession._opened,
    SessionBegun: AmqpSession._begun,
    AttachRequested: AmqpSession._attach_requested,
    CreditChanged: AmqpSession._credit_changed,
    WindowOpened: AmqpSession._window_opened,
    DeliveriesReceived: AmqpSession._deliveries_received,
    DeliveryOversized: AmqpSession._delivery_oversized,
    LinkDetached: AmqpSession._link_detached,
    ConnectionFailed: AmqpSession._failed,
}
