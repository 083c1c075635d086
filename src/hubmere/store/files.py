"""All file system calls of the store, in one class that tests replace to inject faults.

`Files` is stateless and may be called from any thread; its calls raise only `OSError`. Nothing here knows the content
of a file. `fdatasync` makes content durable, `sync_directory` makes names durable. A caller that needs both calls both,
content first.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
from collections import deque
from collections.abc import Callable
from pathlib import Path

from hubmere.records.header import Buffer

# Open data files where the limit on descriptors is the usual one of 1,024; files beyond it are opened again when they
# are used. The node asks `max_open_files`.
MAX_OPEN_FILES = 512
# The part of the descriptors that data files may take; the rest is for sockets and the catalog.
_DATA_PART = 2
# Files with writes that no commit has flushed yet stay open beyond the limit, up to half as many again.
_UNSYNCED_PART = 2
# Files that one opening looks at to find some that can be closed; the next opening continues there.
_EXAMINED = 64
# Enough for every partition of a large node; the kernel allows a million descriptors and more.
_MOST_OPEN_FILES = 65_536
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Files:
    """The file system of the machine."""

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:
        """Open a file for reading, or, with `write` or `create`, for reading and appending."""
        flags = os.O_RDWR | os.O_APPEND if write or create else os.O_RDONLY
        return os.open(path, flags | (os.O_CREAT if create else 0), 0o640)

    def open_for_overwriting(self, path: Path) -> int:
        """Open a file for `pwrite`; creates it if it does not exist."""
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o640)

    # Bound directly to the system calls: these are on the path of every event.
    write: Callable[[int, Buffer], int] = staticmethod(os.write)
    pread: Callable[[int, int, int], bytes] = staticmethod(os.pread)
    fdatasync: Callable[[int], None] = staticmethod(getattr(os, "fdatasync", os.fsync))
    pwrite: Callable[[int, Buffer, int], int] = staticmethod(os.pwrite)
    close: Callable[[int], None] = staticmethod(os.close)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Truncate an open file."""
        os.ftruncate(fd, size_bytes)

    @property
    def can_sync_file_system(self) -> bool:
        """Whether `sync_file_system` is available and reports errors."""
        return _SYNCFS is not None

    def sync_file_system(self, fd: int) -> None:
        """Flush everything written to the file system of `fd` with one call."""
        assert _SYNCFS is not None
        if _SYNCFS(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def sync_directory(self, path: Path) -> None:
        """Make created, renamed and unlinked names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def size(self, path: Path) -> int:
        """Size of a file; FileNotFoundError if it does not exist."""
        return path.stat().st_size

    def read(self, path: Path) -> bytes:
        """A whole small file."""
        return path.read_bytes()

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted; FileNotFoundError if it does not exist."""
        return sorted(os.listdir(path))  # noqa: PTH208  names, not paths, a thousand at a time

    def make_directory(self, path: Path) -> None:
        """Create a directory if it does not exist; its parent must exist."""
        path.mkdir(exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or directory atomically, replacing what had that name."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def boot_id(self) -> str:
        """Identifier of the machine's current boot; empty if unknown. A reboot may have lost unflushed writes."""
        try:
            return _BOOT_ID.read_text("ascii").strip()
        except (OSError, ValueError):
            return ""

    def file_id(self, fd: int) -> str:
        """Device and inode of an open file; empty if other processes cannot open it."""
        found = os.fstat(fd)
        return f"{found.st_dev}:{found.st_ino}"

    def free_bytes(self, path: Path) -> int:
        """Free bytes on the file system of a path."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: Path) -> int:
        """Size of the file system of a path."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize


def max_open_files() -> int:
    """How many data files this process may keep open; raises its soft limit on descriptors as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else _DATA_PART * _MOST_OPEN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    limit = wanted if soft == resource.RLIM_INFINITY else soft
    return max(min(limit // _DATA_PART, _MOST_OPEN_FILES), 1)


def _load_syncfs() -> Callable[[int], int] | None:
    # Before Linux 5.8 syncfs did not report failed writes, so a commit cannot rely on it.
    release = os.uname().release.split("-")[0].split(".")[:2]
    if os.uname().sysname != "Linux" or tuple(int(part) for part in release if part.isdigit()) < (5, 8):
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int]
    function.restype = ctypes.c_int
    return function


_SYNCFS = _load_syncfs()


def exists(files: Files, path: Path) -> bool:
    """Whether a file exists."""
    try:
        files.size(path)
    except FileNotFoundError:
        return False
    return True


def write_all(files: Files, fd: int, data: Buffer) -> None:
    """Append all bytes, with several writes if necessary."""
    view = memoryview(data)
    while len(view):
        view = view[files.write(fd, view) :]


def write_new(files: Files, path: Path, data: Buffer, *, is_durable: bool = True) -> None:
    """Write a file with exactly this content, durably unless told otherwise; its name is not durable yet."""
    fd = files.open(path, create=True)
    try:
        files.truncate(fd, 0)
        write_all(files, fd, data)
        if is_durable:
            files.fdatasync(fd)
    finally:
        files.close(fd)


def append_at(files: Files, path: Path, at: int, data: Buffer, *, is_durable: bool = True) -> None:
    """Truncate a file at `at` and append `data`, durably unless told otherwise; a retry gives the same file."""
    fd = files.open(path, create=True)
    try:
        files.truncate(fd, at)
        write_all(files, fd, data)
        if is_durable:
            files.fdatasync(fd)
    finally:
        files.close(fd)


def replace_file(files: Files, path: Path, data: Buffer) -> None:
    """Replace a file atomically and durably: a crash leaves the old or the new content."""
    fresh = path.with_name(path.name + ".tmp")
    write_new(files, fresh, data)
    files.rename(fresh, path)
    files.sync_directory(path.parent)


def unlink_if_exists(files: Files, path: Path) -> None:
    """Remove a file if it exists."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        return


def remove_tree(files: Files, path: Path) -> None:
    """Remove a directory and the files in it; it must have no subdirectories."""
    for name in files.names(path):
        files.unlink(path / name)
    files.remove_directory(path)


class Handle:
    """One data file that is opened on use and that its pool may close in between.

    Thread rule: the owner's thread only. A descriptor that another thread uses is pinned meanwhile.
    """

    __slots__ = (
        "_pool", "before_sync", "fd_or_closed", "is_recent", "is_unsynced", "path", "pins", "sync_error", "writes",
    )  # fmt: skip

    def __init__(self, pool: "HandlePool", path: Path, *, writes: bool) -> None:
        self._pool = pool
        self.path = path
        self.writes = writes
        self.fd_or_closed = -1
        self.is_recent = False
        self.is_unsynced = False
        self.sync_error: OSError | None = None  # the system reports a failed sync once; kept for the next commit
        self.pins = 0
        # Makes the name of the file durable, on any thread, before its content; None once that has been done.
        self.before_sync: Callable[[], None] | None = None

    def fd(self) -> int:
        """The descriptor; opens the file if the pool has closed it."""
        self.is_recent = True
        if self.fd_or_closed < 0:
            self._pool.open(self)
        return self.fd_or_closed

    def close(self) -> None:
        """Close the descriptor; the next use opens it again."""
        self._pool.close(self)

    def move_to(self, pool: "HandlePool") -> None:
        """Close the descriptor, and count towards another pool from now on."""
        self._pool.close(self)
        self._pool = pool


class HandlePool:
    """Limits the number of open data files; closes files that were not used recently (second-chance algorithm).

    A file with writes that no commit has flushed yet stays open, because a write-back error would be lost with its
    descriptor. The next commit flushes it, on a thread, so the limit is exceeded for a moment only. Only a pool that is
    half above its limit flushes a file itself, on the owner's thread: that needs more unflushed partitions than a
    quarter of the descriptors that the system allows.
    Thread rule: the owner's thread only.
    """

    def __init__(self, files: Files, *, max_open: int = MAX_OPEN_FILES) -> None:
        self._files = files
        self._max_open = max_open
        self._most_open = max_open + max_open // _UNSYNCED_PART
        self._open: deque[Handle] = deque()

    def handle(self, path: Path, *, writes: bool = False) -> Handle:
        """A handle for an existing file; does not open it yet."""
        return Handle(self, path, writes=writes)

    def open(self, handle: Handle) -> None:
        """Open a handle's file; closes others if too many are open."""
        if len(self._open) >= self._max_open:
            self._make_room()
        handle.fd_or_closed = self._files.open(handle.path, write=handle.writes)
        self._open.append(handle)

    def close(self, handle: Handle) -> None:
        """Close one handle now."""
        if handle.fd_or_closed >= 0:
            self._open.remove(handle)
            fd, handle.fd_or_closed = handle.fd_or_closed, -1
            self._files.close(fd)

    def close_all(self) -> None:
        """Close every handle now."""
        while self._open:
            self.close(self._open[0])

    def _make_room(self) -> None:
        """Close files until there is room for one more, as far as a part of the open files allows it."""
        for _ in range(_EXAMINED):
            handle = self._open[0]
            if handle.pins or handle.is_recent or handle.is_unsynced or handle.sync_error:
                handle.is_recent = False
                self._open.rotate(-1)
                continue
            self.close(handle)
            if len(self._open) < self._max_open:
                return
        if len(self._open) >= self._most_open:
            self._sync_and_close_one()

    def _sync_and_close_one(self) -> None:
        # If all files are pinned, the limit is exceeded: their commit is running.
        for handle in self._open:
            if handle.is_unsynced and not handle.pins and not handle.sync_error:
                self._sync(handle)
                if not handle.sync_error:
                    self.close(handle)
                    return

    def _sync(self, handle: Handle) -> None:
        try:
            self._files.fdatasync(handle.fd_or_closed)
        except OSError as error:
            handle.sync_error = error
        else:
            handle.is_unsynced = False


class Lock:
    """An exclusive lock on a data folder, held until `release` or until the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock."""
        os.close(self._fd)


class FolderInUse(Exception):
    """Another process uses the data folder."""

    def __init__(self, path: Path, pid: str) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        """The message for the operator."""
        return f"The data folder '{self.path}' is in use by process {self.pid}; stop it first or use another folder."


def acquire_lock(folder: Path) -> Lock:
    """Lock a data folder for this process; raises FolderInUse with the id of the process that has it."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as refused:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise FolderInUse(folder, holder) from refused
    # On a full disk the folder is locked anyway; only the process id is missing.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode("ascii"))
    return Lock(fd)
