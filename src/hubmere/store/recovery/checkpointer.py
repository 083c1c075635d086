"""Recovery points of one log: decides when the next one is due, and writes it off the owner's thread.

A recovery point limits how much a crash makes the next start scan. One is due after a number of bytes, after a number
of batches (scanning a batch has fixed costs), and after a minute. It covers everything written when it was planned, and
is written after that data is durable.
Thread rule: the owner's thread only; the group commit runs the writing on another thread.
"""

import logging

from hubmere.store.log.commit import Durability, GroupCommit
from hubmere.store.log.producers import ProducerTable
from hubmere.store.log.resources import LogResources
from hubmere.store.log.segments.log_segments import LogSegments
from hubmere.store.recovery.checkpoint import Checkpoint, plan_checkpoint
from hubmere.store.recovery.sealing import LastPoint

_LOGGER = logging.getLogger(__name__)

# A new recovery point is due after this much data. With durability `os` it costs a flush that nothing else needs, so
# there are fewer.
CHECKPOINT_BYTES: dict[Durability, int] = {"fsync": 32 * 1024 * 1024, "os": 256 * 1024 * 1024}
# Or after this many batches: half a second of scanning without the compiled walk, a few milliseconds with it.
CHECKPOINT_BATCHES = 100_000


class Checkpointer:
    """Plans and writes the recovery points of one log."""

    __slots__ = (
        "_commit", "_interval_bytes", "_is_old", "_is_overdue", "_is_running", "_planned_base", "_planned_batches",
        "_planned_position", "_producers", "_resources", "_segments", "covered_base",
    )  # fmt: skip

    def __init__(
        self,
        resources: LogResources,
        commit: GroupCommit,
        segments: LogSegments,
        producers: ProducerTable,
        *,
        covered_base: int,
        uncovered_bytes: int,
    ) -> None:
        """`uncovered_bytes` at the end of the log, and the segments from `covered_base` on, need a recovery point."""
        self._resources = resources
        self._commit = commit
        self._segments = segments
        self._producers = producers
        self._interval_bytes = CHECKPOINT_BYTES[commit.durability]
        self._is_running = False
        self._planned_position = segments.end_position - uncovered_bytes
        self._planned_base = segments.active.base_sequence
        self._planned_batches = segments.active.noted_batches
        # Whether the last recovery point was not current at the last upkeep, and for one upkeep longer than that.
        self._is_old = self._is_overdue = False
        self.covered_base = covered_base  # the segment of the last recovery point

    @property
    def is_current(self) -> bool:
        """Whether the last recovery point covers everything written."""
        return self._segments.end_position == self._planned_position

    def plan_if_due(self) -> Checkpoint | None:
        """A recovery point at the end of the log, if there is enough new data or a sealed segment has new indexes."""
        segments, active = self._segments, self._segments.active
        is_due = (
            active.base_sequence != self._planned_base
            or segments.end_position - self._planned_position >= self._interval_bytes
            or active.noted_batches - self._planned_batches >= CHECKPOINT_BATCHES
            or self._is_overdue
        )
        return self._plan() if is_due else None

    def note_time(self) -> None:
        """Called every half minute: a log that is always being written gets a recovery point every minute too."""
        self._is_overdue, self._is_old = self._is_old, not self.is_current

    def start_if_needed(self) -> None:
        """Write a recovery point now, off the owner's thread, unless the last one covers everything."""
        checkpoint = None if self.is_current else self._plan()
        if checkpoint is not None:
            self.start(checkpoint)

    def start(self, checkpoint: Checkpoint) -> None:
        """Write a recovery point whose data is durable, off the owner's thread."""

        def work() -> None:
            self._segments.list.sync()
            checkpoint.write(self._resources.files)
            if self._resources.committed_file is not None:
                self._resources.committed_file.sync()

        def on_written(error: OSError | None) -> None:
            self._is_running = False
            if error is None:
                checkpoint.settle()
                self.covered_base = checkpoint.segment_base
            else:
                self.require(self._interval_bytes)
                _LOGGER.warning("log %s: cannot write a recovery point: %s", self._segments.directory.name, error)

        self._commit.run_in_background(work, on_written)

    def plan_last(self) -> LastPoint | None:
        """The last recovery point, for closing; None if the one in force covers everything."""
        if self.is_current:
            return None
        checkpoint = self._plan()
        assert checkpoint is not None, "closing waits for a recovery point under way"

        def on_done(error: OSError | None) -> None:
            self._is_running = False
            if error is not None:
                self.require(self._interval_bytes)
                _LOGGER.warning("log %s: closed without a recovery point: %s", self._segments.directory.name, error)

        return LastPoint(self._resources.files, self._segments.list, checkpoint, on_done)

    def require(self, size_bytes: int) -> None:
        """Count bytes towards the next recovery point that were not appended: a compacted segment, a failed try."""
        self._planned_position -= size_bytes

    def _plan(self) -> Checkpoint | None:
        if self._is_running:
            return None
        self._is_running = True
        self._planned_position = self._segments.end_position
        self._planned_base = self._segments.active.base_sequence
        self._planned_batches = self._segments.active.noted_batches
        self._is_old = self._is_overdue = False
        return plan_checkpoint(self._segments, self._producers, sync_data=self._commit.durability == "os")
