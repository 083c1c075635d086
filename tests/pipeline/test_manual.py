"""The examples of the manual's pages on Spark run unchanged."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from client.hubs import Hubs, bodies
from pipeline.queries import STREAM_TIMEOUT_S, batch, conf

pytestmark = pytest.mark.slow

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_examples(name: str, replaced: dict[str, str], names: dict[str, Any]) -> None:
    """Run the examples of a page in order, with these replacements, all of which must occur."""
    page = (PAGES / name).read_text(encoding="utf-8")
    assert all(old in page for old in replaced)
    for text in _FENCE.findall(page):
        for old, new in replaced.items():
            text = text.replace(old, new)
        exec(text, names)


def address(hubs: Hubs, hub: str) -> str:
    """The replacement for the manual's example address."""
    return f'"{hubs.node.connection_string};EntityPath={hub}", "eventhubs.endpoint": "{hubs.node.kafkas}"'


def test_examples_of_the_manual_run(spark: SparkSession, hubs: Hubs, tmp_path: Path) -> None:
    """Only addresses, keys and paths are replaced."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(5))
    replaced = {
        '"Endpoint=sb://localhost;SharedAccessKeyName=...;EntityPath=orders"': address(hubs, hub),
        "/var/lib/hubmere/tls/ca.pem": hubs.node.ca_file,
        '"orders/"': f'"{tmp_path / "orders"}"',
        '"checkpoint/"': f'"{tmp_path / "checkpoint"}"',
        ".start()": ".trigger(availableNow=True).start()",
    }
    names: dict[str, Any] = {"spark": spark}

    run_examples("spark.md", replaced, names)

    assert names["query"].awaitTermination(STREAM_TIMEOUT_S)
    assert batch(spark, conf(hubs, hub)).count() == 5 + 1000


def test_examples_on_bad_events_run(spark: SparkSession, hubs: Hubs, tmp_path: Path) -> None:
    """A valid event is in the table, an invalid one in the dead-letter hub, and from there in the corrected table."""
    hub, dead = hubs.new(partitions=1), hubs.new(partitions=1)
    hubs.publish(hub, 0, [b'{"device": "a", "temperature": 1}', b'{"device": "b", "temperature": "warm"}', b"none"])
    replaced = {
        '"Endpoint=sb://localhost;SharedAccessKeyName=...;EntityPath=readings"': address(hubs, hub),
        '"Endpoint=sb://localhost;SharedAccessKeyName=...;EntityPath=bad-readings"': address(hubs, dead),
        "/var/lib/hubmere/tls/ca.pem": hubs.node.ca_file,
        '"readings/batch=': f'"{tmp_path}/readings/batch=',
        '"corrected/"': f'"{tmp_path}/corrected"',
        '"checkpoint/"': f'"{tmp_path / "checkpoint"}"',
        ".start()": f".trigger(availableNow=True).start()\nquery.awaitTermination({STREAM_TIMEOUT_S})",
    }
    names: dict[str, Any] = {"spark": spark}

    run_examples("bad-events.md", replaced, names)

    assert (names["letters"].counts.good, names["letters"].counts.bad) == (1, 2)
    assert [row.device for row in spark.read.parquet(f"{tmp_path}/readings").collect()] == ["a"]
    corrected = spark.read.parquet(f"{tmp_path}/corrected").collect()
    assert [(row.device, row.temperature, row.sequenceNumber) for row in corrected] == [("b", "warm", 1)]
