"""Who reads a partition, from where, and who must give way.

A Subscription is one reader of one partition in one consumer group. It hands out closed batches and is woken by the
log's one moving number; the endpoint decides how many bytes its client can take. Epoch rules (reference: AMQP 5.5): a
reader with an epoch owns the partition for its group and yields only to an equal or higher one; readers without an
epoch share it, five at most. Nothing here waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hubmere.broker.counters import Counters
from hubmere.broker.quotas.application_groups import FREE, ClientQuota
from hubmere.broker.quotas.byte_rates import PartitionRates
from hubmere.broker.quotas.throughput import Throughput
from hubmere.model.errors import EpochRequired, EpochTooLow, PositionBeyondEnd, ReaderStolen, ReceiverLimit, Refusal
from hubmere.model.position import Anchor, Position
from hubmere.store.engine import AbortedTransaction, Chunk, PartitionLog

# The service's name for a reader that gave none.
UNNAMED = "nil"

# Steals of a hub that are remembered for those who look: more than happen between two looks.
KEPT_STEALS = 16

Wake = Callable[[], None]
Evict = Callable[[Refusal], None]


class Subscription:
    """One reader of one partition.

    Thread rule: the owner's thread only. `wake` is called when there may be more to read, and must not read from
    within; `evict` is called once when the reader loses its place, after which the subscription is closed.
    """

    __slots__ = (
        "_client_quota",
        "_counters",
        "_evict",
        "_hub",
        "_rates",
        "_readers",
        "_throughput",
        "_wake",
        "epoch",
        "group",
        "is_open",
        "log",
        "name",
        "next_sequence",
        "partition",
    )

    def __init__(
        self,
        readers: "Readers",
        log: PartitionLog,
        *,
        hub: str,
        group: str,
        partition: int,
        next_sequence: int,
        epoch: int | None,
        name: str,
        wake: Wake,
        evict: Evict,
        counters: Counters,
        rates: PartitionRates,
        throughput: Throughput | None,
        client_quota: ClientQuota = FREE,
    ) -> None:
        self._readers = readers
        self._client_quota = client_quota
        self._hub = hub
        self._wake = wake
        self._evict = evict
        self._counters = counters
        self._rates = rates
        self._throughput = throughput
        self.log = log
        self.group = group
        self.partition = partition
        self.next_sequence = next_sequence
        self.epoch = epoch
        self.name = name
        self.is_open = True

    @property
    def lag(self) -> int:
        """Events that are committed and not yet handed to this reader."""
        return self.log.state.committed - self.next_sequence

    @property
    def waiting_events(self) -> int:
        """The same for those who look: never negative, and 0 for a partition that cannot be asked now."""
        try:
            return max(self.lag, 0)
        except Refusal:
            return 0

    def start(self) -> None:
        """Begin to be woken by the log."""
        self.log.watch(self._wake)

    def read(self, max_bytes: int) -> Chunk | None:
        """Closed batches from the reader's position on; None when it has caught up.

        Positions that retention has passed move silently to the oldest retained event (reference: service 7).
        """
        if not self.is_open:
            return None
        self.next_sequence = max(self.next_sequence, self.log.state.log_start)
        return self.log.read(self.next_sequence, max_bytes, stable_only=True)

    def aborted(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """Ranges of aborted transactions that the reader must not see."""
        return self.log.aborted_transactions(first_sequence, end_sequence)

    def delivered(self, next_sequence: int, events: int, size_bytes: int, now: float) -> None:
        """Move on, and count what went out."""
        self.next_sequence = next_sequence
        counters = self._counters
        counters.outgoing_messages += events
        counters.outgoing_bytes += size_bytes
        self._rates.delivered(self.partition, size_bytes)
        if self._throughput is not None:
            self._throughput.charge_egress(self._hub, size_bytes, events, now)
        if self._client_quota.limits is not None:
            self._client_quota.limits.charge_egress(size_bytes, events, now)

    def delay(self, now: float) -> float:
        """Seconds to hold the next delivery back so that egress stays within what is allowed; usually 0."""
        delay = 0.0 if self._throughput is None else self._throughput.egress_delay(self._hub, now)
        return delay if self._client_quota.limits is None else max(delay, self._client_quota.limits.egress_delay(now))

    def close(self) -> None:
        """Give the place back; closing twice is harmless."""
        if self.is_open:
            self.is_open = False
            self.log.unwatch(self._wake)
            self._readers.release(self)

    def evict(self, refusal: Refusal) -> None:
        """Close because of a rule, and tell the endpoint which."""
        if self.is_open:
            self.close()
            self._evict(refusal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steal:
    """One reader took a partition from another by its epoch."""

    group: str
    partition: int
    loser: str
    winner: Subscription


class Readers:
    """The readers of one hub, by consumer group and partition."""

    __slots__ = ("_limit", "_places", "steal_count", "steals")

    def __init__(self, receiver_limit: int | None) -> None:
        self._limit = receiver_limit
        self._places: dict[tuple[str, int], list[Subscription]] = {}
        # For those who look: how often a partition was taken since the node started, and the latest of these.
        self.steal_count = 0
        self.steals: tuple[Steal, ...] = ()

    def admit(
        self,
        log: PartitionLog,
        position: Position,
        *,
        hub: str,
        group: str,
        partition: int,
        epoch: int | None,
        name: str | None,
        wake: Wake,
        evict: Evict,
        counters: Counters,
        rates: PartitionRates,
        throughput: Throughput | None,
        client_quota: ClientQuota = FREE,
        kind: type[Subscription] = Subscription,
    ) -> Subscription:
        """Let a reader in at a position, and put out those who must give way; raises and changes nothing if refused."""
        shown = name or UNNAMED
        there = self._places.get((group, partition), [])
        self._check(there, epoch, shown)
        subscription = kind(
            self,
            log,
            hub=hub,
            group=group,
            partition=partition,
            next_sequence=_start(log, position),
            epoch=epoch,
            name=shown,
            wake=wake,
            evict=evict,
            counters=counters,
            rates=rates,
            throughput=throughput,
            client_quota=client_quota,
        )
        if epoch is not None:
            for reader in list(there):
                self._note_steal(Steal(group=group, partition=partition, loser=reader.name, winner=subscription))
                reader.evict(ReaderStolen(new_epoch=epoch, new_name=shown, epoch=reader.epoch, name=reader.name))
        self._places.setdefault((group, partition), []).append(subscription)
        return subscription

    def _note_steal(self, steal: Steal) -> None:
        self.steal_count += 1
        self.steals = (*self.steals, steal)[-KEPT_STEALS:]

    def _check(self, there: Sequence[Subscription], epoch: int | None, name: str) -> None:
        owner = next((reader for reader in there if reader.epoch is not None), None)
        if owner is not None:
            assert owner.epoch is not None
            if epoch is None:
                raise EpochRequired(owner.epoch)
            if epoch < owner.epoch:
                raise EpochTooLow(current=owner.epoch, requested=epoch, current_name=owner.name, name=name)
        elif epoch is None and self._limit is not None and len(there) >= self._limit:
            raise ReceiverLimit(self._limit, [reader.name for reader in there])

    def release(self, subscription: Subscription) -> None:
        """Forget a reader that has closed."""
        place = (subscription.group, subscription.partition)
        there = self._places.get(place, [])
        if subscription in there:
            there.remove(subscription)
        if not there:
            self._places.pop(place, None)

    def all(self) -> list[Subscription]:
        """Every reader of the hub."""
        return [reader for there in self._places.values() for reader in there]

    def evict_all(self, refusal: Refusal, group: str | None = None) -> None:
        """Put out every reader of the hub, or of one group of it."""
        for reader in self.all():
            if group is None or reader.group == group:
                reader.evict(refusal)


_NUMBERED = {Anchor.SEQUENCE: "sequence number", Anchor.OFFSET: "offset"}


def _start(log: PartitionLog, position: Position) -> int:
    """Where a reader starts. A partition that was never written to has no sequence number and no offset to name, not
    even inclusively: the service refuses it. On others the number that comes next may be named inclusively."""
    kind = _NUMBERED.get(position.anchor)
    if kind is not None and log.state.committed == 0:
        raise PositionBeyondEnd(kind, str(position.value), "-1")
    return log.find(position)
