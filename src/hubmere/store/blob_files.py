"""Bodies of blobs that are too large for a row of the catalog: one file each, named by a random id.

A file is complete and on disk before its name is written to the catalog; a crash in between leaves a file that no row
names, which `delete_unused` removes at the next start. Calls run in one worker thread; callbacks run on the owner's
thread through `post`. Thread rule: the owner's thread only, except the private functions.
"""

import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from hubmere.model.errors import NotSupported, Refusal, StorageFull
from hubmere.store.catalog.blob_records import BodyPart

Post = Callable[[Callable[[], None]], None]
OnSaved = Callable[[BodyPart | Refusal], None]
OnRead = Callable[[bytes | Refusal], None]
T = TypeVar("T")

# Name of the folder in the data folder.
BLOBS_FOLDER = "blobs"
_NAME_BYTES = 16


class BodyStore(Protocol):
    """Storage for the bodies of large blobs."""

    def save(self, body: bytes, on_saved: OnSaved) -> None:
        """Write a body durably; the callback gets its file, or a refusal."""

    def read(self, parts: Sequence[BodyPart], first: int, count: int, on_read: OnRead) -> None:
        """Read `count` bytes from byte `first` of the joined parts; the callback gets them, or a refusal."""

    def delete(self, parts: Iterable[BodyPart]) -> None:
        """Delete files that no row names any more."""

    def close(self) -> None:
        """Wait for running work."""


class BlobFiles:
    """A BodyStore in a folder."""

    def __init__(self, folder: Path, post: Post) -> None:
        self._folder = folder
        self._post = post
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="hubmere-blobs")

    def save(self, body: bytes, on_saved: OnSaved) -> None:
        """Write a body durably; the callback gets its file, or a refusal."""
        self._run(lambda: self._write(body), on_saved)

    def read(self, parts: Sequence[BodyPart], first: int, count: int, on_read: OnRead) -> None:
        """Read `count` bytes from byte `first` of the joined parts; the callback gets them, or a refusal."""
        self._run(lambda: self._read(parts, first, count), on_read)

    def delete(self, parts: Iterable[BodyPart]) -> None:
        """Delete files that no row names any more."""
        names = [part.file for part in parts]
        if names:
            self._worker.submit(self._unlink, names)

    def delete_unused(self, used: Iterable[BodyPart]) -> None:
        """Delete the files that a crash left without a row."""
        names = {part.file for part in used}
        if self._folder.is_dir():
            self._unlink(entry.name for entry in os.scandir(self._folder) if entry.name not in names)

    def close(self) -> None:
        """Wait for running work."""
        self._worker.shutdown()

    def _run(self, work: Callable[[], T], on_done: Callable[[T | Refusal], None]) -> None:
        def run() -> None:
            try:
                result: T | Refusal = work()
            except OSError as error:
                result = StorageFull(f"blobs: {error}")
            self._post(lambda: on_done(result))

        self._worker.submit(run)

    def _write(self, body: bytes) -> BodyPart:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        name = secrets.token_hex(_NAME_BYTES)
        path = self._folder / name
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(fd)
            _sync_folder(self._folder)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return BodyPart(name, len(body))

    def _read(self, parts: Sequence[BodyPart], first: int, count: int) -> bytes:
        pieces: list[bytes] = []
        for part in parts:
            if first < part.size_bytes and count > 0:
                with (self._folder / part.file).open("rb") as file:
                    file.seek(first)
                    pieces.append(file.read(min(count, part.size_bytes - first)))
                count -= len(pieces[-1])
            first = max(0, first - part.size_bytes)
        return b"".join(pieces)

    def _unlink(self, names: Iterable[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)


class MemoryBodies:
    """A BodyStore in memory, for a node that writes nothing to disk. Callbacks run at once."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def save(self, body: bytes, on_saved: OnSaved) -> None:
        """Keep a body."""
        name = secrets.token_hex(_NAME_BYTES)
        self._bodies[name] = body
        on_saved(BodyPart(name, len(body)))

    def read(self, parts: Sequence[BodyPart], first: int, count: int, on_read: OnRead) -> None:
        """Read `count` bytes from byte `first` of the joined parts."""
        on_read(b"".join(self._bodies[part.file] for part in parts)[first : first + count])

    def delete(self, parts: Iterable[BodyPart]) -> None:
        """Forget bodies."""
        for part in parts:
            self._bodies.pop(part.file, None)

    def close(self) -> None:
        """Nothing to wait for."""


class NoBodies:
    """A BodyStore that keeps nothing, for a gateway: it serves blobs that fit into a row of the catalog."""

    def save(self, body: bytes, on_saved: OnSaved) -> None:
        """Refuse a body."""
        on_saved(NotSupported("A gateway of a cluster keeps small blobs only, such as checkpoints."))

    def read(self, parts: Sequence[BodyPart], first: int, count: int, on_read: OnRead) -> None:
        """There is nothing to read."""
        on_read(StorageFull("a gateway has no files"))

    def delete(self, parts: Iterable[BodyPart]) -> None:
        """There is nothing to delete."""

    def close(self) -> None:
        """Nothing to wait for."""


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
