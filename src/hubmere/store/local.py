"""LocalEngine: the logs of a node on a local disk, one directory per partition, one group commit for all.

Files: `<root>/log/<log id>/` with segments in Kafka's format. `<root>/log/clean-shutdown` says that the last stop was
clean; it is informative, because every log has its own recovery point. The node locks the folder
(`files.acquire_lock`) before it creates an engine.
Thread rule: all calls on one thread, the owner's; other threads reach it through `post`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from hubmere.model.errors import ShuttingDown
from hubmere.model.monitoring.histogram import Histogram
from hubmere.store.engine import LogConfig, LogId, OnOpened
from hubmere.store.files import MAX_OPEN_FILES, Files, HandlePool, exists, remove_tree, unlink_if_exists, write_new
from hubmere.store.log.commit import MAX_SYNC_THREADS, Durability, GroupCommit, Post, Workers
from hubmere.store.log.committed_file import COMMITTED, CommittedFile
from hubmere.store.log.log import LocalLog
from hubmere.store.log.resources import LogResources
from hubmere.store.opening import Openings
from hubmere.store.recovery.damage_registry import DamageRegistry
from hubmere.store.recovery.sealing import TOGETHER_FROM_LOGS, seal_together
from hubmere.store.recovery.unrecovered import needs_recovery

_LOGGER = logging.getLogger(__name__)

CLEAN_SHUTDOWN = "clean-shutdown"
# Logs that the periodic upkeep visits in one turn: a recovery point is planned in about ten microseconds.
_MAINTAINED_AT_ONCE = 200
# Logs that are examined between two calls back to the owner.
_FOUND_AT_ONCE = 64
# Suffix of a directory that is being deleted: renamed first, so that a log of the same id can be created at once.
_DELETING = "-delete"


class _Deletion:
    """One log that is being deleted: who wants to know, and the requests to open it again, which wait."""

    __slots__ = ("callbacks", "openings")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.openings: list[tuple[LogConfig, OnOpened]] = []


class LocalEngine:
    """All the logs of a node under one folder."""

    def __init__(
        self,
        root: Path,
        *,
        post: Post,
        defer: Post | None = None,
        files: Files | None = None,
        durability: Durability = "fsync",
        threads: int = MAX_SYNC_THREADS,
        max_open_files: int = MAX_OPEN_FILES,
    ) -> None:
        """With `threads` 0 all disk waits are on the caller's thread: for tests and for memory."""
        self._files = files or Files()
        self._post = post
        self._threads = threads
        self.damage = DamageRegistry()
        self._folder = root / "log"
        self._committed_file = CommittedFile(self._files, self._folder)
        pool = HandlePool(self._files, max_open=max_open_files)
        self._resources = LogResources(self._files, pool, damage=self.damage, committed_file=self._committed_file)
        self._commit = GroupCommit(
            self._files,
            post,
            defer=defer,
            durability=durability,
            threads=threads,
            flush_committed=self._committed_file.flush,
        )
        self._openings = Openings(
            self._folder,
            self._resources,
            self._committed_file,
            self._commit,
            post=post,
            threads=threads,
            on_opened=self._add,
            on_deleted=self._remove_unfinished,
        )
        self._logs: dict[LogId, LocalLog] = {}
        self._deletions: dict[LogId, _Deletion] = {}
        self._is_closed = False
        self._finder = Workers("hubmere-find", min(threads, 1))
        # The logs that have a folder.
        self._existing: set[str] = set()
        self._shortage: str | None = None
        self._removals = 0
        self.was_clean = self._start()

    def _start(self) -> bool:
        self._files.make_directory(self._folder)
        self._files.sync_directory(self._folder.parent)
        deleted = [name for name in self._files.names(self._folder) if name.endswith(_DELETING)]
        for name in deleted:
            remove_tree(self._files, self._folder / name)
        was_clean = exists(self._files, self._folder / CLEAN_SHUTDOWN)
        unlink_if_exists(self._files, self._folder / CLEAN_SHUTDOWN)
        self._existing.update(
            name for name in self._files.names(self._folder) if name not in (COMMITTED, *deleted) and "." not in name
        )
        self._committed_file.open()
        for log in [name.rpartition(".")[0] for name in deleted]:
            if not exists(self._files, self._folder / log):
                self._committed_file.remove(log)
        self._files.sync_directory(self._folder)
        return was_clean

    @property
    def commit_latency(self) -> Histogram:
        """How long appends have waited for their group commit."""
        return self._commit.latency

    def open(self, log: LogId, config: LogConfig, on_opened: OnOpened) -> None:
        """Open a partition's log, or create it, on a worker thread; recovers after a crash."""
        known = self._logs.get(log)
        if known is not None:
            on_opened(known)
        elif self._is_closed:
            on_opened(ShuttingDown())
        elif log in self._deletions:
            self._deletions[log].openings.append((config, on_opened))
        else:
            self._openings.open(log, config, on_opened)

    def exists(self, log: LogId) -> bool:
        """Whether the log has a folder."""
        return log in self._existing

    def find_unrecovered(self, on_found: Callable[[Sequence[LogId]], None]) -> None:
        """After a crash: find the logs that have to be recovered, on a thread of its own."""
        if self.was_clean or not self._existing:
            return
        names = sorted(self._existing)

        def find() -> None:
            for first in range(0, len(names), _FOUND_AT_ONCE):
                if self._is_closed:
                    return
                part = names[first : first + _FOUND_AT_ONCE]
                if found := [LogId(name) for name in part if needs_recovery(self._files, self._folder / name)]:
                    self._post(partial(on_found, found))

        self._finder.ensure_threads(1)
        self._finder.run(find)

    def _add(self, log: LogId, opened: LocalLog) -> None:
        self._logs[log] = opened
        self._existing.add(log)
        if self._shortage is not None:
            opened.hold_writers(lambda: self._shortage)

    def delete(self, log: LogId, on_deleted: Callable[[], None] | None = None) -> None:
        """Delete a partition's log and its files; opening it later creates an empty one.

        1. What is being opened or committed is awaited, without blocking; further appends are refused.
        2. Off the owner's thread, after everything that the log left to be done there, its directory gets another
           name, durably. Then `on_deleted` is called, and openings that waited continue.
        3. The files under the other name are removed; what a crash leaves of them is removed at the next start.
        """
        is_first = log not in self._deletions
        deletion = self._deletions.setdefault(log, _Deletion())
        if on_deleted is not None:
            deletion.callbacks.append(on_deleted)
        if is_first and not self._openings.delete(log):
            self._delete_opened(log)

    def _delete_opened(self, log: LogId) -> None:
        known = self._logs.pop(log, None)
        if known is None:
            self._remove(log)
            return

        def abandon() -> None:
            known.abandon()
            self._remove(log)

        known.refuse_writers()
        self._commit.run_when_flushed(abandon)

    def _remove_unfinished(self, log: LogId) -> None:
        self._existing.add(log)
        self._remove(log)

    def _remove(self, log: LogId) -> None:
        self.damage.forget(log)
        was_used = log in self._existing
        self._existing.discard(log)
        self._committed_file.remove(log)
        if not was_used:
            self._on_removed(log, None)
            return
        self._removals += 1
        renamed = self._folder / f"{log}.{self._removals}{_DELETING}"

        def rename() -> None:
            with suppress(FileNotFoundError):  # the opening ended before it created the directory
                self._files.rename(self._folder / log, renamed)
            self._files.sync_directory(self._folder)

        self._commit.run_in_background(rename, lambda error: self._on_removed(log, error))
        self._commit.run_in_background(lambda: _remove_renamed(self._files, renamed), _remove_at_next_start)

    def _on_removed(self, log: LogId, error: OSError | None) -> None:
        deletion = self._deletions.pop(log)
        if error is not None:
            # `on_deleted` is not called, so the deletion is repeated at the next start.
            _LOGGER.warning("log %s: cannot be deleted now: %s", log, error)
            self._existing.add(log)
        else:
            for callback in deletion.callbacks:
                callback()
        for config, on_opened in deletion.openings:
            self.open(log, config, on_opened)

    def maintain(self, now_ms: int) -> None:
        """Periodic upkeep: write recovery points of idle logs and the committed file, try to reopen offline logs.

        Many logs are visited in several turns of the owner.
        """
        self._maintain_next(iter(list(self._logs.items())), now_ms)

    def _maintain_next(self, logs: Iterator[tuple[LogId, LocalLog]], now_ms: int) -> None:
        visited = 0
        for log, opened in islice(logs, _MAINTAINED_AT_ONCE):
            visited += 1
            if self._logs.get(log) is opened:  # it was not deleted since, and the engine is not closed
                opened.heal(now_ms)
                opened.checkpoint()
        if visited == _MAINTAINED_AT_ONCE:
            self._post(partial(self._maintain_next, logs, now_ms))
        elif self._committed_file.is_unsynced and not self._is_closed:
            self._commit.run_in_background(self._committed_file.sync, _retry_later)

    def set_shortage(self, reason: str | None) -> None:
        """The disk is full: refuse appends to all logs with this reason. None: accept them again. Reads continue."""
        self._shortage = reason
        if reason is not None:
            for log in self._logs.values():
                log.hold_writers(lambda: self._shortage)

    def close(self) -> None:
        """Close all logs, save their indexes, and write the clean-shutdown marker."""
        self._is_closed = True
        self._finder.stop()
        self._openings.close()
        for log in self._logs.values():
            log.refuse_writers()
        self._commit.flush()
        self._seal_all()
        for log in self._logs.values():
            log.close()
        is_clean = all(log.is_sealed for log in self._logs.values())
        self._logs.clear()
        self._commit.close()
        self._committed_file.close()
        if is_clean:
            with suppress(OSError):  # on a full disk: the marker is informative
                self._mark_clean()

    def _seal_all(self) -> None:
        """Write the recovery points of all logs: those of many logs together, a few in threads."""
        self._commit.finish_background()
        points = [point for log in self._logs.values() if (point := log.plan_last_point()) is not None]
        if len(points) >= TOGETHER_FROM_LOGS and self._files.can_sync_file_system:
            seal_together(self._files, self._folder / COMMITTED, points, self._threads)
            return
        sealers = Workers("hubmere-seal", self._threads)
        sealers.ensure_threads(len(points))
        for point in points:
            sealers.run(point.write)
        sealers.stop()

    def _mark_clean(self) -> None:
        write_new(self._files, self._folder / CLEAN_SHUTDOWN, b"")
        self._files.sync_directory(self._folder)


def _retry_later(_error: OSError | None) -> None:
    """The committed file is still in the page cache; the next `maintain` flushes it again."""


def _remove_renamed(files: Files, directory: Path) -> None:
    with suppress(FileNotFoundError):  # it could not be renamed
        remove_tree(files, directory)


def _remove_at_next_start(_error: OSError | None) -> None:
    """A directory that could not be removed now is removed at the next start."""
