"""Back to a hub: every closed minute becomes an event of the hub `telemetry-minutes`, with the device as its key."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

dp.create_sink("telemetry_minutes", "eventhubs", {"eventhubs.name": "telemetry-minutes"})


@dp.append_flow(target="telemetry_minutes")
def publish_minutes() -> DataFrame:
    """The rows of `minutes` as JSON."""
    return (
        SparkSession.active()
        .readStream.table("minutes")
        .selectExpr("to_json(struct(device, minute, readings, mean, highest)) as body", "device as partitionKey")
    )
