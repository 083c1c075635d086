"""A simulated disk with faults: a power cut loses contents and names that were not synced, and calls fail on demand.

Contents: `fdatasync` makes the bytes of a file durable. Names: `sync_directory` makes the entries of a directory
durable. Changes of names that were not synced reach the disk in order or not at all, up to a point that the power cut
chooses.
"""

import errno
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from random import Random

from hubmere.records.header import Buffer
from hubmere.store.files import Files

SECTOR_BYTES = 512


class PowerCut(BaseException):
    """The machine has stopped: later calls of the program have no effect. No `except` of the product catches it."""


class Loss(Enum):
    """What happens to bytes and names that were never synced."""

    ALL = "nothing unsynced survives"
    NONE = "everything survives, as after kill -9"
    TORN = "some survives: cut at a byte, zero-filled, or with lost sectors"


class _File:
    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""

    def after_cut(self, loss: Loss, random: Random) -> "_File":
        survivor = _File()
        survivor.content = bytearray(self._remains(loss, random))
        survivor.durable = bytes(survivor.content)
        return survivor

    def _remains(self, loss: Loss, random: Random) -> bytes:
        if loss is Loss.ALL or self.content == self.durable:
            return self.durable
        if loss is Loss.NONE:
            return bytes(self.content)
        if not self.content.startswith(
            self.durable
        ):  # The file was truncated since: the truncation has reached the disk or not.
            return random.choice([self.durable, bytes(self.content)])
        unsynced = self.content[len(self.durable) :]
        return self.durable + bytes(random.choice([_shortened, _zeroed, _with_holes])(unsynced, random))


def _shortened(data: bytearray, random: Random) -> bytearray:
    return data[: random.randint(0, len(data))]


def _zeroed(data: bytearray, random: Random) -> bytearray:
    return data[: random.randint(0, len(data))].ljust(len(data), b"\0")


def _with_holes(data: bytearray, random: Random) -> bytearray:
    holed = bytearray(data)
    for at in range(0, len(data), SECTOR_BYTES):
        if random.random() < 0.5:
            size = len(holed[at : at + SECTOR_BYTES])
            holed[at : at + size] = bytes(size)
    return holed


class _Directory:
    def __init__(self) -> None:
        self.entries: dict[str, _File | _Directory] = {}
        self.history: list[dict[str, _File | _Directory]] = [{}]  # The durable entries, then each change since.

    def changed(self) -> None:
        self.history.append(dict(self.entries))

    def after_cut(self, loss: Loss, random: Random) -> "_Directory":
        reached = {Loss.ALL: 0, Loss.NONE: len(self.history) - 1, Loss.TORN: random.randrange(len(self.history))}
        chosen = self.history[reached[loss]]
        survivor = _Directory()
        survivor.entries = {name: node.after_cut(loss, random) for name, node in chosen.items()}
        survivor.history = [dict(survivor.entries)]
        return survivor


class FaultyFiles(Files):
    """Files on a simulated disk. `calls` counts every call; `cut_at` stops the machine before the effect of a call."""

    def __init__(self, disk: _Directory | None = None) -> None:
        self._disk = disk or _Directory()
        self._open: dict[int, _File] = {}
        self._next_fd = 100
        self.calls = 0
        self.cut_at: int | None = None
        self.is_cut = False
        self.capacity_bytes: int | None = None
        self.fails: Callable[[str], OSError | None] = lambda _call: None
        self.log: list[str] = []
        self.write = self._write
        self.pread = self._pread
        self.fdatasync = self._fdatasync
        self.pwrite = self._pwrite
        self.close = self._close
        self._boots = 0

    def after_cut(self, loss: Loss, seed: int = 0) -> "FaultyFiles":
        """The disk as the next start finds it; with `kill -9` only the process ends, not the machine."""
        survivor = FaultyFiles(self._disk.after_cut(loss, Random(seed)))
        survivor._boots = self._boots + (loss is not Loss.NONE)
        return survivor

    def boot_id(self) -> str:
        return f"boot {self._boots}"

    @property
    def open_count(self) -> int:
        return len(self._open)

    def corrupt(self, path: Path, at: int) -> None:
        """Flip a bit on disk."""
        file = self._file(path)
        file.content[at] ^= 0x10
        file.durable = bytes(file.content)

    def _call(self, name: str) -> None:
        self.calls += 1
        self.log.append(name)
        if self.cut_at is not None and self.calls >= self.cut_at:
            self.is_cut = True
            raise PowerCut
        error = self.fails(name)
        if error is not None:
            raise error

    # --- files ---

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:
        self._call("open")
        parent = self._directory(path.parent)
        if path.name not in parent.entries:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            parent.entries[path.name] = _File()
            parent.changed()
        self._next_fd += 1
        self._open[self._next_fd] = self._file(path)
        return self._next_fd

    def _write(self, fd: int, data: Buffer) -> int:
        self._call("write")
        file, room = self._open[fd], self._room()
        file.content += memoryview(data)[:room]
        if room == 0 and len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return min(room, len(data))

    def open_for_overwriting(self, path: Path) -> int:
        return self.open(path, create=True)

    def _pwrite(self, fd: int, data: Buffer, at: int) -> int:
        self._call("pwrite")
        content = self._open[fd].content
        if at + len(data) - len(content) > self._room():
            raise OSError(errno.ENOSPC, "No space left on device")
        content.extend(bytes(max(at - len(content), 0)))
        content[at : at + len(data)] = data
        return len(data)

    def _room(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 40
        return max(self.capacity_bytes - _used(self._disk), 0)

    def _pread(self, fd: int, size_bytes: int, at: int) -> bytes:
        self._call("pread")
        return bytes(self._open[fd].content[at : at + size_bytes])

    def _fdatasync(self, fd: int) -> None:
        self._call("fdatasync")
        self._open[fd].durable = bytes(self._open[fd].content)

    def _close(self, fd: int) -> None:
        if not self.is_cut:  # A stopped machine closes no files, but generators try to when they are collected.
            self._call("close")
            del self._open[fd]

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._call("truncate")
        del self._open[fd].content[size_bytes:]

    def size(self, path: Path) -> int:
        self._call("size")
        node = self._node(path)
        return len(node.content) if isinstance(node, _File) else 0

    def read(self, path: Path) -> bytes:
        self._call("read")
        return bytes(self._file(path).content)

    @property
    def can_sync_file_system(self) -> bool:
        return True

    def sync_file_system(self, fd: int) -> None:
        self._call("sync_file_system")
        assert fd in self._open
        _sync_all(self._disk)

    # --- names ---

    def sync_directory(self, path: Path) -> None:
        self._call("sync_directory")
        directory = self._directory(path)
        directory.history = [dict(directory.entries)]

    def names(self, path: Path) -> list[str]:
        self._call("names")
        return sorted(self._directory(path).entries)

    def make_directory(self, path: Path) -> None:
        self._call("make_directory")
        parent = self._directory(path.parent)
        if path.name not in parent.entries:
            parent.entries[path.name] = _Directory()
            parent.changed()

    def rename(self, old: Path, new: Path) -> None:
        self._call("rename")
        node = self._node(old)
        source, target = self._directory(old.parent), self._directory(new.parent)
        assert source is target, "the store renames within one directory only"
        del source.entries[old.name]
        source.entries[new.name] = node
        source.changed()

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        self._file(path)
        parent = self._directory(path.parent)
        del parent.entries[path.name]
        parent.changed()

    def remove_directory(self, path: Path) -> None:
        self._call("remove_directory")
        parent = self._directory(path.parent)
        del parent.entries[path.name]
        parent.changed()

    def _node(self, path: Path) -> "_File | _Directory":
        node: _File | _Directory = self._disk
        for part in path.parts[1:]:
            found = node.entries.get(part) if isinstance(node, _Directory) else None
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            node = found
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._node(path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", str(path))
        return node

    def _file(self, path: Path) -> _File:
        node = self._node(path)
        assert isinstance(node, _File), f"{path} is a directory"
        return node


def _used(directory: _Directory) -> int:
    nodes = directory.entries.values()
    return sum(len(node.content) if isinstance(node, _File) else _used(node) for node in nodes)


def _sync_all(directory: _Directory) -> None:
    directory.history = [dict(directory.entries)]
    for node in directory.entries.values():
        if isinstance(node, _Directory):
            _sync_all(node)
        else:
            node.durable = bytes(node.content)
