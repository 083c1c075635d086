"""Kafka Connect in distributed mode: its state in compacted hubs, lines of files as events, and crashes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.clients import NotInstalled
from conformance.conformance_node import Transport, gateway_settings
from conformance.kafka.kafka_clients import librdkafka
from conformance.kafka_ecosystem import topics
from conformance.kafka_ecosystem.connect import PAGE, Worker
from conformance.kafka_ecosystem.manual import pasted
from conformance.kafka_ecosystem.topics import until
from conformance.matrix import Feature, Name
from hubmere.testing import Node

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.judges(client=Name.KAFKA_CONNECT, transport=Transport.TLS),
]

_FIRST_LINES = 10
_LINES = 2000
# Four such changes of a connector fill the smallest possible segment.
_LARGE = 300_000
_CHANGES = 8
# By default a worker stores the positions of its connectors once a minute.
_OFTEN = "offset.flush.interval.ms=1000\n"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that compacts as early as possible; the brokers of a gateway compact by themselves."""
    gateway = gateway_settings(tmp_path_factory.mktemp("gateway"))
    store: dict[str, str | int] = {**gateway} or {"retention_check_interval_s": 1}
    with Node(settings={"as": "premium", "segment_bytes": "1 MiB", **store}) as node:
        yield node


@pytest.fixture(scope="module")
def shared(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """The worker of the manual, for tests that add their own connectors."""
    with _started(node, tmp_path_factory.mktemp("worker")) as running:
        yield running


@contextmanager
def _started(node: Node, folder: Path, *, changes: Mapping[str, str] | None = None, more: str = "") -> Iterator[Worker]:
    try:
        made = Worker(node, folder, changes=changes or {}, more=_OFTEN + more)
        made.start()
    except NotInstalled as reason:
        pytest.skip(str(reason))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def settings(node: Node) -> dict[str, Any]:
    return librdkafka(node)


class Pipe:
    """A file, a source, a hub, a sink and a second file: the connectors of the manual with unique names."""

    def __init__(self, worker: Worker, folder: Path, topic: str) -> None:
        self._worker = worker
        self._topic = topic
        self.source, self.sink = f"{topic}-in", f"{topic}-out"
        self._source_file, self._sink_file = folder / "orders.txt", folder / "copy.txt"
        self._written = 0

    def open_source(self) -> None:
        """Start to read the file; the hub is created with its first line."""
        changes = {"lines-in": self.source, "/tmp/orders.txt": str(self._source_file), '"orders"': f'"{self._topic}"'}
        self._worker.create("source.json", changes)

    def open_sink(self) -> None:
        """Start to write the copy; the hub must exist, or the sink creates it with other settings."""
        changes = {"lines-out": self.sink, "/tmp/orders-copy.txt": str(self._sink_file), '"orders"': f'"{self._topic}"'}
        self._worker.create("sink.json", changes)

    def write(self, count: int = _LINES) -> None:
        with self._source_file.open("a", encoding="utf-8") as file:
            file.writelines(f"line {number}\n" for number in range(self._written, self._written + count))
        self._written += count

    @property
    def expected(self) -> list[str]:
        return self._source_file.read_text(encoding="utf-8").splitlines()

    @property
    def arrived(self) -> list[str]:
        return self._sink_file.read_text(encoding="utf-8").splitlines() if self._sink_file.exists() else []

    def await_lines(self) -> None:
        until(lambda: len(self.arrived) >= self._written, f"{self._written} lines")


@pytest.fixture
def pipe(shared: Worker, settings: dict[str, Any], topic: str, tmp_path: Path) -> Pipe:
    """A pipe that has copied its first lines."""
    made = Pipe(shared, tmp_path, topic)
    made.write(_FIRST_LINES)
    made.open_source()
    until(lambda: topic in topics.topic_names(settings), "hub of the source")
    made.open_sink()
    made.await_lines()
    return made


@pytest.mark.judges(feature=Feature.OWN_TOPICS)
def test_worker_stores_its_state_in_compacted_topics(shared: Worker, settings: dict[str, Any]) -> None:
    """Check 50: it creates them itself, and would not start if their policy was not exactly compact."""
    names = ("connect-configs", "connect-offsets", "connect-status")
    assert shared.names() is not None

    shapes = [
        (topics.partition_count(settings, name), topics.configuration(settings, name)["cleanup.policy"])
        for name in names
    ]

    assert shapes == [(1, "compact"), (25, "compact"), (5, "compact")]


@pytest.mark.judges(feature=Feature.CONNECTORS)
def test_lines_of_a_file_are_copied_to_another_file(pipe: Pipe, settings: dict[str, Any], topic: str) -> None:
    """Source and sink share only a hub: every line arrives once and in order, and the sink stores its position."""
    pipe.write()
    pipe.await_lines()

    assert pipe.arrived == pipe.expected
    assert topics.values(settings, topic) == [line.encode() for line in pipe.expected]
    group = f"connect-{pipe.sink}"
    until(lambda: topics.committed(settings, group, topic, 1) == [len(pipe.expected)], "place of the sink")


@pytest.mark.judges(feature=Feature.CONNECTOR_ORDERS)
def test_connector_can_be_paused_resumed_and_deleted(
    shared: Worker, pipe: Pipe, settings: dict[str, Any], topic: str
) -> None:
    """The worker uses its compacted topics for this, and waiting lines are not lost."""
    shared.pause(pipe.source)
    shared.await_state(pipe.source, "PAUSED")
    pipe.write()
    while_paused = topics.values(settings, topic)
    shared.resume(pipe.source)
    pipe.await_lines()
    shared.delete(pipe.source)
    shared.delete(pipe.sink)

    assert len(while_paused) == _FIRST_LINES
    assert pipe.arrived == pipe.expected
    until(lambda: not {pipe.source, pipe.sink} & set(shared.names()), "worker without the connectors")


@pytest.mark.judges(feature=Feature.OWN_RESTARTS)
def test_restarted_worker_continues_where_it_was(shared: Worker, pipe: Pipe, settings: dict[str, Any]) -> None:
    """Connectors and positions are read from hubs, also after compaction."""
    config = shared.config(pipe.sink)
    for number in range(_CHANGES):
        shared.configure(pipe.sink, config | {"description": f"{number}" * _LARGE})
    key = f"connector-{pipe.sink}".encode()
    until(lambda: len(_kept(settings, key)) < _CHANGES // 2, "compaction")

    shared.stop()
    pipe.write()
    shared.start()
    pipe.await_lines()

    assert pipe.arrived == pipe.expected
    assert shared.config(pipe.sink)["description"] == f"{_CHANGES - 1}" * _LARGE


def _kept(settings: dict[str, Any], key: bytes) -> list[bytes]:
    found = topics.messages(settings, "connect-configs")
    return [message.value() or b"" for message in found if message.key() == key]


@pytest.mark.judges(feature=Feature.EXACTLY_ONCE)
def test_killed_worker_writes_each_line_exactly_once(
    node: Node, settings: dict[str, Any], topic: str, tmp_path: Path
) -> None:
    """With exactly-once support events and positions are one transaction; an open one is aborted by the next worker."""
    own = {"=connect\n": f"={topic}\n", "=connect-": f"={topic}-"}
    with _started(node, tmp_path, changes=own, more=pasted(PAGE, "exactly-once.properties", {})) as killed:
        pipe = Pipe(killed, tmp_path, topic)
        pipe.write(20 * _LINES)
        pipe.open_source()
        until(lambda: topics.messages(settings, topic), "first lines")

        killed.kill()
        pipe.write()
        killed.start()
        until(lambda: len(_committed(settings, topic)) >= len(pipe.expected), "lines")

        assert _committed(settings, topic) == pipe.expected


def _committed(settings: dict[str, Any], topic: str) -> list[str]:
    return [(message.value() or b"").decode() for message in topics.messages(settings, topic, committed_only=True)]
