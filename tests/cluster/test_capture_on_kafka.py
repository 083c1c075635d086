"""Capture on a cluster: one gateway runs the job, another one takes over when it is killed, and files are exact."""

import json
import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from cluster.gateways import ask, get
from cluster.running import MARKS, Cluster, running_cluster

pytestmark = [
    *MARKS,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
]
_ARM = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.EventHub"
_HUB = f"{_ARM}/namespaces/hubmere/eventhubs/orders?api-version=2024-01-01"
# A window takes a minute: on a cluster only time closes windows, and this is the shortest.
WINDOW_SECONDS = 60
EVENTS = 500
# Three brokers, two gateways and Spark on a busy machine.
PATIENCE_S = 600.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as running:
        yield running


def enable(cluster: Cluster) -> None:
    """Create a hub that is captured into the folder that all gateways share."""
    capture = {
        "enabled": True,
        "encoding": "Avro",
        "intervalInSeconds": WINDOW_SECONDS,
        "sizeLimitInBytes": 10_485_760,
        "skipEmptyArchives": True,
        "destination": {"name": "EventHubArchive.AzureBlockBlob", "properties": {"blobContainer": "box"}},
    }
    properties = {"partitionCount": 2, "messageRetentionInDays": 1, "captureDescription": capture}
    status, answer, _ = ask(cluster.gateway(0), "PUT", _HUB, {"properties": properties})
    assert status == 200, answer


def publish(cluster: Cluster, first: int, count: int) -> None:
    """Publish numbered events to both partitions."""
    producer = Producer(cluster.kafka())
    for number in range(first, first + count):
        for partition in range(2):
            producer.produce("orders", b"%d" % number, partition=partition)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def captured(folder: Path) -> dict[int, list[int]]:
    """The numbers of the events in all files by partition, in the order of the files' names, which is that of time."""
    root = folder / "data" / "capture" / "files" / "box" / "hubmere" / "orders"
    found: dict[int, list[int]] = {0: [], 1: []}
    for path in sorted(root.rglob("*.avro")):
        partition = int(path.relative_to(root).parts[0])
        with path.open("rb") as file:
            for record in fastavro.reader(file):
                assert isinstance(record, dict)
                found[partition].append(int(bytes(record["Body"])))
    return found


def holder(cluster: Cluster, alive: list[int]) -> int | None:
    """The gateway that has the role of Capture, as one that is alive sees it."""
    shown: list[dict[str, Any]] = get(cluster.gateway(alive[0]), "/ready")[1].get("gateways", [])
    address = next((each["address"] for each in shown if "capture" in each["roles"]), None)
    ports = {str(cluster.gateway(number)["amqps"]).rpartition(":")[2]: number for number in alive}
    return None if address is None else ports.get(address.rpartition(":")[2])


def until(condition: Any, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        logs = {path.parent.name: path.read_text(errors="replace")[-3000:] for path in folder.rglob("gateway.log")}
        assert time.monotonic() < deadline, json.dumps(logs, indent=1)
        time.sleep(0.5)


@pytest.mark.skipif("not config.getoption('--torture')", reason="takes minutes: run make torture")
def test_captured_files_are_exact_when_the_gateway_that_runs_the_job_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Another gateway takes the role over, and its job continues where the first one was: nothing lost or twice."""
    enable(cluster)
    publish(cluster, 0, EVENTS)
    until(lambda: all(captured(tmp_path).values()), tmp_path)
    first = holder(cluster, [0, 1])
    assert first is not None

    publish(cluster, EVENTS, EVENTS)
    cluster.kill_gateway(first)
    other = 1 - first
    until(lambda: holder(cluster, [other]) == other, tmp_path)
    publish(cluster, 2 * EVENTS, EVENTS)

    def is_complete() -> bool:
        return all(len(numbers) >= 3 * EVENTS for numbers in captured(tmp_path).values())

    until(is_complete, tmp_path)
    assert captured(tmp_path) == {0: list(range(3 * EVENTS)), 1: list(range(3 * EVENTS))}
