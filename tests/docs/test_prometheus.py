"""A node's metrics with Prometheus: promtool checks the text and the rules, a server scrapes and answers queries."""

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from confluent_kafka import Consumer, TopicPartition

from hubmere.testing import Node

DEPLOY = Path(__file__).parents[2] / "deploy"
_DEADLINE_S = 90

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is in Debian's prometheus")
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node with three events in one partition, of which a Kafka group has read one."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        with EventHubProducerClient.from_connection_string(
            node.emulator_connection_string, eventhub_name="orders"
        ) as producer:
            producer.send_batch([EventData(str(number)) for number in range(3)], partition_id="0")
        consumer = Consumer(
            {
                "bootstrap.servers": node.kafka,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "$ConnectionString",
                "sasl.password": node.connection_string,
                "group.id": "billing",
            }
        )
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()
        yield node


def metrics(node: Node) -> str:
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def test_lag_of_a_kafka_group_is_what_it_has_not_committed(node: Node) -> None:
    """Also while no member of the group is connected: then it matters most."""
    labels = 'namespace="hubmere",eventhub="orders",partition="0",group="billing",protocol="Kafka"'

    assert f"hubmere_consumer_lag_events{{{labels}}} 2\n" in metrics(node)


def test_lag_of_a_connected_amqp_reader_is_exported(node: Node) -> None:
    """A reader that has everything has a lag of 0, under the name of its consumer group."""
    labels = 'namespace="hubmere",eventhub="orders",partition="0",group="$Default",protocol="AMQP"'
    seen: list[str] = []

    def on_event(_: object, event: EventData | None) -> None:
        if event is not None and event.sequence_number == 2:
            seen.append(metrics(node))
            client.close()

    client = EventHubConsumerClient.from_connection_string(
        node.emulator_connection_string, consumer_group="$Default", eventhub_name="orders"
    )
    client.receive(on_event, partition_id="0", starting_position="-1")

    assert f"hubmere_consumer_lag_events{{{labels}}} " in seen[0]


def test_publications_are_in_the_histogram_of_commits(node: Node) -> None:
    """The count is that of publications, and no bucket holds more than the next."""
    text, name = metrics(node), "hubmere_publish_commit_seconds"
    buckets = [int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name}_bucket")]

    assert buckets == sorted(buckets)
    assert buckets[-1] >= 1
    assert f"{name}_count {buckets[-1]}\n" in text
    assert "hubmere_kafka_fetch_wait_seconds_count" in text


@needs_promtool
def test_promtool_has_no_complaint_about_the_metrics(node: Node) -> None:
    """Names, units, help texts and types follow the conventions."""
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics(node), capture_output=True, text=True, timeout=60, check=False
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@needs_promtool
@pytest.mark.parametrize(("what", "name"), [("rules", "alerts.yml"), ("config", "prometheus.yml")])
def test_promtool_takes_the_files_of_the_deployment(what: str, name: str) -> None:
    """As an operator would check them before a reload."""
    checked = subprocess.run(
        ["promtool", "check", what, str(DEPLOY / "prometheus" / name)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_prometheus
def test_prometheus_scrapes_a_node_and_answers_about_lag(node: Node, tmp_path: Path) -> None:
    """With the scrape settings of the deployment, pointed at this node; it asks for OpenMetrics."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    [job] = config["scrape_configs"]
    job["static_configs"] = [{"targets": [node.http.removeprefix("http://")]}]
    job["scrape_interval"] = "1s"
    config["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yml")]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={address}",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            lag = answered(address, 'hubmere_consumer_lag_events{group="billing"}')
            up = answered(address, "up")
            published = answered(address, "sum(hubmere_incoming_messages_total)")
        finally:
            server.terminate()

    assert (lag, up, published) == ("2", "1", "3")


def answered(address: str, query: str) -> str:
    """The value of a query once Prometheus has one."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
        except OSError:
            found = []
        if found:
            return str(found[0]["value"][1])
        time.sleep(0.2)
    raise AssertionError(f"no answer to {query} within {_DEADLINE_S} s")
