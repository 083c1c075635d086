"""Finds the logs that need recovery after a crash, by reading their small metadata files and no segment."""

from pathlib import Path

from hubmere.model.errors import CorruptBatch
from hubmere.store.files import Files
from hubmere.store.log.segments.segment import LOG, stem
from hubmere.store.recovery.manifest import read_manifest, read_recovery_point


def needs_recovery(files: Files, directory: Path) -> bool:
    """Whether opening this log has to scan batches; may run on any thread.

    A log that cannot be judged counts as one that needs it: opening it says what is wrong.
    """
    try:
        manifest = read_manifest(files, directory)
        if manifest is None:
            return any(name.endswith(LOG) for name in files.names(directory))
        base = manifest.segments[-1].base_sequence
        point = read_recovery_point(files, directory)
        covered_bytes = point.position if point is not None and point.segment_base == base else 0
        return files.size(directory / (stem(base) + LOG)) != covered_bytes
    except (OSError, CorruptBatch):
        return True
