"""A node's AMQP endpoint on loopback: broker, store in memory and listener in a thread of their own.

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
from typing import Self, TypeVar

from hubmere.broker.access.authentication import Access, host_names
from hubmere.broker.broker import Broker
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.management.manager import Actor, Manager, OnDone
from hubmere.endpoints.amqp.endpoint import AmqpEndpoint
from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.listener import Listener, bind
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock, SystemClock
from hubmere.model.entity import AccessRule, Rights
from hubmere.model.errors import Refusal
from hubmere.model.names import ROOT_RULE, group_name, hub_name, namespace_name, rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec, new_group, new_hub, new_namespace, root_rule
from hubmere.model.tier import LimitsBook
from hubmere.store.catalog.sqlite import MEMORY, SqliteCatalog
from hubmere.store.catalog.view import Create
from hubmere.store.engine import LogEngine
from hubmere.store.local import LocalEngine
from hubmere.store.log.commit import Post
from hubmere.store.memory import MemoryEngine
from node_clock import NodeClock
from stalls import watched_loop

T = TypeVar("T")

NAMESPACE = "hubmere"
_START_SECONDS = 240.0
_HOLD_SECONDS = 240.0


class AmqpNode:
    """The AMQP endpoint of a node for the length of a `with` block.

    `hubs` maps names to partition counts. Every hub has the consumer groups `$Default` and `second`. Blocking calls
    come from the test's thread; everything of the node happens on its own.
    """

    def __init__(
        self,
        hubs: dict[str, int] | None = None,
        *,
        book: LimitsBook | None = None,
        clock: Clock | None = None,
        data: Path | None = None,
        tls: ssl.SSLContext | None = None,
        handshake_timeout_s: float = 30.0,
        idle_timeout_s: float = 120.0,
        token_grace_s: float = 60.0,
        takes_certificates: bool = False,
        port: int = 0,
        rotated_key_grace_s: int = 3600,
    ) -> None:
        self._rotated_key_grace_s = rotated_key_grace_s
        self._hubs = hubs if hubs is not None else {"orders": 2}
        self._book = book or LimitsBook()
        self._clock = clock or SystemClock()
        self._data = data
        self._tls = tls
        self._takes_certificates = takes_certificates
        self._timeouts = (handshake_timeout_s, idle_timeout_s, token_grace_s)
        self._thread = threading.Thread(target=self._run, name="amqp-node", daemon=True)
        self._loop = asyncio.new_event_loop()
        if isinstance(self._clock, NodeClock):
            self._clock.drive(self._loop)
        self._stopping = asyncio.Event()
        self._started: Future[None] = Future()
        self.connections = ConnectionLimits(20_000)
        self.port = port

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(_START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop like a node: close every connection, then the store."""
        if isinstance(self._clock, NodeClock):
            self._clock.resume()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_START_SECONDS)

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

    # --- for clients

    @property
    def host(self) -> str:
        return "localhost"

    @property
    def key(self) -> str:
        return self.rule(ROOT_RULE).primary_key

    def rule(self, name: str) -> AccessRule:
        namespace = self.broker._namespace(NAMESPACE).entity
        return self.broker.entities.rule(namespace, name)

    def manage(self, work: Callable[[Manager, Actor, OnDone], object]) -> None:
        """Make a change with the manager, and wait until it is durable."""
        finished: Future[None] = Future()

        def done(refusal: Refusal | None) -> None:
            finished.set_result(None) if refusal is None else finished.set_exception(refusal)

        actor = Actor(name="test", now_ms=self._clock.now_ms(), now=self._clock.monotonic())
        self.call(lambda: work(self.broker.manager, actor, done))
        finished.result(_START_SECONDS)

    def add_rule(self, name: str, *rights: str) -> str:
        """Create a rule on the namespace; returns its connection string for clients in emulator mode."""
        wanted = Rights.parse(rights)
        self.manage(
            lambda manager, actor, done: manager.write_rule(NAMESPACE, None, rule_name(name), wanted, actor, done)
        )
        return self.connection_string(name, self.rule(name).primary_key)

    def add_hub(self, name: str, partitions: int) -> None:
        """Create a hub while the node runs."""
        spec = HubSpec(partition_count=partitions)
        self.manage(lambda manager, actor, done: manager.create_hub(NAMESPACE, hub_name(name), spec, actor, done))
        group = group_name("second")
        self.manage(lambda manager, actor, done: manager.create_group(NAMESPACE, name, group, "", actor, done))

    def connection_string(self, rule: str = ROOT_RULE, key: str | None = None) -> str:
        """For clients in emulator mode."""
        return (
            f"Endpoint=sb://{self.host}:{self.port};SharedAccessKeyName={rule};"
            f"SharedAccessKey={key or self.key};UseDevelopmentEmulator=true;"
        )

    def hub(self, name: str = "orders") -> LiveHub:
        return self.broker._namespace(NAMESPACE).hub(name)

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
        engine.close()
        catalog.close()

    async def _start(self) -> tuple[LogEngine, SqliteCatalog, Listener]:
        def post(call: Callable[[], None]) -> None:
            self._loop.call_soon_threadsafe(call)

        def defer(call: Callable[[], None]) -> None:
            self._loop.call_soon(call)

        engine = self._engine(post, defer)
        catalog = SqliteCatalog.open(MEMORY if self._data is None else self._data / "catalog.sqlite3", post)
        self._fill(catalog)
        access = Access(
            lambda: catalog.view,
            host_names(("localhost", "127.0.0.1"), lambda: catalog.view),
            rotated_key_grace_s=self._rotated_key_grace_s,
        )
        self.broker = Broker(
            engine=engine,
            catalog=catalog,
            book=self._book,
            access=access,
            default_namespace=NAMESPACE,
            segment_bytes=16 << 20,
            default_partition_count=2,
        )
        self.broker.revocation.defer = self._loop.call_soon
        self.broker.open(self._clock.monotonic())
        listening, port = bind("amqp", "127.0.0.1", self.port)
        self.port = port
        handshake_timeout_s, idle_timeout_s, token_grace_s = self._timeouts
        self.endpoint = AmqpEndpoint(
            self.broker,
            self._clock,
            Addresses(namespace=NAMESPACE, amqp=port),
            idle_timeout_s=idle_timeout_s,
            handshake_timeout_s=handshake_timeout_s,
            token_grace_s=token_grace_s,
            takes_certificates=self._takes_certificates,
        )
        listener = Listener(self.connections)
        await listener.serve(listening, self.endpoint.session, self._tls, protocol="AMQP")
        return engine, catalog, listener

    def _engine(self, post: Post, defer: Post) -> LogEngine:
        if self._data is None:
            return MemoryEngine(post=post, defer=defer)
        return LocalEngine(self._data, post=post, defer=defer, durability="os")

    def _fill(self, catalog: SqliteCatalog) -> None:
        now_ms = self._clock.now_ms()
        if catalog.view.find_namespace(NAMESPACE) is not None:
            return
        tier = self._book.default_tier
        limits = self._book.of(tier)
        parent = new_namespace(namespace_name(NAMESPACE), NamespaceSpec(), limits, tier=tier, now_ms=now_ms)
        catalog.apply(Create(parent), Create(root_rule(parent, now_ms=now_ms)))
        for name, count in self._hubs.items():
            existing = catalog.view.hubs(NAMESPACE)
            spec = HubSpec(partition_count=count)
            hub, group = new_hub(parent, hub_name(name), spec, limits, existing=existing, now_ms=now_ms)
            catalog.apply(Create(hub), Create(group))
            if limits.groups_per_hub is None or limits.groups_per_hub > 1:
                groups = catalog.view.groups(hub)
                catalog.apply(Create(new_group(hub, group_name("second"), limits, existing=groups, now_ms=now_ms)))
