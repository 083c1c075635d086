"""The protocols of the store: LogEngine and PartitionLog for events, Catalog for entities and runtime state.

The broker uses these and no implementation: a log may be a local file, memory, or a partition of a Kafka cluster.
Sequence numbers are monotonic; on a local disk they are also dense. All methods are called on one thread, the owner's
(the node's event loop), and none waits for the disk: slow work completes later through a Receipt, a watcher or, when a
log is opened, a callback.

A receipt completes, and its callback runs, on the owner's thread in a later turn, never inside the call that returned
it. With durability `fsync` that is after the flush. With `os` it is at the end of the owner's turn, when the operating
system has the data: a power cut may lose the last seconds. Receipts of one log complete in the order of their appends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NewType, Protocol

from hubmere.model.errors import Refusal
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.records.runs import BatchRun
from hubmere.store.catalog.runtime_state import Deletion
from hubmere.store.catalog.view import CatalogView, Step
from hubmere.store.recovery.damage_registry import DamageRegistry

# A log is identified by the immutable uid of its hub and the partition number, never by names that may change.
LogId = NewType("LogId", str)

Watcher = Callable[[], None]


def log_id(hub_uid: str, partition: int) -> LogId:
    """The id of one partition's log."""
    return LogId(f"{hub_uid}-{partition}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Configuration of one partition's log; may change while the log is open."""

    retention_ms: int | None = 7 * 24 * 3600 * 1000  # None: no limit
    retention_bytes: int | None = None
    segment_bytes: int = 256 * 1024 * 1024
    segment_ms: int = 24 * 3600 * 1000
    append_time: bool = True  # False: events keep the producer's timestamp (CreateTime)
    compact: bool = False  # fixed at creation; offsets are then sequence numbers
    tombstone_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0


class RetentionHold(NamedTuple):
    """Retention keeps the events from a sequence number on, as long as the log is no larger than `max_bytes`."""

    from_sequence: int
    max_bytes: int


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
    """A range of one producer's events that readers of committed transactions must skip."""

    producer_id: int
    first_sequence: int
    last_sequence: int


class ProducerState(NamedTuple):
    """State of one producer id in a partition."""

    producer_id: int
    epoch: int
    last_sequence: int  # -1 if it only started or ended a transaction
    last_written_ms: int  # -1 likewise
    transaction_first: int  # first sequence number of its open transaction, -1 if none is open


class Chunk(NamedTuple):
    """The result of one read: whole batches in order, contiguous."""

    data: memoryview  # concatenated whole batches; the first may start before the requested sequence number
    offset: int  # byte offset (the AMQP offset) of the first batch
    first_sequence: int  # base sequence number of the first batch
    next_sequence: int  # where the next read continues
    # Offsets of the events of each batch by its base sequence number, if they do not follow from the batch's position.
    offsets: Mapping[int, Sequence[int]] | None = None


class FileRange(NamedTuple):
    """Whole committed batches in one file, which other processes of this machine can read."""

    path: str
    file_id: str  # device and inode: whether a file that was opened by its path is this one
    position: int  # of the first batch in the file
    end_position: int
    offset: int  # byte offset (the AMQP offset) of the first batch
    first_sequence: int  # base sequence number of the first batch
    next_sequence: int


class CompactionPass(Protocol):
    """One pass of compaction over one log."""

    def rewrite(self) -> None:
        """Rewrite segments beside the old ones; may run on any thread, once."""

    def adopt(self, now_ms: int) -> int:
        """Replace the old segments, on the owner's thread; returns the reclaimed bytes."""


class RunAppends(Protocol):
    """Appends several batches at once: for a log that numbers and writes them itself."""

    def check_run(self, data: bytearray, sizes: Sequence[int], newest_ms: int) -> BatchRun | None:
        """Check concatenated batches of these sizes: the run, if they can be appended together.

        Returns None if a batch is not ordinary or is newer than `newest_ms` (the producer's time), or if the log cannot
        take appends now: then append them one by one. The log takes over the buffer.
        """

    def append_run(self, run: BatchRun, now_ms: int, callback: Callable[[Receipt], None] | None = None) -> Receipt:
        """Number, stamp and write a run that was just checked, all or nothing; its events are contiguous.

        Raises StorageRefusal, without writing.
        """


class PartitionLog(Protocol):
    """One partition: append, read, find, and one number that moves, `committed`."""

    @property
    def state(self) -> LogState:
        """Committed positions and size."""

    @property
    def is_offline(self) -> bool:
        """Whether the log refuses appends because a flush failed, until it has been verified."""

    @property
    def leader_epoch(self) -> int:
        """The epoch that batches are stamped with; increases when committed events were lost (KIP-101)."""

    @property
    def offsets_are_sequences(self) -> bool:
        """Whether the offset of an event is its sequence number; otherwise it is a byte offset."""

    def append(
        self,
        batch: bytearray | memoryview,
        now_ms: int,
        callback: Callable[[Receipt], None] | None = None,
        *,
        lenient_producer: bool = False,
    ) -> Receipt:
        """Number, stamp and write one closed batch; the receipt completes when it is committed.

        The log takes over the buffer, which must be writable. A checksum of 0 means that the node built or verified the
        batch itself, and the log computes the checksum; any other checksum is verified. With `lenient_producer` any
        repeated producer sequence is a duplicate (the AMQP rule); otherwise only an exact repeat of one of the last
        five batches is (the Kafka rule). Raises ProducerRefused, StorageRefusal or InvalidBatch, without writing.
        """

    @property
    def runs(self) -> RunAppends | None:
        """Appends of several batches at once; None if the log takes them one by one."""

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

    def is_current(self, position: Position | None, on_answer: Callable[[], None]) -> bool:
        """Whether `state`, and `find` of this position, are as new as this call.

        If not, the log is kept elsewhere: its owner is asked, and `on_answer` is called once in a later turn. Then ask
        again in that turn. Raises why the owner cannot be asked.
        """

    def check_position(self, sequence: int, leader_epoch: int) -> Refusal | None:
        """Why nobody can read from a sequence number, or with this leader epoch (-1: any); None if that is not known.

        Only the owner of a log may say so. A log that is kept elsewhere may have more events than are known here, so a
        position beyond the known end is no reason.
        """

    def read(self, sequence: int, max_bytes: int, *, stable_only: bool = False) -> Chunk | None:
        """Whole batches from the one that contains `sequence`: at least one, at most about `max_bytes`.

        Returns None if `sequence` is not committed yet, or not here yet; watchers are called when it is. Raises
        SequenceOutOfRange before `log_start` or after `committed`.
        """

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions that overlap a range of sequence numbers."""

    def file_ranges(self, first_sequence: int, end_sequence: int, boot_id: str) -> Sequence[FileRange]:
        """Files with the first events of a range, for a process of the machine with this boot id.

        In order and without a gap; a few files, and nothing beyond the last stable sequence number. Empty if the log is
        kept elsewhere, compacted or damaged, if it does not have the first event, or if the range has aborted
        transactions: then only `read` is possible.
        """

    def find(self, position: Position) -> int:
        """The sequence number at which a reader of this position starts, between `log_start` and `committed`."""

    def offset_of(self, sequence: int) -> int:
        """The byte offset of an event."""

    def producer_last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and last sequence number of an idempotent producer, if known."""

    def producers(self) -> Sequence[ProducerState]:
        """All producers that the log remembers, for monitoring."""

    def open_transactions(self) -> Sequence[ProducerState]:
        """The producers that have an open transaction in this partition."""

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` whenever `committed`, `last_stable` or `log_start` moves, until `unwatch`."""

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling a watcher; unknown ones are ignored."""

    def trim(self, before_sequence: int) -> None:
        """Delete everything before a sequence number (DeleteRecords, retention)."""

    def apply_retention(self, now_ms: int, hold: RetentionHold | None = None) -> int:
        """Delete segments past retention that no hold protects; returns how many."""

    def overdue_bytes(self, now_ms: int) -> int:
        """Bytes past retention that still exist."""

    def compaction_pass(self, now_ms: int) -> CompactionPass | None:
        """A pass that keeps only the last event of each key, if it can reclaim anything."""

    def reconfigure(self, config: LogConfig) -> None:
        """Change the configuration; `compact` is fixed at creation."""

    def close(self) -> None:
        """Commit everything written and save the indexes."""


# Called once with the opened log, or with the reason why it cannot be opened.
OnOpened = Callable[[PartitionLog | Refusal], None]


class LogEngine(Protocol):
    """All the logs of a node."""

    @property
    def damage(self) -> DamageRegistry:
        """Stored events that cannot be read."""

    def open(self, log: LogId, config: LogConfig, on_opened: OnOpened) -> None:
        """Open a partition's log, or create it; recovers after a crash.

        `on_opened` is called on the owner's thread: before this call returns if the log is open already or the engine
        need not wait, else in a later turn. Several calls for one log share the work.
        """

    def exists(self, log: LogId) -> bool:
        """Whether the log was ever opened, so that opening it creates nothing."""

    def find_unrecovered(self, on_found: Callable[[Sequence[LogId]], None]) -> None:
        """After a crash: find the logs that have to be recovered when they are opened.

        `on_found` is called on the owner's thread, with some of them at a time; never after a clean shutdown.
        """

    def delete(self, log: LogId, on_deleted: Callable[[], None] | None = None) -> None:
        """Delete a partition's log and its files; opening it later creates an empty one.

        Does not wait. `on_deleted` is called on the owner's thread, perhaps at once, when the log cannot come back
        after a crash; it is not called if the deletion fails. A log that is being opened is deleted when that has
        ended; `on_opened` gets a refusal.
        """

    def set_shortage(self, reason: str | None) -> None:
        """The disk is full: refuse appends to all logs with this reason. None: accept them again. Reads continue."""

    def maintain(self, now_ms: int) -> None:
        """Periodic upkeep: write recovery points, try to reopen logs that are offline."""

    def close(self) -> None:
        """Close all logs, save their indexes, and write the clean-shutdown marker."""


OnDurable = Callable[[Refusal | None], None]


class Catalog(Protocol):
    """Entities and runtime state of a node, read from memory and written behind.

    Thread rule: all calls on the owner's thread; only `close` waits.
    """

    @property
    def view(self) -> CatalogView:
        """Everything that is durable."""

    @property
    def planned_view(self) -> CatalogView:
        """Everything that is durable or submitted: check a change against this view before submitting it."""

    def submit(self, *steps: Step, callback: OnDurable | None = None) -> None:
        """Submit a change, all or nothing; the callback runs when the change is durable or has failed.

        Raises NotFound, AlreadyExists, StorageFull or ShuttingDown at once, without changing anything.
        """

    def pending_deletions(self) -> Sequence[Deletion]:
        """Deleted hubs whose logs may still exist."""

    def close(self) -> None:
        """Write all submitted changes, then close."""
