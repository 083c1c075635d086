"""Compaction: keeps only the last event of each key. Sequence numbers do not change.

- The first and last sequence number of each remaining batch stay the same. A batch that loses some of its records is
  rewritten without compression.
- A tombstone (an event without a value) deletes its key, and is itself deleted after `tombstone_retention_ms`.
- The last batch is always kept, so that readers reach the end.
- Events of aborted transactions are deleted; markers stay.

A pass has three steps. It is planned on the owner's thread, rewritten on any thread, and adopted on the owner's thread.
It only touches sealed segments, which nothing else writes. A rewritten file is called `.cleaned` until it is complete
and durable, then `.swap` until it has the segment's name; opening a log undoes the first and finishes the second.
Adopting only changes names, so it does not wait for the disk.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from hubmere.model.errors import CorruptBatch
from hubmere.records.header import (
    APPEND_TIME,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    is_intact,
    read_header,
    seal,
    write_header,
)
from hubmere.records.records import RecordSlice
from hubmere.store.engine import LogConfig
from hubmere.store.files import Files, unlink_if_exists, write_all
from hubmere.store.log.records import stored_records
from hubmere.store.log.resources import LogResources
from hubmere.store.log.segments.index import AbortedEntry
from hubmere.store.log.segments.segment import INDEX, LOG, TIME_INDEX, Segment
from hubmere.store.recovery.segment_file import read_batches

CLEANED, SWAP = ".cleaned", ".swap"
# Keys in memory during one pass, about 150 bytes each; the rest of the log waits for the next pass.
MAX_KEYS = 1_000_000
_DIGEST_BYTES = 16


class Source(NamedTuple):
    """A sealed segment to compact, and its size when the pass was planned."""

    segment: Segment
    size_bytes: int


class Rewritten(NamedTuple):
    """A segment and its replacement: the shadow has the new size and indexes."""

    segment: Segment
    shadow: Segment


class Compaction:
    """One pass over the sealed segments of a log, from the first on.

    `dirty_from` is where the last pass ended: before it, no key has two events. Thread rule: `rewrite` on any thread,
    once; everything else on the owner's thread.
    """

    def __init__(
        self,
        resources: LogResources,
        sources: Sequence[Source],
        aborted: Sequence[AbortedEntry],
        config: LogConfig,
        *,
        dirty_from: int,
        now_ms: int,
    ) -> None:
        self._resources = resources
        self._files: Files = resources.files
        self._sources = sources
        self._aborted = aborted
        self._dirty_from = dirty_from
        self._oldest_tombstone_ms = now_ms - config.tombstone_retention_ms
        self._latest: dict[bytes, int] = {}
        self.covered_until = dirty_from
        self.rewritten: list[Rewritten] = []
        # Whether the pass was adopted or has failed: nothing of it changes files any more.
        self.is_over = False

    def rewrite(self) -> None:
        """Write the segments that get smaller under a temporary name; raises OSError or CorruptBatch."""
        self._find_latest()
        for source in self._sources:
            shadow = self._rewrite_segment(source, keep_last=source is self._sources[-1])
            if shadow is not None:
                self.rewritten.append(Rewritten(source.segment, shadow))
        # From here on, opening the log would adopt the rewritten files.
        for segment, _ in self.rewritten:
            self._files.rename(segment.path(LOG + CLEANED), segment.path(LOG + SWAP))
        if self.rewritten:
            self._files.sync_directory(self.rewritten[0].segment.directory)

    def _find_latest(self) -> None:
        for source in self._sources:
            for batch, header in self._batches(source):
                if header.next_sequence_number <= self._dirty_from or header.is_control:
                    continue
                if len(self._latest) >= MAX_KEYS:
                    return
                if not _is_aborted(header, self._aborted):
                    for record in stored_records(batch, header):
                        self._latest[_digest(record.key)] = header.base_sequence_number + record.sequence_delta
                self.covered_until = header.next_sequence_number

    def _batches(self, source: Source) -> Iterator[tuple[memoryview, BatchHeader]]:
        fd = self._files.open(source.segment.path(LOG))
        try:
            end = 0
            for batch, header in read_batches(self._files, fd, 0, source.size_bytes):
                if not is_intact(batch):
                    break
                yield batch, header
                end += header.size_bytes
            if end != source.size_bytes:
                raise source.segment.corrupt(end, "compaction found a broken batch")
        finally:
            self._files.close(fd)

    def _rewrite_segment(self, source: Source, *, keep_last: bool) -> Segment | None:
        path = source.segment.path(LOG + CLEANED)
        shadow = Segment(self._resources, source.segment.directory, source.segment.start, 0, is_sealed=False)
        shadow.start_empty()
        fd = self._files.open(path, create=True)
        try:
            self._files.truncate(fd, 0)
            at = 0
            for batch, header in self._batches(source):
                at += header.size_bytes
                is_last = keep_last and at == source.size_bytes
                kept = batch if is_last or header.is_control else self._compact_batch(batch, header)
                if kept is not None:
                    write_all(self._files, fd, kept)
                    newest_ms = read_header(kept).max_time_ms
                    shadow.note([(header.next_sequence_number - 1, len(kept), newest_ms)])
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)
        if shadow.size_bytes == source.size_bytes:
            self._files.unlink(path)
            return None
        shadow.end_sequence = source.segment.end_sequence
        shadow.seal()
        return shadow

    def _compact_batch(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        if _is_aborted(header, self._aborted):
            return None
        everything = list(stored_records(batch, header))
        kept = [record for record in everything if self._is_kept(record, header)]
        if len(kept) == len(everything):
            return batch
        return _encode_kept(header, kept) if kept else None

    def _is_kept(self, record: RecordSlice, header: BatchHeader) -> bool:
        sequence = header.base_sequence_number + record.sequence_delta
        if sequence >= self.covered_until:
            return True
        if self._latest.get(_digest(record.key), sequence) > sequence:
            return False
        return record.has_value or header.max_time_ms >= self._oldest_tombstone_ms

    # --- adopting ---

    def adopt(self, present: Sequence[Segment]) -> int:
        """Replace segments by the rewritten files; returns the reclaimed bytes. Raises OSError."""
        reclaimed = 0
        for segment, shadow in self.rewritten:
            if segment in present:
                reclaimed += segment.size_bytes - shadow.size_bytes
                self._swap(segment, shadow)
            else:
                unlink_if_exists(self._files, segment.path(LOG + SWAP))
        return reclaimed

    def _swap(self, segment: Segment, shadow: Segment) -> None:
        # The old indexes are deleted before their file: opening the log after a crash does the same.
        for suffix in (INDEX, TIME_INDEX):
            unlink_if_exists(self._files, segment.path(suffix))
        self._files.rename(segment.path(LOG + SWAP), segment.path(LOG))
        segment.replace_with(shadow)

    def abandon(self) -> None:
        """Remove the rewritten files."""
        for source in self._sources:
            for suffix in (CLEANED, SWAP):
                unlink_if_exists(self._files, source.segment.path(LOG + suffix))


def _encode_kept(header: BatchHeader, kept: Sequence[RecordSlice]) -> bytearray:
    rest = b"".join(record.data for record in kept)
    newest_ms = header.max_time_ms
    if not header.attributes & APPEND_TIME:
        newest_ms = header.base_time_ms + max(record.time_delta for record in kept)
    batch = bytearray(HEADER_BYTES + len(rest))
    batch[HEADER_BYTES:] = rest
    fresh = header._replace(
        length=len(batch) - LENGTH_PREFIX_BYTES,
        attributes=header.attributes & ~CODEC_MASK,
        max_time_ms=newest_ms,
        record_count=len(kept),
    )
    write_header(batch, fresh)
    seal(batch)
    return batch


def _digest(key: bytes | None) -> bytes:
    if key is None:
        raise CorruptBatch("an event without a key on a compacted log")
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedEntry]) -> bool:
    return header.is_transactional and any(
        entry.producer_id == header.producer_id
        and entry.first_sequence <= header.base_sequence_number <= entry.last_sequence
        for entry in aborted
    )
