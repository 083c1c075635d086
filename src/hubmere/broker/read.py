"""Reading in a consumer group, as AMQP does: which events a reader sees, and which reader owns a partition.

A `Reader` reads one partition for one consumer group and keeps its position here. It hands out closed batches and is
woken when the log moves; the endpoint decides how many bytes its client can take. Only committed events are visible,
none beyond the last stable offset, and the reader is given the ranges of aborted transactions that it must skip.
`partition_reader` has the readers of Kafka, which own nothing.

Epoch rules (reference: AMQP 5.5): a `Reader` with an epoch owns the partition for its group and gives way only to an
equal or higher epoch; readers without an epoch share the partition, five at most. Nothing here waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubmere.broker.egress import NOBODY, Client, Egress
from hubmere.broker.places import Place, PlaceRequest, Places
from hubmere.broker.tail import Tails
from hubmere.model.entity import Hub
from hubmere.model.errors import (
    EpochRequired,
    EpochTooLow,
    PositionBeyondEnd,
    ReaderStolen,
    ReceiverLimit,
    Refusal,
)
from hubmere.model.position import Anchor, Position
from hubmere.store.engine import AbortedTransaction, Chunk, LogState, PartitionLog

if TYPE_CHECKING:
    from hubmere.broker.hubs.live import LiveHub

# The service's name for a reader that gave none.
UNNAMED = "nil"

# Steals of a hub that are kept for monitoring.
KEPT_STEALS = 16

# How often a reader checks again whether it may deliver, while its gateway is disconnected from its cluster.
WITHOUT_LEASE_S = 0.1

OnReady = Callable[[], None]
OnClosed = Callable[[Refusal], None]


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
