"""Publishing: the checks of one publication, in order, and its append to the log of a partition.

A publication is one closed batch for one partition, or a run: several batches for one partition, written together. It
is accepted whole or refused whole, and a refused one leaves no trace except in the counters. `Publisher.publish` checks
in this order:

1. Does the hub accept events now, from this publisher (`LiveHub.require_sending`)?
2. Is the publication within the size limit? The limit is on what the client sent, not on our encoding of it.
3. Is the client within the rates of its application group?
4. Is the namespace within its throughput units? `OverLimit` says what happens if not.
5. Which partition (`partitioning`)? Then the log appends the batch.

After that it counts the publication and charges both quotas.
"""

from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from math import inf
from typing import NamedTuple

from hubmere.broker.hubs.live import Evicted, LiveHub
from hubmere.broker.hubs.opening import LogOpening
from hubmere.broker.monitoring.tracing import Tracer
from hubmere.broker.partitioning import fixed_partition
from hubmere.broker.quotas.application_groups import FREE, ClientQuota
from hubmere.model.entity import Hub
from hubmere.model.errors import (
    InvalidArgument,
    PartitionKeyMismatch,
    PartitionNotFound,
    PublicationTooLarge,
    Refusal,
    ServerBusy,
    StorageRefusal,
)
from hubmere.model.keys import check_partition_key
from hubmere.model.names import fold
from hubmere.model.receipt import Receipt
from hubmere.records.runs import BatchRun

# Called when a publication is committed, or has failed for good.
OnCommitted = Callable[[Receipt], None]


class OverLimit(Enum):
    """What happens to a publication while the namespace is over its throughput units."""

    # It is refused with ServerBusy (AMQP, HTTP).
    REFUSE = "refuse"
    # It is accepted, and `Publisher.delay_s` says how long its client should pause (Kafka, KIP-219).
    DELAY = "delay"


class RunPart(NamedTuple):
    """The batches of a run that go to one partition, one behind the other in `data`."""

    partition: int
    data: bytearray
    sizes: Sequence[int]


class Publisher:
    """Publishes to one hub, to one of its partitions, or under one publisher's name.

    Thread rule: the owner's thread only. `on_closed` is called once if the hub or the publisher's name is closed to
    events while the publisher is open.
    """

    __slots__ = ("_client_quota", "_hub", "_is_lenient", "_on_closed", "_tracer", "delay_s", "name", "partition")

    def __init__(
        self,
        hub: LiveHub,
        *,
        partition: int | None = None,
        name: str | None = None,
        on_closed: Evicted | None = None,
        is_lenient: bool = False,
        client_quota: ClientQuota = FREE,
        tracer: Tracer | None = None,
    ) -> None:
        self._hub = hub
        self.partition = partition
        self.name = name
        self._client_quota = client_quota
        # How long the client should pause after the last publication with `OverLimit.DELAY`.
        self.delay_s = 0.0
        self._on_closed = on_closed
        # Whether any repeated producer sequence counts as a duplicate (the AMQP rule, see `PartitionLog.append`).
        self._is_lenient = is_lenient
        self._tracer = tracer
        if on_closed is not None:
            hub.publishers[on_closed] = None if name is None else fold(name)

    @property
    def is_current(self) -> bool:
        """Whether the hub still exists."""
        return self._hub.is_current

    @property
    def entity(self) -> Hub:
        """The hub as it is defined now."""
        return self._hub.entity

    @property
    def application_group(self) -> str:
        """The name of the client's application group; empty if it has none."""
        return self._client_quota.group

    @property
    def coalescing_target(self) -> Hashable:
        """Equal for publishers whose events may share a batch: those to one target that count against one quota."""
        limits = self._client_quota.limits
        return (self._hub, self.partition) if limits is None else (self._hub, self.partition, limits)

    @property
    def quota_key(self) -> Hashable:
        """Equal for publishers to one hub that count against the same quotas: they may publish together."""
        limits = self._client_quota.limits
        return self._hub if limits is None else (self._hub, limits)

    @property
    def limit_bytes(self) -> int:
        """The size of the largest publication that the hub accepts."""
        return self._hub.publication_bytes

    @property
    def limit_hint(self) -> str:
        """What changes `limit_bytes`: a sentence for refusals."""
        return self._hub.publication_hint

    def log_start(self, partition: int) -> int:
        """The first sequence number that a partition still holds; -1 while its log is being opened."""
        log = self._hub.find_log(partition)
        return -1 if log is None else log.state.log_start

    def producer_last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and last sequence number of an idempotent producer in the publisher's partition, if known."""
        assert self.partition is not None
        return self._hub.log(self.partition).producer_last_sequence(producer_id)

    def require_partition(self, partition: int) -> None:
        """Refuse a partition that the hub does not have."""
        count = self._hub.entity.partition_count
        if not 0 <= partition < count:
            raise PartitionNotFound(self._hub.name, str(partition), count)

    @property
    def can_coalesce(self) -> bool:
        """Whether its events without a partition key may share a batch with those of other requests."""
        return self.name is None and not self._is_lenient

    def resolve_key(self, key: str | None) -> str | None:
        """The partition key to store for events that were sent with a key, or without one.

        Events on a publisher's path carry the name of the publisher as their key, and no other one.
        """
        check_partition_key(key)
        if self.name is None:
            return key
        if key is not None and key != self.name:
            raise PartitionKeyMismatch(self.name, key)
        return self.name

    def close(self) -> None:
        """Unregister from the hub; closing twice is harmless."""
        if self._on_closed is not None:
            self._hub.publishers.pop(self._on_closed, None)

    def publish(
        self,
        batch: bytearray | memoryview | BatchRun,
        *,
        count: int,
        size_bytes: int,
        now: float,
        now_ms: int,
        key: str | None = None,
        partition: int | None = None,
        callback: OnCommitted | None = None,
        requests: int = 1,
        over_limit: OverLimit = OverLimit.REFUSE,
        max_delay_s: float = inf,
    ) -> Receipt:
        """Accept one publication, or raise why not.

        `size_bytes` is what the client sent, and `requests` how many of its requests share the publication. `partition`
        must exist; it is for publishers that were opened without one. With `OverLimit.DELAY` a publication is refused
        only if its client has to pause for more than `max_delay_s` already.
        """
        hub = self._hub
        counters, throughput, limits = hub.counters, hub.namespace.throughput, self._client_quota.limits
        counters.incoming_requests += requests
        if self._tracer is not None:
            callback = self._start_span(self._tracer, batch, count, callback)
        try:
            self._check(batch, size_bytes, key)
            if limits is not None:
                limits.require_ingress(size_bytes, count, now)
            if throughput is not None:
                if over_limit is OverLimit.REFUSE:
                    throughput.require_ingress(hub.entity.uid, size_bytes, count, now)
                else:
                    throughput.require_ingress_delay(hub.entity.uid, max_delay_s, now)
            chosen = self.partition if partition is None else partition
            try:
                receipt = self._append(batch, chosen, key, now_ms, callback)
            except LogOpening as opening:
                receipt = self._append_later(opening, batch, count, now, now_ms, callback)
        except Refusal as refusal:
            self._count_refusal(refusal, requests)
            if isinstance(callback, _TracedCallback):
                callback.end_span(refusal)
            raise
        counters.incoming_messages += count
        counters.incoming_bytes += size_bytes
        if limits is not None:
            limits.charge_ingress(size_bytes, count, now)
        if throughput is None:
            self.delay_s = 0.0
        else:
            throughput.charge_ingress(hub.entity.uid, size_bytes, count, now)
            if over_limit is OverLimit.DELAY:
                self._set_delay(throughput.ingress_delay(hub.entity.uid, now))
        return receipt

    def _set_delay(self, delay_s: float) -> None:
        self.delay_s = delay_s
        if delay_s > 0:
            self._hub.counters.throttled_requests += 1

    def check_runs(self, parts: Sequence[RunPart], newest_ms: int, now: float) -> list[BatchRun] | None:
        """One run for each part, to be published next; None if any batch has to be published by itself.

        None means that a batch may be refused, would make its client pause, or is traced: then each needs its own
        answer. Nothing has changed then. `newest_ms` is the latest timestamp that a record may have.
        """
        hub = self._hub
        if self._tracer is not None or not hub.entity.status.may_send:
            return None
        runs: list[BatchRun] = []
        events = size_bytes = 0
        for partition, data, sizes in parts:
            if not 0 <= partition < hub.entity.partition_count or max(sizes) > hub.publication_bytes:
                return None
            appends = hub.log(partition).runs
            run = None if appends is None else appends.check_run(data, sizes, newest_ms)
            if run is None:
                return None
            runs.append(run)
            events += run.events
            size_bytes += len(data)
        return runs if self.has_ingress(size_bytes, events, now) else None

    def has_ingress(self, size_bytes: int, events: int, now: float) -> bool:
        """Whether both quotas allow this much, in any pieces, without a pause."""
        throughput, limits = self._hub.namespace.throughput, self._client_quota.limits
        if limits is not None and not limits.has_ingress(size_bytes, events, now):
            return False
        return throughput is None or throughput.has_ingress(self._hub.entity.uid, size_bytes, events, now)

    def _check(self, batch: bytearray | memoryview | BatchRun, size_bytes: int, key: str | None) -> None:
        self._hub.require_sending(self.name)
        largest_bytes = max(batch.sizes) if type(batch) is BatchRun else size_bytes
        if largest_bytes > self._hub.publication_bytes:
            raise PublicationTooLarge(largest_bytes, self._hub.publication_bytes, self.limit_hint)
        if key is not None and self.partition is not None:
            raise InvalidArgument("partition key", key, "a publication to a named partition has none")

    def _append(
        self,
        batch: bytearray | memoryview | BatchRun,
        partition: int | None,
        key: str | None,
        now_ms: int,
        callback: OnCommitted | None,
    ) -> Receipt:
        hub = self._hub
        chosen = fixed_partition(partition, key, hub.entity.partition_count)
        if isinstance(batch, BatchRun):
            assert chosen is not None
            appends = hub.log(chosen).runs
            # `check_runs` has found the run in this log.
            assert appends is not None
            return appends.append_run(batch, now_ms, callback)
        if chosen is None:
            return self._append_anywhere(batch, now_ms, callback)
        return hub.log(chosen).append(batch, now_ms, callback, lenient_producer=self._is_lenient)

    def _append_anywhere(self, batch: bytearray | memoryview, now_ms: int, callback: OnCommitted | None) -> Receipt:
        """Append to the next partition in turn, skipping those that cannot store events (reference: service 1.4).

        A log that is being created is waited for. One that is being recovered is skipped, unless all others are.
        """
        hub, count = self._hub, self._hub.entity.partition_count
        for attempt in range(count):
            try:
                return hub.log(hub.turn.take(count)).append(batch, now_ms, callback)
            except StorageRefusal as refusal:
                is_worth_waiting = isinstance(refusal, LogOpening) and not refusal.is_slow
                if is_worth_waiting or attempt == count - 1:
                    raise
        raise AssertionError("a hub has at least one partition")

    def _append_later(
        self,
        opening: LogOpening,
        batch: bytearray | memoryview | BatchRun,
        count: int,
        now: float,
        now_ms: int,
        callback: OnCommitted | None,
    ) -> Receipt:
        """Append when the log is open, in the order of the publications; the receipt completes after that."""
        assert not isinstance(batch, BatchRun)
        size_bytes = len(batch)
        receipt = Receipt(count, size_bytes, callback)

        def append() -> None:
            try:
                log = self._hub.log(opening.partition)
                log.append(batch, now_ms, receipt.follow, lenient_producer=self._is_lenient)
            except Refusal as refusal:
                receipt.complete(refusal)

        opening.wait(append, now, size_bytes=size_bytes)
        return receipt

    def _count_refusal(self, refusal: Refusal, requests: int) -> None:
        counters = self._hub.counters
        counters.refused_requests += requests
        if isinstance(refusal, ServerBusy):
            counters.throttled_requests += requests
        elif isinstance(refusal, StorageRefusal):
            counters.server_errors += requests
        else:
            counters.user_errors += requests

    def _start_span(
        self,
        tracer: Tracer,
        batch: bytearray | memoryview | BatchRun,
        count: int,
        callback: OnCommitted | None,
    ) -> "_TracedCallback":
        data = batch.data if isinstance(batch, BatchRun) else batch
        end_span = tracer.publishing(self._hub.namespace.entity.name, self._hub.name, data, count)
        return _TracedCallback(end_span, callback)


class _TracedCallback:
    """Ends the span of a publication before its own callback runs."""

    __slots__ = ("_callback", "end_span")

    def __init__(self, end_span: Callable[[Exception | None], None], callback: OnCommitted | None) -> None:
        self.end_span = end_span
        self._callback = callback

    def __call__(self, receipt: Receipt) -> None:
        self.end_span(receipt.error)
        if self._callback is not None:
            self._callback(receipt)
