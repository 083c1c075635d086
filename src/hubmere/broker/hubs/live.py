"""Run-time state of hubs: the current entity, open logs, counters, publishers and readers.

The catalog holds the entities; these objects hold what exists only while the node runs. Logs are opened on first use,
so that a node with many hubs starts at once; `opening` says how requests wait for a log. Only the broker uses these
objects: protocols get `views`. Thread rule: the owner's thread only.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from hubmere.broker.cold.history import Histories, HubHistory
from hubmere.broker.cold.log import ColdLog
from hubmere.broker.hubs.counters import Counters
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.opening import LogOpening, Opening, WaitingRequests
from hubmere.broker.hubs.views import HubView
from hubmere.broker.partitioning import RoundRobin
from hubmere.broker.places import Place, PlaceRequest, Places
from hubmere.broker.quotas.byte_rates import PartitionRates
from hubmere.broker.read import Readers
from hubmere.model.capture.cold import ColdFile
from hubmere.model.entity import CleanupPolicy, Hub, LogSettings, Retention, TimestampType
from hubmere.model.errors import (
    EntityDisabled,
    EntityUpdated,
    NotSupported,
    PublisherRevoked,
    Refusal,
    SequenceOutOfRange,
    lifting_hint,
)
from hubmere.model.monitoring.damage import DamagedRange, DamageKind
from hubmere.model.names import fold
from hubmere.model.position import Position
from hubmere.store.engine import Chunk, LogConfig, LogEngine, PartitionLog, log_id

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
# A segment covers at most this part of its hub's retention time, so that segments expire close to their time.
_SEGMENTS_PER_RETENTION = 10
_LONGEST_SEGMENT_MS = 24 * _HOUR_MS

Evicted = Callable[[Refusal], None]


def log_config(hub: Hub, segment_bytes: int) -> LogConfig:
    """The log configuration of a hub; `segment_bytes` is the node's default for hubs without a value of their own."""
    retention, own = hub.retention, hub.log_settings
    return LogConfig(
        retention_ms=None if retention.hours is None else retention.hours * _HOUR_MS,
        # As in Kafka: size and age matter only for a policy that deletes.
        retention_bytes=None if retention.policy is CleanupPolicy.COMPACT else own.retention_bytes,
        segment_bytes=segment_bytes if own.segment_bytes is None else own.segment_bytes,
        segment_ms=segment_lifetime_ms(retention, own),
        append_time=hub.timestamp_type is TimestampType.LOG_APPEND,
        compact=retention.is_compacted,
        tombstone_retention_ms=retention.tombstone_hours * _HOUR_MS,
        min_compaction_lag_ms=retention.min_compaction_lag_minutes * _MINUTE_MS,
    )


def segment_lifetime_ms(retention: Retention, own: LogSettings) -> int:
    """The longest time that a segment is active: the hub's setting, else short enough that events expire in time."""
    if own.segment_ms is not None:
        chosen = own.segment_ms
    elif retention.hours is None:
        chosen = _LONGEST_SEGMENT_MS
    else:
        chosen = min(retention.hours * _HOUR_MS // _SEGMENTS_PER_RETENTION, _LONGEST_SEGMENT_MS)
    if retention.is_compacted and own.max_compaction_lag_ms is not None:
        # As Kafka does: only a sealed segment is compacted.
        return min(chosen, own.max_compaction_lag_ms)
    return chosen


class LiveHub:
    """Run-time state of one hub.

    The log of a partition is not opened yet, being opened, open, or it has failed to open. A failure is kept until
    the next second, so that requests which waited for the log are refused with it; then the next use tries again.
    """

    __slots__ = (
        "_engine",
        "_failed",
        "_histories",
        "_history",
        "_logs",
        "_openings",
        "_recovering",
        "_requests",
        "_retired",
        "_seen_bytes",
        "_segment_bytes",
        "counters",
        "entity",
        "namespace",
        "publication_bytes",
        "publishers",
        "rates",
        "readers",
        "revoked",
        "turn",
        "view",
    )

    def __init__(
        self,
        namespace: LiveNamespace,
        entity: Hub,
        engine: LogEngine,
        segment_bytes: int,
        requests: WaitingRequests | None = None,
        places: Places | None = None,
        histories: Histories | None = None,
    ) -> None:
        """`requests` bounds the requests of the whole node that wait for logs; `places` is given on a cluster.

        `histories` is given where captured files can be read.
        """
        self.namespace = namespace
        self.entity = entity
        self._engine = engine
        self._segment_bytes = segment_bytes
        self._logs: dict[int, PartitionLog] = {}
        self._histories = histories
        self._history = self._find_history()
        self._openings: dict[int, Opening] = {}
        self._failed: dict[int, Refusal] = {}
        self._recovering: set[int] = set()
        self._requests = WaitingRequests() if requests is None else requests
        # The refusal to open logs, once the hub is deleted.
        self._retired: Refusal | None = None
        self.readers = Readers(namespace.limits.readers_per_partition, places)
        # Open publishers by the callback that closes them; the value is the publisher's folded name.
        self.publishers: dict[Evicted, str | None] = {}
        self.revoked: set[str] = set()
        self.counters = Counters()
        self.rates = PartitionRates()
        self._seen_bytes = (0, 0)
        # The largest publication that the hub accepts: needed for every publication, so it is computed once.
        self.publication_bytes = self._largest_publication()
        self.turn = RoundRobin()
        self.view = HubView(self)

    @property
    def name(self) -> str:
        """The hub's name as it was given."""
        return self.entity.name

    @property
    def resource(self) -> str:
        """How the service names the hub in its texts."""
        return self.namespace.resource(self.entity.name)

    @property
    def is_current(self) -> bool:
        """Whether this is still the hub of its name: not deleted, and not created again."""
        return self.namespace.hubs.get(fold(self.entity.name)) is self

    @property
    def config(self) -> LogConfig:
        """The configuration of the hub's logs."""
        return log_config(self.entity, self._segment_bytes)

    def _largest_publication(self) -> int:
        own, limit = self.entity.log_settings.max_message_bytes, self.namespace.limits.publication_bytes
        return limit if own is None else min(own, limit)

    @property
    def publication_hint(self) -> str:
        """What changes the largest size of a publication."""
        if self.publication_bytes < self.namespace.limits.publication_bytes:
            return "On this node, the Kafka setting max.message.bytes of the event hub changes it."
        return lifting_hint("publication_bytes")

    def log(self, partition: int) -> PartitionLog:
        """The log of an existing partition, opened on first use; raises LogOpening until it is open."""
        log = self._logs.get(partition)
        if log is None:
            log = self._open(partition)
        return log

    def stored_log(self, partition: int) -> PartitionLog:
        """As `log`, without the captured files below it."""
        log = self.log(partition)
        return log.log if isinstance(log, ColdLog) else log

    def _find_history(self) -> HubHistory | None:
        if self._histories is None:
            return None
        return self._histories.of(self.entity, self._on_unusable)

    def _on_unusable(self, partition: int, file: ColdFile, reason: str) -> None:
        self.report_unreadable(partition, file.first, file.end, f"the captured file {file.name}: {reason}")

    def _with_history(self, log: PartitionLog, partition: int) -> PartitionLog:
        return log if self._history is None else ColdLog(log, self._history, partition)

    @property
    def history(self) -> HubHistory | None:
        """The captured files that readers get; None without cold reads."""
        return self._history

    def cold_range(self, partition: int) -> tuple[int | None, range | None]:
        """The first event that readers of a partition get, and the gap before it; None without cold reads."""
        log = self.find_log(partition)
        return (log.begin, log.gap) if isinstance(log, ColdLog) else (None, None)

    def current_log(self, partition: int, position: Position | None = None) -> PartitionLog:
        """The log of a partition, with `state` and `find` of this position as new as the request.

        The state of a log on a cluster is requested first: raises LogOpening until the answer is there.
        """
        log = self.log(partition)
        opening = Opening(self.name, partition, self._requests)
        if not log.is_current(position, opening.end):
            raise LogOpening(opening)
        return log

    def take_place(self, places: Places, request: PlaceRequest) -> Place:
        """A place for a reader; raises LogOpening until it is granted, or why it is refused."""
        opening = Opening(self.name, request.partition, self._requests)
        place = places.take(request, opening.end)
        if place is None:
            raise LogOpening(opening)
        return place

    def read_now(self, log: PartitionLog, partition: int, sequence: int, max_bytes: int) -> Chunk | None:
        """Stable events from a sequence number on; None if there are none.

        Raises LogOpening while the events are fetched from the cluster.
        """
        if sequence >= log.state.last_stable:
            return None
        chunk = log.read(sequence, max_bytes, stable_only=True)
        if chunk is not None:
            return chunk
        opening = Opening(self.name, partition, self._requests)

        def on_moved() -> None:
            log.unwatch(on_moved)
            opening.end()

        log.watch(on_moved)
        raise LogOpening(opening)

    def _open(self, partition: int) -> PartitionLog:
        """Begin to open a log, unless that is under way, and return it if it is open at once."""
        assert 0 <= partition < self.entity.partition_count
        if self._retired is not None:
            raise self._retired
        opening = self._openings.get(partition)
        if opening is None and partition not in self._failed:
            opening = self._openings[partition] = Opening(self.name, partition, self._requests)
            config = self.config
            self._engine.open(
                log_id(self.entity.uid, partition), config, partial(self._on_opened, partition, opening, config)
            )
        if partition in self._failed:
            raise self._failed[partition]
        if partition in self._openings:
            raise LogOpening(self._openings[partition])
        return self._logs[partition]

    def _on_opened(self, partition: int, opening: Opening, config: LogConfig, answer: PartitionLog | Refusal) -> None:
        if self._openings.get(partition) is not opening:
            return  # the hub was deleted meanwhile
        del self._openings[partition]
        self._recovering.discard(partition)
        if isinstance(answer, Refusal):
            self._failed[partition] = answer
        else:
            self._logs[partition] = self._with_history(answer, partition)
            if config != self.config:
                answer.reconfigure(self.config)
        opening.end()

    def expect_recovery(self, partition: int) -> bool:
        """Count a partition as recovering until its log is open; False if the log is open or there is none."""
        if partition in self._logs or not 0 <= partition < self.entity.partition_count:
            return False
        self._recovering.add(partition)
        return True

    @property
    def recovering_partitions(self) -> list[int]:
        """The partitions whose logs a crash has left to recover, and that are not open yet."""
        return sorted(self._recovering)

    def was_used(self, partition: int) -> bool:
        """Whether a partition has a log, so that opening it creates nothing."""
        return partition in self._logs or self._engine.exists(log_id(self.entity.uid, partition))

    def open_ahead(self, partition: int) -> None:
        """Begin to open the log of an existing partition; if it cannot be opened, its next user gets the refusal."""
        if partition not in self._logs:
            with suppress(Refusal):
                self._open(partition)

    def find_log(self, partition: int) -> PartitionLog | None:
        """The log of a partition if it is open."""
        return self._logs.get(partition)

    def expire_openings(self, now: float) -> None:
        """Called every second: refuse requests that have waited too long, and let failed logs be tried again."""
        self._failed.clear()
        if self._history is not None:
            self._history.tick()
        for opening in list(self._openings.values()):
            opening.expire(now)

    @property
    def opening_partitions(self) -> list[int]:
        """The partitions whose logs are being opened."""
        return sorted(self._openings)

    def logs(self) -> Iterator[PartitionLog]:
        """The logs of all partitions, in order; raises LogOpening if one is being opened."""
        partitions = range(self.entity.partition_count)
        for partition in partitions:
            self.open_ahead(partition)
        return (self.log(partition) for partition in partitions)

    def delete_records(self, partition: int, before: int) -> int:
        """Delete the events of a partition before a sequence number; the new start of the partition."""
        self.view.require_partition(partition)
        log = self.log(partition)
        if self._history is not None:
            raise NotSupported("Deleting events of a hub with cold_reads, whose captured files still hold them,")
        if before < 0:
            raise SequenceOutOfRange(before, log.state.log_start, log.state.committed)
        log.trim(before)
        return log.state.log_start

    def behind(self, partition: int, position: int) -> int:
        """How many events a reader at this sequence number still has to read; 0 when the partition is unavailable.

        Events that retention has deleted are not counted.
        """
        try:
            state = self.log(partition).state
        except Refusal:
            return 0
        return max(state.committed - max(position, state.log_start), 0)

    def update_rates(self, now: float) -> None:
        """Update the byte rates of the partitions, once a second; an idle hub costs nothing."""
        flowed = (self.counters.incoming_bytes, self.counters.outgoing_bytes)
        if flowed == self._seen_bytes:
            self.rates.clear(now)
            return
        self._seen_bytes = flowed
        self.rates.update(
            {number: log.state.size_bytes for number, log in self._logs.items() if not log.is_offline}, now
        )

    def offline_partitions(self) -> list[int]:
        """Partitions that accept nothing until their logs are verified."""
        return [number for number, log in sorted(self._logs.items()) if log.is_offline]

    def damaged_ranges(self) -> list[tuple[int, DamagedRange]]:
        """Stored events that cannot be read, each with its partition; covers the logs that were opened so far."""
        registry, uid = self._engine.damage, self.entity.uid
        if registry.is_empty:
            return []
        numbers = range(self.entity.partition_count)
        return [(number, found) for number in numbers for found in registry.ranges(log_id(uid, number))]

    def report_unreadable(
        self, partition: int, first_sequence: int, next_sequence: int, reason: str = "its records cannot be decoded"
    ) -> None:
        """Report an intact batch whose records cannot be decoded; repeats have no effect."""
        self._engine.damage.report(
            DamagedRange(
                log=log_id(self.entity.uid, partition),
                first_sequence=first_sequence,
                next_sequence=next_sequence,
                kind=DamageKind.UNREADABLE,
                reason=reason,
            )
        )

    def is_damaged_after(self, partition: int, sequence: int) -> bool:
        """Whether stored events of a partition later than a sequence number cannot be read."""
        ranges = self._engine.damage.ranges(log_id(self.entity.uid, partition))
        return any(found.next_sequence > sequence + 1 for found in ranges)

    def open_logs(self) -> list[PartitionLog]:
        """The logs that are open."""
        return list(self._logs.values())

    def open_partitions(self) -> list[tuple[int, PartitionLog]]:
        """The partitions whose logs are open, with their logs."""
        return list(self._logs.items())

    def require_sending(self, publisher: str | None) -> None:
        """Refuse when the hub accepts no events now, or none from this publisher."""
        if not self.entity.status.may_send:
            raise EntityDisabled(self.resource, self.entity.status)
        if publisher is not None and fold(publisher) in self.revoked:
            raise PublisherRevoked(self.name, publisher)

    def require_receiving(self) -> None:
        """Refuse when the hub delivers no events now."""
        if not self.entity.status.may_receive:
            raise EntityDisabled(self.resource, self.entity.status)

    def update(self, entity: Hub) -> None:
        """Apply changed settings: reconfigure the logs, and close links that the new status forbids.

        Readers are closed after any change of status, partition count or retention, as by the service; their clients
        connect again.
        """
        before, self.entity = self.entity, entity
        self.publication_bytes = self._largest_publication()
        if _cold_terms(before) != _cold_terms(entity):
            if self._history is not None:
                self._history.retire()
            self._history = self._find_history()
            for number in self._logs:
                self._logs[number] = self._with_history(self.stored_log(number), number)
        for log in self._logs.values():
            log.reconfigure(self.config)
        if not entity.status.may_send:
            self._evict_publishers(EntityDisabled(self.resource, entity.status))
        if not entity.status.may_receive:
            self.readers.evict_all(EntityDisabled(self.resource, entity.status))
        elif _read_terms(before) != _read_terms(entity):
            self.readers.evict_all(EntityUpdated(self.name))

    def revoke(self, publisher: str) -> None:
        """Revoke a publisher; its open links are closed too."""
        self.revoked.add(fold(publisher))
        self._evict_publishers(PublisherRevoked(self.name, publisher), fold(publisher))

    def restore(self, publisher: str) -> None:
        """Lift the revocation of a publisher."""
        self.revoked.discard(fold(publisher))

    def retire(self, refusal: Refusal) -> None:
        """Close all links of a hub that is being deleted; the caller deletes its logs."""
        self._retired = refusal
        self._evict_publishers(refusal)
        self.readers.evict_all(refusal)
        self._logs.clear()
        openings, self._openings = self._openings, {}
        for opening in openings.values():
            opening.end()

    def _evict_publishers(self, refusal: Refusal, publisher: str | None = None) -> None:
        for evict, name in list(self.publishers.items()):
            if publisher is None or name == publisher:
                self.publishers.pop(evict, None)
                evict(refusal)


def _read_terms(hub: Hub) -> tuple[object, ...]:
    """The settings of a hub that its readers depend on."""
    return hub.status, hub.partition_count, hub.retention, *_cold_terms(hub)


def _cold_terms(hub: Hub) -> tuple[object, ...]:
    """The settings that decide which captured files readers get, and how."""
    if not hub.has_cold_reads or hub.capture is None:
        return ()
    return hub.capture.destination, hub.captured_since.id, hub.timestamp_type
