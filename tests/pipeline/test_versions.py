"""What readers and writers promise on every Spark 4: short enough to run on all of them (`make spark-versions`).

Imports nothing that the oldest of them does not have.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from client.hubs import Hubs, bodies
from hubmere.client.producer import HubProducer, encode_batch, producer_id_of
from pipeline.copying import start_copy
from pipeline.queries import STREAM_TIMEOUT_S, batch, conf, forget_last_commit, run_stream, streamed, texts
from translate.builders import record_of

pytestmark = pytest.mark.slow

PARTITIONS = 3


def test_batch_has_every_column_of_every_event(spark: SparkSession, hubs: Hubs) -> None:
    """Bodies with content, empty or null; some events with keys and properties, others without."""
    hub = hubs.new(PARTITIONS)
    records = [
        record_of(0, b"keyed", "device", (("color", "red"), ("none", None))),
        record_of(1, b"", None, ()),
        record_of(2, None, None, (("other", "property"),)),
        record_of(3, "é".encode(), None, ()),
    ]
    for partition in range(PARTITIONS):
        producer = HubProducer(hubs.client, hub, producer_id_of([hub.encode(), bytes([partition])]))
        producer.send(partition, encode_batch(records))
        producer.flush()

    rows = batch(spark, conf(hubs, hub)).orderBy("partition", "sequenceNumber").collect()

    bodies_of_one = [b"keyed", b"", None, "é".encode()]
    assert [None if row.body is None else bytes(row.body) for row in rows] == bodies_of_one * PARTITIONS
    assert [row.partitionKey for row in rows[:4]] == ["device", None, None, None]
    assert [row.properties for row in rows[:4]] == [{"color": "red", "none": "null"}, {}, {"other": "property"}, {}]
    assert [(row.partition, row.sequenceNumber) for row in rows] == [
        (str(partition), number) for partition in range(PARTITIONS) for number in range(4)
    ]
    assert all(row.enqueuedTime is not None and row.offset is not None for row in rows)


def test_batch_has_the_named_columns(spark: SparkSession, hubs: Hubs) -> None:
    """They are in the order of the names."""
    hub = hubs.new(1)
    hubs.publish(hub, 0, bodies(3))

    named = spark.read.format("eventhubs").options(**conf(hubs, hub)).schema("sequenceNumber bigint, body binary")

    assert [(row.sequenceNumber, bytes(row.body)) for row in named.load().collect()] == list(enumerate(bodies(3)))


def test_stream_reads_every_event_once_over_two_runs(spark: SparkSession, hubs: Hubs, tmp_path: Path) -> None:
    """Spark 4.2 and later limit the events of a trigger; older ones have no limits, and read all."""
    hub = hubs.new(2)
    hubs.publish(hub, 0, bodies(60))
    options = conf(hubs, hub, maxEventsPerTrigger="40")

    first = run_stream(spark, options, tmp_path / "out", tmp_path / "checkpoint")
    hubs.publish(hub, 1, bodies(7, "second"))
    second = run_stream(spark, options, tmp_path / "out", tmp_path / "checkpoint")

    has_limits = tuple(map(int, spark.version.split(".")[:2])) >= (4, 2)
    assert (first, second) == (([40, 20] if has_limits else [60]), [7])
    expected = [*bodies(60), *bodies(7, "second")]
    assert streamed(spark, tmp_path / "out") == [body.decode() for body in expected]


def test_repeated_stream_to_a_hub_leaves_no_duplicate(spark: SparkSession, hubs: Hubs, tmp_path: Path) -> None:
    """A batch writes, a stream copies, dies before Spark's commit and copies again."""
    source, target = hubs.new(2), hubs.new(2)
    rows = spark.range(50).selectExpr("cast(id as string) as body", "map('n', cast(id as string)) as properties")
    rows.write.format("eventhubs").options(**conf(hubs, source)).mode("append").save()

    for _ in range(2):
        query = start_copy(spark, conf(hubs, source), conf(hubs, target), tmp_path)
        assert query.awaitTermination(STREAM_TIMEOUT_S)
        forget_last_commit(tmp_path)

    assert sorted(texts(batch(spark, conf(hubs, target))), key=int) == [str(number) for number in range(50)]


def test_large_write_does_not_pass_through_the_driver(spark: SparkSession, hubs: Hubs) -> None:
    """Eight tasks of 3 MB each, all in last segments, with a limit of 16 MB for the results of tasks."""
    assert spark.conf.get("spark.driver.maxResultSize") == "16m"
    hub = hubs.new(2)
    rows = spark.range(0, 240, numPartitions=8).selectExpr("concat(id, ' ', repeat('x', 100000)) as body")

    rows.write.format("eventhubs").options(**conf(hubs, hub)).mode("append").save()

    found = batch(spark, conf(hubs, hub)).selectExpr("split(cast(body as string), ' ')[0] as number").collect()
    assert sorted(int(row.number) for row in found) == list(range(240))
