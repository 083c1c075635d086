"""PartitionLog on a local disk: readers, writers, and what keeps the log in order.

This module opens and closes a log, takes it out after a failed flush and brings it back verified, lets old events go,
compacts, and makes recovery points. After a failed flush the log is offline for writers until it was re-opened and
verified; readers keep what was committed.
Thread rule: the owner's thread only; what waits for the disk is handed to the group commit.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from hubmere.model.errors import (
    CorruptBatch,
    InvalidArgument,
    PartitionOffline,
    SequenceOutOfRange,
    ShuttingDown,
    StorageFull,
)
from hubmere.store.engine import Hold, LogConfig
from hubmere.store.files import unlink_if_there
from hubmere.store.log.commit import Durability, GroupCommit
from hubmere.store.log.compaction import Compaction, Source
from hubmere.store.log.retention import MOST_AHEAD_MS, SegmentFacts, expired, is_roll_due
from hubmere.store.log.segment import Segment, Space
from hubmere.store.log.writer import LogWriter
from hubmere.store.recovery.checkpoint import Checkpoint, plan_checkpoint
from hubmere.store.recovery.recovery import Recovered, recover

_LOGGER = logging.getLogger(__name__)

# Data after the last recovery point, above which a new one is made: what a crash makes us read again. Without `fsync`
# a recovery point costs a flush that nobody else waits for, so there are fewer.
CHECKPOINT_BYTES: dict[Durability, int] = {"fsync": 32 * 1024 * 1024, "os": 256 * 1024 * 1024}
# Waits between two tries to bring a failed log back.
_FIRST_HEAL_MS, _LAST_HEAL_MS = 1_000, 60_000


class LocalLog(LogWriter):
    """One partition's log in one directory."""

    def __init__(self, space: Space, commit: GroupCommit, config: LogConfig, found: Recovered) -> None:
        self._checkpoint_bytes = CHECKPOINT_BYTES[commit.durability]
        self._is_offline = False
        self._is_closed = False
        self._is_checkpointing = False
        self._heal_at_ms = self._heal_after_ms = 0
        super().__init__(space, commit, config, found)

    @classmethod
    def open(cls, space: Space, commit: GroupCommit, directory: Path, config: LogConfig) -> "LocalLog":
        """Open a directory, recovering it when that is needed."""
        marks = space.marks
        mark = None if marks is None else marks.mark(directory.name)
        found = recover(
            space,
            directory,
            compact=config.compact,
            committed=None if mark is None else mark.found,
            is_same_boot=marks is not None and marks.is_same_boot,
        )
        if config.compact != found.chain.is_compact:
            raise _policy_is_fixed(config)
        log = cls(space, commit, config, found)
        log._mark = mark
        return log

    def _install(self, found: Recovered) -> None:
        super()._install(found)
        self._vouched_base = found.vouched_base
        self._compacted_until = 0
        self._compacted_at_ms = -1

    def reconfigure(self, config: LogConfig) -> None:
        """Change how the log is kept; `compact` cannot change."""
        if config.compact != self._chain.is_compact:
            raise _policy_is_fixed(config)
        self._take_config(config)

    # --- failing and healing ---

    def _go_offline(self, error: OSError) -> None:
        _LOGGER.error("log %s: a flush failed (%s); offline until it is verified", self._name, error)
        refusal = PartitionOffline(error.strerror or str(error))
        self._heal_after_ms, self._heal_at_ms = _FIRST_HEAL_MS, 0

        def refuse_or_heal(now_ms: int) -> None:
            if not self.heal(now_ms):
                raise refusal

        if self._obstacle is not _refuse:
            self._obstacle = refuse_or_heal
        self._is_offline = self._is_out = True
        self._is_checkpointing = False
        self._complete(len(self._pending), refusal)

    def heal(self, now_ms: int) -> bool:
        """Try to bring an offline log back, unless the last try was a moment ago; True when it can be written to.

        The descriptor whose flush failed is never used again: the kernel may have dropped its pages and call the next
        flush a success. Files are opened anew, everything that was not committed is cut, what was is walked.
        """
        if not self._is_offline:
            return True
        if now_ms < self._heal_at_ms:
            return False
        self._heal_at_ms = now_ms + self._heal_after_ms
        self._heal_after_ms = min(2 * self._heal_after_ms, _LAST_HEAL_MS)
        try:
            self._reopen()
        except (OSError, CorruptBatch) as error:
            _LOGGER.error("log %s: still offline (%s)", self._name, error)
            return False
        self._is_offline = self._is_out = False
        self._obstacle = None
        return True

    def _reopen(self) -> None:
        self._commit.finish_chores()
        self._close_handles()
        committed = self._limit.sequence
        found = recover(self._space, self._chain.directory, compact=self._config.compact, keep_before=committed)
        if found.next_sequence != committed:
            raise CorruptBatch(f"only {found.next_sequence} of {committed} committed sequence numbers are on disk")
        self._install(found)

    def hold_writers(self, shortage: Callable[[], str | None]) -> None:
        """Refuse appends for as long as the disk is short of room; costs nothing while it is not."""

        def refuse_while_short(_now_ms: int) -> None:
            why = shortage()
            if why is not None:
                raise StorageFull(why)
            self._obstacle = None

        if self._obstacle is None:
            self._obstacle = refuse_while_short

    # --- keeping ---

    def trim(self, before_sequence: int) -> None:
        """Let everything before a sequence number go."""
        if before_sequence > self._limit.sequence:
            raise SequenceOutOfRange(before_sequence, self._chain.first_sequence, self._limit.sequence)
        if before_sequence <= self._chain.first_sequence:
            return
        try:
            retired = self._chain.trim(before_sequence)
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        if retired:
            self._commit.run_chore(lambda: self._unlink(retired), _ignore)
        self._wake()

    def _unlink(self, paths: list[Path]) -> None:
        for path in paths:
            unlink_if_there(self._space.files, path)

    def apply_retention(self, now_ms: int, hold: Hold | None = None) -> int:
        """Drop whole segments past retention that no hold keeps; returns how many went."""
        if self._is_offline:
            return 0
        active = self._chain.active
        if active.size_bytes and is_roll_due(active.first_time_ms, active.max_time_ms, self._config, now_ms):
            self._roll()
        self._producers.expire(now_ms)
        overdue = self._overdue(now_ms, hold)
        if overdue:
            self.trim(overdue[-1].end_sequence)
        self.checkpoint()
        return len(overdue)

    def overdue_bytes(self, now_ms: int) -> int:
        """Bytes that are past retention and still there."""
        return sum(segment.size_bytes for segment in self._overdue(now_ms, None))

    def _overdue(self, now_ms: int, hold: Hold | None) -> list[Segment]:
        segments = [segment for segment in self._chain.segments[:-1] if segment.end_sequence <= self._limit.sequence]
        facts = (
            SegmentFacts(segment.size_bytes, self._newest_time(number, now_ms), segment.end_sequence)
            for number, segment in enumerate(segments)
        )
        return segments[: expired(facts, self.state.size_bytes, self._config, now_ms, hold)]

    def _newest_time(self, number: int, now_ms: int) -> int:
        """The newest time in a segment; the first time behind it when that one is in the future."""
        newest_ms = self._chain.segments[number].newest_time_ms()
        for following in self._chain.segments[number + 1 :]:
            if newest_ms - now_ms <= MOST_AHEAD_MS:
                break
            newest_ms = following.first_time() if following.size_bytes else newest_ms
        return newest_ms

    def plan_compaction(self, now_ms: int) -> Compaction | None:
        """A pass over the sealed segments, if it could gain something; its `rewrite` may run on another thread."""
        end, newest_ms = self._stable.sequence, now_ms - self._config.min_compaction_lag_ms
        sources = []
        for segment in self._chain.segments[:-1] if self._config.compact and not self._is_offline else ():
            is_settled = segment.base_sequence < self._vouched_base and segment.end_sequence <= end
            if not is_settled or segment.newest_time_ms() > newest_ms:
                break
            sources.append(Source(segment, segment.size_bytes))
        if not sources:
            return None
        # Nothing new, and no tombstone can have become old enough since the last pass.
        is_done = sources[-1].segment.end_sequence <= self._compacted_until
        if is_done and now_ms < self._compacted_at_ms + self._config.tombstone_retention_ms:
            return None
        aborted = [entry for segment in self._chain.segments for entry in segment.aborted]
        return Compaction(self._space, sources, aborted, self._config, dirty_from=self._compacted_until, now_ms=now_ms)

    def compaction_pass(self, now_ms: int) -> "CompactionRun | None":
        """A pass that could gain something, as the engine's surface offers it."""
        plan = self.plan_compaction(now_ms)
        return None if plan is None else CompactionRun(self, plan)

    def adopt_compaction(self, compaction: Compaction, now_ms: int) -> int:
        """Put what a pass has rewritten in place; returns how many bytes went."""
        try:
            saved = compaction.adopt(self._chain.segments[:-1])
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        finally:
            self._chain.count_sealed_bytes()
        self._compacted_until, self._compacted_at_ms = compaction.covered_until, now_ms
        self._since_checkpoint_bytes += saved
        return saved

    def compact(self, now_ms: int) -> int:
        """Plan, rewrite and adopt at once, on the owner's thread; returns how many bytes went."""
        compaction = self.plan_compaction(now_ms)
        if compaction is None:
            return 0
        try:
            compaction.rewrite()
        except OSError as error:
            compaction.abandon()
            raise StorageFull(error.strerror or str(error)) from error
        return self.adopt_compaction(compaction, now_ms)

    # --- checkpoints ---

    def checkpoint(self) -> None:
        """Make a new recovery point if there is something new to vouch for; off the owner's thread."""
        if self._since_checkpoint_bytes and not self._is_dirty and self._round is None and not self._is_offline:
            checkpoint = self._plan_checkpoint()
            if checkpoint is not None:
                self._run_checkpoint(checkpoint)

    def _plan_checkpoint_if_due(self) -> Checkpoint | None:
        is_due = self._is_checkpoint_due or self._since_checkpoint_bytes >= self._checkpoint_bytes
        return self._plan_checkpoint() if is_due else None

    def _plan_checkpoint(self) -> Checkpoint | None:
        if self._is_checkpointing:
            return None
        self._is_checkpointing = True
        self._is_checkpoint_due = False
        self._since_checkpoint_bytes = 0
        return plan_checkpoint(
            self._chain, self._producers, self._next, self._written_last_offset, self._enqueued_ms,
            sync_data=self._commit.durability == "os",
        )  # fmt: skip

    def _run_checkpoint(self, checkpoint: Checkpoint) -> None:
        def done(error: OSError | None) -> None:
            self._is_checkpointing = False
            if error is None:
                checkpoint.settle()
                self._vouched_base = checkpoint.segment_base
            else:
                self._since_checkpoint_bytes += self._checkpoint_bytes
                _LOGGER.warning("log %s: no recovery point could be made (%s)", self._name, error)

        def work() -> None:
            checkpoint.write(self._space.files)
            if self._space.marks is not None:
                self._space.marks.sync()

        self._commit.run_chore(work, done)

    @property
    def is_offline(self) -> bool:
        """Whether the log takes no events until it is verified."""
        return self._is_offline

    def close(self) -> None:
        """Finish the group commit and seal the indexes."""
        if not self._is_closed:
            self.refuse_writers()
            self._commit.flush()
            self._commit.finish_chores()
            self._seal()
            self._is_closed = self._is_out = True
            self._close_handles()

    def refuse_writers(self) -> None:
        """The log is going away: what was written is still committed, nothing more is taken."""
        self._obstacle = _refuse

    @property
    def is_sealed(self) -> bool:
        """Whether the recovery point is the end, so that the next opening need not walk anything."""
        return not self._since_checkpoint_bytes and not self._is_offline

    def _seal(self) -> None:
        if self._is_offline or self.is_sealed:
            return
        checkpoint = self._plan_checkpoint()
        assert checkpoint is not None
        try:
            checkpoint.write(self._space.files)
        except OSError as error:
            self._since_checkpoint_bytes = self._checkpoint_bytes
            _LOGGER.warning("log %s: closed without a recovery point (%s)", self._name, error)

    def abandon(self) -> None:
        """Let go without keeping anything: the log is being deleted. Writers that wait are refused."""
        self.refuse_writers()
        self._is_closed = self._is_out = True
        self._round = None
        self._complete(len(self._pending), ShuttingDown())
        self._close_handles()

    def _close_handles(self) -> None:
        for segment in self._chain.segments:
            segment.log.close()


def _refuse(_now_ms: int) -> None:
    raise ShuttingDown


def _policy_is_fixed(config: LogConfig) -> InvalidArgument:
    return InvalidArgument("cleanup policy", "compact" if config.compact else "delete", "it is fixed at creation")


def _ignore(_error: OSError | None) -> None:
    """What could not be unlinked goes at the next opening."""


class CompactionRun:
    """One pass over one log: planned, then rewritten on any thread, then adopted by the log."""

    __slots__ = ("_compaction", "_log")

    def __init__(self, log: LocalLog, compaction: Compaction) -> None:
        self._log = log
        self._compaction = compaction

    def rewrite(self) -> None:
        """Do the slow part; may run on any thread, once."""
        self._compaction.rewrite()

    def adopt(self, now_ms: int) -> int:
        """Put what was rewritten in place, on the owner's thread; returns how many bytes went."""
        return self._log.adopt_compaction(self._compaction, now_ms)
