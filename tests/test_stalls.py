"""The check for long turns: a stalled node fails its test with the stack of that turn, a busy machine does not."""

import asyncio
import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from hubmere.node.runtime.stall_watch import THRESHOLD_VARIABLE, Stall, StallWatch, _waited_since_s, _waits_s
from hubmere.testing import Node
from stalls import BLOCKED_LIMIT_S, FILE_VARIABLE, LIMIT_S, Machine, StallCheck, complete_lines, is_of_test

# A process that always needs CPU time.
_SPINNER = "while True: pass"


@pytest.fixture
def check(tmp_path: Path) -> Iterator[StallCheck]:
    """A separate check, so that the stalls of these tests do not fail them."""
    check = StallCheck(tmp_path)
    yield check
    check.close()


def block_loop(check: StallCheck, seconds: float, *, cpu: bool = False) -> None:
    """Run a watched loop with one long turn."""

    async def block() -> None:
        watch = StallWatch(check.file)
        watch.start()
        await asyncio.sleep(0.05)
        (spend_processor_time if cpu else time.sleep)(seconds)
        await asyncio.sleep(0.05)
        watch.stop()

    asyncio.run(block())


def spend_processor_time(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize("cpu", [True, False], ids=["working", "blocked"])
def test_long_turn_is_reported_with_its_stack(check: StallCheck, monkeypatch: pytest.MonkeyPatch, cpu: bool) -> None:
    """The stack shows the cause."""
    monkeypatch.setattr("stalls._TESTS", "nowhere")
    # The limit of an idle machine, on a busy one as well.
    monkeypatch.setattr("stalls.EmptyLoop.machine_between", lambda *_: Machine(late_s=0.0, slowness=1.0))

    block_loop(check, 2.0, cpu=cpu)

    [failure] = check.failures()
    assert "spend_processor_time" in failure if cpu else "block_loop" in failure or "in block" in failure
    assert check.failures() == []


def test_turn_whose_stack_cannot_be_read_is_reported(check: StallCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks go through a file, and its disk may be full. The watch must not end because of that."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("faulthandler.dump_traceback", fail)
    monkeypatch.setattr("stalls.EmptyLoop.machine_between", lambda *_: Machine(late_s=0.0, slowness=1.0))

    block_loop(check, 2.0, cpu=True)

    [failure] = check.failures()
    assert "the stack could not be read: OSError(28, 'full')" in failure


def test_stack_of_a_turn_that_has_ended_is_not_reported(check: StallCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch's thread waits for the interpreter lock: what it then samples may be the report, not the turn.

    On a busy machine a report takes longer than several beats of that thread.
    """
    in_report = threading.Event()
    read_times = StallWatch._times

    def sample_the_report(_: int) -> str:
        in_report.wait(240)
        return "the report"

    def read_times_slowly(watch: StallWatch) -> tuple[float, float, float]:
        # Nodes of other tests have watches in this process, too.
        if watch._file == check.file and watch._reported:
            in_report.set()
            deadline, seen = time.monotonic() + 240, {watch._wakes_at}
            while len(seen) < 4:
                assert time.monotonic() < deadline
                time.sleep(0.001)
                seen.add(watch._wakes_at)
        return read_times(watch)

    monkeypatch.setattr("hubmere.node.runtime.stall_watch._stack_of", sample_the_report)
    monkeypatch.setattr(StallWatch, "_times", read_times_slowly)

    block_loop(check, 1.0)

    first, *_ = check.file.read_text().splitlines()
    assert json.loads(first)["stacks"] == []


def test_stall_of_a_node_process_is_reported(check: StallCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests run their node in a separate process, which inherits the variable."""
    monkeypatch.setenv(FILE_VARIABLE, str(check.file))
    monkeypatch.setenv(THRESHOLD_VARIABLE, "5")
    with Node(settings={"memory": True}) as node:
        wait_for_report(node, check.file)
        pid = node.pid

    lines = check.file.read_text().splitlines()
    assert any(f'"pid": {pid}' in line and "process.py" in line for line in lines)


def wait_for_report(node: Node, file: Path) -> None:
    """Wait until a long turn was reported; the first request to the portal has some."""
    deadline = time.monotonic() + 240
    while "process.py" not in file.read_text():
        assert time.monotonic() < deadline
        with urllib.request.urlopen(f"{node.http}/portal/sign-in", timeout=600) as answer:
            answer.read()


def test_stopped_process_is_not_a_stall(check: StallCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tests stop processes on purpose."""
    monkeypatch.setenv(FILE_VARIABLE, str(check.file))
    with Node(settings={"memory": True}) as node:
        os.kill(node.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(node.pid, signal.SIGCONT)

    assert check.failures() == []


def test_busy_machine_is_not_a_stall(check: StallCheck) -> None:
    """Many processes and threads compete for the two CPUs of a build machine: that is no fault of the node."""
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            pass

    with ExitStack() as ends:
        for _ in range(4):
            process = subprocess.Popen([sys.executable, "-S", "-c", _SPINNER])
            ends.callback(process.wait)
            ends.callback(process.kill)
        threads = [threading.Thread(target=spin) for _ in range(2)]
        for thread in threads:
            thread.start()
            ends.callback(thread.join)
        ends.callback(done.set)
        for _ in range(5):
            block_loop(check, 0.03, cpu=True)

    assert check.failures() == []


def test_code_of_tests_on_the_loop_is_not_a_stall() -> None:
    """A test may block the loop on purpose; then the innermost frame of our code is the test."""
    held = (
        f'  File "{__file__}", line 1, in hold\n    wait()\n  File "/usr/lib/python3/threading.py", line 2, in wait\n'
    )
    product = f'  File "{__file__}", line 1, in run\n  File "{Stall.__module__}", line 2, in open\n'

    assert is_of_test([held])
    assert not is_of_test([product.replace(Stall.__module__, sys.modules[Stall.__module__].__file__ or "")])
    assert not is_of_test([])


def test_time_without_a_cpu_does_not_count_for_the_turn() -> None:
    """Waiting for a CPU, and other threads that hold the interpreter lock, are subtracted."""
    stall = Stall(
        pid=1,
        ended_at=0.0,
        length_s=1.0,
        thread_s=0.1,
        waited_s=0.5,
        others_s=0.4,
        overslept_s=0.0,
        others_waited_s=0.0,
        stacks=[],
    )

    assert stall.own_s == pytest.approx(0.1)
    assert stall.own_s <= LIMIT_S + 1e-9


@pytest.mark.parametrize(
    ("own_s", "machine", "is_failure"),
    [
        (1.1 * LIMIT_S, Machine(late_s=0.0, slowness=1.0), True),
        (0.9 * LIMIT_S, Machine(late_s=0.0, slowness=1.0), False),
        (1.1 * LIMIT_S, Machine(late_s=0.0, slowness=1.2), False),
        (1.1 * LIMIT_S, Machine(late_s=0.05, slowness=1.0), False),
    ],
    ids=["long", "short", "slow-processor", "late-machine"],
)
def test_limit_follows_the_machine(
    check: StallCheck, monkeypatch: pytest.MonkeyPatch, own_s: float, machine: Machine, is_failure: bool
) -> None:
    """A turn of 100 ms of the node's own time fails; a slow or busy machine makes the limit higher."""
    monkeypatch.setattr("stalls.EmptyLoop.machine_between", lambda *_: machine)
    stall = Stall(
        pid=7, ended_at=0.0, length_s=own_s, thread_s=own_s, waited_s=0.0, others_s=0.0, overslept_s=0.0,
        others_waited_s=0.0, stacks=["one"],
    )  # fmt: skip

    check.file.write_text(json.dumps(asdict(stall)) + "\n", encoding="utf-8")

    assert bool(check.failures()) is is_failure


@pytest.mark.parametrize(
    ("length_s", "is_failure"), [(0.9 * BLOCKED_LIMIT_S, False), (1.1 * BLOCKED_LIMIT_S, True)], ids=["short", "long"]
)
def test_blocked_turn_has_a_limit_of_its_own(
    check: StallCheck, monkeypatch: pytest.MonkeyPatch, length_s: float, is_failure: bool
) -> None:
    """The kernel may let a call wait although the machine is not busy; a call that waits for the disk takes longer."""
    monkeypatch.setattr("stalls.EmptyLoop.machine_between", lambda *_: Machine(late_s=0.0, slowness=1.0))
    stall = Stall(
        pid=7, ended_at=0.0, length_s=length_s, thread_s=0.001, waited_s=0.0, others_s=0.0, overslept_s=0.0,
        others_waited_s=0.0, stacks=["accept"],
    )  # fmt: skip

    check.file.write_text(json.dumps(asdict(stall)) + "\n", encoding="utf-8")

    assert bool(check.failures()) is is_failure


@pytest.mark.parametrize("thread_s", [0.0, 1.0], ids=["stopped", "lock-held"])
def test_turn_without_a_stack_counts_by_its_processor_time(
    check: StallCheck, monkeypatch: pytest.MonkeyPatch, thread_s: float
) -> None:
    """No stack can be sampled of a stopped process, and of a call that holds the interpreter lock."""
    monkeypatch.setattr("stalls.EmptyLoop.machine_between", lambda *_: Machine(late_s=0.0, slowness=1.0))
    stall = Stall(
        pid=7, ended_at=0.0, length_s=1.0, thread_s=thread_s, waited_s=0.0, others_s=0.0, overslept_s=0.0,
        others_waited_s=0.0, stacks=[],
    )  # fmt: skip

    check.file.write_text(json.dumps(asdict(stall)) + "\n", encoding="utf-8")

    assert bool(check.failures()) is (thread_s > 0)


def test_empty_loop_records_the_speed_of_the_machine(check: StallCheck) -> None:
    """Every beat has a delay and a computation."""
    now = time.monotonic()

    machine = check._empty_loop.machine_between(now, now + 0.1)

    assert machine.slowness >= 1.0
    assert machine.late_s >= 0.0


def test_ended_thread_does_not_make_a_turn_longer() -> None:
    """The waits of other threads are subtracted; an ended thread must not give a negative wait."""
    with_another = {**_waits_s(), "0": 1000.0}

    assert _waited_since_s(with_another, "none") >= 0.0


def test_thread_that_ends_while_threads_are_listed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the watch would fail instead of the turn that it measures."""
    own = str(threading.get_native_id())
    monkeypatch.setattr(os, "listdir", lambda _: ["999999999", own])

    assert set(_waits_s()) <= {own}


def test_line_that_is_being_written_is_read_when_it_is_complete(
    check: StallCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node writes while the check reads: half a line is neither a failure nor lost."""
    monkeypatch.setattr(check, "_failure", lambda stall: f"turn of {stall.pid}")
    stall = Stall(
        pid=7, ended_at=0.0, length_s=1.0, thread_s=1.0, waited_s=0.0, others_s=0.0, overslept_s=0.0,
        others_waited_s=0.0, stacks=[],
    )  # fmt: skip
    line = json.dumps(asdict(stall)) + "\n"
    check.file.write_text(line[:40], encoding="utf-8")
    before = check.failures()

    check.file.write_text(line, encoding="utf-8")

    assert before == []
    assert check.failures() == ["turn of 7"]
    assert check.failures() == []


class _GrowingFile(io.BytesIO):
    """A file that ends within a line at the first read; its writer finishes the line before the next one."""

    def __init__(self, parts: list[bytes]) -> None:
        super().__init__(parts[0])
        self._rest = parts[1:]

    def __next__(self) -> bytes:
        line = super().__next__()
        if self._rest:
            at = self.tell()
            self.seek(0, io.SEEK_END)
            self.write(self._rest.pop(0))
            self.seek(at)
        return line


def test_rest_of_a_line_is_not_read_as_a_line() -> None:
    """A node finishes its line between two reads of the check: the next call reads the whole line."""
    file = _GrowingFile([b'{"pid"', b": 7}\n"])

    lines = complete_lines(file)

    assert lines == []
