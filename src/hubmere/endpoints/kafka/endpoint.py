"""The Kafka endpoint of a node: the table of handlers, which is the list of served APIs, and the connections' sessions.

APIs without a handler in the table are not advertised. A timer fires at the next deadline of the coordinators:
sessions, rebalances, transactions.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Final

from hubmere.broker import Broker, ConsumerGroupConfig
from hubmere.endpoints.kafka import positions, sasl, transactions
from hubmere.endpoints.kafka.admin import config_requests, inspection, metadata
from hubmere.endpoints.kafka.admin import topics as admin
from hubmere.endpoints.kafka.admin.served_versions import served_versions
from hubmere.endpoints.kafka.bounds import with_bounds
from hubmere.endpoints.kafka.context import Handler, KafkaContext
from hubmere.endpoints.kafka.fetch import fetch
from hubmere.endpoints.kafka.fetch.deadlines import SharedDeadlines
from hubmere.endpoints.kafka.fetch.wake_ups import WakeUps
from hubmere.endpoints.kafka.groups import classic as groups
from hubmere.endpoints.kafka.groups import consumer as kafka_consumer_groups
from hubmere.endpoints.kafka.groups import offsets
from hubmere.endpoints.kafka.groups.embedded import ConsumerEmbedded
from hubmere.endpoints.kafka.groups.replies import GroupReplies
from hubmere.endpoints.kafka.monitoring import connection_view
from hubmere.endpoints.kafka.produce import produce
from hubmere.endpoints.kafka.produce.gathered import build_run_coalescer
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import Slices
from hubmere.endpoints.memory import MemoryBudget
from hubmere.endpoints.stream import Timer
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.wire.kafka.messages.metadata import API_VERSIONS
from hubmere.wire.kafka.messages.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from hubmere.wire.kafka.served_apis import ServedApis

if TYPE_CHECKING:
    from hubmere.endpoints.kafka.forward.port import Coordination

log = logging.getLogger("hubmere.kafka")

_SASL: Final[Mapping[int, Handler]] = {
    SASL_HANDSHAKE.key: sasl.handshake,
    SASL_AUTHENTICATE.key: sasl.authenticate,
}
_HANDLERS: Final[Mapping[int, Handler]] = {
    **produce.HANDLERS,
    **fetch.HANDLERS,
    **positions.HANDLERS,
    **metadata.HANDLERS,
    **groups.HANDLERS,
    **kafka_consumer_groups.HANDLERS,
    **offsets.HANDLERS,
    **transactions.HANDLERS,
    **admin.HANDLERS,
    **config_requests.HANDLERS,
    **inspection.HANDLERS,
}
_KEYS: Final = (API_VERSIONS.key, *_SASL, *_HANDLERS)
_SIGN_IN_HANDLERS: Final[Mapping[int, Handler]] = {**_SASL, API_VERSIONS.key: metadata.api_versions(_KEYS)}
HANDLERS: Final[Mapping[int, Handler]] = with_bounds({**_SIGN_IN_HANDLERS, **_HANDLERS})


def gateway_handlers(transaction_version: int) -> tuple[Mapping[int, Handler], Mapping[int, Handler]]:
    """The handlers of a gateway, for all requests and for those before sign-in."""
    # A node with its own storage does not need them.
    from hubmere.endpoints.kafka.forward import consumer_groups, handlers, log_dirs
    from hubmere.endpoints.kafka.forward import transactions as forwarded_transactions

    served = {
        **_HANDLERS,
        **handlers.HANDLERS,
        **consumer_groups.HANDLERS,
        **forwarded_transactions.HANDLERS,
        **log_dirs.HANDLERS,
    }
    keys = (API_VERSIONS.key, *_SASL, *served)
    sign_in = {**_SASL, API_VERSIONS.key: metadata.api_versions(keys, transaction_version)}
    return with_bounds({**sign_in, **served}), sign_in


class KafkaEndpoint:
    """Creates the session of each connection. Thread rule: the loop's thread only; created while the loop runs."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        addresses: Addresses,
        *,
        idle_timeout_s: float,
        handshake_timeout_s: float,
        auto_create_hubs: bool,
        consumer_groups: ConsumerGroupConfig | None = None,
        memory: MemoryBudget | None = None,
        coordination: "Coordination | None" = None,
    ) -> None:
        """`coordination` is given to a gateway, which passes groups and positions on."""
        version = 0 if coordination is None else coordination.transaction_version
        own = (HANDLERS, _SIGN_IN_HANDLERS)
        handlers, sign_in_handlers = own if coordination is None else gateway_handlers(version)
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock = clock
        self._coordinators = broker.coordinators
        self._loop = asyncio.get_running_loop()
        # The deadline is stored here because uvloop's handle of a call that is already due has no `when()`.
        self._timer: Timer | None = None
        self._timer_deadline = 0.0
        self._context = KafkaContext(
            broker=broker,
            clock=clock,
            addresses=addresses,
            memory=memory or MemoryBudget(),
            served=ServedApis(served_versions(handlers, version)),
            handlers=handlers,
            sign_in_handlers=sign_in_handlers,
            coordination=coordination,
            start_task=self._start_task,
            connection_view=connection_view,
            idle_timeout_s=idle_timeout_s,
            handshake_timeout_s=handshake_timeout_s,
            auto_create_hubs=auto_create_hubs,
            slices=Slices(),
            group_replies=GroupReplies(self._loop.call_soon),
            fetch_deadlines=SharedDeadlines(self._loop.call_at, self._loop.call_soon),
            fetch_wake_ups=WakeUps(self._loop.call_soon),
            run_coalescer=build_run_coalescer(clock, self._loop.call_soon),
            watch_deadlines=self._watch_deadlines,
        )
        self._coordinators.embedded = ConsumerEmbedded()
        self._coordinators.consumer_groups = consumer_groups or ConsumerGroupConfig()
        self._coordinators.open(clock.monotonic(), clock.now_ms())
        self._watch_deadlines()

    def session(self, *, is_secure: bool) -> KafkaSession:
        """A session for a new connection."""
        return KafkaSession(self._context, is_secure=is_secure)

    def close(self) -> None:
        """Stop the timer; the coordinators' state is in the catalog."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._tasks:
            task.cancel()

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a forwarded request failed", exc_info=error)

    def _watch_deadlines(self) -> None:
        """Set the timer to the next deadline, unless it fires before that."""
        deadline = self._coordinators.next_deadline()
        if deadline is None or (self._timer is not None and self._timer_deadline <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_deadline = self._loop.call_at(deadline, self._advance), deadline

    def _advance(self) -> None:
        self._timer = None
        try:
            self._coordinators.advance(self._clock.monotonic(), self._clock.now_ms())
        except Exception:  # the top of a task: one group's fault must not stop the others' time
            log.exception("a deadline of a coordinator failed")
        self._watch_deadlines()
