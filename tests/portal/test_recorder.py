"""The history that the node records all the time, without an open page."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from hubmere.model.monitoring.history import HistoryRow, Values
from hubmere.portal.history.consumer_lag import amqp_label, kafka_label
from hubmere.portal.history.recorder import (
    CONNECTIONS,
    LAG_WIDTH,
    MAX_LAG_SERIES,
    MAX_POINTS,
    MAX_SERIES,
    Recorder,
    downsample,
    fill_idle,
    hub_series,
    lag_series,
    namespace_series,
)
from hubmere.portal.history.sampler import COUNTERS
from hubmere.store.catalog.runtime_state import GroupOffset
from hubmere.store.catalog.view import Put
from hubmere.store.history import MemoryHistory
from log_records import records_of
from portal.builders import PortalHarness

_IN = COUNTERS.index("incoming_messages")
_HOUR = 3600


def record(harness: PortalHarness, seconds: int, events_per_second: int = 0) -> None:
    for _ in range(seconds):
        if events_per_second:
            harness.publish(*[b"x"] * events_per_second)
        harness.clock.advance(1.0)
        harness.recorder.sample()


def read(harness: PortalHarness, series: str, range_s: int) -> list[tuple[int, Values]]:
    return asyncio.run(harness.recorder.read(series, range_s))


@pytest.fixture
def names(harness: PortalHarness) -> tuple[str, str]:
    harness.recorder.sample()
    return namespace_series(harness.hub.namespace.view), hub_series(harness.hub.view)


def test_rates_are_recorded_every_second(harness: PortalHarness, names: tuple[str, str]) -> None:
    """The history exists even if no page was open."""
    record(harness, 5, events_per_second=3)

    for series in names:
        assert [values[_IN] for _, values in read(harness, series, 300)] == [3.0] * 5


def test_longer_ranges_have_mean_values(harness: PortalHarness, names: tuple[str, str]) -> None:
    """A day has a row per 10 seconds, a month one per minute; idle seconds count."""
    harness.clock.set_wall(1_700_000_039_000)
    record(harness, 60, events_per_second=2)
    record(harness, 90)

    day = read(harness, names[1], 24 * _HOUR)
    month = read(harness, names[1], 30 * 24 * _HOUR)

    assert [second % 10 for second, _ in day] == [0] * len(day)
    assert [values[_IN] for _, values in day][:6] == [2.0] * 6
    assert [(second % 60, values[_IN]) for second, values in month] == [(0, 2.0), (0, 0.0)]


def test_history_survives_a_restart(harness: PortalHarness, names: tuple[str, str]) -> None:
    """Flushed rows are read by the next process."""
    record(harness, 20, events_per_second=1)
    asyncio.run(harness.recorder.flush())
    restarted = Recorder(harness.broker, harness.clock, harness.sampler, harness.history)

    rows = asyncio.run(restarted.read(names[1], 300))

    assert [values[_IN] for _, values in rows] == [1.0] * 20


def test_idle_hub_has_no_rows(harness: PortalHarness, names: tuple[str, str]) -> None:
    """A thousand idle hubs cost neither memory nor disk; the page fills in the zeros."""
    record(harness, 3)

    assert read(harness, names[1], 300) == []
    times = [second for second, _ in read(harness, names[0], 300)]
    assert [values[_IN] for _, values in fill_idle([], times)] == [0.0] * 3


def test_connections_of_the_portal_are_not_counted(harness: PortalHarness, names: tuple[str, str]) -> None:
    """The chart shows clients of the namespace; a browser opens about six connections of its own."""
    harness.broker.counters.count_opened()
    caller = harness.broker.administrator()
    caller.open_connection()

    record(harness, 1)

    assert read(harness, names[0], 300)[-1][1][CONNECTIONS] == 1.0


def test_lag_of_readers_and_of_kafka_groups_is_recorded(harness: PortalHarness) -> None:
    """The trend of the lag says more than its value."""
    uid = harness.hub.entity.uid
    harness.a_reader("0")
    harness.catalog.apply(
        Put(GroupOffset(namespace="hubmere", group_id="billing", hub_uid=uid, partition=0, sequence=1))
    )
    harness.publish(b"a", b"b", b"c")

    record(harness, 12)

    for label, lag in ((amqp_label("$Default"), 3.0), (kafka_label("billing"), 2.0)):
        rows = asyncio.run(harness.recorder.read(lag_series(uid, label), 300, width=LAG_WIDTH))
        assert {values for _, values in rows} == {(lag,)}


def test_number_of_series_is_bounded(harness: PortalHarness, names: tuple[str, str]) -> None:
    """Memory and disk are fixed; the place of a hub that is idle for an hour goes to another one."""
    record(harness, 1)
    second = harness.clock.now_ms() // 1000
    recorder = harness.recorder
    known = len(recorder._series)
    for number in range(MAX_SERIES - known):
        assert recorder._has_place(f"hub-{number}", second)
        recorder._series[f"hub-{number}"] = type(recorder._series[names[0]])(active_s=second)
    for number in range(MAX_LAG_SERIES + 5):
        recorder._add_lag(f"lag-{number}", second, 1)
    recorder._series[names[0]].active_s = second

    assert not recorder._has_place("hub-late", second)
    assert recorder._has_place("hub-0", second)
    assert recorder._has_place("hub-late", second + 2 * _HOUR)
    assert len(recorder.lags) == MAX_LAG_SERIES


class _FullDisk(MemoryHistory):
    def write(self, rows: Sequence[HistoryRow]) -> None:
        raise OSError("no space left on device")


def test_full_disk_affects_history_only(harness: PortalHarness, caplog: pytest.LogCaptureFixture) -> None:
    """The node continues, and logs it once."""
    recorder = Recorder(harness.broker, harness.clock, harness.sampler, _FullDisk())

    for _ in range(3):
        harness.clock.advance(1.0)
        recorder.sample()
        asyncio.run(recorder.flush())

    warnings = [record.message for record in records_of(caplog, "hubmere") if record.levelno >= logging.WARNING]
    assert warnings == ["the history of metrics cannot be written: no space left on device"]


def test_series_of_deleted_hubs_are_deleted_within_an_hour(harness: PortalHarness, names: tuple[str, str]) -> None:
    """Uids are never used again, so these series cannot be shown."""
    record(harness, 2, events_per_second=1)
    asyncio.run(harness.recorder.flush())
    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))
    second = harness.clock.now_ms() // 1000

    harness.clock.advance(_HOUR)
    asyncio.run(harness.recorder.flush())

    assert harness.history.read(names[1], len(COUNTERS) + 1, 0, second - 10, second) == []
    assert harness.history.read(names[0], len(COUNTERS) + 1, 0, second - 10, second) != []


def test_number_of_points_of_a_chart_is_limited() -> None:
    """A month has 43,200 rows; a screen has a few hundred columns."""
    rows = [(second, (1.0, float(second % 120))) for second in range(0, 30 * 24 * _HOUR, 60)]

    thin = downsample(rows, 30 * 24 * _HOUR)

    assert len(thin) <= MAX_POINTS + 1
    assert {values[0] for _, values in thin} == {1.0}
