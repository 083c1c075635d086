"""ForwardingLog: a PartitionLog that passes every call on to another one; subclasses change what they need to."""

from collections.abc import Callable, Sequence

from hubmere.model.errors import Refusal
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.store.engine import (
    AbortedTransaction,
    Chunk,
    CompactionPass,
    FileRange,
    LogConfig,
    LogState,
    PartitionLog,
    ProducerState,
    RetentionHold,
    RunAppends,
    Watcher,
)


class ForwardingLog:
    """Passes every call on to `log`. See `PartitionLog` for the contract of each method."""

    __slots__ = ("log",)

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    @property
    def state(self) -> LogState:
        """See `PartitionLog`."""
        return self.log.state

    @property
    def is_offline(self) -> bool:
        """See `PartitionLog`."""
        return self.log.is_offline

    @property
    def leader_epoch(self) -> int:
        """See `PartitionLog`."""
        return self.log.leader_epoch

    @property
    def offsets_are_sequences(self) -> bool:
        """See `PartitionLog`."""
        return self.log.offsets_are_sequences

    def append(
        self,
        batch: bytearray | memoryview,
        now_ms: int,
        callback: Callable[[Receipt], None] | None = None,
        *,
        lenient_producer: bool = False,
    ) -> Receipt:
        """See `PartitionLog`."""
        return self.log.append(batch, now_ms, callback, lenient_producer=lenient_producer)

    @property
    def runs(self) -> RunAppends | None:
        """See `PartitionLog`."""
        return self.log.runs

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        callback: Callable[[Receipt], None] | None = None,
    ) -> Receipt:
        """See `PartitionLog`."""
        return self.log.append_marker(producer_id, producer_epoch, now_ms, commit=commit, callback=callback)

    def is_current(self, position: Position | None, on_answer: Callable[[], None]) -> bool:
        """See `PartitionLog`."""
        return self.log.is_current(position, on_answer)

    def check_position(self, sequence: int, leader_epoch: int) -> Refusal | None:
        """See `PartitionLog`."""
        return self.log.check_position(sequence, leader_epoch)

    def read(self, sequence: int, max_bytes: int, *, stable_only: bool = False) -> Chunk | None:
        """See `PartitionLog`."""
        return self.log.read(sequence, max_bytes, stable_only=stable_only)

    def aborted_transactions(self, first_sequence: int, end_sequence: int) -> Sequence[AbortedTransaction]:
        """See `PartitionLog`."""
        return self.log.aborted_transactions(first_sequence, end_sequence)

    def file_ranges(self, first_sequence: int, end_sequence: int, boot_id: str) -> Sequence[FileRange]:
        """See `PartitionLog`."""
        return self.log.file_ranges(first_sequence, end_sequence, boot_id)

    def find(self, position: Position) -> int:
        """See `PartitionLog`."""
        return self.log.find(position)

    def offset_of(self, sequence: int) -> int:
        """See `PartitionLog`."""
        return self.log.offset_of(sequence)

    def producer_last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """See `PartitionLog`."""
        return self.log.producer_last_sequence(producer_id)

    def producers(self) -> Sequence[ProducerState]:
        """See `PartitionLog`."""
        return self.log.producers()

    def open_transactions(self) -> Sequence[ProducerState]:
        """See `PartitionLog`."""
        return self.log.open_transactions()

    def watch(self, watcher: Watcher) -> None:
        """See `PartitionLog`."""
        self.log.watch(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """See `PartitionLog`."""
        self.log.unwatch(watcher)

    def trim(self, before_sequence: int) -> None:
        """See `PartitionLog`."""
        self.log.trim(before_sequence)

    def apply_retention(self, now_ms: int, hold: RetentionHold | None = None) -> int:
        """See `PartitionLog`."""
        return self.log.apply_retention(now_ms, hold)

    def overdue_bytes(self, now_ms: int) -> int:
        """See `PartitionLog`."""
        return self.log.overdue_bytes(now_ms)

    def compaction_pass(self, now_ms: int) -> CompactionPass | None:
        """See `PartitionLog`."""
        return self.log.compaction_pass(now_ms)

    def reconfigure(self, config: LogConfig) -> None:
        """See `PartitionLog`."""
        self.log.reconfigure(config)

    def close(self) -> None:
        """See `PartitionLog`."""
        self.log.close()
