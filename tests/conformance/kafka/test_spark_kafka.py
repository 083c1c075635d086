"""Spark's own Kafka connector: it reads and writes batches and streams.

Maven Central has no connector for our version of Spark; the tests use the previous one. PySpark users also have
`format("eventhubs")`, which is tested in `tests/pipeline`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.clients import Jars, NotInstalled, java_tool, kafka_jars
from conformance.conformance_node import Transport
from conformance.kafka.apache import client_settings, make_trust_store
from conformance.kafka.kafka_clients import librdkafka
from conformance.kafka_ecosystem import spark_job, topics
from conformance.matrix import Feature, Name
from hubmere.testing import Node

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.judges(client=Name.SPARK_KAFKA, transport=Transport.TLS),
]

_COUNT = 2000
_PARTITIONS = 3
_JOB_SECONDS = 3000


@pytest.fixture(scope="module")
def seen(node: Node, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the job; one session serves all tests, because it is slow to start."""
    pytest.importorskip("pyspark")
    folder = tmp_path_factory.mktemp("spark")
    try:
        java_tool("java")
        jars = [str(jar) for jar in kafka_jars(Jars.SPARK).glob("*.jar")]
        settings = client_settings(node, trust_store=make_trust_store(folder, node.ca_file))
    except NotInstalled as reason:
        pytest.skip(str(reason))
    names = {"topic": f"{folder.name}-orders", "copy": f"{folder.name}-copies"}
    admin = AdminClient(librdkafka(node))
    for made in admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in names.values()]).values():
        made.result(300)
    options = {f"kafka.{name}": value for name, value in settings.items()}
    orders = {**names, "jars": jars, "options": options, "count": _COUNT, "folder": str(folder)}
    return {**names, **_run(orders, folder)}


def _run(orders: dict[str, Any], folder: Path) -> dict[str, Any]:
    command = [sys.executable, str(Path(spark_job.__file__))]
    ended = subprocess.run(
        command, input=json.dumps(orders), cwd=folder, capture_output=True, text=True, timeout=_JOB_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    facts: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return facts


def _content(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return sorted((row["key"], row["value"], row["header"]) for row in rows)


def _expected(first: int, last: int) -> list[tuple[str, str, str]]:
    return sorted((f"key {number}", f"value {number}", str(number)) for number in range(first, last))


@pytest.mark.judges(feature=Feature.SPARK_BATCHES)
def test_batch_is_written_and_read_back(seen: dict[str, Any]) -> None:
    """Keys, values and headers are compared, each row once; from given offsets only later rows are read."""
    assert _content(seen["everything"]) == _expected(0, _COUNT)
    assert _content(seen["later"]) == _expected(_COUNT, 2 * _COUNT)


@pytest.mark.judges(feature=Feature.SPARK_STREAMS)
def test_stream_continues_from_its_checkpoint(node: Node, seen: dict[str, Any]) -> None:
    """There are two runs of micro-batches over one checkpoint: the copy has every row exactly once."""
    copied = topics.messages(librdkafka(node), seen["copy"])

    rows = sorted(((message.key() or b"").decode(), (message.value() or b"").decode()) for message in copied)
    assert rows == [row[:2] for row in _expected(0, 2 * _COUNT)]
    assert min(seen["batches"]) > 1
