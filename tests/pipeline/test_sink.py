"""Writing to a hub with a real Spark: repeated rows are stored once."""

from collections.abc import Iterable, Iterator

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from client.hubs import Hubs
from pipeline.queries import batch, conf, texts

pytestmark = pytest.mark.slow

# More than a segment of the sink, so that a task that fails at its end has written something.
LARGE_ROWS, LARGE_BODY_BYTES = 110, 100_000
# Spark passes rows to a writer in batches; the default is larger than the data.
ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_batch_is_written_and_read_back_with_keys_and_properties(spark: SparkSession, hubs: Hubs) -> None:
    """Written events look like those of any other publisher."""
    hub = hubs.new(partitions=4)
    rows = spark.range(100).selectExpr(
        "cast(id as string) as body",
        "concat('key ', id % 7) as partitionKey",
        "map('n', cast(id as string)) as properties",
    )

    rows.write.format("eventhubs").options(**conf(hubs, hub)).mode("append").save()
    found = batch(spark, conf(hubs, hub)).collect()

    assert {(bytes(row.body).decode(), row.partitionKey, row.properties["n"]) for row in found} == {
        (str(number), f"key {number % 7}", str(number)) for number in range(100)
    }
    assert len({(row.partition, row.partitionKey) for row in found}) == 7


def test_retried_task_leaves_no_duplicate(spark: SparkSession, hubs: Hubs) -> None:
    """The first attempt of each task writes a segment and then fails."""
    hub = hubs.new(partitions=2)

    def failing_once(numbers: Iterable[int]) -> Iterator[tuple[str]]:
        task = TaskContext.get()
        assert task is not None
        for number in numbers:
            yield (f"{number} {'x' * LARGE_BODY_BYTES}",)
        if task.attemptNumber() == 0:
            raise InterruptedError

    numbers = spark.sparkContext.parallelize(range(LARGE_ROWS), 1)
    rows = spark.createDataFrame(numbers.mapPartitions(failing_once), "body string")
    spark.conf.set(ROWS_PER_BATCH, "20")
    try:
        rows.write.format("eventhubs").options(**conf(hubs, hub)).mode("append").save()
    finally:
        spark.conf.unset(ROWS_PER_BATCH)

    found = batch(spark, conf(hubs, hub)).selectExpr("split(cast(body as string), ' ')[0] as number").collect()
    assert sorted(int(row.number) for row in found) == list(range(LARGE_ROWS))


def test_repeated_batch_with_a_write_id_leaves_no_duplicate(spark: SparkSession, hubs: Hubs) -> None:
    """`foreachBatch` writes batches; the number of the micro-batch in `writeId` identifies a repeat."""
    hub = hubs.new(partitions=2)
    writer = spark.range(5).selectExpr("cast(id as string) as body").coalesce(1).write.format("eventhubs")

    for name in ("alerts/0", "alerts/0", "alerts/1"):
        writer.options(**conf(hubs, hub, writeId=name)).mode("append").save()

    assert sorted(texts(batch(spark, conf(hubs, hub)))) == sorted(str(number) for number in range(5) for _ in range(2))


def test_overwriting_is_refused(spark: SparkSession, hubs: Hubs) -> None:
    """A log cannot be overwritten."""
    writer = spark.range(1).selectExpr("'x' as body").write.format("eventhubs").options(**conf(hubs, hubs.new()))

    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.mode("overwrite").save()
