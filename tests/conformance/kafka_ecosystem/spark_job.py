"""Uses Spark's own Kafka source and sink; a separate program, because a process can have only one Spark session.

It reads its arguments as JSON from standard input: connector jars, options of the connector, topics, a folder. It
writes a batch, reads it back as a batch, copies it with a stream in two runs over one checkpoint, and prints the
results as JSON.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_HEADER = "array(named_struct('key', 'number', 'value', cast(cast(id as string) as binary)))"


def _session(jars: list[str], folder: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )


class Job:
    """The work of one session."""

    def __init__(self, spark: SparkSession, orders: dict[str, Any]) -> None:
        self._spark = spark
        self._options: dict[str, str] = orders["options"]
        self._topic: str = orders["topic"]
        self._copy: str = orders["copy"]
        self._folder: str = orders["folder"]

    def write(self, first: int, last: int) -> None:
        rows = self._spark.range(first, last).selectExpr(
            "concat('key ', id) as key", "concat('value ', id) as value", f"{_HEADER} as headers"
        )
        rows.write.format("kafka").options(**self._options).option("topic", self._topic).save()

    def read(self, **options: str) -> list[dict[str, Any]]:
        source = self._spark.read.format("kafka").options(**self._options).option("subscribe", self._topic)
        rows = source.option("includeHeaders", "true").options(**options).load()
        return self._shown(rows)

    def _shown(self, rows: DataFrame) -> list[dict[str, Any]]:
        shown = rows.selectExpr(
            "cast(key as string) as key",
            "cast(value as string) as value",
            "cast(headers[0].value as string) as header",
            "partition",
            "offset",
        )
        return [row.asDict() for row in shown.collect()]

    def copy(self) -> int:
        """Copy new events; returns the number of micro-batches."""
        source = self._spark.readStream.format("kafka").options(**self._options).option("subscribe", self._topic)
        rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1000").load()
        sink = rows.selectExpr("key", "value").writeStream.format("kafka").options(**self._options)
        query = (
            sink.option("topic", self._copy)
            .option("checkpointLocation", f"{self._folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(1 for progress in query.recentProgress if progress["numInputRows"])


def main() -> None:
    """Run the job with its arguments."""
    orders = json.load(sys.stdin)
    spark = _session(orders["jars"], orders["folder"])
    job = Job(spark, orders)
    count: int = orders["count"]
    job.write(0, count)
    everything = job.read()
    offsets = {str(row["partition"]): 0 for row in everything}
    for row in everything:
        offsets[str(row["partition"])] = max(offsets[str(row["partition"])], row["offset"] + 1)
    batches = [job.copy()]
    job.write(count, 2 * count)
    later = job.read(startingOffsets=json.dumps({orders["topic"]: offsets}))
    batches.append(job.copy())
    spark.stop()
    print(json.dumps({"everything": everything, "later": later, "batches": batches}))


if __name__ == "__main__":
    main()
