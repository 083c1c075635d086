"""The damaged ranges of one log: known to its walkers, kept in `hubmere-damage`, told to the registry.

A range is found once, by recovery or by the first reader that meets it, and is passed over from then on. It is written
down so that the next start knows it too; where that fails it is found again. Thread rule: the owner's thread only.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from hubmere.model.damage import DamagedRange, DamageKind
from hubmere.store.files import Files, unlink_if_exists
from hubmere.store.recovery.damage_registry import MAX_RANGES_PER_LOG, DamageRegistry
from hubmere.store.recovery.manifest import DAMAGE, Gap, read_gaps, write_gaps

_LOGGER = logging.getLogger(__name__)

_KNOWN = "the bytes do not match their checksums"
_LOST = "the file ends before the last acknowledged event"
_UNDECODABLE = "the records of the batch cannot be decoded"


class LogGaps:
    """Damaged ranges by segment, and of the whole log."""

    def __init__(self, files: Files, directory: Path, registry: DamageRegistry | None = None) -> None:
        self._files = files
        self._directory = directory
        self._registry = registry
        self._gaps: list[Gap] = []

    def load(self) -> None:
        """Take over what an earlier run has written down."""
        self._gaps = read_gaps(self._files, self._directory)

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def of_segment(self, segment_base: int) -> list[Gap]:
        """The ranges of one segment, in order."""
        return sorted((gap for gap in self._gaps if gap.segment_base == segment_base), key=lambda gap: gap.position)

    def covers(self, sequence: int) -> bool:
        """Whether a sequence number is known to be unreadable."""
        return any(gap.first_sequence <= sequence < gap.next_sequence for gap in self._gaps)

    def add(self, gap: Gap, reason: str) -> None:
        """Note a range that was found just now, durably; ranges that it takes in are dropped."""
        self._gaps = [known for known in self._gaps if not _is_within(known, gap)]
        self._gaps.append(gap)
        self._report(gap, reason, is_known=False)
        self.save()

    def report_all(self) -> None:
        """Tell the registry of every range that is known from earlier."""
        for gap in self._gaps:
            self._report(gap, _reason_of(gap), is_known=True)

    def keep(self, gaps: Iterable[Gap]) -> None:
        """Keep only these: the others were mended, or their events are gone."""
        kept = list(gaps)
        if len(kept) != len(self._gaps):
            self._gaps = kept
            self.save()

    def all(self) -> Sequence[Gap]:
        """Every range."""
        return tuple(self._gaps)

    def forget_before(self, sequence: int) -> None:
        """Retention has removed everything before a sequence number."""
        if self._gaps:
            self.keep([gap for gap in self._gaps if gap.next_sequence > sequence])
            if self._registry is not None:
                self._registry.forget_before(self._directory.name, sequence)

    def save(self) -> None:
        """Write the list down; a failure costs the next start a search and nothing else."""
        try:
            if self._gaps:
                write_gaps(self._files, self._directory, self._gaps[:MAX_RANGES_PER_LOG])
            else:
                unlink_if_exists(self._files, self._directory / DAMAGE)
        except OSError as error:
            _LOGGER.warning("log %s: the list of damaged ranges cannot be written (%s)", self._directory.name, error)

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
