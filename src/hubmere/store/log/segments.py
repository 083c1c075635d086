"""The segments of one log in order: which holds a sequence number, a byte number or a time; rolling and dropping.

Every look-up is a bisection over segments, then over a sparse index, then a short walk over batch headers. Readers are
given a `Limit`, the end of what they may see; the chain knows nothing of commits. A change of the list of segments is
made durable before the files follow it (see manifest). Damaged ranges are passed over: a read goes on at the next
intact batch, or, where none follows, gives an empty batch that stands for the rest.
Thread rule: the owner's thread only.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from hubmere.model.offsets import index_at_offset, spread_offset
from hubmere.records.header import (
    APPEND_TIME,
    HEADER_BYTES,
    BatchHeader,
)
from hubmere.records.records import encode_batch
from hubmere.store.engine import AbortedTransaction, Chunk
from hubmere.store.files import unlink_if_there
from hubmere.store.log.records import stored_records
from hubmere.store.log.segment import LOG, SIDE_FILES, SNAPSHOT, Segment, Space
from hubmere.store.recovery.damaged_ranges import LogGaps
from hubmere.store.recovery.manifest import Manifest, SegmentStart, write_manifest

# Batches at the tail whose positions are kept, so that a reader near the end needs no walk; 16 bytes each. The older
# half goes when there are more.
MAX_RECENT_BATCHES = 8192

# An empty batch covers at most so many sequence numbers: its last delta is 32-bit.
_MOST_COVERED = 2**31 - 1

_BASE_SEQUENCE = Struct(">q")
DELETED = ".deleted"


class Limit(NamedTuple):
    """The end of what a reader may see: a batch boundary as sequence number and absolute byte position."""

    sequence: int
    position: int


class Chain:
    """The segments of one log; the last one is active."""

    def __init__(
        self,
        space: Space,
        directory: Path,
        first_sequence: int,
        segments: list[Segment],
        gaps: LogGaps,
        *,
        compact: bool,
    ) -> None:
        self._space = space
        self.gaps = gaps
        self.directory = directory
        self.first_sequence = first_sequence
        self.segments = segments
        self.is_compact = compact
        self.active = segments[-1]
        self._bases = [segment.base_sequence for segment in segments]
        self._positions = [segment.base_position for segment in segments]
        self.recent_sequences = array("q")
        self.recent_positions = array("q")
        # From here on the active segment's bytes were written, and so checked, by this process.
        self.written_from = self.active.size_bytes
        self.sealed_bytes = 0
        self.count_sealed_bytes()

    def count_sealed_bytes(self) -> None:
        """Count anew what the sealed segments hold, after something was dropped or compacted."""
        self.sealed_bytes = sum(segment.size_bytes for segment in self.segments[:-1])

    def batch_offset(self, segment: Segment, position: int, sequence: int) -> int:
        """The byte number of a batch: where it stands, or its sequence number on a compacted log."""
        return sequence if self.is_compact else segment.base_position + position

    # --- reading ---

    def read(self, sequence: int, max_bytes: int, limit: Limit) -> Chunk | None:
        """Whole batches from the one that holds `sequence`; None when there is none before the limit."""
        recent = self.recent_sequences
        if recent and sequence >= recent[0]:
            return self._read_recent(sequence, max_bytes, limit)
        for segment, end in self._spans(sequence, limit):
            found = self._locate_in(segment, sequence, end)
            while found is not None:
                chunk = self._read_from(segment, *found, max_bytes, end, limit)
                if chunk is not None:
                    return chunk
                found = self._locate_in(segment, sequence, end)
        return self._empty_batch(sequence, limit) if self.gaps and sequence < limit.sequence else None

    def _empty_batch(self, sequence: int, limit: Limit) -> Chunk:
        """Stands for damaged events at the end, so that readers move on; Kafka's format has batches without records."""
        last_delta = min(limit.sequence - sequence - 1, _MOST_COVERED)
        batch = encode_batch([], base_sequence_number=sequence, last_delta=last_delta, leader_epoch=0)
        offset = sequence if self.is_compact else max(limit.position - HEADER_BYTES, 0)
        return Chunk(memoryview(batch), offset, sequence, sequence + last_delta + 1)

    def _read_recent(self, sequence: int, max_bytes: int, limit: Limit) -> Chunk:
        sequences, positions, active = self.recent_sequences, self.recent_positions, self.active
        first = bisect_right(sequences, sequence) - 1
        start, stop, after = positions[first], limit.position - active.base_position, limit.sequence
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
        self, segment: Segment, start: int, header: BatchHeader, max_bytes: int, end: int, limit: Limit
    ) -> Chunk | None:
        """Whole batches from a position; None when the first is broken, which is then noted as a gap."""
        stop = self._boundary(segment, start, header, max_bytes, end)
        # The next batch's header stands behind: its sequence number is where the next read goes on.
        data = segment.read_bytes(start, stop - start + (HEADER_BYTES if stop < end else 0))
        if start + header.size_bytes < stop < end and not segment.is_boundary(stop, data, stop - start):
            segment.rebuild_indexes()
            stop = self._boundary(segment, start, header, max_bytes, end)
            data = segment.read_bytes(start, stop - start + (HEADER_BYTES if stop < end else 0))
        batches = memoryview(data)[: stop - start]
        if segment is self.active:
            segment.trust(self.written_from, segment.size_bytes)
        intact, after = segment.check_batches(batches, start, is_dense=not self.is_compact)
        if not intact:
            if segment.examine(start, "the checksum does not match") is None:
                raise segment.corrupt(start, "it cannot be read as a batch")
            return None
        if after is None:
            after = self._sequence_at(segment, data, start, stop, end, limit)
        base = header.base_sequence_number
        return Chunk(batches[:intact], self.batch_offset(segment, start, base), base, min(after, limit.sequence))

    def _sequence_at(self, segment: Segment, data: bytes, start: int, stop: int, end: int, limit: Limit) -> int:
        gap = segment.gap_at(stop) if segment.gaps else None
        if gap is not None:
            return gap.first_sequence
        if stop < end:
            after: int = _BASE_SEQUENCE.unpack_from(data, stop - start)[0]
            return after
        return self._end_of(segment, limit)

    def _end_of(self, segment: Segment, limit: Limit) -> int:
        """The sequence number after a segment; the books of the active one are kept by the log."""
        return limit.sequence if segment is self.active else min(segment.end_sequence, limit.sequence)

    def _boundary(self, segment: Segment, start: int, header: BatchHeader, max_bytes: int, end: int) -> int:
        """Where a read that begins at `start` stops: a batch's beginning, the end, or the next damaged range."""
        if segment.gaps and (gap := segment.gap_behind(start)) is not None:
            end = min(end, gap.position)
        if start + max_bytes >= end:
            return end
        least = start + header.size_bytes
        # Every indexed position begins a batch, so no header need be walked to stop between two.
        indexed = segment.index.floor_of_position(start + max_bytes)
        return max(indexed, least)

    def _spans(self, sequence: int, limit: Limit) -> Iterator[tuple[Segment, int]]:
        """Segments from the one that may hold a sequence number on, each with the end that the limit leaves of it."""
        for segment in self.segments[max(bisect_right(self._bases, sequence) - 1, 0) :]:
            if limit.position <= segment.base_position:
                return
            yield segment, min(segment.size_bytes, limit.position - segment.base_position)

    # --- finding ---

    def locate(self, sequence: int, limit: Limit) -> tuple[Segment, int, BatchHeader] | None:
        """The batch that holds a sequence number, or the first after it."""
        for segment, end in self._spans(sequence, limit):
            found = self._locate_in(segment, sequence, end)
            if found is not None:
                return segment, *found
        return None

    def _locate_in(self, segment: Segment, sequence: int, end: int) -> tuple[int, BatchHeader] | None:
        """The batch that holds a sequence number; the first after it where the log is compacted or damaged."""
        found = segment.locate_sequence(sequence, end)
        while found is not None and found[1].base_sequence_number > sequence and not self.is_compact:
            if self.gaps and self.gaps.covers(sequence):
                return found
            if segment.examine(found[0], f"sequence number {sequence} is not where it should be") is None:
                raise segment.corrupt(found[0], f"sequence number {sequence} is missing in front of it")
            found = segment.locate_sequence(sequence, end)
        return found

    def offset_of(self, sequence: int, limit: Limit) -> int:
        """The byte number of an event that is there."""
        if self.is_compact:
            return sequence
        found = self.locate(sequence, limit)
        if found is None:
            return max(limit.position - 1, 0)  # damaged, and nothing intact behind it
        segment, position, header = found
        index = max(sequence - header.base_sequence_number, 0)
        return spread_offset(segment.base_position + position, header.size_bytes, header.record_count, index)

    def find_offset(self, offset: int, limit: Limit) -> int:
        """The first event whose byte number is at or after `offset`."""
        number = max(bisect_right(self._positions, offset) - 1, 0)
        segment = self.segments[number]
        end = min(segment.size_bytes, limit.position - segment.base_position)
        found = segment.locate_position(max(offset - segment.base_position, 0), end)
        if found is None:
            return self._end_of(segment, limit)
        position, header = found
        batch_offset = segment.base_position + position
        return header.base_sequence_number + index_at_offset(
            batch_offset, header.size_bytes, header.record_count, offset
        )

    def find_time(self, time_ms: int, limit: Limit) -> int:
        """The first event whose time is at or after `time_ms`; the limit when there is none."""
        # `last_enqueued_before_ms` is the newest time in front of a segment and so never decreases along the chain.
        number = bisect_left(self.segments, time_ms, key=lambda segment: segment.start.last_enqueued_before_ms) - 1
        for segment in self.segments[max(number, 0) :]:
            end = min(segment.size_bytes, limit.position - segment.base_position)
            for position, header in segment.newer_batches(time_ms, end):
                sequence = self._first_in(segment, position, header, time_ms)
                if sequence is not None:
                    return sequence
        return limit.sequence

    def _first_in(self, segment: Segment, position: int, header: BatchHeader, time_ms: int) -> int | None:
        if header.next_sequence_number <= self.first_sequence:
            return None
        if header.attributes & APPEND_TIME or header.base_time_ms >= time_ms:
            return max(header.base_sequence_number, self.first_sequence)
        batch = memoryview(segment.read_bytes(position, header.size_bytes))
        if not segment.check_batches(batch, position, is_dense=not self.is_compact)[0]:
            segment.examine(position, "the checksum does not match")
            return None
        for record in stored_records(batch, header):
            sequence = header.base_sequence_number + record.sequence_delta
            if header.base_time_ms + record.time_delta >= time_ms and sequence >= self.first_sequence:
                return sequence
        return None

    def aborted(self, first_sequence: int, end_sequence: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap a range, in the order of their markers."""
        found: list[AbortedTransaction] = []
        for segment in self.segments[max(bisect_right(self._bases, first_sequence) - 1, 0) :]:
            for entry in segment.aborted:
                if entry.last_sequence >= first_sequence and entry.first_sequence < end_sequence:
                    found.append(AbortedTransaction(*entry[:3]))
                # Whatever ended later had begun at or after what was stable then.
                if entry.stable_sequence >= end_sequence:
                    return found
        return found

    # --- appending ---

    def forget_oldest_recent(self) -> None:
        """Keep only the newest half of the positions at hand."""
        del self.recent_sequences[: MAX_RECENT_BATCHES // 2]
        del self.recent_positions[: MAX_RECENT_BATCHES // 2]

    def roll(self, next_sequence: int, last_offset: int, last_enqueued_ms: int) -> Segment:
        """Seal the active segment and begin the next; raises OSError and is then unchanged. Returns the sealed one."""
        sealed = self.active
        start = SegmentStart(next_sequence, sealed.end_position, last_offset, last_enqueued_ms)
        self._write_manifest([segment.start for segment in self.segments] + [start], self.first_sequence)
        fresh = create_segment(self._space, self.directory, start)
        fresh.belong_to(self.gaps, is_dense=not self.is_compact)
        sealed.trust(self.written_from, sealed.size_bytes)
        sealed.end_sequence = next_sequence
        sealed.seal()
        self.sealed_bytes += sealed.size_bytes
        self._bases.append(start.base_sequence)
        self._positions.append(start.base_position)
        self.segments.append(fresh)
        self.active = fresh
        self.written_from = 0
        del self.recent_sequences[:], self.recent_positions[:]
        return sealed

    # --- letting go ---

    def trim(self, before_sequence: int) -> list[Path]:
        """Move the first sequence number; the files of whole segments before it get a name to be deleted under."""
        gone = max(bisect_right(self._bases, before_sequence) - 1, 0)
        leaving, kept = self.segments[:gone], self.segments[gone:]
        self._write_manifest([segment.start for segment in kept], before_sequence)
        self.first_sequence = before_sequence
        self.segments = kept
        self.gaps.forget_before(before_sequence)
        self.count_sealed_bytes()
        del self._bases[:gone], self._positions[:gone]
        return [path for segment in leaving for path in self._retire(segment)]

    def _retire(self, segment: Segment) -> list[Path]:
        segment.log.close()
        retired = []
        for suffix in (LOG, *SIDE_FILES, SNAPSHOT):
            path = segment.path(suffix)
            target = path.with_name(path.name + DELETED)
            try:
                self._space.files.rename(path, target)
            except FileNotFoundError:
                continue
            retired.append(target)
        return retired

    def _write_manifest(self, starts: Sequence[SegmentStart], first_sequence: int) -> None:
        write_manifest(self._space.files, self.directory, Manifest(first_sequence, tuple(starts), self.is_compact))


def create_segment(space: Space, directory: Path, start: SegmentStart) -> Segment:
    """A new empty segment, its name durable; its line in the manifest is durable already."""
    segment = Segment(space, directory, start, 0, is_sealed=False)
    for suffix in SIDE_FILES:
        unlink_if_there(space.files, segment.path(suffix))
    fd = space.files.open(segment.path(LOG), create=True)
    space.files.close(fd)
    space.files.sync_directory(directory)
    segment.start_empty()
    return segment
