"""What happens on opening a log: tidy up after a crash, walk what no recovery point vouches for, cut what is torn.

Batches are walked from the recovery point on: length, magic, checksum and the next sequence number must fit. Where one
does not, it is decided whether its events may have been acknowledged:

1. They are before the committed mark (`marks`) or before the recovery point: they were. Nothing is cut; the range up to
   the next intact batch becomes a gap that readers pass over, and its sequence numbers are never used again.
2. An intact batch follows: they may have been, so the same. One exception: the machine was restarted since, and the
   range holds an empty sector. Then a power cut has stopped the write, and nobody was told of it or of what follows.
3. Nothing intact follows: the end of a write that was cut short. It is cut off, and later segments are dropped.

A file that ends before the committed mark has lost acknowledged events: the range is noted as missing, and the log goes
on behind it in a new segment. Damage before the recovery point is found by the first reader, or by the doctor. After a
clean close the recovery point is the end, so nothing is read at all.
"""

import logging
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hubmere.model.errors import CorruptBatch
from hubmere.model.offsets import spread_offset
from hubmere.records.header import BatchHeader, is_intact
from hubmere.store.files import Files, exists, unlink_if_there
from hubmere.store.log.committed_file import Committed
from hubmere.store.log.compaction import CLEANED, SWAP
from hubmere.store.log.index import AbortedEntry
from hubmere.store.log.producers import ProducerTable
from hubmere.store.log.records import is_commit_marker
from hubmere.store.log.segment import (
    ABORTED_INDEX,
    LOG,
    MAX_RELATIVE_SEQUENCE,
    SIDE_FILES,
    SNAPSHOT,
    Segment,
    Space,
    stem,
)
from hubmere.store.log.segments import DELETED, Chain, create_segment
from hubmere.store.recovery.damaged_ranges import LogGaps
from hubmere.store.recovery.manifest import (
    FIRST_SEGMENT,
    SEGMENTS,
    Gap,
    Manifest,
    RecoveryPoint,
    SegmentStart,
    read_epochs,
    read_manifest,
    read_recovery_point,
    write_epochs,
    write_manifest,
)
from hubmere.store.recovery.resync import Stretch, batch_at, find_intact, looks_unwritten
from hubmere.store.recovery.walk import walk_batches

_LOGGER = logging.getLogger(__name__)

_TEMPORARY = ".tmp"


class Recovered(NamedTuple):
    """A log as it stands on disk after opening."""

    chain: Chain
    producers: ProducerTable
    leader_epoch: int
    next_sequence: int
    last_offset: int
    last_enqueued_ms: int
    walked_bytes: int
    vouched_base: int  # the segment of the recovery point


def recover(
    space: Space,
    directory: Path,
    *,
    compact: bool,
    keep_before: int | None = None,
    committed: Committed | None = None,
    is_same_boot: bool = False,
) -> Recovered:
    """Open a log's directory, making it when it is new.

    `committed` is the log's mark: everything before it was acknowledged. `is_same_boot`: the machine was not started
    anew since it was written. With `keep_before` everything from that sequence number on is cut: it was never committed
    (after a failed flush).
    """
    recovery = _Recovery(space, directory, compact=compact, keep_before=keep_before)
    recovery.committed = committed
    recovery.is_same_boot = is_same_boot
    return recovery.run()


class _Recovery:
    """One opening; the steps in the order of `run`."""

    def __init__(self, space: Space, directory: Path, *, compact: bool, keep_before: int | None) -> None:
        self._space = space
        self._files: Files = space.files
        self._directory = directory
        self._compact = compact
        self._keep_before = keep_before
        self._names: set[str] = set()
        self._producers = ProducerTable()
        self._gaps = LogGaps(space.files, directory, space.damage)
        self._next = 0
        self._last_offset = -1
        self._enqueued_ms = -1
        self._walked_bytes = 0
        self._vouched_base = 0
        self.committed: Committed | None = None
        self.is_same_boot = False

    def run(self) -> Recovered:
        """Tidy, list, walk, cut."""
        self._tidy()
        manifest = self._manifest()
        self._compact = manifest.is_compact
        self._drop_unlisted(manifest)
        self._gaps.load()
        segments = [self._segment(start) for start in manifest.segments if self._is_there(start, manifest)]
        for segment, following in pairwise(segments):
            segment.end_sequence = following.base_sequence
            segment.is_sealed = True
        epochs = read_epochs(self._files, self._directory) or [(0, 0)]
        self._forget_mended(segments)
        self._gaps.report_all()
        self._restart_at(manifest.segments[0])
        kept = self._walk(segments)
        chain = self._chain(manifest, kept)
        if not exists(self._files, self._directory / "leader-epoch-checkpoint"):
            write_epochs(self._files, self._directory, epochs)
        return Recovered(
            chain,
            self._producers,
            epochs[-1][0],
            self._next,
            self._last_offset,
            self._enqueued_ms,
            self._walked_bytes,
            self._vouched_base,
        )

    # --- tidying ---

    def _tidy(self) -> None:
        """Finish or undo what a crash left half done: a swap is finished, everything else is undone."""
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
        # The old indexes do not fit the new file; they are rebuilt from it when they are first needed.
        for suffix in SIDE_FILES[:2]:
            unlink_if_there(self._files, self._directory / (base + suffix))
            self._names.discard(base + suffix)
        self._files.rename(path, self._directory / (base + LOG))
        self._names.add(base + LOG)

    def _manifest(self) -> Manifest:
        manifest = read_manifest(self._files, self._directory) if SEGMENTS in self._names else None
        if manifest is not None:
            return manifest
        bases = sorted(int(name.removesuffix(LOG)) for name in self._names if name.endswith(LOG))
        starts = self._starts_from_files(bases) if bases else (FIRST_SEGMENT,)
        manifest = Manifest(0, starts, self._compact)
        write_manifest(self._files, self._directory, manifest)
        return manifest

    def _starts_from_files(self, bases: list[int]) -> tuple[SegmentStart, ...]:
        if bases[0] != 0:
            raise CorruptBatch(f"log '{self._directory.name}' has lost '{SEGMENTS}', which says where its bytes begin")
        starts, position = [], 0
        for base in bases:
            starts.append(SegmentStart(base, position, -1, -1))
            position += self._files.size(self._directory / (stem(base) + LOG))
        return tuple(starts)

    def _drop_unlisted(self, manifest: Manifest) -> None:
        listed = {stem(start.base_sequence) for start in manifest.segments}
        for name in sorted(self._names):
            base, _, suffix = name.partition(".")
            if "." + suffix in (LOG, *SIDE_FILES) and base not in listed:
                self._files.unlink(self._directory / name)
                self._names.discard(name)

    def _is_there(self, start: SegmentStart, manifest: Manifest) -> bool:
        if stem(start.base_sequence) + LOG in self._names:
            return True
        if start == manifest.segments[-1]:
            return False  # listed, and the crash came before it was created: made below if it still fits
        raise CorruptBatch(f"log '{self._directory.name}' lacks its segment {stem(start.base_sequence)}{LOG}")

    def _segment(self, start: SegmentStart) -> Segment:
        size_bytes = self._files.size(self._directory / (stem(start.base_sequence) + LOG))
        segment = Segment(self._space, self._directory, start, size_bytes, is_sealed=False)
        segment.belong_to(self._gaps, is_dense=not self._compact)
        if stem(start.base_sequence) + ABORTED_INDEX not in self._names:
            segment.have_no_aborted()
        return segment

    def _forget_mended(self, segments: list[Segment]) -> None:
        """Drop known gaps where an intact batch stands now: somebody has put a good copy of the file back."""
        if not self._gaps:
            return
        by_base = {segment.base_sequence: segment for segment in segments}
        damaged = [gap for gap in self._gaps.all() if not _is_mended(gap, by_base.get(gap.segment_base))]
        self._gaps.keep(damaged)
        for segment in segments:
            segment.belong_to(self._gaps, is_dense=not self._compact)

    # --- walking ---

    def _walk(self, segments: list[Segment]) -> list[Segment]:
        """Walk what is not vouched for; the segments that stay, the last of them active."""
        first, position = self._starting_point(segments)
        kept = segments[: first + 1]
        for number, segment in enumerate(segments[first:], first):
            if segment is not kept[-1]:
                if self._compact:
                    self._next = max(self._next, segment.base_sequence)
                if segment.base_sequence != self._next:
                    break
                kept.append(segment)
            following = segments[number + 1] if number + 1 < len(segments) else None
            is_whole = self._walk_segment(segment, position, following)
            position = 0
            if not is_whole:
                break
        for segment in kept[first:-1]:
            segment.seal()
        if kept:
            kept[-1].is_sealed = False
            kept[-1].log.writes = True
        return kept

    def _starting_point(self, segments: list[Segment]) -> tuple[int, int]:
        point = read_recovery_point(self._files, self._directory)
        bases = [segment.base_sequence for segment in segments]
        if point is not None and point.segment_base in bases:
            number = bases.index(point.segment_base)
            vouched = Committed(point.sequence, segments[number].base_position + point.position)
            if self._keep_before is None and (self.committed is None or self.committed < vouched):
                self.committed = vouched
            if segments[number].size_bytes >= point.position and self._resume(segments[number], point):
                self._vouched_base = point.segment_base
                return number, point.position
        self._producers = ProducerTable()
        return 0, 0

    def _resume(self, segment: Segment, point: RecoveryPoint) -> bool:
        segment.end_sequence = point.sequence
        segment.is_sealed = False
        if not segment.load_prefix(point.index_entries, point.time_entries, point.aborted_entries):
            return False
        if not self._load_producers(point.snapshot):
            return False
        segment.first_time_ms, segment.max_time_ms = point.first_time_ms, point.max_time_ms
        segment.max_time_sequence, segment.unindexed_bytes = point.max_time_sequence, point.unindexed_bytes
        self._next, self._last_offset, self._enqueued_ms = point.sequence, point.last_offset, point.last_enqueued_ms
        return True

    def _restart_at(self, start: SegmentStart) -> None:
        self._next = start.base_sequence
        self._last_offset, self._enqueued_ms = start.last_offset_before, start.last_enqueued_before_ms

    def _load_producers(self, snapshot: int) -> bool:
        if snapshot < 0:
            return True
        try:
            table = ProducerTable.from_snapshot(self._files.read(self._directory / (stem(snapshot) + SNAPSHOT)))
        except FileNotFoundError:
            return False
        if table is not None:
            self._producers = table
        return table is not None

    def _walk_segment(self, segment: Segment, position: int, following: Segment | None) -> bool:
        """Walk a segment from a batch boundary on, over damaged ranges; False when it had to be cut."""
        size_bytes = segment.size_bytes
        if position == 0:
            segment.start_empty()
            segment.max_time_ms, segment.unindexed_bytes = -1, 0
        segment.size_bytes = sound_from = position
        is_cut = False
        while not is_cut:
            self._take_batches(segment, size_bytes)
            gap = self._gap_in_front(segment, size_bytes, following)
            if gap is None:
                is_cut = segment.size_bytes < size_bytes
                break
            self._pass(segment, gap)
            sound_from = gap.end
        self._walked_bytes += segment.size_bytes - position
        segment.trust(sound_from, segment.size_bytes)
        segment.end_sequence = max(self._next, segment.base_sequence)
        if is_cut:
            self._cut(segment, size_bytes)
        return not is_cut

    def _take_batches(self, segment: Segment, size_bytes: int) -> None:
        """Take intact batches into the books, up to the first that is not."""
        position = segment.size_bytes
        fd = segment.log.fd() if position < size_bytes else -1  # nothing to walk: not even opened
        for batch, header in walk_batches(self._files, fd, position, size_bytes):
            if not self._fits(header, segment) or not is_intact(batch):
                break
            self._take(segment, batch, header)

    def _gap_in_front(self, segment: Segment, size_bytes: int, following: Segment | None) -> Gap | None:
        """The damaged range at which the walk has stopped; None when it is the end, or a write that was cut short."""
        position, expected = segment.size_bytes, self._next
        if self._keep_before is not None and expected >= self._keep_before:
            return None
        if following is not None and position == size_bytes and (self._compact or expected == following.base_sequence):
            return None
        is_committed = self.committed is not None and expected < self.committed.sequence
        if following is None and position == size_bytes and not is_committed:
            return None
        last = self._last_possible(segment, following)
        stretch = Stretch(position, size_bytes, expected, last, has_gaps=self._compact)
        found = find_intact(segment.read_bytes, stretch) if position < size_bytes else None
        if found is not None:
            if not is_committed and self._is_power_cut(segment, position, found[0]):
                return None
            return Gap(segment.base_sequence, position, found[0], expected, found[1].base_sequence_number, False)
        if not is_committed and not self._is_kept_by(following, segment, size_bytes):
            return None
        return self._gap_at_end(segment, size_bytes, following)

    def _last_possible(self, segment: Segment, following: Segment | None) -> int:
        if self._keep_before is not None:
            return self._keep_before - 1
        return segment.base_sequence + MAX_RELATIVE_SEQUENCE if following is None else following.base_sequence - 1

    def _is_power_cut(self, segment: Segment, position: int, end: int) -> bool:
        return not self.is_same_boot and looks_unwritten(segment.read_bytes, position, end)

    def _is_kept_by(self, following: Segment | None, segment: Segment, size_bytes: int) -> bool:
        """Whether a segment behind proves that this one was whole: it begins intact, and no power cut explains it."""
        if following is None or batch_at(following.read_bytes, 0, following.size_bytes) is None:
            return False
        if self.is_same_boot:
            return True
        is_short = segment.size_bytes == size_bytes
        return not is_short and not looks_unwritten(segment.read_bytes, segment.size_bytes, size_bytes)

    def _gap_at_end(self, segment: Segment, size_bytes: int, following: Segment | None) -> Gap:
        """Nothing intact follows in this file: the range ends with the file, or with what was acknowledged."""
        position, expected = segment.size_bytes, self._next
        if following is not None:
            is_missing = position == size_bytes
            return Gap(segment.base_sequence, position, size_bytes, expected, following.base_sequence, is_missing)
        assert self.committed is not None
        acknowledged_bytes = self.committed.position - segment.base_position
        end = max(min(size_bytes, acknowledged_bytes), position)
        is_missing = size_bytes < acknowledged_bytes
        return Gap(segment.base_sequence, position, end, expected, self.committed.sequence, is_missing)

    def _pass(self, segment: Segment, gap: Gap) -> None:
        """Go on behind a damaged range; producers may have written what stood there."""
        why = "acknowledged events are lost" if gap.is_missing else "the bytes do not match their checksums"
        self._gaps.add(gap, why)
        segment.belong_to(self._gaps, is_dense=not self._compact)
        segment.size_bytes = gap.end
        self._next = gap.next_sequence
        self._producers.expect_jumps()

    def _fits(self, header: BatchHeader, segment: Segment) -> bool:
        if self._keep_before is not None and header.next_sequence_number > self._keep_before:
            return False
        base = header.base_sequence_number
        is_next = base >= self._next if self._compact and segment.is_sealed else base == self._next
        return is_next and header.last_delta >= 0 and header.record_count >= 0

    def _take(self, segment: Segment, batch: memoryview, header: BatchHeader) -> None:
        last = header.next_sequence_number - 1
        if self._compact:
            self._last_offset = last
        elif header.record_count:
            position = segment.base_position + segment.size_bytes
            self._last_offset = spread_offset(position, header.size_bytes, header.record_count, header.record_count - 1)
        segment.note(last, header.size_bytes, header.max_time_ms)
        self._enqueued_ms = max(self._enqueued_ms, header.max_time_ms)
        self._next = last + 1
        if header.producer_id >= 0:
            aborted = replay(self._producers, batch, header)
            if aborted is not None:
                segment.aborted.append(aborted)

    def _cut(self, segment: Segment, size_bytes: int) -> None:
        cut = size_bytes - segment.size_bytes
        _LOGGER.warning(
            "log %s: %d bytes after sequence number %d were never acknowledged and are cut from segment %s",
            self._directory.name, cut, self._next - 1, stem(segment.base_sequence),
        )  # fmt: skip
        segment.log.close()
        fd = self._files.open(segment.path(LOG), write=True)
        try:
            self._files.truncate(fd, segment.size_bytes)
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)

    # --- the result ---

    def _chain(self, manifest: Manifest, kept: list[Segment]) -> Chain:
        starts = [segment.start for segment in kept]
        listed = manifest.segments[len(kept) :]
        fresh = self._behind_lost(manifest, kept)
        if fresh is None and listed and self._is_successor(listed[0], kept):
            fresh = listed[0]  # not created before the crash: made now, since the one before it is whole
        if fresh is not None:
            starts.append(fresh)
        first_sequence = min(manifest.first_sequence, self._next)
        if tuple(starts) != manifest.segments or first_sequence != manifest.first_sequence:
            self._rewrite(Manifest(first_sequence, tuple(starts), self._compact), manifest)
        if fresh is not None:
            if kept:
                kept[-1].seal()
            created = create_segment(self._space, self._directory, fresh)
            created.belong_to(self._gaps, is_dense=not self._compact)
            kept.append(created)
        return Chain(self._space, self._directory, first_sequence, kept, self._gaps, compact=self._compact)

    def _behind_lost(self, manifest: Manifest, kept: list[Segment]) -> SegmentStart | None:
        """Where the log goes on when the file ends before what was acknowledged: bytes and numbers are not reused."""
        committed, end_position = self.committed, kept[-1].end_position if kept else manifest.segments[0].base_position
        if self._keep_before is not None or committed is None or end_position >= committed.position:
            return None
        if kept and self._next > committed.sequence:
            return None
        if self._next < committed.sequence:
            base = kept[-1].base_sequence if kept else committed.sequence
            self._gaps.add(Gap(base, 0, 0, self._next, committed.sequence, True), "acknowledged events are lost")
            self._next = committed.sequence
        return SegmentStart(committed.sequence, committed.position, self._last_offset, self._enqueued_ms)

    def _is_successor(self, start: SegmentStart, kept: list[Segment]) -> bool:
        if stem(start.base_sequence) + LOG in self._names:
            return False
        end_position = kept[-1].end_position if kept else start.base_position
        return start.base_sequence == self._next and start.base_position == end_position

    def _rewrite(self, manifest: Manifest, before: Manifest) -> None:
        write_manifest(self._files, self._directory, manifest)
        for start in before.segments:
            if start not in manifest.segments:
                for suffix in (LOG, *SIDE_FILES):
                    unlink_if_there(self._files, self._directory / (stem(start.base_sequence) + suffix))


def _is_mended(gap: Gap, segment: Segment | None) -> bool:
    if segment is None or gap.is_undecodable:
        return False
    found = batch_at(segment.read_bytes, gap.position, segment.size_bytes)
    return found is not None and found[1].base_sequence_number == gap.first_sequence


def replay(producers: ProducerTable, batch: memoryview, header: BatchHeader) -> AbortedEntry | None:
    """Take a stored batch into the producers' books, as it was when it was written."""
    last = header.next_sequence_number - 1
    if header.is_control:
        commit = is_commit_marker(batch)
        return producers.end_transaction(header.producer_id, header.producer_epoch, last, commit=commit)
    producers.record(
        header.producer_id,
        header.producer_epoch,
        header.producer_sequence,
        header.last_delta,
        last,
        header.max_time_ms,
        transactional=header.is_transactional,
    )
    return None
