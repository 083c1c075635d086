"""The composition root: builds a node's parts bottom up, starts them, and stops them top down. It decides nothing.

    storage -> broker -> provisioning -> TLS -> endpoints -> background loops, capture job

`process.run` serves a node as a process. A Node can also be embedded in a running event loop (tests).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING

from hubmere import __version__
from hubmere.broker.access.authentication import Access, host_names
from hubmere.broker.broker import Broker
from hubmere.broker.management.manager import Actor
from hubmere.capture.cold.source import CapturedSource
from hubmere.capture.service import CaptureJob, capture_targets, hold_bytes
from hubmere.model.clock import Clock, SystemClock
from hubmere.model.extras import install_command
from hubmere.model.names import ROOT_RULE
from hubmere.model.security.connection_string import EMULATOR_KEY
from hubmere.model.tier import LimitsBook, Profile
from hubmere.node.background import Background
from hubmere.node.blobs import blob_connection_string, blob_keys
from hubmere.node.endpoints import NodeEndpoints
from hubmere.node.identity import build_identities, start_fetching
from hubmere.node.provisioning import provision
from hubmere.node.ready import READY_FILE, Ready, build_ready, write_ready_file
from hubmere.node.ready_files import ReadyFiles
from hubmere.node.runtime.clocks import NodeClocks
from hubmere.node.runtime.loop_probe import LoopProbe
from hubmere.node.storage import choose_storage
from hubmere.node.tls import open_tls
from hubmere.settings import Settings

if TYPE_CHECKING:
    from hubmere.endpoints.issuer_keys import KeyFetcher
    from hubmere.endpoints.tracing import Spans
    from hubmere.model.addresses import Addresses
    from hubmere.node.local_identity import LocalIdentity

log = logging.getLogger("hubmere.node")

# Name of the node itself in the audit log.
_ACTOR = "node"


class Node:
    """One node: a data folder, a broker and its endpoints. Thread rule: the loop's thread only.

    `source` replaces the machine's clock in tests.
    """

    def __init__(self, settings: Settings, source: SystemClock | None = None) -> None:
        self._settings = settings
        self._clocks = NodeClocks(source or SystemClock(), settings)
        self._clock: Clock = self._clocks.stamps
        self._storage = choose_storage(settings)
        self._endpoints: NodeEndpoints | None = None
        self._spans: Spans | None = None
        self._key_fetcher: KeyFetcher | None = None
        self._cold_source: CapturedSource | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._probe: LoopProbe | None = None
        self._failed: asyncio.Future[None] | None = None
        self.broker: Broker | None = None
        self.background: Background | None = None

    # --- start, bottom up ---

    async def start(self) -> Ready:
        """Open the data folder, put everything into service, and return once every port accepts connections."""
        self._failed = asyncio.get_running_loop().create_future()
        settings, storage = self._settings, self._storage
        await storage.open()
        broker = self.broker = self._build_broker()
        storage.follow(lambda steps: broker.manager.follow(steps, self._clock.monotonic()))
        await provision(settings, broker, self._actor)
        open_identity = await self._prepare_local_identity(broker)
        tls = open_tls(settings, broker, storage.secrets)
        endpoints = self._endpoints = NodeEndpoints(
            settings,
            broker,
            self._clock,
            spans=self._spans,
            history=storage.history,
            data_folder=self._data_folder,
            open_identity=open_identity,
            coordination=storage.coordination,
        )
        await endpoints.open(tls)
        storage.serve(broker, endpoints.addresses, self._clock)
        admin_token = storage.secrets.admin_token()
        self._start_capture(broker, endpoints, admin_token)
        ready = self._build_ready(broker, endpoints, admin_token)
        self._write_ready_file(ready)
        background = self.background = Background(settings, broker, storage, self._clocks, self._actor)
        self._probe = LoopProbe(broker.loop_lag, self._clock)
        self._probe.start()
        loops = (*background.loops(), endpoints.replicate(), endpoints.record_history(), *tls.loops(broker.conditions))
        for loop in (*loops, self._ready_files(broker, endpoints, ready).run()):
            self._start_task(loop)
        log.info("node %s is ready; namespaces: %d", __version__, len(broker.entities.namespaces()))
        return ready

    async def _prepare_local_identity(self, broker: Broker) -> "Callable[[Addresses], LocalIdentity] | None":
        """Assign the roles of the test identities; the issuer opens when its address is known. None if it is off."""
        if not self._settings.local_identity:
            return None
        # Loads a cryptography library, which an ordinary start does not need.
        from hubmere.node.local_identity import assign_roles, build_directory, open_local_identity

        secrets = self._storage.secrets
        directory = build_directory(self._settings, secrets)
        await assign_roles(directory, broker, self._settings.namespace, self._actor)
        return lambda addresses: open_local_identity(
            directory, broker, secrets, addresses, self._clock, self._host_names()
        )

    def _build_broker(self) -> Broker:
        settings, storage = self._settings, self._storage
        catalog = storage.catalog
        book = LimitsBook(profile=Profile(settings.tier) if settings.tier else Profile.OPEN, overrides=settings.limits)
        access = Access(
            lambda: catalog.view,
            host_names(self._host_names(), lambda: catalog.view),
            skew_s=int(settings.clock_skew_s),
            takes_emulator_key=settings.is_emulator,
            rotated_key_grace_s=int(settings.rotated_key_grace_s),
            # Capture jobs that run elsewhere outlive this process.
            capture_key=storage.secrets.admin_token(),
            admin_token=storage.secrets.admin_token(),
            identities=build_identities(settings),
        )
        self._key_fetcher = start_fetching(access.identities, settings, self._clock)
        self._cold_source = None if settings.is_gateway else CapturedSource()
        broker = Broker(
            engine=storage.engine,
            catalog=catalog,
            book=book,
            access=access,
            default_namespace=settings.namespace,
            segment_bytes=settings.segment_bytes,
            default_partition_count=settings.default_partition_count,
            capture_targets=capture_targets(settings, storage.folder),
            capture_hold_bytes=hold_bytes(settings),
            quiet_s=settings.deflate_after_s,
            audit=storage.audit,
            blob_bodies=storage.bodies,
            blob_keys=blob_keys(settings, storage.secrets),
            places=storage.places,
            shares_units=storage.shares_units,
            cold_source=self._cold_source,
        )
        broker.latencies.commit = storage.commit_latency
        if settings.otlp_endpoint is not None:
            self._spans = _open_spans(settings.otlp_endpoint, settings.namespace)
            broker.trace(self._spans)
        broker.revocation.defer = asyncio.get_running_loop().call_soon
        broker.open(self._clock.monotonic())
        broker.recovery.start()
        return broker

    def _host_names(self) -> tuple[str, ...]:
        own = (*self._settings.client_hosts, self._settings.host, "localhost", "127.0.0.1", "::1", socket.gethostname())
        return tuple(dict.fromkeys(own))

    def _actor(self) -> Actor:
        """The node itself, as the actor of its own changes."""
        return Actor(name=_ACTOR, now_ms=self._clock.now_ms(), now=self._clock.monotonic())

    def _start_capture(self, broker: Broker, endpoints: NodeEndpoints, admin_token: str) -> None:
        job = CaptureJob(
            settings=self._settings,
            addresses=endpoints.addresses,
            base=self._storage.folder,
            admin_token=admin_token,
            role=self._storage.capture_role,
        )
        if (supervision := job.supervise(broker.captures, self._clock)) is not None:
            self._start_task(supervision)

    def _build_ready(self, broker: Broker, endpoints: NodeEndpoints, admin_token: str) -> Ready:
        settings = self._settings
        namespace = broker.entities.namespace(settings.namespace)
        rule = broker.entities.rule(namespace, ROOT_RULE)
        addresses = endpoints.addresses
        if settings.is_gateway:
            # The ready file has the addresses of this gateway; clients get the advertised addresses of the load
            # balancer.
            addresses = replace(addresses, advertised=())
        return build_ready(
            addresses,
            rule,
            key=EMULATOR_KEY if settings.is_emulator else rule.primary_key,
            listen_host=settings.host,
            data=self._data_folder,
            namespace=namespace.name,
            admin_token=admin_token,
            portal_path=endpoints.portal_path,
            blob_connection_string=blob_connection_string(settings, addresses, broker),
            identity=None if endpoints.local_identity is None else endpoints.local_identity.ready,
        )

    def _ready_files(self, broker: Broker, endpoints: NodeEndpoints, ready: Ready) -> ReadyFiles:
        """The ready files of the data folder and of the settings."""
        settings = self._settings
        paths = [settings.data / READY_FILE] if self._storage.is_locked else []
        paths += [] if settings.ready_file is None else [settings.ready_file]
        return ReadyFiles(ready, lambda: self._build_ready(broker, endpoints, ready.admin_token), tuple(paths))

    @property
    def _data_folder(self) -> str:
        settings = self._settings
        if settings.is_gateway:
            return "(Kafka " + ",".join(f"{host}:{port}" for host, port in settings.cluster_kafka) + ")"
        return str(settings.data.resolve()) if settings.has_data_folder else "(memory)"

    def _write_ready_file(self, ready: Ready) -> None:
        """Write the ready file of the data folder, by which commands on this machine find the node."""
        if not self._storage.is_locked:
            return
        try:
            write_ready_file(self._settings.data / READY_FILE, ready)
        except OSError as error:
            log.error("the ready file cannot be written: %s", error)

    # --- while it runs ---

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """End the node when one of its tasks fails: a restart is better than a node without retention."""
        failed = self._failed
        if not task.cancelled() and task.exception() is not None and failed is not None and not failed.done():
            failed.set_exception(task.exception() or RuntimeError("a task ended"))

    async def run_until(self, stopping: asyncio.Event) -> None:
        """Serve until `stopping` is set; raises when a part of the node has failed."""
        assert self._failed is not None
        waiter = asyncio.create_task(stopping.wait())
        await asyncio.wait((waiter, self._failed), return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if self._failed.done():
            self._failed.result()

    # --- stop, top down ---

    async def stop(self) -> None:
        """Close connections, complete group commits, close the files; also for a node whose start failed."""
        storage = self._storage
        was_ready = self._probe is not None
        if was_ready:
            open_count = 0 if self.broker is None else self.broker.counters.active_connections
            log.info("node %s is stopping with %d open connections", __version__, open_count)
        if storage.is_locked:
            (self._settings.data / READY_FILE).unlink(missing_ok=True)
        if self._probe is not None:
            self._probe.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._endpoints is not None:
            await self._endpoints.stop()
        if self._key_fetcher is not None:
            await self._key_fetcher.stop()
        if self._cold_source is not None:
            await asyncio.to_thread(self._cold_source.close)
        await storage.close()
        if storage.is_locked:
            self._clocks.save()
        if self._spans is not None:
            # The exporter has its own timeout for a collector that does not answer.
            await asyncio.to_thread(self._spans.close)
        storage.release()
        if was_ready:
            log.info("node %s has stopped", __version__)


class MissingExtra(Exception):
    """A setting needs an optional dependency that is not installed."""


def _open_spans(url: str, namespace: str) -> "Spans":
    """Spans for an OpenTelemetry collector; the library is optional and loaded only here."""
    try:
        from hubmere.endpoints.tracing import Spans
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            f"otlp_endpoint needs {missing.name}, which is not installed; install with: {install_command('otel')}"
        ) from None
    return Spans.to_collector(url, namespace)
