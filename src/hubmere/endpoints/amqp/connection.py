"""One AMQP connection: the engine's signals become calls of the broker and of link handlers.

Decides which namespace a connection belongs to, when a peer that proves no right is disconnected, and when bytes are
written. The engine implements the protocol, `links` decides about attaches, and the handler in `link.context` does the
work of each link. A refusal ends at most the link that it concerns. A peer loses its connection only if it violates the
protocol or may not connect at all.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from hubmere.broker import (
    MAX_LINK_VIEWS,
    Caller,
    ConnectionView,
    Judge,
    LogOpening,
    Principal,
    SharedKey,
    display_text,
)
from hubmere.endpoints.amqp.backpressure import Backpressure
from hubmere.endpoints.amqp.context import AmqpContext
from hubmere.endpoints.amqp.errors import row_of, with_tracking
from hubmere.endpoints.amqp.links.connection_links import Links
from hubmere.endpoints.amqp.links.link_handler import LinkHandler
from hubmere.endpoints.amqp.links.waiting_attach import WaitingAttach
from hubmere.endpoints.amqp.peer import entity_of, software_of
from hubmere.endpoints.amqp.proof import MAX_UNPROVEN, Proof
from hubmere.endpoints.memory import UNCOUNTED_BYTES
from hubmere.endpoints.refusal_log import CLOSED, REFUSALS
from hubmere.endpoints.stream import SCRATCH, Timer, Wire
from hubmere.model.clock import Clock
from hubmere.model.errors import AddressNotAllowed, NotSupported, Refusal, ShuttingDown
from hubmere.wire.amqp import Condition, Connection, Link, Phase, Role
from hubmere.wire.amqp.codec.performatives import ACCEPTED, Attach
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

# Larger reads do not use the fast path for a single event: its extra copy would cost as much as it saves.
MAX_SINGLE_BYTES = 4096
# Reads of this size may hold several frames of one large delivery.
MIN_PIECES_BYTES = 32 * 1024
# How long a peer that is disconnected for the node's memory has to answer the close.
_REFUSED_SECONDS = 1.0


class AmqpConnection:
    """One connection (`stream.StreamSession`, `broker.LiveConnection`, `link_handler.LinkHost`).

    Thread rule: the loop's thread only.
    """

    __slots__ = (
        "_backpressure",
        "_caller",
        "_client",
        "_context",
        "_engine",
        "_is_flush_scheduled",
        "_is_stopping",
        "_links",
        "_principal",
        "_proof",
        "_protocol",
        "_software",
        "_timer",
        "_timer_at",
        "_wire",
    )

    def __init__(self, context: AmqpContext, protocol: str = "AMQP") -> None:
        self._context = context
        self._protocol = protocol
        self._engine: Connection | None = None
        self._wire: Wire | None = None
        self._backpressure: Backpressure | None = None
        # Set while the connection is open.
        self._caller: Caller | None = None
        self._links: Links | None = None
        # What SASL PLAIN proved, before the peer has opened the connection.
        self._principal: Principal | None = None
        # What the peer says about itself, for monitoring.
        self._client = ""
        self._software = ""
        self._proof = Proof()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._is_flush_scheduled = False
        self._is_stopping = False

    # --- callbacks of the stream

    def on_connected(self, wire: Wire) -> None:
        """A client has connected: it has some time to prove who it is."""
        now = self.clock.monotonic()
        self._wire = wire
        self._engine = Connection(Role.SERVER, self._context.options, now)
        self._backpressure = Backpressure(
            wire, self._engine, self._context.memory, flush=self.flush, on_memory_refused=self._on_memory_refused
        )
        self._proof.require_by(now + self._context.handshake_timeout_s)
        self._context.broker.connections.add(self, self.clock.now_ms())
        self._set_timer()

    @property
    def can_wait(self) -> bool:
        """Whether the peer has proved no right yet."""
        return not self._proof.is_given

    def get_buffer(self) -> memoryview:
        """Buffer for the next read: frames are parsed as they arrive, so none needs a buffer of its own."""
        return self.backpressure.read_buffer

    def buffer_updated(self, count: int) -> None:
        """The next `count` bytes from the client are in the shared buffer."""
        taken = 0
        if count >= MIN_PIECES_BYTES:
            taken, signals = self.engine.receive_pieces(SCRATCH[:count], self.clock.monotonic())
            self._handle(signals)
        self.on_data(bytes(SCRATCH[taken:count]))

    def _receive_single(self, data: bytes) -> bool:
        """Handle a read that is one event like the last one; False, and nothing has changed, if it is anything else."""
        engine = self.engine
        single = engine.receive_single(data, self._context.clock.monotonic())
        if single is None:
            return False
        shape, delivery_id, payload = single
        handler = _handler_of(shape.link)
        if shape.settled or handler is None or not handler.on_single(delivery_id, payload, shape.message_format):
            self._on_deliveries(
                DeliveriesReceived(shape.link, shape.message_format, shape.settled, [delivery_id], [payload])
            )
        if not engine.outbox.is_empty:
            self.flush()
        return True

    def on_data(self, data: bytes) -> None:
        """Bytes from the client."""
        if len(data) <= MAX_SINGLE_BYTES and self._receive_single(data):
            return
        self._handle(self.engine.receive_data(data, self.clock.monotonic()))
        self.flush()
        self.backpressure.on_read()

    def on_writable(self) -> None:
        """The socket accepts more again."""
        self.backpressure.on_writable()

    def on_lost(self) -> None:
        """The connection is gone: release everything that it held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.backpressure.close()
        self._context.broker.connections.remove(self)
        self._handle(self.engine.on_connection_lost())
        self._links = None
        if self._caller is not None:
            self._caller.close_connection()
            self._caller = None

    def stop(self) -> None:
        """The node is stopping: detach links once their deliveries are settled, then close the connection."""
        self._is_stopping = True
        if self._links is not None:
            self._links.evict_all(ShuttingDown())
        self._close_when_settled()

    def _close_when_settled(self) -> None:
        if self.backpressure.waiting_bytes:
            return
        if self.engine.phase is Phase.OPENED:
            self._close(Condition.CONNECTION_FORCED, ShuttingDown().text())
            self.flush()
        elif self.engine.phase is not Phase.CLOSING:
            self.wire.close()

    # --- monitoring and revocation: `broker.LiveConnection`

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        """Snapshot of this connection for monitoring."""
        caller, links = self._caller, self._links
        return ConnectionView(
            number=number,
            protocol=self._protocol,
            client=self._client,
            software=self._software,
            rule="" if caller is None else ", ".join(caller.claims.rules),
            peer=self.wire.peer,
            namespace="" if caller is None else caller.namespace_key,
            is_secure=self.wire.is_secure,
            opened_ms=opened_ms,
            idle_s=max(self.clock.monotonic() - self.engine.last_received, 0.0),
            links=() if links is None else tuple(islice(links.views(), MAX_LINK_VIEWS)),
        )

    def callers(self) -> Iterable[Principal]:
        """The principals whose claims it holds."""
        return () if self._caller is None else self._caller.claims

    def disconnect(self, why: str) -> None:
        """Close the connection, with the reason if it is open already."""
        if self.engine.phase is not Phase.OPENED:
            self.wire.close()
            return
        self._close(Condition.CONNECTION_FORCED, why)
        self.flush()
        # A peer that never answers the close must not stay.
        self._set_timer()

    def review(self, judge: Judge) -> None:
        """Detach links that the rules in force do not allow; disconnect a peer that may not connect any more.

        A peer that has no claim left, but can put a new token, has as long for that as a new connection.
        """
        caller, links = self._caller, self._links
        if caller is None or links is None or self.engine.phase is not Phase.OPENED:
            return  # judged when it opens
        if not caller.has_allowed_address:
            self.disconnect(AddressNotAllowed().text())
            return
        why = links.review(judge)
        if why is None:
            self.flush_soon()
            self._set_timer()
            return
        log.info("the credential of a connection from %s is revoked: %s", self.wire.peer, why)
        if self._principal is not None:
            self.disconnect(why.text())
            return
        self._proof.require_by(self.clock.monotonic() + self._context.handshake_timeout_s)
        self.flush_soon()
        self._set_timer()

    # --- what links use (link_handler.LinkHost)

    @property
    def clock(self) -> Clock:
        """The node's clock."""
        return self._context.clock

    @property
    def wire(self) -> Wire:
        """The connection's transport."""
        assert self._wire is not None
        return self._wire

    @property
    def engine(self) -> Connection:
        """The protocol engine."""
        assert self._engine is not None
        return self._engine

    @property
    def backpressure(self) -> Backpressure:
        """Whether the connection is read, and whether links may write."""
        assert self._backpressure is not None
        return self._backpressure

    def flush(self) -> None:
        """Write what the engine has queued."""
        data = self.engine.data_to_send()
        if data:
            self.wire.write(data)
            self.backpressure.on_written(len(data))
        if self.engine.is_closed:
            self.wire.close()

    def flush_soon(self) -> None:
        """Write at the end of this turn, so that many settlements share one write."""
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self.wire.call_soon(self._flush_scheduled)

    def accept_at_once(self, link: Link, delivery_id: int) -> None:
        """Settle a delivery as accepted: the only one of the connection, so that no other could share the write."""
        data = None if self._is_stopping else link.session.accept_at_once(delivery_id)
        if data is None:
            link.settle(delivery_id, state=ACCEPTED)
            self.flush_soon()
            return
        wire = self.wire
        wire.write(data)
        if not wire.is_writable:
            self.backpressure.on_written(len(data))

    def _flush_scheduled(self) -> None:
        self._is_flush_scheduled = False
        if self._is_stopping:
            self._close_when_settled()
        self.flush()

    def explain(self, refusal: Refusal, entity: str) -> tuple[Condition, str]:
        """Condition and description of a refusal."""
        namespace = "" if self._caller is None else self._caller.namespace.name
        REFUSALS.write(log, "an AMQP request", refusal, namespace=namespace, hub=entity, peer=self.wire.peer)
        return row_of(refusal).condition, with_tracking(refusal.text(), namespace, entity, self.clock.now_ms())

    def links(self) -> Iterator[Link]:
        """Every link of the connection."""
        return self.engine.links()

    # --- signals of the engine

    def _handle(self, signals: Iterable[Signal]) -> None:
        for signal in signals:
            handle = _HANDLERS.get(type(signal))
            if handle is not None:
                handle(self, signal)

    def _on_credentials(self, offer: CredentialsOffered) -> None:
        if self.engine.phase is not Phase.AUTHENTICATION:
            return  # too many bytes followed the credentials, and the connection is closing
        try:
            self._principal = self._authenticate(offer)
        except Refusal as refusal:
            REFUSALS.write_connection(log, "sign-in from %s is refused: %s", self.wire.peer, refusal)
            self.engine.refuse_credentials()
        else:
            self._handle(self.engine.accept_credentials(self.clock.monotonic()))

    def _authenticate(self, offer: CredentialsOffered) -> Principal | None:
        caller = self._context.broker.connect(offer.hostname, self.wire.peer)
        if offer.mechanism == PLAIN:
            return caller.authenticate(SharedKey(offer.user, offer.password), self._now_s)
        if not (self._context.requires_certificates and self.wire.is_secure):
            raise NotSupported("EXTERNAL without a client certificate")
        return None

    def _on_opened(self, signal: ConnectionOpened) -> None:
        try:
            caller = self._context.broker.connect(signal.open.hostname, self.wire.peer)
            caller.open_connection()
            self._caller = caller
            self._links = Links(self._context, self, caller, self._on_authorized)
            self._client = display_text(signal.open.container_id)
            self._software = software_of(signal.open.properties or {})
            if self._principal is not None:
                caller.add_claim(self._principal, self._now_s)
                self._on_authorized()
        except Refusal as refusal:
            self._close(*self.explain(refusal, ""))
        self._set_timer()

    def _on_authorized(self) -> None:
        if self._caller is None:
            return  # the connection was lost while keys were fetched
        self._proof.give()
        self.wire.trust_peer()
        self._set_timer()

    def _on_session_begun(self, signal: SessionBegun) -> None:
        self._count_unproven()

    def _on_attach(self, signal: AttachRequested) -> None:
        self._count_unproven()
        WaitingAttach(self, signal.link, signal.attach).run()

    def attach(self, link: Link, attach: Attach) -> None:
        """Answer an attach; raises LogOpening, and has done nothing, if it needs a log that is being opened."""
        if self._links is None:
            return  # the connection was refused, and is closing
        try:
            self._links.attach(link, attach)
        except LogOpening:
            raise
        except Refusal as refusal:
            self.refuse(link, attach, refusal)

    def refuse(self, link: Link, attach: Attach, refusal: Refusal) -> None:
        """Answer an attach with a refusal."""
        link.refuse(*self.explain(refusal, entity_of(attach)))

    def _count_unproven(self) -> None:
        if not self._proof.allows_another():
            text = f"A connection without a token has at most {MAX_UNPROVEN} sessions and links."
            self._close(Condition.RESOURCE_LIMIT_EXCEEDED, text)

    def _on_detached(self, signal: LinkDetached) -> None:
        handler = _handler_of(signal.link)
        signal.link.context = None
        if handler is not None:
            handler.on_detached()

    def _on_deliveries(self, run: DeliveriesReceived) -> None:
        handler = _handler_of(run.link)
        # AMQP 1.0, 2.4.6: deliveries that arrive after our close are read and discarded without an outcome.
        if handler is not None and self.engine.phase is Phase.OPENED:
            handler.on_deliveries(run)

    def _on_oversized(self, delivery: DeliveryOversized) -> None:
        handler = _handler_of(delivery.link)
        if handler is not None:
            handler.on_oversized(delivery)

    def _on_credit(self, signal: CreditChanged) -> None:
        handler = _handler_of(signal.link)
        if handler is not None:
            handler.on_flow()

    def _on_window(self, signal: WindowOpened) -> None:
        for link in list(signal.session.links.values()):
            handler = _handler_of(link) if link.is_sender else None
            if handler is not None:
                handler.on_flow()

    def _on_failed(self, signal: ConnectionFailed) -> None:
        REFUSALS.write_connection(log, CLOSED, self.wire.peer, signal.violation)

    def _on_memory_refused(self, why: str) -> None:
        """Close the connection with the reason, unless its peer does not read."""
        REFUSALS.write_connection(log, CLOSED, self.wire.peer, why)
        if self.engine.phase is not Phase.OPENED or self.wire.unsent_bytes > UNCOUNTED_BYTES:
            self.wire.abort()
            return
        self._close(Condition.RESOURCE_LIMIT_EXCEEDED, why)
        self.flush()
        self.wire.call_at(self.clock.monotonic() + _REFUSED_SECONDS, self.wire.abort)

    def _close(self, condition: Condition, description: str) -> None:
        if self.engine.phase is Phase.OPENED:
            self.engine.close(condition, description)

    # --- time

    @property
    def _now_s(self) -> float:
        return self.clock.now_ms() / 1000

    def _set_timer(self) -> None:
        """Set the one timer to the next deadline, unless it fires before that anyway."""
        deadline = self._next_deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.wire.call_at(deadline, self._on_timer)

    def _next_deadline(self) -> float | None:
        due = [self.engine.next_deadline()]
        if not self._proof.is_given:
            due.append(self._proof.deadline)
        elif self._links is not None:
            expiry_s = self._links.next_expiry_s()
            due.append(None if expiry_s is None else self.clock.monotonic() + max(expiry_s, 0.0))
        return min((moment for moment in due if moment is not None), default=None)

    def _on_timer(self) -> None:
        self._timer = None
        now = self.clock.monotonic()
        self._handle(self.engine.advance(now))
        if self._proof.expire(now):
            self._close(Condition.CONNECTION_FORCED, "The connection was closed because no token came in time.")
        elif self._links is not None:
            self._links.detach_expired()
        self.flush()
        if not self.engine.is_closed:
            self._set_timer()


def _handler_of(link: Link) -> LinkHandler | None:
    """The handler of a link; None if the link was refused or is gone."""
    return cast("LinkHandler | None", link.context)


_HANDLERS: Mapping[type[Signal], Callable[[AmqpConnection, Any], None]] = {
    CredentialsOffered: AmqpConnection._on_credentials,
    ConnectionOpened: AmqpConnection._on_opened,
    SessionBegun: AmqpConnection._on_session_begun,
    AttachRequested: AmqpConnection._on_attach,
    CreditChanged: AmqpConnection._on_credit,
    WindowOpened: AmqpConnection._on_window,
    DeliveriesReceived: AmqpConnection._on_deliveries,
    DeliveryOversized: AmqpConnection._on_oversized,
    LinkDetached: AmqpConnection._on_detached,
    ConnectionFailed: AmqpConnection._on_failed,
}
