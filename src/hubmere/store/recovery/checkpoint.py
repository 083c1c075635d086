"""One recovery point: index entries and a producer snapshot first, then the file that says they are complete.

Planned on the owner's thread, written on another thread once the data is durable, and settled on the owner's thread.
Every piece has a fixed position in its file, so a retry after a crash writes the same bytes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hubmere.store.files import Files, append_at, unlink_if_exists, write_new
from hubmere.store.log.producers import ProducerTable
from hubmere.store.log.segments.index import ABORTED_ENTRY_BYTES, OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from hubmere.store.log.segments.log_segments import LogSegments
from hubmere.store.log.segments.segment import ABORTED_INDEX, INDEX, LOG, SNAPSHOT, TIME_INDEX, Segment, stem
from hubmere.store.recovery.manifest import (
    RecoveryPoint,
    replace_recovery_point,
    write_next_recovery_point,
    write_recovery_point,
)


class _Piece(NamedTuple):
    path: Path
    at: int
    data: bytes


class _SavedEntries(NamedTuple):
    """How many entries of a segment's indexes will be on disk."""

    segment: Segment
    index_entries: int
    time_entries: int
    aborted_entries: int


class Checkpoint:
    """One recovery point and the index entries that it covers."""

    def __init__(
        self, directory: Path, point: RecoveryPoint, pieces: Sequence[_Piece], saved: Sequence[_SavedEntries],
        snapshot: bytes | None, unsynced: Sequence[Path],
    ) -> None:  # fmt: skip
        self._directory = directory
        self._point = point
        self._pieces = pieces
        self._saved = saved
        self._snapshot = snapshot
        self._unsynced = unsynced

    @property
    def segment_base(self) -> int:
        """The base of the segment that was active: all segments before it are covered."""
        return self._point.segment_base

    def write(self, files: Files) -> None:
        """Make it durable; raises OSError, and then the previous recovery point stays valid."""
        for path in self._unsynced:
            _sync_file(files, path)
        self.write_pieces(files, is_durable=True)
        if self._pieces or self._snapshot is not None:
            # The names of these files, before the point that needs them.
            files.sync_directory(self._directory)
        write_recovery_point(files, self._directory, self._point)
        self.remove_old_snapshots(files)

    def write_pieces(self, files: Files, *, is_durable: bool = False) -> None:
        """Write the index entries and the producer snapshot that the recovery point needs."""
        for piece in self._pieces:
            append_at(files, piece.path, piece.at, piece.data, is_durable=is_durable)
        if self._snapshot is not None:
            path = self._directory / (stem(self._point.sequence) + SNAPSHOT)
            write_new(files, path, self._snapshot, is_durable=is_durable)

    def write_point(self, files: Files) -> None:
        """Write the recovery point beside the one in force; the caller makes it durable."""
        write_next_recovery_point(files, self._directory, self._point)

    def put_in_force(self, files: Files) -> None:
        """Replace the recovery point in force by the durable one beside it; the caller makes that durable."""
        replace_recovery_point(files, self._directory)

    def settle(self) -> None:
        """Mark the index entries as saved; on the owner's thread, after `write`."""
        for saved in self._saved:
            segment = saved.segment
            segment.saved_index, segment.saved_times = saved.index_entries, saved.time_entries
            segment.saved_aborted = saved.aborted_entries

    def remove_old_snapshots(self, files: Files) -> None:
        """Remove the producer snapshots that only earlier recovery points needed."""
        keep = stem(self._point.snapshot) + SNAPSHOT if self._point.snapshot >= 0 else ""
        for name in files.names(self._directory):
            if name.endswith(SNAPSHOT) and name != keep:
                unlink_if_exists(files, self._directory / name)


def plan_checkpoint(segments: LogSegments, producers: ProducerTable, *, sync_data: bool) -> Checkpoint:
    """A recovery point at the end of everything written; the caller makes that data durable before `write`."""
    active, end = segments.active, segments.end
    pieces: list[_Piece] = []
    saved: list[_SavedEntries] = []
    changed = [segment for segment in segments.all if segment.has_unsaved_entries]
    for segment in changed:
        pieces += _pieces_of(segment)
        saved.append(_SavedEntries(segment, len(segment.index), len(segment.times), len(segment.aborted)))
    point = RecoveryPoint(
        sequence=end.sequence,
        segment_base=active.base_sequence,
        position=active.size_bytes,
        last_offset=segments.last_offset,
        last_enqueued_ms=segments.last_enqueued_ms,
        index_entries=len(active.index),
        time_entries=len(active.times),
        aborted_entries=len(active.aborted),
        first_time_ms=active.first_time_ms,
        max_time_ms=active.max_time_ms,
        max_time_sequence=active.max_time_sequence,
        unindexed_bytes=active.unindexed_bytes,
        snapshot=end.sequence if len(producers) else -1,
    )
    snapshot = producers.to_snapshot() if len(producers) else None
    unsynced = [segment.path(LOG) for segment in (*changed, active)] if sync_data else []
    return Checkpoint(segments.directory, point, pieces, saved, snapshot, unsynced)


def _pieces_of(segment: Segment) -> list[_Piece]:
    pieces = [
        _Piece(
            segment.path(INDEX), segment.saved_index * OFFSET_ENTRY_BYTES, segment.index.to_bytes(segment.saved_index)
        ),
        _Piece(
            segment.path(TIME_INDEX),
            segment.saved_times * TIME_ENTRY_BYTES,
            segment.times.to_bytes(segment.saved_times),
        ),
    ]
    if segment.aborted:
        fresh = b"".join(entry.to_bytes() for entry in segment.aborted[segment.saved_aborted :])
        pieces.append(_Piece(segment.path(ABORTED_INDEX), segment.saved_aborted * ABORTED_ENTRY_BYTES, fresh))
    return pieces


def _sync_file(files: Files, path: Path) -> None:
    fd = files.open(path, write=True)
    try:
        files.fdatasync(fd)
    finally:
        files.close(fd)
