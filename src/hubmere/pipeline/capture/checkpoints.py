"""The checkpoint of a query on a local disk: made durable before files are published, and repaired after a power
failure.

Spark writes its logs without syncing them, so a power failure may leave empty or incomplete files, at which Spark
refuses to start. Offsets that decided published files were synced (`make_durable`) and are never touched. An incomplete
newest offset was not synced, and no file depends on it: it is removed (`mend`). Incomplete commit entries are removed
too: Spark repeats the last micro-batch, which finds its files. Checkpoints on Spark's own file systems are not touched.
"""

import errno
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Final
from uuid import uuid4

_OFFSETS: Final = "offsets"
_COMMITS: Final = "commits"
# The id of the query: a line of JSON.
_METADATA: Final = "metadata"
# Checksum files of Hadoop: they are never synced, so after a power failure they could reject valid data.
_SUMS: Final = ".*.crc"
# Errors of folders that are not ours: no permission, or a file system without sync.
_NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)
# Roots and checkpoints of one job: one or two for each captured hub.
_MAX_ANCHORED: Final = 4096


def synchronise(path: Path) -> None:
    """Make a file's bytes, or the names in a folder, durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@lru_cache(_MAX_ANCHORED)
def anchor(folder: Path) -> None:
    """Create a folder and make it and its parents durable: a file is lost if its folder is."""
    folder.mkdir(parents=True, exist_ok=True)
    for above in folder.absolute().parents:
        try:
            synchronise(above)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            return


def make_durable(checkpoint: Path, batch: int) -> None:
    """Make the offset of a micro-batch durable, so that it survives a power failure if its files do."""
    for path in (checkpoint / _METADATA, checkpoint / _OFFSETS / str(batch), checkpoint / _OFFSETS, checkpoint):
        synchronise(path)


def mend(checkpoint: Path) -> list[Path]:
    """Remove incomplete files after a power failure, while no query runs; returns them."""
    for folder in (checkpoint, checkpoint / _OFFSETS, checkpoint / _COMMITS):
        for path in folder.glob(_SUMS):
            path.unlink()
    offsets, commits = (_entries(checkpoint / log) for log in (_OFFSETS, _COMMITS))
    torn = [path for path in (*offsets[-1:], *commits) if _is_torn(path)]
    for path in torn:
        path.unlink()
    return [*torn, *_mend_metadata(checkpoint / _METADATA, has_begun=bool(offsets or commits))]


def _entries(log: Path) -> list[Path]:
    return sorted(log.glob("[0-9]*"), key=lambda path: int(path.name))


def _mend_metadata(path: Path, *, has_begun: bool) -> list[Path]:
    """Replace a missing or incomplete query id: Spark refuses a checkpoint without one, and any id will do."""
    if _is_torn(path) if path.exists() else has_begun:
        path.write_text(json.dumps({"id": str(uuid4())}), encoding="utf-8")
        return [path]
    return []


def _is_torn(path: Path) -> bool:
    """Whether the end of a file, which is a line of JSON in all of Spark's logs, is missing."""
    lines = path.read_bytes().splitlines()
    try:
        return not lines or not isinstance(json.loads(lines[-1]), dict)
    except ValueError:
        return True
