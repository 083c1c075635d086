"""Which process listens on a TCP port, from Linux's /proc: for the message about a port that is in use.

The files of another user's process cannot be read; then no owner is found, and the message names only the port.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_TABLES = ("net/tcp", "net/tcp6")
# Columns of these tables (proc(5)): local address, state, inode of the socket.
_LOCAL, _STATE, _INODE = 1, 3, 9
_LISTENING = "0A"


def port_owner(port: int, proc: Path = _PROC) -> str | None:
    """`name (process id)` of the process that listens on a port; None if it cannot be determined."""
    inodes = set(_listening_inodes(port, proc))
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for folder in proc.glob("[0-9]*"):
        if wanted.intersection(_open_files(folder)):
            return f"{_name(folder)} (process {folder.name})"
    return None


def _listening_inodes(port: int, proc: Path) -> Iterator[str]:
    for table in _TABLES:
        try:
            lines = (proc / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for columns in map(str.split, lines):
            if columns[_STATE] == _LISTENING and int(columns[_LOCAL].rpartition(":")[2], 16) == port:
                yield columns[_INODE]


def _open_files(folder: Path) -> Iterator[str]:
    try:
        names = os.listdir(folder / "fd")  # noqa: PTH208  names are enough, and Path objects are slow
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(folder / "fd" / name)  # noqa: PTH115  the target is no path
        except OSError:
            continue


def _name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text().strip()
    except OSError:
        return "a process"
