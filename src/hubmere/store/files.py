"""Every call to the operating system: the one seam through which tests break the disk.

`Files` is stateless and may be called from any thread; its calls raise `OSError` and nothing else. Nothing here knows
what is inside a file. Names are made durable by `sync_directory`, contents by `fdatasync`: a caller that needs both
says both, in that order of need (a file is synced before the name under which it will be looked for).
"""

import contextlib
import ctypes
import fcntl
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from hubmere.records.header import Buffer

# Open data files at once. Half of the customary limit of 1,024 descriptors, so that sockets and the catalog have room;
# logs beyond it are opened again when they are used.
MAX_OPEN_FILES = 512
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Files:
    """The machine's own files."""

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:
        """A descriptor that reads anywhere and, if asked, appends at the end."""
        flags = os.O_RDWR | os.O_APPEND if write or create else os.O_RDONLY
        return os.open(path, flags | (os.O_CREAT if create else 0), 0o640)

    def open_for_overwriting(self, path: Path) -> int:
        """A descriptor for `pwrite`, of a file that is made when it is not there."""
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o640)

    # Bound straight to the system call: these are on the path of every event.
    write: Callable[[int, Buffer], int] = staticmethod(os.write)
    pread: Callable[[int, int, int], bytes] = staticmethod(os.pread)
    fdatasync: Callable[[int], None] = staticmethod(getattr(os, "fdatasync", os.fsync))
    pwrite: Callable[[int, Buffer, int], int] = staticmethod(os.pwrite)
    close: Callable[[int], None] = staticmethod(os.close)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut an open file; what lies beyond is gone."""
        os.ftruncate(fd, size_bytes)

    @property
    def can_sync_file_system(self) -> bool:
        """Whether `sync_file_system` is there and reports errors."""
        return _SYNCFS is not None

    def sync_file_system(self, fd: int) -> None:
        """Make everything written to the file system of `fd` durable with one call."""
        assert _SYNCFS is not None
        if _SYNCFS(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable: what was created, renamed or unlinked there."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def size(self, path: Path) -> int:
        """Bytes in a file; FileNotFoundError when it is not there."""
        return path.stat().st_size

    def read(self, path: Path) -> bytes:
        """A whole small file."""
        return path.read_bytes()

    def names(self, path: Path) -> list[str]:
        """What a directory holds, sorted; FileNotFoundError when it is not there."""
        return sorted(os.listdir(path))  # noqa: PTH208  names, not paths, a thousand at a time

    def make_directory(self, path: Path) -> None:
        """Create a directory; its parent is there, it may be there already."""
        path.mkdir(exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name at once, over what had that name."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove a file's name; the file goes with its last reader."""
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def boot_id(self) -> str:
        """Names the current boot of the machine, empty where it cannot be asked; a new one may have lost writes."""
        try:
            return _BOOT_ID.read_text("ascii").strip()
        except (OSError, ValueError):
            return ""

    def free_bytes(self, path: Path) -> int:
        """Room that is left for us on the file system of a path."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: Path) -> int:
        """Size of the file system of a path."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize


def _load_syncfs() -> Callable[[int], int] | None:
    # Before Linux 5.8 syncfs did not report failed writes: not to be trusted with a commit.
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
    """Whether a file is there."""
    try:
        files.size(path)
    except FileNotFoundError:
        return False
    return True


def write_all(files: Files, fd: int, data: Buffer) -> None:
    """Append everything, also when the system takes it in pieces."""
    view = memoryview(data)
    while len(view):
        view = view[files.write(fd, view) :]


def write_new(files: Files, path: Path, data: Buffer) -> None:
    """A file with exactly this content, durable; its name is not yet."""
    fd = files.open(path, create=True)
    try:
        files.truncate(fd, 0)
        write_all(files, fd, data)
        files.fdatasync(fd)
    finally:
        files.close(fd)


def append_at(files: Files, path: Path, at: int, data: Buffer) -> None:
    """Make a file end with `data` from a place on, durable: a second try after a crash writes the same bytes."""
    fd = files.open(path, create=True)
    try:
        files.truncate(fd, at)
        write_all(files, fd, data)
        files.fdatasync(fd)
    finally:
        files.close(fd)


def replace_file(files: Files, path: Path, data: Buffer) -> None:
    """Put new content under a name so that a crash leaves the old or the new, never a mixture."""
    fresh = path.with_name(path.name + ".tmp")
    write_new(files, fresh, data)
    files.rename(fresh, path)
    files.sync_directory(path.parent)


def unlink_if_there(files: Files, path: Path) -> None:
    """Remove a file that may be gone already."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        return


def remove_tree(files: Files, path: Path) -> None:
    """Remove a directory and the files in it; a log's directory has no directories below it."""
    for name in files.names(path):
        files.unlink(path / name)
    files.remove_directory(path)


class Handle:
    """One data file that is opened when it is used and may be closed in between by its pool.

    Thread rule: the owner's thread only. A descriptor that is handed to another thread is pinned meanwhile.
    """

    __slots__ = ("_pool", "fd_or_closed", "is_recent", "is_unsynced", "path", "pins", "sync_error", "writes")

    def __init__(self, pool: "HandlePool", path: Path, *, writes: bool) -> None:
        self._pool = pool
        self.path = path
        self.writes = writes
        self.fd_or_closed = -1
        self.is_recent = False
        self.is_unsynced = False
        self.sync_error: OSError | None = None  # the system reports a failed sync once: it is kept for the next commit
        self.pins = 0

    def fd(self) -> int:
        """The descriptor, opened again if the pool had closed it."""
        self.is_recent = True
        if self.fd_or_closed < 0:
            self._pool.open(self)
        return self.fd_or_closed

    def close(self) -> None:
        """Let the descriptor go; the next use opens it again."""
        self._pool.close(self)


class HandlePool:
    """Keeps the number of open data files below a cap, by second chance among those not used lately.

    A file with unsynced writes is synced before its descriptor goes: an error of the write-back would otherwise be
    reported to nobody. Thread rule: the owner's thread only.
    """

    def __init__(self, files: Files, *, max_open: int = MAX_OPEN_FILES) -> None:
        self._files = files
        self._max_open = max_open
        self._open: deque[Handle] = deque()

    @property
    def open_count(self) -> int:
        """Descriptors held now."""
        return len(self._open)

    def handle(self, path: Path, *, writes: bool = False) -> Handle:
        """A handle for a file that is there; nothing is opened yet."""
        return Handle(self, path, writes=writes)

    def open(self, handle: Handle) -> None:
        """Open a handle's file, closing the least used one when there are too many."""
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
        # Three rounds: take away second chances, sync, close. When all are pinned the cap gives way, not the caller.
        for _ in range(3 * len(self._open)):
            handle = self._open[0]
            if handle.pins or handle.is_recent or handle.sync_error:
                handle.is_recent = False
                self._open.rotate(-1)
            elif handle.is_unsynced:
                self._sync(handle)
            else:
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
    """The exclusive right to a data folder, held until released or until the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Give the folder up."""
        os.close(self._fd)


class FolderInUse(Exception):
    """Another process works on the data folder."""

    def __init__(self, path: Path, pid: str) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        """What to tell the operator."""
        return f"The data folder '{self.path}' is in use by process {self.pid}; stop it first or use another folder."


def acquire_lock(folder: Path) -> Lock:
    """Lock a data folder for this process; raises FolderInUse naming the process that has it."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as refused:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise FolderInUse(folder, holder) from refused
    # On a full disk the folder is locked all the same; only the name of the process is missing.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode("ascii"))
    return Lock(fd)
