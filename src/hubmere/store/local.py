"""LocalEngine: the logs of a node on a local disk, one directory per partition, one group commit for all.

Files: `<root>/log/<log id>/` with segments as Kafka writes them. `<root>/log/clean-shutdown` says that the last stop
was clean; it is informative, because every log carries its own recovery point. The folder itself is locked by whoever
owns it (`files.acquire_lock`), before an engine is made.
Thread rule: one thread, the owner's, calls everything; `post` is how other threads reach it.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hubmere.model.damage import DamagedRange, DamageKind
from hubmere.model.errors import CorruptBatch, StorageFull
from hubmere.store.catalog.mirror import DESCRIPTION
from hubmere.store.engine import LogConfig, LogId
from hubmere.store.files import MAX_OPEN_FILES, Files, HandlePool, exists, remove_tree, unlink_if_there, write_new
from hubmere.store.log.commit import MAX_SYNC_THREADS, Durability, GroupCommit, Post
from hubmere.store.log.committed_file import COMMITTED, CommittedFile
from hubmere.store.log.log import LocalLog
from hubmere.store.log.segment import LogResources
from hubmere.store.recovery.damage_registry import DamageRegistry

CLEAN_SHUTDOWN = "clean-shutdown"
_NO_LOGS = frozenset({CLEAN_SHUTDOWN, COMMITTED})
# A directory on its way out: renamed first, so that a log of the same id can begin anew at once.
_LEAVING = "-delete"


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
        """`threads` 0 does everything that waits on the caller's thread: for tests and for memory."""
        self._files = files or Files()
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
        self._logs: dict[LogId, LocalLog] = {}
        self._shortage: str | None = None
        self._removals = 0
        self.was_clean = self._start()

    def _start(self) -> bool:
        self._files.make_directory(self._folder)
        self._files.sync_directory(self._folder.parent)
        leaving = [name for name in self._files.names(self._folder) if name.endswith(_LEAVING)]
        for name in leaving:
            remove_tree(self._files, self._folder / name)
        was_clean = exists(self._files, self._folder / CLEAN_SHUTDOWN)
        unlink_if_there(self._files, self._folder / CLEAN_SHUTDOWN)
        self._committed_file.open()
        for log in [name.rpartition(".")[0] for name in leaving]:
            if not exists(self._files, self._folder / log):
                self._committed_file.remove(log)
        self._files.sync_directory(self._folder)
        return was_clean

    def open(self, log: LogId, config: LogConfig) -> LocalLog:
        """Open a partition's log, making it when it is not there; recovers after a crash."""
        known = self._logs.get(log)
        if known is not None:
            return known
        directory = self._folder / log
        try:
            self._files.make_directory(directory)
            self._files.sync_directory(self._folder)
            opened = LocalLog.open(self._resources, self._commit, directory, config)
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        except CorruptBatch as broken:
            kind = DamageKind.BROKEN
            self.damage.report(DamagedRange(log=log, first_sequence=0, next_sequence=0, kind=kind, reason=broken.why))
            raise
        self.damage.forget_opening(log)
        self._logs[log] = opened
        if self._shortage is not None:
            opened.hold_writers(lambda: self._shortage)
        return opened

    def delete(self, log: LogId) -> None:
        """Delete a partition's log and free its files; opening it later starts anew."""
        self.damage.forget(log)
        known = self._logs.pop(log, None)
        if known is not None:
            known.refuse_writers()
            self._commit.flush()
            self._commit.finish_chores()
            known.abandon()
        self._committed_file.remove(log)
        directory = self._folder / log
        if not exists(self._files, directory):
            return
        self._removals += 1
        leaving = self._folder / f"{log}.{self._removals}{_LEAVING}"
        try:
            self._files.rename(directory, leaving)
            self._files.sync_directory(self._folder)
        except OSError as error:
            raise StorageFull(error.strerror or str(error)) from error
        self._commit.run_chore(lambda: remove_tree(self._files, leaving), _left_for_next_start)

    def existing(self) -> Sequence[LogId]:
        """The logs that are there."""
        names = self._files.names(self._folder)
        return [LogId(name) for name in names if name not in _NO_LOGS and not name.endswith((_LEAVING, DESCRIPTION))]

    def maintain(self, now_ms: int) -> None:
        """Now and then: recovery points for logs that went quiet, durable marks, a try to bring failed logs back."""
        for log in self._logs.values():
            log.heal(now_ms)
            log.checkpoint()
        if self._committed_file.is_unsynced:
            self._commit.run_chore(self._committed_file.sync, _left_for_next_time)

    def set_shortage(self, why: str | None) -> None:
        """Refuse appends to every log from now on, or take them again: the disk is full, or has room. Reads go on."""
        self._shortage = why
        if why is not None:
            for log in self._logs.values():
                log.hold_writers(lambda: self._shortage)

    def offline(self) -> Sequence[LogId]:
        """The open logs that take no events until they are verified."""
        return [name for name, log in self._logs.items() if log.is_offline]

    @property
    def open_file_count(self) -> int:
        """Data files held open now."""
        return self._resources.pool.open_count

    def flush(self) -> None:
        """Commit everything written so far and wait for it."""
        self._commit.flush()

    def close(self) -> None:
        """Close every log, sealing indexes, and write the clean-shutdown marker."""
        for log in self._logs.values():
            log.refuse_writers()
        self._commit.flush()
        for log in self._logs.values():
            log.close()
        is_clean = all(log.is_sealed for log in self._logs.values())
        self._logs.clear()
        self._commit.close()
        self._committed_file.close()
        if is_clean:
            with suppress(OSError):  # on a full disk: the next start reads a little more
                self._mark_clean()

    def _mark_clean(self) -> None:
        write_new(self._files, self._folder / CLEAN_SHUTDOWN, b"")
        self._files.sync_directory(self._folder)


def _left_for_next_time(_error: OSError | None) -> None:
    """Marks that are not durable yet are still in the page cache, and are tried again."""


def _left_for_next_start(_error: OSError | None) -> None:
    """A directory that could not be removed now is removed when the node starts again."""
