"""The example of Structured Streaming runs unchanged: from a hub to windows, to a hub and to Delta, exactly once."""

import importlib.util
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from client.hubs import Hubs
from pipeline.queries import STREAM_TIMEOUT_S, batch, conf, forget_last_commit, texts

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "streaming" / "telemetry.py"
START = datetime(2026, 1, 1, tzinfo=UTC)
DEVICES, PER_MINUTE = 3, 4


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("telemetry_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def publish(hubs: Hubs, hub: str, minutes: range) -> None:
    """Readings of some minutes, and one body that is not a reading."""
    for device in range(DEVICES):
        times = [START + timedelta(minutes=minute, seconds=15 * n) for minute in minutes for n in range(PER_MINUTE)]
        results = [{"device": f"d{device}", "time": time.isoformat(), "temperature": 20.0 + device} for time in times]
        hubs.publish(hub, device % 2, [*(json.dumps(each).encode() for each in results), b"\xff"], name=f"{device}")


def test_minutes_are_once_in_the_hub_and_once_in_the_table(
    spark: SparkSession, hubs: Hubs, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds if the query died between its results and its commit, and repeats a micro-batch."""
    source, result = hubs.new(partitions=2), hubs.new(partitions=2)
    monkeypatch.setattr(example, "SOURCE", source)
    monkeypatch.setattr(example, "RESULT", result)
    place = conf(hubs, source)
    without_hub = place | {"eventhubs.connectionString": hubs.node.connection_string}

    for minutes in (range(5), range(5, 8)):
        publish(hubs, source, minutes)
        query = example.start(
            example.read(spark, without_hub), without_hub, tmp_path / "table", tmp_path / "checkpoint", once=True
        )
        assert query.awaitTermination(STREAM_TIMEOUT_S)
        forget_last_commit(tmp_path / "checkpoint")

    # The newest reading is at 7:45, so minutes that ended by 5:45 are closed.
    expected = sorted(
        (START + timedelta(minutes=minute), f"d{device}") for minute in range(5) for device in range(DEVICES)
    )
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert sorted((row["minute"], row["device"]) for row in rows) == expected
    assert {row["readings"] for row in rows} == {PER_MINUTE}
    results = [json.loads(text) for text in texts(batch(spark, conf(hubs, result)))]
    assert sorted((datetime.fromisoformat(each["minute"]), each["device"]) for each in results) == expected
