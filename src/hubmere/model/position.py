"""Where a reader starts: a protocol-neutral form of all start positions of AMQP, Kafka and Spark."""

from dataclasses import dataclass
from enum import Enum


class Anchor(Enum):
    """The kind of a position."""

    FIRST = "first"
    LATEST = "latest"
    SEQUENCE = "sequence"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A start in a partition: `value` is a sequence number, a byte offset or a time in ms, by its anchor."""

    anchor: Anchor
    value: int = 0
    inclusive: bool = False

    @classmethod
    def first(cls) -> "Position":
        """From the oldest retained event."""
        return cls(anchor=Anchor.FIRST)

    @classmethod
    def latest(cls) -> "Position":
        """Only events enqueued from now on."""
        return cls(anchor=Anchor.LATEST)

    @classmethod
    def sequence(cls, value: int, *, inclusive: bool = False) -> "Position":
        """After (or at) a sequence number."""
        return cls(anchor=Anchor.SEQUENCE, value=value, inclusive=inclusive)

    @classmethod
    def offset(cls, value: int, *, inclusive: bool = False) -> "Position":
        """After (or at or after) a byte offset."""
        return cls(anchor=Anchor.OFFSET, value=value, inclusive=inclusive)

    @classmethod
    def time(cls, value_ms: int, *, inclusive: bool = False) -> "Position":
        """The first event enqueued after (or at or after) an instant."""
        return cls(anchor=Anchor.TIME, value=value_ms, inclusive=inclusive)
