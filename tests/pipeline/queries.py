"""Queries of tests: options for a hub, and streams that run to their end."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from client.hubs import Hubs

START = json.dumps({"offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True})
# A stream that hangs must fail before the timeout of the test.
STREAM_TIMEOUT_S = 2400


def conf(hubs: Hubs, hub: str, **more: str) -> dict[str, str]:
    """The options for a hub, from its beginning."""
    return {
        "eventhubs.connectionString": f"{hubs.node.connection_string};EntityPath={hub}",
        "eventhubs.endpoint": hubs.node.kafkas,
        "eventhubs.caFile": hubs.node.ca_file,
        "eventhubs.startingPosition": START,
        "eventhubs.operationTimeout": "PT20S",
    } | {f"eventhubs.{name}": value for name, value in more.items()}


def position(**fields: Any) -> str:
    """A position in the connector's JSON."""
    return json.dumps({"offset": None, "seqNo": -1, "enqueuedTime": None, "isInclusive": True} | fields)


def batch(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """A batch read."""
    return spark.read.format("eventhubs").options(**options).load()


def texts(rows: DataFrame) -> list[str]:
    """The bodies as texts, in the order of partition and sequence number."""
    ordered = rows.orderBy("partition", "sequenceNumber").selectExpr("cast(body as string) as text")
    return [row.text for row in ordered.collect()]


def run_stream(spark: SparkSession, options: dict[str, str], out: Path, checkpoint: Path) -> list[int]:
    """Read all stored events into files, then end; returns the rows of each micro-batch."""
    query = (
        spark.readStream.format("eventhubs")
        .options(**options)
        .load()
        .selectExpr("cast(body as string) as text", "partition", "sequenceNumber")
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(STREAM_TIMEOUT_S)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()


def streamed(spark: SparkSession, out: Path) -> list[str]:
    """The rows that streams have written, in the order of partition and sequence number."""
    ordered = spark.read.parquet(str(out)).orderBy("partition", "sequenceNumber")
    return [row.text for row in ordered.collect()]


def forget_last_commit(checkpoint: Path) -> None:
    """Change a checkpoint as if the query had died after its sink and before Spark's own commit."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)
