"""Which segments may go: a pure decision over whole segments, oldest first.

Time: a segment goes when its newest event is older than the retention (Kafka: largest timestamp, so nothing goes
early). Size: the oldest go while what remains is still as large as the limit. The active segment is never among them;
one that is older than a segment may be, or than the retention, is rolled first so that its events can go. A segment
with events in the future (the machine's clock was wrong) is judged by the first event behind it. A compacted
log has a retention only when it was asked to delete as well (Kafka: `compact,delete`). A hold keeps what somebody still
has to fetch, and gives way before the log outgrows what the hold may keep.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hubmere.store.engine import Hold, LogConfig

# An event that is further in the future has a wrong time: what follows it tells when it was written.
MOST_AHEAD_MS = 3_600_000


class SegmentFacts(NamedTuple):
    """What retention asks of a sealed segment."""

    size_bytes: int
    newest_time_ms: int
    end_sequence: int


def expired(
    sealed: Iterable[SegmentFacts], total_bytes: int, config: LogConfig, now_ms: int, hold: Hold | None = None
) -> int:
    """How many of the oldest sealed segments may go; looks no further than the first that stays."""
    gone = 0
    for facts in sealed:
        is_old = config.retention_ms is not None and facts.newest_time_ms < now_ms - config.retention_ms
        is_surplus = config.retention_bytes is not None and total_bytes - facts.size_bytes >= config.retention_bytes
        if not is_old and not is_surplus:
            break
        if hold is not None and facts.end_sequence > hold.from_sequence and total_bytes <= hold.most_bytes:
            break
        gone += 1
        total_bytes -= facts.size_bytes
    return gone


def is_roll_due(first_time_ms: int, newest_time_ms: int, config: LogConfig, now_ms: int) -> bool:
    """Whether an active segment that holds events is too old to stay active, or its time is wrong."""
    if now_ms - first_time_ms > config.segment_ms or first_time_ms - now_ms > MOST_AHEAD_MS:
        return True
    return config.retention_ms is not None and newest_time_ms < now_ms - config.retention_ms
