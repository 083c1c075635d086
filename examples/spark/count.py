"""Count the events of each partition with Spark: a batch read of the whole hub, without a jar."""

import json
import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").appName("count").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
connection, hub = os.environ["EVENTHUB_CONNECTION_STRING"], os.environ["EVENTHUB_NAME"]
conf = {
    "eventhubs.connectionString": f"{connection};EntityPath={hub}",
    "eventhubs.endpoint": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    "eventhubs.startingPosition": json.dumps({"offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True}),
}
events = spark.read.format("eventhubs").options(**conf).load()
for row in events.groupBy("partition").count().orderBy("partition").collect():
    print(f"partition {row['partition']}: {row['count']} events")
spark.stop()
