"""What all AMQP connections of a node share."""

from dataclasses import dataclass

from hubmere.broker import Broker, Coalescer
from hubmere.endpoints.amqp.errors import RecentlyBusy
from hubmere.endpoints.amqp.links.deliveries import Deliveries
from hubmere.endpoints.amqp.links.idempotence import Producers
from hubmere.endpoints.amqp.links.read_link import RetainedBytes
from hubmere.endpoints.memory import MemoryBudget
from hubmere.model.clock import Clock
from hubmere.wire.amqp import EngineOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpContext:
    """The broker, the clock, shared caches and limits.

    With `requires_certificates` TLS listeners accept only clients that have a certificate. That is what the SASL
    mechanism EXTERNAL proves.
    """

    broker: Broker
    clock: Clock
    memory: MemoryBudget
    coalescer: Coalescer
    options: EngineOptions
    deliveries: Deliveries
    retained: RetainedBytes
    producers: Producers
    busy: RecentlyBusy
    max_message_bytes: int
    handshake_timeout_s: float
    token_grace_s: float
    requires_certificates: bool
