"""Runs commands as a user does: inside the test process if that is enough, as a child process if pipes matter."""

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from hubmere.cli.main import main
from hubmere.testing import Node


@dataclass(frozen=True, slots=True)
class Run:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON; a command that failed shows why."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Standard output in lines; a command that failed shows why."""
        assert self.code == 0, self.err
        return self.out.splitlines()


def environment(**variables: str) -> dict[str, str]:
    """The environment without settings of Hubmere, except those given."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HUBMERE_")}
    return {**plain, "COLUMNS": "200", **variables}


def hubmere(*arguments: str, **variables: str) -> Run:
    """The command in this process, through its own entry point."""
    raw, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(raw, encoding="utf-8")
    code: object = None
    with (
        patch.object(sys, "argv", ["hubmere", *arguments]),
        patch.dict(os.environ, environment(**variables), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    out.flush()
    return Run(int(code) if isinstance(code, int) else 0, raw.getvalue().decode(), err.getvalue())


def at(node: Node, *arguments: str) -> Run:
    """The command for a node on this machine."""
    return hubmere(*arguments, HUBMERE_DATA=str(node.data))


def started(node: Node, *arguments: str) -> "subprocess.Popen[bytes]":
    """The command as a child process with pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "hubmere", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(HUBMERE_DATA=str(node.data)), preexec_fn=hears_interrupts,
    )  # fmt: skip


def hears_interrupts() -> None:
    """Reset SIGINT: a shell without a terminal lets background jobs ignore it, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def piped(node: Node, data: bytes, *arguments: str) -> tuple[int, bytes, str]:
    """Run the command as a child process with standard input; returns exit code, output and errors."""
    with started(node, *arguments) as process:
        out, err = process.communicate(data, timeout=1200)
    return process.returncode, out, err.decode()
