"""The read side of a log: what consumers may see, up to the committed end, and where a reader starts.

One number moves for all readers: `committed`, a batch boundary. Nothing here changes the log's files.
Thread rule: the owner's thread only.
"""

from collections.abc import Callable, Sequence

from hubmere.model.errors import PositionBeyondEnd, SequenceOutOfRange
from hubmere.model.position import Anchor, Position
from hubmere.store.engine import AbortedTransaction, Chunk, FileRange, LogState
from hubmere.store.log.committed_file import Boundary
from hubmere.store.log.segments.log_segments import LogSegments


class LogReader:
    """A read-only view of one log's segments up to the committed end."""

    __slots__ = ("_last_enqueued_ms", "_last_offset", "_segments", "committed", "last_stable")

    def __init__(self, segments: LogSegments, last_stable: int) -> None:
        """A view up to the end of the segments: recovery has verified that all of it is committed."""
        self._segments = segments
        self.advance(segments.end, last_stable, segments.last_offset, segments.last_enqueued_ms)

    def advance(self, committed: Boundary, last_stable: int, last_offset: int, last_enqueued_ms: int) -> None:
        """Move `committed` and the bound for readers of committed transactions (a sequence number)."""
        self.committed = committed
        self._last_offset = last_offset
        self._last_enqueued_ms = last_enqueued_ms
        self.last_stable = committed if last_stable == committed.sequence else self._boundary_at(last_stable)

    def _boundary_at(self, sequence: int) -> Boundary:
        found = self._segments.locate(sequence, self.committed)
        if found is None:
            return self.committed
        segment, position, header = found
        return Boundary(header.base_sequence_number, segment.base_position + position)

    @property
    def state(self) -> LogState:
        """Committed positions and size."""
        committed, segments = self.committed, self._segments
        active = segments.active
        size_bytes = segments.sealed_bytes + committed.position - active.base_position
        return LogState(
            segments.log_start, committed.sequence, self.last_stable.sequence, self._last_offset,
            self._last_enqueued_ms, max(size_bytes, 0),
        )  # fmt: skip

    def read(self, sequence: int, max_bytes: int, visible_end: Boundary) -> Chunk | None:
        """Whole batches from the one that contains `sequence`; None if it is not visible yet."""
        if sequence >= visible_end.sequence:
            if sequence > self.committed.sequence:
                raise self._out_of_range(sequence)
            return None
        if sequence < self._segments.log_start:
            raise self._out_of_range(sequence)
        return self._segments.read(sequence, max_bytes, visible_end)

    def check_position(self, sequence: int) -> SequenceOutOfRange | None:
        """Why nobody can read from a sequence number."""
        is_inside = self._segments.log_start <= sequence <= self.committed.sequence
        return None if is_inside else self._out_of_range(sequence)

    def _out_of_range(self, sequence: int) -> SequenceOutOfRange:
        return SequenceOutOfRange(sequence, self._segments.log_start, self.committed.sequence)

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions that overlap a range of sequence numbers."""
        return self._segments.aborted_transactions(first_sequence, end_sequence)

    def file_ranges(self, first_sequence: int, end_sequence: int) -> Sequence[FileRange]:
        """Files with the stable events of a range; empty if the range must be read in another way."""
        end = min(end_sequence, self.last_stable.sequence)
        is_here = self._segments.log_start <= first_sequence < end
        if not is_here or self._segments.aborted_transactions(first_sequence, end):
            return ()
        return self._segments.file_ranges(first_sequence, end, self.last_stable)

    def find(self, position: Position) -> int:
        """The sequence number at which a reader of this position starts, between `log_start` and `committed`."""
        found = _FINDERS[position.anchor](self, position)
        return min(max(found, self._segments.log_start), self.committed.sequence)

    def _find_first(self, _: Position) -> int:
        return self._segments.log_start

    def _find_latest(self, _: Position) -> int:
        return self.committed.sequence

    def _find_sequence(self, position: Position) -> int:
        start, end = position.value + (not position.inclusive), self.committed.sequence
        if start > end:
            raise PositionBeyondEnd("sequence number", str(position.value), str(end - 1))
        return start

    def _find_offset(self, position: Position) -> int:
        if self._segments.is_compact:
            return self._find_sequence(position)
        last, is_end = self._last_offset, position.inclusive and position.value == self.committed.position
        if position.value > last and not is_end:
            raise PositionBeyondEnd("offset", str(position.value), str(last))
        return self._segments.find_offset(position.value + (not position.inclusive), self.committed)

    def _find_time(self, position: Position) -> int:
        return self._segments.find_time(position.value + (not position.inclusive), self.committed)

    def offset_of(self, sequence: int) -> int:
        """The byte offset of a committed event."""
        if not self._segments.log_start <= sequence < self.committed.sequence:
            raise self._out_of_range(sequence)
        return self._segments.offset_of(sequence, self.committed)


_FINDERS: dict[Anchor, Callable[[LogReader, Position], int]] = {
    Anchor.FIRST: LogReader._find_first,
    Anchor.LATEST: LogReader._find_latest,
    Anchor.SEQUENCE: LogReader._find_sequence,
    Anchor.OFFSET: LogReader._find_offset,
    Anchor.TIME: LogReader._find_time,
}
