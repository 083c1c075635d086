"""Retention: a pure decision which segments to delete, oldest first.

- Time: a segment is deleted when its newest event is older than the retention (Kafka: largest timestamp, so nothing is
  deleted early).
- Size: the oldest segments are deleted while the rest is still at least as large as the limit.
- The active segment is never deleted. If it is older than `segment_ms` or than the retention, it is rolled first.
- A segment with events in the future (the machine's clock was wrong) is judged by the first event after it.
- A compacted log has a retention only with Kafka's policy `compact,delete`.
- A hold protects events that still have to be captured, unless the log is larger than the hold allows.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hubmere.store.engine import LogConfig, RetentionHold

# An event more than this ahead of the clock has a wrong time: the time of the events after it is used instead.
MOST_AHEAD_MS = 3_600_000


class SegmentFacts(NamedTuple):
    """The facts about a sealed segment that retention needs."""

    size_bytes: int
    newest_time_ms: int
    end_sequence: int


def count_expired(
    sealed: Iterable[SegmentFacts], total_bytes: int, config: LogConfig, now_ms: int, hold: RetentionHold | None = None
) -> int:
    """How many of the oldest sealed segments to delete; reads no further than the first that stays."""
    count = 0
    for facts in sealed:
        is_old = config.retention_ms is not None and facts.newest_time_ms < now_ms - config.retention_ms
        is_surplus = config.retention_bytes is not None and total_bytes - facts.size_bytes >= config.retention_bytes
        if not is_old and not is_surplus:
            break
        if hold is not None and facts.end_sequence > hold.from_sequence and total_bytes <= hold.max_bytes:
            break
        count += 1
        total_bytes -= facts.size_bytes
    return count


def is_roll_due(first_time_ms: int, newest_time_ms: int, config: LogConfig, now_ms: int) -> bool:
    """Whether an active segment with events is too old to stay active, or its time is wrong."""
    if now_ms - first_time_ms > config.segment_ms or first_time_ms - now_ms > MOST_AHEAD_MS:
        return True
    return config.retention_ms is not None and newest_time_ms < now_ms - config.retention_ms
