"""PartitionLog on a local disk: number, stamp and write batches; move `committed`; give them back to readers.

Nothing is visible or acknowledged before the group commit has made it durable; readers see a prefix of whole batches.
No record is opened here, except to see that the events of a compacted log have keys. An append that cannot be written
leaves no trace; after a failed flush the log is offline for writers until it was re-opened and verified, and readers
keep what was committed.
Thread rule: the owner's thread only; what waits for the disk is handed to the group commit.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from hubmere.model.batch import (
    APPEND_TIME,
    CHECKED_FROM,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NUMBER_PART,
    TIME_PART,
    TRANSACTIONAL,
    BatchHeader,
    Receipt,
    read_header,
    spread_offset,
)
from hubmere.model.errors import (
    CorruptBatch,
    InvalidArgument,
    PartitionOffline,
    PositionBeyondEnd,
    Refusal,
    SequenceOutOfRange,
    ShuttingDown,
    StorageFull,
)
from hubmere.model.position import Anchor, Position
from hubmere.store.admission import admit
from hubmere.store.chain import MAX_RECENT_BATCHES, Chain, Limit
from hubmere.store.checkpoint import Checkpoint, plan_checkpoint
from hubmere.store.commit import GroupCommit
from hubmere.store.compaction import Compaction, Source
from hubmere.store.engine import AbortedTransaction, Chunk, LogConfig, LogState, Watcher
from hubmere.store.files import Handle, unlink_if_there
from hubmere.store.index import INTERVAL_BYTES
from hubmere.store.producers import ProducerTable, RememberedBatch
from hubmere.store.records import marker
from hubmere.store.recovery import Recovered, recover
from hubmere.store.retention import SegmentFacts, expired, is_roll_due
from hubmere.store.segment import MAX_RELATIVE_SEQUENCE, MAX_SEGMENT_BYTES, Segment, Space

_LOGGER = logging.getLogger(__name__)

_unpack_header, _pack_number, _pack_times = HEADER.unpack_from, NUMBER_PART.pack_into, TIME_PART.pack_into

# Data after the last recovery point, above which a new one is made: what a crash makes us read again.
CHECKPOINT_BYTES = 32 * 1024 * 1024
# Waits between two tries to bring a failed log back.
_FIRST_HEAL_MS, _LAST_HEAL_MS = 1_000, 60_000


class _Round(NamedTuple):
    """What one round of the group commit will have made durable."""

    limit: Limit
    last_offset: int
    last_enqueued_ms: int
    receipts: int
    checkpoint: Checkpoint | None


class LocalLog:
    """One partition's log in one directory."""

    def __init__(self, space: Space, commit: GroupCommit, directory: Path, config: LogConfig, found: Recovered) -> None:
        self._space = space
        self._commit = commit
        self._directory = directory
        self._config = config
        self._write = space.files.write
        self._pending: deque[Receipt] = deque()
        self._watchers: dict[Watcher, None] = {}
        self._round: _Round | None = None
        self._is_dirty = False
        # What append must clear out of the way before it may write; None on the ordinary path.
        self._obstacle: Callable[[int], None] | None = None
        self._is_offline = False
        self._is_closed = False
        self._heal_at_ms = self._heal_after_ms = 0
        self._is_checkpointing = False
        self._append_time = self._requires_keys = False
        self._roll_bytes = self._roll_after_ms = self._roll_last = 0
        self._install(found)

    @classmethod
    def open(cls, space: Space, commit: GroupCommit, directory: Path, config: LogConfig) -> "LocalLog":
        """Open a directory, recovering it when that is needed."""
        return cls(space, commit, directory, config, recover(space, directory, compact=config.compact))

    def _install(self, found: Recovered) -> None:
        self._chain: Chain = found.chain
        self._producers: ProducerTable = found.producers
        self._leader_epoch = found.leader_epoch
        self._next = found.next_sequence
        self._enqueued_ms = found.last_enqueued_ms
        self._last_written: Receipt | None = None
        self._recovered_last_offset = found.last_offset
        self._unsynced: list[Segment] = []
        self._vouched_base = found.vouched_base
        self._compacted_until = 0
        self._compacted_at_ms = -1
        self._since_checkpoint_bytes = found.walked_bytes
        self._move_to(self._written, found.last_offset, found.last_enqueued_ms)
        self.reconfigure(self._config)

    # --- state ---

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
    def leader_epoch(self) -> int:
        """The epoch that batches are stamped with."""
        return self._leader_epoch

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

    # --- appending ---

    def append(
        self,
        batch: bytearray,
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
        _, length, _, magic, crc, attributes, last_delta, _, _, producer_id, _, _, count = fields
        if (
            length + LENGTH_PREFIX_BYTES != len(batch)
            or magic != MAGIC
            or last_delta + 1 != count
            or count < 1
            or attributes & (CONTROL | TRANSACTIONAL)
            or producer_id >= 0
            or self._requires_keys
            or crc32c(memoryview(batch)[CHECKED_FROM:]) != crc
        ):
            header = admit(batch, requires_keys=self._requires_keys)
            if producer_id >= 0:
                return self._append_of_producer(batch, header, now_ms, callback, lenient=lenient_producer)
        return self._write_batch(batch, fields, now_ms, callback)

    def _append_of_producer(
        self,
        batch: bytearray,
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
        batch = marker(producer_id, producer_epoch, max(now_ms, self._enqueued_ms), commit=commit)
        receipt = self._write_batch(batch, read_header(batch), now_ms, callback)
        aborted = self._producers.end_transaction(producer_id, producer_epoch, receipt.sequence_number, commit=commit)
        if aborted is not None:
            self._chain.active.aborted.append(aborted)
        return receipt

    def _write_batch(  # noqa: C901  a hot kernel
        self, batch: bytearray, fields: tuple[int, ...], now_ms: int, callback: Callable[[Receipt], None] | None
    ) -> Receipt:
        # The inner loop of every publish: written out flat, because each call here costs as much as the work in it.
        _, length, _, _, crc, attributes, last_delta, base_time_ms, time_ms, _, _, _, count = fields
        size_bytes, sequence, chain = length + LENGTH_PREFIX_BYTES, self._next, self._chain
        last = sequence + last_delta
        enqueued_ms = self._enqueued_ms
        if now_ms > enqueued_ms:
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
        elif attributes & APPEND_TIME:
            _pack_times(batch, CHECKED_FROM, attributes & ~APPEND_TIME, last_delta, base_time_ms, time_ms)
            crc = crc32c(memoryview(batch)[CHECKED_FROM:])
        _pack_number(batch, 0, sequence, length, self._leader_epoch, MAGIC, crc)

        handle = active.log
        try:
            written = self._write(handle.fd_or_closed if handle.fd_or_closed >= 0 else handle.fd(), batch)
        except OSError as error:
            self._undo_write(position)
            raise StorageFull(error.strerror or str(error)) from error
        if written != size_bytes:
            self._undo_write(position)
            raise StorageFull("the disk took only a part of the batch")
        handle.is_recent = handle.is_unsynced = True

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
        if time_ms > self._enqueued_ms:
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
            _LOGGER.warning("log %s: a partly written batch could not be cut away yet", self._directory.name)

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
    def _written(self) -> Limit:
        return Limit(self._next, self._chain.active.end_position)

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
            sealed = self._chain.roll(self._next, self._written_last_offset, self._enqueued_ms)
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        self._unsynced.append(sealed)
        self._roll_after_ms = 0
        self._roll_last = self._chain.active.base_sequence + MAX_RELATIVE_SEQUENCE
        self._since_checkpoint_bytes += CHECKPOINT_BYTES  # the sealed segment's indexes are due

    # --- group commit ---

    def begin_round(self) -> Sequence[Handle]:
        """Take everything written so far into a round of the group commit."""
        self._is_dirty = False
        if self._is_offline or self._is_closed:
            return ()
        handles = [segment.log for segment in (*self._unsynced, self._chain.active) if segment.log.is_unsynced]
        for handle in handles:
            handle.is_unsynced = False
        self._unsynced.clear()
        checkpoint = self._plan_checkpoint() if self._since_checkpoint_bytes >= CHECKPOINT_BYTES else None
        self._round = _Round(
            self._written, self._written_last_offset, self._enqueued_ms, len(self._pending), checkpoint
        )
        return handles

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
                _LOGGER.exception("log %s: the callback of an append failed", self._directory.name)

    def _wake(self) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher()
            except Exception:  # as above
                _LOGGER.exception("log %s: a watcher failed", self._directory.name)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` on each move of the committed end, until unwatched."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling a watcher; unknown ones are ignored."""
        self._watchers.pop(watcher, None)

    # --- failing and healing ---

    def _go_offline(self, error: OSError) -> None:
        _LOGGER.error("log %s: a flush failed (%s); offline until it is verified", self._directory.name, error)
        refusal = PartitionOffline(error.strerror or str(error))
        self._heal_after_ms, self._heal_at_ms = _FIRST_HEAL_MS, 0

        def refuse_or_heal(now_ms: int) -> None:
            if not self.heal(now_ms):
                raise refusal

        self._obstacle = refuse_or_heal
        self._is_offline = True
        self._is_checkpointing = False
        self._complete(len(self._pending), refusal)

    def heal(self, now_ms: int) -> bool:
        """Try to bring an offline log back, unless the last try was a moment ago; True when it can be written to.

        The descriptor whose flush failed is never used again: the kernel may have dropped its pages and call the next
        flush a success. Files are opened anew, everything that was not committed is cut, what was is walked.
        """
        if not self._is_offline:
            return True
        if now_ms < self._heal_at_ms:
            return False
        self._heal_at_ms = now_ms + self._heal_after_ms
        self._heal_after_ms = min(2 * self._heal_after_ms, _LAST_HEAL_MS)
        try:
            self._reopen()
        except (OSError, CorruptBatch) as error:
            _LOGGER.error("log %s: still offline (%s)", self._directory.name, error)
            return False
        self._is_offline = False
        self._obstacle = None
        return True

    def _reopen(self) -> None:
        self._close_handles()
        committed = self._limit.sequence
        found = recover(self._space, self._directory, compact=self._config.compact, keep_before=committed)
        if found.next_sequence != committed:
            raise CorruptBatch(f"only {found.next_sequence} of {committed} committed sequence numbers are on disk")
        self._install(found)

    # --- reading ---

    def read(
        self, sequence: int, max_bytes: int, *, stable_only: bool = False, uncommitted: bool = False
    ) -> Chunk | None:
        """Whole batches from the one that holds `sequence`; None when nothing is there yet."""
        limit = self._stable if stable_only else self._written if uncommitted else self._limit
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
        if self._config.compact:
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

    def producer_last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and last sequence number of an idempotent producer, if known."""
        known = self._producers.find(producer_id)
        return None if known is None else (known.epoch, known.last)

    # --- keeping ---

    def trim(self, before_sequence: int) -> None:
        """Let everything before a sequence number go."""
        if before_sequence > self._limit.sequence:
            raise SequenceOutOfRange(before_sequence, self._chain.first_sequence, self._limit.sequence)
        if before_sequence <= self._chain.first_sequence:
            return
        try:
            retired = self._chain.trim(before_sequence)
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        if retired:
            self._commit.run_chore(lambda: self._unlink(retired), _ignore)

    def _unlink(self, paths: list[Path]) -> None:
        for path in paths:
            unlink_if_there(self._space.files, path)

    def apply_retention(self, now_ms: int) -> int:
        """Drop whole segments past retention; returns how many went."""
        if self._is_offline:
            return 0
        active = self._chain.active
        if active.size_bytes and is_roll_due(active.first_time_ms, active.max_time_ms, self._config, now_ms):
            self._roll()
        self._producers.expire(now_ms)
        segments = [segment for segment in self._chain.segments[:-1] if segment.end_sequence <= self._limit.sequence]
        facts = (SegmentFacts(segment.size_bytes, segment.newest_time_ms()) for segment in segments)
        gone = expired(facts, self.state.size_bytes, self._config, now_ms)
        if gone:
            self.trim(segments[gone - 1].end_sequence)
        self.checkpoint()
        return gone

    def plan_compaction(self, now_ms: int) -> Compaction | None:
        """A pass over the sealed segments, if it could gain something; its `rewrite` may run on another thread."""
        end, newest_ms = self._stable.sequence, now_ms - self._config.min_compaction_lag_ms
        sources = []
        for segment in self._chain.segments[:-1] if self._config.compact and not self._is_offline else ():
            is_settled = segment.base_sequence < self._vouched_base and segment.end_sequence <= end
            if not is_settled or segment.newest_time_ms() > newest_ms:
                break
            sources.append(Source(segment, segment.size_bytes))
        if not sources:
            return None
        # Nothing new, and no tombstone can have become old enough since the last pass.
        is_done = sources[-1].segment.end_sequence <= self._compacted_until
        if is_done and now_ms < self._compacted_at_ms + self._config.tombstone_retention_ms:
            return None
        aborted = [entry for segment in self._chain.segments for entry in segment.aborted]
        return Compaction(self._space, sources, aborted, self._config, dirty_from=self._compacted_until, now_ms=now_ms)

    def adopt_compaction(self, compaction: Compaction, now_ms: int) -> int:
        """Put what a pass has rewritten in place; returns how many bytes went."""
        try:
            saved = compaction.adopt(self._chain.segments[:-1])
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        self._chain.sealed_bytes -= saved
        self._compacted_until, self._compacted_at_ms = compaction.covered_until, now_ms
        self._since_checkpoint_bytes += saved
        return saved

    def compact(self, now_ms: int) -> int:
        """Plan, rewrite and adopt at once, on the owner's thread; returns how many bytes went."""
        compaction = self.plan_compaction(now_ms)
        if compaction is None:
            return 0
        try:
            compaction.rewrite()
        except OSError as error:
            compaction.abandon()
            raise StorageFull(error.strerror or str(error)) from error
        return self.adopt_compaction(compaction, now_ms)

    def reconfigure(self, config: LogConfig) -> None:
        """Change how the log is kept; `compact` cannot change."""
        if config.compact != self._chain.is_compact:
            raise InvalidArgument(
                "cleanup policy", "compact" if config.compact else "delete", "it is fixed at creation"
            )
        self._config = config
        self._append_time = config.append_time
        self._requires_keys = config.compact
        self._roll_bytes = min(config.segment_bytes, MAX_SEGMENT_BYTES)
        active = self._chain.active
        # An empty segment is as old as its first batch will be: zero has the next append look.
        self._roll_after_ms = active.first_time_ms + config.segment_ms if active.size_bytes else 0
        self._roll_last = active.base_sequence + MAX_RELATIVE_SEQUENCE

    # --- checkpoints ---

    def checkpoint(self) -> None:
        """Make a new recovery point if there is something new to vouch for; off the owner's thread."""
        if self._since_checkpoint_bytes and not self._is_dirty and self._round is None and not self._is_offline:
            self._run_checkpoint(self._plan_checkpoint())

    def _plan_checkpoint(self) -> Checkpoint | None:
        if self._is_checkpointing:
            return None
        self._is_checkpointing = True
        self._since_checkpoint_bytes = 0
        return plan_checkpoint(
            self._chain, self._producers, self._next, self._written_last_offset, self._enqueued_ms,
            sync_data=self._commit.durability == "os",
        )  # fmt: skip

    def _run_checkpoint(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            return

        def done(error: OSError | None) -> None:
            self._is_checkpointing = False
            if error is None:
                checkpoint.settle()
                self._vouched_base = checkpoint.segment_base
            else:
                self._since_checkpoint_bytes += CHECKPOINT_BYTES
                _LOGGER.warning("log %s: no recovery point could be made (%s)", self._directory.name, error)

        self._commit.run_chore(lambda: checkpoint.write(self._space.files), done)

    @property
    def is_offline(self) -> bool:
        """Whether the log takes no events until it is verified."""
        return self._is_offline

    def close(self) -> None:
        """Finish the group commit and seal the indexes."""
        if not self._is_closed:
            self.refuse_writers()
            self._commit.flush()
            self._commit.finish_chores()
            self._seal()
            self._is_closed = True
            self._close_handles()

    def refuse_writers(self) -> None:
        """The log is going away: what was written is still committed, nothing more is taken."""
        self._obstacle = _refuse

    @property
    def is_sealed(self) -> bool:
        """Whether the recovery point is the end, so that the next opening need not walk anything."""
        return not self._since_checkpoint_bytes and not self._is_offline

    def _seal(self) -> None:
        if self._is_offline or self.is_sealed:
            return
        checkpoint = self._plan_checkpoint()
        assert checkpoint is not None
        try:
            checkpoint.write(self._space.files)
        except OSError as error:
            self._since_checkpoint_bytes = CHECKPOINT_BYTES
            _LOGGER.warning("log %s: closed without a recovery point (%s)", self._directory.name, error)

    def abandon(self) -> None:
        """Let go without keeping anything: the log is being deleted. Writers that wait are refused."""
        self.refuse_writers()
        self._is_closed = True
        self._round = None
        self._complete(len(self._pending), ShuttingDown())
        self._close_handles()

    def _close_handles(self) -> None:
        for segment in self._chain.segments:
            segment.log.close()


_FINDERS: dict[Anchor, Callable[[LocalLog, Position], int]] = {
    Anchor.FIRST: LocalLog._find_first,
    Anchor.LATEST: LocalLog._find_latest,
    Anchor.SEQUENCE: LocalLog._find_sequence,
    Anchor.OFFSET: LocalLog._find_offset,
    Anchor.TIME: LocalLog._find_time,
}


def _refuse(_now_ms: int) -> None:
    raise ShuttingDown


def _ignore(_error: OSError | None) -> None:
    """What could not be unlinked goes at the next opening."""
