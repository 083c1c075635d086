"""ColdLog: the log of a partition with the captured files below its first event, as one log.

For readers it is a log that is kept elsewhere (`store.engine.PartitionLog`): what is not in memory is requested, and
watchers are called when it is there.

1. The log itself serves everything from its first event on. The files serve what is before.
2. The readable range begins with the oldest file from which on all files follow each other without a gap up to the
   log's first event. Files before a gap are not readable: a position there counts as deleted by retention.
3. When retention moves the log's first event, the start of the range stays where it was until it is known whether the
   files reach the new first event. So a reader that retention overtakes waits for the listing and loses nothing.

Captured files have committed events only, without producers. Thread rule: the owner's thread only.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from hubmere.broker.cold.forwarding import ForwardingLog
from hubmere.broker.cold.history import HubHistory
from hubmere.model.capture.cold import ColdBlock, ColdFile, Coverage
from hubmere.model.errors import Refusal, SequenceOutOfRange
from hubmere.model.position import Anchor, Position
from hubmere.store.engine import Chunk, LogState, PartitionLog, Watcher

# Parts that are loaded ahead of a reader.
_AHEAD: Final = 2
# Looked-up positions that are remembered.
_MAX_FOUND: Final = 256
_IN_FILES: Final = (Anchor.TIME, Anchor.OFFSET)


class ColdLog(ForwardingLog):
    """The log of a partition with its captured files."""

    __slots__ = ("_coverage", "_first", "_found", "_generation", "_history", "_is_listed", "_joined_at",
                 "_listing_for", "_loading", "_partition", "_watchers")  # fmt: skip

    def __init__(self, log: PartitionLog, history: HubHistory, partition: int) -> None:
        super().__init__(log)
        self._history = history
        self._partition = partition
        # The log's first event when the range was last joined, and the first event of the range.
        self._joined_at = self._first = log.state.log_start
        self._coverage = Coverage()
        # Whether the files were listed since the log began at `_joined_at`, and for which start they are being listed.
        self._is_listed = False
        self._listing_for = -1
        self._generation = -1
        self._found: dict[Position, int | None] = {}
        self._loading: set[tuple[str, int]] = set()
        self._watchers: dict[Watcher, None] = {}

    @property
    def state(self) -> LogState:
        """Committed positions and size of the log; `log_start` is the first event of the whole range."""
        state = self.log.state
        if state.log_start != self._joined_at:
            self._rejoin(state.log_start)
        if self._first >= state.log_start:
            return state
        return LogState(self._first, *state[1:])

    # --- the readable range ---

    def _rejoin(self, log_start: int, *, was_listed: bool = False) -> None:
        """Find the start of the range for a new first event of the log, or request what is needed to find it."""
        coverage = self._history.coverage(self._partition)
        start = coverage.row_start(log_start)
        if start is None and not was_listed and self._first < log_start:
            self._list(log_start)
            return
        self._coverage = coverage
        self._first = log_start if start is None else start
        self._joined_at = log_start
        self._generation = self._history.generation

    def _list(self, log_start: int) -> None:
        if self._listing_for != log_start:
            self._listing_for = log_start
            self._history.refresh(partial(self._on_listed, log_start))

    def _on_listed(self, log_start: int) -> None:
        if self._listing_for == log_start:
            self._listing_for = -1
        self._is_listed = True
        now = self.log.state.log_start
        if now == log_start:
            self._rejoin(now, was_listed=True)
        self._notify()

    def _notify(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def _is_known(self, log_start: int) -> bool:
        """Whether the start of the range is known for the log's present first event."""
        if self._is_listed and self._generation != self._history.generation:
            # A listing for another partition may have begun before the file was there that joins a new first event.
            self._rejoin(log_start, was_listed=log_start == self._joined_at)
        return self._is_listed and self._joined_at == log_start

    # --- reading ---

    def check_position(self, sequence: int, leader_epoch: int) -> Refusal | None:
        """The refusal of a position that does not exist; None if it exists, or if that is not known yet."""
        state = self.log.state
        refusal = self.log.check_position(max(sequence, state.log_start), leader_epoch)
        if refusal is not None or sequence >= state.log_start:
            return refusal
        if self._history.is_retired:
            return self.log.check_position(sequence, leader_epoch)
        if not self._is_known(state.log_start):
            self._list(state.log_start)
            return None
        return None if self._first <= sequence else SequenceOutOfRange(sequence, self._first, state.committed)

    def read(self, sequence: int, max_bytes: int, *, stable_only: bool = False) -> Chunk | None:
        """Whole batches of the log, or of the files below it."""
        if sequence >= self._joined_at:
            try:
                return self.log.read(sequence, max_bytes, stable_only=stable_only)
            except SequenceOutOfRange:
                if sequence >= self.log.state.log_start:
                    raise
        state = self.log.state
        found = self._read_files(sequence, max_bytes, state)
        if not isinstance(found, int):
            return found
        return self.log.read(found, max_bytes, stable_only=stable_only)

    def _read_files(self, sequence: int, max_bytes: int, state: LogState) -> Chunk | int | None:
        """Batches of files; None if they are not in memory, or where in the log the reader continues."""
        if sequence >= state.log_start:
            return sequence
        is_known = self._is_known(state.log_start)
        if is_known and sequence < self._first:
            raise SequenceOutOfRange(sequence, self._first, state.committed)
        at = sequence
        while at < state.log_start and (file := self._file_with(at)) is not None:
            block = self._history.find_block(file, at)
            if block is None:
                self._load(file, at)
                return None
            index = block.index_of(at)
            if index < len(block.starts):
                self._load_ahead(block.end)
                return _chunk(block, index, max_bytes)
            at = block.end
        if not is_known:
            self._list(state.log_start)
            return None
        return state.log_start

    def _file_with(self, sequence: int) -> ColdFile | None:
        """The file of the range that covers a sequence number."""
        return self._coverage.file_with(sequence) if sequence >= self._first else None

    def _load(self, file: ColdFile, sequence: int) -> None:
        key = (file.name, sequence)
        if key not in self._loading:
            self._loading.add(key)
            self._history.load(self._partition, file, sequence, partial(self._on_loaded, key))

    def _on_loaded(self, key: tuple[str, int]) -> None:
        self._loading.discard(key)
        self._is_known(self.log.state.log_start)
        self._notify()

    def _load_ahead(self, sequence: int) -> None:
        for _ in range(_AHEAD):
            file = self._file_with(sequence) if sequence < self._joined_at else None
            if file is None:
                return
            block = self._history.find_block(file, sequence)
            if block is None:
                self._load(file, sequence)
                return
            sequence = block.end

    # --- finding ---

    def is_current(self, position: Position | None, on_answer: Callable[[], None]) -> bool:
        """Whether the start of the range, and this position in the files, are known; if not, they are looked up."""
        state = self.log.state
        if not self._needs_files(position, state):
            return True
        if not self._is_known(state.log_start) or not self._history.is_fresh:
            self._found.clear()
            self._history.refresh(partial(self._answer, state.log_start, on_answer), is_request=True)
            return False
        if position is None or position.anchor not in _IN_FILES or position in self._found:
            return True
        if self._first >= state.log_start:
            return True
        files = self._coverage.between(self._first, state.log_start)
        self._history.find(files, position, partial(self._on_found, position, on_answer))
        return False

    def _needs_files(self, position: Position | None, state: LogState) -> bool:
        """Whether the answer may lie before the log."""
        if state.log_start == 0:
            return False
        if position is None or position.anchor is Anchor.FIRST:
            return True
        if position.anchor is Anchor.SEQUENCE:
            return position.value + (not position.inclusive) < state.log_start
        return position.anchor in _IN_FILES and self.log.find(position) <= state.log_start

    def _answer(self, log_start: int, on_answer: Callable[[], None]) -> None:
        self._on_listed(log_start)
        on_answer()

    def _on_found(self, position: Position, on_answer: Callable[[], None], answer: int | Refusal | None) -> None:
        if len(self._found) >= _MAX_FOUND:
            self._found.clear()
        # If it cannot be looked up, the reader begins with the first event, so that it misses none.
        self._found[position] = 0 if isinstance(answer, Refusal) else answer
        on_answer()

    def find(self, position: Position) -> int:
        """Where a reader of this position starts; `is_current` was asked before."""
        state = self.log.state
        if not self._needs_files(position, state):
            return self.log.find(position)
        first = self.state.log_start
        if position.anchor is Anchor.FIRST:
            return first
        if position.anchor is Anchor.SEQUENCE:
            return max(position.value + (not position.inclusive), first)
        found = self._found.get(position)
        return self.log.find(position) if found is None else max(found, first)

    def offset_of(self, sequence: int) -> int:
        """The byte offset of an event of the log, or of a part of a file that is in memory."""
        if sequence >= self.log.state.log_start:
            return self.log.offset_of(sequence)
        file = self._file_with(sequence)
        block = None if file is None else self._history.find_block(file, sequence)
        if block is None:
            raise SequenceOutOfRange(sequence, self.log.state.log_start, self.log.state.committed)
        base = block.bases[min(block.index_of(sequence), len(block.bases) - 1)]
        return block.offsets[base][min(max(sequence - base, 0), len(block.offsets[base]) - 1)]

    # --- monitoring ---

    @property
    def begin(self) -> int:
        """The first event that readers get, as far as it is known."""
        return self.state.log_start

    @property
    def gap(self) -> range | None:
        """The events before it that neither a readable file nor the log holds, if there are files before them."""
        return self._history.coverage(self._partition).gap_before(self.begin)

    # --- watching ---

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when the log moves, and when a part of a file has arrived."""
        self._watchers[watcher] = None
        self.log.watch(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling a watcher."""
        self._watchers.pop(watcher, None)
        self.log.unwatch(watcher)


def _chunk(block: ColdBlock, index: int, max_bytes: int) -> Chunk:
    """Batches from one on: at least that one, at most about `max_bytes`."""
    start, last = block.starts[index], index
    stop = _stop(block, last)
    while last + 1 < len(block.starts) and _stop(block, last + 1) - start <= max_bytes:
        last += 1
        stop = _stop(block, last)
    base = block.bases[index]
    data = memoryview(block.data)[start:stop]
    return Chunk(data, block.offsets[base][0], base, block.ends[last], block.offsets)


def _stop(block: ColdBlock, index: int) -> int:
    return block.starts[index + 1] if index + 1 < len(block.starts) else len(block.data)
