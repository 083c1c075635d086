"""The projects that `hubmere pipeline init` makes, on a real Spark: the streaming and the declarative one."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from client.hubs import Hubs
from hubmere.pipeline.source import COLUMNS
from hubmere.settings import HubSetting
from hubmere.testing import Node
from hubmere.translate import events
from pipeline.sessions import SETTINGS

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)
DEVICES, MINUTES, SECONDS_BETWEEN = 4, 5, 10
PER_MINUTE = 60 // SECONDS_BETWEEN
# The time for a JVM, a catalog and four streams on a busy machine.
RUN_SECONDS = 1500
JVM = "spark.driver.extraJavaOptions"
QUIET = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.log.level=ERROR",
    f"{JVM}={SETTINGS[JVM]}",
)


@pytest.fixture
def fleet() -> Iterator[Hubs]:
    """A node on disk with the project's two hubs; the command finds it by its data folder."""
    hubs = [HubSetting(name="telemetry", partition_count=3), HubSetting(name="telemetry-minutes", partition_count=2)]
    with Node(hubs=hubs) as node:
        found = Hubs(node)
        yield found
        found.client.close()


def reading(device: int, after: timedelta) -> bytes:
    """The event of a device."""
    result = {"device": f"device {device}", "time": (START + after).isoformat(), "temperature": 20.0 + device}
    return json.dumps(result).encode()


def publish_minutes(hubs: Hubs, minutes: range) -> None:
    """Publish readings of every device for some minutes, and events that are not readings."""
    for device in range(DEVICES):
        times = [
            timedelta(minutes=minute, seconds=second) for minute in minutes for second in range(0, 60, SECONDS_BETWEEN)
        ]
        bodies = [reading(device, after) for after in times]
        hubs.publish("telemetry", device % 3, [*bodies, b"not a reading"], name=f"{device}")


def run_pipeline(hubs: Hubs, project: Path) -> None:
    """Run the project as a user does."""
    command = [sys.executable, "-m", "hubmere", "pipeline"]
    quiet = [word for conf in QUIET for word in ("--conf", conf)]
    place = ["--project", str(project), "--data", str(hubs.node.data)]
    run = subprocess.run(
        [*command, "run", *place, *quiet], capture_output=True, text=True, check=False, timeout=RUN_SECONDS
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-6000:]


def published_minutes(hubs: Hubs) -> list[dict[str, Any]]:
    """The events that the pipeline published."""
    reader = hubs.reader("telemetry-minutes")
    return [
        json.loads(event.body or b"")
        for partition, (first, end) in reader.bounds([0, 1]).items()
        for fetched in reader.read_range(partition, first, end)
        for event in events(fetched.data, 0, first, 1_000_000)
    ]


def rows_of(project: Path, table: str) -> int:
    """The rows of a table, read from its folder."""
    folder = project / "spark-warehouse" / table
    return sum(pq.ParquetFile(path).metadata.num_rows for path in folder.glob("*.parquet"))


def columns_of(project: Path, table: str) -> set[str]:
    """The columns of a table, by a file in its folder."""
    path = next((project / "spark-warehouse" / table).glob("*.parquet"))
    return set(pq.read_schema(path).names)


def init(project: Path, *options: str) -> None:
    """Create a project as a user does."""
    command = [sys.executable, "-m", "hubmere", "pipeline", "init", str(project), *options]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.full
def test_own_tests_of_a_new_project_pass(tmp_path: Path) -> None:
    """Each step on fixed rows, and the whole pipeline on a node of the pytest plugin."""
    init(tmp_path / "telemetry")
    options = ["-q", "-p", "no:randomly", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    java = " ".join(f"--conf {name}={json.dumps(SETTINGS[name])}" for name in (JVM, "spark.driver.memory"))

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path / "telemetry",
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"--master local[2] {java} pyspark-shell"},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * RUN_SECONDS,
    )

    assert run.returncode == 0, (run.stdout + run.stderr)[-6000:]
    assert "6 passed" in run.stdout


@pytest.mark.full
def test_declarative_pipeline_fills_tables_and_publishes_closed_minutes(
    fleet: Hubs, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Bronze has every event, silver the readings, quarantine the rest, and each closed minute is published once. With
    `--torture` the project runs again on more readings: nothing is duplicated.
    """
    project = tmp_path / "telemetry"
    init(project, "--declarative")
    runs = 3 if request.config.getoption("--torture", default=False) else 1

    for run in range(runs):
        publish_minutes(fleet, range(run * MINUTES, (run + 1) * MINUTES))
        run_pipeline(fleet, project)

    readings = DEVICES * MINUTES * PER_MINUTE * runs
    assert rows_of(project, "bronze") == readings + DEVICES * runs
    assert rows_of(project, "silver") == readings
    assert columns_of(project, "bronze") == {column.split()[0] for column in COLUMNS.split(", ")}
    assert rows_of(project, "quarantine") == DEVICES * runs
    assert columns_of(project, "quarantine") == columns_of(project, "bronze") | {"problem"}
    # The last reading is ten seconds before a full minute; minutes that ended two minutes before it are closed.
    closed = [START + timedelta(minutes=minute) for minute in range(MINUTES * runs - 3)]
    found = Counter((row["device"], datetime.fromisoformat(row["minute"])) for row in published_minutes(fleet))
    assert found == Counter((f"device {device}", minute) for device in range(DEVICES) for minute in closed)
    assert {(row["readings"], row["mean"] == row["highest"]) for row in published_minutes(fleet)} == {
        (PER_MINUTE, True)
    }
