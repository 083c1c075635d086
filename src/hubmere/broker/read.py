"""Reading: which events a reader may see, which reader owns a partition, and the charge of egress.

There are two kinds of readers. A `Reader` (AMQP) reads one partition for one consumer group and keeps its position
here. A `PartitionReader` (Kafka) is given the position at each read and belongs to no group. Both hand out closed
batches and are woken when the log moves; the endpoint decides how many bytes its client can take. For both:

1. Visibility: only committed events; a reader of committed transactions sees nothing beyond the last stable offset and
   is given the aborted ranges that it must skip.
2. Egress: what was delivered is counted for the hub and charged to the throughput units and to the client's application
   group. What the capture job of a hub reads costs nothing (reference: service 6).

Epoch rules (reference: AMQP 5.5): a `Reader` with an epoch owns the partition for its group and gives way only to an
equal or higher epoch; readers without an epoch share the partition, five at most. Nothing here waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from hubmere.broker.hubs.opening import LogOpening, Waiting
from hubmere.broker.monitoring.tracing import Tracer
from hubmere.broker.places import Place, PlaceRequest, Places
from hubmere.broker.quotas.application_groups import FREE, ClientQuota
from hubmere.broker.tail import Tails
from hubmere.model.entity import Hub
from hubmere.model.errors import (
    EpochRequired,
    EpochTooLow,
    LeaderEpochFenced,
    LeaderEpochUnknown,
    PositionBeyondEnd,
    ReaderStolen,
    ReceiverLimit,
    Refusal,
)
from hubmere.model.position import Anchor, Position
from hubmere.store.engine import AbortedTransaction, Chunk, FileRange, LogState, PartitionLog

if TYPE_CHECKING:
    from hubmere.broker.hubs.live import LiveHub
    from hubmere.broker.hubs.views import HubView

# The service's name for a reader that gave none.
UNNAMED = "nil"

# Steals of a hub that are kept for monitoring.
KEPT_STEALS = 16

# The state of a partition whose log is being opened: nothing is known yet.
NOT_OPEN = LogState(log_start=-1, committed=-1, last_stable=-1, last_offset=-1, last_enqueued_ms=-1, size_bytes=0)

# How often a reader checks again whether it may deliver, while its gateway is disconnected from its cluster.
WITHOUT_LEASE_S = 0.1

# The leader epoch of a client that does not check it.
ANY_EPOCH = -1

OnReady = Callable[[], None]
OnClosed = Callable[[Refusal], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client that reads: its quotas and its tracer."""

    client_quota: ClientQuota = FREE
    # The uid of the hub whose capture job the client is.
    captures_hub: str = ""
    tracer: Tracer | None = None


NOBODY = Client()


class Egress:
    """Counts what one client reads from one partition and charges it to the quotas.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_client_quota", "_group", "_is_capture_job", "_partition", "_tracer", "hub")

    def __init__(self, hub: "LiveHub", partition: int, client: Client, group: str = "") -> None:
        self.hub = hub
        self._partition = partition
        self._client_quota = client.client_quota
        self._is_capture_job = client.captures_hub == hub.entity.uid
        self._tracer = client.tracer
        self._group = group

    @property
    def tracer(self) -> Tracer | None:
        """The tracer that records spans of deliveries."""
        return self._tracer

    def charge(self, events: int, size_bytes: int, now: float) -> None:
        """Count what was delivered."""
        hub = self.hub
        if self._is_capture_job and hub.entity.is_captured:
            return
        hub.counters.outgoing_messages += events
        hub.counters.outgoing_bytes += size_bytes
        hub.rates.count_delivered(self._partition, size_bytes)
        throughput, limits = hub.namespace.throughput, self._client_quota.limits
        if throughput is not None:
            throughput.charge_egress(hub.entity.uid, size_bytes, events, now)
        if limits is not None:
            limits.charge_egress(size_bytes, events, now)

    @property
    def is_free(self) -> bool:
        """Whether no quota limits what the client reads, and no tracer records it."""
        has_limits = self.hub.namespace.throughput is not None or self._client_quota.limits is not None
        return not has_limits and self._tracer is None

    def delay(self, now: float) -> float:
        """Seconds to wait before the next delivery so that egress stays within the quotas; usually 0."""
        hub, limits = self.hub, self._client_quota.limits
        if self._is_capture_job and hub.entity.is_captured:
            return 0.0
        throughput = hub.namespace.throughput
        delay_s = 0.0 if throughput is None else throughput.egress_delay(hub.entity.uid, now)
        return delay_s if limits is None else max(delay_s, limits.egress_delay(now))

    def trace(self, data: memoryview, first_sequence: int, next_sequence: int) -> None:
        """Record a delivery, if there is a tracer."""
        if self._tracer is not None:
            namespace, hub = self.hub.namespace.entity.name, self.hub.name
            self._tracer.record_delivery(
                namespace, hub, self._partition, self._group, data, first_sequence, next_sequence
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSpec:
    """What a client asks for when it opens a `Reader`."""

    group: str
    partition: int
    position: Position
    epoch: int | None
    name: str | None
    on_ready: OnReady
    on_closed: OnClosed


class Reader:
    """One reader of one partition in one consumer group.

    Thread rule: the owner's thread only. `on_ready` is called when there may be more to read, and must not read before
    it returns; `on_closed` is called once if the reader has to give way, after which the reader is closed.
    """

    __slots__ = (
        "_chunk",
        "_egress",
        "_log",
        "_on_closed",
        "_on_ready",
        "_place",
        "_readers",
        "epoch",
        "group",
        "is_open",
        "name",
        "next_sequence",
        "partition",
    )

    def __init__(
        self, readers: "Readers", log: PartitionLog, spec: ReaderSpec, egress: Egress, place: Place | None = None
    ) -> None:
        self._readers = readers
        self._place = place
        self._egress = egress
        self._on_ready = spec.on_ready
        self._on_closed = spec.on_closed
        # The last chunk, kept for the tracer.
        self._chunk: Chunk | None = None
        self._log = log
        self.group = spec.group
        self.partition = spec.partition
        self.next_sequence = _start(log, spec.position)
        self.epoch = spec.epoch
        self.name = spec.name or UNNAMED
        self.is_open = True

    @property
    def entity(self) -> Hub:
        """The hub as it is defined now."""
        return self._egress.hub.entity

    @property
    def state(self) -> LogState:
        """Committed positions and size of the partition."""
        return self._log.state

    @property
    def offsets_are_sequences(self) -> bool:
        """Whether the offset of an event is its sequence number."""
        return self._log.offsets_are_sequences

    @property
    def lag(self) -> int:
        """Committed events that this reader has not received."""
        return self._log.state.committed - self.next_sequence

    @property
    def waiting_events(self) -> int:
        """The lag for monitoring: never negative, and 0 while the partition is offline."""
        try:
            return max(self.lag, 0)
        except Refusal:
            return 0

    def start(self) -> None:
        """Call `on_ready` from now on."""
        self._log.watch(self._on_ready)

    def read(self, max_bytes: int) -> Chunk | None:
        """Closed batches from the reader's position on; None when it has caught up.

        A position that retention has deleted moves silently to the oldest retained event (reference: service 7).
        """
        if not self.is_open:
            return None
        log = self._log
        state = log.state
        self.next_sequence = max(self.next_sequence, state.log_start)
        chunk = self._readers.tails.read(log, state, self.partition, self.next_sequence, max_bytes, stable_only=True)
        if self._egress.tracer is not None:
            self._chunk = chunk
        return chunk

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """Ranges of aborted transactions that the client must not see."""
        return self._log.aborted_transactions(first_sequence, end_sequence)

    def advance(self, next_sequence: int, events: int, size_bytes: int, now: float) -> None:
        """Move the position after a delivery, and count the delivery."""
        if self._chunk is not None and events:
            self._egress.trace(self._chunk.data, self.next_sequence, next_sequence)
        self.next_sequence = next_sequence
        self._egress.charge(events, size_bytes, now)

    def report_unreadable(self, first_sequence: int, next_sequence: int) -> None:
        """Report an intact batch whose records cannot be decoded; repeats have no effect."""
        self._egress.hub.report_unreadable(self.partition, first_sequence, next_sequence)

    def delay(self, now: float) -> float:
        """Seconds to wait before the next delivery so that egress stays within the quotas; usually 0.

        A gateway that cannot prove to its cluster that it is alive delivers nothing.
        """
        if self._place is not None and not self._place.may_deliver:
            return WITHOUT_LEASE_S
        return self._egress.delay(now)

    def close(self) -> None:
        """Release the partition; closing twice is harmless."""
        if self.is_open:
            self.is_open = False
            self._log.unwatch(self._on_ready)
            self._readers.release(self)
            if self._place is not None:
                self._place.release()

    def evict(self, refusal: Refusal) -> None:
        """Close the reader because of a rule, and pass the reason to the endpoint."""
        if self.is_open:
            self.close()
            self._on_closed(refusal)


class PartitionRead(NamedTuple):
    """The result of one `PartitionReader.read`.

    `state` is the partition as it was; `chunk` is None if there was nothing to read or no space for it; `refusal` says
    that the position or the leader epoch is not valid.
    """

    state: LogState
    chunk: Chunk | None = None
    aborted: Sequence[AbortedTransaction] = ()
    refusal: Refusal | None = None


class PartitionReader:
    """One partition that a client reads repeatedly, at positions of its choice.

    Thread rule: the owner's thread only. `on_moved` is called on each move of the partition until the reader is closed.
    While the partition's log is being opened there is nothing to read; `on_moved` is called when that has ended.
    """

    __slots__ = ("_egress", "_hub", "_log", "_on_moved", "_partition", "_stored_only", "_waiting")

    def __init__(
        self,
        hub: "LiveHub",
        partition: int,
        on_moved: Callable[[], None],
        client: Client = NOBODY,
        *,
        stored_only: bool = False,
    ) -> None:
        """With `stored_only` the reader sees the log alone, without captured files."""
        self._hub = hub
        self._partition = partition
        self._stored_only = stored_only
        self._egress = Egress(hub, partition, client)
        self._on_moved = on_moved
        self._waiting: Waiting | None = None
        self._log: PartitionLog | None = None
        self._find_log()

    def _find_log(self) -> PartitionLog | None:
        """The log; None while it is being opened. Raises why it cannot be opened."""
        if self._waiting is not None:
            return None
        try:
            self._log = self._hub_log()
        except LogOpening as opening:
            self._waiting = opening.wait(self._on_opened, 0.0, max_wait_s=inf)
            return None
        self._log.watch(self._on_moved)
        return self._log

    def _hub_log(self) -> PartitionLog:
        return self._hub.stored_log(self._partition) if self._stored_only else self._hub.log(self._partition)

    def _has_new_log(self) -> bool:
        """Whether the hub has another log now, because cold reads were switched; the reader then follows it."""
        before, found = self._log, self._hub_log()
        if before is None or before is found:
            return False
        before.unwatch(self._on_moved)
        self._log = found
        found.watch(self._on_moved)
        return True

    def _on_opened(self) -> None:
        """The log is open or has failed to open: the next read finds out."""
        self._waiting = None
        self._on_moved()

    @property
    def hub(self) -> "HubView":
        """The hub of the partition."""
        return self._hub.view

    @property
    def has_byte_offsets(self) -> bool:
        """Whether `Chunk.offset` is a byte offset; on compacted hubs and on a cluster it is the sequence number."""
        return self._log is not None and not self._log.offsets_are_sequences

    @property
    def state(self) -> LogState:
        """Committed positions and size of the partition."""
        return NOT_OPEN if self._log is None else self._log.state

    def read(
        self,
        sequence: int,
        *,
        max_bytes: int,
        space_bytes: int,
        stable_only: bool = False,
        allows_larger: bool = True,
        leader_epoch: int = ANY_EPOCH,
    ) -> PartitionRead:
        """Closed batches from the one that holds `sequence`: about `max_bytes`, at least one batch.

        `space_bytes` is what the whole answer has left. A first batch that is larger is given only with
        `allows_larger`, since half a batch is of no use.
        """
        log = self._log
        if log is None:
            log = self._find_log()
            if log is None:
                return PartitionRead(NOT_OPEN)
        state = log.state
        refusal = log.check_position(sequence, leader_epoch)
        if refusal is not None and self._has_new_log():
            assert self._log is not None
            log = self._log
            state, refusal = log.state, log.check_position(sequence, leader_epoch)
        if refusal is not None:
            return PartitionRead(state, refusal=refusal)
        if not space_bytes:
            return PartitionRead(state)
        # Also at the end that is known: a log on a cluster begins to wait there for the events of other gateways.
        limit_bytes = min(max_bytes, space_bytes)
        tails = self._hub.readers.tails
        chunk = tails.read(log, state, self._partition, sequence, limit_bytes, stable_only=stable_only)
        if chunk is None or (len(chunk.data) > space_bytes and not allows_larger):
            return PartitionRead(state)
        if not stable_only:
            return PartitionRead(state, chunk)
        return PartitionRead(state, chunk, log.aborted_transactions(chunk.first_sequence, chunk.next_sequence))

    def charge(self, chunk: Chunk, sequence: int, now: float) -> float:
        """Count a chunk that is delivered to a client at `sequence`; the seconds for which the client should pause."""
        egress = self._egress
        first = max(chunk.first_sequence, sequence)
        egress.trace(chunk.data, first, chunk.next_sequence)
        egress.charge(chunk.next_sequence - first, len(chunk.data), now)
        return egress.delay(now)

    def file_ranges(self, first: int, end: int, boot_id: str, now: float) -> Sequence[FileRange]:
        """Files with the events of a range, which a client on this machine reads itself; they count as delivered.

        Empty where a quota limits egress: it could not delay a client that reads files.
        """
        log, egress = self._log, self._egress
        if log is None or not egress.is_free:
            return ()
        found = log.file_ranges(first, end, boot_id)
        for each in found:
            events = min(each.next_sequence, end) - max(each.first_sequence, first)
            egress.charge(events, each.end_position - each.position, now)
        return found

    def close(self) -> None:
        """Stop the calls of `on_moved`; closing twice is harmless."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._log is not None:
            self._log.unwatch(self._on_moved)


def leader_epoch_refusal(epoch: int, current: int) -> Refusal | None:
    """Why a client's leader epoch is not the partition's; `ANY_EPOCH` skips the check (KIP-320)."""
    if epoch < 0 or epoch == current:
        return None
    return LeaderEpochFenced(epoch, current) if epoch < current else LeaderEpochUnknown(epoch, current)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steal:
    """One reader took a partition from another by its epoch."""

    group: str
    partition: int
    loser: str
    winner: Reader


class Readers:
    """The readers of one hub, by consumer group and partition."""

    __slots__ = ("_limit", "_places", "_readers", "steal_count", "steals", "tails")

    def __init__(self, receiver_limit: int | None, places: Places | None = None) -> None:
        """`places` decides for all gateways of a cluster; without it the decision is made here."""
        self._limit = receiver_limit
        self._places = places
        self._readers: dict[tuple[str, int], list[Reader]] = {}
        self.tails = Tails()
        # For monitoring: how often a partition was taken since the node started, and the latest of these.
        self.steal_count = 0
        self.steals: tuple[Steal, ...] = ()

    def open(self, hub: "LiveHub", spec: ReaderSpec, client: Client = NOBODY) -> Reader:
        """Open a reader and evict those that must give way; raises and changes nothing if it is refused.

        On a cluster: raises LogOpening until the place is granted and the partition's leader has said where it ends.
        """
        if self._places is not None:
            return self._open_on_cluster(self._places, hub, spec, client)
        key = (spec.group, spec.partition)
        others = self._readers.get(key, [])
        self._check(others, spec.epoch, spec.name or UNNAMED)
        # Waits, if events before the log have to be found first.
        log = hub.current_log(spec.partition, spec.position)
        reader = Reader(self, log, spec, Egress(hub, spec.partition, client, spec.group))
        if spec.epoch is not None:
            for other in list(others):
                self._note_steal(Steal(group=spec.group, partition=spec.partition, loser=other.name, winner=reader))
                other.evict(
                    ReaderStolen(new_epoch=spec.epoch, new_name=reader.name, epoch=other.epoch, name=other.name)
                )
        self._readers.setdefault(key, []).append(reader)
        return reader

    def _open_on_cluster(self, places: Places, hub: "LiveHub", spec: ReaderSpec, client: Client) -> Reader:
        # Get the end of the log first: a granted place must be used at once.
        log = hub.current_log(spec.partition, spec.position)
        _start(log, spec.position)
        request = PlaceRequest(
            hub_uid=hub.entity.uid,
            group=spec.group,
            partition=spec.partition,
            epoch=spec.epoch,
            name=spec.name or UNNAMED,
            limit=self._limit,
        )
        place = hub.take_place(places, request)
        reader = Reader(self, log, spec, Egress(hub, spec.partition, client, spec.group), place)
        place.hold(reader.evict)
        self._readers.setdefault((spec.group, spec.partition), []).append(reader)
        return reader

    def _note_steal(self, steal: Steal) -> None:
        self.steal_count += 1
        self.steals = (*self.steals, steal)[-KEPT_STEALS:]

    def _check(self, others: Sequence[Reader], epoch: int | None, name: str) -> None:
        owner = next((reader for reader in others if reader.epoch is not None), None)
        if owner is not None:
            assert owner.epoch is not None
            if epoch is None:
                raise EpochRequired(owner.epoch)
            if epoch < owner.epoch:
                raise EpochTooLow(current=owner.epoch, requested=epoch, current_name=owner.name, name=name)
        elif epoch is None and self._limit is not None and len(others) >= self._limit:
            raise ReceiverLimit(self._limit, [reader.name for reader in others])

    def release(self, reader: Reader) -> None:
        """Remove a reader that has closed."""
        key = (reader.group, reader.partition)
        readers = self._readers.get(key, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(key, None)

    def all(self) -> list[Reader]:
        """Every reader of the hub."""
        return [reader for readers in self._readers.values() for reader in readers]

    def evict_all(self, refusal: Refusal, group: str | None = None) -> None:
        """Evict every reader of the hub, or of one group of it."""
        for reader in self.all():
            if group is None or reader.group == group:
                reader.evict(refusal)


_NUMBERED = {Anchor.SEQUENCE: "sequence number", Anchor.OFFSET: "offset"}


def _start(log: PartitionLog, position: Position) -> int:
    """Where a reader starts.

    An event of a partition that was never written to cannot be named by sequence number or offset, not even
    inclusively: the service refuses it. On other partitions the next number may be named inclusively.
    """
    kind = _NUMBERED.get(position.anchor)
    if kind is not None and log.state.committed == 0:
        raise PositionBeyondEnd(kind, str(position.value), "-1")
    return log.find(position)
