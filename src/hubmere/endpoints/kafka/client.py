"""The client of one Kafka connection: its caller, the listener it connected to, and the time of its current turn.

The part of a session that handlers query; `session` has the part that reads, writes and keeps the order.
"""

import logging

from hubmere.broker import Actor, Caller, Coordinator, NamespaceView, Principal
from hubmere.endpoints.kafka.context import KafkaContext
from hubmere.endpoints.refusal_log import CLOSED, REFUSALS
from hubmere.endpoints.stream import Wire
from hubmere.model.errors import Refusal

log = logging.getLogger("hubmere.kafka")


class SessionClient:
    """What a session knows of its client. Thread rule: the loop's thread only."""

    __slots__ = ("_caller", "_wire", "context", "host", "is_secure", "now", "now_ms")

    def __init__(self, context: KafkaContext, *, is_secure: bool) -> None:
        self.context = context
        self.is_secure = is_secure
        # The name under which the client finds the node.
        self.host = context.addresses.host
        # The time of the current turn: monotonic seconds, and milliseconds of the wall clock.
        self.now = 0.0
        self.now_ms = 0
        self._caller: Caller | None = None
        self._wire: Wire | None = None

    @property
    def wire(self) -> Wire:
        """The transport."""
        assert self._wire is not None
        return self._wire

    @property
    def caller(self) -> Caller:
        """The client, which has signed in."""
        assert self._caller is not None
        return self._caller

    @property
    def namespace(self) -> NamespaceView:
        """The namespace that the client has signed in to."""
        return self.caller.namespace

    @property
    def principal(self) -> Principal:
        """What the client has proved."""
        return self.caller.principal

    @property
    def is_signed_in(self) -> bool:
        """Whether the client has authenticated."""
        return self._caller is not None

    @property
    def now_s(self) -> float:
        """The wall-clock time of this turn in seconds, by which credentials expire."""
        return self.now_ms / 1000

    @property
    def port(self) -> int:
        """The port that is advertised together with `host`."""
        return self.context.addresses.port_of(self.listener, self.host) or 0

    @property
    def listener(self) -> str:
        """The listener that the client connected to: with TLS or without."""
        return "kafkas" if self.is_secure else "kafka"

    @property
    def coordinator(self) -> Coordinator:
        """Groups, offsets and transactions of the client's namespace."""
        return self.caller.coordinator(self.now, self.now_ms)

    def log_refusal(self, what: str, refusal: Refusal, hub: str) -> None:
        """Log that a request of this client was refused; repeats are limited."""
        REFUSALS.write(log, what, refusal, namespace=self.namespace.name, hub=hub, peer=self.wire.peer)

    def actor(self) -> Actor:
        """Who changes entities, for the audit log; Kafka responses cannot carry a tracking id."""
        return Actor(name=f"kafka:{self.principal.rule}", now_ms=self.now_ms, now=self.now, peer=self.wire.peer)


def log_closed(peer: str, why: str) -> None:
    """Log that the node closes a client's connection, unless this client's were closed too often."""
    REFUSALS.write_connection(log, CLOSED, peer, why)
