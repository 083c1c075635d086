"""A node as a child process that ends with the process that started it, in whatever way that one ends.

1. The parent holds the writing end of a pipe that is the child's standard input, and writes nothing to it.
2. When the parent ends, also by SIGKILL, the system closes that end. A thread of the child reads the end of the input
   and sends SIGTERM to its own process: a node stops gracefully, and a process that still loads its code just ends.

The child has a session of its own, so Ctrl-C in a terminal interrupts only the parent, which then stops the child.
"""

import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path


class BoundChild(subprocess.Popen[bytes]):
    """`hubmere` with the given arguments; its output is appended to a file."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        with log.open("ab") as output:
            super().__init__(
                [sys.executable, "-m", __name__, *arguments],
                stdin=subprocess.PIPE, stdout=output, stderr=output, env=dict(environment), start_new_session=True,
            )  # fmt: skip

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; returns its exit code."""
        code = super().wait(timeout)
        if self.stdin is not None:
            self.stdin.close()
        return code


def run() -> None:
    """Run the command line of this process until the parent ends."""
    # The node and its own children get an empty input instead.
    pipe = os.dup(0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_stop_at_end, args=(pipe,), name="end of the parent", daemon=True).start()
    # By name, as `python -m hubmere` finds it: the command line is above this package.
    sys.argv[0] = "hubmere"
    runpy.run_module("hubmere", run_name="__main__")


def _stop_at_end(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run()
