"""Simulated power cuts: programs run on a disk that records what was synced (`powercut.c`).

A cut stops all processes at once and restores the state of the disk: without unsynced data, or, as on file systems with
delayed allocation, with all names and without unsynced contents.
"""

import ctypes
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from enum import Enum
from pathlib import Path

from pipeline.processes import family

SOURCE = Path(__file__).with_name("powercut.c")
_KEY_BYTES = 64


class Loss(Enum):
    """What happens to unsynced data."""

    ALL = "neither names nor contents survive"
    CONTENTS = "names survive, with empty files behind them"


class Disk:
    """A folder whose power can be cut. Programs with `variables` in their environment use it."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._root = root
        self._notes = scratch / "notes"
        library = scratch / "powercut.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
        self._library = ctypes.CDLL(str(library))
        self._old = scratch / "before-the-cut"
        self.variables = {"LD_PRELOAD": str(library), "CUT_ROOT": str(root), "CUT_NOTES": str(self._notes)}

    def settle(self) -> None:
        """Make the current content durable."""
        shutil.rmtree(self._notes, ignore_errors=True)
        for kind in ("contents", "names"):
            (self._notes / kind).mkdir(parents=True)
        before = os.environ.get("CUT_NOTES")
        assert before == str(self._notes), "the library reads its folder from the environment"
        self._library.cut_note_all(str(self._root).encode())

    def cut(self, ancestor: int, loss: Loss) -> None:
        """Stop a process and its children at once, and restore the state of the disk."""
        _stop(ancestor)
        shutil.rmtree(self._old, ignore_errors=True)
        self._root.rename(self._old)
        self._root.mkdir()
        if loss is Loss.ALL:
            self._restore_noted(self._key(self._old), self._root)
        else:
            self._restore_named(self._old, self._root)

    def _restore_noted(self, key: str, target: Path) -> None:
        """Restore a folder by its durable names."""
        noted = self._notes / "names" / key
        for line in noted.read_text(encoding="utf-8").splitlines() if noted.exists() else ():
            kind, below, name = line.split(" ", 2)
            if kind == "d":
                (target / name).mkdir()
                self._restore_noted(below, target / name)
            else:
                self._restore_content(below, target / name)

    def _restore_named(self, source: Path, target: Path) -> None:
        """Restore a folder by the names that it had."""
        for path in source.iterdir():
            if path.is_dir():
                (target / path.name).mkdir()
                self._restore_named(path, target / path.name)
            elif path.is_file():
                self._restore_content(self._key(path), target / path.name)

    def _restore_content(self, key: str, target: Path) -> None:
        noted = self._notes / "contents" / key
        if noted.exists():
            shutil.copyfile(noted, target)
        else:
            target.touch()
        # Only the owner may read keys and ready files, and nodes check it.
        target.chmod(0o600)

    def _key(self, path: Path) -> str:
        key = ctypes.create_string_buffer(_KEY_BYTES)
        assert self._library.cut_key(-100, str(path).encode(), key), path  # AT_FDCWD
        return key.value.decode()


def _stop(ancestor: int) -> None:
    """Stop all processes first, then kill all."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in family(ancestor):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
