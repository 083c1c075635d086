"""The AMQP endpoint of a node: makes the session of each connection."""

from hubmere.broker import Broker, Coalescer
from hubmere.endpoints.amqp.connection import AmqpConnection
from hubmere.endpoints.amqp.context import AmqpContext
from hubmere.endpoints.amqp.errors import RecentlyBusy
from hubmere.endpoints.amqp.links.deliveries import Deliveries
from hubmere.endpoints.amqp.links.idempotence import Producers
from hubmere.endpoints.amqp.links.read_link import RetainedBytes
from hubmere.endpoints.coalescing import build_coalescer
from hubmere.endpoints.memory import MemoryBudget
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.wire.amqp import EngineOptions

# Links of one connection: a reader and a publisher for each partition of the largest hub, and some more.
MAX_LINKS = 4096
# The largest message of any tier, announced where a tier has no limit.
MAX_MESSAGE_BYTES = 20 << 20
# Batches that links may keep between two turns, over all connections.
MAX_RETAINED_BYTES = 64 << 20
# Busy clients renew their tokens late, and clocks differ: a link outlives its token by this much.
TOKEN_GRACE_S = 60.0


class AmqpEndpoint:
    """AMQP for a node. Thread rule: the loop's thread only.

    `takes_certificates` says that TLS listeners accept only clients with a certificate, which is what the SASL
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
        memory = memory or MemoryBudget()
        self.context = AmqpContext(
            broker=broker,
            clock=clock,
            memory=memory,
            coalescer=coalescer or build_coalescer(clock),
            options=EngineOptions(
                container_id=f"{addresses.namespace}_G1",
                idle_timeout_ms=int(idle_timeout_s * 1000),
                handshake_seconds=handshake_timeout_s,
                max_links=MAX_LINKS,
                max_message_bytes=MAX_MESSAGE_BYTES,
            ),
            deliveries=Deliveries(),
            retained=RetainedBytes(min(MAX_RETAINED_BYTES, memory.limit_bytes // 8)),
            producers=Producers(),
            busy=RecentlyBusy(),
            max_message_bytes=MAX_MESSAGE_BYTES,
            handshake_timeout_s=handshake_timeout_s,
            token_grace_s=token_grace_s,
            requires_certificates=takes_certificates,
        )

    def session(self, protocol: str = "AMQP") -> AmqpConnection:
        """The session of one new connection; `protocol` is its name in monitoring."""
        return AmqpConnection(self.context, protocol)

    def close(self) -> None:
        """Every connection is closed: stop the thread that opens large batches."""
        self.context.deliveries.close()
