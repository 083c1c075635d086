"""Which long turns of a node's loop fail a test: those that the node caused, and not the machine.

Nodes append their long turns to a file (`hubmere.node.runtime.stall_watch`). A turn may take `LIMIT_S`, plus a
multiple of the delay of an empty loop at the same time. The empty loop is a separate process that sleeps, creates and
deletes a folder, and records how late it was: a busy disk delays it too.
"""

import gc
import json
import os
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import hubmere
from hubmere.node.runtime.stall_watch import FILE_VARIABLE, THRESHOLD_SECONDS, Stall, StallWatch

# Nodes report turns of 100 ms. A test fails at 150 ms, because the same work takes that much longer on a slower CPU,
# which the empty loop does not show.
LIMIT_S = 1.5 * THRESHOLD_SECONDS
# The scheduler prefers the empty loop because it hardly ever runs; a busy node is delayed more.
_SUFFERING = 3.0
_BEAT_S = 0.02
# Ten minutes of the empty loop's delays.
_SLOTS = 30_000
_SLOT = struct.Struct("<dd")
# Less than this of processor time in a turn without a stack: the whole process was stopped, or one call held the
# interpreter lock, as the garbage collector does in a node that has loaded the portal.
_STOPPED_S = 0.3

# Known long turns, by a function in their stack, with the reason. Remove an entry with its cause.
KNOWN: Mapping[str, str] = {
    "/nicegui/": "the portal builds a page or a dialog in one turn",
}

_TESTS, _SOURCE = str(Path(__file__).parent), str(Path(hubmere.__file__).parent)

# The empty loop: prints slot and delay of each beat until its standard input closes.
_EMPTY_LOOP = """
import os, select, struct, sys, time
file, beat_s, slots = os.open(sys.argv[1], os.O_WRONLY), float(sys.argv[2]), int(sys.argv[3])
slot = struct.Struct("<dd")
due, number = time.monotonic() + beat_s, 0
while not select.select([0], [], [], max(due - time.monotonic(), 0))[0]:
    os.mkdir(sys.argv[1] + "-folder")
    os.rmdir(sys.argv[1] + "-folder")
    now = time.monotonic()
    os.pwrite(file, slot.pack(now, now - due), number % slots * slot.size)
    number += 1
    due = max(due + beat_s, now)
"""


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

    def longest_delay_s(self, begin: float, end: float) -> float:
        """The longest delay between two times, and until the empty loop recorded it."""
        deadline = time.monotonic() + 10
        while True:
            delays = [(at, late_s) for at, late_s in _SLOT.iter_unpack(self._file.read_bytes()) if at > 0]
            if any(at >= end for at, _ in delays) or time.monotonic() > deadline:
                return max((late_s for at, late_s in delays if at >= begin and at - late_s <= end), default=0.0)
            time.sleep(_BEAT_S)


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
            # A node may be writing the last line at this moment: the next call reads it.
            lines = [line for line in file if line.endswith(b"\n")]
        self._read_bytes += sum(map(len, lines))
        return [text for line in lines if (text := self._failure(Stall(**json.loads(line)))) is not None]

    def _failure(self, stall: Stall) -> str | None:
        if is_excused(stall.stacks) or (not stall.stacks and stall.thread_s < _STOPPED_S):
            return None
        begin, end = stall.ended_at - stall.length_s, stall.ended_at
        suffered_s = self._empty_loop.longest_delay_s(begin, end)
        collected_s = self._collections.total_s(begin, end) if stall.pid == os.getpid() else 0.0
        if stall.own_s - collected_s <= LIMIT_S + _SUFFERING * suffered_s:
            return None
        stacks = "\n".join(stall.stacks) or "(no stack: the interpreter lock was held)"
        return (
            f"the loop of the node in process {stall.pid} did not turn for {stall.length_s * 1000:.0f} ms, of which "
            f"{stall.own_s * 1000:.0f} ms are its own and {stall.thread_s * 1000:.0f} ms processor time; an empty loop "
            f"was {suffered_s * 1000:.0f} ms late. It was in:\n{stacks}"
        )


def is_excused(stacks: Sequence[str]) -> bool:
    """Whether a turn was the test's own code on the node's loop, or is known."""
    if any(name in stack for stack in stacks for name in KNOWN):
        return True
    return bool(stacks) and all(_is_of_test(stack) for stack in stacks)


def _is_of_test(stack: str) -> bool:
    """Whether the innermost function that is ours belongs to the tests."""
    files = [line.split('"')[1] for line in stack.splitlines() if line.startswith('  File "')]
    own = [file for file in files if file.startswith((_TESTS, _SOURCE))]
    return bool(own) and own[-1].startswith(_TESTS)


__all__ = ["FILE_VARIABLE", "KNOWN", "LIMIT_S", "StallCheck", "is_excused", "watched_loop"]
