"""Caller: one client of one namespace. Endpoints and the portal use hubs only through a Caller.

All checks before a client may publish, read or manage are made here, once, in this order:

1. address: `Broker.connect` and `Broker.sign_in` refuse a client whose network address the namespace does not allow;
2. connection limit: `Caller.open_connection` refuses a connection beyond the tier's number;
3. credential: `authenticate` verifies the credential and keeps it as a claim;
4. right: `require` finds a claim that gives the right on the resource, by the rules in force;
5. existence: only then a missing hub, group or partition is reported, so that refusals do not reveal names;
6. quota: publishers and readers carry the client's quota and the namespace's throughput units.

A protocol with one credential per connection or request (Kafka, HTTP) uses `Broker.sign_in`. AMQP proves rights one
after another over `$cbs`: it uses `Broker.connect` and adds claims. Thread rule: the owner's thread only.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from hubmere.broker.access.authentication import Principal
from hubmere.broker.access.claims import Claims, is_same_holder, limit_to_audience
from hubmere.broker.access.credentials import Credential
from hubmere.broker.access.network import is_allowed, require_address
from hubmere.broker.access.resources import Resource, events_of, path_below
from hubmere.broker.access.revocation import Judge
from hubmere.broker.coordinator.coordinators import Coordinator
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.views import HubView, NamespaceView, PartitionView
from hubmere.broker.partition_reader import PartitionReader
from hubmere.broker.publish import Publisher
from hubmere.broker.read import Reader
from hubmere.broker.used_hubs import UsedHubs
from hubmere.model.entity import Rights
from hubmere.model.errors import (
    ClaimMissing,
    CredentialRevoked,
    HubNotFound,
    LimitReached,
    MalformedToken,
    MissingToken,
    NamespaceNotFound,
    Refusal,
)
from hubmere.model.names import fold
from hubmere.model.position import Position
from hubmere.model.security.roles import Control

if TYPE_CHECKING:
    from hubmere.broker.broker import Broker, Peek
    from hubmere.broker.hubs.runtime_information import HubInfo, PartitionInfo

# The node below a hub that answers questions about it (AMQP).
MANAGEMENT_NODE: Final = "$management"

OnClosed = Callable[[Refusal], None]
OnReady = Callable[[], None]


class Caller:
    """One client of one namespace.

    `is_kafka` callers need a namespace with a Kafka endpoint, and name hubs by their exact spelling, since topic names
    differ by case. `collects_claims` callers (AMQP) prove rights one after another, and any claim may allow a request.
    """

    __slots__ = (
        "_broker",
        "_claims",
        "_collects_claims",
        "_is_kafka",
        "_live",
        "_used",
        "_version",
        "address",
        "is_connected",
        "revision",
    )

    def __init__(
        self,
        broker: "Broker",
        live: LiveNamespace,
        *claims: Principal,
        address: str = "",
        is_kafka: bool = False,
        collects_claims: bool = False,
    ) -> None:
        self._broker = broker
        self._live = live
        self._claims = Claims(*claims)
        self._is_kafka = is_kafka
        self._collects_claims = collects_claims
        # The version of the catalog at the last check of the claims.
        self._version = broker._catalog.view.version
        self._used = UsedHubs()
        self.address = address
        self.is_connected = False
        # Grows when rights have to be checked again: after a new credential, or after a change of rights.
        self.revision = 0

    # --- identity

    @property
    def namespace(self) -> NamespaceView:
        """The namespace of this caller."""
        return self._live.view

    @property
    def namespace_key(self) -> str:
        """The folded name of the namespace."""
        return fold(self._live.entity.name)

    @property
    def principal(self) -> Principal:
        """The first claim; raises MissingToken if there is none."""
        for claim in self._claims:
            return claim
        raise MissingToken

    @property
    def claims(self) -> Claims:
        """All claims."""
        return self._claims

    @property
    def is_authenticated(self) -> bool:
        """Whether there is a claim."""
        return len(self._claims) > 0

    @property
    def is_admin(self) -> bool:
        """Whether this is the node's administrator."""
        return any(claim.is_admin for claim in self._claims)

    @property
    def is_namespace_gone(self) -> bool:
        """Whether the namespace was deleted, or created again, since the caller signed in."""
        return self._broker._namespaces.get(self.namespace_key) is not self._live

    def is_current(self, now_s: float) -> bool:
        """Whether no entity has changed and no claim has expired since the caller signed in."""
        if self._version != self._broker._catalog.view.version:
            return False
        for claim in self._claims:  # noqa: SIM110 - asked for every HTTP request: a generator takes twice as long
            if claim.is_expired(now_s):
                return False
        return True

    def authenticate(self, credential: Credential, now_s: float, *, audience: str | None = None) -> Principal:
        """Verify a credential and keep its claim.

        `audience` is the address for which an AMQP client presents the credential; it may be less than the credential
        covers, and then the claim is limited to it.
        """
        principal = self._broker.verify(self._live, credential, now_s)
        if audience is not None:
            principal = limit_to_audience(principal, audience, self._live.hubs)
        self.add_claim(principal, now_s)
        return principal

    def add_claim(self, principal: Principal, now_s: float) -> None:
        """Keep a claim that was verified before; refused if it was revoked since."""
        judged = self._broker.revocation.judge(principal, now_s)
        if self._collects_claims:
            self._claims.add(judged)
        else:
            self._claims.replace(judged)

    def reauthenticate(self, host: str | None, credential: Credential, now_s: float) -> Principal:
        """Replace the credential of an open connection; it must prove the same principal (Kafka, KIP-368)."""
        live = self._broker._namespace_for_host(host or self._broker._host_in(credential))
        require_address(live.entity, self.address)
        principal, current = self._broker.verify(live, credential, now_s), self.principal
        if not is_same_holder(principal, current):
            raise MalformedToken("Re-authentication must use the same principal.")
        self._claims.replace(principal)
        self._forget_hubs()
        return principal

    def _forget_hubs(self) -> None:
        """Ask for every right again at its next use."""
        self._used.clear()
        self.revision += 1

    # --- connections

    def open_connection(self) -> None:
        """Count one more connection of the namespace; refused beyond the tier's number."""
        live, counters = self._live, self._live.counters
        limit = live.limits.all_connections(live.entity.capacity)
        if limit is not None and counters.active_connections >= limit:
            counters.quota_exceeded_errors += 1
            setting = "connections" if live.limits.connections_per_unit is None else "connections_per_unit"
            raise LimitReached("connections", limit, setting)
        counters.connections_opened += 1
        self.is_connected = True

    def close_connection(self) -> None:
        """The connection is closed; closing twice is harmless."""
        self._forget_hubs()
        if self.is_connected:
            self.is_connected = False
            self._live.counters.connections_closed += 1

    # --- rights

    def require_reachable(self) -> None:
        """Refuse when the network rules or the tier no longer allow this client."""
        require_address(self._live.entity, self.address)
        if self._is_kafka:
            self._broker.require_kafka(self._live.entity)

    @property
    def has_allowed_address(self) -> bool:
        """Whether the current network rules allow the address of this client."""
        return is_allowed(self._live.entity, self.address)

    def require(self, right: Rights, resource: Resource, now_s: float) -> Principal:
        """The claim that gives one of the rights on a resource; refused when none does."""
        if not self._collects_claims:
            principal = self.principal
            principal.require(right, resource)
            if principal.is_rotated and resource.hub not in self._used.names:
                raise CredentialRevoked(principal.rule)
            return principal
        if self._version != self._broker._catalog.view.version:
            self.review(self._broker.revocation.judge, now_s)
        claim = self._claims.find(right, resource, now_s)
        if claim is None:
            raise ClaimMissing(" or ".join(right.names), f"sb://{resource}")
        return claim

    def may(self, right: Rights, hub: str | None = None) -> bool:
        """Whether a claim gives one of the rights on the namespace, or on one of its hubs."""
        resource = self.resource() if hub is None else self.resource(hub)
        return any(claim.may(right, resource) for claim in self._claims)

    def controls(self, hub: str | None = None) -> Control:
        """How far the caller may manage the namespace, or one of its hubs."""
        resource = self.resource() if hub is None else self.resource(hub)
        return max((claim.controls(resource) for claim in self._claims), default=Control.NONE)

    def resource(self, *path: str) -> Resource:
        """The namespace, or a resource below it: a hub, then `consumergroups`, a group, and so on."""
        name = self._live.entity.name
        return Resource.of_hub(name, *path) if path else Resource.of_namespace(name)

    def events_of(self, hub: str, *below: str) -> Resource:
        """The events of a hub or of a part of it: what a link publishes to or reads from."""
        return events_of(self._live.entity.name, hub, *below)

    def keeps_open(self, right: Rights, resource: Resource, now_s: float) -> bool:
        """Whether an open link may stay open by the claims that are left."""
        return self._claims.keeps_open(right, resource, now_s)

    def review(self, judge: Judge, now_s: float) -> Refusal | None:
        """Check the claims again by the current rules; returns why the last dropped one was dropped."""
        self._version = self._broker._catalog.view.version
        return self._claims.review(judge, now_s)

    def require_in_use(self, principal: Principal) -> None:
        """Refuse when the caller publishes or reads now and the principal no longer allows it."""
        for hubs, right in ((self._used.publishers, Rights.SEND), (self._used.readable, Rights.LISTEN)):
            for hub in hubs:
                if not principal.may(right, events_of(self._live.entity.name, hub)):
                    raise ClaimMissing(right.names[0], f"sb://{self._live.entity.name}/{hub}")

    def review_connection(self, judge: Judge, now_s: float) -> None:
        """Check a connection with one credential by the current rules; raises the reason to close it (Kafka)."""
        self.require_reachable()
        current = self.principal
        principal = judge(current, now_s)
        if principal is not current:
            self.require_in_use(principal)
        self._claims.replace(principal)
        has_changed = principal.rights != current.rights or principal.grants != current.grants
        if has_changed and not principal.is_rotated:
            self._forget_hubs()

    # --- namespaces and hubs

    def namespaces(self) -> list[NamespaceView]:
        """The namespaces that the caller may see, by name: all of them for the administrator."""
        found = sorted(self._broker._namespaces.items())
        return [live.view for _, live in found if live is self._live or self.is_admin]

    def at(self, namespace: str) -> "Caller":
        """The same client in another namespace; one that it may not see is reported as missing."""
        if fold(namespace) == self.namespace_key:
            return self
        live = self._broker._namespaces.get(fold(namespace)) if self.is_admin else None
        if live is None:
            raise NamespaceNotFound(f"sb://{namespace}")
        return Caller(self._broker, live, *self._claims, address=self.address)

    def hubs(self) -> list[HubView]:
        """The hubs that a claim covers, by name."""
        hubs = [live.view for _, live in sorted(self._live.hubs.items())]
        # A credential of the namespace covers all hubs; checking each of a thousand every second would be slow.
        if self.covers():
            return hubs
        return [hub for hub in hubs if self.covers(hub.name)]

    def usable_hubs(self, right: Rights) -> list[HubView]:
        """The hubs on which a claim gives one of the rights, by name; none where the tier does not allow the client."""
        if self._is_kafka and not self._broker.has_kafka(self._live.entity):
            return []
        name = self._live.entity.name
        hubs = sorted(self._live.hubs.values(), key=lambda hub: hub.name)
        return [hub.view for hub in hubs if any(claim.may(right, events_of(name, hub.name)) for claim in self._claims)]

    def require_on_namespace(self, right: Rights, now_s: float) -> None:
        """Refuse a caller without a right on the whole namespace."""
        if self._is_kafka:
            self._broker.require_kafka(self._live.entity)
        self.require(right, self.resource(), now_s)

    def covers(self, hub: str | None = None) -> bool:
        """Whether a claim covers the whole namespace, or one of its hubs."""
        resource = self.resource() if hub is None else self.resource(hub)
        return any(claim.covers(resource) for claim in self._claims)

    def visible_hub(self, name: str) -> HubView:
        """A hub that a claim covers, whatever the right; any other is reported as missing."""
        live = self._live.hubs.get(fold(name))
        if live is None or not self.covers(live.name):
            raise HubNotFound(self._live.resource(name))
        return live.view

    def hub(self, name: str, right: Rights, now_s: float) -> HubView:
        """A hub on which a claim gives one of the rights."""
        return self._hub(name, right, now_s).view

    def partition(self, hub: str, partition: str, right: Rights, now_s: float) -> PartitionView:
        """A partition of a hub on which a claim gives one of the rights."""
        return self._hub(hub, right, now_s).view.partition_of(partition)

    # --- runtime information (AMQP management)

    def hub_info(self, hub: str, credential: Credential | None, *, now: float, now_s: float) -> "HubInfo":
        """Name, age and partitions of a hub, for clients with any right on it.

        The right comes from a claim, or from a credential that counts for this request alone. A credential that comes
        with the request must be valid, even if a claim gives the right.
        """
        return self._broker.runtime_information.hub_info(self._described_hub(hub, credential, now_s), now)

    def partition_info(
        self, hub: str, partition: str, credential: Credential | None, *, now: float, now_s: float
    ) -> "PartitionInfo":
        """First and last position of a partition, for clients with any right on its hub; see `hub_info`."""
        return self._broker.runtime_information.partition_info(
            self._described_hub(hub, credential, now_s), partition, now
        )

    def _described_hub(self, hub: str, credential: Credential | None, now_s: float) -> HubView:
        # JavaScript clients have a token for the management node of a hub, which does not cover the hub itself.
        resource = self.resource(hub, MANAGEMENT_NODE)
        principal = None if credential is None else self._broker.verify(self._live, credential, now_s)
        if self._claims.find(Rights.ALL, resource, now_s) is None:
            if principal is None:
                raise MissingToken
            principal.require(Rights.ALL, resource)
        return self._live.hub(hub).view

    def _hub(self, name: str, right: Rights, now_s: float) -> LiveHub:
        return self._require_hub(name, right, (), now_s, is_events=bool(right & Rights.SEND))[0]

    def _require_hub(
        self, name: str, right: Rights, below: Sequence[str], now_s: float, *, is_events: bool
    ) -> tuple[LiveHub, Principal]:
        """The hub of a path on which a claim gives the right, and that claim: the right first, then existence."""
        live = self._live
        if self._is_kafka:
            self._broker.require_kafka(live.entity)
        path = (live.entity.name, name, *below)
        resource = events_of(*path) if is_events else Resource.of_hub(*path)
        principal = self.require(right, resource, now_s)
        hub = live.hubs.get(fold(name))
        # Topic names differ by case, hub names do not: another spelling is another topic, which does not exist.
        if hub is None or (self._is_kafka and hub.entity.name != name):
            raise HubNotFound(live.resource(name))
        self._used.add_name(fold(name))
        return hub, principal

    # --- publishing

    def publisher(self, hub: str, now_s: float) -> Publisher:
        """A cached publisher to a hub, for protocols that name the hub with every request."""
        cached = self._used.publishers.get(hub)
        if cached is not None and cached.is_current:
            return cached
        publisher = self.open_publisher(hub, now_s)
        self._used.add_publisher(hub, publisher)
        return publisher

    def open_publisher(
        self,
        hub: str,
        now_s: float,
        *,
        partition: str | None = None,
        publisher: str | None = None,
        on_closed: OnClosed | None = None,
        is_idempotent: bool = False,
    ) -> Publisher:
        """A new publisher to a hub, to one of its partitions or to a publisher's path.

        `on_closed` is called once when the hub or the publisher is closed while the publisher is open.
        """
        below = path_below(partition=partition, publisher=publisher)
        live, principal = self._require_hub(hub, Rights.SEND, below, now_s, is_events=True)
        return self._broker.open_publisher(
            live, partition=partition, publisher=publisher, evict=on_closed, lenient=is_idempotent, principal=principal
        )

    @property
    def published_hubs(self) -> Sequence[str]:
        """The hubs to which this caller has a cached publisher."""
        return tuple(self._used.publishers)

    # --- reading

    def reader(
        self,
        hub: str,
        now_s: float,
        *,
        group: str,
        partition: str,
        position: Position,
        on_ready: OnReady,
        on_closed: OnClosed,
        epoch: int | None = None,
        name: str | None = None,
    ) -> Reader:
        """A reader of one partition in a consumer group.

        The position is fixed now: `latest` means what is committed after this call. After `start`, `on_ready` is called
        whenever there may be more to read. `on_closed` is called once when the reader must give way.
        """
        below = path_below(group=group, partition=partition)
        live, principal = self._require_hub(hub, Rights.LISTEN, below, now_s, is_events=True)
        return self._broker.subscribe(
            live,
            group=group,
            partition=partition,
            position=position,
            epoch=epoch,
            name=name,
            wake=on_ready,
            evict=on_closed,
            principal=principal,
        )

    def peek(self, hub: str, now_s: float, *, group: str, partition: str, position: Position, max_bytes: int) -> "Peek":
        """Events from a position on, without becoming a reader: for tools that show events.

        Uses no epoch and does not count as a reader of the group.
        """
        below = path_below(group=group, partition=partition)
        live, _ = self._require_hub(hub, Rights.LISTEN, below, now_s, is_events=True)
        return self._broker.peek(live, group=group, partition=partition, position=position, max_bytes=max_bytes)

    def readable(self, hub: str, now_s: float) -> HubView:
        """A hub that the caller may read, cached for protocols that name the hub with every request."""
        live = self._used.readable.get(hub)
        if live is None or self._live.hubs.get(fold(hub)) is not live:
            live, _ = self._require_hub(hub, Rights.LISTEN, (), now_s, is_events=False)
            self._used.add_readable(hub, live)
        return live.view

    def follow(
        self, hub: str, partition: int, on_moved: OnReady, now_s: float, *, stored_only: bool = False
    ) -> PartitionReader:
        """A reader of one partition without a consumer group, for a client that names its position in every request.

        `on_moved` is called on each move of the partition until the reader is closed. With `stored_only` it reads the
        log alone, without captured files.
        """
        self.readable(hub, now_s)
        live = self._used.readable[hub]
        return self._broker.follow(live, partition, on_moved, principal=self.principal, stored_only=stored_only)

    def delete_records(self, hub: str, partition: int, before: int, now_s: float) -> int:
        """Delete the events of a partition before a sequence number; the new start of the partition."""
        return self._hub(hub, Rights.MANAGE, now_s).delete_records(partition, before)

    def coordinator(self, now: float, now_ms: int) -> Coordinator:
        """Groups, offsets and transactions of the caller's namespace (Kafka)."""
        return self._broker.coordinators.of(self._live, now, now_ms)

    def find_readable(self, hub: str) -> HubView | None:
        """A hub that `readable` returned before; None for any other."""
        live = self._used.readable.get(hub)
        return None if live is None else live.view
