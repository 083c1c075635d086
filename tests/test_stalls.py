"""The check of long turns: a stalled node fails its test with the stack that was running, a busy machine does not."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hubmere.node.stall_watch import THRESHOLD_VARIABLE, Stall, StallWatch, _waited_since_s, _waits_s
from hubmere.testing import Node
from stalls import FILE_VARIABLE, LIMIT_S, StallCheck, is_excused

# A process that always wants a processor.
_SPINNER = "while True: pass"


@pytest.fixture
def check(tmp_path: Path) -> Iterator[StallCheck]:
    """A separate check, so that the stalls of these tests do not fail them."""
    check = StallCheck(tmp_path)
    yield check
    check.close()


def block_loop(check: StallCheck, seconds: float, *, cpu: bool = False) -> None:
    """Run a loop that is watched, with one long turn."""

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
    """With the stack the cause can be found."""
    monkeypatch.setattr("stalls._TESTS", "nowhere")

    # On a busy machine the limit is higher; a turn this long is over any limit that the machine has been seen to cause.
    block_loop(check, 2.0, cpu=cpu)

    [failure] = check.failures()
    assert "spend_processor_time" in failure if cpu else "block_loop" in failure or "in block" in failure
    assert check.failures() == []


def test_stall_of_a_node_process_is_reported(check: StallCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests have their node in a separate process; it inherits the variable."""
    monkeypatch.setenv(FILE_VARIABLE, str(check.file))
    monkeypatch.setenv(THRESHOLD_VARIABLE, "5")
    with Node(settings={"memory": True}) as node:
        wait_for_report(node, check.file)
        pid = node.pid

    lines = check.file.read_text().splitlines()
    assert any(f'"pid": {pid}' in line and "process.py" in line for line in lines)


def wait_for_report(node: Node, file: Path) -> None:
    """Wait until a long turn was reported; the first request to the portal has some."""
    deadline = time.monotonic() + 60
    while "process.py" not in file.read_text():
        assert time.monotonic() < deadline
        with urllib.request.urlopen(f"{node.http}/portal/sign-in", timeout=60) as answer:
            answer.read()


def test_stopped_process_is_not_a_stall(check: StallCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests stop processes to see what others do meanwhile."""
    monkeypatch.setenv(FILE_VARIABLE, str(check.file))
    with Node(settings={"memory": True}) as node:
        os.kill(node.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(node.pid, signal.SIGCONT)

    assert check.failures() == []


def test_busy_machine_is_not_a_stall(check: StallCheck) -> None:
    """Many processes and threads want the two processors of a build machine: that is no fault of the node."""
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
    """A test that blocks the loop on purpose is the innermost frame of our code."""
    held = (
        f'  File "{__file__}", line 1, in hold\n    wait()\n  File "/usr/lib/python3/threading.py", line 2, in wait\n'
    )
    product = f'  File "{__file__}", line 1, in run\n  File "{Stall.__module__}", line 2, in open\n'

    assert is_excused([held])
    assert not is_excused([product.replace(Stall.__module__, sys.modules[Stall.__module__].__file__ or "")])
    assert not is_excused([])


def test_time_that_the_machine_took_is_not_the_loops_own() -> None:
    """Waiting for a processor, and other threads that hold the interpreter lock, are subtracted."""
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


def test_thread_that_ends_does_not_make_a_turn_longer() -> None:
    """What other threads waited is subtracted: a thread that is gone must not turn into a negative wait."""
    with_another = {**_waits_s(), "0": 1000.0}

    assert _waited_since_s(with_another, "none") >= 0.0
