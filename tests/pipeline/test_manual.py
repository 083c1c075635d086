"""The examples of the manual's page on Spark, run as they stand."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from client.hubs import Hubs, bodies
from pipeline.queries import STREAM_TIMEOUT_S, batch, conf

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_examples_of_the_manual_run(spark: SparkSession, hubs: Hubs, tmp_path: Path) -> None:
    """Only addresses, keys and paths are replaced."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(5))
    replaced = {
        '"Endpoint=sb://localhost;SharedAccessKeyName=...;EntityPath=orders",': (
            f'"{hubs.node.connection_string};EntityPath={hub}", "eventhubs.endpoint": "{hubs.node.kafkas}",'
        ),
        "/var/lib/hubmere/tls/ca.pem": hubs.node.ca_file,
        '"orders/"': f'"{tmp_path / "orders"}"',
        '"checkpoint/"': f'"{tmp_path / "checkpoint"}"',
        ".start()": ".trigger(availableNow=True).start()",
    }
    page = PAGE.read_text(encoding="utf-8")
    names: dict[str, object] = {"spark": spark}
    for text in _FENCE.findall(page):
        for old, new in replaced.items():
            text = text.replace(old, new)
        exec(text, names)

    query = names["query"]
    assert query.awaitTermination(STREAM_TIMEOUT_S)  # type: ignore[attr-defined]
    assert batch(spark, conf(hubs, hub)).count() == 5 + 1000
    assert all(old in page for old in replaced)
