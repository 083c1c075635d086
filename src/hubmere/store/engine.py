"""LogEngine: the surface that a local disk, plain memory or a Kafka cluster offers to the broker.

Nothing above this surface may know whether a log is a local file. Positions are monotonic; they are dense on a local
disk but need not be on other engines. All methods are called on one thread, the owner's (the node's event loop), and
none of them waits for a flush: what takes time completes later through a Receipt or a watcher.

A receipt completes, and its callback runs, on the owner's thread in a later turn, never inside the call that returned
it. That holds for both durabilities: with `fsync` after the flush, with `os` (acknowledged once the operating system
has it, so a power cut may lose the last seconds) at the end of the owner's turn. Receipts of one log complete in the
order of their appends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NewType, Protocol

from hubmere.model.errors import Refusal
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.records.runs import BatchRun
from hubmere.store.catalog.runtime_state import Deletion
from hubmere.store.catalog.view import Step, View
from hubmere.store.recovery.damage_registry import DamageRegistry

# A partition's log is known by the hub's immutable uid and the partition's number, never by names that may change.
LogId = NewType("LogId", str)

Watcher = Callable[[], None]


def log_id(hub_uid: str, partition: int) -> LogId:
    """The id of one partition's log."""
    return LogId(f"{hub_uid}-{partition}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How one partition's log is kept; may change while it is open."""

    retention_ms: int | None = 7 * 24 * 3600 * 1000  # None: for ever
    retention_bytes: int | None = None
    segment_bytes: int = 256 * 1024 * 1024
    segment_ms: int = 24 * 3600 * 1000
    append_time: bool = True  # False: events keep the producer's time (timestampType Create)
    compact: bool = False  # fixed at creation; offsets are then sequence numbers
    tombstone_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0


class Hold(NamedTuple):
    """What retention leaves alone: events from a sequence number on, while the log has at most so many bytes."""

    from_sequence: int
    most_bytes: int


class LogState(NamedTuple):
    """A snapshot of one partition; it covers committed events only.

    `log_start`, `committed` and `last_stable` are sequence numbers: Kafka's log start offset, high watermark and last
    stable offset.
    """

    log_start: int  # the oldest retained event; equals `committed` when the log is empty
    committed: int  # one after the last committed event
    last_stable: int  # the first event of the oldest open transaction, or `committed` if none is open
    last_offset: int  # byte offset of the last event, -1 if the log never had one
    last_enqueued_ms: int  # -1 if the log never had an event
    size_bytes: int


class AbortedTransaction(NamedTuple):
    """A range of one producer's events that readers of committed data must drop."""

    producer_id: int
    first_sequence: int
    last_sequence: int


class ProducerState(NamedTuple):
    """What a partition remembers of one producer id."""

    producer_id: int
    epoch: int
    last_sequence: int  # -1 when it only began or ended a transaction
    last_written_ms: int  # -1 as above
    transaction_first: int  # where its open transaction begins, -1 when there is none


class Chunk(NamedTuple):
    """What one read gives: whole closed batches in order, the bytes contiguous."""

    data: memoryview  # concatenated whole batches, possibly starting before the wanted sequence
    offset: int  # byte number (AMQP offset) of the first batch
    first_sequence: int  # base sequence of the first batch
    next_sequence: int  # where the next read continues


class CompactionPass(Protocol):
    """One pass of compaction over one log."""

    def rewrite(self) -> None:
        """Do the slow part; may run on any thread, once."""

    def adopt(self, now_ms: int) -> int:
        """Put what was rewritten in place, on the owner's thread; returns how many bytes went."""


class PartitionLog(Protocol):
    """One partition: append, read, find, and one number that moves (`end_sequence` of committed events)."""

    @property
    def state(self) -> LogState:
        """Committed positions and size."""

    @property
    def is_offline(self) -> bool:
        """Whether the log takes nothing until it was verified, after a flush has failed."""

    @property
    def leader_epoch(self) -> int:
        """The epoch that batches are stamped with: moves on when committed events were lost (KIP-101)."""

    def append(
        self,
        batch: bytearray | memoryview,
        now_ms: int,
        callback: Callable[[Receipt], None] | None = None,
        *,
        lenient_producer: bool = False,
    ) -> Receipt:
        """Number, stamp and write one closed batch; the receipt completes when it is committed.

        The buffer, which must be one that can be written to, becomes the log's. A checksum of 0 says that the batch was
        made or checked inside the node and is to be sealed here; any other is verified. `lenient_producer` takes any
        repeated sequence as a duplicate (the AMQP rule); otherwise only an exact repeat of one of the last five batches
        is one (the Kafka rule). Raises ProducerRefused, StorageRefusal, InvalidBatch; then nothing was written.
        """

    def check_run(self, data: bytearray, sizes: Sequence[int], newest_ms: int) -> BatchRun | None:
        """The closed batches of these sizes, one behind the other, if they can be appended as one.

        None when one of them is not ordinary, is newer than `newest_ms` (the producer's time), or when the log is not
        ready: they are to be offered one by one. The buffer becomes the log's.
        """

    def append_run(self, run: BatchRun, now_ms: int, callback: Callable[[Receipt], None] | None = None) -> Receipt:
        """Number, stamp and write a run that was checked just now, all or nothing; its events are contiguous.

        Raises StorageRefusal; then nothing was written.
        """

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        callback: Callable[[Receipt], None] | None = None,
    ) -> Receipt:
        """Write a transaction's commit or abort marker."""

    def read(self, sequence: int, max_bytes: int, *, stable_only: bool = False) -> Chunk | None:
        """Whole batches from the one that holds `sequence`, at least one, at most about `max_bytes`.

        None when nothing committed is there yet. Raises SequenceOutOfRange below the first or above the end.
        """

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """Aborted ranges that overlap a range of sequence numbers."""

    def find(self, position: Position) -> int:
        """The sequence number at which a reader of this position starts, between first and end."""

    def offset_of(self, sequence: int) -> int:
        """The byte number of an event."""

    def producer_last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and last sequence number of an idempotent producer, if known."""

    def producers(self) -> Sequence[ProducerState]:
        """Everybody who is remembered as a producer, for those who look."""

    def open_transactions(self) -> Sequence[ProducerState]:
        """The producers that have an open transaction in this partition."""

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` on each move of the committed end, of the stable end or of the start, until unwatched."""

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling a watcher; unknown ones are ignored."""

    def trim(self, before_sequence: int) -> None:
        """Let everything before a sequence number go (DeleteRecords, retention)."""

    def apply_retention(self, now_ms: int, hold: Hold | None = None) -> int:
        """Drop whole segments past retention that no hold keeps; returns how many went."""

    def overdue_bytes(self, now_ms: int) -> int:
        """Bytes that are past retention and still there."""

    def compaction_pass(self, now_ms: int) -> CompactionPass | None:
        """A pass over a compacted log that keeps the last event of each key, if it could gain something."""

    def reconfigure(self, config: LogConfig) -> None:
        """Change how the log is kept; `compact` cannot change."""

    def close(self) -> None:
        """Finish the group commit and seal the indexes."""


class LogEngine(Protocol):
    """All the logs of a node."""

    @property
    def damage(self) -> DamageRegistry:
        """Stored events that cannot be read."""

    def open(self, log: LogId, config: LogConfig) -> PartitionLog:
        """Open a partition's log, making it when it is not there; recovers after a crash."""

    def delete(self, log: LogId) -> None:
        """Delete a partition's log and free its files; opening it later starts anew."""

    def existing(self) -> Sequence[LogId]:
        """The logs that are there."""

    def set_shortage(self, why: str | None) -> None:
        """Refuse appends to every log from now on, or take them again: the disk is full, or has room. Reads go on."""

    def maintain(self, now_ms: int) -> None:
        """Called every second or so: partitions that went offline are verified and brought back."""

    def close(self) -> None:
        """Close every log, sealing indexes, and write the clean-shutdown marker."""


OnDurable = Callable[[Refusal | None], None]


class Catalog(Protocol):
    """Entities and runtime state of a node, read from memory and written behind.

    Thread rule: all calls on the owner's thread; only `apply` and `close` wait.
    """

    @property
    def view(self) -> View:
        """Everything that is durable."""

    @property
    def planned(self) -> View:
        """Everything that is durable or submitted: check a change against this view before submitting it."""

    def submit(self, *steps: Step, callback: OnDurable | None = None) -> None:
        """Submit a change, all or nothing; the callback runs when the change is durable or has failed.

        Raises NotFound, AlreadyExists, StorageFull or ShuttingDown at once, without changing anything.
        """

    def apply(self, *steps: Step) -> None:
        """Submit a change and wait until it is durable: for start-up, the command line and tests."""

    def pending_deletions(self) -> Sequence[Deletion]:
        """Deleted hubs whose logs may still exist."""

    def close(self) -> None:
        """Write all submitted changes, then close."""
