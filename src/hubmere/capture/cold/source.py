"""Reads captured files on threads of its own, for the broker (`model.capture.cold.ColdSource`).

A few threads serve all hubs, so that many readers of old events leave enough CPU time to readers of new ones; the
threads hold the interpreter's lock only for short times. Listings run one at a time. What reads the files is imported
when the first of them is needed, which never happens on most nodes. A result that arrives after the event loop has
ended is dropped.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from hubmere.model.capture.cold import ColdFile, ColdHub, OnBlock, OnFiles, OnFound
from hubmere.model.errors import Refusal
from hubmere.model.position import Position

if TYPE_CHECKING:
    from hubmere.capture.cold.folders import FolderReader

# Threads that read parts of files, of all hubs together.
_READERS: Final = 2

T = TypeVar("T")


class CapturedSource:
    """The captured files of a node's own folders. Thread rule: the event loop's thread; `close` at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._lock = Lock()
        self._reader: FolderReader | None = None

    def list_files(self, hub: ColdHub, without: Collection[ColdFile], on_listed: OnFiles) -> None:
        """List the files of a hub with their spans, without some that cannot be read."""
        left_out = frozenset(without)
        self._run(self._pool("cold-list", 1), lambda: self._folders.list_files(hub, left_out), on_listed)

    def load(self, hub: ColdHub, file: ColdFile, sequence: int, on_loaded: OnBlock) -> None:
        """Read the part of a file that covers a sequence number of its span."""
        self._run(self._pool("cold-read", _READERS), lambda: self._folders.load(hub, file, sequence), on_loaded)

    def find(self, hub: ColdHub, files: Sequence[ColdFile], position: Position, on_found: OnFound) -> None:
        """Look up a time or an offset in files."""
        wanted = tuple(files)
        self._run(self._pool("cold-read", _READERS), lambda: self._folders.find(hub, wanted, position), on_found)

    def close(self) -> None:
        """End the threads; what they are doing is finished first."""
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)

    def _pool(self, name: str, threads: int) -> ThreadPoolExecutor:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = ThreadPoolExecutor(threads, thread_name_prefix=name)
        return pool

    @property
    def _folders(self) -> "FolderReader":
        """What reads the files; made on the first thread that needs it."""
        with self._lock:
            if self._reader is None:
                from hubmere.capture.cold.folders import FolderReader

                self._reader = FolderReader()
            return self._reader

    def _run(
        self, pool: ThreadPoolExecutor, work: Callable[[], T | Refusal], on_done: Callable[[T | Refusal], None]
    ) -> None:
        def run() -> None:
            answer = work()
            # The loop ends before the threads when a node is stopped.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(on_done, answer)

        pool.submit(run)
