"""The project of `hubmere pipeline init` while it is killed: tables and result hub have each event once.

The whole job is killed, or its JVM, or a Python process of Spark, inside a micro-batch of one of the three queries or
right after its commit. Then it runs to its end. Tables are read by the package `deltalake` and the hub by our own
client, both without Spark. A few kills here, many with `--torture`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from client.hubs import Hubs
from hubmere.settings import HubSetting
from hubmere.testing import Node
from hubmere.translate import events
from pipeline.copying import unfinished
from pipeline.processes import family, is_python_worker, kill_one
from pipeline.sessions import SETTINGS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

START = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS, SECONDS_BETWEEN = 3, 10
PER_MINUTE = 60 // SECONDS_BETWEEN
# A step of a device's time in each partition: one reading, and now and then an event that is not one.
BAD_EVERY = 7
STEPS = ("bronze", "silver", "gold")
# Small, so that a run has many micro-batches to be killed in.
EVENTS_PER_TRIGGER = 60
MINUTES_PER_DEATH, LAST_MINUTES = 4, 5
# The time for one run of the job on a busy machine.
RUN_SECONDS = 1500
KINDS = ("job", "jvm", "worker")


@pytest.fixture
def fleet() -> Iterator[Hubs]:
    """A node on disk with the project's two hubs."""
    hubs = [
        HubSetting(name="telemetry", partition_count=PARTITIONS),
        HubSetting(name="telemetry-minutes", partition_count=2),
    ]
    with Node(hubs=hubs, settings={"as": "unlimited"}) as node:
        found = Hubs(node)
        yield found
        found.client.close()


class Published:
    """What the source hub has: the same times in every partition, so that no reading is late."""

    def __init__(self, hubs: Hubs, minutes: int) -> None:
        self.bodies: list[list[bytes]] = []
        self.readings: list[tuple[str, datetime]] = []
        for partition in range(PARTITIONS):
            bodies = []
            for number in range(minutes * PER_MINUTE):
                at = START + timedelta(seconds=number * SECONDS_BETWEEN)
                reading = {"device": f"device {partition}", "time": at.isoformat(), "temperature": 20.0 + partition}
                bodies.append(json.dumps(reading).encode())
                self.readings.append((f"device {partition}", at))
                if number % BAD_EVERY == 0:
                    bodies.append(b"not a reading %d" % number)
            hubs.publish("telemetry", partition, *([body] for body in bodies))
            self.bodies.append(bodies)
        self._minutes = minutes

    @property
    def rows(self) -> list[tuple[str, int, bytes]]:
        """Partition, sequence number and body of each event."""
        return [(str(p), number, body) for p, bodies in enumerate(self.bodies) for number, body in enumerate(bodies)]

    @property
    def closed_minutes(self) -> Counter[tuple[str, datetime, int]]:
        """Device, minute and number of readings; the last reading is ten seconds before a full minute, and minutes that
        ended two minutes before it are closed.
        """
        closed = [START + timedelta(minutes=minute) for minute in range(self._minutes - 3)]
        return Counter((f"device {number}", minute, PER_MINUTE) for number in range(PARTITIONS) for minute in closed)


class Project:
    """A new project, its program, and what Spark has noted in its checkpoints."""

    def __init__(self, folder: Path, node: Node) -> None:
        self.folder = folder
        self._node = node
        command = [sys.executable, "-m", "hubmere", "pipeline", "init", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
        settings = folder / "pipeline.toml"
        text = settings.read_text()
        assert "max_events = 100000" in text
        settings.write_text(text.replace("max_events = 100000", f"max_events = {EVENTS_PER_TRIGGER}"))
        self._seen: set[tuple[str, int]] = set()
        self.log = folder / "job.log"

    def start(self) -> "subprocess.Popen[bytes]":
        conf = " ".join(f"--conf {json.dumps(f'{name}={value}')}" for name, value in SETTINGS.items())
        environment = {
            **os.environ,
            "EVENTHUBS_CONNECTION_STRING": self._node.emulator_connection_string,
            "EVENTHUBS_ENDPOINT": self._node.kafka,
            "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
        }
        with self.log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "job.py"],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def checkpoint(self, step: str) -> Path:
        return self.folder / "data" / "checkpoints" / step

    def await_batch(self, step: str, program: "subprocess.Popen[bytes]", *, is_committed: bool) -> bool:
        """Wait for a new micro-batch of a step that is open, or that is committed; False if the job ends before."""
        deadline = time.monotonic() + RUN_SECONDS
        while program.poll() is None:
            number = self._committed(step) if is_committed else unfinished(self.checkpoint(step))
            if number is not None and (step, number) not in self._seen:
                self._seen.add((step, number))
                return True
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.005)
        return False

    def _committed(self, step: str) -> int | None:
        folder = self.checkpoint(step) / "commits"
        return max((int(path.name) for path in folder.glob("[0-9]*")), default=None) if folder.is_dir() else None

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table, without Spark."""
        rows: list[dict[str, Any]] = (
            DeltaTable(str(self.folder / "data" / "tables" / name)).to_pyarrow_table().to_pylist()
        )
        return rows

    def tail(self) -> str:
        return self.log.read_text()[-6000:]


def kill(kind: str, program: "subprocess.Popen[bytes]", chance: Random) -> None:
    """Kill the whole job, or one of its processes."""
    processes = family(program.pid)
    if kind == "job":
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        return
    is_wanted = is_python_worker if kind == "worker" else (lambda command: "org.apache.spark" in command)
    kill_one([pid for pid, command in processes.items() if pid != program.pid and is_wanted(command)], chance)


def run_under_deaths(project: Project, wanted: int, chance: Random) -> int:
    """Run the job to its end with a number of kills; it is started again whenever it ends with a failure."""
    killed = 0
    deadline = time.monotonic() + RUN_SECONDS * (wanted + 2)
    while True:
        assert time.monotonic() < deadline, project.tail()
        with project.start() as program:
            try:
                while killed < wanted:
                    # Each kind and each step in turn; every other kill comes right after a commit.
                    step, kind = STEPS[killed % len(STEPS)], KINDS[(killed + killed // len(STEPS)) % len(KINDS)]
                    if not project.await_batch(step, program, is_committed=killed % 2 == 1):
                        break
                    time.sleep(chance.choice((0.0, 0.05, 0.2, 0.5)))
                    kill(kind, program, chance)
                    killed += 1
                    if kind == "job":
                        break
                code = program.wait(RUN_SECONDS)
            finally:
                if program.poll() is None:
                    os.killpg(program.pid, signal.SIGKILL)
        if code == 0:
            return killed


def published_minutes(hubs: Hubs) -> Counter[tuple[str, datetime, int]]:
    """The events of the result hub."""
    reader = hubs.reader("telemetry-minutes")
    found = [
        json.loads(event.body or b"")
        for partition, (first, end) in reader.bounds([0, 1]).items()
        for fetched in reader.read_range(partition, first, end)
        for event in events(fetched.data, 0, first, 1_000_000)
    ]
    return Counter((each["device"], datetime.fromisoformat(each["minute"]), each["readings"]) for each in found)


def test_killed_job_leaves_exact_tables_and_an_exact_hub(
    fleet: Hubs, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """Bronze has every event, silver every reading, quarantine the rest, gold and the hub every closed minute; once."""
    wanted = deaths(3, 24)
    published = Published(fleet, wanted * MINUTES_PER_DEATH + LAST_MINUTES)
    project = Project(tmp_path / "telemetry", fleet.node)

    killed = run_under_deaths(project, wanted, Random(29))

    assert killed == wanted
    bronze = [(row["partition"], row["sequenceNumber"], row["body"]) for row in project.table("bronze")]
    assert sorted(bronze) == published.rows
    silver = [(row["device"], row["time"]) for row in project.table("silver")]
    assert sorted(silver) == sorted(published.readings)
    quarantine = [(row["partition"], row["sequenceNumber"], row["body"]) for row in project.table("quarantine")]
    assert sorted(quarantine) == [row for row in published.rows if row[2].startswith(b"not")]
    minutes = Counter((row["device"], row["minute"], row["readings"]) for row in project.table("minutes"))
    assert minutes == published.closed_minutes
    assert published_minutes(fleet) == published.closed_minutes
