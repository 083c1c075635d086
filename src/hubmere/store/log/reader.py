"""What readers may see of a log: up to what is committed, from where they want to start.

One number moves for all of them: the limit, a batch boundary. Nothing here changes the log.
Thread rule: the owner's thread only.
"""

from collections.abc import Callable, Sequence

from hubmere.model.errors import PositionBeyondEnd, SequenceOutOfRange
from hubmere.model.position import Anchor, Position
from hubmere.store.engine import AbortedTransaction, Chunk, LogState
from hubmere.store.log.producers import ProducerTable
from hubmere.store.log.segments import Chain, Limit


class LogReader:
    """The reading side of one partition's log."""

    def __init__(self, chain: Chain, producers: ProducerTable, next_sequence: int) -> None:
        self._chain = chain
        self._producers = producers
        self._next = next_sequence
        self._limit = self._stable = Limit(next_sequence, chain.active.end_position)
        self._committed_offset = self._committed_enqueued_ms = -1

    @property
    def state(self) -> LogState:
        """Committed positions and size."""
        limit, chain = self._limit, self._chain
        kept = chain.sealed_bytes + chain.active.size_bytes - (chain.active.end_position - limit.position)
        return LogState(
            chain.first_sequence, limit.sequence, self._stable.sequence, self._committed_offset,
            self._committed_enqueued_ms, max(kept, 0),
        )  # fmt: skip

    @property
    def _written(self) -> Limit:
        return Limit(self._next, self._chain.active.end_position)

    def _move_to(self, limit: Limit, last_offset: int, last_enqueued_ms: int) -> None:
        self._limit = limit
        self._committed_offset = last_offset
        self._committed_enqueued_ms = last_enqueued_ms
        stable = self._producers.stable_sequence(limit.sequence)
        self._stable = limit if stable == limit.sequence else self._limit_at(stable)

    def _limit_at(self, sequence: int) -> Limit:
        found = self._chain.locate(sequence, self._limit)
        if found is None:
            return self._limit
        segment, position, header = found
        return Limit(header.base_sequence_number, segment.base_position + position)

    def read(self, sequence: int, max_bytes: int, *, stable_only: bool = False) -> Chunk | None:
        """Whole batches from the one that holds `sequence`; None when nothing is there yet."""
        limit = self._stable if stable_only else self._limit
        if sequence >= limit.sequence:
            if sequence > max(self._limit.sequence, limit.sequence):
                raise SequenceOutOfRange(sequence, self._chain.first_sequence, self._limit.sequence)
            return None
        if sequence < self._chain.first_sequence:
            raise SequenceOutOfRange(sequence, self._chain.first_sequence, self._limit.sequence)
        return self._chain.read(sequence, max_bytes, limit)

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """Aborted ranges that overlap a range of sequence numbers."""
        return self._chain.aborted(first_sequence, end_sequence)

    def find(self, position: Position) -> int:
        """The sequence number at which a reader of this position starts, between first and end."""
        found = _FINDERS[position.anchor](self, position)
        return min(max(found, self._chain.first_sequence), self._limit.sequence)

    def _find_first(self, _: Position) -> int:
        return self._chain.first_sequence

    def _find_latest(self, _: Position) -> int:
        return self._limit.sequence

    def _find_sequence(self, position: Position) -> int:
        start, end = position.value + (not position.inclusive), self._limit.sequence
        if start > end:
            raise PositionBeyondEnd("sequence number", str(position.value), str(end - 1))
        return start

    def _find_offset(self, position: Position) -> int:
        if self._chain.is_compact:
            return self._find_sequence(position)
        last, is_end = self._committed_offset, position.inclusive and position.value == self._limit.position
        if position.value > last and not is_end:
            raise PositionBeyondEnd("offset", str(position.value), str(last))
        return self._chain.find_offset(position.value + (not position.inclusive), self._limit)

    def _find_time(self, position: Position) -> int:
        return self._chain.find_time(position.value + (not position.inclusive), self._limit)

    def offset_of(self, sequence: int) -> int:
        """The byte number of an event."""
        if not self._chain.first_sequence <= sequence < self._limit.sequence:
            raise SequenceOutOfRange(sequence, self._chain.first_sequence, self._limit.sequence)
        return self._chain.offset_of(sequence, self._limit)


_FINDERS: dict[Anchor, Callable[[LogReader, Position], int]] = {
    Anchor.FIRST: LogReader._find_first,
    Anchor.LATEST: LogReader._find_latest,
    Anchor.SEQUENCE: LogReader._find_sequence,
    Anchor.OFFSET: LogReader._find_offset,
    Anchor.TIME: LogReader._find_time,
}
