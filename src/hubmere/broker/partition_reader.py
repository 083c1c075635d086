"""Reading at given positions, as Kafka does: the client says at each read where it reads.

A `PartitionReader` belongs to no consumer group and keeps no position. It hands out closed batches and is woken when
the log moves; the endpoint decides how many bytes its client can take. Only committed events are visible. A reader of
committed transactions sees nothing beyond the last stable offset, and is given the aborted ranges that it must skip.
`read` has the readers of AMQP, which own partitions. Nothing here waits.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from hubmere.broker.egress import NOBODY, Client, Egress
from hubmere.broker.hubs.opening import LogOpening, Waiting
from hubmere.model.errors import LeaderEpochFenced, LeaderEpochUnknown, Refusal
from hubmere.store.engine import AbortedTransaction, Chunk, FileRange, LogState, PartitionLog

if TYPE_CHECKING:
    from hubmere.broker.hubs.live import LiveHub
    from hubmere.broker.hubs.views import HubView

# The state of a partition whose log is being opened: nothing is known yet.
NOT_OPEN = LogState(log_start=-1, committed=-1, last_stable=-1, last_offset=-1, last_enqueued_ms=-1, size_bytes=0)

# The leader epoch of a client that does not check it.
ANY_EPOCH = -1


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
