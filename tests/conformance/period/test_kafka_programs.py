"""Programs of Kafka 1.x with a node: MirrorMaker 1 between two nodes, and a Connect worker of 1.1."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.clients import Jars, NotInstalled
from conformance.conformance_node import Transport
from conformance.kafka.apache import Program, Service, client_settings, write_settings
from conformance.kafka.kafka_clients import librdkafka
from conformance.kafka_ecosystem import topics
from conformance.kafka_ecosystem.connect import MAIN, RestWorker
from conformance.kafka_ecosystem.topics import Event, until
from conformance.matrix import Feature, Name
from hubmere.cli.cluster.free_ports import free_ports
from hubmere.testing import Node

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(transport=Transport.PLAIN)]

_EVENTS = 200
_LINES = 500


def _event(number: int) -> Event:
    key, headers = b"key %d" % number, (("number", b"%d" % number),)
    return Event(partition=number % 2, key=key, value=b"value %d" % number, headers=headers, time_ms=_now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node(hubs=["orders"], settings={"as": "premium", "memory": True, "default_partition_count": 2}) as node:
        yield node


# --- MirrorMaker 1 ---------------------------------------------------------------------------------------------------


@judges(client=Name.MIRROR_MAKER_1, feature=Feature.MIRRORED_NODES)
def test_mirrormaker_1_copies_events_to_another_node(node: Node, tmp_path: Path) -> None:
    """Key, value and headers are copied; by default it reads as a group and writes without loss."""
    source = librdkafka(node)
    topics.write(source, "orders", (_event(number) for number in range(_EVENTS)))
    with Node(hubs=["orders"], settings={"as": "premium", "memory": True}) as other:
        target = librdkafka(other)
        reading = {**client_settings(node), "group.id": "mirror", "auto.offset.reset": "earliest"}
        arguments = (
            *("--consumer.config", str(write_settings(tmp_path / "consumer.properties", reading))),
            *("--producer.config", str(write_settings(tmp_path / "producer.properties", client_settings(other)))),
            *("--whitelist", "orders"),
        )
        program = Program(jars=Jars.KAFKA_1, main="kafka.tools.MirrorMaker", arguments=arguments)
        mirror = Service(program, tmp_path / "mirror.log")
        try:
            mirror.start()
            until(lambda: len(topics.messages(target, "orders")) >= _EVENTS, "copied events")
        except NotInstalled as reason:
            pytest.skip(str(reason))
        finally:
            mirror.stop()
        copied = topics.events(target, "orders")

    assert _contents(copied) == _contents(topics.events(source, "orders"))


def _contents(events: list[Event]) -> list[tuple[Any, ...]]:
    """The events without partition and time, which MirrorMaker 1 does not copy."""
    return sorted((event.key, event.value, event.headers) for event in events)


# --- Connect 1.1 -----------------------------------------------------------------------------------------------------


def _worker(node: Node, folder: Path) -> RestWorker:
    (port,) = free_ports(1)
    clients = client_settings(node)
    own = {
        "group.id": "connect",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        **{f"{what}.storage.replication.factor": 1 for what in ("config", "offset", "status")},
        **{f"{what}.converter": "org.apache.kafka.connect.storage.StringConverter" for what in ("key", "value")},
        # Settings of the worker, which have no default in this version.
        **{f"internal.{what}.converter": "org.apache.kafka.connect.json.JsonConverter" for what in ("key", "value")},
        **{f"internal.{what}.converter.schemas.enable": "false" for what in ("key", "value")},
        "listeners": f"http://127.0.0.1:{port}",
        "offset.flush.interval.ms": 1000,
    }
    prefixed = {f"{who}.{name}": value for who in ("producer", "consumer") for name, value in clients.items()}
    path = write_settings(folder / "worker.properties", {**clients, **prefixed, **own})
    program = Program(jars=Jars.CONNECT_1, main=MAIN, arguments=(str(path),))
    return RestWorker(f"http://127.0.0.1:{port}", Service(program, folder / "worker.log"))


@judges(client=Name.KAFKA_CONNECT_1, feature=Feature.CONNECTORS)
def test_connect_of_1_1_copies_lines_from_file_to_file(node: Node, tmp_path: Path) -> None:
    """It creates its own compacted topics; source and sink share only a hub."""
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [f"line {number}" for number in range(_LINES)]
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    connector = "org.apache.kafka.connect.file.FileStream{}Connector"
    worker = _worker(node, tmp_path)
    try:
        worker.start()
    except NotInstalled as reason:
        pytest.skip(str(reason))
    try:
        worker.configure("in", {"connector.class": connector.format("Source"), "file": str(source), "topic": "lines"})
        until(lambda: "lines" in topics.topic_names(librdkafka(node)), "hub of the source")
        worker.configure("out", {"connector.class": connector.format("Sink"), "file": str(sink), "topics": "lines"})
        until(lambda: sink.exists() and len(sink.read_text().splitlines()) >= _LINES, f"{_LINES} lines")
    finally:
        worker.stop()

    assert sorted(sink.read_text(encoding="utf-8").splitlines()) == sorted(lines)
    policies = [topics.configuration(librdkafka(node), f"connect-{what}") for what in ("configs", "offsets", "status")]
    assert {policy["cleanup.policy"] for policy in policies} == {"compact"}
