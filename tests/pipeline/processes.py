"""Processes of this machine and their descendants, which tests find and kill; needs /proc."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random


def family(ancestor: int) -> dict[int, str]:
    """A process and its descendants, with their command lines; Spark's daemons have their own process groups."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            parents[int(folder.name)], commands[int(folder.name)] = parent, command
    found = {ancestor}
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    return {pid: commands.get(pid, "") for pid in sorted(found)}


def is_python_worker(command: str) -> bool:
    """Whether a command line is that of a Python process of Spark: one that plans, reads, computes or writes."""
    return "pyspark" in command and "java" not in command


def kill_one(pids: list[int], chance: Random) -> int | None:
    """Send SIGKILL to one of some processes; returns None if there is none, or if it has ended by itself."""
    if not pids:
        return None
    victim = chance.choice(pids)
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return victim
