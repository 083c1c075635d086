"""A hub with its history: positions and limits over captured files below the log's first event and the log above it.

The join is the log's first event. Sequence numbers and offsets are the same in both, so a range may begin in the files
and end in the log; the one who reads it takes from the log what the log has (`read_before`, `ranges`).
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from hubmere.client.connection import Client
from hubmere.client.consumer import Bounds, ByteRange, HubReader
from hubmere.pipeline.decode import SCHEMA
from hubmere.pipeline.history.files import CapturedFiles, HistoryFile
from hubmere.pipeline.history.rows import read_rows

# How often files are listed again when those that are known do not reach the log.
_REFRESH_INTERVAL_S: Final = 1.0
_OFFSETS: Final = pa.schema([SCHEMA.field(name) for name in ("sequenceNumber", "offset")])
_TIMES: Final = pa.schema([SCHEMA.field(name) for name in ("sequenceNumber", "enqueuedTime")])


class HistoryReader(HubReader):
    """Reads positions of a hub and of its files. Thread rule: one owner."""

    def __init__(self, client: Client, hub: str, files: CapturedFiles) -> None:
        super().__init__(client, hub)
        self._log = HubReader(client, hub)
        self._files = files
        self._refreshed_at: float | None = None

    def bounds(self, partitions: Collection[int]) -> dict[int, Bounds]:
        """The bounds of each partition with its files."""
        return {
            partition: Bounds(self._first(partition, first), end)
            for partition, (first, end) in self._log.bounds(partitions).items()
        }

    def _first(self, partition: int, log_first: int) -> int:
        """The first sequence number that a file or the log has. A log that lost nothing needs no files."""
        if not log_first:
            return log_first
        found = self._files.first(partition)
        if found is None and self._may_refresh():
            self._files.refresh()
            found = self._files.first(partition)
        return log_first if found is None else min(found, log_first)

    def _may_refresh(self) -> bool:
        now = time.monotonic()
        if self._refreshed_at is not None and now - self._refreshed_at < _REFRESH_INTERVAL_S:
            return False
        self._refreshed_at = now
        return True

    def first_at(self, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """For each partition the first sequence number enqueued at or after a time, in files or in the log."""
        earlier = self._log.bounds(list(times_ms))
        found = self._log.first_at(times_ms)
        bounds = self._log.bounds(list(times_ms))
        has_lost = any(first for first, _ in bounds.values())
        is_ordered = not has_lost or self._log.has_ordered_times()
        for partition, time_ms in times_ms.items():
            first, at = bounds[partition].first, found[partition]
            # After the first event that the log has now: then the time lies in the log, and so it does after an event
            # that the log had before the question and still has.
            is_in_log = at > first if at is not None else earlier[partition].end > first
            if first and not (is_in_log and is_ordered):
                in_files = self._find_in_files(partition, first, time_ms * 1000, _TIMES, is_ordered=is_ordered)
                found[partition] = at if in_files is None else in_files
        return found

    def find_offset(self, partition: int, offset: int, *, inclusive: bool) -> int:
        """The first sequence number whose offset is after (or at) a byte position, in files or in the log."""
        found = self._log.find_offset(partition, offset, inclusive=inclusive)
        first, _ = self._log.bounds([partition])[partition]
        if not first or found > first:
            return found
        earlier = self._find_in_files(partition, first, offset if inclusive else offset + 1, _OFFSETS)
        return found if earlier is None else earlier

    def _find_in_files(
        self, partition: int, log_first: int, wanted: int, schema: pa.Schema, *, is_ordered: bool = True
    ) -> int | None:
        """The first event before the log whose time (in us) or offset is at or after the wanted one."""
        files = self._files.before(partition, log_first)
        at = self._bisect(partition, files, wanted, schema) if is_ordered else 0
        for file in files[at:]:
            for sequence, value in self._values(partition, file, schema):
                if value >= wanted and sequence < log_first:
                    return sequence
        return None

    def _bisect(self, partition: int, files: Sequence[HistoryFile], wanted: int, schema: pa.Schema) -> int:
        """The last file with events of which the first is before the wanted one; 0 if there is none."""
        low, high, found = 0, len(files), 0
        while low < high:
            middle = probe = (low + high) // 2
            first = next(self._values(partition, files[probe], schema), None)
            while first is None and probe > low:
                # An empty window says nothing: ask the file before it.
                probe -= 1
                first = next(self._values(partition, files[probe], schema), None)
            if first is not None and first[1] >= wanted:
                high = probe
            else:
                low, found = middle + 1, found if first is None else probe
        return found

    def _values(self, partition: int, file: HistoryFile, schema: pa.Schema) -> Iterator[tuple[int, int]]:
        with closing(self._files.destination.open(file.name)) as opened:
            for rows in read_rows(file.name, opened, partition, file.first, file.end, schema):
                sequences, values = rows.columns
                yield from zip(sequences.to_pylist(), map(int, values.cast(pa.int64()).to_pylist()), strict=True)

    def find_all_after_bytes(self, ranges: Mapping[int, ByteRange]) -> dict[int, int]:
        """Where a reader stops that takes so many bytes of the log, or of captured files by their own size."""
        bounds = self._log.bounds(list(ranges))
        old = {partition: each for partition, each in ranges.items() if each.start < bounds[partition].first}
        found = self._log.find_all_after_bytes({name: each for name, each in ranges.items() if name not in old})
        return found | {
            partition: self._after_bytes_of_files(partition, bounds[partition].first, each)
            for partition, each in old.items()
        }

    def _after_bytes_of_files(self, partition: int, log_first: int, wanted: ByteRange) -> int:
        end = min(wanted.end, log_first)
        file = next(self._files.between(partition, wanted.start, end), None)
        if file is None or file.first == file.end:
            return end
        events = wanted.size_bytes * (file.end - file.first) // max(file.size_bytes, 1)
        return min(end, file.end, max(wanted.start, file.first) + max(events, 1))


def read_before(
    files: CapturedFiles, partition: int, start: int, end: int, schema: pa.Schema
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """The events of captured files from `start` up to, not including, `end`.

    Yields how far it has come, each time with rows or with None: after the last item, events from there on are in no
    file. A gap between two files is skipped by the caller, who asks again behind it.
    """
    at = start
    for file in files.between(partition, start, end):
        if file.first > at:
            return
        stop = min(file.end, end)
        with closing(files.destination.open(file.name)) as opened:
            for rows in read_rows(file.name, opened, partition, at, stop, schema):
                yield at, rows
        at = stop
        yield at, None


def next_in_files(files: CapturedFiles, partition: int, start: int, end: int) -> int:
    """The first sequence number from `start` on that a file holds, or `end`."""
    file = next(files.between(partition, start, end), None)
    return end if file is None else max(start, file.first)
