"""The doctor: looks at every batch of every log while no node runs, names what is wrong, and mends what may be mended.

`check` changes nothing. `repair` cuts only what lies behind the recovery point and is not whole (nothing behind a torn
batch was ever acknowledged) and removes indexes that do not fit, which are made again from the batches. Anything older
that is broken is named and left alone: a reader is refused there, and a copy of the file may still help.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from hubmere.model.batch import HEADER_BYTES, MAGIC, BatchHeader, is_intact, read_header
from hubmere.model.errors import CorruptBatch
from hubmere.store.files import Files, HandlePool, unlink_if_there
from hubmere.store.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from hubmere.store.manifest import Manifest, RecoveryPoint, read_manifest, read_recovery_point
from hubmere.store.recovery import recover
from hubmere.store.segment import INDEX, LOG, TIME_INDEX, Segment, Space, stem

Progress = Callable[[str], None]


class Kind(Enum):
    """What can be wrong with a log, and so what can be done."""

    UNREADABLE = "the log's own list of segments cannot be read"
    MISSING = "a segment is missing"
    CORRUPT = "a batch is broken or out of order"
    TORN_TAIL = "the end was never committed"
    INDEX = "an index does not fit its segment"


REPAIRABLE = frozenset({Kind.TORN_TAIL, Kind.INDEX})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: where, and what."""

    log: str
    file: str
    position: int
    kind: Kind
    detail: str

    def __str__(self) -> str:
        """One line for the operator."""
        return f"{self.log}/{self.file} at byte {self.position}: {self.kind.value} ({self.detail})"


@dataclass(slots=True, kw_only=True)
class Report:
    """What a check has seen."""

    logs: int = 0
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def check(data_dir: Path, files: Files, progress: Progress | None = None) -> Report:
    """Look at everything under a data folder that no node is using."""
    report = Report()
    for directory in _log_directories(data_dir, files):
        if progress is not None:
            progress(directory.name)
        report.logs += 1
        _Examination(files, directory, report).run()
    return report


def repair(data_dir: Path, files: Files, progress: Progress | None = None) -> list[Finding]:
    """Mend what may be mended; returns the findings that were. The others still stand in the next check."""
    mended = [finding for finding in check(data_dir, files, progress).findings if finding.kind in REPAIRABLE]
    space = Space(files, HandlePool(files))
    for finding in mended:
        if finding.kind is Kind.INDEX:
            unlink_if_there(files, data_dir / "log" / finding.log / finding.file)
    for log in sorted({finding.log for finding in mended}):
        recover(space, data_dir / "log" / log, compact=False)
    space.pool.close_all()
    return mended


def _log_directories(data_dir: Path, files: Files) -> Iterator[Path]:
    folder = data_dir / "log"
    for name in files.names(folder):
        try:
            files.names(folder / name)
        except (NotADirectoryError, FileNotFoundError):
            continue
        yield folder / name


class _Examination:
    """One log: its segments in order."""

    def __init__(self, files: Files, directory: Path, report: Report) -> None:
        self._files = files
        self._directory = directory
        self._report = report
        self._space = Space(files, HandlePool(files))
        self._expected = 0

    def run(self) -> None:
        """Examine every segment, and compare its indexes with what they should be."""
        try:
            manifest = read_manifest(self._files, self._directory)
        except CorruptBatch as broken:
            self._find("", 0, Kind.UNREADABLE, str(broken))
            return
        if manifest is None:
            self._find("", 0, Kind.UNREADABLE, "it is not there")
            return
        point = read_recovery_point(self._files, self._directory)
        self._expected = manifest.segments[0].base_sequence
        for number in range(len(manifest.segments)):
            self._examine(manifest, number, point)

    def _examine(self, manifest: Manifest, number: int, point: RecoveryPoint | None) -> None:
        start, is_last = manifest.segments[number], number == len(manifest.segments) - 1
        name = stem(start.base_sequence) + LOG
        try:
            size_bytes = self._files.size(self._directory / name)
        except FileNotFoundError:
            if not is_last:
                self._find(name, 0, Kind.MISSING, "listed, but not there")
            return
        self._report.segments += 1
        self._report.size_bytes += size_bytes
        shadow = Segment(self._space, self._directory, start, 0, is_sealed=False)
        shadow.start_empty()
        self._expected = max(self._expected, start.base_sequence) if manifest.is_compact else self._expected
        fd = self._files.open(self._directory / name)
        try:
            is_whole = self._walk(shadow, fd, size_bytes, manifest.is_compact, _vouched(point, start.base_sequence))
        finally:
            self._files.close(fd)
        if is_whole and not is_last:
            shadow.seal()
        if is_whole and point is not None:
            self._compare_indexes(shadow, point)

    def _walk(self, shadow: Segment, fd: int, size_bytes: int, is_compact: bool, vouched_bytes: int | None) -> bool:
        position, is_whole = 0, True
        name = stem(shadow.base_sequence) + LOG
        while position < size_bytes:
            batch, why = self._look(fd, position, size_bytes)
            header = read_header(batch) if batch is not None else None
            if header is not None and why is None:
                why = self._order(header, is_compact)
            if why is not None:
                is_whole = False
                is_tail = vouched_bytes is not None and position >= vouched_bytes
                self._find(name, position, Kind.TORN_TAIL if is_tail else Kind.CORRUPT, why)
                if is_tail or header is None:
                    return False
            assert header is not None
            self._expected = header.next_sequence_number
            self._report.batches += 1
            shadow.note(header.next_sequence_number - 1, header.size_bytes, header.max_time_ms)
            position += header.size_bytes
        return is_whole

    def _look(self, fd: int, position: int, end: int) -> tuple[bytes | None, str | None]:
        """The batch at a place if its length can be believed, and what is wrong with it."""
        head = self._files.pread(fd, HEADER_BYTES, position)
        if len(head) < HEADER_BYTES:
            return None, "the header is cut short"
        header = read_header(head)
        if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= end - position:
            return None, f"magic {header.magic} and length {header.length} are no whole batch"
        batch = self._files.pread(fd, header.size_bytes, position)
        return batch, None if is_intact(batch) else "the checksum does not match"

    def _order(self, header: BatchHeader, is_compact: bool) -> str | None:
        base = header.base_sequence_number
        if base == self._expected or (is_compact and base > self._expected):
            return None
        return f"it begins with sequence number {base} instead of {self._expected}"

    def _compare_indexes(self, shadow: Segment, point: RecoveryPoint) -> None:
        """Whole files before the recovery point, what it counts in its own segment, nothing behind it."""
        if shadow.base_sequence > point.segment_base:
            return
        counts = {
            INDEX: (shadow.index.to_bytes(), point.index_entries * OFFSET_ENTRY_BYTES),
            TIME_INDEX: (shadow.times.to_bytes(), point.time_entries * TIME_ENTRY_BYTES),
        }
        for suffix, (expected, vouched_bytes) in counts.items():
            compared = vouched_bytes if shadow.base_sequence == point.segment_base else None
            name = stem(shadow.base_sequence) + suffix
            try:
                found = self._files.read(self._directory / name)
            except FileNotFoundError:
                continue  # made again when it is first needed
            if found[:compared] != expected[:compared]:
                self._find(name, 0, Kind.INDEX, f"its {len(found)} bytes are not those that follow from the batches")

    def _find(self, file: str, position: int, kind: Kind, detail: str) -> None:
        self._report.findings.append(
            Finding(log=self._directory.name, file=file, position=position, kind=kind, detail=detail)
        )


def _vouched(point: RecoveryPoint | None, base_sequence: int) -> int | None:
    """Up to which byte of a segment the recovery point vouches; None when all of it."""
    if point is None or base_sequence > point.segment_base:
        return 0
    return point.position if base_sequence == point.segment_base else None
