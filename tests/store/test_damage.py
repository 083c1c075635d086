"""The registry of damaged ranges: each is logged once, counted, limited in number, and removed with its events."""

import logging

import pytest

from hubmere.model.monitoring.damage import DamagedRange, DamageKind
from hubmere.store.recovery.damage_registry import MAX_RANGES_PER_LOG, DamageRegistry
from log_records import messages_of


def a_range(first: int = 5, after: int = 8, *, log: str = "hub-0") -> DamagedRange:
    return DamagedRange(
        log=log, first_sequence=first, next_sequence=after, kind=DamageKind.BROKEN, reason="the checksum is wrong",
        file="00000000000000000000.log", position=100, size_bytes=300,
    )  # fmt: skip


def test_a_damaged_range_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Every reader reports the damage; the operator needs one line."""
    registry = DamageRegistry()

    with caplog.at_level(logging.ERROR):
        reports = [registry.report(a_range()), registry.report(a_range())]

    assert reports == [True, False]
    (line,) = messages_of(caplog, "hubmere")
    assert "hub-0" in line
    assert "sequence numbers 5 to 7" in line
    assert "00000000000000000000.log bytes 100 to 400" in line


def test_damaged_ranges_are_removed_with_events_that_retention_deletes() -> None:
    """Damage of events that are deleted anyway must no longer be reported."""
    registry = DamageRegistry()
    registry.report(a_range(5, 8))
    registry.report(a_range(20, 21))

    registry.forget_before("hub-0", 8)

    assert [found.first_sequence for found in registry.ranges("hub-0")] == [20]
    registry.forget("hub-0")
    assert registry.is_empty


def test_number_of_damaged_ranges_is_limited() -> None:
    """A failing disk must not fill the memory; the count is still exact."""
    registry = DamageRegistry()

    for number in range(MAX_RANGES_PER_LOG + 50):
        registry.report(a_range(number, number + 1))

    assert len(registry.ranges("hub-0")) == MAX_RANGES_PER_LOG
    assert registry.report_count == MAX_RANGES_PER_LOG + 50
