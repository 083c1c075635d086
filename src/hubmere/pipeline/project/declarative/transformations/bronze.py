"""Bronze: every event of the hub `telemetry`, unchanged. The address of the hub comes from the environment:
EVENTHUBS_CONNECTION_STRING, and EVENTHUBS_ENDPOINT and EVENTHUBS_CA_FILE if they are needed. `hubmere pipeline run`
sets them for the node on this machine.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession


@dp.table
def bronze() -> DataFrame:
    """One row for each event with all of its columns: nothing is filtered here, so that nothing is lost."""
    return (
        SparkSession.active()
        .readStream.format("eventhubs")
        .option("eventhubs.name", "telemetry")
        .option("eventhubs.startingPosition", "earliest")
        .load()
    )
