"""Runs a Python process of Spark so that it answers Spark before it imports anything.

    python -m hubmere.pipeline.early_worker -m MODULE

Spark gives the process of a streaming source 10 s to connect back, which no setting changes. PySpark imports itself,
NumPy and PyArrow before it connects: half a second on a quiet machine, more than 10 s on a busy one. Here the process
connects first and imports then; PySpark gets the socket when it connects to the same address.

The capture job names a script that runs this as its `PYSPARK_PYTHON` (`write_script`). Processes that Spark does not
start with the address of a socket, such as its daemon, run unchanged.
"""

import os
import runpy
import shlex
import socket
import sys
from pathlib import Path
from typing import Any, Final

_ADDRESS_VARIABLE: Final = "PYTHON_WORKER_FACTORY_SOCK_PATH"
# Spark also asks Python for its version, and runs single statements: anything but a module is Python's own.
_SCRIPT: Final = """#!/bin/sh
if [ "$1" = -m ]; then
    exec {python} -m {module} "$@"
fi
exec {python} "$@"
"""


def write_script(path: Path) -> Path:
    """Write an executable that replaces Python; returns it, or Python itself if the file cannot be executed."""
    python = shlex.quote(sys.executable)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(_SCRIPT.format(python=python, module=__spec__.name), encoding="utf-8")
    path.chmod(0o700)
    # A file system that is mounted without the right to execute.
    return path if os.access(path, os.X_OK) else Path(sys.executable)


def connect_early(address: str) -> None:
    """Connect to a socket of Spark now, and give the connection to the first later call that connects there."""
    early = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    early.connect(address)
    connect = socket.socket.connect

    def take_early(self: socket.socket, wanted: Any) -> None:
        if wanted != address:
            connect(self, wanted)
            return
        socket.socket.connect = connect  # type: ignore[method-assign]
        os.dup2(early.fileno(), self.fileno())
        early.close()
        self.settimeout(self.gettimeout())  # the file descriptor has changed

    socket.socket.connect = take_early  # type: ignore[method-assign, assignment]


def main() -> None:
    """Run the module that the arguments name, as `python -m MODULE` does."""
    if len(sys.argv) < 3 or sys.argv[1] != "-m":
        raise SystemExit("usage: python -m hubmere.pipeline.early_worker -m MODULE [ARGUMENT ...]")
    if (address := os.environ.get(_ADDRESS_VARIABLE)) is not None:
        connect_early(address)
    module = sys.argv[2]
    sys.argv[:3] = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
