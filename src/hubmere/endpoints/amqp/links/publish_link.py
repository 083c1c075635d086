"""A link on which the peer publishes: deliveries become batches, receipts become settlements.

One delivery is one publication, and it is settled when the log has committed it. Single events without key, publisher
or producer go to the coalescer, where they share a batch with others; those of one run are settled as a range. A
refusal rejects the delivery or detaches the link, by the table in `errors`. A link that is to be detached accepts
nothing more, and is detached once everything that it accepted is settled, so that no accepted event is sent again.
"""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from hubmere.broker import Coalescer, LinkRole, LinkView, Publisher, Resource, shared_limit_bytes, split_run
from hubmere.endpoints.amqp.errors import RecentlyBusy, entity_name, rejection, row_of
from hubmere.endpoints.amqp.links.idempotence import OldSequence, ProducerKey, Producers, ProducerTerms
from hubmere.endpoints.amqp.links.link_handler import HubLink, LinkHost
from hubmere.model.entity import Rights
from hubmere.model.errors import FIXED_LIMIT, InvalidArgument, PartitionOffline, PublicationTooLarge, Refusal
from hubmere.model.receipt import Receipt
from hubmere.translate import BATCH_FORMAT, Publication, keyed_messages, publication_from_amqp
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.performatives import ACCEPTED
from hubmere.wire.amqp.signals import DeliveriesReceived, DeliveryOversized

# Credit of a sender, and after how many deliveries it is renewed; both as in the service. Credit does not limit a fast
# sender, because one SDK ignores it. What does is that the connection is not read while too much waits for its commit.
HUB_CREDIT, HUB_CREDIT_STEP = 300, 150
PARTITION_CREDIT, PARTITION_CREDIT_STEP = 1000, 100
T = TypeVar("T")
Range = tuple[int, int]


class PublishLink(HubLink):
    """A link on which the peer publishes to a hub, a partition or a publisher's path.

    Links of idempotent producers have `terms`: their events are numbered, and repeats are not stored again.
    """

    __slots__ = (
        "_busy",
        "_can_coalesce",
        "_coalescer",
        "_credit",
        "_credit_step",
        "_detach_reason",
        "_fenced_by",
        "_in_flight",
        "_publisher",
        "_registration",
        "_terms",
    )

    right = Rights.SEND

    def __init__(
        self, host: LinkHost, link: Link, resource: Resource, coalescer: Coalescer, busy: RecentlyBusy
    ) -> None:
        super().__init__(host, link, resource)
        self._coalescer = coalescer
        self._busy = busy
        self._terms: ProducerTerms | None = None
        self._publisher: Publisher | None = None
        self._can_coalesce = False
        self._credit, self._credit_step = HUB_CREDIT, HUB_CREDIT_STEP
        self._registration: tuple[Producers, ProducerKey] | None = None
        self._in_flight = 0
        self._detach_reason: Refusal | None = None
        self._fenced_by: Refusal | None = None

    @property
    def epoch(self) -> int:
        """The epoch of an idempotent producer."""
        return 0 if self._terms is None else self._terms.epoch

    def open(self, publisher: Publisher, terms: ProducerTerms | None) -> None:
        """Accept deliveries for a publisher from now on."""
        self._publisher = publisher
        self._terms = terms
        self._can_coalesce = publisher.can_coalesce
        if publisher.partition is not None:
            self._credit, self._credit_step = PARTITION_CREDIT, PARTITION_CREDIT_STEP

    def join(self, producers: Producers, key: ProducerKey) -> None:
        """Register the link of an idempotent producer."""
        self._registration = (producers, key)
        producers.join(key, self)

    def grant(self) -> None:
        """Give the peer credit."""
        self._link.grant(self._credit)

    # --- callbacks of the connection

    def on_deliveries(self, run: DeliveriesReceived) -> None:
        """Publish whole deliveries."""
        publisher = self._publisher
        if run.message_format == BATCH_FORMAT or publisher is None or not self._can_coalesce:
            self._publish_each(run.ids, run.payloads, run.message_format, run.settled)
        else:
            self._coalesce(publisher, run)
        # Credit is renewed together with the disposition, in one write; before that only when half of it is used.
        self._renew_credit(self._credit // 2)

    def on_single(self, delivery_id: int, payload: bytes, message_format: int) -> bool:
        """Publish the event of a client that has no other in flight, together with those of other clients."""
        publisher, backpressure = self._publisher, self._host.backpressure
        if (
            publisher is None
            or message_format == BATCH_FORMAT
            or self._detach_reason is not None
            or backpressure.waiting_bytes
            or not payload
            or not self._can_coalesce
            or keyed_messages([payload])
            or self._link.credit <= self._credit // 2
        ):
            return False
        size_bytes = len(payload)
        self._in_flight += 1
        backpressure.hold(size_bytes)
        self._coalescer.add_single(publisher, payload, partial(self._on_single_settled, delivery_id, size_bytes))
        return True

    def _on_single_settled(self, delivery_id: int, size_bytes: int, error: Exception | None) -> None:
        host, link = self._host, self._link
        backpressure = host.backpressure
        is_alone = error is None and self._detach_reason is None and backpressure.waiting_bytes == size_bytes
        if not is_alone or link.credit <= self._credit - self._credit_step:
            self._on_settled(((delivery_id, delivery_id),), size_bytes, error)
            return
        self._in_flight -= 1
        backpressure.release(size_bytes)
        host.accept_at_once(link, delivery_id)

    def _renew_credit(self, least: int) -> None:
        if self._link.is_attached and self._link.credit <= least:
            self.grant()

    def on_oversized(self, delivery: DeliveryOversized) -> None:
        """Reject a delivery that is too large; the link stays attached."""
        if not delivery.settled:
            limit_bytes = self._link.max_message_size
            publisher = self._publisher
            # A lower limit than the hub's is that of the endpoint.
            is_own = publisher is not None and publisher.limit_bytes <= limit_bytes
            hint = publisher.limit_hint if publisher is not None and is_own else FIXED_LIMIT
            refusal = DeliveryTooLarge(delivery.delivery_id, delivery.size_bytes, limit_bytes, hint)
            self._refuse((delivery.delivery_id, delivery.delivery_id), refusal)

    def on_detached(self) -> None:
        """Close the publisher. What the link accepted is committed, but no longer settled."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
        if self._registration is not None:
            producers, key = self._registration
            producers.leave(key, self)

    def view(self) -> LinkView:
        """Snapshot of this link for monitoring."""
        publisher = self._publisher
        return LinkView(
            role=LinkRole.PUBLISHES,
            name=self._link.name,
            address=self.resource.path,
            hub="" if publisher is None else publisher.entity.name,
            partition=None if publisher is None else publisher.partition,
            credit=self._link.credit,
        )

    def evict(self, refusal: Refusal) -> None:
        """Detach the link for a reason, once every delivery that it accepted is settled."""
        self._detach_when_settled(refusal)
        self._host.flush_soon()

    def fence(self, refusal: Refusal) -> None:
        """Refuse all further deliveries, because a newer producer has taken over."""
        self._fenced_by = refusal

    # --- publishing

    def _publish_each(self, ids: Sequence[int], payloads: Sequence[bytes], message_format: int, settled: bool) -> None:
        publisher = self._publisher
        if publisher is not None and publisher.partition is not None:
            # Events of one partition keep their order: what waits in the coalescer goes first.
            self._coalescer.flush_target(publisher, self._host.clock.monotonic(), self._host.clock.now_ms())
        for delivery_id, payload in zip(ids, payloads, strict=True):
            if publisher is None or self._detach_reason is not None:
                return
            delivery = None if settled else (delivery_id, delivery_id)
            try:
                publication = publication_from_amqp(
                    payload,
                    message_format,
                    publisher=publisher.name,
                    resolve_key=publisher.resolve_key,
                    idempotent=self._terms is not None,
                )
                self._check_producer(publication)
            except Refusal as refusal:
                self._refuse(delivery, refusal)
            else:
                self._publish(publisher, publication, delivery)

    def _coalesce(self, publisher: Publisher, run: DeliveriesReceived) -> None:
        """Let the events without a key share batches; those with one go to the partition of their key."""
        ids, payloads = run.ids, run.payloads
        keyed = keyed_messages(payloads)
        if keyed:
            if publisher.partition is not None:
                # All of them go to one partition, in the order in which they came.
                self._publish_each(ids, payloads, run.message_format, run.settled)
                return
            for index in keyed:
                self._publish_each(ids[index : index + 1], payloads[index : index + 1], run.message_format, run.settled)
            ids = _without(ids, keyed)
            payloads = _without(payloads, keyed)
        limit_bytes, size_bytes = shared_limit_bytes(publisher), sum(map(len, payloads))
        if payloads and size_bytes <= limit_bytes:
            self._add(publisher, ids, payloads, size_bytes, run.settled)
            return
        for start, stop in split_run(payloads, limit_bytes):
            part = payloads[start:stop]
            self._add(publisher, ids[start:stop], part, sum(map(len, part)), run.settled)

    def _add(self, publisher: Publisher, ids: list[int], payloads: list[bytes], size_bytes: int, settled: bool) -> None:
        if self._detach_reason is not None:
            return
        clock = self._host.clock
        self._in_flight += 1
        self._host.backpressure.hold(size_bytes)
        deliveries = () if settled else _ranges(ids)
        is_one = len(ids) == 1
        self._coalescer.add(
            publisher,
            payloads,
            size_bytes=size_bytes,
            on_settled=partial(self._on_settled, deliveries, size_bytes),
            now=clock.monotonic(),
            now_ms=clock.now_ms(),
            on_malformed=None if is_one else partial(self._publish_apart, ids, payloads, settled, size_bytes),
        )

    def _publish_apart(self, ids: list[int], payloads: list[bytes], settled: bool, size_bytes: int) -> None:
        """Publish the events of a run one by one, so that only the malformed ones are rejected."""
        self._in_flight -= 1
        self._host.backpressure.release(size_bytes)
        self._publish_each(ids, payloads, 0, settled)
        self._host.flush_soon()

    def _publish(self, publisher: Publisher, publication: Publication, delivery: Range | None) -> None:
        clock, size_bytes = self._host.clock, publication.size_bytes
        # Counted first: a repeat of an idempotent producer is settled before `publish` returns.
        self._in_flight += 1
        self._host.backpressure.hold(size_bytes)
        try:
            publisher.publish(
                publication.batch,
                count=publication.count,
                size_bytes=size_bytes,
                # Buffered producers choose the partition of a key themselves and leave the key on the events.
                key=None if publisher.partition is not None else publication.partition_key,
                now=clock.monotonic(),
                now_ms=clock.now_ms(),
                callback=partial(self._on_committed, delivery, size_bytes),
            )
        except Refusal as refusal:
            self._in_flight -= 1
            self._host.backpressure.release(size_bytes)
            self._refuse(delivery, refusal)

    def _check_producer(self, publication: Publication) -> None:
        if self._fenced_by is not None:
            raise self._fenced_by
        stamp, terms = publication.producer, self._terms
        if stamp is not None and terms is not None and stamp.producer_id != terms.producer_id:
            raise InvalidArgument("producer id", stamp.producer_id, f"{terms.producer_id} on this link")

    # --- settling

    def _on_committed(self, delivery: Range | None, size_bytes: int, receipt: Receipt) -> None:
        """Commit callback of a publication."""
        error = receipt.error
        if error is None and receipt.is_duplicate and receipt.sequence_number < 0:
            error = OldSequence()
        self._on_settled(() if delivery is None else (delivery,), size_bytes, error)

    def _on_settled(self, deliveries: Sequence[Range], size_bytes: int, error: Exception | None) -> None:
        """Settle deliveries that are durable or refused; often called many times in one turn."""
        self._in_flight -= 1
        self._host.backpressure.release(size_bytes)
        if error is not None:
            for delivery in deliveries or (None,):
                self._refuse(delivery, _as_refusal(error))
        else:
            for first, last in deliveries:
                self._link.settle(first, last, state=ACCEPTED)
        if self._detach_reason is not None:
            self._detach_when_settled(self._detach_reason)
        else:
            self._renew_credit(self._credit - self._credit_step)
        self._host.flush_soon()

    def _refuse(self, delivery: Range | None, refusal: Refusal) -> None:
        """Reject a delivery or detach the link; a delivery that the sender settled has no outcome."""
        if row_of(refusal).detaches:
            if self._publisher is not None:
                self._busy.note(self._publisher.entity.uid, refusal, self._host.clock.monotonic())
            self._detach_when_settled(refusal)
        elif delivery is not None:
            state = rejection(*self._host.explain(refusal, self._entity))
            self._link.settle(delivery[0], delivery[1], state=state)

    def _detach_when_settled(self, refusal: Refusal) -> None:
        """Detach the link for a reason, at once or when the last delivery in flight is settled."""
        self._detach_reason = refusal
        if not self._in_flight and self._link.is_attached:
            self._link.detach(*self._host.explain(refusal, self._entity))

    @property
    def _entity(self) -> str:
        publisher = self._publisher
        return "" if publisher is None else entity_name(publisher.entity.name, publisher.partition)


class DeliveryTooLarge(PublicationTooLarge):
    """A delivery is larger than its link allows."""

    def __init__(self, delivery_id: int, size_bytes: int, limit_bytes: int, hint: str) -> None:
        super().__init__(size_bytes, limit_bytes, hint)
        self.delivery_id = delivery_id

    def text(self) -> str:
        """The text of the service (reference: AMQP 4.2), and the hint."""
        return (
            f"The received message (delivery-id:{self.delivery_id}, size:{self.size_bytes} bytes) exceeds the limit "
            f"({self.limit_bytes} bytes) currently allowed on the link. {self.hint}"
        )


def _without(items: list[T], indexes: Sequence[int]) -> list[T]:
    omitted = frozenset(indexes)
    return [item for index, item in enumerate(items) if index not in omitted]


def _as_refusal(error: Exception) -> Refusal:
    return error if isinstance(error, Refusal) else PartitionOffline(type(error).__name__)


def _ranges(ids: Sequence[int]) -> Sequence[Range]:
    """Delivery-ids as ranges without gaps; almost always one."""
    if ids[-1] - ids[0] == len(ids) - 1:
        return ((ids[0], ids[-1]),)
    ranges = []
    first = last = ids[0]
    for number in ids[1:]:
        if number != last + 1:
            ranges.append((first, last))
            first = number
        last = number
    ranges.append((first, last))
    return ranges
