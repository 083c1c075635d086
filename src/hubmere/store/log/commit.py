"""Group commit: many appends, one flush, one move of `committed` per partition.

1. Writers append to the page cache on the owner's thread.
2. A round takes all partitions written since the last one, and flushes their files with parallel `fdatasync` calls in
   a few threads.
3. Back on the owner's thread, each partition moves `committed` once.

At most one round runs at a time, and there is no timer: the next round starts when the last has ended, so under load
each round carries more. The first round after a pause starts at the end of the owner's turn, so that it covers
everything appended in that turn.

With durability `os` a round skips the flush; everything else is the same, so a receipt never completes inside the
append that returns it.

With many files, one `syncfs` replaces the `fdatasync` calls: it writes one journal commit instead of one per file. It
flushes the whole file system, so it is not used for a few files on a disk that others may use too.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Literal, Protocol

from hubmere.model.monitoring.histogram import Histogram
from hubmere.store.files import Files, Handle

Durability = Literal["fsync", "os"]
Post = Callable[[Callable[[], None]], None]
Job = Callable[[], None]

# Threads that wait for the disk. More parallel flushes gained nothing on the disks that were measured.
MAX_SYNC_THREADS = 8
# A round of this many files or more is one `syncfs`. Measured with `bench/log.py` (ext4, 16 KB to each file, ms; one by
# one / in eight threads / syncfs): 1 file 0.39 / 0.52 / 0.44, 4 files 1.6 / 1.0 / 0.8, 8 files 3.9 / 1.5 / 0.8, 16
# files 6.1 / 3.2 / 1.2, 64 files 30 / 11 / 3.2. At 16 files it gains more than a busy neighbour on the disk may cost.
SYNCFS_FROM_FILES = 16


class Committable(Protocol):
    """A log as the group commit sees it."""

    def begin_round(self) -> Sequence[Handle]:
        """Take everything written so far into a round; returns the files to flush."""

    def mark_round(self) -> None:
        """The files are durable: set the log's slot of the committed file, which is written before `end_round`."""

    def end_round(self, error: OSError | None) -> int:
        """Move `committed`; if the flush failed, go offline. Returns how many appends were acknowledged."""


class Workers:
    """A pool of threads that wait for the disk. With `limit` 0 every job runs on the caller's thread."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def limit(self) -> int:
        """The largest number of parallel jobs."""
        return self._limit

    def run(self, job: Job) -> None:
        """Run a job; jobs handle their own errors."""
        if not self._limit:
            job()
            return
        self._jobs.put(job)

    def ensure_threads(self, count: int) -> None:
        """Start threads until there are `count`, up to the limit."""
        while len(self._threads) < min(count, self._limit):
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads after all queued jobs."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class _Round:
    """One running flush: its partitions, its files, and how many slices of the files are not flushed yet."""

    __slots__ = ("errors", "files", "first_added_at", "is_finished", "lock", "logs", "open_slices", "slices_lock")

    def __init__(self, logs: list[Committable], files: list[tuple[int, Handle]], first_added_at: float) -> None:
        self.logs = logs
        self.first_added_at = first_added_at
        self.files = files
        self.errors: dict[int, OSError] = {}
        self.lock = threading.Lock()
        self.open_slices = 0
        # Held while slices are open. A lock, because creating an Event for each round costs twenty times as much.
        self.slices_lock = threading.Lock()
        self.is_finished = False


class _BackgroundTask:
    """A slow job that runs off the owner's thread."""

    __slots__ = ("error", "is_done", "is_finished", "on_done", "work")

    def __init__(self, work: Job, on_done: Callable[[OSError | None], None]) -> None:
        self.work = work
        self.on_done = on_done
        self.error: OSError | None = None
        self.is_done = threading.Event()
        self.is_finished = False


class GroupCommit:
    """Runs the rounds of all partitions of a node.

    Thread rule: all methods on the owner's thread. Worker threads return to it through `post`; `defer` schedules a call
    at the end of the owner's current turn.
    """

    def __init__(
        self,
        files: Files,
        post: Post,
        *,
        defer: Post | None = None,
        durability: Durability = "fsync",
        threads: int = MAX_SYNC_THREADS,
        flush_committed: Callable[[], None] | None = None,
    ) -> None:
        """`flush_committed` writes the committed ends of a round, before anything of it is acknowledged."""
        self._files = files
        self._post = post
        self._flush_committed = flush_committed
        self._defer = defer or post
        self.durability = durability
        self._sync = Workers("hubmere-sync", threads)
        self._background = Workers("hubmere-background", min(threads, 1))
        self._dirty: list[Committable] = []
        self._background_tasks: list[_BackgroundTask] = []
        self._round: _Round | None = None
        self._is_scheduled = False
        # Rounds that have ended, and what waits until a number of them has.
        self._ended_rounds = 0
        self._after_rounds: list[tuple[int, Job]] = []
        # When the oldest append of the next round was added. One clock reading for each round is enough: every append
        # of a round counts as waiting as long as the oldest.
        self._first_added_at = 0.0
        self.latency = Histogram()

    def add(self, log: Committable) -> None:
        """Include a log in the next round; call once before each of its `begin_round`."""
        if not self._dirty:
            self._first_added_at = time.monotonic()
        self._dirty.append(log)
        if self._round is None:
            self._schedule()

    def run_in_background(self, work: Job, on_done: Callable[[OSError | None], None]) -> None:
        """Run `work` off the owner's thread, one job at a time, then `on_done` on the owner's thread."""
        task = _BackgroundTask(work, on_done)
        self._background_tasks.append(task)
        self._background.ensure_threads(1)
        self._background.run(lambda: self._run_task(task))
        if not self._background.limit:
            self._finish_task(task)

    def _run_task(self, task: _BackgroundTask) -> None:
        try:
            task.work()
        except OSError as error:
            task.error = error
        self._post(lambda: self._finish_task(task))
        task.is_done.set()

    def _finish_task(self, task: _BackgroundTask) -> None:
        if not task.is_finished:
            task.is_finished = True
            self._background_tasks.remove(task)
            task.on_done(task.error)

    def finish_background(self) -> None:
        """Wait for all background jobs; for closing, not for the hot path."""
        while self._background_tasks:
            task = self._background_tasks[0]
            task.is_done.wait()
            self._finish_task(task)

    def flush(self) -> None:
        """Commit everything written so far and wait for it; for closing, not for the hot path.

        Two rounds at most: one may be running, and the next covers the rest. Without this bound, writers that append
        from their receipts could keep this call from returning.
        """
        for _ in range(2):
            if self._round is None and self._dirty:
                self._start_round()
            self._await_round()

    def run_when_flushed(self, job: Job) -> None:
        """Run a job on the owner's thread when everything written so far is committed, or has failed to be."""
        rounds = (self._round is not None) + bool(self._dirty)
        if rounds:
            self._after_rounds.append((self._ended_rounds + rounds, job))
        else:
            job()

    def _end_round(self) -> None:
        self._ended_rounds += 1
        if self._after_rounds:
            due = [job for number, job in self._after_rounds if number <= self._ended_rounds]
            self._after_rounds = [entry for entry in self._after_rounds if entry[0] > self._ended_rounds]
            for job in due:
                job()

    def close(self) -> None:
        """Flush, and end the threads."""
        self.flush()
        self.finish_background()
        self._sync.stop()
        self._background.stop()

    def _start_scheduled(self) -> None:
        self._is_scheduled = False
        if self._round is None and self._dirty:
            self._start_round()

    def _start_round(self) -> None:
        logs, self._dirty = self._dirty, []
        files = [(number, handle) for number, log in enumerate(logs) for handle in log.begin_round()]
        round_ = self._round = _Round(logs, files, self._first_added_at)
        for number, handle in files:
            handle.pins += 1
            if handle.sync_error is not None:
                round_.errors[number] = handle.sync_error
        if self.durability == "os" or not files:
            self._finish(round_)
            return
        if len(files) >= SYNCFS_FROM_FILES and self._files.can_sync_file_system:
            self._run_slices(round_, [lambda: self._sync_everything(round_)])
            return
        count = min(len(files), max(self._sync.limit, 1))
        self._run_slices(round_, [partial(self._sync_files, round_, files[first::count]) for first in range(count)])

    def _run_slices(self, round_: _Round, slices: Sequence[Job]) -> None:
        round_.open_slices = len(slices)
        round_.slices_lock.acquire()
        self._sync.ensure_threads(len(slices))
        for work in slices:
            self._sync.run(partial(self._do_slice, round_, work))

    def _do_slice(self, round_: _Round, work: Job) -> None:
        work()
        with round_.lock:
            round_.open_slices -= 1
            is_last = not round_.open_slices
        if is_last:
            # Post before releasing the lock: a thread that waits for it may close the owner's loop right after.
            self._post(lambda: self._finish(round_))
            round_.slices_lock.release()

    def _sync_files(self, round_: _Round, part: Sequence[tuple[int, Handle]]) -> None:
        # The handles are pinned, so their descriptors stay open.
        for number, handle in part:
            try:
                if (before_sync := handle.before_sync) is not None:
                    before_sync()
                self._files.fdatasync(handle.fd_or_closed)
            except OSError as error:
                round_.errors[number] = error

    def _sync_everything(self, round_: _Round) -> None:
        for number, handle in round_.files:
            if (before_sync := handle.before_sync) is not None:
                try:
                    before_sync()
                except OSError as error:
                    round_.errors[number] = error
        try:
            self._files.sync_file_system(round_.files[0][1].fd_or_closed)
        except OSError as error:
            # The error does not name the file: none of them counts as durable.
            round_.errors.update({number: error for number, _ in round_.files})

    def _finish(self, round_: _Round) -> None:
        if round_.is_finished:
            return
        round_.is_finished = True
        self._round = None
        for _, handle in round_.files:
            handle.pins -= 1
        for number, log in enumerate(round_.logs):
            if number not in round_.errors:
                log.mark_round()
        if self._flush_committed is not None:
            self._flush_committed()
        waited_s = time.monotonic() - round_.first_added_at
        acknowledged = 0
        for number, log in enumerate(round_.logs):
            acknowledged += log.end_round(round_.errors.get(number))
        self.latency.observe(waited_s, acknowledged)
        self._end_round()
        if self._dirty and self._round is None:
            self._follow_up()

    def _follow_up(self) -> None:
        # Without a flush, a writer that appends from its receipt would keep the owner's turn from ending.
        if self.durability == "os":
            self._schedule()
        else:
            self._start_round()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._defer(self._start_scheduled)

    def _await_round(self) -> None:
        round_ = self._round
        if round_ is not None:
            with round_.slices_lock:
                pass
            self._finish(round_)
