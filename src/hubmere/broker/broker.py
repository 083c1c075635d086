"""Broker: the whole protocol-neutral surface that endpoints and portal see.

Finds the namespace of a connection, signs clients in, and opens publishers and readers.
No socket, no clock, no waiting: time is an argument, and slow work completes through a callback on the owner's thread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubmere.broker.access.authentication import Access, Principal
from hubmere.broker.access.credentials import AdminToken, BearerToken, Credential
from hubmere.broker.access.network import require_address
from hubmere.broker.access.resources import Resource
from hubmere.broker.access.revocation import Revocation
from hubmere.broker.blobs.accounts import BlobAccounts
from hubmere.broker.caller import Caller
from hubmere.broker.cold.history import Histories
from hubmere.broker.coordinator.coordinators import Coordinators
from hubmere.broker.egress import Client
from hubmere.broker.hubs.counters import Counters
from hubmere.broker.hubs.live import Evicted, LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.recovery import Recovery
from hubmere.broker.hubs.runtime_information import RuntimeInformation
from hubmere.broker.hubs.views import NamespaceView, PartitionView
from hubmere.broker.identity.identities import MANAGEMENT_AUDIENCES, STORAGE_AUDIENCES
from hubmere.broker.management.capture import Captures
from hubmere.broker.management.connections import Connections
from hubmere.broker.management.entities import Entities
from hubmere.broker.management.live_state import LiveState
from hubmere.broker.management.manager import Manager
from hubmere.broker.management.outbox import Outboxes
from hubmere.broker.management.processors import Processors
from hubmere.broker.management.replica import Replicas
from hubmere.broker.monitoring.conditions import Conditions
from hubmere.broker.monitoring.latencies import Latencies
from hubmere.broker.monitoring.loop_lag import LoopLag
from hubmere.broker.monitoring.tracing import Tracer
from hubmere.broker.partition_reader import PartitionReader
from hubmere.broker.places import Places
from hubmere.broker.publish import Publisher
from hubmere.broker.quotas.application_groups import FREE, ClientQuota
from hubmere.broker.quotas.auto_inflate import QUIET_SECONDS
from hubmere.broker.quotas.demand import DemandMeter
from hubmere.broker.quotas.sharing import Sharing
from hubmere.broker.read import OnClosed, OnReady, Reader, ReaderSpec
from hubmere.broker.upkeep import Upkeep
from hubmere.model.capture.cold import ColdSource
from hubmere.model.capture.targets import CaptureTargets
from hubmere.model.entity import Namespace, Rights
from hubmere.model.errors import (
    AdminRequired,
    AliasElsewhere,
    GroupNotFound,
    InvalidAudience,
    NamespaceNotFound,
    NotInTier,
    PartitionNotFound,
    Refusal,
    RoleMissing,
)
from hubmere.model.monitoring.pulse import GatewayStatus
from hubmere.model.names import fold, partition_number
from hubmere.model.position import Position
from hubmere.model.security.roles import Control
from hubmere.model.tier import LimitsBook
from hubmere.store.audit import AuditLog
from hubmere.store.blob_files import BodyStore, MemoryBodies
from hubmere.store.catalog.view import Create
from hubmere.store.engine import Catalog, Chunk, LogEngine

# Default folder of captured files, below the folder in which the node was started.
_CAPTURE_FOLDER = Path("hubmere-capture")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Events of a partition at a position: whole batches around `sequence`, None when nothing is there yet."""

    partition: PartitionView
    sequence: int
    chunk: Chunk | None


class Broker:
    """One node's broker.

    Thread rule: the owner's thread only.
    """

    def __init__(
        self,
        *,
        engine: LogEngine,
        catalog: Catalog,
        book: LimitsBook,
        access: Access,
        default_namespace: str,
        segment_bytes: int,
        default_partition_count: int,
        capture_targets: CaptureTargets | None = None,
        capture_hold_bytes: int | None = None,
        audit: AuditLog | None = None,
        quiet_s: float = QUIET_SECONDS,
        blob_bodies: BodyStore | None = None,
        blob_keys: Mapping[str, Sequence[bytes]] | None = None,
        places: Places | None = None,
        shares_units: bool = False,
        cold_source: ColdSource | None = None,
    ) -> None:
        """`places` and `shares_units` are for gateways: who reads a partition, and throughput units of all gateways."""
        self._catalog = catalog
        self.entities = Entities(lambda: catalog.view)
        self.planned_entities = Entities(lambda: catalog.planned_view)
        self.book = book
        self.access = access
        self.counters = Counters()
        self.connections = Connections()
        self.conditions = Conditions()
        self.loop_lag = LoopLag()
        self.latencies = Latencies()
        self.revocation = Revocation(access, self.connections.open_connections)
        self.audit = AuditLog() if audit is None else audit
        self._namespaces: dict[str, LiveNamespace] = {}
        self.segment_bytes = segment_bytes
        targets = capture_targets or CaptureTargets.in_folder(_CAPTURE_FOLDER)
        histories = None if cold_source is None else Histories(cold_source, targets)
        self._live_state = LiveState(
            catalog,
            engine,
            book,
            self._namespaces,
            segment_bytes,
            self.connections,
            self.revocation,
            places,
            is_shared=shares_units,
            histories=histories,
        )
        # Both exist on gateways only: the share of this gateway, and the measurement of what its clients want.
        self.sharing = Sharing(self._namespaces) if shares_units else None
        self.demand = DemandMeter(self._namespaces) if shares_units else None
        # All gateways of the cluster, for monitoring; there are none beside a single node.
        self.gateways: Callable[[], Sequence[GatewayStatus]] = tuple
        self.manager = Manager(
            catalog,
            book,
            self._live_state,
            default_partition_count=default_partition_count,
            capture_targets=targets,
            histories=histories,
            audit=self.audit,
        )
        self.captures = Captures(catalog, self._namespaces, targets, hold_bytes=capture_hold_bytes)
        self.blob_accounts = BlobAccounts(
            catalog, blob_bodies or MemoryBodies(), blob_keys or {}, lambda: self._own_namespace.entity, self.audit
        )
        self.replicas = Replicas(catalog, book, self.manager.submit)
        self.outboxes = Outboxes()
        self.recovery = Recovery(engine, self._namespaces)
        self.processors = Processors(self.blob_accounts, self._namespace_for_host, self.audit)
        self.coordinators = Coordinators(catalog, self._namespaces, self.audit)
        self.upkeep = Upkeep(
            self._namespaces, self.coordinators, self.manager, self.captures, quiet_s=quiet_s, sharing=self.sharing
        )
        self.default_partition_count = default_partition_count
        self._default_namespace = default_namespace
        self._tracer: Tracer | None = None
        self.runtime_information = RuntimeInformation()

    def trace(self, tracer: Tracer) -> None:
        """Trace all publishers and readers that are opened from now on."""
        self._tracer = tracer

    def open(self, now: float) -> None:
        """Put everything in the catalog into service, and finish what a crash interrupted."""
        for entity in self._catalog.view.namespaces():
            self._live_state.follow(Create(entity), now)
            for hub in self._catalog.view.hubs(entity.name):
                self._live_state.follow(Create(hub), now)
        self._live_state.finish_deletions()

    # --- finding ---

    def _namespace_for_host(self, host: str | None) -> LiveNamespace:
        """The namespace that a client means by the host name it used.

        `{namespace}.anything` and `{alias}.anything` name one; any other name, an address or none means the node's own
        namespace, so that `localhost` needs no DNS. An alias whose primary is on another node is refused.
        """
        label = fold((host or "").split(":")[0].split(".")[0])
        live = self._namespaces.get(label)
        if live is None and label:
            alias = self._catalog.view.find_alias(label)
            live = None if alias is None else self._namespaces.get(fold(alias.namespace))
        if live is None and label and (elsewhere := self._catalog.view.find_secondary(label)) is not None:
            raise AliasElsewhere(elsewhere.name, elsewhere.partner_namespace)
        return live if live is not None else self._own_namespace

    def namespace_at(self, host: str | None) -> NamespaceView:
        """The namespace that a client means by the host name it used; see `_namespace_for_host`."""
        return self._namespace_for_host(host).view

    def namespace_views(self) -> list[NamespaceView]:
        """Every namespace by name, for monitoring of the whole node."""
        return [live.view for _, live in sorted(self._namespaces.items())]

    def split_hub_path(self, host: str | None, path: str) -> tuple[str | None, str]:
        """The host and the hub that a URL means: `hub`, or `namespace/hub` where host names cannot be used.

        The second form is recognized unless the namespace of the host has a hub of that name: hubs from the emulator's
        configuration may have slashes in their names.
        """
        first, slash, rest = path.partition("/")
        if slash and fold(first) in self._namespaces and fold(path) not in self._namespace_for_host(host).hubs:
            return first, rest
        return host, path

    def count_refused_request(self, namespace: str, *, is_server_error: bool) -> None:
        """Count a request that was refused before a hub could count it."""
        counters = self._namespace(namespace).counters
        counters.incoming_requests += 1
        counters.refused_requests += 1
        if is_server_error:
            counters.server_errors += 1
        else:
            counters.user_errors += 1

    @property
    def _own_namespace(self) -> LiveNamespace:
        """The node's default namespace, for host names that name no other."""
        return self._namespace(self._default_namespace)

    def _namespace(self, name: str) -> LiveNamespace:
        """A namespace by its name in any case."""
        live = self._namespaces.get(fold(name))
        if live is None:
            raise NamespaceNotFound(f"sb://{name}")
        return live

    def has_kafka(self, namespace: Namespace) -> bool:
        """Whether Kafka clients may use a namespace."""
        return namespace.kafka_enabled and self.book.of(namespace.tier).has_kafka

    def require_kafka(self, namespace: Namespace) -> None:
        """Refuse Kafka clients where the tier or the namespace has no Kafka."""
        if not self.has_kafka(namespace):
            raise NotInTier("The Kafka endpoint", namespace.tier, "has_kafka")

    # --- signing in ---

    def connect(self, host: str | None, address: str) -> Caller:
        """A client without a credential yet, which will present one or more (AMQP).

        `host` is the name by which the client knows this node, `address` the network address it comes from.
        """
        live = self._namespace_for_host(host)
        require_address(live.entity, address)
        return Caller(self, live, address=address, collects_claims=True)

    def sign_in(
        self, host: str | None, credential: Credential, *, address: str, now_s: float, is_kafka: bool = False
    ) -> Caller:
        """A client with one credential (Kafka, HTTP, the portal); see `caller` for the order of the checks."""
        live = self._namespace_for_host(host or self._host_in(credential))
        require_address(live.entity, address)
        principal = self.verify(live, credential, now_s)
        return Caller(self, live, principal, address=address, is_kafka=is_kafka)

    def sign_in_to_blobs(self, credential: Credential, *, address: str, now_s: float) -> Caller:
        """A client of the Blob endpoint with a bearer token, which may be one for Azure Storage."""
        live = self._own_namespace
        if not isinstance(credential, BearerToken):
            return self.sign_in(None, credential, address=address, now_s=now_s)
        principal = self.access.by_bearer_token(live.entity, credential, now_s, STORAGE_AUDIENCES)
        return Caller(self, live, principal, address=address)

    def _host_in(self, credential: Credential) -> str | None:
        """The host that an OAuth token was issued for: the default for a client that names no host (Kafka)."""
        return self.access.identities.audience_host(credential.text) if isinstance(credential, BearerToken) else None

    def sign_in_manager(
        self,
        namespace: str,
        credential: Credential,
        now_s: float,
        *,
        hub: str | None = None,
        control: Control = Control.WRITE,
    ) -> Caller:
        """A client that manages a namespace: the administrator, a holder of Manage on it, or an identity with a role.

        A role may be on the hub that is managed; `control` is what the role must allow.

        Network rules do not apply to management; otherwise nobody could repair a rule that excludes everybody. A
        namespace that does not exist is reported to the administrator only.
        """
        live = self._namespaces.get(fold(namespace))
        if isinstance(credential, AdminToken):
            principal = self.access.by_admin_token(credential)
        elif live is None:
            raise AdminRequired
        else:
            principal = self._verify_manager(live, credential, now_s, hub, control)
        if live is None:
            raise NamespaceNotFound(f"sb://{namespace}")
        return Caller(self, live, principal)

    def _verify_manager(
        self, live: LiveNamespace, credential: Credential, now_s: float, hub: str | None, control: Control
    ) -> Principal:
        own = Resource.of_namespace(live.entity.name)
        if not isinstance(credential, BearerToken):
            principal = self.verify(live, credential, now_s)
            principal.require(Rights.MANAGE, own)
            return principal
        principal = self.access.by_bearer_token(live.entity, credential, now_s, MANAGEMENT_AUDIENCES)
        resource = own if hub is None else Resource.of_hub(live.entity.name, hub)
        if principal.controls(resource) < control:
            raise RoleMissing(control.name, str(resource))
        return principal

    def sign_in_person(self, credential: BearerToken, *, address: str, now_s: float) -> Caller:
        """A person with a token of an OAuth issuer, in the first namespace where they have a role (the portal).

        The node's own namespace is the first one; raises RoleMissing if there is no role anywhere.
        """
        own = self._own_namespace
        others = [live for _, live in sorted(self._namespaces.items()) if live is not own]
        refusal: Refusal | None = None
        for live in (own, *others):
            try:
                principal = self.verify(live, credential, now_s)
            except InvalidAudience as wrong:
                refusal = refusal or wrong
                continue
            if principal.grants:
                require_address(live.entity, address)
                return Caller(self, live, principal, address=address)
            refusal = RoleMissing(Control.READ.name, own.entity.name)
        raise refusal or RoleMissing(Control.READ.name, own.entity.name)

    def sign_in_admin(self, credential: Credential) -> Caller:
        """The node's administrator, and nobody else."""
        if not isinstance(credential, AdminToken):
            raise AdminRequired
        return Caller(self, self._own_namespace, self.access.by_admin_token(credential))

    def administrator(self) -> Caller:
        """A caller with all rights, for actions of the node without a client: the portal's one-time link, the demo."""
        return Caller(self, self._own_namespace, Principal.admin())

    def verify(self, live: LiveNamespace, credential: Credential, now_s: float) -> Principal:
        """What a credential proves in a namespace."""
        return self.access.verify(live.entity, credential, now_s)

    def client_quota_of(self, namespace: LiveNamespace, principal: Principal | None) -> ClientQuota:
        """The rate limits of a client's application group, which apply in addition to throughput units."""
        if principal is None or principal.is_admin:
            return FREE
        return namespace.application_groups.client_quota(principal.client, principal.client_kind)

    # --- publishing ---

    def open_publisher(
        self,
        hub: LiveHub,
        *,
        partition: str | None = None,
        publisher: str | None = None,
        evict: Evicted | None = None,
        lenient: bool = False,
        principal: Principal | None = None,
    ) -> Publisher:
        """A publisher for a caller whose right to send was checked; `principal` is whose quota it counts against."""
        number = (
            None if partition is None else partition_number(partition, hub=hub.name, count=hub.entity.partition_count)
        )
        hub.require_sending(publisher)
        return Publisher(
            hub,
            partition=number,
            name=publisher,
            on_closed=evict,
            is_lenient=lenient,
            client_quota=self.client_quota_of(hub.namespace, principal),
            tracer=self._tracer,
        )

    # --- reading ---

    def subscribe(
        self,
        hub: LiveHub,
        *,
        group: str,
        partition: str,
        position: Position,
        epoch: int | None,
        name: str | None,
        wake: OnReady,
        evict: OnClosed,
        principal: Principal | None = None,
    ) -> Reader:
        """A reader of a partition in a group, for callers whose right to listen was checked.

        The position is fixed now: `latest` means what is committed after this call. Call `start` to be woken.
        """
        known = self._catalog.view.find_group(hub.entity, group)
        if known is None:
            raise GroupNotFound(hub.namespace.resource(hub.name, "ConsumerGroups", group))
        spec = ReaderSpec(
            group=fold(known.name),
            partition=partition_number(partition, hub=hub.name, count=hub.entity.partition_count),
            position=position,
            epoch=epoch,
            name=name,
            on_ready=wake,
            on_closed=evict,
        )
        hub.require_receiving()
        return hub.readers.open(hub, spec, self._reading_client(hub, principal))

    def follow(
        self,
        hub: LiveHub,
        partition: int,
        on_moved: OnReady,
        *,
        principal: Principal | None = None,
        stored_only: bool = False,
    ) -> PartitionReader:
        """A reader without a group or an epoch, for a caller whose right to listen was checked (Kafka)."""
        if not 0 <= partition < hub.entity.partition_count:
            raise PartitionNotFound(hub.name, str(partition), hub.entity.partition_count)
        hub.require_receiving()
        client = self._reading_client(hub, principal)
        return PartitionReader(hub, partition, on_moved, client, stored_only=stored_only)

    def _reading_client(self, hub: LiveHub, principal: Principal | None) -> Client:
        return Client(
            client_quota=self.client_quota_of(hub.namespace, principal),
            captures_hub="" if principal is None else principal.captures_hub,
            tracer=self._tracer,
        )

    def peek(self, hub: LiveHub, *, group: str, partition: str, position: Position, max_bytes: int) -> Peek:
        """Closed batches from a position on, without becoming a reader: for tools that show events.

        Does not count as a reader and uses no epoch; for callers whose right to listen was checked.
        """
        if self._catalog.view.find_group(hub.entity, group) is None:
            raise GroupNotFound(hub.namespace.resource(hub.name, "ConsumerGroups", group))
        number = partition_number(partition, hub=hub.name, count=hub.entity.partition_count)
        hub.require_receiving()
        log = hub.current_log(number, position)
        sequence = log.find(position)
        chunk = hub.read_now(log, number, sequence, max_bytes)
        return Peek(partition=hub.view.partition(number), sequence=sequence, chunk=chunk)
