"""Runs the pipeline: three queries, each with its own checkpoint, so that each can be started again by itself.

    python job.py                 read all stored events, then end
    python job.py --continuous    run until it is stopped
    python job.py --reset silver  delete the tables of a step, then fill them again

The address of the hubs is in EVENTHUBS_CONNECTION_STRING, and in EVENTHUBS_ENDPOINT and EVENTHUBS_CA_FILE if they are
needed. `hubmere pipeline run` sets them for the node on this machine. Every table and the result hub have each event
once, also if this program is killed at any time.
"""

import argparse
import os
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_eventhubs import use_this_python
from telemetry import steps, tables

# Options of the source, and the variables that hold them.
VARIABLES = {
    "eventhubs.connectionString": "EVENTHUBS_CONNECTION_STRING",
    "eventhubs.endpoint": "EVENTHUBS_ENDPOINT",
    "eventhubs.caFile": "EVENTHUBS_CA_FILE",
}
# The steps, and the tables of each.
TABLES = {"bronze": ("bronze",), "silver": ("silver", "quarantine"), "gold": ("minutes",)}
SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # As many tasks after a shuffle as this machine needs; the default of 200 is for large clusters.
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of `pipeline.toml`."""

    source: str
    result: str
    data: Path
    capture: str = ""
    max_events: int = 100_000
    window: str = "1 minute"
    lateness: str = "2 minutes"
    consumer_groups: dict[str, str] = field(default_factory=dict)


def read_settings(file: Path) -> Settings:
    """The settings of a file; its folders are relative to it."""
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    return Settings(**values | {"data": file.resolve().parent / values["data"]})


def address() -> dict[str, str]:
    """Options with the address of the hubs, from the environment."""
    return {option: os.environ[name] for option, name in VARIABLES.items() if name in os.environ}


def create_session(data: Path) -> SparkSession:
    """Spark on this machine, or where `spark-submit` says."""
    data.mkdir(parents=True, exist_ok=True)
    use_this_python(str(data / "python-for-spark"))
    builder = SparkSession.builder.appName("telemetry").config("spark.sql.warehouse.dir", str(data / "warehouse"))
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Pipeline:
    """The queries of the pipeline."""

    def __init__(self, spark: SparkSession, settings: Settings, address: dict[str, str]) -> None:
        self._spark = spark
        self._settings = settings
        self._address = address

    def table(self, name: str) -> Path:
        """The folder of a table."""
        return self._settings.data / "tables" / name

    def reset(self, step: str) -> None:
        """Delete the tables of a step and its checkpoint; the next run fills them from the first event."""
        for folder in (*map(self.table, TABLES[step]), self._checkpoint(step)):
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, *, continuous: bool = False) -> None:
        """Start all queries and wait for their end; if one fails, all are stopped."""
        queries = [self._start(step, rows, write, continuous) for step, rows, write in self._steps()]
        try:
            if continuous:
                self._spark.streams.awaitAnyTermination()
            for query in queries:
                query.awaitTermination()
        finally:
            for query in queries:
                query.stop()

    def _steps(self) -> Sequence[tuple[str, DataFrame, Callable[[DataFrame, int], None]]]:
        parsed = {step: steps.parse(steps.bronze(self._events(step))) for step in ("silver", "gold")}
        minutes = steps.gold(steps.silver(parsed["gold"]), self._settings.window, self._settings.lateness)
        return (
            ("bronze", steps.bronze(self._events("bronze")), self._write_bronze),
            ("silver", parsed["silver"], self._write_silver),
            ("gold", minutes, self._write_gold),
        )

    def _events(self, step: str) -> DataFrame:
        settings = self._settings
        reader = self._spark.readStream.format("eventhubs").options(**self._address)
        reader = reader.option("eventhubs.name", settings.source).option("eventhubs.startingPosition", "earliest")
        reader = reader.option("maxEventsPerTrigger", str(settings.max_events))
        if settings.capture:
            reader = reader.option("eventhubs.capture", settings.capture)
        if group := settings.consumer_groups.get(step):
            reader = reader.option("eventhubs.consumerGroup", group)
        return reader.load()

    def _start(
        self, step: str, rows: DataFrame, write: Callable[[DataFrame, int], None], continuous: bool
    ) -> StreamingQuery:
        writer = rows.writeStream.queryName(step).foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self._checkpoint(step)))
        return (writer.trigger(processingTime="1 second") if continuous else writer.trigger(availableNow=True)).start()

    def _checkpoint(self, step: str) -> Path:
        return self._settings.data / "checkpoints" / step

    # --- called by Spark with each micro-batch ---

    def _write_bronze(self, batch: DataFrame, number: int) -> None:
        tables.append_once(self.table("bronze"), batch, query_id(batch), number)

    def _write_silver(self, batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            tables.append_once(self.table("silver"), steps.silver(batch), query_id(batch), number)
            tables.append_once(self.table("quarantine"), steps.quarantine(batch), query_id(batch), number)
        finally:
            batch.unpersist()

    def _write_gold(self, batch: DataFrame, number: int) -> None:
        # One order: the hub recognizes a repeat by the same rows in the same order.
        rows = batch.coalesce(1).sortWithinPartitions("minute", "device").persist()
        try:
            tables.append_once(self.table("minutes"), rows, query_id(batch), number)
            writer = steps.minute_events(rows).write.format("eventhubs").options(**self._address)
            writer = writer.option("eventhubs.name", self._settings.result)
            writer.option("writeId", f"{query_id(batch)}/{number}").mode("append").save()
        finally:
            rows.unpersist()


def query_id(batch: DataFrame) -> str:
    """The id of the query, which is in its checkpoint and so the same after a restart."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found is not None, "Spark sets it for every micro-batch"
    return found


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(description="Telemetry from a hub to Delta tables and to another hub.")
    parser.add_argument("--continuous", action="store_true", help="run until it is stopped")
    parser.add_argument("--reset", action="append", choices=TABLES, default=[], help="delete the tables of a step")
    given = parser.parse_args()
    settings = read_settings(Path(__file__).with_name("pipeline.toml"))
    pipeline = Pipeline(create_session(settings.data), settings, address())
    for step in given.reset:
        pipeline.reset(step)
    pipeline.run(continuous=given.continuous)


if __name__ == "__main__":
    main()
