"""The damaged ranges (gaps) of one log: skipped by readers, stored in `hubmere-damage`, reported to the registry.

A range is found once, by recovery or by the first reader that reaches it, and is skipped from then on. It is stored for
the next start; if that fails, it is found again. Thread rule: the owner's thread only.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from hubmere.model.monitoring.damage import DamagedRange, DamageKind
from hubmere.store.files import Files, unlink_if_exists
from hubmere.store.recovery.damage_registry import MAX_RANGES_PER_LOG, DamageRegistry
from hubmere.store.recovery.manifest import DAMAGE, Gap, read_gaps, write_gaps

_LOGGER = logging.getLogger(__name__)

_KNOWN = "the bytes do not match their checksums"
_LOST = "the file ends before the last acknowledged event"
_UNDECODABLE = "the records of the batch cannot be decoded"


class LogGaps:
    """The damaged ranges of one log."""

    def __init__(self, files: Files, directory: Path, registry: DamageRegistry | None = None) -> None:
        self._files = files
        self._directory = directory
        self._registry = registry
        self._gaps: list[Gap] = []

    def load(self) -> None:
        """Load the ranges that an earlier run stored."""
        self._gaps = read_gaps(self._files, self._directory)

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def of_segment(self, segment_base: int) -> list[Gap]:
        """The ranges of one segment, by position."""
        return sorted((gap for gap in self._gaps if gap.segment_base == segment_base), key=lambda gap: gap.position)

    def covers(self, sequence: int) -> bool:
        """Whether a sequence number is in a known damaged range."""
        return any(gap.first_sequence <= sequence < gap.next_sequence for gap in self._gaps)

    def add(self, gap: Gap, reason: str) -> None:
        """Add and store a range that was just found; it replaces the ranges that it contains."""
        self._gaps = [known for known in self._gaps if not _is_within(known, gap)]
        self._gaps.append(gap)
        self._report(gap, reason, is_known=False)
        self.save()

    def report_all(self) -> None:
        """Report the ranges of earlier runs to the registry."""
        for gap in self._gaps:
            self._report(gap, _reason_of(gap), is_known=True)

    def keep(self, gaps: Iterable[Gap]) -> None:
        """Keep only these: the others were repaired, or their events were deleted."""
        kept = list(gaps)
        if len(kept) != len(self._gaps):
            self._gaps = kept
            self.save()

    def all(self) -> Sequence[Gap]:
        """All ranges."""
        return tuple(self._gaps)

    def forget_before(self, sequence: int) -> None:
        """Drop the ranges before a sequence number, whose events were deleted."""
        if self._gaps:
            self.keep([gap for gap in self._gaps if gap.next_sequence > sequence])
            if self._registry is not None:
                self._registry.forget_before(self._directory.name, sequence)

    def save(self) -> None:
        """Store the list; if that fails, the next start searches again."""
        try:
            if self._gaps:
                write_gaps(self._files, self._directory, self._gaps[:MAX_RANGES_PER_LOG])
            else:
                unlink_if_exists(self._files, self._directory / DAMAGE)
        except OSError as error:
            _LOGGER.warning("log %s: cannot store the list of damaged ranges: %s", self._directory.name, error)

    def _report(self, gap: Gap, reason: str, *, is_known: bool) -> None:
        if self._registry is None:
            return
        self._registry.report(
            DamagedRange(
                log=self._directory.name,
                first_sequence=gap.first_sequence,
                next_sequence=gap.next_sequence,
                kind=_kind_of(gap),
                reason=reason,
                file=f"{gap.segment_base:020d}.log",
                position=gap.position,
                size_bytes=gap.end - gap.position,
            ),
            is_known=is_known,
        )


def _reason_of(gap: Gap) -> str:
    if gap.is_undecodable:
        return _UNDECODABLE
    return _LOST if gap.is_missing else _KNOWN


def _kind_of(gap: Gap) -> DamageKind:
    if gap.is_undecodable:
        return DamageKind.UNREADABLE
    return DamageKind.MISSING if gap.is_missing else DamageKind.BROKEN


def _is_within(known: Gap, gap: Gap) -> bool:
    is_same = known.segment_base == gap.segment_base
    return is_same and gap.first_sequence <= known.first_sequence and known.next_sequence <= gap.next_sequence
