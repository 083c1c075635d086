"""Device telemetry with Structured Streaming: one-minute windows with a watermark, to a hub and to a Delta table.

    python examples/streaming/telemetry.py --table /data/minutes --checkpoint /data/checkpoint [--once]

Reads the hub `telemetry`, whose events are JSON such as {"device": "a", "time": "2026-01-01T00:00:00Z",
"temperature": 21.5}, and writes every closed minute to the hub `telemetry-minutes` and to a Delta table. Where the hubs
are stands in EVENTHUBS_CONNECTION_STRING (and EVENTHUBS_ENDPOINT, EVENTHUBS_CA_FILE where they are needed).

Both results hold every minute exactly once, whatever is killed: Spark repeats a micro-batch that it has not finished
under the same number, the hub drops what it has under the same `writeId`, and Delta keeps the number of the last
micro-batch in its own log. The table is written by the package `deltalake`, so that no jar is needed.

    pip install "hubmere[spark]" deltalake
"""

import argparse
import json
import os
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

SOURCE, RESULT = "telemetry", "telemetry-minutes"
READING = "device STRING, time TIMESTAMP, temperature DOUBLE"
BEGINNING = json.dumps({"offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True})
# How much later than the youngest reading one may be and still count.
LATENESS = "2 minutes"
# The options of the source, and the variables that hold them.
VARIABLES = {
    "eventhubs.connectionString": "EVENTHUBS_CONNECTION_STRING",
    "eventhubs.endpoint": "EVENTHUBS_ENDPOINT",
    "eventhubs.caFile": "EVENTHUBS_CA_FILE",
}


def minutes(events: DataFrame) -> DataFrame:
    """Readings of each device, minute by minute of the device's own time; a minute is given when it is closed."""
    return (
        events.select(fn.from_json(fn.col("body").cast("string"), READING).alias("reading"))
        .select("reading.*")
        .where("device is not null and time is not null and temperature is not null")
        .withWatermark("time", LATENESS)
        .groupBy(fn.window("time", "1 minute"), "device")
        .agg(fn.count("*").alias("readings"), fn.avg("temperature").alias("mean"))
        .selectExpr("window.start as minute", "device", "readings", "mean")
    )


def append_once(table: Path, rows: pa.Table, query: str, number: int) -> None:
    """Append a micro-batch to a Delta table, unless the table has it already."""
    if DeltaTable.is_deltatable(str(table)):
        last = DeltaTable(str(table)).transaction_version(query)
        if last is not None and last >= number:
            return
    done = CommitProperties(app_transactions=[Transaction(app_id=query, version=number)])
    write_deltalake(str(table), rows, mode="append", commit_properties=done)


def start(events: DataFrame, place: dict[str, str], table: Path, checkpoint: Path, *, once: bool) -> StreamingQuery:
    """Start the query; with `once` it ends when it has read all stored events."""

    def keep(batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None, "Spark tells every micro-batch its query"
        # One order, so that a repeat gives the hub the same rows in the same place.
        rows = batch.coalesce(1).sortWithinPartitions("minute", "device").persist()
        try:
            append_once(table, rows.toArrow(), query, number)
            (
                rows.selectExpr("to_json(struct(*)) as body", "device as partitionKey")
                .write.format("eventhubs")
                .options(**place)
                .option("eventhubs.name", RESULT)
                .option("eventhubs.writeId", f"{query}/{number}")
                .mode("append")
                .save()
            )
        finally:
            rows.unpersist()

    writer = minutes(events).writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="10 seconds")).start()


def read(spark: SparkSession, place: dict[str, str]) -> DataFrame:
    """The telemetry, from its beginning on."""
    options = {**place, "eventhubs.name": SOURCE, "eventhubs.startingPosition": BEGINNING}
    return spark.readStream.format("eventhubs").options(**options).load()


def main() -> None:
    """Run until Ctrl-C, or until all stored events are read."""
    parser = argparse.ArgumentParser(description="Telemetry, minute by minute, to a hub and to a Delta table.")
    parser.add_argument("--table", type=Path, required=True, help="folder of the Delta table")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the query's checkpoint")
    parser.add_argument("--once", action="store_true", help="read what is there, then end")
    given = parser.parse_args()
    place = {option: os.environ[name] for option, name in VARIABLES.items() if name in os.environ}
    spark = (
        SparkSession.builder.appName("telemetry")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    start(read(spark, place), place, given.table, given.checkpoint, once=given.once).awaitTermination()


if __name__ == "__main__":
    main()
