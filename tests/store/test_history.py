"""The history of metrics: ring buffers of fixed size in files and in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hubmere.model.monitoring.history import RINGS, HistoryRow, HistoryStore
from hubmere.store.history import HISTORY_FOLDER, HistoryFiles, MemoryHistory

# A multiple of every step.
NOW_S = 1_700_000_040

Make = Callable[[Path], HistoryStore]


@pytest.fixture(params=[HistoryFiles, lambda _: MemoryHistory()], ids=["files", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> HistoryStore:
    made: HistoryStore = request.param(tmp_path)
    return made


def row(second: int, *values: float, ring: int = 0, series: str = "hub-1") -> HistoryRow:
    return HistoryRow(series, ring, second, values)


def test_rows_are_read_in_order_of_time(store: HistoryStore) -> None:
    """Each series and each resolution is separate."""
    store.write([row(NOW_S + 1, 2.0, 3.0), row(NOW_S, 0.5, 1.0), row(NOW_S, 9.0, 9.0, ring=1)])
    store.write([row(NOW_S, 7.0, 7.0, series="hub-2")])

    assert store.read("hub-1", 2, 0, NOW_S - 10, NOW_S + 10) == [(NOW_S, (0.5, 1.0)), (NOW_S + 1, (2.0, 3.0))]
    assert store.read("hub-1", 2, 1, NOW_S - 10, NOW_S + 10) == [(NOW_S, (9.0, 9.0))]
    assert store.read("hub-1", 2, 0, NOW_S + 1, NOW_S + 1) == [(NOW_S + 1, (2.0, 3.0))]
    assert store.read("hub-3", 2, 0, NOW_S, NOW_S) == []


def test_ring_buffer_has_a_fixed_length(store: HistoryStore) -> None:
    """After more than one round, the newest rows have replaced the oldest ones."""
    length = RINGS[0].length
    first_s = NOW_S - length - 5

    store.write([row(second, float(second - first_s)) for second in range(first_s, NOW_S + 1)])

    found = store.read("hub-1", 1, 0, 0, NOW_S)
    assert [second for second, _ in found] == list(range(NOW_S - length + 1, NOW_S + 1))
    assert found[-1] == (NOW_S, (float(NOW_S - first_s),))


def test_rows_of_an_earlier_round_are_not_returned(store: HistoryStore) -> None:
    """A node that was down for a day must not show values of yesterday as today's."""
    store.write([row(NOW_S - RINGS[0].length, 1.0)])

    assert store.read("hub-1", 1, 0, NOW_S - 60, NOW_S) == []


def test_unused_series_are_deleted(store: HistoryStore) -> None:
    """The history of a deleted hub is deleted."""
    store.write([row(NOW_S, 1.0), row(NOW_S, 1.0, series="lag-1-a/b")])

    store.retain(lambda series: series == "lag-1-a/b")

    assert store.read("hub-1", 1, 0, NOW_S, NOW_S) == []
    assert store.read("lag-1-a/b", 1, 0, NOW_S, NOW_S) == [(NOW_S, (1.0,))]


def test_files_survive_a_restart_and_have_a_limited_size(tmp_path: Path) -> None:
    """Thirty days of one series take at most a few megabytes."""
    HistoryFiles(tmp_path).write([row(NOW_S, 1.0, 2.0), row(NOW_S + RINGS[2].range_s - 60, 1.0, 2.0, ring=2)])

    assert HistoryFiles(tmp_path).read("hub-1", 2, 0, NOW_S, NOW_S) == [(NOW_S, (1.0, 2.0))]
    [file] = (tmp_path / HISTORY_FOLDER).iterdir()
    assert file.stat().st_size <= sum(ring.length for ring in RINGS) * 12


def test_damaged_file_is_read_as_an_empty_history(tmp_path: Path) -> None:
    """Damaged history must neither fail nor be shown."""
    store = HistoryFiles(tmp_path)
    store.write([row(NOW_S, 1.0)])
    [file] = (tmp_path / HISTORY_FOLDER).iterdir()
    file.write_bytes(b"\xff" * 777)

    assert store.read("hub-1", 1, 0, NOW_S - 3600, NOW_S) == []


def test_new_folder_has_nothing_to_delete(tmp_path: Path) -> None:
    """The first write creates the folder."""
    HistoryFiles(tmp_path).retain(lambda _: False)

    assert list(tmp_path.iterdir()) == []
