"""One append-only file of batches and its indexes: finds batches in the file and checks that they are intact.

A segment never decides when to roll, commit or delete. Its indexes are loaded on first use, and rebuilt from the
batches if they are missing or inconsistent. Bytes that an earlier process wrote are verified against their checksums
the first time they are read. A batch that fails is examined once: the damaged range, up to the next intact batch,
becomes one of the log's gaps, and all later reads skip it.
Thread rule: the owner's thread only.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hubmere.model.errors import CorruptBatch
from hubmere.records.header import HEADER_BYTES, BatchHeader, read_header
from hubmere.records.walk import WalkResult
from hubmere.store.files import Handle
from hubmere.store.log.resources import LogResources
from hubmere.store.log.segments.batch_checks import find_fault, read_possible_header
from hubmere.store.log.segments.index import INTERVAL_BYTES, AbortedEntry, OffsetIndex, TimeIndex, aborted_from_bytes
from hubmere.store.recovery.damaged_ranges import LogGaps
from hubmere.store.recovery.manifest import Gap, SegmentStart
from hubmere.store.recovery.resync import Stretch, batch_at, find_intact

# Positions in an index are 31-bit (Kafka's format), and so are sequence numbers relative to the base.
MAX_SEGMENT_BYTES = 2**31 - 1
MAX_RELATIVE_SEQUENCE = 2**31 - 1
# Positions kept for the newest batches, 16 bytes each, so that reads near the end need no index. When there are more,
# the older half is dropped.
MAX_RECENT_BATCHES = 8192
# Read size for headers: two index intervals, so that an ordinary look-up is one read.
_WINDOW_BYTES = 2 * INTERVAL_BYTES

LOG, INDEX, TIME_INDEX, ABORTED_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
SIDE_FILES = (INDEX, TIME_INDEX, ABORTED_INDEX)


def stem(base_sequence: int) -> str:
    """The name that all files of a segment share (Kafka: twenty digits)."""
    return f"{base_sequence:020d}"


class _IndexDoubt(Exception):
    """An index entry points to a position where no batch begins: the index is wrong, not the data."""


class Segment:
    """One file of batches with sequence numbers from `base_sequence` up to, not including, `end_sequence`."""

    __slots__ = (
        "_aborted", "_checked_from", "_checked_to", "_gaps_of_log", "_index", "_resources", "_times", "base_position",
        "base_sequence", "directory", "end_sequence", "first_time_ms", "gaps", "is_dense", "is_sealed",
        "last_enqueued_ms", "log", "max_time_ms", "max_time_sequence", "noted_batches", "recent_positions",
        "recent_sequences", "saved_aborted", "saved_index", "saved_times", "size_bytes", "start", "unindexed_bytes",
    )  # fmt: skip

    def __init__(
        self, resources: LogResources, directory: Path, start: SegmentStart, size_bytes: int, *, is_sealed: bool
    ) -> None:
        self._resources = resources
        self.directory = directory
        self.start = start
        self.base_sequence = start.base_sequence
        self.base_position = start.base_position
        self.size_bytes = size_bytes
        self.end_sequence = start.base_sequence  # the next sequence number; of a sealed segment, the next one's base
        self.is_sealed = is_sealed
        self.log: Handle = resources.pool.handle(self.path(LOG), writes=not is_sealed)
        self._index: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._aborted: list[AbortedEntry] | None = None
        self.last_enqueued_ms = start.last_enqueued_before_ms  # of the last event; valid for the active segment
        self.first_time_ms = -1
        self.max_time_ms = -1
        self.max_time_sequence = start.base_sequence
        self.unindexed_bytes = 0
        self.noted_batches = 0  # since the segment was opened or created
        self.recent_sequences = array("q")
        self.recent_positions = array("q")
        self.saved_index = self.saved_times = self.saved_aborted = 0
        self._checked_from = self._checked_to = 0
        self._gaps_of_log: LogGaps | None = None
        self.gaps: list[Gap] = []  # damaged ranges in order; usually empty
        self.is_dense = True

    def move_to(self, resources: LogResources) -> None:
        """Use the engine's resources from now on, on the owner's thread: the log has been opened."""
        self._resources = resources
        self.log.move_to(resources.pool)
        if self.is_sealed and self._index is not None:
            resources.note_loaded(self)

    def attach_gaps(self, gaps: LogGaps, *, is_dense: bool) -> None:
        """Use the gaps of the log. In a dense log (not compacted) every sequence number has its event."""
        self._gaps_of_log = gaps
        self.is_dense = is_dense
        self.gaps = gaps.of_segment(self.base_sequence) if gaps else []

    def path(self, suffix: str) -> Path:
        """One of the segment's files."""
        return self.directory / (stem(self.base_sequence) + suffix)

    @property
    def end_position(self) -> int:
        """Absolute byte position after the last batch."""
        return self.base_position + self.size_bytes

    # --- appending ---

    def start_empty(self) -> None:
        """Start with empty indexes: the segment has no data yet, or is about to be scanned."""
        self._index, self._times, self._aborted = OffsetIndex(), TimeIndex(), []

    def skip_aborted_index(self) -> None:
        """The segment has no file of aborted transactions: do not try to read one."""
        self._aborted = []

    def note(self, batches: Iterable[tuple[int, int, int]], last_enqueued_ms: int = -1) -> None:
        """Update counters and indexes for appended batches: last sequence number, size and newest time of each.

        The only place that accounts for a batch: for appends and runs, recovery, compaction and rebuilt indexes.
        """
        sequences, positions = self.recent_sequences, self.recent_positions
        known = len(positions)
        sequence, position = self.end_sequence, self.size_bytes
        for last_sequence, size_bytes, time_ms in batches:
            sequences.append(sequence)
            positions.append(position)
            if time_ms > self.max_time_ms:
                self.max_time_ms = time_ms
                self.max_time_sequence = last_sequence
            if self.unindexed_bytes > INTERVAL_BYTES:
                self._add_entries(last_sequence, position)
            if not position:
                self.first_time_ms = time_ms
            self.unindexed_bytes += size_bytes
            position += size_bytes
            sequence = last_sequence + 1
        self.size_bytes = position
        self.end_sequence = sequence
        self.last_enqueued_ms = last_enqueued_ms
        self.noted_batches += len(positions) - known
        if len(positions) > MAX_RECENT_BATCHES:
            self.forget_recent(len(positions) - MAX_RECENT_BATCHES // 2)

    def note_walked(self, walked: WalkResult) -> None:
        """As `note`, for batches that recovery has walked over; it does not keep their positions."""
        for last, position, max_time_ms, max_time_sequence in walked.indexed:
            self.index.append(last - self.base_sequence, position)
            self.times.append(max_time_ms, max_time_sequence - self.base_sequence)
        if walked.first_time_ms >= 0:
            self.first_time_ms = walked.first_time_ms
        self.max_time_ms, self.max_time_sequence = walked.max_time_ms, walked.max_time_sequence
        self.unindexed_bytes = walked.unindexed_bytes
        self.size_bytes += walked.size_bytes
        self.end_sequence = walked.next_sequence

    def forget_recent(self, count: int) -> None:
        """Drop the positions of the oldest recent batches."""
        del self.recent_sequences[:count], self.recent_positions[:count]

    def _add_entries(self, last_sequence: int, position: int) -> None:
        self.index.append(last_sequence - self.base_sequence, position)
        self.times.append(self.max_time_ms, self.max_time_sequence - self.base_sequence)
        self.unindexed_bytes = 0

    def seal(self) -> None:
        """Mark the segment as complete; its newest time becomes the last entry of the time index."""
        if self.size_bytes:
            self.times.append(self.max_time_ms, self.max_time_sequence - self.base_sequence)
        self.is_sealed = True
        self.forget_recent(len(self.recent_positions))

    def trust(self, start: int, end: int) -> None:
        """Mark bytes as verified, by the process that wrote or scanned them: reads skip the checksum."""
        if self._checked_from == self._checked_to:
            self._checked_from, self._checked_to = start, end
        elif start <= self._checked_to and end >= self._checked_from:
            self._checked_from, self._checked_to = min(start, self._checked_from), max(end, self._checked_to)

    # --- indexes ---

    @property
    def index(self) -> OffsetIndex:
        """The offset index, loaded or rebuilt on first use."""
        if self._index is None:
            self._load()
        assert self._index is not None
        return self._index

    @property
    def times(self) -> TimeIndex:
        """The time index, loaded or rebuilt on first use."""
        if self._times is None:
            self._load()
        assert self._times is not None
        return self._times

    @property
    def aborted(self) -> list[AbortedEntry]:
        """Aborted transactions whose marker is in this segment."""
        if self._aborted is None:
            self._aborted = aborted_from_bytes(self._read_side(ABORTED_INDEX) or b"")
            self.saved_aborted = len(self._aborted)
        return self._aborted

    def _load(self) -> None:
        if not self._load_saved():
            self.rebuild_indexes()
        if self.is_sealed:
            self._resources.note_loaded(self)

    def _load_saved(self) -> bool:
        offsets, times = self._read_side(INDEX), self._read_side(TIME_INDEX)
        if offsets is None or times is None:
            return False
        self._index, self._times = OffsetIndex.from_bytes(offsets), TimeIndex.from_bytes(times)
        self.saved_index, self.saved_times = len(self._index), len(self._times)
        last = self.end_sequence - 1 - self.base_sequence
        is_complete = bool(self._times) or not self.size_bytes or not self.is_sealed
        return self._index.is_plausible(self.size_bytes) and self._times.is_plausible(last) and is_complete

    def load_prefix(self, index_entries: int, time_entries: int, aborted_entries: int) -> bool:
        """Load the index entries that a recovery point covers; False if the files do not have them."""
        index = OffsetIndex.from_bytes(self._read_side(INDEX) or b"")
        times = TimeIndex.from_bytes(self._read_side(TIME_INDEX) or b"")
        aborted = self.aborted
        if len(index) < index_entries or len(times) < time_entries or len(aborted) < aborted_entries:
            return False
        index.truncate(index_entries)
        times.truncate(time_entries)
        del aborted[aborted_entries:]
        self._index, self._times = index, times
        self.saved_index, self.saved_times, self.saved_aborted = index_entries, time_entries, aborted_entries
        return index.is_plausible(self.size_bytes) and times.is_plausible(self.end_sequence - 1 - self.base_sequence)

    @property
    def has_unsaved_entries(self) -> bool:
        """Whether a checkpoint has something to write for this segment."""
        if self._index is None or self._times is None:
            return False
        unsaved_aborted = self._aborted is not None and len(self._aborted) > self.saved_aborted
        return len(self._index) > self.saved_index or len(self._times) > self.saved_times or unsaved_aborted

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batch headers; the next checkpoint writes the files."""
        self._index, self._times = OffsetIndex(), TimeIndex()
        shadow = Segment(self._resources, self.directory, self.start, 0, is_sealed=False)
        shadow.start_empty()
        # Bytes that cannot be read are not indexed; a read that reaches them fails there.
        with suppress(CorruptBatch, _IndexDoubt):
            for position, header in self._headers(0, self.size_bytes):
                shadow.size_bytes = position
                shadow.note([(header.next_sequence_number - 1, header.size_bytes, header.max_time_ms)])
        self._index, self._times = shadow.index, shadow.times
        self.saved_index = self.saved_times = 0
        self.max_time_ms, self.max_time_sequence = shadow.max_time_ms, shadow.max_time_sequence
        self.unindexed_bytes = shadow.unindexed_bytes
        if self.is_sealed:
            self.seal()

    def replace_with(self, shadow: "Segment") -> None:
        """Adopt the size and the indexes of the compacted file that has just replaced this one."""
        self.log.close()
        self._index, self._times = shadow._index, shadow._times
        self.saved_index = self.saved_times = 0
        self.size_bytes, self.max_time_ms = shadow.size_bytes, shadow.max_time_ms
        self._checked_from, self._checked_to = 0, shadow.size_bytes

    def forget_indexes(self) -> None:
        """Unload a sealed segment's indexes, unless they have entries that are not on disk."""
        if not self.has_unsaved_entries:
            self._index = self._times = None

    def newest_time_ms(self) -> int:
        """The largest event time in this segment, -1 if it is empty."""
        if self.max_time_ms < 0 and self.size_bytes and self.times.times:
            self.max_time_ms = self.times.times[-1]
        return self.max_time_ms

    def first_time(self) -> int:
        """The newest time in the first batch, -1 if there is none."""
        found = self.locate_position(0, self.size_bytes)
        return -1 if found is None else found[1].max_time_ms

    def _read_side(self, suffix: str) -> bytes | None:
        try:
            return self._resources.files.read(self.path(suffix))
        except FileNotFoundError:
            return None

    # --- looking up ---

    def locate_sequence(self, sequence: int, end: int) -> tuple[int, BatchHeader] | None:
        """The batch that contains a sequence number, or the first after it; None if there is none before `end`."""

        def look() -> tuple[int, BatchHeader] | None:
            entry = self.index.entry_of_sequence(sequence - self.base_sequence)
            if entry[1] and entry[0] > sequence - self.base_sequence:
                raise _IndexDoubt  # the entries are not sorted
            for position, header in self._headers_from(entry, end):
                if header.next_sequence_number > sequence:
                    return position, header
            return None

        return self._with_sound_index(look)

    def locate_position(self, position: int, end: int) -> tuple[int, BatchHeader] | None:
        """The batch that contains a byte of the file, or the first after it; None if there is none before `end`."""

        def look() -> tuple[int, BatchHeader] | None:
            entry = self.index.entry_of_position(position)
            if entry[1] > position:
                raise _IndexDoubt  # the entries are not sorted
            for start, header in self._headers_from(entry, end):
                if start + header.size_bytes > position:
                    return start, header
            return None

        return self._with_sound_index(look)

    def newer_batches(self, time_ms: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Batches with an event at or after a time, in order."""
        floor = self.base_sequence + self.times.floor(time_ms) + 1
        found = self.locate_sequence(floor, end)
        if found is None:
            return
        for position, header in self._headers(found[0], end):
            if header.max_time_ms >= time_ms:
                yield position, header

    def is_boundary(self, position: int, data: bytes, at: int) -> bool:
        """Whether `data[at:]` starts with the batch that the index has at this position of the file."""
        if self.gaps and self.gap_at(position) is not None:
            return True
        sequence, noted = self.index.entry_of_position(position)
        if noted != position or len(data) - at < HEADER_BYTES:
            return False
        return read_header(data, at).next_sequence_number - 1 == self.base_sequence + sequence

    def _with_sound_index(self, look: Callable[[], tuple[int, BatchHeader] | None]) -> tuple[int, BatchHeader] | None:
        try:
            return look()
        except _IndexDoubt:
            self.rebuild_indexes()
        try:
            return look()
        except _IndexDoubt as doubt:
            raise self.corrupt(0, "no batch can be found in it") from doubt

    def _headers_from(self, entry: tuple[int, int], end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Headers from an index entry on; raises _IndexDoubt if its batch is not where the entry says."""
        sequence, start = entry
        is_first = start > 0 and self.gap_at(start) is None
        for position, header in self._headers(start, end):
            if is_first and header.next_sequence_number - 1 != self.base_sequence + sequence:
                raise _IndexDoubt
            is_first = False
            yield position, header

    def _headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Headers from the start of a batch on; damaged ranges are skipped."""
        window, start = b"", position
        while position < end:
            gap = self.gap_at(position) if self.gaps else None
            if gap is None:
                at = position - start
                if at + HEADER_BYTES > len(window):
                    window, start, at = self.read_bytes(position, min(_WINDOW_BYTES, end - position)), position, 0
                header = read_possible_header(window, at, end - position)
                if header is not None:
                    yield position, header
                    position += header.size_bytes
                    continue
                gap = self.examine(position, "there is no batch header")
            if gap is None:
                raise _IndexDoubt
            position = gap.end

    # --- damage ---

    def gap_at(self, position: int) -> Gap | None:
        """The damaged range that contains a byte of the file."""
        for gap in self.gaps:
            if gap.position <= position < gap.end:
                return gap
        return None

    def next_gap(self, position: int) -> Gap | None:
        """The first damaged range that begins at or after a byte of the file."""
        for gap in self.gaps:
            if gap.position >= position and gap.end > gap.position:
                return gap
        return None

    def examine(self, position: int, why: str) -> Gap | None:
        """Find the broken batch at or before a position and record it as a gap.

        1. Start at the nearest known batch boundary before the position.
        2. Verify batch by batch up to the position; the first that fails begins the gap.
        3. The gap ends at the next intact batch.

        Returns None if every batch up to the position is intact: then the position itself is wrong. Raises CorruptBatch
        if the disk cannot read.
        """
        for start, expected in self._known_boundaries(position):
            broken = self._first_broken(start, expected, position)
            if broken is not None:
                gap = self._measure(*broken)
                self.gaps = sorted([*self.gaps, gap], key=lambda each: each.position)
                if self._gaps_of_log is not None:
                    self._gaps_of_log.add(gap, why)
                self._checked_from = self._checked_to = 0
                return gap
        return None

    def _known_boundaries(self, position: int) -> Iterator[tuple[int, int]]:
        """Known batch boundaries at or before a position, nearest first, each with its sequence number."""
        index = OffsetIndex() if self._index is None else self._index
        for number in range(bisect_right(index.positions, position) - 1, -1, -1):
            start = index.positions[number]
            found = batch_at(self.read_bytes, start, self.size_bytes)
            if found is not None and found[1].next_sequence_number - 1 == self.base_sequence + index.sequences[number]:
                yield start, found[1].base_sequence_number
                break
        for gap in reversed(self.gaps):
            if gap.end <= position:
                yield gap.end, gap.next_sequence
                break
        yield 0, self.base_sequence

    def _first_broken(self, at: int, expected: int, position: int) -> tuple[int, int] | None:
        """The first broken batch from a boundary up to a position: its position and expected sequence number."""
        while at <= position:
            gap = self.gap_at(at)
            if gap is not None:
                at, expected = gap.end, gap.next_sequence
                continue
            found = batch_at(self.read_bytes, at, self.size_bytes)
            if found is None or not self._continues(found[1], expected):
                return (at, expected) if at < self.size_bytes else None
            at, expected = at + found[1].size_bytes, found[1].next_sequence_number
        return None

    def _continues(self, header: BatchHeader, expected: int) -> bool:
        base = header.base_sequence_number
        return base == expected if self.is_dense else base >= expected

    def _measure(self, position: int, expected: int) -> Gap:
        last = self.end_sequence - 1 if self.is_sealed else self.base_sequence + MAX_RELATIVE_SEQUENCE
        stretch = Stretch(position, self.size_bytes, expected, last, has_gaps=not self.is_dense)
        found = find_intact(self.read_bytes, stretch)
        end, after = (
            (self.size_bytes, self.end_sequence) if found is None else (found[0], found[1].base_sequence_number)
        )
        return Gap(self.base_sequence, position, end, expected, max(after, expected), is_missing=False)

    # --- reading ---

    def read_bytes(self, position: int, size_bytes: int) -> bytes:
        """Bytes of the file; fewer only at its end. Raises CorruptBatch if the disk cannot read them."""
        try:
            return self._resources.files.pread(self.log.fd(), size_bytes, position)
        except OSError as error:
            raise self.corrupt(position, f"the disk cannot read it ({error.strerror})") from error

    def check_batches(self, data: memoryview, position: int, *, is_dense: bool) -> tuple[int, int | None]:
        """Verify whole batches: the number of leading bytes that are intact, and the sequence number after them.

        The sequence number is None if these bytes and the next ones were verified before, so no header was read. The
        result is (0, -1) if the first batch is broken.
        """
        end = position + len(data)
        if self._checked_from <= position and (end < self._checked_to or end == self._checked_to == self.size_bytes):
            return len(data), None
        at, after = 0, -1
        while at < len(data) and find_fault(data, at, after if is_dense else -1) is None:
            header = read_header(data, at)
            at += header.size_bytes
            after = header.next_sequence_number
        self.trust(position, position + at)
        return at, after

    def corrupt(self, position: int, why: str) -> CorruptBatch:
        """The error for a position of this file."""
        name = f"{self.directory.name}/{stem(self.base_sequence)}{LOG}"
        return CorruptBatch(f"{name} at byte {position}: {why}")
