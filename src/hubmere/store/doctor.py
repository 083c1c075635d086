"""The doctor: verifies every batch of every log while no node runs, reports damage, and repairs what is safe to repair.

`check` changes nothing. `repair` does three things:

1. It truncates data that was never acknowledged, by the rules for opening a log (see `recovery.scan`).
2. It removes indexes that do not match their segment; they are rebuilt from the batches.
3. It marks intact batches whose records cannot be decoded as damaged, so that every reader skips them: a Kafka consumer
   would stop there, and a backup of the file would contain the same batch.

Other damage is only reported, with the sequence numbers that readers skip: a backup of the file may still help.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from hubmere.model.errors import CorruptBatch
from hubmere.records.header import HEADER_BYTES, MAGIC, BatchHeader, is_intact, read_header
from hubmere.records.validate import why_unreadable
from hubmere.store.files import Files, HandlePool, unlink_if_exists
from hubmere.store.log.committed_file import Boundary, CommittedFile
from hubmere.store.log.resources import LogResources
from hubmere.store.log.segments.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from hubmere.store.log.segments.segment import INDEX, LOG, MAX_RELATIVE_SEQUENCE, TIME_INDEX, Segment, stem
from hubmere.store.recovery.damaged_ranges import LogGaps
from hubmere.store.recovery.manifest import Gap, Manifest, RecoveryPoint, read_manifest, read_recovery_point
from hubmere.store.recovery.recovery import recover
from hubmere.store.recovery.resync import Stretch, find_intact, looks_unwritten
from hubmere.store.recovery.unrecovered import needs_recovery

Progress = Callable[[str], None]


class Kind(Enum):
    """The kinds of damage."""

    UNREADABLE = "the log's own list of segments cannot be read"
    MISSING = "a segment is missing"
    CORRUPT = "a batch is broken or out of order"
    LOST = "acknowledged events are missing"
    TORN_TAIL = "the end of the log was never acknowledged"
    INDEX = "an index does not match its segment"
    UNDECODABLE = "the records of a batch cannot be decoded"


REPAIRABLE = frozenset({Kind.TORN_TAIL, Kind.INDEX, Kind.UNDECODABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One damaged place."""

    log: str
    file: str
    position: int
    kind: Kind
    detail: str
    gap: Gap | None = None  # the range that readers skip once this is repaired

    def __str__(self) -> str:
        """One line for the operator."""
        return f"{self.log}/{self.file} at byte {self.position}: {self.kind.value} ({self.detail})"


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of a check."""

    logs: int = 0
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    # Logs that were not closed: the next start recovers them, which is no damage.
    unrecovered: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether no damage was found."""
        return not self.findings


def check(data_dir: Path, files: Files, progress: Progress | None = None) -> Report:
    """Check all logs of a data folder that no node uses."""
    report = Report()
    committed_file = _committed_file(data_dir, files)
    for directory in _log_directories(data_dir, files):
        if progress is not None:
            progress(directory.name)
        report.logs += 1
        if needs_recovery(files, directory):
            report.unrecovered.append(directory.name)
        _LogCheck(files, directory, report, committed_file).run()
    return report


def repair(data_dir: Path, files: Files, progress: Progress | None = None) -> list[Finding]:
    """Repair what is safe to repair; returns those findings. The next check reports the others again."""
    repaired = [finding for finding in check(data_dir, files, progress).findings if finding.kind in REPAIRABLE]
    resources, committed_file = LogResources(files, HandlePool(files)), _committed_file(data_dir, files)
    for finding in repaired:
        if finding.kind is Kind.INDEX:
            unlink_if_exists(files, data_dir / "log" / finding.log / finding.file)
        if finding.gap is not None:
            gaps = LogGaps(files, data_dir / "log" / finding.log)
            gaps.load()
            gaps.add(finding.gap, finding.detail)
    for log in sorted({finding.log for finding in repaired}):
        committed = committed_file.previous(log)
        recover(
            resources,
            data_dir / "log" / log,
            compact=False,
            committed=committed,
            is_same_boot=committed_file.is_same_boot,
        )
    resources.pool.close_all()
    return repaired


def _committed_file(data_dir: Path, files: Files) -> CommittedFile:
    committed_file = CommittedFile(files, data_dir / "log")
    committed_file.load()
    return committed_file


def _log_directories(data_dir: Path, files: Files) -> Iterator[Path]:
    folder = data_dir / "log"
    for name in files.names(folder):
        try:
            files.names(folder / name)
        except (NotADirectoryError, FileNotFoundError):
            continue
        yield folder / name


class _LogCheck:
    """One log: its segments in order."""

    def __init__(self, files: Files, directory: Path, report: Report, committed_file: CommittedFile) -> None:
        self._files = files
        self._directory = directory
        self._report = report
        self._resources = LogResources(files, HandlePool(files))
        self._is_same_boot = committed_file.is_same_boot
        self._committed = committed_file.previous(directory.name)
        self._is_compact = False
        self._expected = 0
        self._gaps = LogGaps(files, directory)

    def run(self) -> None:
        """Verify every segment, and compare its indexes with those that follow from the batches."""
        try:
            manifest = read_manifest(self._files, self._directory)
        except CorruptBatch as broken:
            self._report_finding("", 0, Kind.UNREADABLE, str(broken))
            return
        if manifest is None:
            self._report_finding("", 0, Kind.UNREADABLE, "it is missing")
            return
        self._gaps.load()
        point = read_recovery_point(self._files, self._directory)
        self._extend_committed(manifest, point)
        self._is_compact = manifest.is_compact
        self._expected = manifest.segments[0].base_sequence
        for number in range(len(manifest.segments)):
            self._check_segment(manifest, number, point)

    def _extend_committed(self, manifest: Manifest, point: RecoveryPoint | None) -> None:
        """Everything before the recovery point was acknowledged too."""
        for start in manifest.segments if point is not None else ():
            if point is not None and start.base_sequence == point.segment_base:
                covered = Boundary(point.sequence, start.base_position + point.position)
                self._committed = covered if self._committed is None else max(self._committed, covered)

    def _check_segment(self, manifest: Manifest, number: int, point: RecoveryPoint | None) -> None:
        start, is_last = manifest.segments[number], number == len(manifest.segments) - 1
        name = stem(start.base_sequence) + LOG
        following = None if is_last else manifest.segments[number + 1].base_sequence
        try:
            size_bytes = self._files.size(self._directory / name)
        except FileNotFoundError:
            if not is_last:
                self._report_finding(name, 0, Kind.MISSING, "it is listed, but the file does not exist")
                self._expected = following or 0
            else:
                self._compare_end(name, 0, None)
            return
        self._report.segments += 1
        self._report.size_bytes += size_bytes
        shadow = Segment(self._resources, self._directory, start, 0, is_sealed=False)
        shadow.start_empty()
        self._expected = max(self._expected, start.base_sequence) if manifest.is_compact else self._expected
        fd = self._files.open(self._directory / name)
        try:
            is_whole = self._walk(shadow, fd, size_bytes, following)
        finally:
            self._files.close(fd)
        if is_whole and not is_last:
            shadow.seal()
        if is_whole and point is not None:
            self._compare_indexes(shadow, point)

    def _walk(self, shadow: Segment, fd: int, size_bytes: int, following: int | None) -> bool:
        position, is_whole = 0, True
        name = stem(shadow.base_sequence) + LOG
        while position < size_bytes:
            batch, why = self._read_batch(fd, position, size_bytes)
            header = read_header(batch) if batch is not None else None
            if header is not None and why is None:
                why = self._sequence_fault(header)
            if batch is None or header is None or why is not None:
                is_whole = False
                after = self._skip(name, fd, position, size_bytes, following, why or "it cannot be read")
                if after is None:
                    return False
                position = after
                continue
            self._check_records(shadow, position, batch, header)
            self._expected = header.next_sequence_number
            self._report.batches += 1
            shadow.size_bytes = position
            shadow.note([(header.next_sequence_number - 1, header.size_bytes, header.max_time_ms)])
            position += header.size_bytes
        return self._compare_end(name, size_bytes, following) and is_whole

    def _check_records(self, shadow: Segment, position: int, batch: bytes, header: BatchHeader) -> None:
        """Report an intact batch whose records cannot be decoded, unless readers already skip it."""
        first, following = header.base_sequence_number, header.next_sequence_number
        why = why_unreadable(batch, HEADER_BYTES, header.codec, header.record_count)
        if why is None or self._gaps.covers(first):
            return
        detail = f"{why}; sequence numbers {first} to {following - 1}"
        gap = Gap(shadow.base_sequence, position, position + header.size_bytes, first, following, False, True)
        self._report_finding(stem(shadow.base_sequence) + LOG, position, Kind.UNDECODABLE, detail, gap)

    def _skip(self, name: str, fd: int, position: int, size_bytes: int, following: int | None, why: str) -> int | None:
        """Report a damaged range; returns the position after it. None for an end that was never acknowledged."""

        def read(at: int, wanted_bytes: int) -> bytes:
            return self._files.pread(fd, wanted_bytes, at)

        expected, committed = self._expected, self._committed
        last = self._expected + MAX_RELATIVE_SEQUENCE if following is None else following - 1
        found = find_intact(read, Stretch(position, size_bytes, expected, last, has_gaps=self._is_compact))
        is_committed = following is not None or (committed is not None and expected < committed.sequence)
        end = size_bytes if found is None else found[0]
        is_torn = found is None or (not self._is_same_boot and looks_unwritten(read, position, end))
        if is_torn and not is_committed:
            self._report_finding(name, position, Kind.TORN_TAIL, why)
            return None
        if found is not None:
            self._expected = found[1].base_sequence_number
        elif following is not None or committed is not None:
            self._expected = (
                following if following is not None else max(committed.sequence if committed else 0, expected)
            )
        numbers = f"sequence numbers {expected} to {self._expected - 1} cannot be read"
        self._report_finding(name, position, Kind.CORRUPT, f"{why}; {numbers}, bytes up to {end}")
        return end

    def _compare_end(self, name: str, size_bytes: int, following: int | None) -> bool:
        """Whether a file reaches the next segment, or the committed end."""
        committed = self._committed
        wanted = (committed.sequence if committed else 0) if following is None else following
        if self._expected >= wanted or (self._is_compact and following is not None):
            return True
        self._report_finding(
            name, size_bytes, Kind.LOST, f"sequence numbers {self._expected} to {wanted - 1}: the file ends here"
        )
        self._expected = wanted
        return False

    def _read_batch(self, fd: int, position: int, end: int) -> tuple[bytes | None, str | None]:
        """The batch at a position, if its length is plausible, and its fault."""
        head = self._files.pread(fd, HEADER_BYTES, position)
        if len(head) < HEADER_BYTES:
            return None, "the header is incomplete"
        header = read_header(head)
        if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= end - position:
            return None, f"magic {header.magic} and length {header.length} are not a whole batch"
        batch = self._files.pread(fd, header.size_bytes, position)
        return batch, None if is_intact(batch) else "the checksum does not match"

    def _sequence_fault(self, header: BatchHeader) -> str | None:
        base = header.base_sequence_number
        if base == self._expected or (self._is_compact and base > self._expected):
            return None
        return f"it begins with sequence number {base} instead of {self._expected}"

    def _compare_indexes(self, shadow: Segment, point: RecoveryPoint) -> None:
        """Compare whole files before the recovery point, its counted entries in its own segment, none after it."""
        if shadow.base_sequence > point.segment_base:
            return
        counts = {
            INDEX: (shadow.index.to_bytes(), point.index_entries * OFFSET_ENTRY_BYTES),
            TIME_INDEX: (shadow.times.to_bytes(), point.time_entries * TIME_ENTRY_BYTES),
        }
        for suffix, (expected, covered_bytes) in counts.items():
            compared = covered_bytes if shadow.base_sequence == point.segment_base else None
            name = stem(shadow.base_sequence) + suffix
            try:
                found = self._files.read(self._directory / name)
            except FileNotFoundError:
                continue  # rebuilt on first use
            if found[:compared] != expected[:compared]:
                self._report_finding(
                    name, 0, Kind.INDEX, f"its {len(found)} bytes differ from those that follow from the batches"
                )

    def _report_finding(self, file: str, position: int, kind: Kind, detail: str, gap: Gap | None = None) -> None:
        self._report.findings.append(
            Finding(log=self._directory.name, file=file, position=position, kind=kind, detail=detail, gap=gap)
        )
