"""Opens logs on worker threads: directory, recovery and new files, which all wait for the disk.

1. `open` notes the request; one that is under way for the same log is shared.
2. A worker thread creates the directory if necessary, recovers the log with resources of its own, and posts.
3. On the owner's thread the log moves to the engine's resources, and every caller is answered.

Thread rule: the owner's thread only, except `_Opening.work`.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hubmere.model.errors import CorruptBatch, PartitionOffline, Refusal, ShuttingDown, StorageFull
from hubmere.model.monitoring.damage import DamagedRange, DamageKind
from hubmere.store.engine import LogConfig, LogId, OnOpened
from hubmere.store.log.commit import GroupCommit, Post, Workers
from hubmere.store.log.committed_file import CommittedFile
from hubmere.store.log.log import LocalLog
from hubmere.store.log.resources import LogResources
from hubmere.store.recovery.recovery import RecoveredLog

_LOGGER = logging.getLogger(__name__)

# Logs that are opened at once. Creating a log waits for the disk six times, recovering one uses the processor; more
# threads would take the interpreter away from the event loop.
MAX_OPEN_THREADS = 4


class _Opening:
    """One log that is being opened."""

    __slots__ = (
        "_committed_file",
        "_is_cancelled",
        "_shared_resources",
        "callbacks",
        "config",
        "directory",
        "is_deleted",
        "is_finished",
        "log",
        "recovered",
        "refusal",
        "slot",
    )

    def __init__(
        self, log: LogId, config: LogConfig, directory: Path, resources: LogResources, committed_file: CommittedFile
    ) -> None:
        self.log = log
        self.config = config
        self.directory = directory
        self.slot = committed_file.slot(log)
        self._committed_file = committed_file
        self._shared_resources = resources
        self._is_cancelled = False
        self.callbacks: list[OnOpened] = []
        self.recovered: RecoveredLog | None = None
        self.refusal: Refusal | None = None
        self.is_finished = False
        self.is_deleted = False

    def cancel(self) -> None:
        """Do not begin if no worker has begun yet."""
        self._is_cancelled = True

    def work(self) -> None:
        """Create or recover the log; on a worker thread."""
        resources = self._shared_resources.for_opening()
        try:
            if self._is_cancelled:
                raise ShuttingDown
            self.recovered = self._recover(resources)
        except Refusal as refusal:
            self.refusal = refusal
        except OSError as error:
            self.refusal = StorageFull(error.strerror or str(error))
        except Exception as error:  # the top of a thread: callers must get an answer
            _LOGGER.exception("log %s: cannot be opened", self.log)
            self.refusal = PartitionOffline(type(error).__name__)
        with suppress(OSError):  # nothing was written through these descriptors that is not flushed
            resources.pool.close_all()

    def _recover(self, resources: LogResources) -> RecoveredLog:
        files = resources.files
        files.make_directory(self.directory)
        files.sync_directory(self.directory.parent)
        return LocalLog.recover(
            resources,
            self.directory,
            self.config,
            committed=self.slot.previous,
            is_same_boot=self._committed_file.is_same_boot,
        )


class Openings:
    """The logs of an engine that are being opened. With `threads` 0 each is opened inside the call."""

    def __init__(
        self,
        folder: Path,
        resources: LogResources,
        committed_file: CommittedFile,
        commit: GroupCommit,
        *,
        post: Post,
        threads: int,
        on_opened: Callable[[LogId, LocalLog], None],
        on_deleted: Callable[[LogId], None],
    ) -> None:
        """`on_opened` gets each log before the requests for it do; `on_deleted` deletes one that was not finished."""
        self._folder = folder
        self._resources = resources
        self._committed_file = committed_file
        self._commit = commit
        self._post = post
        self._workers = Workers("hubmere-open", min(threads, MAX_OPEN_THREADS))
        self._on_opened = on_opened
        self._on_deleted = on_deleted
        self._openings: dict[LogId, _Opening] = {}

    def open(self, log: LogId, config: LogConfig, on_opened: OnOpened) -> None:
        """Open a log that is not open, and call `on_opened` with the log or a refusal."""
        opening = self._openings.get(log)
        if opening is None:
            opening = self._openings[log] = _Opening(
                log, config, self._folder / log, self._resources, self._committed_file
            )
            opening.callbacks.append(on_opened)
            self._start(opening)
        else:
            opening.callbacks.append(on_opened)

    def _start(self, opening: _Opening) -> None:
        if not self._workers.limit:
            opening.work()
            self._finish(opening)
            return

        def work() -> None:
            opening.work()
            self._post(lambda: self._finish(opening))

        self._workers.ensure_threads(len(self._openings))
        self._workers.run(work)

    def _finish(self, opening: _Opening) -> None:
        if opening.is_finished:
            return
        opening.is_finished = True
        del self._openings[opening.log]
        answer: LocalLog | Refusal
        if opening.is_deleted:
            answer = PartitionOffline("it was deleted")
            self._on_deleted(opening.log)
        elif opening.recovered is None:
            answer = self._refuse(opening)
        else:
            answer = self._build(opening, opening.recovered)
        for callback in opening.callbacks:
            try:
                callback(answer)
            except Exception:  # one caller's error must not affect the others
                _LOGGER.exception("log %s: the callback of its opening failed", opening.log)

    def _build(self, opening: _Opening, recovered: RecoveredLog) -> LocalLog:
        recovered.segments.move_to(self._resources)
        opened = LocalLog(self._resources, self._commit, opening.config, recovered, opening.slot)
        if self._resources.damage is not None:
            self._resources.damage.forget_failed_open(opening.log)
        self._on_opened(opening.log, opened)
        return opened

    def _refuse(self, opening: _Opening) -> Refusal:
        refusal, damage = opening.refusal, self._resources.damage
        assert refusal is not None
        if isinstance(refusal, CorruptBatch) and damage is not None:
            damage.report(
                DamagedRange(
                    log=opening.log, first_sequence=0, next_sequence=0, kind=DamageKind.BROKEN, reason=refusal.why
                )
            )
        return refusal

    def delete(self, log: LogId) -> bool:
        """Delete a log when its opening has ended; False if it is not being opened."""
        opening = self._openings.get(log)
        if opening is None:
            return False
        opening.is_deleted = True
        opening.cancel()
        return True

    def close(self) -> None:
        """Finish what a worker has begun, refuse the rest, and end the threads."""
        for opening in self._openings.values():
            opening.cancel()
        self._workers.stop()
        for opening in list(self._openings.values()):
            self._finish(opening)
