"""What happens on opening a log: tidy up after a crash, walk what no recovery point vouches for, cut what is torn.

Batches are walked from the recovery point on: length, magic, checksum and the next sequence number must fit. The file
is cut at the first byte that does not (nothing behind it was acknowledged, because a commit covers everything before
it), and later segments are dropped. Data before the recovery point is never cut: what is broken there is refused when
it is read and named by the doctor. After a clean close the recovery point is the end, so nothing is read at all.
"""

import logging
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hubmere.model.batch import BatchHeader, is_intact, spread_offset
from hubmere.model.errors import CorruptBatch
from hubmere.store.chain import DELETED, Chain, create_segment
from hubmere.store.compaction import CLEANED, SWAP
from hubmere.store.files import Files, exists, unlink_if_there
from hubmere.store.index import AbortedEntry
from hubmere.store.manifest import (
    FIRST_SEGMENT,
    SEGMENTS,
    Manifest,
    RecoveryPoint,
    SegmentStart,
    read_epochs,
    read_manifest,
    read_recovery_point,
    write_epochs,
    write_manifest,
)
from hubmere.store.producers import ProducerTable
from hubmere.store.records import control_type
from hubmere.store.segment import ABORTED_INDEX, LOG, SIDE_FILES, SNAPSHOT, Segment, Space, stem
from hubmere.store.walk import walk_batches

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


def recover(space: Space, directory: Path, *, compact: bool, keep_before: int | None = None) -> Recovered:
    """Open a log's directory, making it when it is new.

    With `keep_before` everything from that sequence number on is cut: it was never committed (after a failed flush).
    """
    return _Recovery(space, directory, compact=compact, keep_before=keep_before).run()


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
        self._next = 0
        self._last_offset = -1
        self._enqueued_ms = -1
        self._walked_bytes = 0
        self._vouched_base = 0

    def run(self) -> Recovered:
        """Tidy, list, walk, cut."""
        self._tidy()
        manifest = self._manifest()
        self._compact = manifest.is_compact
        self._drop_unlisted(manifest)
        segments = [self._segment(start) for start in manifest.segments if self._is_there(start, manifest)]
        for segment, following in pairwise(segments):
            segment.end_sequence = following.base_sequence
            segment.is_sealed = True
        epochs = read_epochs(self._files, self._directory) or [(0, 0)]
        self._restart_at(manifest.segments[0])
        kept = self._walk(segments, epochs)
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
        if stem(start.base_sequence) + ABORTED_INDEX not in self._names:
            segment.have_no_aborted()
        return segment

    # --- walking ---

    def _walk(self, segments: list[Segment], epochs: list[tuple[int, int]]) -> list[Segment]:
        """Walk what is not vouched for; the segments that stay, the last of them active."""
        first, position = self._starting_point(segments, epochs)
        kept = segments[: first + 1]
        for segment in segments[first:]:
            if segment is not kept[-1]:
                if self._compact:
                    self._next = max(self._next, segment.base_sequence)
                if segment.base_sequence != self._next:
                    break
                kept.append(segment)
            is_whole = self._walk_segment(segment, position)
            position = 0
            if not is_whole:
                break
        for segment in kept[first:-1]:
            segment.seal()
        if kept:
            kept[-1].is_sealed = False
            kept[-1].log.writes = True
        return kept

    def _starting_point(self, segments: list[Segment], epochs: list[tuple[int, int]]) -> tuple[int, int]:
        point = read_recovery_point(self._files, self._directory)
        bases = [segment.base_sequence for segment in segments]
        if point is not None and point.segment_base in bases:
            number = bases.index(point.segment_base)
            if segments[number].size_bytes < point.position:
                self._alarm(segments[number], point, epochs)
            elif self._resume(segments[number], point):
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

    def _alarm(self, segment: Segment, point: RecoveryPoint, epochs: list[tuple[int, int]]) -> None:
        """The disk has lost what it had confirmed: say so, and let Kafka clients see it by a new leader epoch."""
        _LOGGER.error(
            "log %s: segment %s has %d bytes, but %d were confirmed durable; acknowledged events are lost",
            self._directory.name, stem(segment.base_sequence), segment.size_bytes, point.position,
        )  # fmt: skip
        epochs.append((epochs[-1][0] + 1, segment.base_sequence))
        write_epochs(self._files, self._directory, epochs)

    def _walk_segment(self, segment: Segment, position: int) -> bool:
        """Walk a segment from a batch boundary on; False when it had to be cut."""
        size_bytes = segment.size_bytes
        if position == 0:
            segment.start_empty()
            segment.max_time_ms, segment.unindexed_bytes = -1, 0
        segment.size_bytes = position
        fd = segment.log.fd() if position < size_bytes else -1  # nothing to walk: not even opened
        for batch, header in walk_batches(self._files, fd, position, size_bytes):
            if not self._fits(header, segment) or not is_intact(batch):
                break
            self._take(segment, batch, header)
        self._walked_bytes += segment.size_bytes - position
        segment.trust(position, segment.size_bytes)
        segment.end_sequence = max(self._next, segment.base_sequence)
        if segment.size_bytes == size_bytes:
            return True
        self._cut(segment, size_bytes)
        return False

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
            "log %s: %d bytes after sequence number %d were never committed and are cut from segment %s",
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
        # Listed last and not created before the crash: made now if the one before it is whole.
        fresh = listed[0] if listed and self._is_successor(listed[0], kept) else None
        if fresh is not None:
            starts.append(fresh)
        first_sequence = min(manifest.first_sequence, self._next)
        if tuple(starts) != manifest.segments or first_sequence != manifest.first_sequence:
            self._rewrite(Manifest(first_sequence, tuple(starts), self._compact), manifest)
        if fresh is not None:
            if kept:
                kept[-1].seal()
            kept.append(create_segment(self._space, self._directory, fresh))
        return Chain(self._space, self._directory, first_sequence, kept, compact=self._compact)

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


def replay(producers: ProducerTable, batch: memoryview, header: BatchHeader) -> AbortedEntry | None:
    """Take a stored batch into the producers' books, as it was when it was written."""
    last = header.next_sequence_number - 1
    if header.is_control:
        commit = control_type(batch) == 1
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
