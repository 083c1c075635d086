"""The whole pipeline on a node, which the pytest plugin of Hubmere starts."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import job
from hubmere.testing import Node
from telemetry import steps, tables

START = datetime(2026, 1, 1, tzinfo=UTC)
DEVICES, PER_MINUTE = 3, 4


@pytest.fixture
def pipeline(spark: SparkSession, hubmere_node: Node, tmp_path: Path) -> job.Pipeline:
    """The pipeline between two new hubs, with its tables in a folder of the test."""
    source = hubmere_node.create_hub("telemetry", partitions=2, groups=["gold"])
    result = hubmere_node.create_hub("telemetry-minutes", partitions=2)
    settings = job.Settings(source=source, result=result, data=tmp_path, consumer_groups={"gold": "gold"})
    return job.Pipeline(spark, settings, address(hubmere_node))


def address(node: Node) -> dict[str, str]:
    """The options with the address of the node."""
    return {"eventhubs.connectionString": node.emulator_connection_string, "eventhubs.endpoint": node.kafka}


def publish(spark: SparkSession, node: Node, minutes: range) -> None:
    """Readings of some minutes, and for each device one body that is not a reading."""
    rows = [("not a reading", f"device {device}") for device in range(DEVICES)]
    for device in range(DEVICES):
        for minute in minutes:
            for second in range(0, 60, 60 // PER_MINUTE):
                time = (START + timedelta(minutes=minute, seconds=second)).isoformat()
                reading = {"device": f"device {device}", "time": time, "temperature": 20.0 + device}
                rows.append((json.dumps(reading), f"device {device}"))
    events = spark.createDataFrame(rows, "body string, partitionKey string").coalesce(1)
    writer = events.write.format("eventhubs").options(**address(node)).option("eventhubs.name", "telemetry")
    writer.mode("append").save()


def test_every_event_is_in_its_table_once_and_every_closed_minute_is_published_once(
    spark: SparkSession, hubmere_node: Node, pipeline: job.Pipeline
) -> None:
    """A second run continues; a step that is reset is filled with the same rows again."""
    publish(spark, hubmere_node, range(5))
    pipeline.run()
    publish(spark, hubmere_node, range(5, 8))
    pipeline.reset("silver")
    pipeline.run()

    def rows(table: str) -> int:
        found: int = tables.read_table(spark, pipeline.table(table)).count()
        return found

    assert rows("bronze") == DEVICES * (8 * PER_MINUTE + 2)
    assert rows("silver") == DEVICES * 8 * PER_MINUTE
    assert rows("quarantine") == DEVICES * 2
    # The latest reading is at 7:45, so minutes that ended by 5:45 are closed.
    closed = Counter((START + timedelta(minutes=minute), f"device {n}") for minute in range(5) for n in range(DEVICES))
    published = [event.json for event in hubmere_node.events("telemetry-minutes")]
    assert Counter((datetime.fromisoformat(each["minute"]), each["device"]) for each in published) == closed
    assert {each["readings"] for each in published} == {PER_MINUTE}
    assert rows("minutes") == len(published)

    # The same steps on the table give the same minutes: this is how a table is computed again from bronze.
    bronze = tables.read_table(spark, pipeline.table("bronze"))
    again = steps.gold(steps.silver(steps.parse(bronze)), "1 minute", "2 minutes")
    stored = tables.read_table(spark, pipeline.table("minutes"))
    assert stored.exceptAll(again).count() == 0
