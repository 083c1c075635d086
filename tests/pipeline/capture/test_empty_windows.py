"""Windows in which nothing was published."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from client.hubs import Hubs
from hubmere.pipeline.capture.source import CaptureReader
from pipeline.capture.plans import a_hub, read


@pytest.mark.parametrize(("encoding", "files"), [("Avro", 1), ("Parquet", 1), ("Delta", 0)])
def test_empty_window_leaves_a_file_where_files_are_the_result(
    hubs: Hubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, files: int
) -> None:
    """A Delta table's log names no empty file: it would lie beside the table for ever."""
    plan = read(hubs, a_hub(hubs, hubs.new(1), tmp_path, partitions=1, encoding=encoding, skips_empty=False))
    reader = CaptureReader(plan)
    start: dict[str, Any] = reader.initialOffset()
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + plan.rules.interval_s + 1)

    end = reader.latestOffset(start, ReadAllAvailable())

    reader.stop()
    assert len(end["partitions"]["0"][2]) == files
