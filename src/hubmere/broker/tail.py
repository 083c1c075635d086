"""The last events of partitions, shared by their readers: one read of the log serves all that wait at its end.

When a batch is committed, every reader at the end of the partition is woken and reads the same bytes. The first read is
kept until another one replaces it. Only small chunks that reach the end of the log are kept: chunks for a reader that
is behind are of no use to others.
"""

from typing import Final, NamedTuple

from hubmere.store.engine import Chunk, LogState, PartitionLog

# The largest chunk that is kept, and for how many partitions of a hub: 512 KB for each hub at most.
MAX_TAIL_BYTES: Final = 32 * 1024
MAX_TAILS: Final = 16


class _Tail(NamedTuple):
    """A chunk from `sequence` to the visible end of a log."""

    log: PartitionLog
    sequence: int
    end: int
    chunk: Chunk


class Tails:
    """The kept chunks of one hub, by partition. Thread rule: the owner's thread only."""

    __slots__ = ("_tails",)

    def __init__(self) -> None:
        self._tails: dict[int, _Tail] = {}

    def read(
        self, log: PartitionLog, state: LogState, partition: int, sequence: int, max_bytes: int, *, stable_only: bool
    ) -> Chunk | None:
        """As `PartitionLog.read`, for the log's current state; the chunk may have been read for another reader."""
        end = state.last_stable if stable_only else state.committed
        tail = self._tails.get(partition)
        if (
            tail is not None
            and tail.sequence == sequence
            and tail.end == end
            and tail.log is log
            and len(tail.chunk.data) <= max_bytes
            and sequence >= state.log_start
        ):
            return tail.chunk
        chunk = log.read(sequence, max_bytes, stable_only=stable_only)
        if chunk is not None and chunk.next_sequence == end and len(chunk.data) <= MAX_TAIL_BYTES:
            if len(self._tails) >= MAX_TAILS and partition not in self._tails:
                self._tails.clear()
            self._tails[partition] = _Tail(log, sequence, end, chunk)
        return chunk
