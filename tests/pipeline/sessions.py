"""A small local Spark session, for tests and for the programs that they start."""

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from hubmere.pipeline.early_worker import write_script

SETTINGS = {
    # A failed task is tried again, which `local[2]` alone does not do.
    "spark.master": "local[2,4]",
    "spark.app.name": "hubmere-tests",
    "spark.driver.memory": "768m",
    # Small, so that a result that grows with the data fails here and not at a user's 1 GiB.
    "spark.driver.maxResultSize": "16m",
    # Options for a short-lived JVM: fast start, and one garbage collector thread.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    # The machine may be busy.
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.network.timeout": "600s",
}


def a_session(warehouse: str, more: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session, which finds the source by itself."""
    # The machine may be busy with other tests.
    os.environ["PYSPARK_PYTHON"] = str(write_script(Path(warehouse) / "python"))
    builder = SparkSession.builder
    for name, value in {**SETTINGS, **(more or {})}.items():
        builder = builder.config(name, value)
    return builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()
