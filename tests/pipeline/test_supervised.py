"""Capture as a whole: a real node starts and supervises the real job; files are exact whatever is killed.

Spark is started a few times. Windows are closed by size, since the shortest time is a minute.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import httpx
import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.mgmt.eventhub import EventHubManagementClient
from azure.mgmt.eventhub.models import CaptureDescription, Destination, Eventhub
from confluent_kafka import Producer

from commands.runner import at
from conformance.http.test_azure_mgmt import AdminCredential
from hubmere.settings import HubSetting
from hubmere.testing import Node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
]

GROUP = "hubmere"
WINDOW_BYTES = 10_485_760
# A little more than a window, in events of a size that all three protocols accept.
BODY_BYTES = 65_536
EVENTS_PER_WINDOW = WINDOW_BYTES // BODY_BYTES + 8
# Spark is slow on a busy machine; nothing here waits longer than necessary.
PATIENCE_S = 900.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A separate node whose captured files the test reads."""
    hubs = [HubSetting(name="orders", partition_count=2), HubSetting(name="other", partition_count=1)]
    with Node(hubs=hubs, data=tmp_path / "data") as running:
        yield running


class Publisher:
    """Numbers events per partition, so that the sequence number of each is known."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.published = {0: 0, 1: 0}

    def bodies(self, partition: int, count: int) -> Iterator[bytes]:
        first = self.published[partition]
        self.published[partition] += count
        for number in range(first, first + count):
            yield b"%d/%d".ljust(BODY_BYTES, b".") % (partition, number)

    def by_amqp(self, partition: int, count: int) -> None:
        with EventHubProducerClient.from_connection_string(
            self._node.emulator_connection_string, eventhub_name="orders"
        ) as client:
            for body in self.bodies(partition, count):
                client.send_event(EventData(body), partition_id=str(partition))

    def by_kafka(self, partition: int, count: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._node.kafka,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "$ConnectionString",
                "sasl.password": self._node.connection_string,
            }
        )
        for body in self.bodies(partition, count):
            producer.produce("orders", body, partition=partition)
        assert producer.flush(240) == 0

    def by_https(self, partition: int, count: int) -> None:
        headers = {"Authorization": f"Bearer {self._node.admin_token}"}
        with httpx.Client(base_url=self._node.http, headers=headers, timeout=240) as client:
            for body in self.bodies(partition, count):
                client.post(f"/orders/partitions/{partition}/messages", content=body).raise_for_status()


def enable(node: Node) -> None:
    """Enable Capture as Azure's own tools do."""
    client = EventHubManagementClient(
        AdminCredential(node.admin_token),
        "00000000-0000-0000-0000-000000000001",
        base_url=node.https,
        connection_verify=node.ca_file,
    )
    wish = CaptureDescription(
        enabled=True,
        encoding="Avro",
        interval_in_seconds=900,
        size_limit_in_bytes=WINDOW_BYTES,
        skip_empty_archives=True,
        destination=Destination(name="EventHubArchive.AzureBlockBlob", blob_container="box"),
    )
    with client:
        hub = client.event_hubs.create_or_update(GROUP, node.namespace, "orders", Eventhub(capture_description=wish))
    assert hub.capture_description.enabled


def state(node: Node, hub: str = "orders") -> dict[str, Any]:
    """The state of a hub's capture, as the command shows it."""
    shown: dict[str, Any] = at(node, "capture", "show", "--name", hub, "--output", "json").json
    found: dict[str, Any] = shown.get("captureState", {"state": "Off"})
    return found


def until(condition: Callable[[], bool], node: Node) -> None:
    """Wait for a state of the job; a failure shows the job's log."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        job_log = node.data / "capture" / "job.log"
        assert time.monotonic() < deadline, (state(node), job_log.read_text()[-4000:] if job_log.exists() else "")
        time.sleep(0.25)


def captured(node: Node) -> dict[int, list[bytes]]:
    """The bodies of all files by partition, in the order of their names and times."""
    folder = node.data / "capture" / "files" / "box" / node.namespace / "orders"
    found: dict[int, list[bytes]] = {0: [], 1: []}
    for path in sorted(folder.rglob("*.avro")):
        with path.open("rb") as file:
            partition = int(path.relative_to(folder).parts[0])
            for record in fastavro.reader(file):
                assert isinstance(record, dict)
                assert record["SequenceNumber"] == len(found[partition])
                found[partition].append(record["Body"])
    return found


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.full
def test_published_events_are_captured_exactly_once_whatever_is_killed(node: Node) -> None:
    """Capture is enabled by Azure's SDK, events use three protocols, node and job are killed; the job ends when
    disabled.
    """
    enable(node)
    publisher = Publisher(node)
    publisher.by_https(0, 3)
    publisher.by_amqp(0, EVENTS_PER_WINDOW)
    publisher.by_kafka(1, EVENTS_PER_WINDOW)
    until(lambda: state(node).get("files", 0) >= 2, node)
    before = state(node)

    publisher.by_kafka(0, EVENTS_PER_WINDOW)
    publisher.by_kafka(1, EVENTS_PER_WINDOW)
    job = int(before["job"]["pid"])
    os.kill(job, signal.SIGKILL)
    node.kill()
    node.start()
    after_crash = state(node)
    publisher.by_amqp(1, EVENTS_PER_WINDOW)
    until(lambda: state(node).get("files", 0) >= 5, node)
    running = state(node)
    lines = at(node, "capture", "list", "-o", "table").lines
    files = captured(node)
    verified = at(node, "capture", "verify", "--eventhub-name", "orders")

    assert (before["state"], running["state"]) == ("Running", "Running")
    assert after_crash["files"] == before["files"]
    assert running["lastFile"]["eventCount"] > 0
    assert lines[2].split()[:2] == ["orders", "Running"]
    for partition, bodies in files.items():
        assert len(bodies) >= 2 * (WINDOW_BYTES // BODY_BYTES) - 16
        numbers = [body.rstrip(b".").split(b"/") for body in bodies]
        assert numbers == [[b"%d" % partition, b"%d" % number] for number in range(len(bodies))]
    assert verified.code == 0, verified.err
    assert node.logs().count("CaptureFileCreated") >= 2

    at(node, "capture", "disable", "--name", "orders")
    until(lambda: not is_there(int(running["job"]["pid"])), node)
    assert state(node) == {"state": "Off"}


@pytest.mark.full
def test_job_that_sleeps_and_wakes_captures_each_event_once_whatever_is_killed(
    tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """It runs for full windows only, and is killed while it starts, while it writes and before it sleeps."""
    chance = Random(5)
    hubs = [HubSetting(name="orders", partition_count=2)]
    with Node(hubs=hubs, data=tmp_path / "data", settings={"capture_sleep_after_s": 1}) as node:
        enable(node)
        publisher = Publisher(node)
        until(lambda: state(node)["state"] == "Sleeping", node)
        asleep = state(node)
        rounds = deaths(1, 12)
        for number in range(rounds):
            publisher.by_kafka(number % 2, EVENTS_PER_WINDOW)
            until(lambda: bool(state(node)["job"]["pid"]), node)
            pid = int(state(node)["job"]["pid"])
            time.sleep(chance.uniform(0, 12) if rounds > 1 else 0)
            kill_group(pid)
            until(lambda files=number + 1: state(node)["files"] >= files, node)  # type: ignore[misc]
        publisher.by_kafka(0, 3)
        until(lambda: state(node)["state"] == "Sleeping", node)
        rested = state(node)
        files = captured(node)
        verified = at(node, "capture", "verify", "--eventhub-name", "orders")

    assert (asleep["reason"], asleep["job"]["pid"]) == ("no events are waiting", None)
    # The last events wait for the end of their window, and the job need not run for that.
    assert (rested["reason"], rested["job"]["pid"]) == ("no window ends soon", None)
    assert verified.code == 0, verified.err
    counted = {partition: len(bodies) for partition, bodies in files.items()}
    assert sum(publisher.published.values()) - sum(counted.values()) == rested["lagEvents"]
    assert rested["lagEvents"] < 2 * EVENTS_PER_WINDOW
    for partition, bodies in files.items():
        numbers = [body.rstrip(b".").split(b"/") for body in bodies]
        assert numbers == [[b"%d" % partition, b"%d" % number] for number in range(len(bodies))]


def kill_group(pid: int) -> None:
    """Kill the job and its JVM; it may have ended by itself."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def test_node_that_cannot_run_the_job_serves_and_shows_the_reason(tmp_path: Path) -> None:
    """Java is too old: there is one clear sentence, and everything else works."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)

    with Node(hubs=["orders"], settings={"capture_java": tmp_path}, data=tmp_path / "data") as node:
        assert at(node, "eventhub", "update", "--name", "orders", "--enable-capture", "true").code == 0
        until(lambda: state(node)["state"] == "Blocked", node)
        shown = state(node)
        sent = at(node, "send", "orders", "hello")

    assert shown["reason"] == f"{java} is Java 11: Java 17 or newer is needed"
    assert sent.code == 0
    assert json.dumps(shown).count("Blocked") == 2


def test_killed_node_ends_its_job(node: Node) -> None:
    """The job notices that its input has ended, even while Spark is starting."""
    assert at(node, "capture", "enable", "--name", "other").code == 0
    until(lambda: bool(state(node, "other")["job"]["pid"]), node)
    job = int(state(node, "other")["job"]["pid"])

    node.kill()
    deadline = time.monotonic() + PATIENCE_S
    while is_there(job):
        assert time.monotonic() < deadline
        time.sleep(0.1)
