"""Copies of the data folder of a stopped node."""

import os
import shutil
from pathlib import Path
from typing import Final

_SEGMENT: Final = ".log"
# Half of what ext4 allows for one file (65,000).
_MAX_LINKS: Final = 32_000


def copy_data(source: Path, target: Path) -> None:
    """Copy the data folder of a stopped node; sealed segments, which never change, become hard links."""
    target.mkdir(mode=0o700)
    entries = sorted(os.scandir(source), key=lambda entry: entry.name)
    segments = [entry.name for entry in entries if entry.name.endswith(_SEGMENT)]
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            copy_data(Path(entry.path), target / entry.name)
        elif entry.name in segments[:-1] and entry.stat().st_nlink < _MAX_LINKS:
            os.link(entry.path, target / entry.name)
        else:
            shutil.copy2(entry.path, target / entry.name)
