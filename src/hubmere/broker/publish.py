"""Admit, route, append: what happens to one publication.

A publication is one closed batch for one partition, all or nothing. The order is fixed: may the hub take it, does the
tier's size allow it, is there throughput for it, which partition, then the log. A refused publication leaves no trace.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hubmere.broker.live import Evicted, LiveHub
from hubmere.broker.quotas.application_groups import FREE, ClientQuota
from hubmere.model.errors import InvalidArgument, PublicationTooLarge, Refusal, ServerBusy, StorageRefusal
from hubmere.model.keys import partition_of_key
from hubmere.model.names import fold
from hubmere.model.receipt import Receipt
from hubmere.records.runs import BatchRun

Settled = Callable[[Receipt], None]


class Charged(NamedTuple):
    """A publication that was taken in any case, and how long its producer should be held back."""

    receipt: Receipt
    delay_s: float


class Publisher:
    """A way into one hub, one of its partitions, or one publisher's path of it.

    Thread rule: the owner's thread only. `evict` is called once when the hub or the publisher is shut while open.
    """

    __slots__ = ("_evict", "_lenient", "client_quota", "hub", "name", "partition")

    def __init__(
        self,
        hub: LiveHub,
        *,
        partition: int | None,
        name: str | None,
        evict: Evicted | None,
        lenient: bool,
        client_quota: ClientQuota = FREE,
    ) -> None:
        self.hub = hub
        self.partition = partition
        self.name = name
        self._evict = evict
        self._lenient = lenient
        self.client_quota = client_quota
        if evict is not None:
            hub.publishers[evict] = None if name is None else fold(name)

    @property
    def limit_bytes(self) -> int:
        """The largest publication that is taken."""
        return self.hub.publication_bytes

    def close(self) -> None:
        """Let go of the hub; closing twice is harmless."""
        if self._evict is not None:
            self.hub.publishers.pop(self._evict, None)

    def publish(
        self,
        batch: bytearray,
        *,
        count: int,
        size_bytes: int,
        key: str | None,
        now: float,
        now_ms: int,
        callback: Settled | None = None,
        requests: int = 1,
    ) -> Receipt:
        """Take one publication, refusing it when the namespace is over its units.

        `size_bytes` is what the client sent; the limits are on that, not on our encoding of it. `requests` is how many
        requests share the publication; each is counted.
        """
        counters = self.hub.counters
        counters.incoming_requests += requests
        try:
            self._check(size_bytes, key, count, now)
            throughput = self.hub.namespace.throughput
            if throughput is not None:
                throughput.admit(self.hub.entity.uid, size_bytes, count, now)
            try:
                receipt = self._append(batch, key, now_ms, callback)
            except Refusal:
                if throughput is not None:
                    throughput.give_back(self.hub.entity.uid, size_bytes, count, now)
                raise
        except Refusal as refusal:
            self._count_refusal(refusal, requests)
            raise
        self._count(count, size_bytes, now, requests)
        return receipt

    def publish_charged(
        self,
        batch: bytearray | memoryview,
        partition: int,
        *,
        count: int,
        now: float,
        now_ms: int,
        callback: Settled | None = None,
    ) -> Charged:
        """Take one publication whatever the units say, and tell how long to hold its producer back (Kafka's way)."""
        counters = self.hub.counters
        counters.incoming_requests += 1
        size_bytes = len(batch)
        try:
            self._check(size_bytes, None, count, now)
            receipt = self.hub.log(partition).append(batch, now_ms, callback)
        except Refusal as refusal:
            self._count_refusal(refusal)
            raise
        self._count(count, size_bytes, now)
        throughput = self.hub.namespace.throughput
        if throughput is None:
            return Charged(receipt, 0.0)
        delay = throughput.charge_ingress(self.hub.entity.uid, size_bytes, count, now)
        if delay > 0:
            counters.throttled_requests += 1
        return Charged(receipt, delay)

    def check_run(self, data: bytearray, sizes: Sequence[int], partition: int, newest_ms: int) -> BatchRun | None:
        """Whether publications for one partition can be taken as one; None when each needs a look of its own."""
        hub = self.hub
        if not hub.entity.status.may_send or max(sizes) > self.limit_bytes:
            return None
        return hub.log(partition).check_run(data, sizes, newest_ms)

    def publish_run(self, run: BatchRun, partition: int, *, now: float, now_ms: int, callback: Settled) -> Receipt:
        """Take publications that were checked just now, and that the units have room for; one receipt for all."""
        hub, requests, size_bytes = self.hub, len(run.sizes), len(run.data)
        hub.counters.incoming_requests += requests
        try:
            receipt = hub.log(partition).append_run(run, now_ms, callback)
        except Refusal as refusal:
            self._count_refusal(refusal, requests)
            raise
        self._count(run.events, size_bytes, now, requests)
        throughput = hub.namespace.throughput
        if throughput is not None:
            throughput.charge_ingress(hub.entity.uid, size_bytes, run.events, now)
        return receipt

    def has_room(self, size_bytes: int, events: int, now: float) -> bool:
        """Whether so much can be published without holding its producer back."""
        throughput, limits = self.hub.namespace.throughput, self.client_quota.limits
        if limits is not None and not limits.has_ingress(size_bytes, events, now):
            return False
        return throughput is None or throughput.has_ingress(self.hub.entity.uid, size_bytes, events, now)

    def _check(self, size_bytes: int, key: str | None, events: int, now: float) -> None:
        self.hub.require_sending(self.name)
        if size_bytes > self.limit_bytes:
            raise PublicationTooLarge(size_bytes, self.limit_bytes)
        if key is not None and self.partition is not None:
            raise InvalidArgument("partition key", key, "a publication to a named partition has none")
        if self.client_quota.limits is not None:
            self.client_quota.limits.require_ingress(size_bytes, events, now)

    def _append(self, batch: bytearray, key: str | None, now_ms: int, callback: Settled | None) -> Receipt:
        hub, count = self.hub, self.hub.entity.partition_count
        if self.partition is not None:
            return hub.log(self.partition).append(batch, now_ms, callback, lenient_producer=self._lenient)
        if key is not None:
            return hub.log(partition_of_key(key, count)).append(batch, now_ms, callback)
        return self._append_anywhere(batch, count, now_ms, callback)

    def _append_anywhere(self, batch: bytearray, count: int, now_ms: int, callback: Settled | None) -> Receipt:
        """Keyless: the next partition in turn; one that cannot take events is passed over (reference: service 1.4)."""
        for attempt in range(count):
            try:
                return self.hub.log(self.hub.turn.take(count)).append(batch, now_ms, callback)
            except StorageRefusal:
                if attempt == count - 1:
                    raise
        raise AssertionError("a hub has at least one partition")

    def _count(self, events: int, size_bytes: int, now: float, requests: int = 1) -> None:
        counters = self.hub.counters
        counters.incoming_messages += events
        counters.incoming_bytes += size_bytes
        if self.client_quota.limits is not None:
            self.client_quota.limits.charge_ingress(size_bytes, events, now)

    def _count_refusal(self, refusal: Refusal, requests: int = 1) -> None:
        counters = self.hub.counters
        counters.refused_requests += requests
        if isinstance(refusal, ServerBusy):
            counters.throttled_requests += requests
        elif isinstance(refusal, StorageRefusal):
            counters.server_errors += requests
        else:
            counters.user_errors += requests
