"""The write side of a log: numbers, stamps and writes batches, and queues their receipts for the group commit.

Nothing is visible or acknowledged before it is committed. An append that cannot be written leaves no trace. No record
is decoded here, except to check that the events of a compacted log have keys.
Thread rule: the owner's thread only.
"""

import logging
from collections.abc import Callable, Sequence
from itertools import accumulate, repeat

from crc32c import crc32c

from hubmere.model.errors import ProducerRefused, StorageFull
from hubmere.model.receipt import Receipt
from hubmere.records.compression import LAST_CODEC
from hubmere.records.header import (
    APPEND_TIME,
    CHECKED_FROM,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAX_TIME_FIELD,
    NUMBER_PART,
    PRODUCER_ID_FIELD,
    RECORD_COUNT_FIELD,
    TIME_PART,
    TRANSACTIONAL,
    UNSEALED,
    BatchHeader,
    read_header,
)
from hubmere.records.records import Marker, encode_marker
from hubmere.records.runs import BatchRun, check_run, stamp_run
from hubmere.records.validate import is_readable
from hubmere.store.engine import LogConfig
from hubmere.store.files import Files
from hubmere.store.log.admission import admit, decompress_batch
from hubmere.store.log.pending import PendingAppends
from hubmere.store.log.producers import REMEMBERED_BATCHES, ProducerTable, RememberedBatch
from hubmere.store.log.retention import MOST_AHEAD_MS
from hubmere.store.log.segments.log_segments import LogSegments
from hubmere.store.log.segments.segment import MAX_RELATIVE_SEQUENCE, MAX_SEGMENT_BYTES, Segment

_LOGGER = logging.getLogger(__name__)

_unpack_header, _pack_number, _pack_times = HEADER.unpack_from, NUMBER_PART.pack_into, TIME_PART.pack_into

OnReceipt = Callable[[Receipt], None]
BeforeAppend = Callable[[int], None]


class LogWriter:
    """Appends batches to the segments of one log."""

    __slots__ = (
        "_append_time", "_before_next_append", "_files", "_on_rolled", "_pending", "_producers", "_requires_keys",
        "_roll_after_ms", "_roll_bytes", "_roll_last", "_segment_ms", "_segments", "_write", "leader_epoch",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        segments: LogSegments,
        producers: ProducerTable,
        pending: PendingAppends,
        config: LogConfig,
        leader_epoch: int,
        before_next_append: Callable[[BeforeAppend], None],
        on_rolled: Callable[[], None],
    ) -> None:
        """`before_next_append` registers an action that must succeed before anything more is written.

        `on_rolled` has the list of segments made durable; it does not wait.
        """
        self._files = files
        self._write = files.write
        self._segments = segments
        self._producers = producers
        self._pending = pending
        self._before_next_append = before_next_append
        self._on_rolled = on_rolled
        self.leader_epoch = leader_epoch
        self._append_time = self._requires_keys = False
        self._segment_ms = self._roll_bytes = self._roll_after_ms = self._roll_last = 0
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        """Use another configuration from the next append on."""
        self._append_time = config.append_time
        self._requires_keys = config.compact
        self._segment_ms = config.segment_ms
        self._roll_bytes = min(config.segment_bytes, MAX_SEGMENT_BYTES)
        active = self._segments.active
        # The age of an empty segment counts from its first batch: 0 makes the next append set the limit.
        self._roll_after_ms = active.first_time_ms + config.segment_ms if active.size_bytes else 0
        self._roll_last = active.base_sequence + MAX_RELATIVE_SEQUENCE

    # --- single batches ---

    def append(
        self, batch: bytearray | memoryview, now_ms: int, callback: OnReceipt | None, lenient_producer: bool
    ) -> Receipt:
        """Number, stamp and write one closed batch; the receipt completes when it is committed."""
        if len(batch) < HEADER_BYTES:
            admit(batch, requires_keys=False)
        fields = _unpack_header(batch)
        if fields[RECORD_COUNT_FIELD] > len(batch):
            batch = decompress_batch(batch)
            fields = _unpack_header(batch)
        _, length, _, magic, crc, attributes, last_delta, _, _, producer_id, epoch, first, count = fields
        # `records.validate.HEADER_RULES`, inline for an ordinary batch.
        if (
            length + LENGTH_PREFIX_BYTES != len(batch)
            or magic != MAGIC
            or last_delta + 1 != count
            or count < 1
            or attributes & (CONTROL | TRANSACTIONAL)
            or attributes & CODEC_MASK > LAST_CODEC
            or (producer_id >= 0 and (first < 0 or epoch < 0))
            or self._requires_keys
            or (crc and crc32c(memoryview(batch)[CHECKED_FROM:]) != crc)
            or (
                crc
                and not is_readable(batch, HEADER_BYTES, length + LENGTH_PREFIX_BYTES, attributes & CODEC_MASK, count)
            )
        ):
            admit(batch, requires_keys=self._requires_keys)
        if producer_id >= 0:
            header = BatchHeader._make(fields)
            return self._append_of_producer(batch, header, now_ms, callback, lenient=lenient_producer)
        return self._write_batch(batch, fields, now_ms, callback)

    def _append_of_producer(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        now_ms: int,
        callback: OnReceipt | None,
        *,
        lenient: bool,
    ) -> Receipt:
        numbers = (header.producer_id, header.producer_epoch, header.producer_sequence, header.last_delta)
        earlier = self._producers.check(*numbers, transactional=header.is_transactional, lenient=lenient)
        if earlier is not None:
            return self._acknowledge_duplicate(earlier, header, callback)
        receipt = self._write_batch(batch, header, now_ms, callback)
        last = receipt.sequence_number + header.last_delta
        self._producers.record(*numbers, last, receipt.enqueued_at_ms, transactional=header.is_transactional)
        return receipt

    def _acknowledge_duplicate(
        self, earlier: RememberedBatch, header: BatchHeader, callback: OnReceipt | None
    ) -> Receipt:
        """A receipt for a batch that the log already has; completes with everything written before it."""
        segments = self._segments
        receipt = Receipt(header.record_count, header.size_bytes, callback)
        receipt.is_duplicate = True
        receipt.sequence_number = earlier.base_sequence if earlier.last_sequence >= 0 else -1
        receipt.enqueued_at_ms = earlier.time_ms
        if receipt.sequence_number >= segments.log_start:
            receipt.offset = segments.offset_of(receipt.sequence_number, segments.end)
        self._pending.add(receipt)
        return receipt

    def append_marker(
        self, producer_id: int, producer_epoch: int, now_ms: int, *, commit: bool, callback: OnReceipt | None
    ) -> Receipt:
        """Write a transaction's commit or abort marker."""
        self._producers.check_marker(producer_id, producer_epoch)
        marker = Marker(producer_id, producer_epoch, is_commit=commit)
        batch = encode_marker(marker, time_ms=self._enqueued_at(now_ms))
        receipt = self._write_batch(batch, read_header(batch), now_ms, callback)
        aborted = self._producers.end_transaction(producer_id, producer_epoch, receipt.sequence_number, commit=commit)
        if aborted is not None:
            self._segments.active.aborted.append(aborted)
        return receipt

    def _write_batch(
        self, batch: bytearray | memoryview, fields: tuple[int, ...], now_ms: int, callback: OnReceipt | None
    ) -> Receipt:
        # The inner loop of every publish: few calls, because each costs as much as the work in it.
        _, length, _, _, crc, attributes, last_delta, base_time_ms, time_ms, _, _, _, count = fields
        segments = self._segments
        active = segments.active
        newest_ms = active.last_enqueued_ms
        size_bytes, sequence = length + LENGTH_PREFIX_BYTES, active.end_sequence
        last = sequence + last_delta
        enqueued_ms = now_ms if now_ms > newest_ms or newest_ms - now_ms > MOST_AHEAD_MS else newest_ms
        if active.size_bytes + size_bytes > self._roll_bytes or now_ms > self._roll_after_ms or last > self._roll_last:
            self._roll_before(now_ms)
            active = segments.active
        position = active.size_bytes

        if self._append_time:
            time_ms = newest_ms = enqueued_ms
            _pack_times(batch, CHECKED_FROM, attributes | APPEND_TIME, last_delta, base_time_ms, time_ms)
            crc = crc32c(memoryview(batch)[CHECKED_FROM:])
        else:
            if attributes & APPEND_TIME or crc == UNSEALED:
                _pack_times(batch, CHECKED_FROM, attributes & ~APPEND_TIME, last_delta, base_time_ms, time_ms)
                crc = crc32c(memoryview(batch)[CHECKED_FROM:])
            if time_ms > newest_ms:
                newest_ms = time_ms
        _pack_number(batch, 0, sequence, length, self.leader_epoch, MAGIC, crc)

        self._write_whole(batch, active)
        active.note(((last, size_bytes, time_ms),), newest_ms)

        receipt = Receipt(count, size_bytes, callback)
        receipt.sequence_number = sequence
        receipt.offset = sequence if segments.is_compact else active.base_position + position
        receipt.enqueued_at_ms = enqueued_ms
        self._pending.add(receipt)
        return receipt

    # --- runs ---

    def check_run(self, data: bytearray, sizes: Sequence[int], newest_ms: int) -> BatchRun | None:
        """The run if it can be appended as one; None if its batches must be appended one by one."""
        if self._requires_keys or len(data) > self._roll_bytes:
            return None
        run = check_run(data, sizes, newest_ms)
        if run is None:
            return None
        firsts = [BatchHeader._make(run.headers[index]) for index in run.first_of_producers]
        return run if all(map(self._is_next, firsts)) else None

    def _is_next(self, header: BatchHeader) -> bool:
        """Whether a batch is its producer's next one; if not, each batch of its run must be checked on its own."""
        numbers = (header.producer_id, header.producer_epoch, header.producer_sequence, header.last_delta)
        try:
            earlier = self._producers.check(*numbers, transactional=False, lenient=False)
        except ProducerRefused:
            return False
        return earlier is None

    def append_run(self, run: BatchRun, now_ms: int, callback: OnReceipt | None) -> Receipt:
        """Number, stamp and write a run that was just checked; one receipt for all of it."""
        segments = self._segments
        enqueued_ms = self._enqueued_at(now_ms)
        size_bytes, sequence = len(run.data), segments.active.end_sequence
        is_full = segments.active.size_bytes + size_bytes > self._roll_bytes
        if is_full or now_ms > self._roll_after_ms or sequence + run.events - 1 > self._roll_last:
            self._roll_before(now_ms)
        active = segments.active
        stamp_run(run, sequence, self.leader_epoch, enqueued_ms if self._append_time else None)
        self._write_whole(run.data, active)
        receipt = Receipt(run.events, size_bytes, callback)
        receipt.sequence_number = sequence
        receipt.offset = active.base_position + active.size_bytes
        receipt.enqueued_at_ms = enqueued_ms
        self._note_run(run, sequence, enqueued_ms)
        self._remember_run(run, enqueued_ms)
        self._pending.add(receipt)
        return receipt

    def _note_run(self, run: BatchRun, sequence: int, enqueued_ms: int) -> None:
        active = self._segments.active
        counts = [fields[RECORD_COUNT_FIELD] for fields in run.headers]
        last_sequences = accumulate(counts, initial=sequence - 1)
        next(last_sequences)
        if self._append_time:
            active.note(zip(last_sequences, run.sizes, repeat(enqueued_ms)), enqueued_ms)
        else:
            times = [fields[MAX_TIME_FIELD] for fields in run.headers]
            active.note(zip(last_sequences, run.sizes, times, strict=True), max(active.last_enqueued_ms, *times))

    def _remember_run(self, run: BatchRun, enqueued_ms: int) -> None:
        """Remember the batches of idempotent producers; of a single producer the last ones, which the table keeps."""
        if not run.first_of_producers:
            return
        first = self._segments.active.end_sequence - run.events
        ends = accumulate([fields[RECORD_COUNT_FIELD] for fields in run.headers], initial=first)
        next(ends)
        numbered = [pair for pair in zip(run.headers, ends, strict=True) if pair[0][PRODUCER_ID_FIELD] >= 0]
        for fields, end in numbered[-REMEMBERED_BATCHES:] if len(run.first_of_producers) == 1 else numbered:
            header = BatchHeader._make(fields)
            numbers = (header.producer_id, header.producer_epoch, header.producer_sequence, header.last_delta)
            self._producers.record(*numbers, end - 1, enqueued_ms, transactional=False)

    # --- files ---

    def _enqueued_at(self, now_ms: int) -> int:
        newest_ms = self._segments.last_enqueued_ms
        return now_ms if newest_ms - now_ms > MOST_AHEAD_MS else max(now_ms, newest_ms)

    def _write_whole(self, data: bytearray | memoryview, active: Segment) -> None:
        handle = active.log
        try:
            written = self._write(handle.fd_or_closed if handle.fd_or_closed >= 0 else handle.fd(), data)
        except OSError as error:
            self._undo_write(active)
            raise StorageFull(error.strerror or str(error)) from error
        if written != len(data):
            self._undo_write(active)
            raise StorageFull("the disk took only a part of the batch")
        handle.is_recent = handle.is_unsynced = True

    def _undo_write(self, active: Segment) -> None:
        """Remove a partly written batch; if that fails now, it must succeed before the next append."""
        position = active.size_bytes

        def truncate(_now_ms: int) -> None:
            try:
                self._files.truncate(active.log.fd(), position)
            except OSError as error:
                raise StorageFull(error.strerror or str(error)) from error

        try:
            truncate(0)
        except StorageFull:
            _LOGGER.warning("log %s: cannot remove a partly written batch yet", self._segments.directory.name)
            self._before_next_append(truncate)

    def _roll_before(self, now_ms: int) -> None:
        """Roll unless the active segment is empty; its age limit then counts from now."""
        if self._segments.active.size_bytes:
            self.roll()
        self._roll_after_ms = now_ms + self._segment_ms

    def roll(self) -> None:
        """Start a new segment; raises StorageFull."""
        try:
            self._segments.roll()
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        self._on_rolled()
        self._roll_after_ms = 0
        self._roll_last = self._segments.active.base_sequence + MAX_RELATIVE_SEQUENCE
