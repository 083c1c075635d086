"""Damaged ranges: stored events that cannot be read, their position, and the reason."""

from dataclasses import dataclass
from enum import Enum


class DamageKind(Enum):
    """Why events cannot be read."""

    BROKEN = "broken on disk"
    MISSING = "missing on disk"
    UNREADABLE = "not decodable"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """Events that cannot be read: sequence numbers from `first_sequence` up to, not including, `next_sequence`."""

    log: str
    first_sequence: int
    next_sequence: int
    kind: DamageKind
    reason: str
    file: str = ""
    position: int = -1  # first byte of the range in the file, -1 when it has none
    size_bytes: int = 0

    @property
    def event_count(self) -> int:
        """How many sequence numbers the range covers."""
        return self.next_sequence - self.first_sequence

    @property
    def place(self) -> str:
        """File and bytes of the range, empty when it has none."""
        if self.position < 0:
            return ""
        return f"{self.file} bytes {self.position} to {self.position + self.size_bytes}"

    def __str__(self) -> str:
        """One line for the operator; an empty range means that the whole log cannot be opened."""
        if not self.event_count:
            return f"the log cannot be opened: {self.reason}"
        numbers = f"sequence numbers {self.first_sequence} to {self.next_sequence - 1}"
        place = f" in {self.place}" if self.place else ""
        return f"{numbers} are {self.kind.value}{place}: {self.reason}"
