"""Opening a log's directory: finishes or undoes what a crash interrupted, scans the end, and returns the log's parts.

1. Remove temporary files; finish a segment swap of compaction that had begun.
2. Read the list of segments (see manifest); delete files that it does not list.
3. Scan the batches after the recovery point (see scan). After a clean close that is the end, so nothing is read.
4. If acknowledged events are missing at the end, continue after them in a new segment.

Damage before the recovery point is found by the first reader, or by the doctor.
"""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hubmere.model.errors import CorruptBatch
from hubmere.store.files import Files, exists, unlink_if_exists
from hubmere.store.log.committed_file import Boundary
from hubmere.store.log.compaction import CLEANED, SWAP
from hubmere.store.log.producers import ProducerTable
from hubmere.store.log.resources import LogResources
from hubmere.store.log.segments.log_segments import DELETED, LogSegments, create_segment
from hubmere.store.log.segments.segment import ABORTED_INDEX, LOG, SIDE_FILES, Segment, stem
from hubmere.store.recovery.damaged_ranges import LogGaps
from hubmere.store.recovery.manifest import (
    EPOCHS,
    FIRST_SEGMENT,
    NEXT_SEGMENTS,
    SEGMENTS,
    Gap,
    Manifest,
    SegmentStart,
    read_epochs,
    read_manifest,
    write_epochs,
    write_manifest,
)
from hubmere.store.recovery.resync import batch_at
from hubmere.store.recovery.scan import LogScan

_TEMPORARY = ".tmp"


class RecoveredLog(NamedTuple):
    """The parts of a log after opening."""

    segments: LogSegments
    producers: ProducerTable
    leader_epoch: int
    scanned_bytes: int  # at the end of the log, after the last recovery point
    covered_base: int  # the segment of the last recovery point


def recover(
    resources: LogResources,
    directory: Path,
    *,
    compact: bool,
    keep_before: int | None = None,
    committed: Boundary | None = None,
    is_same_boot: bool = False,
) -> RecoveredLog:
    """Open a log's directory; creates the files of a new log.

    `committed` is the end up to which events were acknowledged, as far as it is known. `is_same_boot`: the machine has
    not rebooted since. With `keep_before` everything from that sequence number on is truncated: it was never committed
    (after a failed flush).
    """
    recovery = _Recovery(resources, directory, compact=compact, keep_before=keep_before)
    return recovery.run(committed, is_same_boot)


class _Recovery:
    """One opening; the steps in the order of `run`."""

    def __init__(self, resources: LogResources, directory: Path, *, compact: bool, keep_before: int | None) -> None:
        self._resources = resources
        self._files: Files = resources.files
        self._directory = directory
        self._compact = compact
        self._keep_before = keep_before
        self._names: set[str] = set()
        self._gaps = LogGaps(resources.files, directory, resources.damage)

    def run(self, committed: Boundary | None, is_same_boot: bool) -> RecoveredLog:
        """Tidy, list, scan, build."""
        self._tidy()
        manifest = self._manifest()
        self._compact = manifest.is_compact
        self._delete_unlisted(manifest)
        self._gaps.load()
        segments = [self._segment(start) for start in manifest.segments if self._exists(start, manifest)]
        for segment, following in pairwise(segments):
            segment.end_sequence = following.base_sequence
            segment.is_sealed = True
        epochs = read_epochs(self._files, self._directory) or [(0, 0)]
        self._forget_repaired(segments)
        self._gaps.report_all()
        scan = LogScan(
            self._files,
            self._directory,
            self._gaps,
            manifest.segments[0],
            compact=self._compact,
            keep_before=self._keep_before,
            committed=committed,
            is_same_boot=is_same_boot,
        )
        kept = scan.run(segments)
        log_segments = self._log_segments(manifest, kept, scan)
        if not exists(self._files, self._directory / EPOCHS):
            write_epochs(self._files, self._directory, epochs)
        return RecoveredLog(log_segments, scan.producers, epochs[-1][0], scan.scanned_bytes, scan.covered_base)

    # --- tidying ---

    def _tidy(self) -> None:
        """Finish or undo what a crash interrupted: a swap is finished, everything else is undone."""
        changed = False
        for name in self._files.names(self._directory):
            path = self._directory / name
            if name.endswith((_TEMPORARY, CLEANED, DELETED)):
                self._files.unlink(path)
            elif name.endswith(LOG + SWAP):
                self._finish_swap(path)
            else:
                self._names.add(name)
                continue
            changed = True
        if changed:
            self._files.sync_directory(self._directory)

    def _finish_swap(self, path: Path) -> None:
        base = path.name.removesuffix(LOG + SWAP)
        # The old indexes do not match the new file; they are rebuilt from it on first use.
        for suffix in SIDE_FILES[:2]:
            unlink_if_exists(self._files, self._directory / (base + suffix))
            self._names.discard(base + suffix)
        self._files.rename(path, self._directory / (base + LOG))
        self._names.add(base + LOG)

    def _manifest(self) -> Manifest:
        manifest = read_manifest(self._files, self._directory) if SEGMENTS in self._names else None
        if manifest is not None:
            if NEXT_SEGMENTS in self._names:
                write_manifest(self._files, self._directory, manifest)
                self._files.unlink(self._directory / NEXT_SEGMENTS)
            return manifest
        bases = sorted(int(name.removesuffix(LOG)) for name in self._names if name.endswith(LOG))
        starts = self._starts_from_files(bases) if bases else (FIRST_SEGMENT,)
        manifest = Manifest(0, starts, self._compact)
        write_manifest(self._files, self._directory, manifest)
        return manifest

    def _starts_from_files(self, bases: list[int]) -> tuple[SegmentStart, ...]:
        if bases[0] != 0:
            raise CorruptBatch(
                f"log '{self._directory.name}' has lost its list of segments '{SEGMENTS}', with its first byte position"
            )
        starts, position = [], 0
        for base in bases:
            starts.append(SegmentStart(base, position, -1, -1))
            position += self._files.size(self._directory / (stem(base) + LOG))
        return tuple(starts)

    def _delete_unlisted(self, manifest: Manifest) -> None:
        listed = {stem(start.base_sequence) for start in manifest.segments}
        for name in sorted(self._names):
            base, _, suffix = name.partition(".")
            if "." + suffix in (LOG, *SIDE_FILES) and base not in listed:
                self._files.unlink(self._directory / name)
                self._names.discard(name)

    def _exists(self, start: SegmentStart, manifest: Manifest) -> bool:
        if stem(start.base_sequence) + LOG in self._names:
            return True
        if start == manifest.segments[-1]:
            return False  # listed, but a crash came before it was created: created below if it still fits
        raise CorruptBatch(f"log '{self._directory.name}' has lost its segment {stem(start.base_sequence)}{LOG}")

    def _segment(self, start: SegmentStart) -> Segment:
        size_bytes = self._files.size(self._directory / (stem(start.base_sequence) + LOG))
        segment = Segment(self._resources, self._directory, start, size_bytes, is_sealed=False)
        segment.attach_gaps(self._gaps, is_dense=not self._compact)
        if stem(start.base_sequence) + ABORTED_INDEX not in self._names:
            segment.skip_aborted_index()
        return segment

    def _forget_repaired(self, segments: list[Segment]) -> None:
        """Drop known gaps where there is an intact batch now: a good copy of the file was restored."""
        if not self._gaps:
            return
        by_base = {segment.base_sequence: segment for segment in segments}
        damaged = [gap for gap in self._gaps.all() if not _is_repaired(gap, by_base.get(gap.segment_base))]
        self._gaps.keep(damaged)
        for segment in segments:
            segment.attach_gaps(self._gaps, is_dense=not self._compact)

    # --- building ---

    def _log_segments(self, manifest: Manifest, kept: list[Segment], scan: LogScan) -> LogSegments:
        starts = [segment.start for segment in kept]
        listed = manifest.segments[len(kept) :]
        fresh = scan.start_after_loss(kept)
        if fresh is None and listed and self._is_successor(listed[0], kept, scan):
            fresh = listed[
                0
            ]  # the crash came before it was created: create it now, since the one before it is complete
        if fresh is not None:
            starts.append(fresh)
        log_start = min(manifest.log_start, scan.next_sequence)
        if tuple(starts) != manifest.segments or log_start != manifest.log_start:
            self._rewrite(Manifest(log_start, tuple(starts), self._compact), manifest)
        if fresh is not None:
            if kept:
                kept[-1].end_sequence = fresh.base_sequence
                kept[-1].seal()
            created = create_segment(self._resources, self._directory, fresh)
            self._files.sync_directory(self._directory)
            created.attach_gaps(self._gaps, is_dense=not self._compact)
            kept.append(created)
        return LogSegments(
            self._resources,
            self._directory,
            kept,
            self._gaps,
            log_start=log_start,
            last_offset=scan.last_offset,
            last_enqueued_ms=scan.last_enqueued_ms,
            compact=self._compact,
        )

    def _is_successor(self, start: SegmentStart, kept: list[Segment], scan: LogScan) -> bool:
        if stem(start.base_sequence) + LOG in self._names:
            return False
        end_position = kept[-1].end_position if kept else start.base_position
        return start.base_sequence == scan.next_sequence and start.base_position == end_position

    def _rewrite(self, manifest: Manifest, before: Manifest) -> None:
        write_manifest(self._files, self._directory, manifest)
        for start in before.segments:
            if start not in manifest.segments:
                for suffix in (LOG, *SIDE_FILES):
                    unlink_if_exists(self._files, self._directory / (stem(start.base_sequence) + suffix))


def _is_repaired(gap: Gap, segment: Segment | None) -> bool:
    if segment is None or gap.is_undecodable:
        return False
    found = batch_at(segment.read_bytes, gap.position, segment.size_bytes)
    return found is not None and found[1].base_sequence_number == gap.first_sequence
