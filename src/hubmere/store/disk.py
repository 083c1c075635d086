"""How full the disk of the data folder is: warned about before it is full, and a reserve that events may not use.

Two marks. Below `warn_share` of the disk the operator is warned. Below `reserve_bytes` events are refused with an error
that clients retry, while there is still room for the catalog, recovery points and certificates; reads go on. Both end
by themselves when there is a little more room than the mark, so that a disk at the mark does not flap.
Thread rule: one caller.
"""

from enum import Enum
from pathlib import Path
from typing import NamedTuple

from hubmere.store.files import Files

# On a small disk the reserve is no more than this part of it.
_MOST_RESERVED = 20
# How much more room than a mark ends what began at it: a quarter of the mark.
_SLACK = 4
_MIB = 1024 * 1024


class DiskLevel(Enum):
    """How full."""

    ROOMY = "roomy"
    LOW = "low"
    FULL = "full"


class DiskState(NamedTuple):
    """What one look has found."""

    level: DiskLevel
    free_bytes: int
    total_bytes: int
    reserve_bytes: int

    @property
    def text(self) -> str:
        """A sentence for operators and, while events are refused, for clients."""
        free = f"{self.free_bytes / _MIB:,.0f} of {self.total_bytes / _MIB:,.0f} MB are free"
        if self.level is DiskLevel.FULL:
            return f"the disk of the data folder is full: {free}, and {self.reserve_bytes / _MIB:,.0f} MB are reserved"
        return f"the disk of the data folder fills up: {free}"


class DiskWatch:
    """Looks at one folder's disk."""

    def __init__(self, files: Files, folder: Path, *, warn_percent: int, reserve_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._warn_percent = warn_percent
        self._reserve_bytes = reserve_bytes
        self._level = DiskLevel.ROOMY

    def look(self) -> DiskState:
        """How full the disk is now; raises OSError when it cannot be asked."""
        free, total = self._files.free_bytes(self._folder), self._files.total_bytes(self._folder)
        reserve = min(self._reserve_bytes, total // _MOST_RESERVED)
        self._level = self._level_of(free, total * self._warn_percent // 100, reserve)
        return DiskState(self._level, free, total, reserve)

    def _level_of(self, free: int, warn: int, reserve: int) -> DiskLevel:
        is_full, is_low = self._level is DiskLevel.FULL, self._level is not DiskLevel.ROOMY
        if free <= reserve + (reserve // _SLACK if is_full else 0):
            return DiskLevel.FULL
        return DiskLevel.LOW if free <= warn + (warn // _SLACK if is_low else 0) else DiskLevel.ROOMY
