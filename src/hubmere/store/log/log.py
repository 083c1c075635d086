"""LocalLog: one partition's log on a local disk, the PartitionLog that the broker uses.

`LocalLog` owns the life of the log (open, offline, healed, closed) and delegates the rest to objects that each own
their state:

- `LogSegments`: the files, and the end of the written data
- `LogReader`: the committed end, and what readers see
- `LogWriter`: appends, with the `ProducerTable` of idempotent and transactional producers
- `PendingAppends`: receipts that wait for the group commit
- `Checkpointer`: recovery points
- `Maintenance`: retention and compaction

After a failed flush the log is offline for writers until it has been reopened and verified; readers keep the committed
events. Reopening verifies the files on another thread and builds all these objects again from what it finds on disk.
Thread rule: the owner's thread only; the group commit does everything that waits for the disk.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hubmere.model.errors import (
    InvalidArgument,
    LeaderEpochFenced,
    LeaderEpochUnknown,
    PartitionOffline,
    Refusal,
    ShuttingDown,
    StorageFull,
)
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.records.runs import BatchRun
from hubmere.store.engine import (
    AbortedTransaction,
    Chunk,
    FileRange,
    LogConfig,
    LogState,
    ProducerState,
    RetentionHold,
    Watcher,
)
from hubmere.store.log.commit import GroupCommit
from hubmere.store.log.committed_file import Boundary, CommittedSlot
from hubmere.store.log.maintenance import CompactionRun, Maintenance
from hubmere.store.log.pending import PendingAppends, Watchers
from hubmere.store.log.reader import LogReader
from hubmere.store.log.resources import LogResources
from hubmere.store.log.writer import BeforeAppend, LogWriter, OnReceipt
from hubmere.store.recovery.checkpointer import Checkpointer
from hubmere.store.recovery.recovery import RecoveredLog, recover
from hubmere.store.recovery.sealing import LastPoint
from hubmere.store.recovery.verification import Verification

_LOGGER = logging.getLogger(__name__)

# Delays between two attempts to reopen a failed log.
_FIRST_RETRY_MS, _LAST_RETRY_MS = 1_000, 60_000


class LocalLog:
    """One partition's log in one directory."""

    __slots__ = (
        "_before_append", "_checkpointer", "_commit", "_config", "_is_closed", "_is_healing", "_is_offline",
        "_maintenance", "_name", "_pending", "_producers", "_reader", "_resources", "_retry_after_ms", "_retry_at_ms",
        "_segments", "_slot", "_watchers", "_writer",
    )  # fmt: skip

    def __init__(
        self,
        resources: LogResources,
        commit: GroupCommit,
        config: LogConfig,
        recovered: RecoveredLog,
        slot: CommittedSlot | None = None,
    ) -> None:
        self._resources = resources
        self._commit = commit
        self._config = config
        self._slot = slot
        self._name = recovered.segments.directory.name
        self._watchers = Watchers(self._name)
        self._is_offline = False
        self._is_healing = False
        self._is_closed = False
        self._retry_at_ms = self._retry_after_ms = 0
        # Must return before each append, and raises to refuse it; None normally.
        self._before_append: BeforeAppend | None = None
        self._build(recovered)

    @staticmethod
    def recover(
        resources: LogResources,
        directory: Path,
        config: LogConfig,
        *,
        committed: Boundary | None,
        is_same_boot: bool,
    ) -> RecoveredLog:
        """Open a directory and recover it if necessary; may run on any thread that owns `resources`."""
        recovered = recover(
            resources, directory, compact=config.compact, committed=committed, is_same_boot=is_same_boot
        )
        if config.compact != recovered.segments.is_compact:
            raise _policy_is_fixed(config)
        return recovered

    def _build(self, recovered: RecoveredLog) -> None:
        """Build the parts of the log from what recovery found."""
        resources, commit, config = self._resources, self._commit, self._config
        segments, producers = recovered.segments, recovered.producers
        self._segments = segments
        self._producers = producers
        self._reader = reader = LogReader(segments, producers.last_stable(segments.end.sequence))
        self._checkpointer = checkpointer = Checkpointer(
            resources,
            commit,
            segments,
            producers,
            covered_base=recovered.covered_base,
            uncovered_bytes=recovered.scanned_bytes,
        )
        self._pending = pending = PendingAppends(
            commit, segments, producers, reader, checkpointer, self._watchers, self._slot, self._go_offline
        )
        self._writer = writer = LogWriter(
            resources.files,
            segments,
            producers,
            pending,
            config,
            recovered.leader_epoch,
            self._require_before_append,
            on_rolled=partial(segments.list.save, commit),
        )
        self._maintenance = Maintenance(resources, commit, segments, producers, reader, writer, checkpointer, config)

    def reconfigure(self, config: LogConfig) -> None:
        """Change the configuration; `compact` is fixed at creation."""
        if config.compact != self._segments.is_compact:
            raise _policy_is_fixed(config)
        self._config = config
        self._writer.reconfigure(config)
        self._maintenance.reconfigure(config)

    # --- writing ---

    def append(
        self,
        batch: bytearray | memoryview,
        now_ms: int,
        callback: OnReceipt | None = None,
        *,
        lenient_producer: bool = False,
    ) -> Receipt:
        """Number, stamp and write one closed batch; the receipt completes when it is committed."""
        if self._before_append is not None:
            self._before_append(now_ms)
        return self._writer.append(batch, now_ms, callback, lenient_producer)

    @property
    def runs(self) -> "LocalLog":
        """This log appends runs."""
        return self

    def check_run(self, data: bytearray, sizes: Sequence[int], newest_ms: int) -> BatchRun | None:
        """The run if it can be appended as one; None if its batches must be appended one by one."""
        return None if self._before_append is not None else self._writer.check_run(data, sizes, newest_ms)

    def append_run(self, run: BatchRun, now_ms: int, callback: OnReceipt | None = None) -> Receipt:
        """Number, stamp and write a run that was just checked; one receipt for all of it."""
        return self._writer.append_run(run, now_ms, callback)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        callback: OnReceipt | None = None,
    ) -> Receipt:
        """Write a transaction's commit or abort marker."""
        if self._before_append is not None:
            self._before_append(now_ms)
        return self._writer.append_marker(producer_id, producer_epoch, now_ms, commit=commit, callback=callback)

    def _require_before_append(self, action: BeforeAppend) -> None:
        """Run `action` before each append until it returns; it raises to refuse the append."""

        def run(now_ms: int) -> None:
            action(now_ms)
            if self._before_append is run:
                self._before_append = None

        if self._before_append is not _refuse:
            self._before_append = run

    def hold_writers(self, shortage: Callable[[], str | None]) -> None:
        """Refuse appends while the disk is short of space; costs nothing afterwards."""

        def check_shortage(_now_ms: int) -> None:
            reason = shortage()
            if reason is not None:
                raise StorageFull(reason)

        if self._before_append is None:
            self._require_before_append(check_shortage)

    def refuse_writers(self) -> None:
        """The log is closing: everything written is still committed, further appends are refused."""
        self._before_append = _refuse

    @property
    def leader_epoch(self) -> int:
        """The epoch that batches are stamped with."""
        return self._writer.leader_epoch

    def producer_last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and last sequence number of an idempotent producer, if known."""
        known = self._producers.find(producer_id)
        return None if known is None else (known.epoch, known.last)

    def producers(self) -> Sequence[ProducerState]:
        """All producers that the log remembers."""
        return self._producers.states()

    def open_transactions(self) -> Sequence[ProducerState]:
        """The producers that have an open transaction in this partition."""
        return self._producers.open_transactions()

    # --- reading ---

    @property
    def state(self) -> LogState:
        """Committed positions and size."""
        return self._reader.state

    @property
    def offsets_are_sequences(self) -> bool:
        """Whether the offset of an event is its sequence number: compaction leaves gaps between byte offsets."""
        return self._segments.is_compact

    def is_current(self, position: Position | None, on_answer: Callable[[], None]) -> bool:
        """Always true: a local log needs no request to another machine."""
        return True

    def check_position(self, sequence: int, leader_epoch: int) -> Refusal | None:
        """Why nobody can read from a sequence number, or with this leader epoch."""
        current = self._writer.leader_epoch
        if leader_epoch >= 0 and leader_epoch != current:
            is_old = leader_epoch < current
            return LeaderEpochFenced(leader_epoch, current) if is_old else LeaderEpochUnknown(leader_epoch, current)
        return self._reader.check_position(sequence)

    def read(self, sequence: int, max_bytes: int, *, stable_only: bool = False) -> Chunk | None:
        """Whole batches from the one that contains `sequence`; None if it is not committed yet."""
        reader = self._reader
        return reader.read(sequence, max_bytes, reader.last_stable if stable_only else reader.committed)

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions that overlap a range of sequence numbers."""
        return self._reader.aborted_transactions(first_sequence, end_sequence)

    def file_ranges(self, first_sequence: int, end_sequence: int, boot_id: str) -> Sequence[FileRange]:
        """Files with the events of a range, for a process of the machine with this boot id."""
        is_here = bool(boot_id) and boot_id == self._resources.files.boot_id()
        return self._reader.file_ranges(first_sequence, end_sequence) if is_here else ()

    def find(self, position: Position) -> int:
        """The sequence number at which a reader of this position starts, between `log_start` and `committed`."""
        return self._reader.find(position)

    def offset_of(self, sequence: int) -> int:
        """The byte offset of an event."""
        return self._reader.offset_of(sequence)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` on each move of the committed end or the start, until `unwatch`."""
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling a watcher; unknown ones are ignored."""
        self._watchers.remove(watcher)

    # --- upkeep ---

    def trim(self, before_sequence: int) -> None:
        """Delete everything before a sequence number; a power cut in the next moment may undo it, a crash does not."""
        if self._is_offline:
            raise PartitionOffline("it is being verified")
        if self._maintenance.trim(before_sequence):
            self._watchers.notify()

    def apply_retention(self, now_ms: int, hold: RetentionHold | None = None) -> int:
        """Delete segments past retention that no hold protects; returns how many."""
        if self._is_offline:
            return 0
        overdue = self._maintenance.find_expired(now_ms, hold)
        if overdue:
            self.trim(overdue[-1].end_sequence)
        self.checkpoint()
        return len(overdue)

    def overdue_bytes(self, now_ms: int) -> int:
        """Bytes past retention that still exist."""
        return self._maintenance.overdue_bytes(now_ms)

    def compaction_pass(self, now_ms: int) -> CompactionRun | None:
        """A pass of compaction, if it can reclaim anything; its `rewrite` may run on another thread."""
        return None if self._is_offline else self._maintenance.plan_compaction(now_ms)

    def checkpoint(self) -> None:
        """Write a recovery point, off the owner's thread, if the log is idle and the last one is not current."""
        if self._pending.is_idle and not self._is_offline:
            self._checkpointer.start_if_needed()
        else:
            self._checkpointer.note_time()

    # --- failures ---

    @property
    def is_offline(self) -> bool:
        """Whether the log refuses appends until it has been verified."""
        return self._is_offline

    def _go_offline(self, error: OSError) -> None:
        _LOGGER.error("log %s: a flush failed (%s); offline until it is verified", self._name, error)
        refusal = PartitionOffline(error.strerror or str(error))
        self._retry_after_ms, self._retry_at_ms = _FIRST_RETRY_MS, 0

        def heal_or_refuse(now_ms: int) -> None:
            if not self.heal(now_ms):
                raise refusal

        self._require_before_append(heal_or_refuse)
        self._is_offline = True
        self._pending.refuse_all(refusal)

    def heal(self, now_ms: int) -> bool:
        """Start to reopen an offline log, unless the last attempt was a moment ago; True if the log is online.

        1. The descriptor whose flush failed is closed and never used again: the kernel may have dropped its pages and
           report success for the next flush.
        2. Another thread opens the files again, truncates uncommitted bytes and verifies committed batches, after
           everything that this log left to be done in the background. Readers keep the committed events meanwhile.
        3. On the owner's thread the log goes on with what was found.
        """
        if not self._is_offline:
            return True
        if self._is_healing or now_ms < self._retry_at_ms or self._maintenance.is_compacting:
            return False
        self._retry_at_ms = now_ms + self._retry_after_ms
        self._retry_after_ms = min(2 * self._retry_after_ms, _LAST_RETRY_MS)
        self._is_healing = True
        self._segments.close_files()
        verification = Verification(
            self._resources, self._segments.directory, self._config, committed=self._reader.committed.sequence
        )
        self._commit.run_in_background(verification.work, lambda error: self._on_verified(verification, error))
        return not self._is_offline

    def _on_verified(self, verification: Verification, error: OSError | None) -> None:
        self._is_healing = False
        failure, recovered = error or verification.failure, verification.recovered
        if recovered is None or self._is_closed:
            _LOGGER.error("log %s: still offline (%s)", self._name, failure)
            return
        self._segments.close_files()
        recovered.segments.move_to(self._resources)
        self._build(recovered)
        self._is_offline = False
        if self._before_append is not _refuse:
            self._before_append = None

    # --- closing ---

    def plan_last_point(self) -> LastPoint | None:
        """The last recovery point, to be written before `close`, when everything is committed; None if none is due."""
        return None if self._is_offline else self._checkpointer.plan_last()

    def close(self) -> None:
        """Commit everything written and write a recovery point."""
        if self._is_closed:
            return
        self.refuse_writers()
        self._commit.flush()
        self._commit.finish_background()
        if (last := self.plan_last_point()) is not None:
            last.write()
        self._is_closed = True
        self._pending.stop()
        self._segments.close_files()

    @property
    def is_sealed(self) -> bool:
        """Whether the recovery point covers everything, so that the next opening need not scan."""
        return self._checkpointer.is_current and not self._is_offline

    def abandon(self) -> None:
        """Close without saving anything, because the log is being deleted; waiting appends are refused."""
        self.refuse_writers()
        self._is_closed = True
        self._pending.refuse_all(ShuttingDown())
        self._segments.close_files()


def _refuse(_now_ms: int) -> None:
    raise ShuttingDown


def _policy_is_fixed(config: LogConfig) -> InvalidArgument:
    return InvalidArgument("cleanup policy", "compact" if config.compact else "delete", "it is fixed at creation")
