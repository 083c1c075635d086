"""Which long turns of a node's loop fail a test: those that the node caused, and not the machine.

Nodes append their long turns to a file (`hubmere.node.runtime.stall_watch`). A turn may take `LIMIT_S` of the node's
processor time, and `BLOCKED_LIMIT_S` with blocking calls, scaled by what the machine does to an empty loop meanwhile.
The empty loop is a separate process. Every 20 ms it creates and deletes a folder, does a fixed computation, and records
two things:

1. How late it was. A multiple of that is added to the limit: the processors or the disk are busy.
2. The processor time of the computation. If that is more than `REFERENCE_S`, the limit is multiplied by the ratio: the
   processor is slower, or shares its caches and its execution units with other programs.
"""

import gc
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import hubmere
from hubmere.node.runtime.stall_watch import FILE_VARIABLE, THRESHOLD_SECONDS, Stall, StallWatch

# For the node's own processor time in one turn.
LIMIT_S = THRESHOLD_SECONDS
# For work and waiting together. The kernel may let any system call wait for memory or for a disk that others use, while
# the empty loop is not late: `accept` of a socket that does not block took 171 ms once.
BLOCKED_LIMIT_S = 2 * LIMIT_S
# Processor time of the computation of the empty loop: the median on 2 cores of a server, with some load.
REFERENCE_S = 65e-6
# The scheduler prefers the empty loop because it hardly ever runs; a busy node is delayed more.
_SUFFERING = 3.0
_BEAT_S = 0.02
# Ten minutes of the empty loop's delays.
_SLOTS = 30_000
_SLOT = struct.Struct("<ddd")
# The speed of the machine during a turn is the median of its beats and of those in this time before and after it.
_AROUND_S = 0.2

_TESTS, _SOURCE = str(Path(__file__).parent), str(Path(hubmere.__file__).parent)

# The empty loop: writes time, delay and processor time of each beat to its slot, until its standard input closes.
_EMPTY_LOOP = """
import os, select, struct, sys, time
file, beat_s, slots = os.open(sys.argv[1], os.O_WRONLY), float(sys.argv[2]), int(sys.argv[3])
slot = struct.Struct("<ddd")
due, number = time.monotonic() + beat_s, 0
while not select.select([0], [], [], max(due - time.monotonic(), 0))[0]:
    os.mkdir(sys.argv[1] + "-folder")
    os.rmdir(sys.argv[1] + "-folder")
    now = time.monotonic()
    began, table = time.thread_time(), {}
    for each in range(400):
        table[each & 31] = (each, str(each))
    os.pwrite(file, slot.pack(now, now - due, time.thread_time() - began), number % slots * slot.size)
    number += 1
    due = max(due + beat_s, now)
"""


def complete_lines(file: BinaryIO) -> list[bytes]:
    """The lines up to the last line break. A node may be writing the last line at this moment: the next call reads it.

    The file is read once. Iteration would go on behind an incomplete line, and return its rest as a line.
    """
    whole, line_break, _ = file.read().rpartition(b"\n")
    return (whole + line_break).splitlines(keepends=True)


@contextmanager
def watched_loop() -> Iterator[None]:
    """Watch the running loop of a node inside the test process."""
    watch = StallWatch.of_environment()
    if watch is None:
        yield
        return
    watch.start()
    try:
        yield
    finally:
        watch.stop()


class Collections:
    """When the garbage collector ran in this process: the objects of all tests make it slower than in a node."""

    def __init__(self) -> None:
        self._runs: deque[tuple[float, float]] = deque(maxlen=1000)
        self._began = 0.0

    def __call__(self, phase: str, _: object) -> None:
        now = time.monotonic()
        if phase == "start":
            self._began = now
        else:
            self._runs.append((self._began, now))

    def total_s(self, begin: float, end: float) -> float:
        """How long the collector ran between two times."""
        return sum(max(min(end, ended) - max(begin, began), 0.0) for began, ended in list(self._runs))


class Machine(NamedTuple):
    """How late the empty loop was at most, and how many times slower than on the reference machine its computation."""

    late_s: float
    slowness: float


class EmptyLoop:
    """A process without work, and its recorded delays."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "empty-loop"
        self._file.write_bytes(bytes(_SLOT.size * _SLOTS))
        command = [sys.executable, "-S", "-E", "-c", _EMPTY_LOOP, str(self._file), str(_BEAT_S), str(_SLOTS)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def machine_between(self, begin: float, end: float) -> Machine:
        """What the machine did to the empty loop between two times; waits until that is recorded."""
        deadline = time.monotonic() + 120
        while True:
            beats = [beat for beat in _SLOT.iter_unpack(self._file.read_bytes()) if beat[0] > 0]
            if any(at >= end for at, _, _ in beats) or time.monotonic() > deadline:
                break
            time.sleep(_BEAT_S)
        delays = [late_s for at, late_s, _ in beats if at >= begin and at - late_s <= end]
        works = [work_s for at, _, work_s in beats if begin - _AROUND_S <= at <= end + _AROUND_S]
        slowness = statistics.median(works) / REFERENCE_S if works else 1.0
        return Machine(max(delays, default=0.0), max(slowness, 1.0))


class StallCheck:
    """The long turns of the nodes of one test process."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "stalls"
        self.file.touch()
        self._read_bytes = 0
        self._empty_loop = EmptyLoop(folder)
        self._collections = Collections()
        gc.callbacks.append(self._collections)

    def close(self) -> None:
        gc.callbacks.remove(self._collections)
        self._empty_loop.close()

    def failures(self) -> list[str]:
        """The failures of the turns that were reported since the last call."""
        if self.file.stat().st_size == self._read_bytes:
            return []
        with self.file.open("rb") as file:
            file.seek(self._read_bytes)
            lines = complete_lines(file)
        self._read_bytes += sum(map(len, lines))
        return [text for line in lines if (text := self._failure(Stall(**json.loads(line)))) is not None]

    def _failure(self, stall: Stall) -> str | None:
        if is_of_test(stall.stacks):
            return None
        begin, end = stall.ended_at - stall.length_s, stall.ended_at
        machine = self._empty_loop.machine_between(begin, end)
        collected_s = self._collections.total_s(begin, end) if stall.pid == os.getpid() else 0.0
        worked_s = min(stall.thread_s, stall.length_s) - collected_s
        # Without a stack, either the whole process was stopped, or one call held the interpreter lock: that one works.
        own_s = stall.own_s - collected_s if stall.stacks else worked_s
        spare_s = _SUFFERING * machine.late_s
        if worked_s <= LIMIT_S * machine.slowness + spare_s and own_s <= BLOCKED_LIMIT_S * machine.slowness + spare_s:
            return None
        stacks = "\n".join(stall.stacks) or "(no stack: the interpreter lock was held)"
        return (
            f"the loop of the node in process {stall.pid} did not turn for {stall.length_s * 1000:.0f} ms, of which "
            f"{own_s * 1000:.0f} ms are its own and {stall.thread_s * 1000:.0f} ms processor time; an empty loop was "
            f"{machine.late_s * 1000:.0f} ms late, and its work took {machine.slowness:.1f} times as long as usual. "
            f"It was in:\n{stacks}"
        )


def is_of_test(stacks: Sequence[str]) -> bool:
    """Whether a turn was the test's own code on the node's loop."""
    return bool(stacks) and all(_is_of_test(stack) for stack in stacks)


def _is_of_test(stack: str) -> bool:
    """Whether the innermost function that is ours belongs to the tests."""
    files = [line.split('"')[1] for line in stack.splitlines() if line.startswith('  File "')]
    own = [file for file in files if file.startswith((_TESTS, _SOURCE))]
    return bool(own) and own[-1].startswith(_TESTS)


__all__ = ["BLOCKED_LIMIT_S", "FILE_VARIABLE", "LIMIT_S", "Machine", "StallCheck", "is_of_test", "watched_loop"]
