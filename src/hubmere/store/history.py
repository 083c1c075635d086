"""Files with the history of metrics: one file of fixed maximum size per series, in the folder `history`.

A file holds the rings of its series one after another (`model.monitoring.history`). A row is the second as a 32-bit
integer and one 32-bit float per value. A reader compares the second of each row with the row's place and with the
wanted time, and skips rows that do not match: nothing has to be cleared, and a torn write costs one row. Files are
sparse, written without a flush, and may be deleted at any time: history is a convenience, not a record.

Thread rule: any thread, one call at a time.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from urllib.parse import quote, unquote

from hubmere.model.monitoring.history import RINGS, HistoryRow, Ring, Values
from hubmere.store.files import Files, unlink_if_exists

HISTORY_FOLDER = "history"
_SUFFIX = ".ring"
# Rows of all rings before each ring.
_ROWS_BEFORE = (0, *accumulate(ring.length for ring in RINGS))


def _row_format(width: int) -> struct.Struct:
    return struct.Struct(f"<I{width}f")


def _place(ring: Ring, second: int) -> int:
    return second // ring.step_s % ring.length


def _runs(ring: Ring, first_s: int, last_s: int) -> Iterator[tuple[int, int]]:
    """First place and number of rows of the one or two contiguous parts of a ring that cover a time."""
    count = min((last_s // ring.step_s) - (first_s // ring.step_s) + 1, ring.length)
    first = _place(ring, last_s - (count - 1) * ring.step_s)
    until_end = min(count, ring.length - first)
    yield first, until_end
    if until_end < count:
        yield 0, count - until_end


def _rows_within(
    data: bytes, row: struct.Struct, ring: Ring, first_place: int, first_s: int, last_s: int
) -> Iterator[tuple[int, Values]]:
    whole = memoryview(data)[: len(data) // row.size * row.size]
    for place, (second, *values) in enumerate(row.iter_unpack(whole), first_place):
        if first_s <= second <= last_s and _place(ring, second) == place:
            yield second, tuple(values)


def _contiguous(rows: Sequence[HistoryRow]) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each run of neighbouring rows: most writes are the last ten seconds."""
    form = _row_format(len(rows[0].values))
    encoded = {
        (_ROWS_BEFORE[row.ring] + _place(RINGS[row.ring], row.second)) * form.size: form.pack(row.second, *row.values)
        for row in rows
    }
    first, run = -1, bytearray()
    for offset, data in sorted(encoded.items()):
        if run and offset != first + len(run):
            yield first, bytes(run)
            run = bytearray()
        first = first if run else offset
        run += data
    yield first, bytes(run)


class HistoryFiles:
    """The history in a data folder."""

    def __init__(self, data: Path, files: Files | None = None) -> None:
        self._folder = data / HISTORY_FOLDER
        self._files = files or Files()

    def _path(self, series: str, width: int) -> Path:
        # The width is part of the name: a version with other values starts a new file.
        return self._folder / f"{quote(series, safe='')}.{width}{_SUFFIX}"

    def write(self, rows: Sequence[HistoryRow]) -> None:
        """Keep rows; raises OSError if the disk refuses them."""
        self._files.make_directory(self._folder)
        by_file: dict[Path, list[HistoryRow]] = {}
        for row in rows:
            by_file.setdefault(self._path(row.series, len(row.values)), []).append(row)
        for path, same in by_file.items():
            fd = self._files.open_for_overwriting(path)
            try:
                for offset, data in _contiguous(same):
                    self._files.pwrite(fd, data, offset)
            finally:
                self._files.close(fd)

    def read(self, series: str, width: int, ring: int, first_s: int, last_s: int) -> list[tuple[int, Values]]:
        """The rows of a series between two times (both included), oldest first."""
        form = _row_format(width)
        try:
            fd = self._files.open(self._path(series, width))
        except OSError:
            return []
        found: list[tuple[int, Values]] = []
        try:
            for place, count in _runs(RINGS[ring], first_s, last_s):
                data = self._files.pread(fd, count * form.size, (_ROWS_BEFORE[ring] + place) * form.size)
                found += _rows_within(data, form, RINGS[ring], place, first_s, last_s)
        except OSError:
            return []
        finally:
            self._files.close(fd)
        return found

    def retain(self, is_needed: Callable[[str], bool]) -> None:
        """Delete every series that is not needed any more."""
        try:
            names = self._files.names(self._folder)
        except FileNotFoundError:
            return
        for name in names:
            if name.endswith(_SUFFIX) and not is_needed(unquote(name.removesuffix(_SUFFIX).rpartition(".")[0])):
                unlink_if_exists(self._files, self._folder / name)


class MemoryHistory:
    """The history of a node in memory. Memory that was never written to is not used."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, int, int], bytearray] = {}

    def write(self, rows: Sequence[HistoryRow]) -> None:
        """Keep rows."""
        for series, ring, second, values in rows:
            form, size = _row_format(len(values)), RINGS[ring]
            key = (series, len(values), ring)
            data = self._rings.get(key)
            if data is None:
                data = self._rings[key] = bytearray(size.length * form.size)
            form.pack_into(data, _place(size, second) * form.size, second, *values)

    def read(self, series: str, width: int, ring: int, first_s: int, last_s: int) -> list[tuple[int, Values]]:
        """The rows of a series between two times (both included), oldest first."""
        form, data = _row_format(width), self._rings.get((series, width, ring))
        found: list[tuple[int, Values]] = []
        if data is not None:
            for place, count in _runs(RINGS[ring], first_s, last_s):
                part = bytes(memoryview(data)[place * form.size : (place + count) * form.size])
                found += _rows_within(part, form, RINGS[ring], place, first_s, last_s)
        return found

    def retain(self, is_needed: Callable[[str], bool]) -> None:
        """Delete every series that is not needed any more."""
        for key in [key for key in self._rings if not is_needed(key[0])]:
            del self._rings[key]
