"""What all Kafka connections of a node share: the broker, the clock, and the handler of each request."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubmere.broker import Broker, ConnectionView, RunCoalescer
from hubmere.endpoints.kafka.groups.replies import GroupReplies
from hubmere.endpoints.kafka.slices import Slices
from hubmere.endpoints.memory import MemoryBudget
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.served_apis import ServedApis

if TYPE_CHECKING:
    from hubmere.endpoints.kafka.fetch.deadlines import SharedDeadlines
    from hubmere.endpoints.kafka.fetch.responses import SharedFrame
    from hubmere.endpoints.kafka.fetch.wake_ups import WakeUps
    from hubmere.endpoints.kafka.forward.port import Coordination
    from hubmere.endpoints.kafka.session import KafkaSession

# The id of the only node that clients see.
NODE_ID = 0

Handler = Callable[["KafkaSession", Request], None]


@dataclass(slots=True, kw_only=True)
class KafkaContext:
    """What all connections of the endpoint share."""

    broker: Broker
    clock: Clock
    addresses: Addresses
    memory: MemoryBudget
    served: ServedApis
    handlers: Mapping[int, Handler]
    sign_in_handlers: Mapping[int, Handler]  # the requests that are served before sign-in
    connection_view: Callable[["KafkaSession", int, int], ConnectionView]
    idle_timeout_s: float
    handshake_timeout_s: float
    auto_create_hubs: bool
    slices: Slices
    group_replies: GroupReplies
    run_coalescer: RunCoalescer
    fetch_deadlines: "SharedDeadlines"
    fetch_wake_ups: "WakeUps"
    # Serves requests for groups, offsets and positions on a cluster; None if this node serves them itself.
    coordination: "Coordination | None"
    start_task: Callable[[Coroutine[None, None, None]], None]
    # The last response to a reader at the end of a partition, which the next reader gets too.
    tail_response: "SharedFrame | None" = None
    watch_deadlines: Callable[[], None]  # called after anything that may have set a deadline of a coordinator
