"""Unusual hubs on a real Spark: one partition has almost all events, large events, properties that change."""

from pathlib import Path

import pytest
from azure.eventhub import EventData
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from client.hubs import Hubs, bodies
from conformance.amqp.azure_clients import a_producer
from hubmere.pipeline.offsets import MIN_EVENTS_PER_TASK
from pipeline.queries import batch, conf, run_stream, streamed

pytestmark = pytest.mark.slow

PARTITIONS, RUN, LARGE_BODY_BYTES = 32, 5000, 1_000_000


def test_partition_with_almost_all_events_is_split_into_even_tasks(spark: SparkSession, hubs: Hubs) -> None:
    """One partition is split, the others are merged; every event is read once."""
    hub = hubs.new(PARTITIONS)
    runs = -(-2 * MIN_EVENTS_PER_TASK // RUN)
    hubs.publish(hub, 0, *(bodies(RUN, f"{run}") for run in range(runs)))
    for partition in range(1, PARTITIONS, 2):
        hubs.publish(hub, partition, bodies(partition))

    rows = batch(spark, conf(hubs, hub))
    numbers = rows.groupBy("partition").agg(fn.count("*"), fn.min("sequenceNumber"), fn.max("sequenceNumber"))
    found = {partition: tuple(of_one) for partition, *of_one in numbers.collect()}

    expected = {0: runs * RUN} | {partition: partition for partition in range(1, PARTITIONS, 2)}
    assert found == {str(partition): (events, 0, events - 1) for partition, events in expected.items()}
    assert rows.rdd.getNumPartitions() == 3


def test_large_and_empty_events_are_copied_from_hub_to_hub(spark: SparkSession, hubs: Hubs) -> None:
    """There are publications of the largest size, and empty events."""
    source, target = hubs.new(1), hubs.new(1)
    large = [bytes([number]) * LARGE_BODY_BYTES for number in range(3)]
    hubs.publish(source, 0, [large[0]], [b"", b"small"], [large[1]], [large[2]], [b""])

    rows = batch(spark, conf(hubs, source)).select("body", "partition")
    rows.write.format("eventhubs").options(**conf(hubs, target)).mode("append").save()

    found = batch(spark, conf(hubs, target)).orderBy("sequenceNumber").collect()
    assert [bytes(row.body) for row in found] == [large[0], b"", b"small", large[1], large[2], b""]


def test_stream_continues_when_names_and_types_of_properties_change(
    spark: SparkSession, hubs: Hubs, tmp_path: Path
) -> None:
    """They are a map of texts, so that a checkpoint does not depend on them."""
    hub = hubs.new(1)
    ages: tuple[list[dict[str, object]], ...] = (
        [{"count": 5}, {}],
        [{"count": "five"}, {"level": 2.5, "is_late": True}, {"nothing": None}],
    )
    expected = [{"count": "5"}, {}, {"count": "five"}, {"level": "2.5", "is_late": "true"}, {"nothing": "null"}]

    for age in ages:
        with a_producer(hubs.node.emulator_connection_string, hub) as producer:
            events = [EventData(b"event") for _ in age]
            for event, properties in zip(events, age, strict=True):
                event.properties = properties
            producer.send_batch(events, partition_id="0")
        run_stream(spark, conf(hubs, hub), tmp_path / "out", tmp_path / "checkpoint")

    assert streamed(spark, tmp_path / "out") == ["event"] * len(expected)
    rows = batch(spark, conf(hubs, hub)).orderBy("sequenceNumber").collect()
    assert [row.properties for row in rows] == expected
