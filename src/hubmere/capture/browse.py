"""Captured files in folders of this machine, for the portal: lists the files of a hub and opens one.

A listing examines a bounded number of folder entries and returns the newest files. A name is only opened if it is one
that Capture gives to files of the hub, and symbolic links are not followed, so that nothing outside of the destination
can be read. Nothing of Spark is loaded. The reader of a format is imported when a file of that format is opened;
Parquet needs `pyarrow`.
"""

import heapq
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

from hubmere.model.capture.files import CapturedEvents, CapturedHub, FileFilter, FileList, StoredFile
from hubmere.model.capture.targets import is_path_inside
from hubmere.model.entity import CaptureEncoding
from hubmere.model.errors import NotFound, NotSupported
from hubmere.model.extras import install_command
from hubmere.pipeline.capture.files.names import DELTA_FORMAT, EXTENSIONS, NamedWindow, NameFormat

# Entries of folders that one listing examines: some tenths of a second of work.
MAX_ENTRIES: Final = 50_000
# Files that a listing returns: more than a person reads.
MAX_FILES: Final = 1000
_MAX_DEPTH: Final = 32
_PARQUET: Final = ".parquet"


class CapturedFolders:
    """The captured files of a node's own folders (`model.capture.files.CapturedFiles`)."""

    def list_files(self, hub: CapturedHub, wanted: FileFilter) -> FileList:
        """The newest files of a hub that match."""
        root, formats = _folder(hub), _formats(hub)
        newest: list[tuple[int, str, StoredFile]] = []
        examined = 0
        for relative, entry in walk_folders(root, {each.prefix() for each in formats}):
            examined += 1
            if examined > MAX_ENTRIES:
                break
            window = _window(formats, relative) if entry.is_file(follow_symlinks=False) else None
            if window is None or not wanted.matches(window.partition, window.second):
                continue
            size_bytes = entry.stat(follow_symlinks=False).st_size
            file = StoredFile(name=relative, partition=window.partition, second=window.second, size_bytes=size_bytes)
            add = heapq.heappush if len(newest) < MAX_FILES else heapq.heappushpop
            add(newest, (window.second, relative, file))
        files = [file for _, _, file in sorted(newest, reverse=True, key=lambda each: each[:2])]
        return FileList(files=files, is_complete=examined <= MAX_ENTRIES and len(files) < MAX_FILES)

    def open_file(self, hub: CapturedHub, name: str, first: int) -> CapturedEvents:
        """Open a file of a hub."""
        if not is_path_inside(name) or _window(_formats(hub), name) is None:
            raise NotFound(name)
        file = open_below(_folder(hub), name)
        try:
            return (_parquet_events if name.endswith(_PARQUET) else _avro_events)(file, name, first)
        except BaseException:
            file.close()
            raise


def _avro_events(file: BinaryIO, name: str, first: int) -> CapturedEvents:
    from hubmere.pipeline.capture.files.avro_events import AvroEvents

    return AvroEvents(file, name, first)


def _parquet_events(file: BinaryIO, name: str, first: int) -> CapturedEvents:
    try:
        from hubmere.pipeline.capture.files.parquet_events import ParquetEvents
    except ImportError:
        raise NotSupported(
            f"Opening a Parquet file without pyarrow (to add it: {install_command('capture')})"
        ) from None
    return ParquetEvents(file, name, first)


def _folder(hub: CapturedHub) -> Path:
    parts = urlsplit(hub.url)
    if parts.scheme != "file":
        raise NotSupported("Opening captured files outside of the folders of this node")
    return Path(unquote(parts.path))


def _formats(hub: CapturedHub) -> tuple[NameFormat, ...]:
    """The names that files of the hub may have, in every encoding: the hub may have used another one before."""
    chosen = hub.described.destination.archive_name_format
    known = {(chosen, EXTENSIONS[each]) for each in CaptureEncoding} | {
        (DELTA_FORMAT, EXTENSIONS[CaptureEncoding.DELTA])
    }
    return tuple(
        NameFormat(text=text, namespace=hub.namespace, hub=hub.hub, extension=extension)
        for text, extension in sorted(known)
    )


def _window(formats: tuple[NameFormat, ...], name: str) -> NamedWindow | None:
    return next((found for each in formats if (found := each.read(name)) is not None), None)


def walk_folders(root: Path, prefixes: set[str]) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Entries below the folders that the prefixes name, with their paths below the root; the last names first."""
    begin = {prefix.rpartition("/")[0] for prefix in prefixes}
    # A folder inside another one would be walked twice; the root has the empty path.
    waiting = [(top, 0) for top in sorted(begin) if not any(_is_inside(top, other) for other in begin)]
    while waiting:
        folder, depth = waiting.pop()
        for entry in _entries(root / folder):
            relative = f"{folder}/{entry.name}" if folder else entry.name
            yield relative, entry
            if depth < _MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                waiting.append((relative, depth + 1))


def _is_inside(folder: str, other: str) -> bool:
    return folder != other and (not other or folder.startswith(f"{other}/"))


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            return sorted(islice(found, MAX_ENTRIES), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def open_below(root: Path, name: str) -> BinaryIO:
    """Open a file below a folder; symbolic links on the way are refused."""
    try:
        path = root.joinpath(name)
        if path.resolve(strict=True) != root.resolve(strict=True).joinpath(name):
            raise NotFound(name)
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise NotFound(name) from None
