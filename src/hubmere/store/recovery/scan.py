"""The scan on opening a log: verifies the batches after the recovery point and decides about those that fail.

Length, magic, checksum and sequence number of each batch must fit. For a batch that does not fit, the scan decides
whether its events may have been acknowledged:

1. Before the committed end or the recovery point: the events were acknowledged. Nothing is truncated; the range up to
   the next intact batch becomes a gap that readers skip, and its sequence numbers are never used again.
2. An intact batch follows: the events may have been acknowledged; they are treated as in 1. One exception: the machine
   has rebooted since, and the range contains an empty sector. Then a power cut interrupted the write, and nothing from
   there on was acknowledged.
3. No intact batch follows: an interrupted write. It is truncated, and later segments are dropped.

A file that ends before the committed end has lost acknowledged events: the range is recorded as missing.
"""

import logging
from pathlib import Path

from hubmere.model.offsets import spread_offset
from hubmere.records.header import BatchHeader, is_intact
from hubmere.records.walk import walk_batches
from hubmere.store.files import Files
from hubmere.store.log.committed_file import Boundary
from hubmere.store.log.producers import ProducerTable
from hubmere.store.log.records import is_commit_marker
from hubmere.store.log.segments.index import AbortedEntry
from hubmere.store.log.segments.segment import LOG, MAX_RELATIVE_SEQUENCE, SNAPSHOT, Segment, stem
from hubmere.store.recovery.damaged_ranges import LogGaps
from hubmere.store.recovery.manifest import Gap, RecoveryPoint, SegmentStart, read_recovery_point
from hubmere.store.recovery.resync import Stretch, batch_at, find_intact, looks_unwritten
from hubmere.store.recovery.segment_file import read_batches

_LOGGER = logging.getLogger(__name__)

# What is read and walked over at once.
_WALK_BYTES = 1024 * 1024
_NO_END = 2**63 - 1


class LogScan:
    """One scan over the segments of a log, and what it found: the end of the log and the state of its producers."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        gaps: LogGaps,
        start: SegmentStart,
        *,
        compact: bool,
        keep_before: int | None,
        committed: Boundary | None,
        is_same_boot: bool,
    ) -> None:
        self._files = files
        self._directory = directory
        self._gaps = gaps
        self._compact = compact
        self._keep_before = keep_before
        self._is_same_boot = is_same_boot
        self.committed = committed  # moves to the recovery point if that is later
        self.producers = ProducerTable()
        self._base_position = start.base_position
        self.next_sequence = start.base_sequence
        self.last_offset, self.last_enqueued_ms = start.last_offset_before, start.last_enqueued_before_ms
        self.scanned_bytes = 0
        self.covered_base = 0

    def run(self, segments: list[Segment]) -> list[Segment]:
        """Scan what no recovery point covers; returns the segments to keep, of which the last becomes active."""
        first, position = self._find_start(segments)
        kept = segments[: first + 1]
        for number, segment in enumerate(segments[first:], first):
            if segment is not kept[-1]:
                if self._compact:
                    self.next_sequence = max(self.next_sequence, segment.base_sequence)
                if segment.base_sequence != self.next_sequence:
                    break
                kept.append(segment)
            following = segments[number + 1] if number + 1 < len(segments) else None
            is_whole = self._scan_segment(segment, position, following)
            position = 0
            if not is_whole:
                break
        for segment in kept[first:-1]:
            segment.seal()
        if kept:
            kept[-1].is_sealed = False
            kept[-1].log.writes = True
        return kept

    def _find_start(self, segments: list[Segment]) -> tuple[int, int]:
        point = read_recovery_point(self._files, self._directory)
        bases = [segment.base_sequence for segment in segments]
        if point is not None and point.segment_base in bases:
            number = bases.index(point.segment_base)
            covered = Boundary(point.sequence, segments[number].base_position + point.position)
            if self._keep_before is None and (self.committed is None or self.committed < covered):
                self.committed = covered
            if segments[number].size_bytes >= point.position and self._resume(segments[number], point):
                self.covered_base = point.segment_base
                return number, point.position
        self.producers = ProducerTable()
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
        self.next_sequence, self.last_offset, self.last_enqueued_ms = (
            point.sequence,
            point.last_offset,
            point.last_enqueued_ms,
        )
        return True

    def _load_producers(self, snapshot: int) -> bool:
        if snapshot < 0:
            return True
        try:
            table = ProducerTable.from_snapshot(self._files.read(self._directory / (stem(snapshot) + SNAPSHOT)))
        except FileNotFoundError:
            return False
        if table is not None:
            self.producers = table
        return table is not None

    def _scan_segment(self, segment: Segment, position: int, following: Segment | None) -> bool:
        """Scan a segment from a batch boundary on and skip damaged ranges; False if its end had to be truncated."""
        size_bytes = segment.size_bytes
        if position == 0:
            segment.start_empty()
            segment.max_time_ms, segment.unindexed_bytes = -1, 0
        segment.size_bytes = verified_from = position
        is_truncated = False
        while not is_truncated:
            self._scan_batches(segment, size_bytes)
            gap = self._find_gap(segment, size_bytes, following)
            if gap is None:
                is_truncated = segment.size_bytes < size_bytes
                break
            self._skip(segment, gap)
            verified_from = gap.end
        self.scanned_bytes += segment.size_bytes - position
        segment.trust(verified_from, segment.size_bytes)
        segment.end_sequence = max(self.next_sequence, segment.base_sequence)
        if is_truncated:
            self._truncate(segment, size_bytes)
        return not is_truncated

    def _scan_batches(self, segment: Segment, size_bytes: int) -> None:
        """Account for intact batches, up to the first that is not.

        Ordinary small batches are walked over many at a time, without the interpreter (see `records.walk`).
        """
        while segment.size_bytes < size_bytes:  # nothing to scan: the file is not opened
            fd, position = segment.log.fd(), segment.size_bytes
            self._walk(segment, self._files.pread(fd, min(_WALK_BYTES, size_bytes - position), position))
            if segment.size_bytes > position:
                continue
            found = next(read_batches(self._files, fd, position, size_bytes), None)
            if found is None or not self._fits(found[1], segment) or not is_intact(found[0]):
                break
            self._account(segment, *found)

    def _walk(self, segment: Segment, data: bytes) -> None:
        """Account for the ordinary batches at the beginning of `data`, which is the end of the segment so far."""
        walked = walk_batches(
            data,
            self.next_sequence,
            _NO_END if self._keep_before is None else self._keep_before,
            self._compact and segment.is_sealed,
            segment.size_bytes,
            segment.unindexed_bytes,
            segment.max_time_ms,
            segment.max_time_sequence,
        )
        if not walked.batches:
            return
        segment.note_walked(walked)
        self.next_sequence = walked.next_sequence
        self.last_enqueued_ms = max(self.last_enqueued_ms, walked.newest_ms)
        if self._compact:
            self.last_offset = walked.next_sequence - 1
        elif walked.last_at >= 0:
            position = segment.base_position + walked.last_at
            self.last_offset = spread_offset(position, walked.last_size, walked.last_count, walked.last_count - 1)
        for batch in walked.numbered:
            self.producers.record(*batch, transactional=False)

    def _find_gap(self, segment: Segment, size_bytes: int, following: Segment | None) -> Gap | None:
        """The damaged range at which the scan stopped; None at the end of the log or at an interrupted write."""
        position, expected = segment.size_bytes, self.next_sequence
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
        return not self._is_same_boot and looks_unwritten(segment.read_bytes, position, end)

    def _is_kept_by(self, following: Segment | None, segment: Segment, size_bytes: int) -> bool:
        """Whether the next segment proves that this one was complete: it is intact, and no power cut explains it."""
        if following is None or batch_at(following.read_bytes, 0, following.size_bytes) is None:
            return False
        if self._is_same_boot:
            return True
        is_short = segment.size_bytes == size_bytes
        return not is_short and not looks_unwritten(segment.read_bytes, segment.size_bytes, size_bytes)

    def _gap_at_end(self, segment: Segment, size_bytes: int, following: Segment | None) -> Gap:
        """No intact batch follows in this file: the range ends with the file, or at the committed end."""
        position, expected = segment.size_bytes, self.next_sequence
        if following is not None:
            is_missing = position == size_bytes
            return Gap(segment.base_sequence, position, size_bytes, expected, following.base_sequence, is_missing)
        assert self.committed is not None
        acknowledged_bytes = self.committed.position - segment.base_position
        end = max(min(size_bytes, acknowledged_bytes), position)
        is_missing = size_bytes < acknowledged_bytes
        return Gap(segment.base_sequence, position, end, expected, self.committed.sequence, is_missing)

    def _skip(self, segment: Segment, gap: Gap) -> None:
        """Continue after a damaged range. Any producer may have written it, so their next batches may jump."""
        why = "acknowledged events are lost" if gap.is_missing else "the bytes do not match their checksums"
        self._gaps.add(gap, why)
        segment.attach_gaps(self._gaps, is_dense=not self._compact)
        segment.size_bytes = gap.end
        self.next_sequence = gap.next_sequence
        self.producers.allow_jumps()

    def _fits(self, header: BatchHeader, segment: Segment) -> bool:
        if self._keep_before is not None and header.next_sequence_number > self._keep_before:
            return False
        base = header.base_sequence_number
        is_next = base >= self.next_sequence if self._compact and segment.is_sealed else base == self.next_sequence
        return is_next and header.last_delta >= 0 and header.record_count >= 0

    def _account(self, segment: Segment, batch: memoryview, header: BatchHeader) -> None:
        last = header.next_sequence_number - 1
        if self._compact:
            self.last_offset = last
        elif header.record_count:
            position = segment.base_position + segment.size_bytes
            self.last_offset = spread_offset(position, header.size_bytes, header.record_count, header.record_count - 1)
        segment.note([(last, header.size_bytes, header.max_time_ms)])
        self.last_enqueued_ms = max(self.last_enqueued_ms, header.max_time_ms)
        self.next_sequence = last + 1
        if header.producer_id >= 0:
            aborted = replay(self.producers, batch, header)
            if aborted is not None:
                segment.aborted.append(aborted)

    def _truncate(self, segment: Segment, size_bytes: int) -> None:
        removed = size_bytes - segment.size_bytes
        _LOGGER.warning(
            "log %s: truncating segment %s by %d bytes after sequence number %d, which were never acknowledged",
            self._directory.name, stem(segment.base_sequence), removed, self.next_sequence - 1,
        )  # fmt: skip
        segment.log.close()
        fd = self._files.open(segment.path(LOG), write=True)
        try:
            self._files.truncate(fd, segment.size_bytes)
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)

    def start_after_loss(self, kept: list[Segment]) -> SegmentStart | None:
        """Where the log continues if its file ends before the committed end: bytes and numbers are not reused."""
        committed, end_position = self.committed, kept[-1].end_position if kept else self._base_position
        if self._keep_before is not None or committed is None or end_position >= committed.position:
            return None
        if kept and self.next_sequence > committed.sequence:
            return None
        if self.next_sequence < committed.sequence:
            base = kept[-1].base_sequence if kept else committed.sequence
            self._gaps.add(
                Gap(base, 0, 0, self.next_sequence, committed.sequence, True), "acknowledged events are lost"
            )
            self.next_sequence = committed.sequence
        return SegmentStart(committed.sequence, committed.position, self.last_offset, self.last_enqueued_ms)


def replay(producers: ProducerTable, batch: memoryview, header: BatchHeader) -> AbortedEntry | None:
    """Update the producers for a stored batch, as when it was written; returns the range that it aborts."""
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
