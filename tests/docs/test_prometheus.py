"""A node's metrics with Prometheus: promtool checks the text and the rules, a server scrapes and answers queries."""

import json
import re
import shutil
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

from hubmere.cli.cluster.free_ports import free_ports
from hubmere.testing import Node

DEPLOY = Path(__file__).parents[2] / "deploy"
_DEADLINE_S = 240

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: run `make prometheus`")
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus: run `make prometheus`")


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
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=600) as answer:
        text: str = answer.read().decode()
    return text


def test_lag_of_a_kafka_group_is_the_number_of_uncommitted_events(node: Node) -> None:
    """It is exported even while no member is connected, when it matters most."""
    labels = 'namespace="hubmere",eventhub="orders",partition="0",group="billing",protocol="Kafka"'

    assert f"hubmere_consumer_lag_events{{{labels}}} 2\n" in metrics(node)


def test_lag_of_a_connected_amqp_reader_is_exported(node: Node) -> None:
    """A reader that is up to date has lag 0, under the name of its consumer group."""
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
    """The count is the number of publications, and buckets are cumulative."""
    text, name = metrics(node), "hubmere_publish_commit_seconds"
    buckets = [int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name}_bucket")]

    assert buckets == sorted(buckets)
    assert buckets[-1] >= 1
    assert f"{name}_count {buckets[-1]}\n" in text
    assert "hubmere_kafka_fetch_wait_seconds_count" in text


@needs_promtool
def test_promtool_accepts_the_metrics(node: Node) -> None:
    """Names, units, help texts and types follow the conventions."""
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics(node), capture_output=True, text=True, timeout=600, check=False
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@needs_promtool
@pytest.mark.parametrize(("what", "name"), [("rules", "alerts.yml"), ("config", "prometheus.yml")])
def test_promtool_accepts_the_files_of_the_deployment(what: str, name: str) -> None:
    """An operator runs this check before a reload."""
    checked = subprocess.run(
        ["promtool", "check", what, str(DEPLOY / "prometheus" / name)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert checked.returncode == 0, checked.stdout + checked.stderr


def dashboard_queries() -> list[str]:
    """The queries of all panels, with values for the variables of Grafana."""
    dashboard = json.loads((DEPLOY / "grafana" / "hubmere.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [re.sub(r"\$\{?\w+\}?", "orders", query.replace("$__rate_interval", "5m")) for query in queries]


@needs_promtool
def test_every_query_of_the_dashboard_is_valid_promql(tmp_path: Path) -> None:
    """promtool parses rules, so each query is written as a rule; `test_dashboards` checks the names in the queries."""
    queries = dashboard_queries()
    rules = [{"record": f"panel:query:{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")

    checked = subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, timeout=600, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(queries)} rules found" in checked.stdout


@needs_prometheus
def test_prometheus_scrapes_a_node_and_returns_the_lag(node: Node, tmp_path: Path) -> None:
    """It uses the scrape settings of the deployment with the address of this node, and asks for OpenMetrics."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    [job] = config["scrape_configs"]
    job["static_configs"] = [{"targets": [node.http.removeprefix("http://")]}]
    job["scrape_interval"] = "1s"
    config["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yml")]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
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
