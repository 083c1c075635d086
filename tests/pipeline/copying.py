"""A query that copies one hub to another, for tests that kill it; also as a program.

python -m pipeline.copying ARGUMENTS, or spark-submit copying.py ARGUMENTS --submitted, where ARGUMENTS is a file with
{"source": {...}, "target": {...}, "checkpoint": "..."}
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.sessions import a_session

SUBMITTED = "--submitted"


def start_copy(spark: SparkSession, source: dict[str, str], target: dict[str, str], checkpoint: Path) -> StreamingQuery:
    """Copy all stored events to the partitions with the same numbers, then end."""
    return (
        spark.readStream.format("eventhubs")
        .options(**source)
        .load()
        .select("body", "partition", "properties")
        .writeStream.format("eventhubs")
        .options(**target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def unfinished(checkpoint: Path) -> int | None:
    """The micro-batch that Spark has logged but not committed, or None."""
    logged, committed = (_numbers(checkpoint / name) for name in ("offsets", "commits"))
    return max(logged - committed, default=None)


def _numbers(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("[0-9]*")} if folder.is_dir() else set()


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_bytes())
    checkpoint = Path(given["checkpoint"])
    is_submitted = SUBMITTED in sys.argv
    spark = SparkSession.builder.getOrCreate() if is_submitted else a_session(str(checkpoint.with_name("warehouse")))
    start_copy(spark, given["source"], given["target"], checkpoint).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
