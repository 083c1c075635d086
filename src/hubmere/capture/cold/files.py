"""Captured Avro files of a hub in a folder of this machine: which there are, and parts of them as record batches.

Everything here waits for the disk and runs on a thread. A file is split into parts of about 1 MB, always at the same
places: whole Avro blocks. Every length is checked before it is used, and the marker after each block, because a file
may be damaged. Symbolic links are not followed.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from heapq import merge
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from hubmere.capture.browse import open_below, walk_folders
from hubmere.capture.cold.rebuild import TO_BATCHES, seal
from hubmere.model.capture.cold import ColdBlock, ColdFile, ColdFiles, ColdHub, Coverage
from hubmere.model.errors import NotFound
from hubmere.model.position import Anchor, Position
from hubmere.pipeline.capture.files.avro_layout import DAMAGE, AvroBlock, AvroLayout, Cursor, Damaged
from hubmere.pipeline.capture.files.names import NameFormat, Span
from hubmere.pipeline.capture.files.originals import TIME
from hubmere.pipeline.capture.files.schema import HUB_KEY, SPAN_KEY, time_of_text

# Bytes of a file that are read and decoded at once.
PART_BYTES: Final = 1024 * 1024
# Files of a hub: five years of five-minute windows of one partition.
MAX_FILES: Final = 500_000
# Files that are sorted in one call, which holds the interpreter's lock; many more would stop the event loop.
SORTED_AT_ONCE: Final = 4096
# Enough of a block for its first event up to its time.
_FIRST_EVENT_BYTES: Final = 4096
_EXTENSION: Final = "avro"


class _About(NamedTuple):
    """The content of a file's header, or why the file cannot be used; `span` is None for a file of another hub."""

    span: Span | None
    problem: str = ""


def folder_of(hub: ColdHub) -> Path:
    """The folder of a hub's destination."""
    return Path(unquote(urlsplit(hub.url).path))


class FileIndex:
    """Lists the files of hubs; remembers the headers of files that have not changed. Thread rule: one at a time."""

    def __init__(self) -> None:
        self._known: dict[ColdHub, dict[tuple[str, int, int], _About]] = {}

    def list_files(self, hub: ColdHub, without: Collection[ColdFile] = ()) -> ColdFiles:
        """The files of a hub, without some that cannot be read. OSError if the folder cannot be listed."""
        before = self._known.get(hub, {})
        known: dict[tuple[str, int, int], _About] = {}
        found: dict[int, list[ColdFile]] = {}
        unusable: dict[str, str] = {}
        for name, stat in _list_files(hub):
            key = (name, stat.st_size, stat.st_mtime_ns)
            about = known[key] = before.get(key) or _read_about(hub, name)
            if about.problem:
                unusable[name] = about.problem
            elif about.span is not None:
                file = ColdFile(about.span.first, about.span.end, name, stat.st_size, stat.st_mtime_ns)
                if file not in without:
                    found.setdefault(about.span.partition, []).append(file)
        self._known[hub] = known
        coverage = {partition: Coverage.of(in_order(files)) for partition, files in found.items()}
        return ColdFiles(by_partition=coverage, unusable=unusable)


def in_order(files: Sequence[ColdFile]) -> Iterable[ColdFile]:
    """Files in the order of their first events; other threads run meanwhile."""
    return merge(*(sorted(files[at : at + SORTED_AT_ONCE]) for at in range(0, len(files), SORTED_AT_ONCE)))


def _list_files(hub: ColdHub) -> Iterator[tuple[str, os.stat_result]]:
    """The files with names of the hub."""
    names = NameFormat(text=hub.name_format, namespace=hub.namespace, hub=hub.hub, extension=_EXTENSION)
    matches = names.matcher()
    count = 0
    for name, entry in walk_folders(folder_of(hub), {names.prefix()}):
        if name.endswith(f".{_EXTENSION}") and entry.is_file(follow_symlinks=False) and matches(name):
            count += 1
            if count > MAX_FILES:
                raise OSError(f"{hub.url} has more than {MAX_FILES} captured files")
            yield name, entry.stat(follow_symlinks=False)


def _read_about(hub: ColdHub, name: str) -> _About:
    try:
        with open_below(folder_of(hub), name) as file:
            about = AvroLayout(file).about
    except (NotFound, *DAMAGE) as error:
        return _About(None, f"it is not a captured file, or is damaged ({error})")
    text, hub_id = about.get(SPAN_KEY), about.get(HUB_KEY)
    span = None if text is None else Span.parse(text.decode())
    if span is None:
        return _About(None, "it does not say which events it holds")
    is_own = hub_id.decode() == hub.hub_id if hub_id is not None else span.hub_id == hub.capture_id
    return _About(span if is_own else None)


class _Part(NamedTuple):
    """Consecutive blocks of a file, with the events from `first` up to `end`."""

    first: int
    end: int
    blocks: Sequence[AvroBlock]


class FileParts:
    """The parts of one file. Damaged if its layout is not that of a captured file."""

    def __init__(self, file: BinaryIO, span: ColdFile) -> None:
        self._layout = AvroLayout(file)
        self._layout.find_blocks(file)
        groups = list(_group_blocks(block for block in self._layout.blocks if block.events))
        firsts = [_first_event(self._layout, file, group[0]).sequence for group in groups]
        if any(one >= other for one, other in pairwise(firsts)):
            raise Damaged("its blocks are not in order")
        if firsts and not (span.first <= firsts[0] and firsts[-1] < span.end):
            raise Damaged("its events are not those that its header names")
        starts = [span.first, *firsts[1:]] if firsts else []
        ends = [*starts[1:], span.end] if starts else []
        self._parts = [_Part(*each) for each in zip(starts, ends, groups, strict=True)]
        self._starts = starts
        self._span = span

    def load(self, file: BinaryIO, sequence: int, *, is_append_time: bool) -> ColdBlock:
        """The part that covers a sequence number of the span."""
        if not self._parts:
            return seal((), self._span.first, self._span.end)
        part = self._parts[max(bisect_right(self._starts, sequence) - 1, 0)]
        contents = [(self._layout.content(file, block), block.events) for block in part.blocks]
        batches = [TO_BATCHES(content, events, is_append_time) for content, events in contents]
        found = seal(batches, part.first, part.end)
        if found.bases and not (part.first <= found.bases[0] and found.ends[-1] <= part.end):
            raise Damaged("its events are not those that its header names")
        return found

    def first_at(self, file: BinaryIO, wanted: int, value_of: "Callable[[_Event], int]") -> int | None:
        """The first event whose value is at or after the wanted one; values grow from event to event."""
        firsts = [value_of(_first_event(self._layout, file, part.blocks[0])) for part in self._parts]
        for part in self._parts[max(bisect_right(firsts, wanted - 1) - 1, 0) :]:
            for event in self._events(file, part):
                if value_of(event) >= wanted:
                    return event.sequence
        return None

    def first_value(self, file: BinaryIO, value_of: "Callable[[_Event], int]") -> int | None:
        """The value of the first event; None for a file without events."""
        return value_of(_first_event(self._layout, file, self._parts[0].blocks[0])) if self._parts else None

    def _events(self, file: BinaryIO, part: _Part) -> "Iterator[_Event]":
        for block in part.blocks:
            cursor, before = Cursor(self._layout.content(file, block)), None
            for _ in range(block.events):
                before = _read_event(cursor, before)
                if cursor.long():
                    cursor.take(cursor.long())
                yield before


class _Event(NamedTuple):
    """Where and when an event is."""

    sequence: int
    offset: int
    time_ms: int
    text: str


VALUES: Final[dict[Anchor, Callable[[_Event], int]]] = {
    Anchor.TIME: lambda event: event.time_ms,
    Anchor.OFFSET: lambda event: event.offset,
}


def _read_event(cursor: Cursor, before: _Event | None) -> _Event:
    sequence, offset, text = cursor.long(), int(cursor.text()), cursor.text()
    told = cursor.map(cursor.scalar).get(TIME)
    cursor.map(cursor.scalar)
    if isinstance(told, int):
        time_ms = told
    else:
        time_ms = before.time_ms if before is not None and before.text == text else time_of_text(text) * 1000
    return _Event(sequence, offset, time_ms, text)


def _first_event(layout: AvroLayout, file: BinaryIO, block: AvroBlock) -> _Event:
    try:
        return _read_event(Cursor(layout.beginning(file, block, _FIRST_EVENT_BYTES)), None)
    except (Damaged, IndexError):
        # Its properties are longer than that.
        return _read_event(Cursor(layout.content(file, block)), None)


def _group_blocks(blocks: Iterable[AvroBlock]) -> Iterator[list[AvroBlock]]:
    """Blocks in groups of about `PART_BYTES`, at least one each."""
    group: list[AvroBlock] = []
    size_bytes = 0
    for block in blocks:
        if group and size_bytes + block.size_bytes > PART_BYTES:
            yield group
            group, size_bytes = [], 0
        group.append(block)
        size_bytes += block.size_bytes
    if group:
        yield group


OpenFile = tuple[BinaryIO, FileParts]


def find_in_files(
    files: Sequence[ColdFile], position: Position, opened: Callable[[ColdFile], AbstractContextManager[OpenFile]]
) -> int | None:
    """The first event at or after a time or an offset (after it, unless the position is inclusive)."""
    value_of, wanted = VALUES[position.anchor], position.value + (not position.inclusive)
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        with opened(files[middle]) as (file, parts):
            first = parts.first_value(file, value_of)
        # A file without events has no time or offset: the search continues in the files before it.
        low, high = (middle + 1, high) if first is not None and first < wanted else (low, middle)
    for each in files[max(low - 1, 0) :]:
        with opened(each) as (file, parts):
            if (found := parts.first_at(file, wanted, value_of)) is not None:
                return found
    return None
