"""A disk that fills up, on a small real file system: a warning first, refusals when it is full, then recovery."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData
from azure.eventhub.exceptions import EventHubError
from confluent_kafka import KafkaError, Message, Producer

from conformance.amqp.azure_clients import a_consumer, a_producer, receive
from hubmere.model.clock import SystemClock
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.settings import HubSetting
from hubmere.testing import Node

DISK_MB = 48
MESSAGES = "/orders/consumergroups/$Default/partitions/0/messages"
PATIENCE_S = 240.0
SETTINGS: dict[str, str | int | float | bool | Path | list[str]] = {"disk_reserve_bytes": 2 * 1024 * 1024}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small separate file system."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def a_node(disk: Path) -> Node:
    return Node(hubs=[HubSetting(name="orders", partition_count=1)], data=disk / "data", settings=SETTINGS)


def _fill(disk: Path, *, leave_bytes: int) -> None:
    """Fill the disk with another file."""
    found = subprocess.run(["df", "--output=avail", "-B1", str(disk)], capture_output=True, text=True, check=True)
    room = int(found.stdout.split()[1]) - leave_bytes
    with (disk / "ballast").open("ab") as ballast:
        try:
            ballast.write(b"\1" * max(room, 0))
            ballast.flush()
        except OSError:
            assert leave_bytes == 0


def _token(node: Node) -> str:
    signer = ConnectionString.parse(node.connection_string)
    assert signer.key_name is not None
    assert signer.key is not None
    until_s = SystemClock().now_ms() // 1000 + 600
    return make_token(f"sb://{signer.host}/orders", signer.key_name, signer.key, expires_at_s=until_s)


def _publish(node: Node, body: bytes = b"event") -> int:
    url, headers = f"{node.http}/orders/messages", {"Authorization": _token(node)}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST"), timeout=240) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        text = refused.read().decode()
        reasons = ("disk of the data folder is full", "No space left", "the disk took only a part")
        assert any(reason in text for reason in reasons), text
        return refused.code


def _get(node: Node, path: str) -> Any:
    request = urllib.request.Request(f"{node.http}{path}", headers={"Authorization": _token(node)})
    with urllib.request.urlopen(request, timeout=240) as answer:
        return json.load(answer)


def _wait_for(node: Node, is_there: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not is_there(found := _get(node, "/ready")):
        assert time.monotonic() < deadline, f"/ready still says {found}"
        time.sleep(0.05)
    return found


def _severity(ready: Any) -> str | None:
    return next((each["severity"] for each in ready["conditions"] if each["name"] == "disk"), None)


def _bodies(node: Node) -> list[str]:
    return [event["body"] for event in _get(node, f"{MESSAGES}?from=first&limit=1000")["events"]]


def test_disk_that_fills_up_is_reported_before_it_is_full(disk: Path) -> None:
    """There is a warning in health, readiness, metrics and log while events are still accepted; then it ends."""
    with a_node(disk) as node:
        _fill(disk, leave_bytes=4 * 1024 * 1024)
        ready = _wait_for(node, lambda ready: _severity(ready) == "warning")
        taken, health = _publish(node), _get(node, "/health")
        with urllib.request.urlopen(f"{node.http}/metrics", timeout=240) as answer:
            metrics = answer.read().decode()
        (disk / "ballast").unlink()
        _wait_for(node, lambda ready: _severity(ready) is None)

        assert ready["status"] == "degraded"
        assert taken == 201
        assert "disk of the data folder is filling up" in health["warnings"][0]
        assert 'hubmere_node_condition{name="disk",severity="warning"} 1' in metrics
        assert f"hubmere_disk_total_bytes {DISK_MB * 1024 * 1024}" in metrics
        assert "WARNING" in node.logs()
        assert "has enough free space again" in node.logs()


def test_full_disk_refuses_every_protocol_with_a_retriable_error_and_recovers(disk: Path) -> None:
    """Producers keep their events and retry; readers are served; no restart is needed."""
    with a_node(disk) as node:
        assert _publish(node, b"before") == 201
        _fill(disk, leave_bytes=1024 * 1024)
        ready = _wait_for(node, lambda ready: _severity(ready) == "critical")

        over_http, over_kafka, over_amqp = _publish(node), _produce_over_kafka(node), _send_over_amqp(node)
        read = _bodies(node)
        with a_consumer(node.emulator_connection_string, "orders") as consumer:
            read_over_amqp = receive(consumer, 1, partition_id="0", starting_position="-1").bodies
        (disk / "ballast").unlink()
        _wait_for(node, lambda ready: _severity(ready) is None)
        after = _publish(node, b"after")

        assert "events are refused, reading continues" in ready["conditions"][0]["message"]
        assert over_http == 503
        assert over_kafka is not None
        assert over_kafka.code() == KafkaError.KAFKA_STORAGE_ERROR or over_kafka.code() == KafkaError._MSG_TIMED_OUT
        assert "disk of the data folder is full" in over_amqp
        assert read == read_over_amqp == ["before"]
        assert after == 201
        assert _bodies(node) == ["before", "after"]


def test_disk_without_free_space_loses_no_acknowledged_event(disk: Path) -> None:
    """Another program uses the last byte between two checks: the write itself fails, and the log stays intact."""
    with a_node(disk) as node:
        acknowledged = []
        for number in range(200):
            if number == 100:
                _fill(disk, leave_bytes=0)
            if _publish(node, b"%d" % number + b"x" * 5_000) == 201:
                acknowledged.append(number)
            elif number > 110:
                break
        (disk / "ballast").unlink()
        _wait_for(node, lambda ready: _severity(ready) is None)
        assert _publish(node, b"last") == 201
        bodies = _bodies(node)
        node.restart()

        assert [int(body.partition("x")[0]) for body in bodies[:-1]] == acknowledged
        assert _bodies(node) == bodies


@pytest.mark.parametrize("end", [Node.kill, Node.stop], ids=["killed", "stopped"])
def test_node_starts_on_a_full_disk_and_serves_reads(disk: Path, end: Callable[[Node], None]) -> None:
    """After a crash on a full disk the events must be readable, and refusals must have the reason."""
    with a_node(disk) as node:
        assert _publish(node, b"before") == 201
        end(node)
        _fill(disk, leave_bytes=0)

        node.start()
        ready = _wait_for(node, lambda ready: _severity(ready) == "critical")
        refused, read = _publish(node), _bodies(node)
        (disk / "ballast").unlink()
        _wait_for(node, lambda ready: _severity(ready) is None)

        assert ready["status"] == "degraded"
        assert (refused, read) == (503, ["before"])
        assert _publish(node, b"after") == 201
        assert _bodies(node) == ["before", "after"]


def _produce_over_kafka(node: Node) -> KafkaError | None:
    producer = Producer(
        {
            "bootstrap.servers": node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": node.connection_string,
            "message.timeout.ms": 3_000,
        }
    )
    reports: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        reports.append(error)

    producer.produce("orders", b"x", on_delivery=delivered)
    producer.flush(PATIENCE_S)
    return reports[0]


def _send_over_amqp(node: Node) -> str:
    with a_producer(node.emulator_connection_string, "orders") as producer, pytest.raises(EventHubError) as refused:
        producer.send_event(EventData("x"))
    return str(refused.value)
