"""Which segments retention deletes: a pure decision, tested row by row."""

import pytest

from hubmere.store.engine import LogConfig, RetentionHold
from hubmere.store.log.retention import SegmentFacts, count_expired, is_roll_due

SEALED = [SegmentFacts(100, 10, 5), SegmentFacts(100, 20, 10), SegmentFacts(100, 30, 15)]


@pytest.mark.parametrize(
    ("config", "now_ms", "gone"),
    [
        (LogConfig(retention_ms=50), 60, 0),
        (LogConfig(retention_ms=50), 61, 1),
        (LogConfig(retention_ms=50), 71, 2),
        (LogConfig(retention_ms=50), 10_000, 3),
        (LogConfig(retention_ms=None), 10_000, 0),
        (LogConfig(retention_ms=None, retention_bytes=350), 0, 0),
        (LogConfig(retention_ms=None, retention_bytes=250), 0, 1),
        (LogConfig(retention_ms=None, retention_bytes=0), 0, 3),
        (LogConfig(retention_ms=50, retention_bytes=250), 61, 1),
        (LogConfig(retention_ms=None, compact=True), 10_000, 0),
        (LogConfig(retention_ms=50, compact=True), 71, 2),
    ],
)
def test_oldest_segments_beyond_a_limit_are_deleted(config: LogConfig, now_ms: int, gone: int) -> None:
    """Whole segments are deleted, oldest first, by the time of their newest event or by the remaining size."""
    assert count_expired(SEALED, 350, config, now_ms) == gone


@pytest.mark.parametrize(
    ("hold", "gone"),
    [
        (RetentionHold(15, 1_000), 3),
        (RetentionHold(14, 1_000), 2),
        (RetentionHold(5, 1_000), 1),
        (RetentionHold(4, 1_000), 0),
        (RetentionHold(0, 350), 0),
        (RetentionHold(0, 349), 1),
        (RetentionHold(0, 150), 2),
        (RetentionHold(0, 0), 3),
    ],
)
def test_hold_keeps_segments_that_are_not_captured_up_to_its_size(hold: RetentionHold, gone: int) -> None:
    """A segment is deleted when all of it was captured, or when the log is larger than the hold allows."""
    assert count_expired(SEALED, 350, LogConfig(retention_ms=50), 10_000, hold) == gone


def test_retention_reads_no_further_than_the_first_segment_that_stays() -> None:
    """Of a thousand segments, only the times of deleted ones and of one more are read."""
    unasked = iter(SEALED)

    count_expired(unasked, 350, LogConfig(retention_ms=50), 61)

    assert list(unasked) == SEALED[2:]


@pytest.mark.parametrize(
    ("config", "is_due"),
    [
        (LogConfig(segment_ms=99, retention_ms=None), True),
        (LogConfig(segment_ms=100, retention_ms=None), False),
        (LogConfig(segment_ms=1_000, retention_ms=49), True),
        (LogConfig(segment_ms=1_000, retention_ms=50), False),
        (LogConfig(segment_ms=1_000, retention_ms=None, compact=True), False),
    ],
)
def test_old_active_segment_is_rolled_so_that_its_events_can_be_deleted(config: LogConfig, is_due: bool) -> None:
    """Otherwise an idle partition would keep its last events for ever."""
    assert is_roll_due(100, 150, config, 200) is is_due
