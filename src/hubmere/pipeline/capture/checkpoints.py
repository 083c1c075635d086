"""The write-ahead log of a captured hub: the files of each micro-batch, and whether they are published.

    offsets/N   micro-batch N: its files and the windows after them; written before any file
    commits/N   all files of micro-batch N are published

Layout and content are those of a checkpoint of Structured Streaming, with which earlier versions captured: their
checkpoints are continued. An entry is written to a temporary file, synced and renamed, so that it is complete or
absent after a power failure. Earlier versions did not sync all entries. An incomplete newest offset is removed: no file
of it was published. An incomplete commit counts as absent: the micro-batch is repeated, and finds its files.

An offset is never replaced. Two jobs may use one checkpoint for some seconds, if the gateway that runs the first one is
cut off from its cluster. Only one of them decides a micro-batch; the other one fails with NotTheNewest, and continues
with that decision: the same files, with the same names and events, which are published once.
"""

import errno
import json
import logging
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger("hubmere.capture")

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
_VERSION: Final = "v1"
# Entries of each log that are kept. A restart needs the last one; the others are for diagnosis.
_KEPT_BATCHES: Final = 20
# Checksum files that Hadoop wrote for earlier versions: never synced, and not updated with what they describe.
_SUMS: Final = ".*.crc"
# Errors of folders that are not ours: no permission, or a file system without sync.
_NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)
# Roots and checkpoints of one job: one or two for each captured hub.
_MAX_ANCHORED: Final = 4096


class InvalidCheckpoint(Exception):
    """An entry of the log cannot be read; no power failure explains it."""


class NotTheNewest(Exception):
    """Another job has decided this micro-batch or a later one."""


class Recovered(NamedTuple):
    """Where a log ends: the newest micro-batch, its offset, and whether its files are published."""

    batch: int
    offset: dict[str, Any]
    is_committed: bool


class Storage(Protocol):
    """The files of one checkpoint, by names such as `offsets/7`."""

    def entries(self, log_name: str) -> list[int]:
        """The numbers of the entries of a log, in order."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all, and make it durable."""

    def create(self, name: str, data: bytes) -> None:
        """As `write`; raises FileExistsError if there is a file of this name."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""


class BatchLog:
    """The offsets and commits of one hub. Thread rule: one owner."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def recover(self) -> Recovered | None:
        """The end of the log; None if it is empty. A newest offset that is incomplete is removed."""
        batches = self._storage.entries(OFFSETS)
        if batches and self._parse(OFFSETS, batches[-1]) is None:
            log.warning("the offset of micro-batch %d was incomplete and was removed", batches[-1])
            self._storage.delete(f"{OFFSETS}/{batches.pop()}")
        if not batches:
            return None
        offset = self._parse(OFFSETS, batches[-1])
        if offset is None:
            raise InvalidCheckpoint(f"the offset of micro-batch {batches[-1]} cannot be read")
        is_committed = batches[-1] in self._storage.entries(COMMITS) and self._parse(COMMITS, batches[-1]) is not None
        return Recovered(batches[-1], offset, is_committed)

    def add(self, batch: int, offset: dict[str, Any]) -> None:
        """Record the decision of a micro-batch; durable when this returns.

        Raises NotTheNewest if another job was faster. An old entry may have been deleted, but the newest one never is.
        """
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
        name = f"{OFFSETS}/{batch}"
        try:
            self._storage.create(name, _encode(metadata, offset))
        except FileExistsError:
            raise NotTheNewest(f"another capture job has decided micro-batch {batch}") from None
        newest = self._storage.entries(OFFSETS)[-1]
        if newest > batch:
            self._storage.delete(name)
            raise NotTheNewest(f"another capture job has decided micro-batch {newest}")

    def commit(self, batch: int) -> None:
        """Record that all files of a micro-batch are published, and delete old entries."""
        self._storage.write(f"{COMMITS}/{batch}", _encode({"nextBatchWatermarkMs": 0}))
        for log_name in (OFFSETS, COMMITS):
            for old in self._storage.entries(log_name):
                if old <= batch - _KEPT_BATCHES:
                    self._storage.delete(f"{log_name}/{old}")

    def _parse(self, log_name: str, batch: int) -> dict[str, Any] | None:
        """The last line of an entry, which is a JSON object in both logs; None if it is incomplete."""
        lines = self._storage.read(f"{log_name}/{batch}").splitlines()
        try:
            found = json.loads(lines[-1]) if lines else None
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


def _encode(*parts: dict[str, Any]) -> bytes:
    return "\n".join((_VERSION, *(json.dumps(part, separators=(",", ":")) for part in parts))).encode()


# --- where checkpoints are -------------------------------------------------------------------------------------------


def open_storage(context: "SparkContext", location: str) -> "Storage":
    """The storage of a checkpoint: a folder of this machine, or a location of Spark's own file systems."""
    folder = local_folder(location)
    return HadoopStorage(context, location) if folder is None else LocalStorage(folder)


def local_folder(location: str) -> Path | None:
    """The folder of a location on this machine; None for one that only Spark's file systems know."""
    parts = urlsplit(location)
    if parts.scheme == "":
        return Path(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


class LocalStorage:
    """See `Storage`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for log_name in (OFFSETS, COMMITS):
            anchor(folder / log_name)
            for path in (folder / log_name).glob(_SUMS):
                path.unlink()

    def entries(self, log_name: str) -> list[int]:
        """The numbers of the entries of a log."""
        return sorted(int(path.name) for path in (self._folder / log_name).iterdir() if path.name.isdigit())

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return (self._folder / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Write aside, sync, rename, sync the folder."""
        path = self._folder / name
        self._write_aside(path, data).replace(path)
        synchronise(path.parent)

    def create(self, name: str, data: bytes) -> None:
        """Write aside, sync, link, which fails if the name is taken, sync the folder."""
        path = self._folder / name
        aside = self._write_aside(path, data)
        try:
            os.link(aside, path)
        finally:
            aside.unlink()
        synchronise(path.parent)

    def _write_aside(self, path: Path, data: bytes) -> Path:
        aside = path.with_name(f".{path.name}.{uuid4().hex}.new")
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return aside

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self._folder / name).unlink(missing_ok=True)


class HadoopStorage:
    """See `Storage`; uses the file systems that Spark's JVM knows, such as `hdfs:` and `s3a:`."""

    def __init__(self, context: "SparkContext", location: str) -> None:
        jvm: Any = context._jvm
        self._to_path = jvm.org.apache.hadoop.fs.Path
        self._root = location
        self._files = self._to_path(location).getFileSystem(context._jsc.hadoopConfiguration())

    def entries(self, log_name: str) -> list[int]:
        """The numbers of the entries of a log."""
        path = self._path(log_name)
        if not self._files.exists(path):
            return []
        names = [status.getPath().getName() for status in self._files.listStatus(path)]
        return sorted(int(name) for name in names if name.isdigit())

    def read(self, name: str) -> bytes:
        """The content of a file."""
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Write aside and rename."""
        aside, path = self._write_aside(name, data), self._path(name)
        if not self._files.rename(aside, path):
            raise OSError(f"cannot rename {aside} to {path}")

    def create(self, name: str, data: bytes) -> None:
        """Write aside and rename, which does not replace a file."""
        path = self._path(name)
        if self._files.exists(path):
            raise FileExistsError(name)
        aside = self._write_aside(name, data)
        if not self._files.rename(aside, path):
            self._files.delete(aside, False)
            raise FileExistsError(name)

    def _write_aside(self, name: str, data: bytes) -> Any:
        folder, _, last = name.rpartition("/")
        aside = self._path(f"{folder}/.{last}.{uuid4().hex}.new")
        stream = self._files.create(aside, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        return aside

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._files.delete(self._path(name), False)

    def _path(self, name: str) -> Any:
        return self._to_path(f"{self._root}/{name}")


# --- durable folders -------------------------------------------------------------------------------------------------


def synchronise(path: Path) -> None:
    """Make a file's bytes, or the names in a folder, durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def anchor(folder: Path) -> None:
    """Create a folder and make it and its parents durable: a file is lost if its folder is."""
    folder.mkdir(parents=True, exist_ok=True)
    _synchronise_parents(folder)


@lru_cache(_MAX_ANCHORED)
def _synchronise_parents(folder: Path) -> None:
    for above in folder.absolute().parents:
        try:
            synchronise(above)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            return
