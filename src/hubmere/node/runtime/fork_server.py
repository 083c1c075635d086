"""A process that has loaded the node's code and forks a node on request, for tests that start nodes often.

Most of the time of a start is used to load modules; a forked process has them already. The server has one thread and
opens nothing, so a fork inherits no lock, socket or file of a node. It reads requests as lines of JSON from its
standard input, and answers each with one line:

    {"start": ["up", "--data=..."], "log": "node.log"}  ->  {"pid": 42}
    {"wait": 42, "timeout_s": 5.0}                      ->  {"code": 0}, or {"code": null} while the process runs

When its input ends, because the test run has ended in whatever way, it kills the nodes that still run and ends.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_POLL_INTERVAL_S = 0.002
# By name, as `python -m hubmere` finds them: the command line is above this package.
_MODULES = ("hubmere.cli.entry", "hubmere.node.runtime.process")


# --- the server ---


def serve() -> NoReturn:
    """Answer requests until the input ends."""
    _load_modules()
    running: dict[int, int | None] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            pid = _fork(request["start"], request["log"])
            running[pid] = None
            answer: dict[str, Any] = {"pid": pid}
        else:
            answer = {"code": _await_end(running, request["wait"], request["timeout_s"])}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid, code in running.items():
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    sys.exit(0)


def _load_modules() -> None:
    """Everything that `hubmere up` loads when it starts."""
    for name in _MODULES:
        importlib.import_module(name)
    # A fork that collects garbage would copy every page of these objects.
    gc.collect()
    gc.freeze()


def _fork(arguments: Sequence[str], log: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (fd, 1), (fd, 2)):
        os.dup2(source, target)
    sys.argv = ["hubmere", *arguments]
    code = 1
    try:
        runpy.run_module("hubmere", run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _await_end(running: dict[int, int | None], pid: int, timeout_s: float) -> int | None:
    deadline = time.monotonic() + timeout_s
    while running[pid] is None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            running[pid] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() >= deadline:
            return None
        else:
            time.sleep(_POLL_INTERVAL_S)
    return running[pid]


# --- its client ---


class ForkServer:
    """The server as a child process. Not thread-safe."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from hubmere.node.runtime.fork_server import serve; serve()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment),
            start_new_session=True,  # Ctrl-C in a terminal interrupts the test run, which then stops its nodes
        )  # fmt: skip

    def start(self, arguments: Sequence[str], log: Path) -> "ForkedProcess":
        """Fork a process that runs the command line."""
        return ForkedProcess(self, self._ask({"start": list(arguments), "log": str(log)})["pid"])

    def exit_code(self, pid: int, timeout_s: float) -> int | None:
        """The exit code of a forked process; None if it still runs after a time."""
        code: int | None = self._ask({"wait": pid, "timeout_s": timeout_s})["code"]
        return code

    def close(self) -> None:
        """End the server and its forked processes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


class ForkedProcess:
    """A forked process, with the methods of `subprocess.Popen` that a node in tests needs."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while the process runs."""
        if self.returncode is None:
            self.returncode = self._server.exit_code(self.pid, 0)
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for the end of the process; returns its exit code."""
        if self.returncode is None:
            self.returncode = self._server.exit_code(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("hubmere", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)
