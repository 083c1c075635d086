"""Free space on the disk of the data folder: a warning before it is full, and a reserve that events may not use.

There are two thresholds. Below `warn_percent` of free space the operator is warned. Below `reserve_bytes` events are
refused with an error that clients retry, while there is still space for the catalog, recovery points and certificates;
reads continue. Both states end when the free space is a quarter above the threshold, so that they do not flap.
Thread rule: one caller.
"""

from enum import Enum
from pathlib import Path
from typing import NamedTuple

from hubmere.store.files import Files

# On a small disk the reserve is at most one part in this many of its size.
_MAX_RESERVE_DIVISOR = 20
# A state ends when the free space exceeds its threshold by one part in this many.
_HYSTERESIS_DIVISOR = 4
_MIB = 1024 * 1024


class DiskLevel(Enum):
    """How full the disk is."""

    NORMAL = "normal"
    LOW = "low"
    FULL = "full"


class DiskState(NamedTuple):
    """One measurement."""

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
        return f"the disk of the data folder is filling up: {free}"


class DiskMonitor:
    """Measures the disk of one folder."""

    def __init__(self, files: Files, folder: Path, *, warn_percent: int, reserve_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._warn_percent = warn_percent
        self._reserve_bytes = reserve_bytes
        self._level = DiskLevel.NORMAL

    def measure(self) -> DiskState:
        """How full the disk is now; raises OSError if that cannot be read."""
        free, total = self._files.free_bytes(self._folder), self._files.total_bytes(self._folder)
        reserve = min(self._reserve_bytes, total // _MAX_RESERVE_DIVISOR)
        self._level = self._level_of(free, total * self._warn_percent // 100, reserve)
        return DiskState(self._level, free, total, reserve)

    def _level_of(self, free: int, warn: int, reserve: int) -> DiskLevel:
        is_full, is_low = self._level is DiskLevel.FULL, self._level is not DiskLevel.NORMAL
        if free <= reserve + (reserve // _HYSTERESIS_DIVISOR if is_full else 0):
            return DiskLevel.FULL
        return DiskLevel.LOW if free <= warn + (warn // _HYSTERESIS_DIVISOR if is_low else 0) else DiskLevel.NORMAL
