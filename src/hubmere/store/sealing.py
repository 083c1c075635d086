"""Seals many logs at once when a node stops: few flushes of the file system in place of several for each log.

A recovery point waits for the disk five times, so the stop of a node with thousands of used partitions would take
seconds. Instead:

1. Every log writes its index entries and its recovery point to files that do not count yet. Nothing is flushed, and
   what would make them count (a new name, a removed file) is noted.
2. One flush of the file system makes all of this durable.
3. The names are changed and the files removed; one more flush makes that durable.

A crash before step 3 leaves the earlier recovery points in force, one during it some of them.
"""

from collections.abc import Callable
from pathlib import Path

from hubmere.store.files import Files


class UnflushedFiles(Files):
    """Writes without waiting for the disk; notes changes of names for `finish`. May be called from any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._changes: list[Callable[[], None]] = []
        self.write = files.write
        self.close = files.close
        self.fdatasync = _do_nothing

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:
        """Open a file, as before."""
        return self._files.open(path, create=create, write=write)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Truncate an open file, as before."""
        self._files.truncate(fd, size_bytes)

    def names(self, path: Path) -> list[str]:
        """The names in a directory, as before."""
        return self._files.names(path)

    def sync_directory(self, path: Path) -> None:
        """Do nothing: `finish` flushes the file system."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename at `finish`."""
        self._changes.append(lambda: self._files.rename(old, new))

    def unlink(self, path: Path) -> None:
        """Remove at `finish`."""
        self._changes.append(lambda: self._files.unlink(path))

    def finish(self, on_same_file_system: Path) -> None:
        """Make everything durable, then the changes of names; raises OSError."""
        fd = self._files.open(on_same_file_system)
        try:
            self._files.sync_file_system(fd)
            for change in self._changes:
                change()
            self._files.sync_file_system(fd)
        finally:
            self._files.close(fd)


def _do_nothing(_fd: int) -> None:
    """`finish` flushes the file system."""
