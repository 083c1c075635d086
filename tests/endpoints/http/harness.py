"""A node's HTTP endpoint on a loopback port, with a real broker, catalog and server, and without other protocols."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from hubmere.broker.access.authentication import Access, host_names
from hubmere.broker.broker import Broker
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.management.manager import Actor
from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.http.pairing.partners import Partner, Partners
from hubmere.endpoints.http.server.app import build_app
from hubmere.endpoints.http.server.server import HttpServers
from hubmere.endpoints.listener import bind
from hubmere.endpoints.stream import Session
from hubmere.model.addresses import Addresses
from hubmere.model.capture.targets import CaptureTargets
from hubmere.model.clock import Clock, SystemClock
from hubmere.model.entity import Namespace, Rights
from hubmere.model.names import ROOT_RULE, hub_name, namespace_name, rule_name
from hubmere.model.security.sas import make_token
from hubmere.model.spec import HubSpec, NamespaceSpec, new_namespace, root_rule
from hubmere.model.tier import LimitsBook, Profile
from hubmere.store.audit import AuditLog
from hubmere.store.catalog.sqlite import MEMORY, SqliteCatalog
from hubmere.store.catalog.view import Create
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from hubmere.store.memory import MemoryEngine
from hubmere.translate import EventView, events
from node_clock import NodeClock
from stalls import watched_loop

ADMIN_TOKEN = "an-admin-token-for-tests"
NAMESPACE = "orders-ns"
FAR_FUTURE_S = 4_000_000_000
# Only a failing test waits this long.
PATIENCE_S = 120.0
MIB = 1024 * 1024

T = TypeVar("T")


class HttpNode:
    """One node in its own thread for the length of a `with` block; tests use it as clients."""

    def __init__(
        self,
        *,
        profile: Profile = Profile.DEVELOPER,
        overrides: dict[str, int | bool | str | None] | None = None,
        data: Path | None = None,
        amqp_session: Callable[[Broker], Callable[[], Session]] | None = None,
        body_limit_bytes: int = 16 * MIB,
        kafka_ports: tuple[int | None, int | None] = (None, None),
        partners: Sequence[Partner] = (),
        max_connections: int = 1000,
        files: Files | None = None,
        audit: AuditLog | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._profile = profile
        self._overrides = overrides or {}
        self._data = data
        self._amqp_session = amqp_session
        self._body_limit_bytes = body_limit_bytes
        self._kafka_ports = kafka_ports
        self._partners = partners
        self._max_connections = max_connections
        self._files = files
        self._audit = audit
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http-node")
        self._watching = ExitStack()
        self.clock: Clock = clock or SystemClock()
        if isinstance(self.clock, NodeClock):
            self.clock.drive(self._loop)
        self.broker: Broker
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self.clock, NodeClock):
            self.clock.resume()
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the node's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def post(self, call: Callable[[], None]) -> None:
        """Call a function on the node's thread, without waiting for it."""
        self._loop.call_soon_threadsafe(call)

    def call(self, work: Callable[[], T]) -> T:
        """Call a function on the node's thread."""

        async def called() -> T:
            return work()

        return self.run(called())

    async def _start(self) -> None:
        engine = (
            MemoryEngine(post=self.post)
            if self._data is None
            else LocalEngine(self._data, post=self.post, files=self._files)
        )
        self._catalog = catalog = SqliteCatalog.open(MEMORY, self.post)
        self._engine = engine
        book = LimitsBook(profile=self._profile, overrides=self._overrides)
        entity = _a_namespace(book, NAMESPACE, self.clock.now_ms())
        catalog.apply(Create(entity), Create(root_rule(entity, now_ms=0)))
        self.broker = Broker(
            engine=engine,
            catalog=catalog,
            book=book,
            access=Access(
                lambda: catalog.view,
                host_names(("localhost", "127.0.0.1"), lambda: catalog.view),
                admin_token=ADMIN_TOKEN,
            ),
            default_namespace=NAMESPACE,
            segment_bytes=256 * MIB,
            default_partition_count=4,
            audit=self._audit,
            capture_targets=CaptureTargets.in_folder(Path("captured"), has_account_folders=True),
        )
        self.broker.open(self.clock.monotonic())
        listening, port = bind("http", "127.0.0.1", 0)
        self.port = port
        partners = Partners(self.broker, self.clock, self._partners)
        app = build_app(
            self.broker,
            self.clock,
            Addresses(namespace=NAMESPACE, http=self.port, kafka=self._kafka_ports[0], kafkas=self._kafka_ports[1]),
            body_limit_bytes=self._body_limit_bytes,
            amqp_session=None if self._amqp_session is None else self._amqp_session(self.broker),
            partners=partners,
        )
        counters = self.broker.counters
        limits = ConnectionLimits(self._max_connections, counters.count_opened, counters.count_closed)
        self._servers = HttpServers(app, limits=limits)
        await self._servers.serve("http", listening)
        self._pushing = asyncio.create_task(partners.run())
        self._watching.enter_context(watched_loop())

    async def stop_serving(self) -> None:
        """Close the port, as a stopping node does first."""
        await self._servers.stop()

    async def _stop(self) -> None:
        self._pushing.cancel()
        await asyncio.gather(self._pushing, return_exceptions=True)
        await self._servers.stop()
        self._watching.close()
        self._engine.close()
        self._catalog.close()

    def _unanswered_requests(self) -> int:
        """Requests with a task, and those that were published without one."""
        pending = [one for one in self._servers._http_connections() if one._pending_cycle is not None]
        return len(self._servers._state.tasks) + len(pending)

    def await_requests_under_way(self, count: int) -> None:
        """Wait until this many requests are unanswered."""
        deadline = time.monotonic() + PATIENCE_S
        while self.call(self._unanswered_requests) < count:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    async def serve_again(self) -> None:
        """Open the closed port again, as a restarted node does."""
        listening, _ = bind("http", "127.0.0.1", self.port)
        await self._servers.serve("http", listening)

    def await_connections(self, count: int) -> None:
        """Wait until this many connections are open."""
        deadline = time.monotonic() + PATIENCE_S
        while self.call(lambda: self.broker.counters.active_connections) != count:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def await_requests_done(self) -> None:
        """Wait until no request is unanswered."""
        deadline = time.monotonic() + PATIENCE_S
        while self.call(self._unanswered_requests):
            assert time.monotonic() < deadline
            time.sleep(0.005)

    # --- preparations of tests ---

    @property
    def url(self) -> str:
        """The base URL of the node."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, **headers: str) -> httpx.Client:
        """An HTTP client of the node with some headers on every request."""
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)

    def manager(self) -> httpx.Client:
        """A client with the administrator's token."""
        return self.client(Authorization=f"Bearer {ADMIN_TOKEN}")

    def actor(self) -> Actor:
        """The author of a test's changes."""
        return Actor(name="test", now_ms=self.clock.now_ms(), now=self.clock.monotonic())

    def changed(self, change: Callable[[Callable[[Any], None]], T]) -> T:
        """Make a change of entities and wait until it is durable."""

        async def await_change() -> T:
            waiting: asyncio.Future[Any] = self._loop.create_future()
            result = change(waiting.set_result)
            refusal = await waiting
            if refusal is not None:
                raise refusal
            return result

        return self.run(await_change())

    def add_hub(self, name: str, spec: HubSpec | None = None, namespace: str = NAMESPACE) -> None:
        """Create an event hub."""
        self.changed(
            lambda done: self.broker.manager.create_hub(
                namespace, hub_name(name), spec or HubSpec(), self.actor(), done
            )
        )

    def add_namespace(self, name: str, spec: NamespaceSpec | None = None) -> None:
        """Create another namespace."""
        self.changed(
            lambda done: self.broker.manager.create_namespace(
                namespace_name(name), spec or NamespaceSpec(), self.actor(), done
            )
        )

    def add_rule(self, name: str, *rights: str, hub: str | None = None) -> None:
        """Create an authorization rule on the namespace or a hub."""
        self.changed(
            lambda done: self.broker.manager.write_rule(
                NAMESPACE, hub, rule_name(name), Rights.parse(rights), self.actor(), done
            )
        )

    def key(self, rule: str = ROOT_RULE, hub: str | None = None, namespace: str = NAMESPACE) -> str:
        """The primary key of a rule."""
        view = self.broker.entities
        scope = view.namespace(namespace) if hub is None else view.hub(namespace, hub)
        return view.rule(scope, rule).primary_key

    def sas(
        self,
        path: str = "",
        *,
        rule: str = ROOT_RULE,
        hub: str | None = None,
        scheme: str = "https://",
        host: str = "127.0.0.1",
        expires_at_s: int = FAR_FUTURE_S,
        key: str | None = None,
    ) -> str:
        """A token of a rule for a path."""
        return make_token(f"{scheme}{host}/{path}", rule, key or self.key(rule, hub), expires_at_s=expires_at_s)

    def hub(self, name: str, namespace: str = NAMESPACE) -> LiveHub:
        """The live hub."""
        return self.broker._namespace(namespace).hub(name)

    def stored(self, hub: str, partition: int | None = None, namespace: str = NAMESPACE) -> list[EventView]:
        """The stored events of a hub, or of one of its partitions."""
        return self.call(lambda: _stored(self.hub(hub, namespace), partition))


def _stored(hub: LiveHub, partition: int | None) -> list[EventView]:
    found: list[EventView] = []
    numbers = range(hub.entity.partition_count) if partition is None else [partition]
    for number in numbers:
        log, sequence = hub.log(number), 0
        while (chunk := log.read(sequence, MIB) if sequence < log.state.committed else None) is not None:
            found += events(chunk.data, chunk.offset, sequence, 100_000)
            sequence = chunk.next_sequence
    return found


def _a_namespace(book: LimitsBook, name: str, now_ms: int) -> Namespace:
    tier = book.default_tier
    return new_namespace(namespace_name(name), NamespaceSpec(), book.of(tier), tier=tier, now_ms=now_ms)
