"""The composition root: builds the rooms bottom up, starts them, keeps them, and stops them top down.

`run` is what the command calls: it owns the event loop, the signals and the process's own settings. A Node can also be
embedded in a loop that is already running (tests, `hubmere.testing`).
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hubmere import __version__
from hubmere.broker.access import Access, host_names
from hubmere.broker.broker import Broker
from hubmere.broker.coordinator.consumer_group.members import ConsumerGroupConfig
from hubmere.broker.live import LiveHub
from hubmere.broker.management.capture import LettingGo
from hubmere.broker.management.manager import Actor
from hubmere.capture.service import CaptureJob, capture_targets, hold_bytes
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.endpoints import certificates
from hubmere.endpoints.amqp.endpoint import AmqpEndpoint
from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.http.pairing.partners import Partner, Partners
from hubmere.endpoints.http.server.app import build_app
from hubmere.endpoints.http.server.server import HttpServers
from hubmere.endpoints.kafka.endpoint import KafkaEndpoint
from hubmere.endpoints.listener import Listener, Port, bind
from hubmere.endpoints.memory import MemoryBudget
from hubmere.endpoints.stream import StreamSession
from hubmere.endpoints.tls import FollowingTls
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock, SystemClock
from hubmere.model.connection_string import EMULATOR_KEY
from hubmere.model.entity import AccessRule
from hubmere.model.errors import Refusal
from hubmere.model.names import ROOT_RULE, emulator_hub_name, fold, group_name, hub_name, namespace_name
from hubmere.model.spec import HubSpec, NamespaceSpec, new_group, new_hub, new_namespace, root_rule
from hubmere.model.tier import LimitsBook, Profile
from hubmere.node.clocks import NodeClocks
from hubmere.node.disks import NodeDisk
from hubmere.node.logging import configure_logging
from hubmere.node.memory import keep_large_buffers, memory_budget_bytes, trim_memory
from hubmere.node.ready import READY_FILE, Ready, render_banner, render_line, write_ready_file
from hubmere.portal import Portal
from hubmere.settings import PartnerSetting, Settings
from hubmere.store.audit import AUDIT_FILE, AuditLog
from hubmere.store.catalog.guard import check_after_opening, check_before_opening
from hubmere.store.catalog.sqlite import CATALOG_FILE, MEMORY, SqliteCatalog
from hubmere.store.catalog.view import Create
from hubmere.store.engine import LogEngine, PartitionLog
from hubmere.store.files import Lock, acquire_lock
from hubmere.store.local import LocalEngine
from hubmere.store.memory import MemoryEngine
from hubmere.store.secrets import TlsFiles, Vault

if TYPE_CHECKING:
    from hubmere.endpoints.tracing import Spans

log = logging.getLogger("hubmere.node")

_SYSTEM = "node"
_TLS_SERVICES = ("amqps", "kafkas", "https")
# Whose share of the connections a port uses; HTTP has its own.
_PROTOCOLS = {"amqp": "AMQP", "amqps": "AMQP", "kafka": "Kafka", "kafkas": "Kafka"}

# How often the node looks after quotas, and after its logs.
_CARE_SECONDS = 1.0
_MAINTAIN_SECONDS = 30.0
# How soon after a change of entities the catalog is copied.
_COPY_SECONDS = 30.0


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    configure_logging(settings.log_format, settings.log_level)
    keep_large_buffers(memory_budget_bytes(settings.memory_budget_bytes))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node = Node(settings)
    try:
        ready = await node.start()
        # Everything made so far lives as long as the node: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        _tell(settings, ready)
        if settings.ready_file is not None:
            write_ready_file(settings.ready_file, ready)
        await node.run_until(stopping)
    finally:
        await node.stop()
    return Exit.OK


def _tell(settings: Settings, ready: Ready) -> None:
    """Say that the node is ready: to a person, or to a log that is collected, which is no place for a key."""
    if settings.log_format == "json":
        log.info("%s", render_line(ready))
    else:
        ready_file = settings.ready_file or (None if settings.memory else settings.data / READY_FILE)
        banner = render_banner(ready, is_terminal=sys.stdout.isatty(), ready_file=ready_file)
        print(banner, flush=True)  # noqa: T201 - the banner is the output


def _spans(url: str, namespace: str) -> "Spans":
    """Spans for a collector; what makes them is loaded by whoever wants them."""
    try:
        from hubmere.endpoints.tracing import Spans
    except ModuleNotFoundError as missing:
        raise CommandFailed(Exit.USAGE, f"otlp_endpoint needs hubmere[otel]: {missing.name} is not installed") from None
    return Spans.to_collector(url, namespace)


def _audit_failed(error: OSError) -> None:
    log.error("the audit log cannot be written, its lines are kept in memory: %s", error)


def _partner(setting: PartnerSetting) -> Partner:
    ca_file = None if setting.ca_file is None else str(setting.ca_file)
    return Partner(name=setting.name, url=setting.url, token=setting.token, ca_file=ca_file)


def _tell_of_capture(live: LiveHub, partition: int, gone: LettingGo) -> None:
    """What an operator must know of a captured hub: retention waits for the job, or did not."""
    place = f"{live.entity.namespace}/{live.name}/{partition}"
    if gone.is_newly_held:
        log.warning("%s: %d bytes are past retention and kept until they are captured", place, gone.held_bytes)
    if gone.lost:
        first, last = gone.lost[0], gone.lost[-1]
        log.error("%s: retention let events go that were not captured: sequence numbers %d to %d", place, first, last)


async def _compact(partition_log: PartitionLog, now_ms: int) -> int:
    """One pass of compaction, rewritten off the loop; returns how many bytes went."""
    run_over = partition_log.compaction_pass(now_ms)
    if run_over is None:
        return 0
    await asyncio.to_thread(run_over.rewrite)
    return run_over.adopt(now_ms)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if os.environ.get("HUBMERE_LOOP") == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class Node:
    """One node: a data folder, a broker and its endpoints."""

    def __init__(self, settings: Settings, source: SystemClock | None = None) -> None:
        """`source` stands for the machine's clock, in tests."""
        self._settings = settings
        self._source = source or SystemClock()
        self._clocks = NodeClocks(self._source, settings)
        self._clock: Clock = self._clocks.stamps
        self._book = LimitsBook(
            profile=Profile(settings.tier) if settings.tier else Profile.DEVELOPER, overrides=settings.limits
        )
        self._lock: Lock | None = None
        # Clients must be able to read the CA of a node in memory too: its secrets live in a folder that goes with it.
        self._scratch = tempfile.TemporaryDirectory(prefix="hubmere-") if settings.memory else None
        self._base = settings.data if self._scratch is None else Path(self._scratch.name)
        self._vault = Vault(self._base)
        self._engine: LogEngine | None = None
        self._catalog: SqliteCatalog | None = None
        self._listener: Listener | None = None
        self._http: HttpServers | None = None
        self._kafka: KafkaEndpoint | None = None
        self._portal: Portal | None = None
        self._partners: Partners | None = None
        self._audit: AuditLog | None = None
        self._spans: Spans | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] | None = None
        self.broker: Broker | None = None

    # --- start, bottom up ---

    async def start(self) -> Ready:
        """Open the data folder, put everything into service, and return once every port accepts connections."""
        self._failed = asyncio.get_running_loop().create_future()
        self._open_store()
        self._create_configured()
        broker = self.broker = self._build_broker()
        tls_files, tls = self._open_tls(broker)
        ready = await self._open_ports(broker, tls_files, tls)
        if self._lock is not None:
            try:
                write_ready_file(self._settings.data / READY_FILE, ready)
            except OSError as error:
                log.error("the ready file cannot be written: %s", error)
        self._start_task(self._look_after(broker))
        self._start_task(self._copy_catalog())
        self._start_task(self._let_go(broker))
        if self._partners is not None:
            self._start_task(self._partners.run())
        log.info("node %s is ready with %d namespace(s)", __version__, len(broker.namespaces))
        return ready

    def _open_store(self) -> None:
        loop = asyncio.get_running_loop()

        def post(call: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(call)

        def defer(call: Callable[[], None]) -> None:
            loop.call_soon(call)

        if self._settings.memory:
            self._engine = MemoryEngine(post=post, defer=defer)
            self._catalog = SqliteCatalog.open(MEMORY, post)
            return
        data = self._settings.data
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = acquire_lock(data)
        check_before_opening(data)
        self._catalog = SqliteCatalog.open(data / CATALOG_FILE, post)
        check_after_opening(data, self._catalog)
        self._catalog.mirror_to(data)
        self._engine = LocalEngine(data, post=post, defer=defer, durability=self._settings.durability)

    def _build_broker(self) -> Broker:
        assert self._engine is not None
        assert self._catalog is not None
        catalog = self._catalog
        access = Access(
            lambda: catalog.view,
            host_names(self._host_names(), lambda: catalog.view),
            skew_s=int(self._settings.clock_skew_s),
            takes_emulator_key=self._settings.is_emulator,
            rotated_key_grace_s=int(self._settings.rotated_key_grace_s),
            # Capture jobs that run elsewhere outlive this process.
            capture_key=self._vault.admin_token(),
            admin_token=self._vault.admin_token(),
        )
        self._audit = self._build_audit()
        broker = Broker(
            engine=self._engine,
            catalog=catalog,
            book=self._book,
            access=access,
            default_namespace=self._settings.namespace,
            segment_bytes=self._settings.segment_bytes,
            default_partition_count=self._settings.default_partition_count,
            capture_targets=capture_targets(self._settings, self._base),
            capture_hold_bytes=hold_bytes(self._settings),
            quiet_s=self._settings.deflate_after_s,
            audit=self._audit,
        )
        if self._settings.otlp_endpoint is not None:
            self._spans = _spans(self._settings.otlp_endpoint, self._settings.namespace)
            broker.trace(self._spans)
        broker.revocation.defer = asyncio.get_running_loop().call_soon
        broker.open(self._clock.monotonic())
        return broker

    def _build_audit(self) -> AuditLog:
        settings = self._settings
        path = settings.data / AUDIT_FILE if settings.audit_log and not settings.memory else None
        return AuditLog(path, max_bytes=settings.audit_log_bytes, on_failure=_audit_failed)

    def _create_namespace(self, catalog: SqliteCatalog, name: str) -> None:
        if catalog.view.find_namespace(name) is None:
            now_ms = self._clock.now_ms()
            tier = self._book.default_tier
            spec = NamespaceSpec()
            entity = new_namespace(namespace_name(name), spec, self._book.of(tier), tier=tier, now_ms=now_ms)
            catalog.apply(Create(entity), Create(root_rule(entity, now_ms=now_ms)))

    def _create_configured(self) -> None:
        """Make what the settings name and is not there yet; what is there stays as it is."""
        assert self._catalog is not None
        catalog = self._catalog
        for name in (self._settings.namespace, *(hub.namespace for hub in self._settings.hubs if hub.namespace)):
            self._create_namespace(catalog, name)
        for wish in self._settings.hubs:
            parent = catalog.view.namespace(wish.namespace or self._settings.namespace)
            limits = self._book.of(parent.tier)
            hub = catalog.view.find_hub(parent.name, wish.name)
            now_ms = self._clock.now_ms()
            if hub is None:
                count = wish.partition_count or self._settings.default_partition_count
                spec = HubSpec(
                    partition_count=count, retention_hours=wish.retention_hours, user_metadata=wish.user_metadata
                )
                existing = catalog.view.hubs(parent.name)
                checked = emulator_hub_name(wish.name) if self._settings.is_emulator else hub_name(wish.name)
                hub, group = new_hub(parent, checked, spec, limits, existing=existing, now_ms=now_ms)
                catalog.apply(Create(hub), Create(group))
            for name in wish.consumer_groups:
                if catalog.view.find_group(hub, name) is None:
                    groups = catalog.view.groups(hub)
                    catalog.apply(Create(new_group(hub, group_name(name), limits, existing=groups, now_ms=now_ms)))

    def _by(self) -> Actor:
        return Actor(name=_SYSTEM, now_ms=self._clock.now_ms(), now=self._clock.monotonic())

    def _host_names(self) -> tuple[str, ...]:
        own = (*self._settings.hostname, self._settings.host, "localhost", "127.0.0.1", "::1", socket.gethostname())
        return tuple(dict.fromkeys(own))

    # --- TLS and ports ---

    def _open_tls(self, broker: Broker) -> tuple[TlsFiles | None, ssl.SSLContext | None]:
        settings = self._settings
        if settings.amqps_port is None and settings.kafkas_port is None and settings.https_port is None:
            return None, None
        if settings.tls_certificate is not None and settings.tls_key is not None:
            context = certificates.server_context(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
            return None, context

        def is_label(text: str) -> bool:
            return fold(text) in broker.namespaces or broker.catalog.view.find_alias(text) is not None

        names = partial(self._tls_names, broker)
        following = FollowingTls(names, is_label, self._issue_certificate, settings.tls_client_ca)
        return self._vault.tls_files, following.context

    def _tls_names(self, broker: Broker) -> tuple[str, ...]:
        namespaces = [live.entity.name for live in broker.namespaces.values()]
        aliases = [alias.name for name in namespaces for alias in broker.catalog.view.aliases(name)]
        return certificates.server_names(self._settings.hostname, [*namespaces, *aliases], socket.gethostname())

    def _issue_certificate(self, names: tuple[str, ...]) -> tuple[Path, Path]:
        files = self._vault.ensure_tls(names, datetime.now(UTC), certificates)
        return files.certificate, files.key

    async def _open_ports(self, broker: Broker, tls_files: TlsFiles | None, tls: ssl.SSLContext | None) -> Ready:
        """Bind every port first, so that each protocol can tell clients where the others are; then accept."""
        settings = self._settings
        bound = {name: self._bind(name, port) for name, port in self._wanted_ports()}
        addresses = Addresses(
            namespace=settings.namespace,
            hostnames=settings.hostname,
            ca_file=None if tls_files is None else str(tls_files.ca.resolve()),
            **{name: None if entry is None else entry[1].port for name, entry in bound.items()},
        )
        admin_token = self._vault.admin_token()
        sessions, app = self._build_endpoints(broker, addresses, admin_token)
        counters = broker.counters
        limits = ConnectionLimits(
            settings.max_connections,
            counters.count_opened,
            counters.count_closed,
            protocol_percent=settings.protocol_connections_percent,
            address_percent=settings.address_connections_percent,
        )
        timeout_s = settings.handshake_timeout_s
        listener = self._listener = Listener(limits, handshake_timeout_s=timeout_s)
        http = self._http = HttpServers(
            app, connections=broker.connections, limits=limits, handshake_timeout_s=timeout_s
        )
        for name, entry in bound.items():
            if entry is None:
                continue
            context = tls if name in _TLS_SERVICES else None
            if name in sessions:
                await listener.serve(entry[0], sessions[name], context, protocol=_PROTOCOLS[name])
            else:
                await http.serve(name, entry[0], context)
        job = CaptureJob(settings=settings, addresses=addresses, base=self._base, admin_token=admin_token)
        if (keeper := job.keeper(broker.captures, self._clock)) is not None:
            self._start_task(keeper)
        return self._ready(broker, addresses, tls_files, admin_token)

    def _wanted_ports(self) -> Sequence[tuple[str, int | None]]:
        settings = self._settings
        return (
            ("amqp", settings.amqp_port),
            ("amqps", settings.amqps_port),
            ("kafka", settings.kafka_port),
            ("kafkas", settings.kafkas_port),
            ("http", settings.http_port),
            ("https", settings.https_port),
        )

    def _bind(self, service: str, port: int | None) -> tuple[socket.socket, Port] | None:
        return None if port is None else bind(service, self._settings.host, port)

    def _build_endpoints(
        self, broker: Broker, addresses: Addresses, admin_token: str
    ) -> tuple[dict[str, Callable[[], StreamSession]], object]:
        settings = self._settings
        memory = MemoryBudget(
            memory_budget_bytes(settings.memory_budget_bytes),
            on_refused=broker.counters.count_memory_refusal,
            trim=trim_memory,
        )
        amqp = AmqpEndpoint(
            broker,
            self._clock,
            addresses,
            idle_timeout_s=settings.amqp_idle_timeout_s,
            handshake_timeout_s=settings.handshake_timeout_s,
            takes_certificates=settings.tls_client_ca is not None,
            memory=memory,
        )
        kafka = self._kafka = KafkaEndpoint(
            broker,
            self._clock,
            addresses,
            idle_timeout_s=settings.kafka_idle_timeout_s,
            handshake_timeout_s=settings.handshake_timeout_s,
            auto_create_hubs=settings.auto_create_hubs,
            consumer_groups=ConsumerGroupConfig(
                session_timeout_s=settings.group_consumer_session_timeout_s,
                heartbeat_interval_s=settings.group_consumer_heartbeat_interval_s,
                max_size=settings.group_consumer_max_size,
            ),
            memory=memory,
        )
        self._partners = Partners(broker, self._clock, map(_partner, settings.partners))
        app = build_app(
            broker,
            self._clock,
            addresses,
            admin_token=admin_token,
            body_limit_bytes=settings.http_body_bytes,
            amqp_session=lambda: amqp.session("AMQP over WebSocket"),
            partners=self._partners,
            memory=memory,
        )
        if self._spans is not None:
            app.trace(self._spans)
        self._portal = Portal(broker, self._clock, addresses, admin_token=admin_token)
        app.mount("portal", self._portal)
        sessions: dict[str, Callable[[], StreamSession]] = {
            "amqp": amqp.session,
            "amqps": amqp.session,
            "kafka": lambda: kafka.session(is_secure=False),
            "kafkas": lambda: kafka.session(is_secure=True),
        }
        return sessions, app

    def _ready(self, broker: Broker, addresses: Addresses, tls_files: TlsFiles | None, admin_token: str) -> Ready:
        namespace = broker.namespace(self._settings.namespace).entity
        rule = broker.catalog.view.rule(namespace, ROOT_RULE)
        host = addresses.host
        link = "" if self._portal is None else self._portal.first_link

        def address(port: int | None) -> str | None:
            return None if port is None else f"{host}:{port}"

        def url(scheme: str, port: int | None, path: str = "") -> str | None:
            return None if port is None else f"{scheme}://{host}:{port}{path}"

        return Ready(
            pid=os.getpid(),
            version=__version__,
            data="(memory)" if self._settings.memory else str(self._settings.data.resolve()),
            namespace=namespace.name,
            connection_string=addresses.connection_string(rule, self._shown_key(rule)),
            emulator_connection_string=addresses.emulator_connection_string(rule, self._shown_key(rule)),
            admin_token=admin_token,
            ca_file=None if tls_files is None else str(tls_files.ca.resolve()),
            amqp=address(addresses.amqp),
            amqps=address(addresses.amqps),
            kafka=address(addresses.kafka),
            kafkas=address(addresses.kafkas),
            http=url("http", addresses.http),
            https=url("https", addresses.https),
            # Plain HTTP where it is served: browsers do not know the private authority.
            portal=url("http", addresses.http, link) or url("https", addresses.https, link),
        )

    def _shown_key(self, rule: AccessRule) -> str:
        return EMULATOR_KEY if self._settings.is_emulator else rule.primary_key

    # --- while it runs ---

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """A task that fails takes the node down: better a restart than a node without retention."""
        failed = self._failed
        if not task.cancelled() and task.exception() is not None and failed is not None and not failed.done():
            failed.set_exception(task.exception() or RuntimeError("a task ended"))

    async def run_until(self, stopping: asyncio.Event) -> None:
        """Serve until told to stop; raises when a part of the node has failed."""
        assert self._failed is not None
        waiter = asyncio.create_task(stopping.wait())
        await asyncio.wait((waiter, self._failed), return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if self._failed.done():
            self._failed.result()

    async def _look_after(self, broker: Broker) -> None:
        """Every second pressed namespaces inflate; less often, logs get recovery points and failed ones another try."""
        assert self._engine is not None
        disk = NodeDisk(self._settings, self._engine, broker.conditions)
        disk.check()
        maintain_at = 0.0
        while True:
            await asyncio.sleep(_CARE_SECONDS)
            self._clocks.check(broker.conditions)
            disk.check()
            for ended in broker.look_after(self._by()):
                log.warning("%s", ended)
            if self._clock.monotonic() >= maintain_at:
                maintain_at = self._clock.monotonic() + _MAINTAIN_SECONDS
                self._engine.maintain(self._clock.now_ms())
                self._clocks.save()

    async def _copy_catalog(self) -> None:
        """A little after entities have changed, the catalog is copied: damage must not cost keys and rules."""
        assert self._catalog is not None
        while True:
            await asyncio.to_thread(self._catalog.copy_if_changed)
            await asyncio.sleep(_COPY_SECONDS)

    async def _let_go(self, broker: Broker) -> None:
        """Now and then: whole segments past retention go, compacted hubs are compacted; one log at a time."""
        while True:
            await asyncio.sleep(self._settings.retention_check_interval_s)
            for live in [hub for namespace in broker.namespaces.values() for hub in namespace.hubs.values()]:
                for partition in range(live.entity.partition_count):
                    await asyncio.sleep(0)
                    await self._tidy(broker, live, partition)

    async def _tidy(self, broker: Broker, live: LiveHub, partition: int) -> None:
        try:
            partition_log = live.log(partition)
            now_ms = self._clocks.retention.now_ms()
            gone = broker.captures.let_go(live, partition, now_ms)
            saved = await _compact(partition_log, now_ms) if live.entity.retention.is_compacted else 0
        except (Refusal, OSError) as error:
            log.warning("tidying %s/%d is put off: %s", live.name, partition, error)
            return
        if gone.dropped or saved:
            log.info("%s/%d: %d segment(s) and %d bytes went", live.name, partition, gone.dropped, saved)
        _tell_of_capture(live, partition, gone)

    # --- stop, top down ---

    async def _stop_telling(self) -> None:
        """What tells others of the node's doings is closed behind everything that it could tell of."""
        if self._audit is not None:
            self._audit.close()
        if self._spans is not None:
            # A collector that is away is given up on by the exporter itself.
            await asyncio.to_thread(self._spans.close)

    async def stop(self) -> None:
        """Say good-bye, finish group commits, close the files; a node that never started stops too."""
        if self._lock is not None:
            (self._settings.data / READY_FILE).unlink(missing_ok=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.stop()
        if self._portal is not None:
            await self._portal.stop()
        if self._listener is not None:
            await self._listener.stop()
        if self._kafka is not None:
            self._kafka.close()
        if self._engine is not None:
            self._engine.close()
        if self._catalog is not None:
            self._catalog.close()
        if self._lock is not None:
            self._clocks.save()
        await self._stop_telling()
        if self._lock is not None:
            self._lock.release()
        if self._scratch is not None:
            self._scratch.cleanup()
