"""The storage of a gateway: a Kafka cluster instead of a data folder. Connects, checks the cluster, and opens the
catalog over its control log.

A gateway stores no data: its folder is temporary, and has only the files that TLS needs. Secrets that all gateways
share (certificate authority, admin token) are in the control log, encrypted with the cluster secret.
"""

import asyncio
import logging
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from hubmere import __version__
from hubmere.broker.broker import Broker
from hubmere.broker.hubs.live import log_config
from hubmere.broker.monitoring.conditions import CLUSTER, Condition, Conditions, ConditionSeverity
from hubmere.cluster.catalog import ClusterCatalog, OnAccepted
from hubmere.cluster.control.entries import UnreadableEntry
from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.engine.engine import KafkaEngine
from hubmere.cluster.engine.topics import TopicPlan, Topics
from hubmere.cluster.forwarding import KafkaCoordination
from hubmere.cluster.partition import OnePartition
from hubmere.cluster.places import ClusterPlaces
from hubmere.cluster.pulse.topic import RETENTION_MS
from hubmere.cluster.roles import ClusterRole
from hubmere.cluster.safety import Copies, find_risks
from hubmere.cluster.sealing import Sealer, WrongSecret
from hubmere.cluster.upstream.connection import Access
from hubmere.cluster.upstream.failures import RequestRefused, UpstreamFailure
from hubmere.cluster.upstream.upstream import Upstream
from hubmere.endpoints import certificates
from hubmere.endpoints.kafka.forward.port import Coordination, CoordinationFailed
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock, SystemClock
from hubmere.model.entity import Hub
from hubmere.model.errors import Refusal
from hubmere.model.monitoring.histogram import Histogram
from hubmere.node.pulse import PulseService
from hubmere.settings import Settings
from hubmere.store.audit import AuditLog
from hubmere.store.blob_files import NoBodies
from hubmere.store.catalog.runtime_state import Meta
from hubmere.store.catalog.view import Create, Put, Replace, Step
from hubmere.store.engine import LogConfig, LogEngine
from hubmere.store.history import MemoryHistory
from hubmere.store.secrets import NodeSecrets

log = logging.getLogger("hubmere.node")

T = TypeVar("T")

_LOG_INTERVAL_S: Final = 10.0
_ATTEMPT_SECONDS: Final = 1.0
_WRITE_SECONDS: Final = 30.0
# How long the creation of a hub waits for its topic.
_TOPIC_SECONDS: Final = 2.0
# How long health and portal report that a wrong state was replaced.
_SHOWN_SECONDS: Final = 3600.0
# Rows of the control log that are not entities.
_SECRET_ROW: Final = "secret."  # noqa: S105  the beginning of a name
_TOPIC_ROW: Final = "topic."
# Secrets that all gateways share, as files below the folder.
_SHARED_FILES: Final = ("admin-token", "blob-key", "tls/ca.pem", "tls/ca-key.pem", "tls/issued.json")


class ClusterUnusable(Exception):
    """The gateway must not start on this cluster; the text gives the reason in one sentence."""


class ClusterStorage:
    """The storage of a gateway, in place of a data folder. Thread rule: the loop's thread only."""

    catalog: ClusterCatalog
    control: ControlLog
    places: ClusterPlaces

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._temporary = tempfile.TemporaryDirectory(prefix="hubmere-")
        self.folder = Path(self._temporary.name)
        self.secrets = NodeSecrets(self.folder)
        self.audit = AuditLog()
        self.upstream = Upstream(settings.cluster_kafka, kafka_access(settings), client_id="hubmere-gateway")
        self.history = MemoryHistory()
        self.bodies = NoBodies()
        self.is_locked = False
        self._engine: KafkaEngine | None = None
        self._copies = Copies(replication=settings.cluster_replication, in_sync=settings.cluster_min_insync)
        self.risks: tuple[str, ...] = ()
        self._pulse: PulseService | None = None

    async def open(self) -> None:
        """Connect, check the cluster, and read the control log to its end."""
        settings = self._settings
        await self._when_reached(self.upstream.connect)
        topic = f"{settings.cluster_prefix}control"
        self._copies = await self._check_safety(topic)
        self.control = ControlLog(
            self.upstream,
            topic,
            replication=self._copies.replication,
            in_sync=self._copies.in_sync,
            now_ms=SystemClock().now_ms,
            address=_own_address(settings),
            version=__version__,
            machine=socket.gethostname(),
        )
        call_later = asyncio.get_running_loop().call_later
        self.catalog = ClusterCatalog(self.control, Sealer(_secret(settings)), call_later=call_later)
        try:
            await self.control.start()
            self.catalog.load()
        except RequestRefused as refused:
            raise ClusterUnusable(f"the control log cannot be opened: {refused}") from refused
        except WrongSecret as wrong:
            raise ClusterUnusable(
                f"the prefix {settings.cluster_prefix} is used by gateways with another cluster secret: {wrong}"
            ) from wrong
        except UnreadableEntry as unreadable:
            raise ClusterUnusable(f"the control log cannot be read: {unreadable}") from unreadable
        if self.control.failure is not None:
            raise ClusterUnusable(self.control.failure)
        self.places = ClusterPlaces(self.control)
        self.control.begin_session()
        await self._share_secrets()
        self._engine = KafkaEngine(self.upstream, self._topics())
        self.catalog.on_own = self._change_topics

    async def _when_reached(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until brokers answer; logs the reason of failure every ten seconds."""
        loop = asyncio.get_running_loop()
        began, logged_at = loop.time(), -_LOG_INTERVAL_S
        limit_s = self._settings.cluster_start_timeout_s
        while True:
            try:
                return await attempt()
            except UpstreamFailure as failure:
                if failure.is_lasting:
                    raise ClusterUnusable(str(failure)) from failure
                if loop.time() - logged_at >= _LOG_INTERVAL_S:
                    logged_at = loop.time()
                    log.warning("waiting for the Kafka cluster: %s", failure)
                if limit_s and loop.time() - began > limit_s:
                    raise ClusterUnusable(f"no Kafka broker was reached within {limit_s:g} s: {failure}") from failure
            await asyncio.sleep(_ATTEMPT_SECONDS)

    async def _check_safety(self, control_topic: str) -> Copies:
        """The copies of every event that this cluster keeps; refuses one that can lose acknowledged events."""
        settings = self._settings
        wanted = Copies(replication=settings.cluster_replication, in_sync=settings.cluster_min_insync)
        self.risks = await self._when_reached(lambda: find_risks(self.upstream, wanted, control_topic))
        if not self.risks:
            return wanted
        if not settings.cluster_unsafe:
            raise ClusterUnusable(
                f"{'; '.join(self.risks)}: acknowledged events could be lost (--cluster-unsafe starts anyway)"
            )
        return wanted.at_most(len(self.upstream.brokers))

    def _topics(self) -> Topics:
        settings, catalog = self._settings, self.catalog
        plan = TopicPlan(
            prefix=settings.cluster_prefix,
            replication=self._copies.replication,
            in_sync=self._copies.in_sync,
        )

        def partition_count(hub_uid: str) -> int | None:
            hub = catalog.view.hub_of_uid(hub_uid)
            return None if hub is None else hub.partition_count

        def record(hub_uid: str, topic_id: str) -> None:
            name = _TOPIC_ROW + hub_uid
            if catalog.planned_view.meta(name) is None:
                with suppress(Refusal):  # the engine tries again while the hub is used
                    catalog.submit(Put(Meta(name=name, text=topic_id)))

        def config(hub_uid: str) -> LogConfig:
            hub = catalog.view.hub_of_uid(hub_uid)
            return LogConfig() if hub is None else log_config(hub, settings.segment_bytes)

        return Topics(
            self.upstream,
            plan,
            partition_count,
            config,
            recorded_id=lambda uid: catalog.view.meta(_TOPIC_ROW + uid),
            record=record,
        )

    def _change_topics(self, steps: Sequence[Step], on_done: Callable[[], None]) -> None:
        """Create the topics of hubs that were just created here, before somebody uses them on any gateway.

        Topics of hubs that were changed here are configured, also if no gateway uses them at the moment.

        Who creates a hub is answered when its topic has leaders, so that every gateway can append to it at once. It
        does not wait long: a gateway that uses the hub creates the topic too, if it does not exist.
        """
        for step in steps:
            if isinstance(step, Replace) and isinstance(step.item, Hub):
                self._kafka.reconfigure_soon(step.item.uid, log_config(step.item, self._settings.segment_bytes))
        hubs = [step.item.uid for step in steps if isinstance(step, Create) and isinstance(step.item, Hub)]
        if hubs:
            self._kafka.provide_soon(hubs, on_done, seconds=_TOPIC_SECONDS)
        else:
            on_done()

    @property
    def _kafka(self) -> KafkaEngine:
        assert self._engine is not None
        return self._engine

    @property
    def engine(self) -> LogEngine:
        """The logs on the cluster."""
        return self._kafka

    @property
    def commit_latency(self) -> Histogram:
        """How long appends take until enough brokers have them."""
        return self._kafka.commit_latency

    @property
    def coordination(self) -> Coordination:
        """The coordinators that serve requests of Kafka groups."""
        return KafkaCoordination(
            self.upstream,
            self._settings.cluster_prefix,
            provide=self._kafka.provide,
            failed=CoordinationFailed,
            note_transaction=self._kafka.note_transaction,
        )

    @property
    def capture_role(self) -> ClusterRole:
        """The right to run the capture job."""
        return ClusterRole(self.control, "capture")

    @property
    def shares_units(self) -> bool:
        """True: gateways share the throughput units of a namespace."""
        return True

    def serve(self, broker: Broker, addresses: Addresses, clock: Clock) -> None:
        """Report to the other gateways what this one does, and use its shares of throughput units."""
        partition = OnePartition(
            upstream=self.upstream,
            topic=f"{self._settings.cluster_prefix}pulse",
            replication=self._copies.replication,
            in_sync=self._copies.in_sync,
            lane="pulse",
            retention_ms=RETENTION_MS,
        )
        port = addresses.amqps or addresses.amqp or addresses.kafkas or addresses.kafka
        address = f"{addresses.host}:{port}"
        self._pulse = PulseService(partition, self.control, broker, clock, address=address)
        broker.gateways = self._pulse.gateways
        self._pulse.start()

    # --- shared secrets

    async def _share_secrets(self) -> None:
        """Use the certificate authority and the admin token of the cluster; the first gateway creates them."""
        if self._shared_texts() is None:
            self.secrets.admin_token()
            self.secrets.blob_key()
            self.secrets.ensure_tls(("localhost",), datetime.now(UTC), certificates)
            metas = [
                Meta(name=_SECRET_ROW + name, text=(self.folder / name).read_text(encoding="utf-8"))
                for name in _SHARED_FILES
            ]
            done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
            self.catalog.put_if_absent(*metas, callback=done.set_result)
            async with asyncio.timeout(_WRITE_SECONDS):
                await done
        texts = self._shared_texts()
        if texts is None:
            raise ClusterUnusable("the secrets of the cluster cannot be written to the control log")
        (self.folder / "tls").mkdir(mode=0o700, exist_ok=True)
        for name, text in texts.items():
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")

    def _shared_texts(self) -> dict[str, str] | None:
        found = {name: self.catalog.view.meta(_SECRET_ROW + name) for name in _SHARED_FILES}
        texts = {name: text for name, text in found.items() if text is not None}
        return texts if len(texts) == len(_SHARED_FILES) else None

    # --- stop

    def follow(self, on_foreign: OnAccepted) -> None:
        """Report changes of entities by other gateways."""
        self.catalog.on_foreign = on_foreign

    def check(self, conditions: Conditions) -> None:
        """Report whether this gateway is disconnected from its cluster, or runs without a second copy of events."""
        severity = ConditionSeverity.CRITICAL
        remedy = "Check the Kafka brokers, and the network between them and this gateway."
        if self.control.failure is not None:
            text, remedy = self.control.failure, "Upgrade this gateway to the release of the others."
        elif not self.control.has_lease:
            text = "This gateway is cut off from its Kafka cluster: exclusive readers and management wait."
        elif self._settings.cluster_unsafe:
            severity = ConditionSeverity.WARNING
            why = f": {'; '.join(self.risks)}" if self.risks else ""
            text = f"This gateway runs with cluster_unsafe: a lost broker can lose acknowledged events{why}."
            remedy = "Run three brokers with cluster_replication 3 and cluster_min_insync 2, without cluster_unsafe."
        elif (reloaded := self.control.reloaded) is not None and _is_recent(reloaded[1]):
            severity = ConditionSeverity.WARNING
            text = f"{_sentence(reloaded[0])}; it was loaded again from the last snapshot."
            remedy = "If it happens again, report it with the logs of all gateways, and restart this gateway."
        elif self._pulse is not None and self._pulse.is_silent:
            severity = ConditionSeverity.WARNING
            text = "This gateway reads no reports of other gateways: it uses an equal part of the throughput units."
            remedy = "Check that the topic of the pulse exists and has a leader."
        else:
            if conditions.clear(CLUSTER):
                log.warning("the Kafka cluster is reached again")
            return
        if conditions.set(Condition(name=CLUSTER, severity=severity, text=text, remedy=remedy)):
            log.warning("%s", text)

    async def close(self) -> None:
        """Tell the other gateways that this one stops, and refuse appends that are not acknowledged."""
        if self._pulse is not None:
            await self._pulse.stop()
        if hasattr(self, "control"):
            await self.control.stop()
        if self._engine is not None:
            self._engine.close()
        if hasattr(self, "catalog"):
            self.catalog.close()
        await self.upstream.close()

    def release(self) -> None:
        """Delete the temporary folder."""
        self.audit.close()
        self._temporary.cleanup()


def _own_address(settings: Settings) -> str:
    """The address of this gateway for operators; without a port if the system chooses it."""
    host = settings.hostname[0] if settings.hostname else settings.host
    port = settings.amqps_port or settings.amqp_port or settings.kafkas_port or settings.kafka_port
    return f"{host}:{port}" if port else host


def _is_recent(at: float) -> bool:
    return asyncio.get_running_loop().time() - at < _SHOWN_SECONDS


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _secret(settings: Settings) -> bytes:
    assert settings.cluster_secret_file is not None
    return settings.cluster_secret_file.read_bytes().strip()


def kafka_access(settings: Settings) -> Access:
    """Credentials for the brokers."""
    tls: ssl.SSLContext | None = None
    if settings.cluster_tls:
        ca = None if settings.cluster_tls_ca is None else str(settings.cluster_tls_ca)
        tls = ssl.create_default_context(cafile=ca)
    password = ""
    if settings.cluster_sasl_password_file is not None:
        password = settings.cluster_sasl_password_file.read_text(encoding="utf-8").strip()
    mechanism = None if settings.cluster_sasl == "none" else settings.cluster_sasl.upper()
    return Access(mechanism=mechanism, user=settings.cluster_sasl_user, password=password, tls=tls)
