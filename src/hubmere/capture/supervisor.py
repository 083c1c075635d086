"""Supervises the capture job: one child process for all captured hubs, started, monitored, restarted and stopped.

- The job runs while a hub is captured, and is stopped with the last one.
- It is also stopped while no window ends soon, and started again in time for the next one (`Sleep`).
- Health is judged by the job's reports: a process that does not report for too long is killed.
- After a failure the job is restarted with growing delays. If it cannot run at all, the reason is shown and the attempt
  is repeated at intervals. The node serves in every case.
- The child has its own process group, so that no process is left behind. The node holds its standard input, so that the
  job ends when the node ends, even if the node is killed.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path

from hubmere.broker.management.capture import Captures, JobState, Supervision
from hubmere.capture.java import CannotRun
from hubmere.model.clock import Clock

log = logging.getLogger("hubmere.capture")

# The job's log: the current file and three old ones.
_LOG_BYTES = 5 * 1024 * 1024
_LOG_FILES = 3
# The last lines of its output, for the reason of a failure; the reason is truncated.
_TAIL_LINES = 20
_REASON_CHARACTERS = 300
_READ_BYTES = 64 * 1024
# Reasons why the job sleeps, for the portal and the command line.
_NOTHING_WAITS = "no events are waiting"
_NO_WINDOW_ENDS = "no window ends soon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeouts and intervals of the supervisor, in seconds."""

    tick: float = 0.5
    # A JVM and Spark on a cold disk and a busy machine; 5 s is typical.
    first_report: float = 300.0
    # The job reports every few seconds; a long garbage collection or a slow object store must not end it.
    silence: float = 90.0
    first_retry: float = 1.0
    last_retry: float = 60.0
    # A job that ran this long was healthy: the next failure starts with the shortest delay again.
    well: float = 120.0
    # Time to finish the current micro-batch; unfinished work is repeated from the checkpoint.
    stop: float = 30.0
    # The same when the node itself stops.
    last_stop: float = 5.0
    # Interval at which a missing requirement is checked again.
    blocked: float = 30.0
    # This number of equal failures in a row raises an alarm.
    alarm_after: int = 5
    # The job is stopped after this time without work, if none is due within the same time; 0 keeps it running.
    sleep_after: float = 60.0
    # How often is checked when work is due.
    due_check: float = 2.0
    # How long before the end of a window the job is started: as long as its last start took, within these bounds.
    least_lead: float = 10.0
    most_lead: float = 60.0


_PATIENCE = Patience()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommand:
    """How the job is started. The environment holds a token and is never shown; `folder` is emptied first."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path


class StillRunning(Exception):
    """A job of an earlier node is still running; two jobs must not write to the same checkpoints."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(pid)
        self.pid = pid


class Lease:
    """The right to run the job on a data folder: a file lock that the job inherits.

    So the lock is held as long as the job runs, even if the node has ended. The file contains the job's process id.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def acquire(self) -> int:
        """Lock the file; returns the descriptor for the job to inherit. Raises StillRunning if another job has it."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise StillRunning(int(holder) if holder.isdigit() else None) from None
        os.ftruncate(fd, 0)
        return fd

    def hand_over(self, fd: int, pid: int) -> None:
        """Hand the lock over to the job, and close our descriptor."""
        os.pwrite(fd, f"{pid}\n".encode("ascii"), 0)
        os.close(fd)


class Retries:
    """Decides when to retry, and whether the same failure repeats. Pure."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._wait = patience.first_retry
        self._reason = ""
        self._same = 0

    def record_failure(self, reason: str, ran_s: float) -> float:
        """Record a failure; returns the delay before the next start in seconds."""
        if ran_s >= self._patience.well:
            self._wait, self._same = self._patience.first_retry, 0
        self._same = self._same + 1 if reason == self._reason else 1
        self._reason = reason
        wait, self._wait = self._wait, min(2 * self._wait, self._patience.last_retry)
        return wait

    @property
    def is_alarming(self) -> bool:
        """Whether the last failure has repeated so often that an operator must act."""
        return self._same >= self._patience.alarm_after


class Sleep:
    """Decides when the job is stopped for lack of work, and when it is started again. Pure: times are arguments."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._idle_since: float | None = None
        self._checked_at: float | None = None
        self._due_s: float | None = 0.0
        self._lead = patience.least_lead

    def record_start(self, took_s: float) -> None:
        """Record how long a start of the job took; the next one begins that much earlier."""
        self._lead = min(max(took_s, self._patience.least_lead), self._patience.most_lead)

    def is_check_due(self, now: float) -> bool:
        """Whether to ask again when work is due."""
        return self._checked_at is None or now >= self._checked_at + self._patience.due_check

    def record_due(self, due_s: float | None, now: float) -> None:
        """Record in how many seconds work is due; None: only after another event."""
        self._checked_at, self._due_s = now, due_s
        if due_s is not None and due_s <= max(self._patience.sleep_after, self._lead):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now

    @property
    def must_run(self) -> bool:
        """Whether the job has to run now, or is needed before another start would be complete."""
        return self._patience.sleep_after <= 0 or (self._due_s is not None and self._due_s <= self._lead)

    def may_stop(self, now: float) -> bool:
        """Whether the job has had nothing to do for long enough."""
        is_idle = self._idle_since is not None and now - self._idle_since >= self._patience.sleep_after
        return self._patience.sleep_after > 0 and is_idle

    @property
    def is_without_work(self) -> bool:
        """Whether nothing is due before another event arrives."""
        return self._due_s is None


class Supervisor:
    """Keeps one capture job running.

    Thread rule: the node's loop only. `run` owns the child: cancelling it stops the child, within a bound.
    """

    def __init__(
        self,
        captures: Captures,
        clock: Clock,
        prepare: Callable[[], Awaitable[JobCommand]],
        log_file: Path,
        patience: Patience = _PATIENCE,
    ) -> None:
        self._captures = captures
        self._clock = clock
        self._prepare = prepare
        self._log_file = log_file
        self._patience = patience
        self._retries = Retries(self._patience)
        self._sleep = Sleep(self._patience)
        self._lease = Lease(log_file.with_name("job.lock"))
        self._child: _Child | None = None
        self._started_at = 0.0
        self._start_at = 0.0
        self._is_first = True
        captures.supervision = Supervision(state=JobState.OFF)

    async def run(self) -> None:
        """Supervise until cancelled."""
        try:
            while True:
                await self._step_safely()
                await asyncio.sleep(self._patience.tick)
        finally:
            # A second cancellation must not leave a JVM behind.
            await asyncio.shield(asyncio.create_task(self._stop(self._patience.last_stop)))

    async def _step_safely(self) -> None:
        try:
            await self._step()
        except Exception as error:  # the top of a task: without capture the node still serves
            log.exception("supervising the capture job failed")
            await self._stop(self._patience.last_stop)
            self._block(f"{type(error).__name__}: {error}")

    async def _step(self) -> None:
        if not self._captures.has_work:
            await self._stop(self._patience.stop)
            self._start_at = 0.0
            return
        self._check_due()
        if self._child is None:
            if self._clock.monotonic() >= self._start_at:
                await self._start_or_sleep()
        else:
            await self._watch(self._child)

    # --- sleeping ---

    def _check_due(self) -> None:
        now = self._clock.monotonic()
        if self._sleep.is_check_due(now):
            now_ms = self._clock.now_ms()
            due_ms = self._captures.next_due_ms(now_ms)
            self._sleep.record_due(None if due_ms is None else (due_ms - now_ms) / 1000, now)

    async def _start_or_sleep(self) -> None:
        if self._sleep.must_run:
            await self._start()
            return
        before = self._captures.supervision
        reason = _NOTHING_WAITS if self._sleep.is_without_work else _NO_WINDOW_ENDS
        if (before.state, before.reason) != (JobState.SLEEPING, reason):
            self._captures.supervision = Supervision(state=JobState.SLEEPING, reason=reason, restarts=before.restarts)

    async def _fall_asleep(self) -> None:
        log.info("no window ends soon: stopping the capture job until one does")
        await self._stop(self._patience.stop)
        # The next start is planned: it is not counted as a restart.
        self._is_first = True
        await self._start_or_sleep()

    # --- starting ---

    async def _start(self) -> None:
        try:
            command = await self._prepare()
            child = await _Child.start(command, self._log_file, self._lease)
        except (CannotRun, OSError) as missing:
            self._block(str(missing))
            return
        except StillRunning as other:
            self._end_other(other)
            return
        restarts = self._captures.supervision.restarts + (0 if self._is_first else 1)
        self._is_first = False
        self._child, self._started_at = child, self._clock.monotonic()
        self._captures.supervision = Supervision(state=JobState.STARTING, pid=child.pid, restarts=restarts)
        log.info("the capture job is starting as process %d; its log is %s", child.pid, self._log_file)

    def _end_other(self, other: StillRunning) -> None:
        """Kill the job of an earlier node; its unfinished work is repeated from the checkpoint."""
        if other.pid is not None:
            log.warning("killing the capture job of an earlier run, process %d", other.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(other.pid, signal.SIGKILL)
        self._start_at = self._clock.monotonic() + self._patience.first_retry

    def _block(self, reason: str) -> None:
        self._start_at = self._clock.monotonic() + self._patience.blocked
        before = self._captures.supervision
        if (before.state, before.reason) != (JobState.BLOCKED, reason):
            log.error("capture cannot run; events are kept until it can: %s", reason)
        self._captures.supervision = Supervision(state=JobState.BLOCKED, reason=reason, restarts=before.restarts)

    # --- watching ---

    async def _watch(self, child: "_Child") -> None:
        now = self._clock.monotonic()
        reported_at = self._captures.reported_at
        has_reported = reported_at is not None and reported_at >= self._started_at
        if child.exit_code is not None:
            await child.close()
            self._on_failure(child.failure_reason(f"it ended with exit code {child.exit_code}"))
        elif has_reported and reported_at is not None and now - reported_at > self._patience.silence:
            await child.kill()
            self._on_failure(f"it did not report for {self._patience.silence:g} s")
        elif not has_reported and now - self._started_at > self._patience.first_report:
            await child.kill()
            self._on_failure(f"it did not report within {self._patience.first_report:g} s of its start")
        elif has_reported and self._is_first_running_report():
            self._captures.supervision = replace(self._captures.supervision, state=JobState.RUNNING)
            self._sleep.record_start(now - self._started_at)
            log.info("the capture job is running after %.1f s", now - self._started_at)
        elif self._captures.supervision.state is JobState.RUNNING and self._sleep.may_stop(now):
            await self._fall_asleep()

    def _is_first_running_report(self) -> bool:
        """Whether the job reports for the first time that it is running; before that it reports that it is starting."""
        is_starting = self._captures.supervision.state is JobState.STARTING
        return is_starting and self._captures.reported_state is JobState.RUNNING

    def _on_failure(self, reason: str) -> None:
        now = self._clock.monotonic()
        wait = self._retries.record_failure(reason, now - self._started_at)
        self._child, self._start_at = None, now + wait
        before = self._captures.supervision
        self._captures.supervision = Supervision(
            state=JobState.BACKING_OFF, reason=reason, restarts=before.restarts, is_alarmed=self._retries.is_alarming
        )
        level = logging.ERROR if self._retries.is_alarming else logging.WARNING
        again = " repeatedly" if self._retries.is_alarming else ""
        log.log(level, "the capture job failed%s; restarting in %g s: %s", again, wait, reason)

    # --- stopping ---

    async def _stop(self, patience_s: float) -> None:
        child, self._child = self._child, None
        if child is not None:
            self._captures.supervision = replace(self._captures.supervision, state=JobState.STOPPING)
            is_clean = await child.stop(patience_s)
            log.info("the capture job has stopped%s", "" if is_clean else "; it had to be killed")
        self._captures.supervision = Supervision(state=JobState.OFF, restarts=self._captures.supervision.restarts)


def _empty_folder(folder: Path) -> None:
    """Empty a folder; leftovers of a killed job are useless."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class _Child:
    """One run of the job. Thread rule: the loop only."""

    def __init__(self, process: asyncio.subprocess.Process, handler: RotatingFileHandler) -> None:
        self._process = process
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._handler = handler
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: JobCommand, log_file: Path, lease: Lease) -> "_Child":
        """Start the job: output to a file, standard input held open, the lock inherited."""
        fd = lease.acquire()
        try:
            await asyncio.to_thread(_empty_folder, command.folder)
            handler = RotatingFileHandler(log_file, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
            process = await asyncio.create_subprocess_exec(
                *command.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(command.environment),
                cwd=command.folder,
                start_new_session=True,
                pass_fds=(fd,),
            )
        except BaseException:
            os.close(fd)
            raise
        lease.hand_over(fd, process.pid)
        return cls(process, handler)

    @property
    def pid(self) -> int:
        """The job's process id, and the id of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while it runs."""
        return self._process.returncode

    def failure_reason(self, otherwise: str) -> str:
        """How it ended, with the last line of its output."""
        said = next((line.strip() for line in reversed(self._tail) if line.strip()), "")
        return f"{otherwise}: {said[:_REASON_CHARACTERS]}" if said else otherwise

    async def _read(self) -> None:
        assert self._process.stdout is not None
        rest = ""
        while chunk := await self._process.stdout.read(_READ_BYTES):
            *lines, rest = (rest + chunk.decode("utf-8", "replace")).split("\n")
            self._write_lines(lines)
            # A line without an end must not grow without bound.
            if len(rest) > _READ_BYTES:
                self._write_lines([rest])
                rest = ""
        self._write_lines([rest] if rest else [])

    def _write_lines(self, lines: list[str]) -> None:
        for line in lines:
            self._tail.append(line)
            self._handler.handle(logging.makeLogRecord({"msg": line, "name": "job"}))

    async def stop(self, patience_s: float) -> bool:
        """Ask the job to end, and kill it after `patience_s`. Returns whether it ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), patience_s)
        except TimeoutError:
            await self.kill()
            return False
        await self.close()
        return True

    async def kill(self) -> None:
        """Kill the job and every process that it started."""
        await self.close()
        await self._process.wait()

    async def close(self) -> None:
        """Kill remaining processes of its group, and finish writing its log."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reading, 1.0)
        self._handler.close()
