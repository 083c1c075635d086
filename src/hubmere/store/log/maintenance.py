"""Upkeep of one log: retention deletes old segments, compaction rewrites sealed ones.

What is deleted is decided in `retention`, how segments are rewritten in `compaction`; this module applies both to the
log's segments. Nothing here waits for the disk: files are unlinked and rewritten off the owner's thread.
Thread rule: the owner's thread only.
"""

from pathlib import Path

from hubmere.model.errors import SequenceOutOfRange, StorageFull
from hubmere.store.engine import LogConfig, RetentionHold
from hubmere.store.files import unlink_if_exists
from hubmere.store.log.commit import GroupCommit
from hubmere.store.log.compaction import Compaction, Source
from hubmere.store.log.producers import ProducerTable
from hubmere.store.log.reader import LogReader
from hubmere.store.log.resources import LogResources
from hubmere.store.log.retention import MOST_AHEAD_MS, SegmentFacts, count_expired, is_roll_due
from hubmere.store.log.segments.log_segments import LogSegments
from hubmere.store.log.segments.segment import Segment
from hubmere.store.log.writer import LogWriter
from hubmere.store.recovery.checkpointer import Checkpointer


class Maintenance:
    """Retention and compaction of one log."""

    __slots__ = (
        "_checkpointer", "_commit", "_compacted_at_ms", "_compacted_until", "_compaction", "_config", "_producers",
        "_reader", "_resources", "_segments", "_writer",
    )  # fmt: skip

    def __init__(
        self,
        resources: LogResources,
        commit: GroupCommit,
        segments: LogSegments,
        producers: ProducerTable,
        reader: LogReader,
        writer: LogWriter,
        checkpointer: Checkpointer,
        config: LogConfig,
    ) -> None:
        self._resources = resources
        self._commit = commit
        self._segments = segments
        self._producers = producers
        self._reader = reader
        self._writer = writer
        self._checkpointer = checkpointer
        self._config = config
        self._compacted_until = 0
        self._compacted_at_ms = -1
        self._compaction: Compaction | None = None

    def reconfigure(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        self._config = config

    # --- retention ---

    def trim(self, before_sequence: int) -> bool:
        """Delete everything before a sequence number; False if there is nothing to delete."""
        segments, committed = self._segments, self._reader.committed
        if before_sequence > committed.sequence:
            raise SequenceOutOfRange(before_sequence, segments.log_start, committed.sequence)
        if before_sequence <= segments.log_start:
            return False
        try:
            deleted = segments.trim(before_sequence)
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        # A file that cannot be unlinked is removed when the log is opened next: it is not listed any more.
        segments.list.save(self._commit, lambda: self._unlink(deleted))
        return True

    def _unlink(self, paths: list[Path]) -> None:
        for path in paths:
            unlink_if_exists(self._resources.files, path)

    def find_expired(self, now_ms: int, hold: RetentionHold | None) -> list[Segment]:
        """Roll the active segment if it is too old, forget silent producers, and list the segments to delete."""
        active = self._segments.active
        if active.size_bytes and is_roll_due(active.first_time_ms, active.max_time_ms, self._config, now_ms):
            self._writer.roll()
        self._producers.expire(now_ms)
        return self._expired_segments(now_ms, hold)

    def overdue_bytes(self, now_ms: int) -> int:
        """Bytes past retention that still exist."""
        return sum(segment.size_bytes for segment in self._expired_segments(now_ms, None))

    def _expired_segments(self, now_ms: int, hold: RetentionHold | None) -> list[Segment]:
        committed = self._reader.committed.sequence
        segments = [segment for segment in self._segments.sealed_segments if segment.end_sequence <= committed]
        facts = (
            SegmentFacts(segment.size_bytes, self._newest_time(number, now_ms), segment.end_sequence)
            for number, segment in enumerate(segments)
        )
        return segments[: count_expired(facts, self._reader.state.size_bytes, self._config, now_ms, hold)]

    def _newest_time(self, number: int, now_ms: int) -> int:
        """The newest time in a segment; if that is in the future, the first time of the next segment instead."""
        newest_ms = self._segments.all[number].newest_time_ms()
        for following in self._segments.all[number + 1 :]:
            if newest_ms - now_ms <= MOST_AHEAD_MS:
                break
            newest_ms = following.first_time() if following.size_bytes else newest_ms
        return newest_ms

    # --- compaction ---

    def plan_compaction(self, now_ms: int) -> "CompactionRun | None":
        """A pass over the sealed segments, if it can reclaim anything."""
        last_stable, newest_ms = self._reader.last_stable.sequence, now_ms - self._config.min_compaction_lag_ms
        sources = []
        for segment in self._segments.sealed_segments if self._config.compact else ():
            is_settled = segment.base_sequence < self._checkpointer.covered_base and segment.end_sequence <= last_stable
            if not is_settled or segment.newest_time_ms() > newest_ms:
                break
            sources.append(Source(segment, segment.size_bytes))
        if not sources:
            return None
        # Nothing is new, and no tombstone can have expired since the last pass.
        is_done = sources[-1].segment.end_sequence <= self._compacted_until
        if is_done and now_ms < self._compacted_at_ms + self._config.tombstone_retention_ms:
            return None
        aborted = [entry for segment in self._segments.all for entry in segment.aborted]
        compaction = Compaction(
            self._resources, sources, aborted, self._config, dirty_from=self._compacted_until, now_ms=now_ms
        )
        self._compaction = compaction
        return CompactionRun(self, compaction)

    @property
    def is_compacting(self) -> bool:
        """Whether a pass is between its plan and its adoption: its files change on another thread."""
        return self._compaction is not None and not self._compaction.is_over

    def adopt_compaction(self, compaction: Compaction, now_ms: int) -> int:
        """Replace segments by their rewritten files; returns the reclaimed bytes."""
        try:
            reclaimed = compaction.adopt(self._segments.sealed_segments)
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        finally:
            compaction.is_over = True
            self._segments.count_sealed_bytes()
        directory = self._segments.directory
        self._commit.run_in_background(lambda: self._resources.files.sync_directory(directory), _ignore)
        self._compacted_until, self._compacted_at_ms = compaction.covered_until, now_ms
        self._checkpointer.require(reclaimed)
        return reclaimed


def _ignore(_error: OSError | None) -> None:
    """Names that are not durable yet: opening the log after a power cut finishes the swap."""


class CompactionRun:
    """One pass over one log: planned, then rewritten on any thread, then adopted on the owner's thread."""

    __slots__ = ("_compaction", "_maintenance")

    def __init__(self, maintenance: Maintenance, compaction: Compaction) -> None:
        self._maintenance = maintenance
        self._compaction = compaction

    def rewrite(self) -> None:
        """Write the smaller segments beside the old ones; may run on any thread, once. Raises StorageFull."""
        try:
            self._compaction.rewrite()
        except OSError as error:
            self._compaction.abandon()
            self._compaction.is_over = True
            raise StorageFull(error.strerror or str(error)) from error
        except Exception:
            self._compaction.is_over = True
            raise

    def adopt(self, now_ms: int) -> int:
        """Replace the old segments, on the owner's thread; returns the reclaimed bytes."""
        return self._maintenance.adopt_compaction(self._compaction, now_ms)
