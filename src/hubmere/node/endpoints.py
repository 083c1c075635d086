"""Composes the endpoints of a node: binds the ports, builds AMQP, Kafka, HTTP and the portal, and serves them."""

import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final

from hubmere import __version__
from hubmere.broker.blobs.service import INLINE_BYTES
from hubmere.broker.broker import Broker
from hubmere.broker.coalesce import Coalescer
from hubmere.broker.coordinator.consumer_group.members import ConsumerGroupConfig
from hubmere.endpoints.amqp.endpoint import AmqpEndpoint
from hubmere.endpoints.coalescing import build_coalescer
from hubmere.endpoints.connections import ConnectionLimits
from hubmere.endpoints.http.pairing.partners import Partner, Partners
from hubmere.endpoints.http.server.app import HttpApp, build_app
from hubmere.endpoints.http.server.server import HttpServers
from hubmere.endpoints.kafka.endpoint import KafkaEndpoint
from hubmere.endpoints.listener import Listener, bind
from hubmere.endpoints.memory import MemoryBudget
from hubmere.endpoints.stream import StreamSession
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.monitoring.history import HistoryStore
from hubmere.node.identity import portal_providers
from hubmere.node.runtime.memory import memory_budget_bytes, trim_memory
from hubmere.node.tls import NodeTls, read_certificate
from hubmere.portal import Portal
from hubmere.portal.node_facts import NodeFacts
from hubmere.settings import PartnerSetting, Settings

if TYPE_CHECKING:
    from hubmere.endpoints.kafka.forward.port import Coordination
    from hubmere.endpoints.sign_in_provider import OpenIdProvider
    from hubmere.endpoints.tracing import Spans
    from hubmere.model.capture.files import CapturedFiles
    from hubmere.node.local_identity import LocalIdentity

_TLS_SERVICES = ("amqps", "kafkas", "https")
# The protocol whose share of the connections a port uses; HTTP counts its own.
_PROTOCOLS: Final = {"amqp": "AMQP", "amqps": "AMQP", "kafka": "Kafka", "kafkas": "Kafka"}


class NodeEndpoints:
    """The endpoints and ports of one node. Thread rule: the loop's thread only.

    `open` binds every port before it builds the first endpoint, because each protocol advertises the addresses of the
    others. `addresses` exists once `open` has returned.
    """

    addresses: Addresses

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        clock: Clock,
        *,
        spans: "Spans | None",
        history: HistoryStore,
        data_folder: str,
        open_identity: "Callable[[Addresses], LocalIdentity] | None" = None,
        coordination: "Coordination | None" = None,
    ) -> None:
        self._coordination = coordination
        self._settings = settings
        self._broker = broker
        self._clock = clock
        self._spans = spans
        self._history = history
        self._data_folder = data_folder
        # Opens the node's own OAuth issuer, once its address is known.
        self._open_identity = open_identity
        self.local_identity: LocalIdentity | None = None
        self._listener: Listener | None = None
        self._http: HttpServers | None = None
        self._amqp: AmqpEndpoint | None = None
        self._kafka: KafkaEndpoint | None = None
        self._portal: Portal | None = None
        self._partners = Partners(broker, clock, map(_partner, settings.partners))

    @property
    def portal_path(self) -> str:
        """Path and query of the link by which a person first opens the portal."""
        return "" if self._portal is None else self._portal.first_link

    def replicate(self) -> Coroutine[None, None, None]:
        """The loop that replicates namespaces to partners on other nodes."""
        return self._partners.run()

    async def record_history(self) -> None:
        """The loop that records the history of the node's metrics for the portal."""
        if self._portal is not None:
            await self._portal.record_history()

    async def open(self, tls: NodeTls) -> None:
        """Bind and serve every port of the settings."""
        settings, broker = self._settings, self._broker
        bound = {name: self._bind(name, port) for name, port in self._wanted_ports()}
        self.addresses = Addresses(
            namespace=settings.namespace,
            hostnames=settings.hostname,
            advertised=settings.advertised_listeners,
            ca_file=tls.ca_file,
            **{name: None if entry is None else entry[1] for name, entry in bound.items()},
        )
        sessions, app = self._build(tls)
        limits = ConnectionLimits(
            settings.max_connections,
            broker.counters.count_opened,
            broker.counters.count_closed,
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
            context = tls.context if name in _TLS_SERVICES else None
            if name in sessions:
                await listener.serve(entry[0], sessions[name], context, protocol=_PROTOCOLS[name])
            else:
                await http.serve(name, entry[0], context)

    def _wanted_ports(self) -> tuple[tuple[str, int | None], ...]:
        settings = self._settings
        return (
            ("amqp", settings.amqp_port),
            ("amqps", settings.amqps_port),
            ("kafka", settings.kafka_port),
            ("kafkas", settings.kafkas_port),
            ("http", settings.http_port),
            ("https", settings.https_port),
        )

    def _bind(self, service: str, port: int | None) -> tuple[socket.socket, int] | None:
        return None if port is None else bind(service, self._settings.host, port)

    def _build(self, tls: NodeTls) -> tuple[dict[str, Callable[[], StreamSession]], HttpApp]:
        """The makers of stream sessions by service, and the HTTP application."""
        memory = MemoryBudget(
            memory_budget_bytes(self._settings.memory_budget_bytes),
            on_refused=self._broker.counters.count_memory_refusal,
            trim=trim_memory,
        )
        coalescer = build_coalescer(self._clock)
        amqp = self._amqp = self._build_amqp(memory, coalescer)
        kafka = self._kafka = self._build_kafka(memory)
        sessions: dict[str, Callable[[], StreamSession]] = {
            "amqp": amqp.session,
            "amqps": amqp.session,
            "kafka": lambda: kafka.session(is_secure=False),
            "kafkas": lambda: kafka.session(is_secure=True),
        }
        return sessions, self._build_http(amqp, memory, coalescer, tls)

    def _build_amqp(self, memory: MemoryBudget, coalescer: Coalescer) -> AmqpEndpoint:
        settings = self._settings
        return AmqpEndpoint(
            self._broker,
            self._clock,
            self.addresses,
            idle_timeout_s=settings.amqp_idle_timeout_s,
            handshake_timeout_s=settings.handshake_timeout_s,
            takes_certificates=settings.tls_client_ca is not None,
            memory=memory,
            coalescer=coalescer,
        )

    def _build_kafka(self, memory: MemoryBudget) -> KafkaEndpoint:
        settings = self._settings
        return KafkaEndpoint(
            self._broker,
            self._clock,
            self.addresses,
            idle_timeout_s=settings.kafka_idle_timeout_s,
            handshake_timeout_s=settings.handshake_timeout_s,
            auto_create_hubs=settings.auto_create_hubs,
            consumer_groups=ConsumerGroupConfig(
                session_timeout_s=settings.group_consumer_session_timeout_s,
                heartbeat_interval_s=settings.group_consumer_heartbeat_interval_s,
                max_size=settings.group_consumer_max_size,
            ),
            memory=memory,
            coordination=self._coordination,
        )

    def _build_http(self, amqp: AmqpEndpoint, memory: MemoryBudget, coalescer: Coalescer, tls: NodeTls) -> HttpApp:
        app = build_app(
            self._broker,
            self._clock,
            self.addresses,
            body_limit_bytes=self._settings.http_body_bytes,
            amqp_session=lambda: amqp.session("AMQP over WebSocket"),
            partners=self._partners,
            memory=memory,
            coalescer=coalescer,
        )
        if self._spans is not None:
            app.trace(self._spans)
        facts = NodeFacts(
            version=__version__,
            data_folder=self._data_folder,
            kafka_brokers=", ".join(f"{host}:{port}" for host, port in self._settings.cluster_kafka),
            has_private_ca=tls.ca_file is not None,
            read_certificate=partial(read_certificate, tls),
        )
        if self._open_identity is not None:
            self.local_identity = self._open_identity(self.addresses)
            for segment in self.local_identity.issuer.mounts:
                app.mount(segment, self.local_identity.issuer)
        self._portal = Portal(
            self._broker,
            self._clock,
            self.addresses,
            self._history,
            facts,
            _open_captured_folders,
            providers=self._sign_in_providers(),
        )
        app.mount("portal", self._portal, is_home=True)
        for account in self._broker.blob_accounts.names:
            app.mount_blobs(account, max_bytes=self._largest_blob_bytes)
        return app

    def _sign_in_providers(self) -> "list[OpenIdProvider]":
        """The issuers at which people may sign in to the portal."""
        found = portal_providers(self._settings)
        if self.local_identity is not None:
            found.append(self.local_identity.portal)
        if not found:
            return []
        from hubmere.endpoints.sign_in_provider import OpenIdProvider

        return [OpenIdProvider(each, self._clock) for each in found]

    @property
    def _largest_blob_bytes(self) -> int:
        """A gateway has no files: it keeps blobs that fit into a row of the catalog."""
        limit = self._settings.blob_max_bytes
        return min(limit, INLINE_BYTES) if self._settings.is_gateway else limit

    async def stop(self) -> None:
        """Close the ports, and close every connection as its protocol prescribes."""
        if self._http is not None:
            await self._http.stop()
        if self._portal is not None:
            await self._portal.stop()
        if self._listener is not None:
            await self._listener.stop()
        if self._amqp is not None:
            self._amqp.close()
        if self._kafka is not None:
            self._kafka.close()


def _open_captured_folders() -> "CapturedFiles":
    """The captured files of this machine; loaded when somebody looks at them."""
    from hubmere.capture.browse import CapturedFolders

    return CapturedFolders()


def _partner(setting: PartnerSetting) -> Partner:
    ca_file = None if setting.ca_file is None else str(setting.ca_file)
    return Partner(name=setting.name, url=setting.url, token=setting.token, ca_file=ca_file)
