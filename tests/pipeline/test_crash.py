"""Nodes and workers that die in the middle of a query: source equals sink, exactly."""

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from client.hubs import Hubs, a_node_with_hubs, bodies
from pipeline.queries import STREAM_TIMEOUT_S, batch, conf, texts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EVENTS, PARTITIONS, KILLS = 3000, 3, 2


@pytest.fixture
def disk_hubs() -> Iterator[Hubs]:
    with a_node_with_hubs(memory=False) as hubs:
        yield hubs


def test_node_that_is_killed_under_a_query_costs_no_event(spark: SparkSession, disk_hubs: Hubs, tmp_path: Path) -> None:
    """From hub to hub while the node is killed and started again; every event arrives once and in order."""
    hubs = disk_hubs
    source, target = hubs.new(PARTITIONS), hubs.new(PARTITIONS)
    for partition in range(PARTITIONS):
        hubs.publish(
            source, partition, *(bodies(100, f"{partition} {run}") for run in range(EVENTS // PARTITIONS // 100))
        )

    query = (
        spark.readStream.format("eventhubs")
        .options(**conf(hubs, source, maxEventsPerTrigger=str(EVENTS // 3)))
        .load()
        .select("body", "partition")
        .writeStream.format("eventhubs")
        .options(**conf(hubs, target))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    for _ in range(KILLS):
        query.awaitTermination(2)
        hubs.node.kill()
        hubs.node.start()
    assert query.awaitTermination(STREAM_TIMEOUT_S)

    assert texts(batch(spark, conf(hubs, target))) == texts(batch(spark, conf(hubs, source)))


def test_worker_that_is_killed_is_replaced_without_a_trace(spark: SparkSession, hubs: Hubs) -> None:
    """The Python process that computes rows dies by SIGKILL at the end of its first attempt."""
    hub = hubs.new(PARTITIONS)

    def dying_once(numbers: Iterable[int]) -> Iterator[tuple[str]]:
        task = TaskContext.get()
        assert task is not None
        for number in numbers:
            yield (f"{number} {'x' * 20_000}",)
        if task.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    numbers = spark.sparkContext.parallelize(range(1000), 2)
    rows = spark.createDataFrame(numbers.mapPartitions(dying_once), "body string")
    rows.write.format("eventhubs").options(**conf(hubs, hub)).mode("append").save()

    found = batch(spark, conf(hubs, hub)).selectExpr("split(cast(body as string), ' ')[0] as number").collect()
    assert sorted(int(row.number) for row in found) == list(range(1000))
