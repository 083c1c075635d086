"""The metadata files of a log's directory: list of segments, recovery point, leader epochs, damaged ranges.

Small text files like Kafka's checkpoint files (version, values, and a checksum as the last line). Each is replaced
atomically, so a crash leaves the old or the new one:

- `hubmere-segments`: `log_start`, the cleanup policy, and one line per segment. A segment is listed before it is
  created and removed from the list before it is deleted, so a file that is not listed is never data. The line has the
  absolute byte position of the segment, because byte offsets of events do not change when older segments are deleted.
- `hubmere-segments.next`: the same list after a change that is not durable yet (see `store.log.segments.segment_list`).
- `hubmere-recovery`: the recovery point. Data and indexes before it are on disk and agree; recovery scans the rest.
- `leader-epoch-checkpoint`: Kafka's own file, one line per epoch.
- `hubmere-damage`: one line per damaged range, which readers skip; exists only if there are any.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from hubmere.model.errors import CorruptBatch
from hubmere.store.files import Files, replace_file, unlink_if_exists, write_all, write_new

SEGMENTS = "hubmere-segments"
NEXT_SEGMENTS = "hubmere-segments.next"
RECOVERY = "hubmere-recovery"
EPOCHS = "leader-epoch-checkpoint"
DAMAGE = "hubmere-damage"

# The name under which `replace_file` writes the new content.
_NEXT_RECOVERY = RECOVERY + ".tmp"
_VERSION = 1


class SegmentStart(NamedTuple):
    """A segment's line: where it begins, and the last offset and time before it (for a log that was emptied)."""

    base_sequence: int
    base_position: int
    last_offset_before: int
    last_enqueued_before_ms: int


class Manifest(NamedTuple):
    """The segments of a log in order, and the first sequence number that readers may see."""

    log_start: int
    segments: tuple[SegmentStart, ...]
    is_compact: bool  # fixed at creation


class RecoveryPoint(NamedTuple):
    """Everything before `sequence` is durable and verified; the counts say which index entries are on disk."""

    sequence: int
    segment_base: int
    position: int  # in the segment's file
    last_offset: int
    last_enqueued_ms: int
    index_entries: int
    time_entries: int
    aborted_entries: int
    first_time_ms: int  # of the segment's first batch, -1 if it is empty
    max_time_ms: int  # of the segment so far
    max_time_sequence: int
    unindexed_bytes: int  # since the last index entry
    snapshot: int  # name of the producer snapshot; -1 if there were no producers


class Gap(NamedTuple):
    """A damaged range of a segment, which readers skip, and its sequence numbers."""

    segment_base: int
    position: int
    end: int  # position of the next intact batch
    first_sequence: int
    next_sequence: int
    is_missing: bool  # the file ends before these events
    is_undecodable: bool = False  # the batch is intact, but its records cannot be decoded


FIRST_SEGMENT = SegmentStart(0, 0, -1, -1)


def read_manifest(files: Files, directory: Path) -> Manifest | None:
    """The list of segments in force; None if there is none yet."""
    try:
        rows = _read_rows(files, directory / NEXT_SEGMENTS)
    except CorruptBatch:
        rows = None  # a power cut came before it was durable
    if rows is None:
        rows = _read_rows(files, directory / SEGMENTS)
    if rows is None:
        return None
    log_start, is_compact = rows[0]
    return Manifest(log_start, tuple(SegmentStart(*row) for row in rows[1:]), bool(is_compact))


def write_manifest(files: Files, directory: Path, manifest: Manifest) -> None:
    """Store the list of segments durably."""
    replace_file(files, directory / SEGMENTS, _encode_manifest(manifest))


def write_next_manifest(files: Files, directory: Path, manifest: Manifest) -> None:
    """Store a changed list of segments in the page cache, beside the durable one; does not wait for the disk."""
    path, fresh = directory / NEXT_SEGMENTS, directory / (NEXT_SEGMENTS + ".tmp")
    fd = files.open(fresh, create=True)
    try:
        files.truncate(fd, 0)
        write_all(files, fd, _encode_manifest(manifest))
    finally:
        files.close(fd)
    files.rename(fresh, path)


def remove_next_manifest(files: Files, directory: Path) -> None:
    """Remove the changed list; the durable one is not older. If it cannot be removed, it says the same."""
    with suppress(OSError):
        unlink_if_exists(files, directory / NEXT_SEGMENTS)


def _encode_manifest(manifest: Manifest) -> bytes:
    return _encode_rows([(manifest.log_start, int(manifest.is_compact)), *manifest.segments])


def read_recovery_point(files: Files, directory: Path) -> RecoveryPoint | None:
    """The last recovery point; None if it cannot be read, which only makes recovery slower."""
    try:
        rows = _read_rows(files, directory / RECOVERY)
    except CorruptBatch:
        return None
    return None if rows is None else RecoveryPoint(*rows[0])


def write_recovery_point(files: Files, directory: Path, point: RecoveryPoint) -> None:
    """Store a recovery point durably; everything that it covers must be durable already."""
    _write_rows(files, directory / RECOVERY, [point])


def write_next_recovery_point(files: Files, directory: Path, point: RecoveryPoint) -> None:
    """Store a recovery point beside the one in force; it is not durable yet."""
    write_new(files, directory / _NEXT_RECOVERY, _encode_rows([point]), is_durable=False)


def replace_recovery_point(files: Files, directory: Path) -> None:
    """Put the recovery point in force that was stored beside it, and is durable; the change is not durable yet."""
    files.rename(directory / _NEXT_RECOVERY, directory / RECOVERY)


def read_gaps(files: Files, directory: Path) -> list[Gap]:
    """The stored damaged ranges; empty if the list cannot be read: they are then found again."""
    try:
        rows = _read_rows(files, directory / DAMAGE) or []
    except CorruptBatch:
        return []
    return [Gap(row[0], row[1], row[2], row[3], row[4], *map(bool, row[5:])) for row in rows]


def write_gaps(files: Files, directory: Path, gaps: Sequence[Gap]) -> None:
    """Store the list of damaged ranges durably."""
    _write_rows(files, directory / DAMAGE, [(*gap[:5], int(gap.is_missing), int(gap.is_undecodable)) for gap in gaps])


def read_epochs(files: Files, directory: Path) -> list[tuple[int, int]]:
    """Leader epochs and the sequence number at which each began, oldest first."""
    try:
        lines = files.read(directory / EPOCHS).decode("ascii").split("\n")
        return [(int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines[2:] if line)]
    except (FileNotFoundError, ValueError):
        return []


def write_epochs(files: Files, directory: Path, epochs: Sequence[tuple[int, int]]) -> None:
    """Write Kafka's leader epoch file: version 0, count, lines."""
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs), ""]
    replace_file(files, directory / EPOCHS, "\n".join(lines).encode("ascii"))


def _write_rows(files: Files, path: Path, rows: Sequence[Sequence[int]]) -> None:
    replace_file(files, path, _encode_rows(rows))


def _encode_rows(rows: Sequence[Sequence[int]]) -> bytes:
    text = "".join(" ".join(map(str, row)) + "\n" for row in [(_VERSION,), *rows]).encode("ascii")
    return text + b"%08x\n" % crc32c(text)


def _read_rows(files: Files, path: Path) -> list[tuple[int, ...]] | None:
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    text, checksum = data[:-9], data[-9:]
    if checksum != b"%08x\n" % crc32c(text):
        raise CorruptBatch(f"'{path.name}' of log '{path.parent.name}' does not match its checksum")
    rows = [tuple(map(int, line.split(b" "))) for line in text.splitlines()]
    if rows[0] != (_VERSION,):
        raise CorruptBatch(f"'{path.name}' of log '{path.parent.name}' has version {rows[0]} instead of {_VERSION}")
    return rows[1:]
