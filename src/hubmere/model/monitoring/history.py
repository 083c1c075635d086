"""The history of a node's metrics: resolutions, rows, and the protocol of its store.

A series has three rings of rows: one row per second for an hour, one per 10 seconds for a day, one per minute for 30
days. The place of a row in its ring follows from its time, so a ring never grows and needs no index.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Ring(NamedTuple):
    """One resolution: a row every `step_s` seconds, `length` rows."""

    step_s: int
    length: int

    @property
    def range_s(self) -> int:
        """The time that the ring covers."""
        return self.step_s * self.length


RINGS = (Ring(1, 3600), Ring(10, 8640), Ring(60, 43_200))

Values = tuple[float, ...]


class HistoryRow(NamedTuple):
    """The values of a series in one step of a ring. `second` is the start of the step, in seconds since 1970 UTC."""

    series: str
    ring: int
    second: int
    values: Values


class HistoryStore(Protocol):
    """Where rows are kept. Reads and writes may run on any thread, one at a time."""

    def write(self, rows: Sequence[HistoryRow]) -> None:
        """Keep rows; raises OSError if the disk refuses them."""

    def read(self, series: str, width: int, ring: int, first_s: int, last_s: int) -> list[tuple[int, Values]]:
        """The rows of a series between two times (both included), oldest first. `width` is the number of values."""

    def retain(self, is_needed: Callable[[str], bool]) -> None:
        """Delete every series that is not needed any more."""
