"""Queries to the leader of a partition: who waits for an answer, and how long it is valid. Values of `log`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hubmere.model.errors import Refusal


class LogEnds(NamedTuple):
    """The answer of a leader: start and end, the newest time, and the first event at a requested time."""

    start: int
    stable: int
    committed: int
    newest_ms: int
    at_time: int


@dataclass(slots=True, eq=False)
class LeaderQuestion:
    """A query to the leader, and the callbacks that wait for the answer."""

    waiting: list[Callable[[], None]] = field(default_factory=list)
    is_sent: bool = False


@dataclass(slots=True)
class LeaderAnswer:
    """The leader's answer, valid for the requests that have waited for it."""

    uses: int
    until: float
    refusal: Refusal | None

    def use(self, now: float) -> bool:
        """Use the answer once, if it is still valid."""
        self.uses -= 1
        return self.uses >= 0 and now < self.until
