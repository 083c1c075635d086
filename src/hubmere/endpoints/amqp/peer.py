"""The peer of an open connection: what it has proven, and which links it may have.

Every attach goes through here: the address says what is meant, the claims whether it is allowed, the broker whether it
is there (in this order, so that nobody learns names without a right). A link stays as long as a claim that allows it
does, and a little longer; then it is detached for renewal and the connection lives on (reference: AMQP 2.4).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from hubmere.broker.access import Principal, Resource
from hubmere.broker.broker import Broker
from hubmere.broker.coalesce import Coalescer
from hubmere.broker.live import LiveHub, LiveNamespace
from hubmere.broker.management.connections import LinkView
from hubmere.broker.revocation import Judge
from hubmere.endpoints.amqp.addresses import HubAddress, ServiceNode, parse_address, position_of, reader_address
from hubmere.endpoints.amqp.cbs import Claims, ClaimsNode
from hubmere.endpoints.amqp.errors import RecentlyBusy, RenewToken, SecondClaimsLink
from hubmere.endpoints.amqp.idempotence import (
    CAPABILITY,
    ProducerKey,
    Producers,
    ProducerTerms,
    agree,
    wants_idempotence,
)
from hubmere.endpoints.amqp.inbound import Inbound
from hubmere.endpoints.amqp.links import Host, HubPart
from hubmere.endpoints.amqp.management import ManagementNode
from hubmere.endpoints.amqp.outbound import HeldBytes, Outbound
from hubmere.endpoints.amqp.replies import MAX_REQUEST_BYTES, REQUEST_CREDIT, Answer, Replies, ReplyLink, RequestLink
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import ClaimMissing, InvalidArgument, NotSupported, Refusal
from hubmere.model.names import partition_number, publisher_name
from hubmere.translate import DecodedCache
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.performatives import RCV_FIRST, SND_SETTLED, Attach, Coordinator, Source, Target
from hubmere.wire.amqp.codec.types import Value

_EPOCH = "com.microsoft:epoch"
_RECEIVER_NAME = "com.microsoft:receiver-name"
_RUNTIME_METRIC = "com.microsoft:enable-receiver-runtime-metric"
# Receivers' names are repeated in the errors of others; the SDKs' are guids.
_MAX_RECEIVER_NAME_CHARACTERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all connections have in common."""

    broker: Broker
    clock: Clock
    cache: DecodedCache
    pieces: HeldBytes
    producers: Producers
    coalescer: Coalescer
    busy: RecentlyBusy
    max_message_bytes: int
    token_grace_s: float


# Rights are asked for the same paths again and again; readers of a partition share one.
_REMEMBERED_RESOURCES = 4096


@lru_cache(maxsize=_REMEMBERED_RESOURCES)
def _resource(namespace: str, address: HubAddress) -> Resource:
    # A link carries events in both directions: what it stands for is the path's messages.
    return Resource.of_hub(namespace, address.hub, *address.below, is_messages=True)


class Peer:
    """Who is at the other end of an open connection.

    `on_authorized` is called whenever the peer has proven something; `client` and `software` are what it says that it
    is. Thread rule: the loop's thread only.
    """

    __slots__ = (
        "_host",
        "_judged_version",
        "_on_authorized",
        "_replies",
        "_shared",
        "claims",
        "client",
        "namespace",
        "software",
    )

    def __init__(
        self,
        shared: Shared,
        host: Host,
        namespace: LiveNamespace,
        on_authorized: Callable[[], None],
        *,
        client: str,
        software: str,
    ) -> None:
        self.client = client
        self.software = software
        self._shared = shared
        self._host = host
        self._on_authorized = on_authorized
        self._replies = Replies()
        self.namespace = namespace
        self.claims = Claims()
        # The version of the catalog by which the claims were judged last.
        self._judged_version = shared.broker.catalog.view.version

    def grant(self, principal: Principal) -> None:
        """The peer has shown a key, which holds for the whole connection; refuses one that was revoked since."""
        self.claims.put(self._shared.broker.revocation.judge(principal, self._now_s))
        self._on_authorized()

    # --- revocation

    def review(self, judge: Judge) -> Refusal | None:
        """Detach every link that no claim allows any more; returns why, when no claim at all is left."""
        why = self._review_claims(judge)
        now_s = self._now_s - self._shared.token_grace_s
        for link, part in self._hub_parts():
            if link.is_attached and not self.claims.keep_open(part.right, part.resource, now_s):
                part.evicted(why or ClaimMissing(part.right.names[0], f"sb://{part.resource}"))
        return None if self.claims.all else why

    def _review_claims(self, judge: Judge) -> Refusal | None:
        self._judged_version = self._shared.broker.catalog.view.version
        return self.claims.review(judge, self._now_s)

    # --- links

    def attach(self, link: Link, attach: Attach) -> None:
        """Answer an attach, or raise the refusal to answer it with."""
        if link.is_sender:
            self._attach_source(link, attach)
        else:
            self._attach_target(link, attach)

    def _attach_target(self, link: Link, attach: Attach) -> None:
        target = attach.target
        if isinstance(target, Coordinator):
            raise NotSupported("A transaction coordinator")
        address = parse_address(None if target is None else target.address)
        if isinstance(address, ServiceNode):
            self._attach_requests(link, address)
        else:
            self._attach_publisher(link, attach, address)

    def _attach_source(self, link: Link, attach: Attach) -> None:
        source = attach.source or Source()
        if source.dynamic:
            raise NotSupported("A dynamic node")
        address = parse_address(source.address)
        if isinstance(address, ServiceNode):
            self._attach_replies(link, attach, address)
        else:
            self._attach_reader(link, attach, source, address)

    def views(self) -> Iterator[LinkView]:
        """The links as those see them who look at the connection; the ways back of questions are left out."""
        parts = (link.context for link in self._host.links())
        return (part.view() for part in parts if isinstance(part, HubPart | RequestLink))

    def evict_all(self, refusal: Refusal) -> None:
        """Have every link on a hub detached, once what it has taken is settled."""
        for _, part in self._hub_parts():
            part.evicted(refusal)

    def _hub_parts(self) -> list[tuple[Link, HubPart]]:
        return [(link, link.context) for link in self._host.links() if isinstance(link.context, HubPart)]

    # --- the service nodes

    def _attach_requests(self, link: Link, node: ServiceNode) -> None:
        if node is ServiceNode.CLAIMS:
            self._require_no_claims_link()
        link.context = RequestLink(link, node, self._answer_of(node), self._replies)
        if link.accept(max_message_size=MAX_REQUEST_BYTES):
            link.grant(REQUEST_CREDIT)

    def _require_no_claims_link(self) -> None:
        """Refuse a second link to the claims node, as the service does: claims belong to the connection."""
        for link in self._host.links():
            part = link.context
            if link.is_attached and isinstance(part, RequestLink) and part.node is ServiceNode.CLAIMS:
                raise SecondClaimsLink(link.name)

    def _attach_replies(self, link: Link, attach: Attach, node: ServiceNode) -> None:
        target = attach.target
        address = target.address if isinstance(target, Target) else None
        part = ReplyLink(link, node, address, self._replies)
        link.context = part
        self._replies.add(part)
        link.accept(max_message_size=self._shared.max_message_bytes)

    def _answer_of(self, node: ServiceNode) -> Answer:
        shared, namespace, claims = self._shared, self.namespace, self.claims
        if node is ServiceNode.CLAIMS:
            access, peer = shared.broker.access, self._host.wire.peer
            return ClaimsNode(access, namespace, claims, shared.clock, self._on_authorized, peer=peer).answer
        return ManagementNode(shared.broker, namespace, claims, shared.clock, self._on_authorized).answer

    # --- publishing

    def _attach_publisher(self, link: Link, attach: Attach, address: HubAddress) -> None:
        if address.group is not None:
            raise InvalidArgument(
                "address", address.group, "events are sent to a hub, a partition or a publisher's path"
            )
        hub, resource, principal = self._allowed(Rights.SEND, address)
        publisher = None if address.publisher is None else publisher_name(address.publisher)
        terms, producer = self._producer_terms(hub, attach, address)
        group = self._shared.broker.client_quota_of(self.namespace, principal).group
        self._shared.busy.check(hub.entity.uid, self._shared.clock.monotonic(), group)
        part = Inbound(self._host, link, resource, self._shared.coalescer, self._shared.busy, terms)
        opened = self._shared.broker.open_publisher(
            hub,
            partition=address.partition,
            publisher=publisher,
            evict=part.evicted,
            lenient=terms is not None,
            principal=principal,
        )
        part.open(opened)
        link.context = part
        if producer is not None:
            part.join(self._shared.producers, producer)
        # The service settles at once, whatever mode the sender asks its receiver for.
        if link.accept(
            rcv_settle_mode=RCV_FIRST,
            max_message_size=min(opened.limit_bytes, self._shared.max_message_bytes),
            offered_capabilities=None if terms is None else (CAPABILITY,),
            properties=None if terms is None else terms.properties(),
        ):
            part.grant()

    def _producer_terms(
        self, hub: LiveHub, attach: Attach, address: HubAddress
    ) -> tuple[ProducerTerms | None, ProducerKey | None]:
        """The terms of an idempotent producer and its place among the others; none for other senders."""
        if not wants_idempotence(attach):
            return None, None
        if address.partition is None:
            raise InvalidArgument("target", address.hub, "an idempotent producer sends to one partition")
        number = partition_number(address.partition, hub=hub.name, count=hub.entity.partition_count)
        terms = agree(attach.properties, hub.log(number).producer_last_sequence)
        key = (hub.entity.uid, number, terms.producer_id)
        self._shared.producers.check(key, terms.epoch)
        return terms, key

    # --- reading

    def _attach_reader(self, link: Link, attach: Attach, source: Source, address: HubAddress) -> None:
        if address.group is None or address.partition is None:
            works = reader_address(str(source.address), address)
            raise InvalidArgument("address", source.address, f"events are read from one partition, such as '{works}'")
        hub, resource, principal = self._allowed(Rights.LISTEN, address)
        has_metrics = _RUNTIME_METRIC in (attach.desired_capabilities or ())
        part = Outbound(
            self._host,
            link,
            resource,
            hub,
            cache=self._shared.cache,
            pieces=self._shared.pieces,
            with_metrics=has_metrics,
        )
        subscription = self._shared.broker.subscribe(
            hub,
            group=address.group,
            partition=address.partition,
            position=position_of(source.filter),
            epoch=_epoch(attach.properties or {}),
            name=_receiver_name(attach.properties or {}),
            wake=part.wake,
            evict=part.evicted,
            principal=principal,
        )
        part.open(subscription)
        link.context = part
        # The service sends events settled whatever the receiver asked for; some clients never settle.
        link.accept(
            snd_settle_mode=SND_SETTLED,
            max_message_size=min(self.namespace.limits.publication_bytes, self._shared.max_message_bytes),
            offered_capabilities=(_RUNTIME_METRIC,) if has_metrics else None,
        )

    # --- rights

    def _allowed(self, right: Rights, address: HubAddress) -> tuple[LiveHub, Resource, Principal]:
        """The hub of an address on which the peer has a right, and by whose credential it has it."""
        resource = _resource(self.namespace.entity.name, address)
        broker = self._shared.broker
        if self._judged_version != broker.catalog.view.version:
            self._review_claims(broker.revocation.judge)
        principal = self.claims.require(right, resource, self._now_s)
        return self.namespace.hub(address.hub), resource, principal

    @property
    def _now_s(self) -> float:
        return self._shared.clock.now_ms() / 1000

    def next_expiry_s(self) -> float | None:
        """In how many seconds links may have to go because their claim is over."""
        grace_s = self._shared.token_grace_s
        expiry = self.claims.next_expiry(self._now_s - grace_s)
        return None if expiry is None else expiry + grace_s - self._now_s

    def detach_expired(self) -> None:
        """Detach every link whose last claim expired longer ago than the grace for late renewals."""
        then_s = self._now_s - self._shared.token_grace_s
        for link, part in self._hub_parts():
            if link.is_attached and not self.claims.keep_open(part.right, part.resource, then_s):
                part.evicted(RenewToken(link.name, part.right.names[0], f"sb://{part.resource}"))


def _epoch(properties: Mapping[Value, Value]) -> int | None:
    value = properties.get(_EPOCH)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument("epoch", value, "a number from 0")
    return int(value)


def _receiver_name(properties: Mapping[Value, Value]) -> str | None:
    value = properties.get(_RECEIVER_NAME)
    return value[:_MAX_RECEIVER_NAME_CHARACTERS] if isinstance(value, str) and value else None
