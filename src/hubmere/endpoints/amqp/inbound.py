"""Deliveries become batches; receipts become settlements.

One delivery is one publication, and it is settled when the log has committed it. Single events that came together on a
link without key, publisher or producer share one batch on disk and are settled one by one, as a range. A refusal either
rejects the delivery or detaches the link, by the table in `errors`; a link that is to be detached takes nothing more,
and goes once everything that it had taken is settled, so that no accepted event is sent again.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

from hubmere.broker.access import Resource
from hubmere.broker.coalesce import Coalescer, shared_limit_bytes, split_run
from hubmere.broker.management.connections import LinkView, Role
from hubmere.broker.publish import Publisher
from hubmere.endpoints.amqp.errors import RecentlyBusy, entity_name, rejected, row_of
from hubmere.endpoints.amqp.idempotence import OldSequence, ProducerKey, Producers, ProducerTerms
from hubmere.endpoints.amqp.links import Host, HubPart
from hubmere.model.entity import Rights
from hubmere.model.errors import InvalidArgument, PartitionOffline, PublicationTooLarge, Refusal
from hubmere.model.receipt import Receipt
from hubmere.translate import BATCH_FORMAT, Publication, may_have_partition_key, publication_from_amqp
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.performatives import ACCEPTED
from hubmere.wire.amqp.signals import DeliveriesReceived, DeliveryOversized

# Deliveries that a sender may have on the way, and after how many its credit is renewed; both as by the service. What
# holds a fast sender back is not the credit, which one SDK ignores, but that the connection is not read while too much
# waits for its commit.
HUB_CREDIT, HUB_CREDIT_STEP = 300, 150
PARTITION_CREDIT, PARTITION_CREDIT_STEP = 1000, 100
T = TypeVar("T")
Range = tuple[int, int]


class Inbound(HubPart):
    """A link on which the peer publishes to a hub, a partition or a publisher's path.

    Links of idempotent producers have `terms`: their events are numbered, and repeats are not stored again.
    """

    __slots__ = ("_busy", "_coalescer", "_in_flight", "_leaving", "_place", "_publisher", "_superseded", "_terms")

    right = Rights.SEND

    def __init__(
        self,
        host: Host,
        link: Link,
        resource: Resource,
        coalescer: Coalescer,
        busy: RecentlyBusy,
        terms: ProducerTerms | None = None,
    ) -> None:
        super().__init__(host, link, resource)
        self._coalescer = coalescer
        self._busy = busy
        self._terms = terms
        self._publisher: Publisher | None = None
        self._place: tuple[Producers, ProducerKey] | None = None
        self._in_flight = 0
        self._leaving: Refusal | None = None
        self._superseded: Refusal | None = None

    @property
    def epoch(self) -> int:
        """The epoch of an idempotent producer."""
        return 0 if self._terms is None else self._terms.epoch

    def open(self, publisher: Publisher) -> None:
        """Begin to take deliveries for a publisher."""
        self._publisher = publisher

    def join(self, producers: Producers, key: ProducerKey) -> None:
        """Take the producer's place among the links of the node."""
        self._place = (producers, key)
        producers.join(key, self)

    def grant(self) -> None:
        """Let the peer send."""
        self._link.grant(self._credit)

    @property
    def _credit(self) -> int:
        return PARTITION_CREDIT if self._has_partition else HUB_CREDIT

    @property
    def _has_partition(self) -> bool:
        return self._publisher is not None and self._publisher.partition is not None

    # --- what the connection calls

    def received(self, run: DeliveriesReceived) -> None:
        """Publish whole deliveries."""
        publisher = self._publisher
        if run.message_format == BATCH_FORMAT or publisher is None or not publisher.can_coalesce:
            self._publish_each(run.ids, run.payloads, run.message_format, run.settled)
        else:
            self._coalesce(publisher, run)
        # Credit is renewed with the disposition, as by the service, in one write; before that only when half is used.
        self._renew_credit(self._credit // 2)

    def _renew_credit(self, least: int) -> None:
        if self._link.is_attached and self._link.credit <= least:
            self.grant()

    def oversized(self, delivery: DeliveryOversized) -> None:
        """The engine has thrown the bytes away; the link lives on."""
        if not delivery.settled:
            limit_bytes = self._link.max_message_size
            refusal = DeliveryTooLarge(delivery.delivery_id, delivery.size_bytes, limit_bytes)
            self._refuse((delivery.delivery_id, delivery.delivery_id), refusal)

    def closed(self) -> None:
        """Let go of the hub; what was taken is committed, but nobody is told any more."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
        if self._place is not None:
            producers, key = self._place
            producers.leave(key, self)

    def view(self) -> LinkView:
        """The link as those see it who look at the connection."""
        publisher = self._publisher
        return LinkView(
            role=Role.PUBLISHES,
            name=self._link.name,
            address=self.resource.path,
            hub="" if publisher is None else publisher.hub.name,
            partition=None if publisher is None else publisher.partition,
            credit=self._link.credit,
        )

    def evicted(self, refusal: Refusal) -> None:
        """The hub or the publisher was shut."""
        self._leave(refusal)
        self._host.flush_soon()

    def superseded(self, refusal: Refusal) -> None:
        """A newer producer has taken over."""
        self._superseded = refusal

    # --- publishing

    def _publish_each(
        self, ids: Sequence[int], payloads: Sequence[memoryview | bytes], message_format: int, settled: bool
    ) -> None:
        publisher = self._publisher
        if publisher is not None and publisher.partition is not None:
            # Events of one partition keep their order: what waits in the coalescer goes first.
            self._coalescer.flush_target(publisher, self._host.clock.monotonic(), self._host.clock.now_ms())
        for delivery_id, payload in zip(ids, payloads, strict=True):
            if publisher is None or self._leaving is not None:
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
        ids, payloads = run.ids, [view if type(view) is bytes else bytes(view) for view in run.payloads]
        together = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        if may_have_partition_key(together):
            if publisher.partition is not None:
                # All of them go to one partition, in the order in which they came.
                self._publish_each(ids, payloads, run.message_format, run.settled)
                return
            keyed = [index for index, payload in enumerate(payloads) if may_have_partition_key(payload)]
            for index in keyed:
                self._publish_each(ids[index : index + 1], payloads[index : index + 1], run.message_format, run.settled)
            ids = _without(ids, keyed)
            payloads = _without(payloads, keyed)
        limit_bytes = shared_limit_bytes(publisher)
        if len(together) <= limit_bytes and payloads:
            self._add(publisher, ids, payloads, run)
            return
        for start, stop in split_run(payloads, limit_bytes):
            self._add(publisher, ids[start:stop], payloads[start:stop], run)

    def _add(self, publisher: Publisher, ids: list[int], payloads: list[bytes], run: DeliveriesReceived) -> None:
        if self._leaving is not None:
            return
        clock, size_bytes = self._host.clock, sum(map(len, payloads))
        self._in_flight += 1
        self._host.hold(size_bytes)
        deliveries = () if run.settled else tuple(_ranges(ids))
        is_one = len(ids) == 1
        self._coalescer.add(
            publisher,
            payloads,
            size_bytes=size_bytes,
            on_settled=partial(self._on_settled, deliveries, size_bytes),
            now=clock.monotonic(),
            now_ms=clock.now_ms(),
            on_malformed=None if is_one else partial(self._publish_apart, ids, payloads, run.settled, size_bytes),
        )

    def _publish_apart(self, ids: list[int], payloads: list[bytes], settled: bool, size_bytes: int) -> None:
        """Publish the events of a run one by one, so that only the malformed ones are rejected."""
        self._in_flight -= 1
        self._host.release(size_bytes)
        self._publish_each(ids, payloads, 0, settled)
        self._host.flush_soon()

    def _publish(self, publisher: Publisher, publication: Publication, delivery: Range | None) -> None:
        clock, size_bytes = self._host.clock, publication.size_bytes
        # Counted first: a repeat of an idempotent producer is settled before `publish` returns.
        self._in_flight += 1
        self._host.hold(size_bytes)
        try:
            publisher.publish(
                publication.batch,
                count=publication.count,
                size_bytes=size_bytes,
                # Buffered producers choose the partition of a key by themselves, and leave the key on the events.
                key=None if publisher.partition is not None else publication.partition_key,
                now=clock.monotonic(),
                now_ms=clock.now_ms(),
                callback=partial(self._on_committed, delivery, size_bytes),
            )
        except Refusal as refusal:
            self._in_flight -= 1
            self._host.release(size_bytes)
            self._refuse(delivery, refusal)

    def _check_producer(self, publication: Publication) -> None:
        if self._superseded is not None:
            raise self._superseded
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
        self._host.release(size_bytes)
        if error is not None:
            for delivery in deliveries or (None,):
                self._refuse(delivery, _as_refusal(error))
        else:
            for first, last in deliveries:
                self._link.settle(first, last, state=ACCEPTED)
        if self._leaving is not None:
            self._leave(self._leaving)
        else:
            step = PARTITION_CREDIT_STEP if self._has_partition else HUB_CREDIT_STEP
            self._renew_credit(self._credit - step)
        self._host.flush_soon()

    def _refuse(self, delivery: Range | None, refusal: Refusal) -> None:
        """Reject a delivery, or have the link detached; a settled delivery was nobody's to ask about."""
        if row_of(refusal).detaches:
            if self._publisher is not None:
                self._busy.note(self._publisher.hub.entity.uid, refusal, self._host.clock.monotonic())
            self._leave(refusal)
        elif delivery is not None:
            state = rejected(*self._host.explain(refusal, self._entity))
            self._link.settle(delivery[0], delivery[1], state=state)

    def _leave(self, refusal: Refusal) -> None:
        """Detach the link for a reason, as soon as nothing that it took is unsettled."""
        self._leaving = refusal
        if not self._in_flight and self._link.is_attached:
            self._link.detach(*self._host.explain(refusal, self._entity))

    @property
    def _entity(self) -> str:
        publisher = self._publisher
        return "" if publisher is None else entity_name(publisher.hub.name, publisher.partition)


class DeliveryTooLarge(PublicationTooLarge):
    """A delivery that outgrew its link, in the service's words."""

    def __init__(self, delivery_id: int, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(size_bytes, limit_bytes)
        self.delivery_id = delivery_id

    def text(self) -> str:
        """As the service says it (reference: AMQP 4.2)."""
        return (
            f"The received message (delivery-id:{self.delivery_id}, size:{self.size_bytes} bytes) exceeds the limit "
            f"({self.limit_bytes} bytes) currently allowed on the link."
        )


def _without(items: list[T], gone: Sequence[int]) -> list[T]:
    left_out = frozenset(gone)
    return [item for index, item in enumerate(items) if index not in left_out]


def _as_refusal(error: Exception) -> Refusal:
    return error if isinstance(error, Refusal) else PartitionOffline(type(error).__name__)


def _ranges(ids: Sequence[int]) -> Iterator[Range]:
    """Delivery-ids as ranges without gaps; almost always one."""
    if ids[-1] - ids[0] == len(ids) - 1:
        yield ids[0], ids[-1]
        return
    first = last = ids[0]
    for number in ids[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
