"""The segments of one log in order, and the end of the written data: look-ups, appends, rolling, deleting segments.

A look-up bisects the segments, then a sparse index, and then reads a few batch headers. Callers pass `visible_end`, the
boundary up to which they may read; nothing here knows what is committed. A change of the list of segments is written
before the files change (see segment_list). Damaged ranges are skipped: a read continues at the next intact batch, or,
if none follows, returns an empty batch that covers the rest.
Thread rule: the owner's thread only.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from struct import Struct

from hubmere.model.offsets import index_at_offset, spread_offset
from hubmere.records.header import APPEND_TIME, HEADER_BYTES, BatchHeader
from hubmere.records.records import encode_batch
from hubmere.store.engine import AbortedTransaction, Chunk, FileRange
from hubmere.store.files import Handle, unlink_if_exists
from hubmere.store.log.committed_file import Boundary
from hubmere.store.log.records import stored_records
from hubmere.store.log.resources import LogResources
from hubmere.store.log.segments.segment import LOG, SIDE_FILES, SNAPSHOT, Segment
from hubmere.store.log.segments.segment_list import SegmentList
from hubmere.store.recovery.damaged_ranges import LogGaps
from hubmere.store.recovery.manifest import Manifest, SegmentStart

# An empty batch covers at most this many sequence numbers: its last delta is 32-bit.
_MOST_COVERED = 2**31 - 1
# Files that one answer names, since each of them is opened: 2 GB with segments of the usual size.
_MOST_FILES = 8

_BASE_SEQUENCE = Struct(">q")
# Suffix of files that earlier versions renamed before they removed them.
DELETED = ".deleted"


class LogSegments:
    """The segments of one log; the last one is active."""

    def __init__(
        self,
        resources: LogResources,
        directory: Path,
        segments: list[Segment],
        gaps: LogGaps,
        *,
        log_start: int,
        last_offset: int,
        last_enqueued_ms: int,
        compact: bool,
    ) -> None:
        self._resources = resources
        self.gaps = gaps
        self.directory = directory
        self.list = SegmentList(resources.files, directory)
        self.log_start = log_start
        self.all = segments
        self.is_compact = compact
        self.active = segments[-1]
        self._bases = [segment.base_sequence for segment in segments]
        self._positions = [segment.base_position for segment in segments]
        # Reads trust recent batches without checking: only those that this process writes.
        self.active.forget_recent(len(self.active.recent_positions))
        # From this position on, this process wrote (and so verified) the bytes of the active segment.
        self._written_from = self.active.size_bytes
        self._rolled: list[Segment] = []  # sealed since the last round of the group commit
        self._earlier_last_offset = last_offset  # valid until this process appends to the active segment
        self.active.last_enqueued_ms = last_enqueued_ms
        self.sealed_bytes = 0
        self.count_sealed_bytes()

    def move_to(self, resources: LogResources) -> None:
        """Use the engine's resources from now on, on the owner's thread: the log has been opened."""
        self._resources = resources
        for segment in self.all:
            segment.move_to(resources)

    @property
    def sealed_segments(self) -> Sequence[Segment]:
        """All segments but the active one."""
        return self.all[:-1]

    @property
    def end(self) -> Boundary:
        """The end of everything written, committed or not."""
        active = self.active
        return Boundary(active.end_sequence, active.base_position + active.size_bytes)

    @property
    def end_position(self) -> int:
        """The absolute byte position of `end`."""
        return self.active.base_position + self.active.size_bytes

    @property
    def last_enqueued_ms(self) -> int:
        """The enqueued time of the last event written, -1 if there is none."""
        return self.active.last_enqueued_ms

    @property
    def last_offset(self) -> int:
        """The byte offset of the last event written; its sequence number on a compacted log; -1 if there is none."""
        active = self.active
        if not active.recent_sequences:
            return self._earlier_last_offset
        first, position = active.recent_sequences[-1], active.recent_positions[-1]
        if self.is_compact:
            return active.end_sequence - 1
        count = active.end_sequence - first
        return spread_offset(active.base_position + position, active.size_bytes - position, count, count - 1)

    def count_sealed_bytes(self) -> None:
        """Recompute the size of the sealed segments, after one was deleted or compacted."""
        self.sealed_bytes = sum(segment.size_bytes for segment in self.sealed_segments)

    def batch_offset(self, segment: Segment, position: int, sequence: int) -> int:
        """The byte offset of a batch; its sequence number on a compacted log."""
        return sequence if self.is_compact else segment.base_position + position

    # --- reading ---

    def read(self, sequence: int, max_bytes: int, visible_end: Boundary) -> Chunk | None:
        """Whole batches from the one that contains `sequence`; None if there is none before `visible_end`."""
        recent = self.active.recent_sequences
        if recent and sequence >= recent[0]:
            return self._read_recent(sequence, max_bytes, visible_end)
        for segment, end in self._spans(sequence, visible_end):
            found = self._locate_in(segment, sequence, end)
            while found is not None:
                chunk = self._read_from(segment, *found, max_bytes, end, visible_end)
                if chunk is not None:
                    return chunk
                found = self._locate_in(segment, sequence, end)
        return self._empty_batch(sequence, visible_end) if self.gaps and sequence < visible_end.sequence else None

    def _empty_batch(self, sequence: int, visible_end: Boundary) -> Chunk:
        """A batch without records (Kafka's format has them) in place of damaged events at the end: readers move on."""
        last_delta = min(visible_end.sequence - sequence - 1, _MOST_COVERED)
        batch = encode_batch([], base_sequence_number=sequence, last_delta=last_delta, leader_epoch=0)
        offset = sequence if self.is_compact else max(visible_end.position - HEADER_BYTES, 0)
        return Chunk(memoryview(batch), offset, sequence, sequence + last_delta + 1)

    def _read_recent(self, sequence: int, max_bytes: int, visible_end: Boundary) -> Chunk:
        active = self.active
        sequences, positions = active.recent_sequences, active.recent_positions
        first = bisect_right(sequences, sequence) - 1
        start, stop, after = positions[first], visible_end.position - active.base_position, visible_end.sequence
        if stop - start > max_bytes:
            last = max(bisect_right(positions, start + max_bytes) - 1, first + 1)
            if last < len(positions) and positions[last] < stop:
                stop, after = positions[last], sequences[last]
        data = active.read_bytes(start, stop - start)
        if len(data) != stop - start:
            raise active.corrupt(start + len(data), "the file ends here")
        base = sequences[first]
        return Chunk(memoryview(data), base if self.is_compact else active.base_position + start, base, after)

    def _read_from(
        self, segment: Segment, start: int, header: BatchHeader, max_bytes: int, end: int, visible_end: Boundary
    ) -> Chunk | None:
        """Whole batches from a position; None if the first is broken, which is then recorded as a gap."""
        stop = self._boundary(segment, start, header, max_bytes, end)
        # Read the next batch's header too: its sequence number is where the next read continues.
        data = segment.read_bytes(start, stop - start + (HEADER_BYTES if stop < end else 0))
        if start + header.size_bytes < stop < end and not segment.is_boundary(stop, data, stop - start):
            segment.rebuild_indexes()
            stop = self._boundary(segment, start, header, max_bytes, end)
            data = segment.read_bytes(start, stop - start + (HEADER_BYTES if stop < end else 0))
        batches = memoryview(data)[: stop - start]
        if segment is self.active:
            segment.trust(self._written_from, segment.size_bytes)
        intact, after = segment.check_batches(batches, start, is_dense=not self.is_compact)
        if not intact:
            if segment.examine(start, "the checksum does not match") is None:
                raise segment.corrupt(start, "it cannot be read as a batch")
            return None
        if after is None:
            after = self._sequence_at(segment, data, start, stop, end, visible_end)
        base = header.base_sequence_number
        return Chunk(batches[:intact], self.batch_offset(segment, start, base), base, min(after, visible_end.sequence))

    def _sequence_at(
        self, segment: Segment, data: bytes, start: int, stop: int, end: int, visible_end: Boundary
    ) -> int:
        gap = segment.gap_at(stop) if segment.gaps else None
        if gap is not None:
            return gap.first_sequence
        if stop < end:
            after: int = _BASE_SEQUENCE.unpack_from(data, stop - start)[0]
            return after
        return self._end_of(segment, visible_end)

    def _end_of(self, segment: Segment, visible_end: Boundary) -> int:
        """The sequence number after a segment, as far as it is visible."""
        return min(segment.end_sequence, visible_end.sequence)

    def _boundary(self, segment: Segment, start: int, header: BatchHeader, max_bytes: int, end: int) -> int:
        """Where a read that begins at `start` stops: the start of a batch, the end, or the next damaged range."""
        if segment.gaps and (gap := segment.next_gap(start)) is not None:
            end = min(end, gap.position)
        if start + max_bytes >= end:
            return end
        least = start + header.size_bytes
        # Every indexed position is the start of a batch, so the read can stop there without reading headers.
        indexed = segment.index.floor_of_position(start + max_bytes)
        return max(indexed, least)

    def _spans(self, sequence: int, visible_end: Boundary) -> Iterator[tuple[Segment, int]]:
        """Segments from the one that may contain a sequence number on, each with its readable size."""
        for segment in self.all[max(bisect_right(self._bases, sequence) - 1, 0) :]:
            if visible_end.position <= segment.base_position:
                return
            yield segment, min(segment.size_bytes, visible_end.position - segment.base_position)

    def file_ranges(self, first: int, end: int, visible_end: Boundary) -> list[FileRange]:
        """The parts of the first files with the batches of a range; empty if the log is compacted or damaged."""
        found: list[FileRange] = []
        if self.is_compact or self.gaps:
            return found
        for segment, size_bytes in islice(self._spans(first, visible_end), _MOST_FILES):
            if segment.base_sequence >= end:
                break
            file_id = self._resources.files.file_id(segment.log.fd())
            begin = self._span_of(segment, max(first, segment.base_sequence), size_bytes)
            after = self._end_of(segment, visible_end)
            stop = (0, size_bytes, 0, after) if end >= after else self._span_of(segment, end - 1, size_bytes)
            if not file_id or begin is None or stop is None:
                return []
            path, offset = str(segment.path(LOG).absolute()), segment.base_position + begin[0]
            found.append(FileRange(path, file_id, begin[0], stop[1], offset, begin[2], stop[3]))
        return found

    def _span_of(self, segment: Segment, sequence: int, end: int) -> tuple[int, int, int, int] | None:
        """Positions of the batch with a sequence number, and its first and next sequence number."""
        found = self._locate_in(segment, sequence, end)
        if found is None or found[1].base_sequence_number > sequence:
            return None
        position, header = found
        return position, position + header.size_bytes, header.base_sequence_number, header.next_sequence_number

    # --- finding ---

    def locate(self, sequence: int, visible_end: Boundary) -> tuple[Segment, int, BatchHeader] | None:
        """The batch that contains a sequence number, or the first after it."""
        for segment, end in self._spans(sequence, visible_end):
            found = self._locate_in(segment, sequence, end)
            if found is not None:
                return segment, *found
        return None

    def _locate_in(self, segment: Segment, sequence: int, end: int) -> tuple[int, BatchHeader] | None:
        """The batch that contains a sequence number; the first after it if the log is compacted or damaged."""
        found = segment.locate_sequence(sequence, end)
        while found is not None and found[1].base_sequence_number > sequence and not self.is_compact:
            if self.gaps and self.gaps.covers(sequence):
                return found
            if segment.examine(found[0], f"sequence number {sequence} is not where it should be") is None:
                raise segment.corrupt(found[0], f"sequence number {sequence} is missing before it")
            found = segment.locate_sequence(sequence, end)
        return found

    def offset_of(self, sequence: int, visible_end: Boundary) -> int:
        """The byte offset of an event that exists."""
        if self.is_compact:
            return sequence
        found = self.locate(sequence, visible_end)
        if found is None:
            return max(visible_end.position - 1, 0)  # damaged, and no intact batch follows
        segment, position, header = found
        index = max(sequence - header.base_sequence_number, 0)
        return spread_offset(segment.base_position + position, header.size_bytes, header.record_count, index)

    def find_offset(self, offset: int, visible_end: Boundary) -> int:
        """The first event whose byte offset is at or after `offset`."""
        number = max(bisect_right(self._positions, offset) - 1, 0)
        segment = self.all[number]
        end = min(segment.size_bytes, visible_end.position - segment.base_position)
        found = segment.locate_position(max(offset - segment.base_position, 0), end)
        if found is None:
            return self._end_of(segment, visible_end)
        position, header = found
        batch_offset = segment.base_position + position
        return header.base_sequence_number + index_at_offset(
            batch_offset, header.size_bytes, header.record_count, offset
        )

    def find_time(self, time_ms: int, visible_end: Boundary) -> int:
        """The first event whose time is at or after `time_ms`; `visible_end` if there is none."""
        # `last_enqueued_before_ms` is the newest time before a segment, so it never decreases from segment to segment.
        number = bisect_left(self.all, time_ms, key=lambda segment: segment.start.last_enqueued_before_ms) - 1
        for segment in self.all[max(number, 0) :]:
            end = min(segment.size_bytes, visible_end.position - segment.base_position)
            for position, header in segment.newer_batches(time_ms, end):
                sequence = self._first_in(segment, position, header, time_ms)
                if sequence is not None:
                    return sequence
        return visible_end.sequence

    def _first_in(self, segment: Segment, position: int, header: BatchHeader, time_ms: int) -> int | None:
        if header.next_sequence_number <= self.log_start:
            return None
        if header.attributes & APPEND_TIME or header.base_time_ms >= time_ms:
            return max(header.base_sequence_number, self.log_start)
        batch = memoryview(segment.read_bytes(position, header.size_bytes))
        if not segment.check_batches(batch, position, is_dense=not self.is_compact)[0]:
            segment.examine(position, "the checksum does not match")
            return None
        for record in stored_records(batch, header):
            sequence = header.base_sequence_number + record.sequence_delta
            if header.base_time_ms + record.time_delta >= time_ms and sequence >= self.log_start:
                return sequence
        return None

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap a range, in the order of their markers."""
        found: list[AbortedTransaction] = []
        for segment in self.all[max(bisect_right(self._bases, first_sequence) - 1, 0) :]:
            for entry in segment.aborted:
                if entry.last_sequence >= first_sequence and entry.first_sequence < end_sequence:
                    found.append(AbortedTransaction(*entry[:3]))
                # A transaction that ended later began at or after the last stable sequence number of this entry.
                if entry.last_stable >= end_sequence:
                    return found
        return found

    # --- appending ---

    def take_unsynced(self) -> Sequence[Handle]:
        """The files with writes that no flush covers yet; the caller flushes them."""
        handles = [segment.log for segment in (*self._rolled, self.active) if segment.log.is_unsynced]
        for handle in handles:
            handle.is_unsynced = False
        self._rolled.clear()
        active = self.active.log
        if active.before_sync is not None:
            if self.list.is_durable:
                active.before_sync = None
            elif active not in handles:
                # The pool has flushed and closed the file in between. The name of the file must become durable too.
                active.fd()
                handles.append(active)
        return handles

    def roll(self) -> None:
        """Seal the active segment and start the next one; raises OSError, without having changed anything.

        Does not wait for the disk: the next round of the group commit makes the list durable, or `list.save`.
        """
        sealed, end = self.active, self.end
        newest_ms = max(self.last_enqueued_ms, sealed.max_time_ms, sealed.start.last_enqueued_before_ms)
        start = SegmentStart(end.sequence, end.position, self.last_offset, newest_ms)
        manifest = self._manifest([segment.start for segment in self.all] + [start], self.log_start)
        self.list.write(manifest)
        fresh = create_segment(self._resources, self.directory, start)
        self.list.require(manifest)
        fresh.log.before_sync = self.list.sync
        fresh.attach_gaps(self.gaps, is_dense=not self.is_compact)
        fresh.last_enqueued_ms = sealed.last_enqueued_ms
        sealed.trust(self._written_from, sealed.size_bytes)
        sealed.seal()
        self._rolled.append(sealed)
        self.sealed_bytes += sealed.size_bytes
        self._bases.append(start.base_sequence)
        self._positions.append(start.base_position)
        self.all.append(fresh)
        self.active = fresh
        self._written_from = 0
        self._earlier_last_offset = start.last_offset_before

    def close_files(self) -> None:
        """Close the files of all segments; the next use opens them again."""
        for segment in self.all:
            segment.log.close()

    # --- deleting ---

    def trim(self, before_sequence: int) -> list[Path]:
        """Move `log_start`; returns the files of the segments before it, to be unlinked when the list is durable."""
        count = max(bisect_right(self._bases, before_sequence) - 1, 0)
        deleted, kept = self.all[:count], self.all[count:]
        manifest = self._manifest([segment.start for segment in kept], before_sequence)
        self.list.write(manifest)
        self.list.require(manifest)
        self.log_start = before_sequence
        self.all = kept
        self.gaps.forget_before(before_sequence)
        self.count_sealed_bytes()
        del self._bases[:count], self._positions[:count]
        for segment in deleted:
            segment.log.close()
        return [segment.path(suffix) for segment in deleted for suffix in (LOG, *SIDE_FILES, SNAPSHOT)]

    def _manifest(self, starts: Sequence[SegmentStart], log_start: int) -> Manifest:
        return Manifest(log_start, tuple(starts), self.is_compact)


def create_segment(resources: LogResources, directory: Path, start: SegmentStart) -> Segment:
    """Create an empty segment that the list of segments names already; its own name is not durable yet."""
    segment = Segment(resources, directory, start, 0, is_sealed=False)
    for suffix in SIDE_FILES:
        unlink_if_exists(resources.files, segment.path(suffix))
    fd = resources.files.open(segment.path(LOG), create=True)
    resources.files.close(fd)
    segment.start_empty()
    return segment
