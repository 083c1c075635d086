"""Apache Kafka as a peer: one KRaft node with a heap of 1 GB, with and without TLS, from the jars of `make kafka-jars`.

It runs with Kafka's own defaults: acknowledged events are in the page cache, as with `os` here. There is no
authentication. The node has its own folder and ports, and ends with the `with` block.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.load.library import BenchFailed
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from hubmere.cli.cluster.free_ports import free_ports
from hubmere.endpoints import certificates
from hubmere.store.secrets import NodeSecrets, TlsFiles

# The tests have the code that starts the broker.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from conformance.clients import Jars, NotInstalled, java_tool, kafka_jars
from conformance.kafka import apache

HEAP = "1g"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_START_FIELD = 19
_ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApacheKafka:
    """A running node."""

    plain: str
    tls: str
    ca_file: Path
    pid: int
    start_seconds: float


def missing() -> str | None:
    """The reason why Apache Kafka cannot be measured, or None."""
    try:
        kafka_jars(Jars.KAFKA_4)
        java_tool("java")
    except NotInstalled as reason:
        return str(reason)
    return None


@contextmanager
def apache_kafka(folder: Path, topics: Sequence[str], partitions: int) -> Iterator[ApacheKafka]:
    """A node for the length of a `with` block, with these topics."""
    serving, ruling, secure = free_ports(3)
    files = NodeSecrets(folder / "tls").ensure_tls(("localhost", "127.0.0.1"), datetime.now(UTC), certificates)
    listeners = f"PLAINTEXT://127.0.0.1:{serving},SSL://127.0.0.1:{secure}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ruling}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": _key_store(folder, files),
    }
    with apache.broker(folder / "node", heap=HEAP, settings=settings, ports=(serving, ruling)) as node:
        started = ApacheKafka(
            plain=node.bootstrap,
            tls=f"127.0.0.1:{secure}",
            ca_file=files.ca,
            pid=node.pid,
            start_seconds=_age_seconds(node.pid),
        )
        _make_topics(node.bootstrap, topics, partitions)
        yield started


def _make_topics(bootstrap: str, topics: Sequence[str], partitions: int) -> None:
    """Create topics, and wait until every partition accepts events: leaders are elected after the response."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wished = [NewTopic(topic, num_partitions=partitions, replication_factor=1) for topic in topics]
    for made in admin.create_topics(wished).values():
        made.result(_ANSWER_SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, b"first", partition=partition)
    if producer.flush(_ANSWER_SECONDS):
        raise BenchFailed("Apache Kafka did not take a first event for every partition in time")


def _key_store(folder: Path, files: TlsFiles) -> Path:
    path = folder / "server-with-key.pem"
    path.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    return path


def _age_seconds(pid: int) -> float:
    """Seconds since a process was started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_START_FIELD]) / _TICKS_PER_S
