"""MemoryEngine: the local engine over files in memory, for tests, demos and hubs that need not survive the process.

Nothing is durable; everything else is the code that runs on a disk.
"""

import errno
from pathlib import Path

from hubmere.records.header import Buffer
from hubmere.store.files import Files
from hubmere.store.local import LocalEngine
from hubmere.store.log.commit import Post

_ROOT = Path("/memory")


class MemoryFiles(Files):
    """A file system in memory, with the calls that the store makes. Thread rule: one thread."""

    def __init__(self) -> None:
        self._contents: dict[Path, bytearray] = {}
        self._directories: dict[Path, set[str]] = {}
        self._open: dict[int, bytearray] = {}
        self._next_fd = 1_000_000
        self.write = self._write
        self.pread = self._pread
        self.fdatasync = _ignore_sync
        self.pwrite = self._pwrite
        self.close = self._close

    def open_for_overwriting(self, path: Path) -> int:
        """The same as `open`, with `create`."""
        return self.open(path, create=True)

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:
        """A descriptor of a file in memory."""
        content = self._contents.get(path)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            content = self._contents[path] = bytearray()
            self._directories[path.parent].add(path.name)
        self._next_fd += 1
        self._open[self._next_fd] = content
        return self._next_fd

    def _write(self, fd: int, data: Buffer) -> int:
        self._open[fd] += data
        return len(data)

    def _pread(self, fd: int, size_bytes: int, at: int) -> bytes:
        return bytes(memoryview(self._open[fd])[at : at + size_bytes])

    def _pwrite(self, fd: int, data: Buffer, at: int) -> int:
        content = self._open[fd]
        content.extend(bytes(max(at - len(content), 0)))
        content[at : at + len(data)] = data
        return len(data)

    def _close(self, fd: int) -> None:
        del self._open[fd]

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Truncate a file."""
        del self._open[fd][size_bytes:]

    @property
    def can_sync_file_system(self) -> bool:
        """False: its descriptors are not those of the system."""
        return False

    def file_id(self, fd: int) -> str:
        """Empty: other processes have no access."""
        return ""

    def sync_directory(self, path: Path) -> None:
        """Does nothing: memory is not durable."""

    def size(self, path: Path) -> int:
        """Bytes in a file."""
        if path in self._directories:
            return 0
        return len(self._content(path))

    def read(self, path: Path) -> bytes:
        """A whole file."""
        return bytes(self._content(path))

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return sorted(self._directories[path])

    def make_directory(self, path: Path) -> None:
        """Create a directory."""
        self._directories.setdefault(path, set())
        self._directories.setdefault(path.parent, set()).add(path.name)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or directory."""
        if old in self._directories:
            self._directories[new] = self._directories.pop(old)
            for name in self._directories[new]:
                self._contents[new / name] = self._contents.pop(old / name)
        else:
            self._contents[new] = self._content(old)
            del self._contents[old]
        self._directories[old.parent].discard(old.name)
        self._directories[new.parent].add(new.name)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        self._content(path)
        del self._contents[path]
        self._directories[path.parent].discard(path.name)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        del self._directories[path]
        self._directories[path.parent].discard(path.name)

    def _content(self, path: Path) -> bytearray:
        content = self._contents.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return content


class MemoryEngine(LocalEngine):
    """All logs of a node, in memory."""

    def __init__(self, *, post: Post, defer: Post | None = None) -> None:
        super().__init__(_ROOT, post=post, defer=defer, files=MemoryFiles(), durability="os", threads=0)


def _ignore_sync(_fd: int) -> None:
    """Does nothing: memory is not durable."""
