"""Runs every function of the pipeline with all logs on; the output is searched for secrets.

python -m pipeline.verbose_program ARGUMENTS, where ARGUMENTS is a file with the options of a hub, of another one and of
one with a wrong key, the address of a plan server with its token, and a folder. Failures are expected: their full texts
are printed.
"""

import json
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from hubmere.pipeline.capture.job import Application
from hubmere.pipeline.capture.node_client import NodeClient
from pipeline.copying import start_copy
from pipeline.sessions import a_session

STREAM_SECONDS = 2400
Options = dict[str, str]


def verbose_session(folder: Path) -> SparkSession:
    """Spark with its log at INFO and its event log."""
    events = folder / "events"
    events.mkdir()
    more = {
        # A failure is not retried.
        "spark.master": "local[2]",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    spark = a_session(str(folder / "warehouse"), more)
    # A filter suppresses INFO for Python programs, which `spark.log.level` does not change.
    spark.sparkContext.setLogLevel("INFO")
    return spark


def read(spark: SparkSession, options: Options) -> DataFrame:
    rows = spark.read.format("eventhubs").options(**options).load()
    for mode in ("extended", "formatted"):
        rows.explain(mode)
    rows.show(truncate=False)
    return rows


def read_by_sql(spark: SparkSession, options: Options) -> None:
    listed = ", ".join(f"`{name}` {json.dumps(value)}" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW hub USING eventhubs OPTIONS ({listed})")
    spark.sql("EXPLAIN EXTENDED SELECT count(*) FROM hub").show(truncate=False)
    spark.sql("DESCRIBE EXTENDED hub").show(100, truncate=False)
    spark.sql("SELECT count(*) FROM hub").show()


def write(spark: SparkSession, options: Options) -> None:
    spark.range(3).selectExpr("cast(id as string) as body").write.format("eventhubs").options(**options).mode(
        "append"
    ).save()


def copy(spark: SparkSession, source: Options, target: Options, checkpoint: Path) -> None:
    query = start_copy(spark, source, target, checkpoint)
    query.awaitTermination(STREAM_SECONDS)
    query.explain(True)
    print(query.status, query.recentProgress)


def failing(name: str, action: Callable[[], object]) -> None:
    """Run an action that must fail, and print its whole error."""
    try:
        action()
    except Exception as error:
        print(f"failed as it should: {name}: {error}")
        traceback.print_exception(error)
    else:
        raise AssertionError(f"{name} does not fail")


def main() -> None:
    # As in the job; at DEBUG, libraries log whole addresses (urllib3) and calls (py4j).
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logging.getLogger("hubmere").setLevel(logging.DEBUG)
    given = json.loads(Path(sys.argv[1]).read_bytes())
    folder = Path(given["folder"])
    source, target, wrong, malformed = (given[name] for name in ("source", "target", "wrong", "malformed"))
    spark = verbose_session(folder)

    read(spark, source)
    read_by_sql(spark, source)
    write(spark, target)
    copy(spark, source, target, folder / "copy")
    failing("read", lambda: read(spark, wrong))
    failing("write", lambda: write(spark, wrong))
    failing("stream", lambda: copy(spark, wrong, target, folder / "failing source"))
    failing("sink", lambda: copy(spark, source, wrong, folder / "failing sink"))
    failing("options", lambda: read(spark, malformed))

    client = NodeClient(given["plans"], given["token"], None)
    code = Application(spark.sparkContext, client, str(folder / "checkpoints"), once=True).run()
    print(f"capture ended with {code}")
    spark.stop()


if __name__ == "__main__":
    main()
