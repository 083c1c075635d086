"""Reports turns of the event loop that take too long, with the stack that was running. For tests and diagnosis.

A process of `hubmere up` watches itself when HUBMERE_STALL_FILE names a file. It works in three steps:

1. A timer of the loop becomes due every few milliseconds and notes when.
2. A thread looks at that note. While the timer is late it samples the stack of the loop's thread.
3. When the timer runs at last and was late by more than the threshold, one JSON line is appended to the file.

A line also has the parts of the delay that the loop may not have caused: the time for which its thread, and the threads
that it may wait for, had no CPU; the CPU time of the other threads, which hold the interpreter lock meanwhile; and the
delay of the watch's own idle thread.
"""

import asyncio
import faulthandler
import json
import math
import os
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

# File and threshold of the watch in the environment of a process.
FILE_VARIABLE: Final = "HUBMERE_STALL_FILE"
THRESHOLD_VARIABLE: Final = "HUBMERE_STALL_MS"
THRESHOLD_SECONDS: Final = 0.1
# Stacks of one stall, and stalls of one process, that are kept at most.
_MAX_STACKS: Final = 5
_MAX_STALLS: Final = 1000
_MIN_BEAT_SECONDS: Final = 0.001
_NS: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One long turn of the loop; times in seconds, `ended_at` on the machine's monotonic clock."""

    pid: int
    ended_at: float
    length_s: float
    # Processor time of the loop's thread.
    thread_s: float
    # How long the loop's thread was ready to run and had no processor.
    waited_s: float
    # Processor time of the other threads of the process.
    others_s: float
    # How late the watch's own thread was, and how long the other threads had no processor since the first stack.
    overslept_s: float
    others_waited_s: float
    stacks: list[str]

    @property
    def own_s(self) -> float:
        """The part of the turn that the loop itself has caused: work, or a blocking call."""
        blocked_s = self.length_s - self.thread_s - self.waited_s - self.others_s
        blocked_s -= self.overslept_s + self.others_waited_s
        return min(self.thread_s, self.length_s) + max(blocked_s, 0.0)


class StallWatch:
    """The watch of one loop. Thread rule: `start` and `stop` on the loop's thread."""

    def __init__(self, file: Path, *, threshold_s: float = THRESHOLD_SECONDS) -> None:
        self._file = file
        self._threshold_s = threshold_s
        # At most a fifth of a turn at the threshold is not seen.
        self._beat_s = max(threshold_s / 5, _MIN_BEAT_SECONDS)
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._thread_name = str(threading.get_native_id())
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="stall-watch", daemon=True)
        self._schedstat: int | None = None
        self._due = 0.0
        self._before = (0.0, 0.0, 0.0)
        # When the thread wakes up next, and how late it was since the last beat.
        self._wakes_at = 0.0
        self._overslept_s = 0.0
        # The number of the turn that is watched, and its stacks.
        self._turn = 0
        self._stacks: list[str] = []
        # How long each thread had waited for a processor when the first stack was sampled.
        self._waits_before: dict[str, float] = {}
        self._reported = 0
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of_environment(cls) -> "StallWatch | None":
        """The watch that the environment asks for, if it does."""
        path = os.environ.get(FILE_VARIABLE)
        if not path:
            return None
        return cls(Path(path), threshold_s=float(os.environ.get(THRESHOLD_VARIABLE, THRESHOLD_SECONDS * 1000)) / 1000)

    def start(self) -> None:
        """Begin to watch."""
        self._schedstat = _open_schedstat()
        self._wakes_at = time.monotonic()
        self._sampler.start()
        self._schedule()

    def stop(self) -> None:
        """End watching, if it began."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._stopping.set()
        self._sampler.join()
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None

    # --- on the loop ---

    def _schedule(self) -> None:
        self._before = self._times()
        self._stacks = []
        self._overslept_s = 0.0
        self._due = time.monotonic() + self._beat_s
        self._timer = self._loop.call_later(self._beat_s, self._beat)

    def _beat(self) -> None:
        now = time.monotonic()
        late_s = now - self._due
        # A stack that is sampled from here on is not of this turn, and none is sampled until the next beat is due.
        self._due = math.inf
        self._turn += 1
        if late_s > self._threshold_s and self._reported < _MAX_STALLS:
            self._reported += 1
            self._report(now, late_s)
        self._schedule()

    def _report(self, now: float, late_s: float) -> None:
        thread_s, process_s, waited_s = (
            after - before for after, before in zip(self._times(), self._before, strict=True)
        )
        stall = Stall(
            pid=os.getpid(),
            ended_at=now,
            length_s=late_s,
            thread_s=thread_s,
            waited_s=waited_s,
            others_s=max(process_s - thread_s, 0.0),
            overslept_s=self._overslept_s + max(now - self._wakes_at, 0.0),
            others_waited_s=_waited_since_s(self._waits_before, self._thread_name) if self._stacks else 0.0,
            stacks=self._stacks,
        )
        # One write of a file that is opened to append: lines of several processes do not mix.
        with self._file.open("ab", buffering=0) as file:
            file.write(json.dumps(asdict(stall)).encode() + b"\n")

    def _times(self) -> tuple[float, float, float]:
        """Processor time of this thread and of the process, and how long this thread waited for a processor."""
        waited_s = 0.0
        if self._schedstat is not None:
            waited_s = int(os.pread(self._schedstat, 100, 0).split()[1]) * _NS
        return time.thread_time(), time.process_time(), waited_s

    # --- in the watch's own thread ---

    def _sample(self) -> None:
        while True:
            self._wakes_at = time.monotonic() + self._beat_s
            if self._stopping.wait(self._beat_s):
                return
            self._overslept_s += max(time.monotonic() - self._wakes_at, 0.0)
            turn = self._turn
            if time.monotonic() - self._due < self._threshold_s / 2 or len(self._stacks) >= _MAX_STACKS:
                continue
            waits_before = self._waits_before if self._stacks else _waits_s()
            stack = _stack_of(self._thread_id)
            # This thread waits for the interpreter lock; the turn may have ended meanwhile.
            if turn == self._turn:
                self._waits_before = waits_before
                self._stacks.append(stack)


def _open_schedstat() -> int | None:
    """The scheduler's account of this thread, where the system has one (Linux)."""
    try:
        return os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _stack_of(thread_id: int) -> str:
    """The stack of another thread as text, the innermost function last.

    `faulthandler` reads it in one call that holds the interpreter lock. Python code that follows the frames lets that
    thread go on meanwhile and then reads frames that are gone, which ends a process with a segmentation fault.
    """
    try:
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"(the stack could not be read: {error!r})"
    for thread in text.split("\n\n"):
        heading, *frames = thread.splitlines() or [""]
        if f" 0x{thread_id:016x} " in heading:
            return "\n".join(reversed(frames))
    return ""


def _waits_s() -> dict[str, float]:
    """How long each thread of this process has waited for a CPU; empty if the system does not count it."""
    waits = {}
    for name in _threads():
        try:
            waits[name] = int(Path("/proc/self/task", name, "schedstat").read_bytes().split()[1]) * _NS
        except OSError:
            # The thread has ended.
            continue
    return waits


def _threads() -> list[str]:
    """The ids of the threads of this process; none if the system does not list them. Some may end at any time."""
    try:
        return [path.name for path in Path("/proc/self/task").iterdir()]
    except OSError:
        return []


def _waited_since_s(before: dict[str, float], own: str) -> float:
    """How long the threads but one have waited for a processor since then."""
    return sum(max(wait_s - before.get(name, 0.0), 0.0) for name, wait_s in _waits_s().items() if name != own)
