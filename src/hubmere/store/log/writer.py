"""Writing to a log: number, stamp and write batches, and acknowledge them when the group commit has made them durable.

Nothing is visible or acknowledged before that. An append that cannot be written leaves no trace. No record is opened
here, except to see that the events of a compacted log have keys.
Thread rule: the owner's thread only; what waits for the disk is handed to the group commit.
"""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from hubmere.model.errors import ProducerRefused, Refusal, StorageFull
from hubmere.model.offsets import spread_offset
from hubmere.model.receipt import Receipt
from hubmere.records.header import (
    APPEND_TIME,
    CHECKED_FROM,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NUMBER_PART,
    TIME_PART,
    TRANSACTIONAL,
    UNSEALED,
    BatchHeader,
    read_header,
)
from hubmere.records.records import Marker, encode_marker
from hubmere.records.runs import BatchRun, check_run, stamp_run
from hubmere.records.validate import is_readable
from hubmere.store.engine import LogConfig, ProducerState, Watcher
from hubmere.store.files import Handle
from hubmere.store.log.admission import admit, loosened
from hubmere.store.log.commit import GroupCommit
from hubmere.store.log.committed_file import Mark
from hubmere.store.log.index import INTERVAL_BYTES
from hubmere.store.log.producers import REMEMBERED_BATCHES, RememberedBatch
from hubmere.store.log.reader import LogReader
from hubmere.store.log.retention import MOST_AHEAD_MS
from hubmere.store.log.segment import MAX_RELATIVE_SEQUENCE, MAX_SEGMENT_BYTES, Segment, Space
from hubmere.store.log.segments import MAX_RECENT_BATCHES, Limit
from hubmere.store.recovery.checkpoint import Checkpoint
from hubmere.store.recovery.recovery import Recovered

_LOGGER = logging.getLogger(__name__)

_unpack_header, _pack_number, _pack_times = HEADER.unpack_from, NUMBER_PART.pack_into, TIME_PART.pack_into


class _Round(NamedTuple):
    """What one round of the group commit will have made durable."""

    limit: Limit
    last_offset: int
    last_enqueued_ms: int
    receipts: int
    checkpoint: Checkpoint | None


class LogWriter(LogReader, ABC):
    """The writing side of one partition's log.

    What must be cleared out of the way before anything may be written is the `_obstacle`, None on the ordinary path.
    """

    def __init__(self, space: Space, commit: GroupCommit, config: LogConfig, found: Recovered) -> None:
        super().__init__(found.chain, found.producers, found.next_sequence)
        self._space = space
        self._commit = commit
        self._config = config
        self._name = found.chain.directory.name
        self._write = space.files.write
        self._pending: deque[Receipt] = deque()
        self._watchers: dict[Watcher, None] = {}
        self._round: _Round | None = None
        self._is_dirty = False
        self._is_out = False  # offline or closed: no part in any round
        self._is_checkpoint_due = False
        self._obstacle: Callable[[int], None] | None = None
        self._mark: Mark | None = None  # of what was acknowledged, for the next start
        self._append_time = self._requires_keys = False
        self._roll_bytes = self._roll_after_ms = self._roll_last = 0
        self._install(found)

    def _install(self, found: Recovered) -> None:
        """Begin where a recovered log ends, at first or after it was verified."""
        self._chain, self._producers = found.chain, found.producers
        self._leader_epoch = found.leader_epoch
        self._next = found.next_sequence
        self._enqueued_ms = found.last_enqueued_ms
        self._last_written: Receipt | None = None
        self._recovered_last_offset = found.last_offset
        self._unsynced: list[Segment] = []
        self._since_checkpoint_bytes = found.walked_bytes
        self._move_to(self._written, found.last_offset, found.last_enqueued_ms)
        self._take_config(self._config)

    @property
    def leader_epoch(self) -> int:
        """The epoch that batches are stamped with."""
        return self._leader_epoch

    def append(
        self,
        batch: bytearray | memoryview,
        now_ms: int,
        callback: Callable[[Receipt], None] | None = None,
        *,
        lenient_producer: bool = False,
    ) -> Receipt:
        """Number, stamp and write one closed batch; the receipt completes when it is committed."""
        if self._obstacle is not None:
            self._obstacle(now_ms)
        if len(batch) < HEADER_BYTES:
            admit(batch, requires_keys=False)
        fields = _unpack_header(batch)
        if fields[-1] > len(batch):
            batch = loosened(batch)
            fields = _unpack_header(batch)
        _, length, _, magic, crc, attributes, last_delta, _, _, producer_id, _, _, count = fields
        if (
            length + LENGTH_PREFIX_BYTES != len(batch)
            or magic != MAGIC
            or last_delta + 1 != count
            or count < 1
            or attributes & (CONTROL | TRANSACTIONAL)
            or producer_id >= 0
            or self._requires_keys
            or (crc and crc32c(memoryview(batch)[CHECKED_FROM:]) != crc)
            or (
                crc
                and not is_readable(batch, HEADER_BYTES, length + LENGTH_PREFIX_BYTES, attributes & CODEC_MASK, count)
            )
        ):
            header = admit(batch, requires_keys=self._requires_keys)
            if producer_id >= 0:
                return self._append_of_producer(batch, header, now_ms, callback, lenient=lenient_producer)
        return self._write_batch(batch, fields, now_ms, callback)

    def _append_of_producer(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        now_ms: int,
        callback: Callable[[Receipt], None] | None,
        *,
        lenient: bool,
    ) -> Receipt:
        place = (header.producer_id, header.producer_epoch, header.producer_sequence, header.last_delta)
        repeat = self._producers.check(*place, transactional=header.is_transactional, lenient=lenient)
        if repeat is not None:
            return self._repeated(repeat, header, callback)
        receipt = self._write_batch(batch, header, now_ms, callback)
        last = receipt.sequence_number + header.last_delta
        self._producers.record(*place, last, receipt.enqueued_at_ms, transactional=header.is_transactional)
        return receipt

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        callback: Callable[[Receipt], None] | None = None,
    ) -> Receipt:
        """Write a transaction's commit or abort marker."""
        if self._obstacle is not None:
            self._obstacle(now_ms)
        self._producers.check_marker(producer_id, producer_epoch)
        marker = Marker(producer_id, producer_epoch, is_commit=commit)
        batch = encode_marker(marker, time_ms=self._enqueued_at(now_ms))
        receipt = self._write_batch(batch, read_header(batch), now_ms, callback)
        aborted = self._producers.end_transaction(producer_id, producer_epoch, receipt.sequence_number, commit=commit)
        if aborted is not None:
            self._chain.active.aborted.append(aborted)
        return receipt

    def _write_batch(
        self,
        batch: bytearray | memoryview,
        fields: tuple[int, ...],
        now_ms: int,
        callback: Callable[[Receipt], None] | None,
    ) -> Receipt:
        # The inner loop of every publish: written out flat, because each call here costs as much as the work in it.
        _, length, _, _, crc, attributes, last_delta, base_time_ms, time_ms, _, _, _, count = fields
        size_bytes, sequence, chain = length + LENGTH_PREFIX_BYTES, self._next, self._chain
        last = sequence + last_delta
        enqueued_ms = self._enqueued_ms
        if now_ms > enqueued_ms or enqueued_ms - now_ms > MOST_AHEAD_MS:
            enqueued_ms = now_ms
        if (
            chain.active.size_bytes + size_bytes > self._roll_bytes
            or now_ms > self._roll_after_ms
            or last > self._roll_last
        ):
            self._roll_before(now_ms)
        active = chain.active
        position = active.size_bytes

        if self._append_time:
            time_ms = enqueued_ms
            _pack_times(batch, CHECKED_FROM, attributes | APPEND_TIME, last_delta, base_time_ms, time_ms)
            crc = crc32c(memoryview(batch)[CHECKED_FROM:])
        elif attributes & APPEND_TIME or crc == UNSEALED:
            _pack_times(batch, CHECKED_FROM, attributes & ~APPEND_TIME, last_delta, base_time_ms, time_ms)
            crc = crc32c(memoryview(batch)[CHECKED_FROM:])
        _pack_number(batch, 0, sequence, length, self._leader_epoch, MAGIC, crc)

        self._write_whole(batch, active)

        if time_ms > active.max_time_ms:
            active.max_time_ms = time_ms
            active.max_time_sequence = last
        if active.unindexed_bytes > INTERVAL_BYTES:
            active.add_entries(last)
        if not position:
            active.first_time_ms = time_ms
        active.unindexed_bytes += size_bytes
        active.size_bytes = position + size_bytes
        chain.recent_sequences.append(sequence)
        chain.recent_positions.append(position)
        if len(chain.recent_positions) > MAX_RECENT_BATCHES:
            chain.forget_oldest_recent()

        self._next = last + 1
        if time_ms > self._enqueued_ms or self._append_time:
            self._enqueued_ms = time_ms
        self._since_checkpoint_bytes += size_bytes
        receipt = Receipt(count, size_bytes, callback)
        receipt.sequence_number = sequence
        receipt.offset = sequence if chain.is_compact else active.base_position + position
        receipt.enqueued_at_ms = enqueued_ms
        self._last_written = receipt
        self._pending.append(receipt)
        if not self._is_dirty:
            self._is_dirty = True
            self._commit.add(self)
        return receipt

    def check_run(self, data: bytearray, sizes: Sequence[int], newest_ms: int) -> BatchRun | None:
        """The run if it can be appended as one; None when its batches have to be offered one by one."""
        if self._obstacle is not None or self._requires_keys or len(data) > self._roll_bytes:
            return None
        run = check_run(data, sizes, newest_ms)
        return run if run is not None and self._is_next(run.headers[0]) else None

    def _is_next(self, fields: tuple[int, ...]) -> bool:
        """Whether a batch is its producer's next; where it is not, each of its run needs a look of its own."""
        _, _, _, _, _, _, last_delta, _, _, producer_id, epoch, first, _ = fields
        if producer_id < 0:
            return True
        try:
            repeat = self._producers.check(producer_id, epoch, first, last_delta, transactional=False, lenient=False)
        except ProducerRefused:
            return False
        return repeat is None

    def append_run(self, run: BatchRun, now_ms: int, callback: Callable[[Receipt], None] | None = None) -> Receipt:
        """Number, stamp and write a run that was checked just now; one receipt for all of it."""
        enqueued_ms = self._enqueued_at(now_ms)
        size_bytes, last = len(run.data), self._next + run.events - 1
        is_full = self._chain.active.size_bytes + size_bytes > self._roll_bytes
        if is_full or now_ms > self._roll_after_ms or last > self._roll_last:
            self._roll_before(now_ms)
        active = self._chain.active
        stamp_run(run, self._next, self._leader_epoch, enqueued_ms if self._append_time else None)
        self._write_whole(run.data, active)
        receipt = Receipt(run.events, size_bytes, callback)
        receipt.sequence_number = self._next
        receipt.offset = active.base_position + active.size_bytes
        receipt.enqueued_at_ms = enqueued_ms
        self._note_run(run, active, enqueued_ms)
        self._remember_run(run, enqueued_ms)
        self._since_checkpoint_bytes += size_bytes
        self._enqueue(receipt)
        return receipt

    def _enqueued_at(self, now_ms: int) -> int:
        return now_ms if self._enqueued_ms - now_ms > MOST_AHEAD_MS else max(now_ms, self._enqueued_ms)

    def _write_whole(self, data: bytearray | memoryview, active: Segment) -> None:
        handle = active.log
        try:
            written = self._write(handle.fd_or_closed if handle.fd_or_closed >= 0 else handle.fd(), data)
        except OSError as error:
            self._undo_write(active.size_bytes)
            raise StorageFull(error.strerror or str(error)) from error
        if written != len(data):
            self._undo_write(active.size_bytes)
            raise StorageFull("the disk took only a part of the batch")
        handle.is_recent = handle.is_unsynced = True

    def _note_run(self, run: BatchRun, active: Segment, enqueued_ms: int) -> None:
        """What `_write_batch` notes of one batch, for each of a run."""
        chain, sequence, position = self._chain, self._next, active.size_bytes
        append_ms = enqueued_ms if self._append_time else None
        if not position:
            active.first_time_ms = run.headers[0][8] if append_ms is None else append_ms
        for size, fields in zip(run.sizes, run.headers, strict=True):
            last, time_ms = sequence + fields[6], fields[8] if append_ms is None else append_ms
            if time_ms > active.max_time_ms:
                active.max_time_ms, active.max_time_sequence = time_ms, last
            if active.unindexed_bytes > INTERVAL_BYTES:
                active.size_bytes = position
                active.add_entries(last)
            active.unindexed_bytes += size
            chain.recent_sequences.append(sequence)
            chain.recent_positions.append(position)
            sequence, position = last + 1, position + size
        active.size_bytes = position
        if len(chain.recent_positions) > MAX_RECENT_BATCHES:
            chain.forget_oldest_recent()
        self._next = sequence
        self._enqueued_ms = max(self._enqueued_ms, active.max_time_ms) if append_ms is None else append_ms
        self._last_written = newest = Receipt(run.headers[-1][12], run.sizes[-1])
        newest.sequence_number = sequence - newest.count
        newest.offset = active.base_position + position - newest.size_bytes

    def _remember_run(self, run: BatchRun, enqueued_ms: int) -> None:
        """The last batches of a producer that numbers them, which is all that is remembered of it."""
        if run.headers[0][9] < 0:
            return
        newest = run.headers[-REMEMBERED_BATCHES:]
        last = self._next - 1 - sum(fields[12] for fields in newest)
        for _, _, _, _, _, _, last_delta, _, _, producer_id, epoch, first, count in newest:
            last += count
            self._producers.record(producer_id, epoch, first, last_delta, last, enqueued_ms, transactional=False)

    def _roll_before(self, now_ms: int) -> None:
        """Begin a new segment, unless this one is empty; whichever is active now is young."""
        if self._chain.active.size_bytes:
            self._roll()
        self._roll_after_ms = now_ms + self._config.segment_ms

    def _enqueue(self, receipt: Receipt) -> None:
        self._pending.append(receipt)
        if not self._is_dirty:
            self._is_dirty = True
            self._commit.add(self)

    def _undo_write(self, position: int) -> None:
        """Cut a part of a batch away; until that worked nothing more is written."""

        def cut(_now_ms: int) -> None:
            try:
                self._space.files.truncate(self._chain.active.log.fd(), position)
            except OSError as error:
                raise StorageFull(error.strerror or str(error)) from error
            self._obstacle = None

        self._obstacle = cut
        try:
            cut(0)
        except StorageFull:
            _LOGGER.warning("log %s: a partly written batch could not be cut away yet", self._name)

    def _repeated(
        self, repeat: RememberedBatch, header: BatchHeader, callback: Callable[[Receipt], None] | None
    ) -> Receipt:
        """A receipt for what is in the log already; completes with everything written before it."""
        receipt = Receipt(header.record_count, header.size_bytes, callback)
        receipt.is_duplicate = True
        receipt.sequence_number = repeat.base_sequence if repeat.last_sequence >= 0 else -1
        receipt.enqueued_at_ms = repeat.time_ms
        if receipt.sequence_number >= self._chain.first_sequence:
            receipt.offset = self._chain.offset_of(receipt.sequence_number, self._written)
        self._enqueue(receipt)
        return receipt

    @property
    def _written_last_offset(self) -> int:
        last = self._last_written
        if last is None:
            return self._recovered_last_offset
        if self._chain.is_compact:
            return last.sequence_number + last.count - 1
        return spread_offset(last.offset, last.size_bytes, last.count, last.count - 1)

    def _roll(self) -> None:
        try:
            active = self._chain.active
            newest_ms = max(self._enqueued_ms, active.max_time_ms, active.start.last_enqueued_before_ms)
            sealed = self._chain.roll(self._next, self._written_last_offset, newest_ms)
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        self._unsynced.append(sealed)
        self._roll_after_ms = 0
        self._roll_last = self._chain.active.base_sequence + MAX_RELATIVE_SEQUENCE
        self._is_checkpoint_due = True  # for the sealed segment's indexes

    def producer_last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and last sequence number of an idempotent producer, if known."""
        known = self._producers.find(producer_id)
        return None if known is None else (known.epoch, known.last)

    def producers(self) -> Sequence[ProducerState]:
        """Everybody who is remembered as a producer."""
        return self._producers.states()

    def open_transactions(self) -> Sequence[ProducerState]:
        """The producers that have an open transaction in this partition."""
        return self._producers.open_transactions()

    # --- group commit ---

    def begin_round(self) -> Sequence[Handle]:
        """Take everything written so far into a round of the group commit."""
        self._is_dirty = False
        if self._is_out:
            return ()
        handles = [segment.log for segment in (*self._unsynced, self._chain.active) if segment.log.is_unsynced]
        for handle in handles:
            handle.is_unsynced = False
        self._unsynced.clear()
        self._round = _Round(
            self._written,
            self._written_last_offset,
            self._enqueued_ms,
            len(self._pending),
            self._plan_checkpoint_if_due(),
        )
        return handles

    def mark_round(self) -> None:
        """What the round made durable is about to be acknowledged."""
        if self._mark is not None and self._round is not None:
            self._mark.move(*self._round.limit)

    def end_round(self, error: OSError | None) -> None:
        """Move `committed` to what the round made durable, or go offline when it could not."""
        round_, self._round = self._round, None
        if round_ is None:
            return
        if error is not None:
            self._go_offline(error)
            return
        self._move_to(round_.limit, round_.last_offset, round_.last_enqueued_ms)
        self._complete(round_.receipts, None)
        self._wake()
        if round_.checkpoint is not None:
            self._run_checkpoint(round_.checkpoint)

    def _complete(self, count: int, error: Refusal | None) -> None:
        pending = self._pending
        while count:
            count -= 1
            receipt = pending.popleft()
            try:
                receipt.complete(error)
            except Exception:  # the top of a task: one writer's fault must not reach the others
                _LOGGER.exception("log %s: the callback of an append failed", self._name)

    def _wake(self) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher()
            except Exception:  # as above
                _LOGGER.exception("log %s: a watcher failed", self._name)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` on each move of the committed end, until unwatched."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling a watcher; unknown ones are ignored."""
        self._watchers.pop(watcher, None)

    # --- what the keeper of the log adds ---

    def _take_config(self, config: LogConfig) -> None:
        self._config = config
        self._append_time = config.append_time
        self._requires_keys = config.compact
        self._roll_bytes = min(config.segment_bytes, MAX_SEGMENT_BYTES)
        active = self._chain.active
        # An empty segment is as old as its first batch will be: zero has the next append look.
        self._roll_after_ms = active.first_time_ms + config.segment_ms if active.size_bytes else 0
        self._roll_last = active.base_sequence + MAX_RELATIVE_SEQUENCE

    @abstractmethod
    def _plan_checkpoint_if_due(self) -> Checkpoint | None:
        """A recovery point at the end of what is written, when enough was written since the last."""

    @abstractmethod
    def _run_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a recovery point whose data is durable now."""

    @abstractmethod
    def _go_offline(self, error: OSError) -> None:
        """Take the log out after a failed flush."""
