"""The source and the sink through Spark Connect: a client without a JVM of its own, and a server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from client.hubs import Hubs
from hubmere.translate import events
from pipeline.queries import batch, conf

pytestmark = pytest.mark.slow

EVENTS = 100
# The time for a JVM, several jobs and a stream on a busy machine.
RUN_SECONDS = 3000


def stored(hubs: Hubs, hub: str) -> list[int]:
    """The numbers in the bodies of all events of a hub."""
    reader = hubs.reader(hub)
    fetched = [
        each
        for partition, (first, end) in reader.bounds(range(reader.partition_count())).items()
        for each in reader.read_range(partition, first, end)
    ]
    return sorted(int(view.body or b"") for each in fetched for view in events(each.data, 0, 0, 1_000_000))


def test_connect_reads_writes_and_streams(hubs: Hubs, tmp_path: Path) -> None:
    """A frame keeps the events of its first action, as without Connect; the plan cache of Connect keeps the frame."""
    hub, other = hubs.new(partitions=2), hubs.new(partitions=2)
    for partition in range(2):
        hubs.publish(hub, partition, [b"%d" % number for number in range(partition, EVENTS, 2)])
    arguments = tmp_path / "arguments.json"
    given = {"hub": conf(hubs, hub), "other": conf(hubs, other), "folder": str(tmp_path)}
    arguments.write_text(json.dumps(given), encoding="utf-8")

    ran = subprocess.run(
        [sys.executable, "-m", "pipeline.connect_program", str(arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    assert json.loads((tmp_path / "found.json").read_text(encoding="utf-8")) == {
        "session": "pyspark.sql.connect.session",
        "first": EVENTS,
        "same frame": EVENTS,
        "loaded again": 2 * EVENTS,
        "same frame without the plan cache": 2 * EVENTS,
    }
    assert stored(hubs, hub) == stored(hubs, other) == list(range(2 * EVENTS))


def test_frame_keeps_the_events_of_its_first_action(spark: SparkSession, hubs: Hubs) -> None:
    """Spark plans a Python source once for each frame: all of its actions, and those of derived frames, agree."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, [b"0", b"1"])
    rows = batch(spark, conf(hubs, hub))
    first = rows.count()
    hubs.publish(hub, 0, [b"2"])

    assert (first, rows.count(), rows.where("body is not null").count()) == (2, 2, 2)
    assert batch(spark, conf(hubs, hub)).count() == 3
