"""Windows without events."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from client.hubs import Hubs
from hubmere.pipeline.capture.planning.planner import HubPlanner, files_of
from pipeline.capture.plans import a_hub, read


@pytest.mark.parametrize(("encoding", "files"), [("Avro", 1), ("Parquet", 1), ("Delta", 0)])
def test_empty_window_has_a_file_except_in_delta_tables(
    hubs: Hubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, files: int
) -> None:
    """A Delta table's log does not list empty files, so they would never be part of the table."""
    plan = read(hubs, a_hub(hubs, hubs.new(1), tmp_path, partitions=1, encoding=encoding, skips_empty=False))
    with closing(HubPlanner(plan)) as planner:
        start = planner.first_offset()
        now_s = time.time()
        monkeypatch.setattr(time, "time", lambda: now_s + plan.rules.interval_s + 1)

        end = planner.next_offset(start)

    assert len([] if end is None else files_of(plan, end)) == files
