"""Uses the source and the sink as a client of Spark Connect, and prints what it found.

python -m pipeline.connect_program ARGUMENTS, where ARGUMENTS is a file with the options of a hub, of another one, and a
folder. The program starts a Connect server in a JVM of its own and talks to it by gRPC. A process has either a session
of Connect or a classic one, so tests run this as a program.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from hubmere.pipeline.early_worker import write_script
from pipeline.queries import batch
from pipeline.sessions import SETTINGS

EVENTS = 100
PLAN_CACHE = "spark.connect.session.planCache.enabled"
STREAM_SECONDS = 2400


def connect(folder: Path) -> SparkSession:
    """A session of a server that this process starts."""
    os.environ["PYSPARK_PYTHON"] = str(write_script(folder / "python"))
    more = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.sql.artifact.isolation.enabled": "false"}
    builder = SparkSession.builder.remote(SETTINGS["spark.master"])
    for name, value in {**SETTINGS, **more}.items():
        if name != "spark.master":
            builder = builder.config(name, value)
    return builder.getOrCreate()


def write(rows: DataFrame, options: dict[str, str]) -> None:
    rows.write.format("eventhubs").options(**options).mode("append").save()


def count_again(spark: SparkSession, hub: dict[str, str]) -> dict[str, int]:
    """The events that two frames have, before and after more events are written."""
    old = batch(spark, hub)
    found = {"first": old.count()}
    write(spark.range(EVENTS, 2 * EVENTS).selectExpr("cast(id as string) as body"), hub)
    found |= {"same frame": old.count(), "loaded again": batch(spark, hub).count()}
    spark.conf.set(PLAN_CACHE, "false")
    found["same frame without the plan cache"] = old.count()
    return found


def copy(spark: SparkSession, hub: dict[str, str], other: dict[str, str], checkpoint: Path) -> None:
    """A stream from hub to hub, up to its present end."""
    rows = spark.readStream.format("eventhubs").options(**hub).load().selectExpr("body")
    writer = rows.writeStream.format("eventhubs").options(**other).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_SECONDS)


def main() -> None:
    given: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = Path(given["folder"])
    spark = connect(folder)
    found: dict[str, Any] = {"session": type(spark).__module__} | count_again(spark, given["hub"])
    copy(spark, given["hub"], given["other"], folder / "checkpoint")
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
