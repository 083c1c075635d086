"""The steps of the pipeline. Each is a function from rows to rows: no hub, no table, no clock.

The same functions run on a stream, on a batch and on the fixed rows of `tests/test_steps.py`.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from pyspark_eventhubs import parse_json

# All columns of an event.
EVENT = (
    "body", "partition", "offset", "sequenceNumber", "enqueuedTime", "publisher", "partitionKey", "properties",
    "systemProperties",
)  # fmt: skip
READING = "device STRING, time TIMESTAMP, temperature DOUBLE"


def bronze(events: DataFrame) -> DataFrame:
    """Every event with all of its columns. Nothing is filtered here, so that later steps can be computed again."""
    return events.select(*EVENT)


def parse(bronze: DataFrame) -> DataFrame:
    """The events with `value`, the reading, and `problem`, which is null for a valid reading."""
    return parse_json(bronze, READING, required=["device", "time", "temperature"])


def silver(parsed: DataFrame) -> DataFrame:
    """The valid readings. Partition and sequence number name the event from which a reading came."""
    return parsed.where("problem is null").select("value.*", "partition", "sequenceNumber")


def quarantine(parsed: DataFrame) -> DataFrame:
    """All other events, with all of their columns and with what is wrong."""
    return parsed.where("problem is not null").select(*EVENT, "problem")


def gold(silver: DataFrame, window: str, lateness: str) -> DataFrame:
    """The readings of each device, minute by minute of the time that the device gave.

    A stream emits a minute once, when it is closed: when a reading is later than its end by more than `lateness`.
    Readings that come after that are not counted.
    """
    return (
        silver.withWatermark("time", lateness)
        .groupBy(fn.window("time", window), "device")
        .agg(
            fn.count("*").alias("readings"),
            fn.avg("temperature").alias("mean"),
            fn.max("temperature").alias("highest"),
        )
        .selectExpr("window.start as minute", "device", "readings", "mean", "highest")
    )


def minute_events(gold: DataFrame) -> DataFrame:
    """Minutes as events of a hub: JSON, with the device as the key."""
    return gold.selectExpr("to_json(struct(*)) as body", "device as partitionKey")
