"""Bronze: every event of the hub `telemetry`, unchanged. The address of the hub comes from the environment:
EVENTHUBS_CONNECTION_STRING, and EVENTHUBS_ENDPOINT and EVENTHUBS_CA_FILE if they are needed. `hubmere pipeline run`
sets them for the node on this machine.
"""

import json

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

BEGINNING = json.dumps({"offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True})


@dp.table
def bronze() -> DataFrame:
    """One row for each event: nothing is filtered here, so that nothing is lost."""
    return (
        SparkSession.active()
        .readStream.format("eventhubs")
        .option("eventhubs.name", "telemetry")
        .option("eventhubs.startingPosition", BEGINNING)
        .load()
        .selectExpr("cast(body as string) as body", "partition", "sequenceNumber", "enqueuedTime", "properties")
    )
