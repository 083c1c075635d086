"""A node's Kafka endpoint on loopback: broker, store and listener in a thread of their own.

A test uses the product's own stack from the socket down; because it runs in a thread, tests can use blocking clients,
and `call` runs a function on its loop.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from hubmere.broker.access.authentication import Access, host_names
from hubmere.broker.broker import Broker
from hubmere.broker.hubs.live import LiveHub
from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.kafka.endpoint import KafkaEndpoint
from hubmere.endpoints.listener import Listener, bind
from hubmere.model.addresses import Addresses, AdvertisedListener
from hubmere.model.clock import Clock, SystemClock
from hubmere.model.entity import AccessRule, Rights
from hubmere.model.names import ROOT_RULE, hub_name, namespace_name, rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec, new_hub, new_namespace, root_rule
from hubmere.model.tier import LimitsBook
from hubmere.store.audit import AuditLog
from hubmere.store.catalog.sqlite import MEMORY, SqliteCatalog
from hubmere.store.catalog.view import Create
from hubmere.store.engine import LogEngine
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from hubmere.store.memory import MemoryEngine
from node_clock import NodeClock
from stalls import watched_loop

T = TypeVar("T")

NAMESPACE = "hubmere"
_START_SECONDS = 240.0
_HOLD_SECONDS = 240.0


class KafkaNode:
    """The Kafka endpoint of a node for the length of a `with` block.

    `hubs` maps names to partition counts or specs. Blocking calls come from the test's thread; the node runs in its
    own.
    """

    # The kind of event loop; the fixture `either_loop` sets it.
    loops: ClassVar[tuple[Callable[[], asyncio.AbstractEventLoop]]] = (asyncio.new_event_loop,)

    def __init__(
        self,
        hubs: dict[str, int | HubSpec] | None = None,
        *,
        book: LimitsBook | None = None,
        capacity: int = 1,
        clock: Clock | None = None,
        data: Path | None = None,
        tls: ssl.SSLContext | None = None,
        handshake_timeout_s: float = 30.0,
        idle_timeout_s: float = 600.0,
        auto_create_hubs: bool = True,
        initial_delay_s: float = 0.0,
        hostnames: tuple[str, ...] = (),
        advertised: tuple[AdvertisedListener, ...] = (),
        rotated_key_grace_s: int = 3600,
        audit: AuditLog | None = None,
    ) -> None:
        self._audit = audit
        self._rotated_key_grace_s = rotated_key_grace_s
        self._hubs = hubs if hubs is not None else {"orders": 2}
        self._book = book or LimitsBook()
        self._capacity = capacity
        self._clock = clock or SystemClock()
        self._data = data
        self._tls = tls
        self._timeouts = (handshake_timeout_s, idle_timeout_s)
        self._auto_create_hubs = auto_create_hubs
        self._initial_delay_s = initial_delay_s
        self._hostnames = hostnames
        self._advertised = advertised
        self._thread = threading.Thread(target=self._run, name="kafka-node", daemon=True)
        self._loop = self.loops[0]()
        if isinstance(self._clock, NodeClock):
            self._clock.drive(self._loop)
        self._stopping = asyncio.Event()
        self._started: Future[None] = Future()
        self.connections = ConnectionLimits(20_000)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(_START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop like a node: disconnect every client, then close the store."""
        if isinstance(self._clock, NodeClock):
            self._clock.resume()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_START_SECONDS)

    def post(self, call: Callable[[], None]) -> None:
        """Call a function on the node's thread, without waiting for it."""
        self._loop.call_soon_threadsafe(call)

    def call(self, work: Callable[[], T]) -> T:
        """Run a function on the node's thread."""
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return result.result(_START_SECONDS)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Block the node's loop: everything that is sent meanwhile has arrived when it continues."""
        is_held, may_go = threading.Event(), threading.Event()

        def hold() -> None:
            is_held.set()
            may_go.wait(_HOLD_SECONDS)

        self._loop.call_soon_threadsafe(hold)
        assert is_held.wait(_HOLD_SECONDS)
        try:
            yield
        finally:
            may_go.set()

    # --- for clients

    @property
    def key(self) -> str:
        return self.rule(ROOT_RULE).primary_key

    def rule(self, name: str) -> AccessRule:
        namespace = self.broker._namespace(NAMESPACE).entity
        return self.broker.entities.rule(namespace, name)

    def add_rule(self, name: str, *rights: str, hub: str | None = None) -> str:
        """Create a rule on the namespace or on a hub; returns its connection string."""
        parent = self.broker._namespace(NAMESPACE).entity
        scope = None if hub is None else self.hub(hub).entity
        rule = AccessRule(
            namespace=parent.name,
            hub=None if scope is None else scope.name,
            hub_uid=None if scope is None else scope.uid,
            name=rule_name(name),
            rights=Rights.parse(rights),
            primary_key=f"key-of-{name}",
            secondary_key=f"other-key-of-{name}",
        )
        self.call(lambda: self.catalog.apply(Create(rule)))
        return self.connection_string(name, rule.primary_key, hub)

    def connection_string(self, rule: str = ROOT_RULE, key: str | None = None, hub: str | None = None) -> str:
        path = "" if hub is None else f";EntityPath={hub}"
        return f"Endpoint=sb://localhost/;SharedAccessKeyName={rule};SharedAccessKey={key or self.key}{path}"

    def hub(self, name: str = "orders") -> LiveHub:
        return self.broker._namespace(NAMESPACE).hub(name)

    def end_of(self, hub: str = "orders", partition: int = 0) -> int:
        """The end of a partition."""
        return self.call(lambda: self.hub(hub).log(partition).state.committed)

    # --- the node's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        try:
            engine, catalog, listener = await self._start()
        except BaseException as error:
            self._started.set_exception(error)
            raise
        self._started.set_result(None)
        with watched_loop():
            await self._stopping.wait()
            await listener.stop()
        self.endpoint.close()
        engine.close()
        catalog.close()

    async def _start(self) -> tuple[LogEngine, SqliteCatalog, Listener]:
        engine = self._engine(self.post)
        catalog = SqliteCatalog.open(MEMORY if self._data is None else self._data / "catalog.sqlite3", self.post)
        self.catalog = catalog
        self._fill(catalog)
        names = ("localhost", "127.0.0.1", *self._hostnames)
        self.broker = Broker(
            engine=engine,
            catalog=catalog,
            book=self._book,
            access=Access(
                lambda: catalog.view,
                host_names(names, lambda: catalog.view),
                rotated_key_grace_s=self._rotated_key_grace_s,
            ),
            default_namespace=NAMESPACE,
            segment_bytes=16 << 20,
            default_partition_count=2,
            audit=self._audit,
        )
        self.broker.coordinators.initial_delay_s = self._initial_delay_s
        self.broker.revocation.defer = self._loop.call_soon
        self.broker.open(self._clock.monotonic())
        listening, port = bind("kafka", "127.0.0.1", 0)
        self.port = port
        handshake_timeout_s, idle_timeout_s = self._timeouts
        self.endpoint = KafkaEndpoint(
            self.broker,
            self._clock,
            Addresses(
                namespace=NAMESPACE,
                hostnames=self._hostnames,
                advertised=self._advertised,
                kafka=port,
                kafkas=port,
            ),
            idle_timeout_s=idle_timeout_s,
            handshake_timeout_s=handshake_timeout_s,
            auto_create_hubs=self._auto_create_hubs,
        )
        listener = Listener(self.connections)
        is_secure = self._tls is not None
        await listener.serve(listening, lambda: self.endpoint.session(is_secure=is_secure), self._tls, protocol="Kafka")
        return engine, catalog, listener

    def _engine(self, post: Callable[[Callable[[], None]], None]) -> LogEngine:
        if self._data is None:
            return MemoryEngine(post=post)
        return LocalEngine(self._data, files=Files(), post=post, durability="os")

    def _fill(self, catalog: SqliteCatalog) -> None:
        now_ms = self._clock.now_ms()
        if catalog.view.find_namespace(NAMESPACE) is not None:
            return
        tier = self._book.default_tier
        limits = self._book.of(tier)
        wish = NamespaceSpec(capacity=self._capacity)
        parent = new_namespace(namespace_name(NAMESPACE), wish, limits, tier=tier, now_ms=now_ms)
        catalog.apply(Create(parent), Create(root_rule(parent, now_ms=now_ms)))
        for name, wished in self._hubs.items():
            existing = catalog.view.hubs(NAMESPACE)
            spec = wished if isinstance(wished, HubSpec) else HubSpec(partition_count=wished)
            hub, group = new_hub(parent, hub_name(name), spec, limits, existing=existing, now_ms=now_ms)
            catalog.apply(Create(hub), Create(group))
