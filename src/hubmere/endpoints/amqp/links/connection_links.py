"""The links of one connection: which may be attached, and when they must be detached.

An attach names an address. A service node (`$cbs`, `$management`) is open to every peer, because rights are proved
there. A hub, or a part of one, is opened by the connection's `Caller`, which checks the right first and then whether
the hub exists. A link stays attached as long as a claim allows it, and for a grace time after that; then it is detached
with the request to renew the token, and the connection stays open (reference: AMQP 2.4).
"""

from collections.abc import Callable, Iterator, Mapping

from hubmere.broker import Caller, Judge, LinkView, Publisher
from hubmere.endpoints.amqp.cbs import ClaimsNode
from hubmere.endpoints.amqp.context import AmqpContext
from hubmere.endpoints.amqp.errors import RenewToken, SecondClaimsLink
from hubmere.endpoints.amqp.links.idempotence import CAPABILITY, ProducerKey, ProducerTerms, agree, wants_idempotence
from hubmere.endpoints.amqp.links.link_addresses import (
    HubAddress,
    ServiceNode,
    parse_address,
    position_of,
    reader_address,
)
from hubmere.endpoints.amqp.links.link_handler import HubLink, LinkHost
from hubmere.endpoints.amqp.links.publish_link import PublishLink
from hubmere.endpoints.amqp.links.read_link import ReadLink
from hubmere.endpoints.amqp.links.service_links import (
    MAX_REQUEST_BYTES,
    REQUEST_CREDIT,
    Answer,
    Replies,
    ReplyLink,
    RequestLink,
)
from hubmere.endpoints.amqp.management import ManagementNode
from hubmere.model.errors import ClaimMissing, InvalidArgument, NotSupported, Refusal
from hubmere.model.names import publisher_name
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.performatives import RCV_FIRST, SND_SETTLED, Attach, Coordinator, Source, Target
from hubmere.wire.amqp.codec.types import Value

_EPOCH = "com.microsoft:epoch"
_RECEIVER_NAME = "com.microsoft:receiver-name"
_RUNTIME_METRIC = "com.microsoft:enable-receiver-runtime-metric"
# Names of receivers are repeated in the errors of other receivers; those of the SDKs are GUIDs.
_MAX_RECEIVER_NAME_CHARACTERS = 256


class Links:
    """Attaches, reviews and detaches the links of one open connection.

    `on_authorized` is called whenever the peer has proved a right. Thread rule: the loop's thread only.
    """

    __slots__ = ("_caller", "_context", "_host", "_on_authorized", "_replies")

    def __init__(self, context: AmqpContext, host: LinkHost, caller: Caller, on_authorized: Callable[[], None]) -> None:
        self._context = context
        self._host = host
        self._caller = caller
        self._on_authorized = on_authorized
        self._replies = Replies()

    # --- attaching

    def attach(self, link: Link, attach: Attach) -> None:
        """Accept an attach, or raise the refusal with which to answer it."""
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

    # --- the service nodes

    def _attach_requests(self, link: Link, node: ServiceNode) -> None:
        if node is ServiceNode.CLAIMS:
            self._require_no_claims_link()
        link.context = RequestLink(self._host, link, node, self._answer_of(node), self._replies)
        if link.accept(max_message_size=MAX_REQUEST_BYTES):
            link.grant(REQUEST_CREDIT)

    def _require_no_claims_link(self) -> None:
        """Refuse a second link to the claims node, as the service does: claims belong to the connection."""
        for link in self._host.links():
            handler = link.context
            if link.is_attached and isinstance(handler, RequestLink) and handler.node is ServiceNode.CLAIMS:
                raise SecondClaimsLink(link.name)

    def _attach_replies(self, link: Link, attach: Attach, node: ServiceNode) -> None:
        target = attach.target
        address = target.address if isinstance(target, Target) else None
        handler = ReplyLink(link, node, address, self._replies)
        link.context = handler
        self._replies.add(handler)
        link.accept(max_message_size=self._context.max_message_bytes)

    def _answer_of(self, node: ServiceNode) -> Answer:
        clock = self._context.clock
        if node is ServiceNode.CLAIMS:
            return ClaimsNode(self._caller, clock, self._on_authorized).answer
        return ManagementNode(self._caller, clock, self._on_authorized).answer

    # --- publishing

    def _attach_publisher(self, link: Link, attach: Attach, address: HubAddress) -> None:
        if address.group is not None:
            raise InvalidArgument(
                "address", address.group, "events are sent to a hub, a partition or a publisher's path"
            )
        is_idempotent = wants_idempotence(attach)
        if is_idempotent and address.partition is None:
            raise InvalidArgument("target", address.hub, "an idempotent producer sends to one partition")
        context, caller = self._context, self._caller
        resource = caller.events_of(address.hub, *address.below)
        handler = PublishLink(self._host, link, resource, context.coalescer, context.busy)
        publisher = caller.open_publisher(
            address.hub,
            self._now_s,
            partition=address.partition,
            publisher=None if address.publisher is None else publisher_name(address.publisher),
            on_closed=handler.evict,
            is_idempotent=is_idempotent,
        )
        try:
            context.busy.check(publisher.entity.uid, context.clock.monotonic(), publisher.application_group)
            terms, key = self._producer_terms(publisher, attach) if is_idempotent else (None, None)
        except Refusal:
            publisher.close()
            raise
        handler.open(publisher, terms)
        link.context = handler
        if key is not None:
            handler.join(context.producers, key)
        # The service settles at once, whatever mode the sender asks its receiver for.
        if link.accept(
            rcv_settle_mode=RCV_FIRST,
            max_message_size=min(publisher.limit_bytes, context.max_message_bytes),
            offered_capabilities=None if terms is None else (CAPABILITY,),
            properties=None if terms is None else terms.properties(),
        ):
            handler.grant()

    def _producer_terms(self, publisher: Publisher, attach: Attach) -> tuple[ProducerTerms, ProducerKey]:
        """The terms of an idempotent producer, and its key among the producers of the node."""
        assert publisher.partition is not None
        terms = agree(attach.properties, publisher.producer_last_sequence)
        key = (publisher.entity.uid, publisher.partition, terms.producer_id)
        self._context.producers.check(key, terms.epoch)
        return terms, key

    # --- reading

    def _attach_reader(self, link: Link, attach: Attach, source: Source, address: HubAddress) -> None:
        if address.group is None or address.partition is None:
            works = reader_address(str(source.address), address)
            raise InvalidArgument("address", source.address, f"events are read from one partition, such as '{works}'")
        context, caller = self._context, self._caller
        has_metrics = _RUNTIME_METRIC in (attach.desired_capabilities or ())
        handler = ReadLink(
            self._host,
            link,
            caller.events_of(address.hub, *address.below),
            deliveries=context.deliveries,
            retained=context.retained,
            has_metrics=has_metrics,
        )
        reader = caller.reader(
            address.hub,
            self._now_s,
            group=address.group,
            partition=address.partition,
            position=position_of(source.filter),
            epoch=_epoch(attach.properties or {}),
            name=_receiver_name(attach.properties or {}),
            on_ready=handler.on_ready,
            on_closed=handler.evict,
        )
        handler.open(reader)
        link.context = handler
        # The service sends events settled whatever the receiver asked for; some clients never settle.
        link.accept(
            snd_settle_mode=SND_SETTLED,
            max_message_size=min(caller.namespace.limits.publication_bytes, context.max_message_bytes),
            offered_capabilities=(_RUNTIME_METRIC,) if has_metrics else None,
        )

    # --- detaching

    def evict_all(self, refusal: Refusal) -> None:
        """Detach every link to a hub, once the deliveries that it accepted are settled."""
        for _, handler in self._hub_links():
            handler.evict(refusal)

    def review(self, judge: Judge) -> Refusal | None:
        """Detach every link that no claim allows any more; returns the reason if no claim is left at all."""
        caller = self._caller
        why = caller.review(judge, self._now_s)
        grace_start_s = self._now_s - self._context.token_grace_s
        for link, handler in self._hub_links():
            if link.is_attached and not caller.keeps_open(handler.right, handler.resource, grace_start_s):
                handler.evict(why or ClaimMissing(handler.right.names[0], f"sb://{handler.resource}"))
        return None if caller.is_authenticated else why

    def next_expiry_s(self) -> float | None:
        """Seconds until a claim is over, with its grace time; then `detach_expired` is due."""
        grace_s = self._context.token_grace_s
        expiry = self._caller.claims.next_expiry(self._now_s - grace_s)
        return None if expiry is None else expiry + grace_s - self._now_s

    def detach_expired(self) -> None:
        """Detach every link whose last claim expired more than the grace time ago."""
        grace_start_s = self._now_s - self._context.token_grace_s
        for link, handler in self._hub_links():
            if link.is_attached and not self._caller.keeps_open(handler.right, handler.resource, grace_start_s):
                handler.evict(RenewToken(link.name, handler.right.names[0], f"sb://{handler.resource}"))

    # --- monitoring

    def views(self) -> Iterator[LinkView]:
        """Snapshots of the links for monitoring. Reply links are omitted."""
        handlers = (link.context for link in self._host.links())
        return (handler.view() for handler in handlers if isinstance(handler, HubLink | RequestLink))

    def _hub_links(self) -> list[tuple[Link, HubLink]]:
        return [(link, link.context) for link in self._host.links() if isinstance(link.context, HubLink)]

    @property
    def _now_s(self) -> float:
        return self._context.clock.now_ms() / 1000


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
