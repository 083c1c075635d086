"""What the Spark source reads per second, beside what Spark can take at most and beside Parquet.

    python -m bench.spark [--events 400000] [--rounds 3]

One node on this machine's disk, `local[2]`, a sink that throws rows away, all nine columns. `ceiling` is a source that
yields Arrow batches which were made before: what the way from Python into Spark costs without any reading. `parquet` is
Spark's own reader on the same rows. `decode` is the decoder alone, on one core. Rounds are interleaved and the best is
kept: read the ratios.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from hubmere.client.connection import Account, Client, Place
from hubmere.client.consumer import Fetched, HubReader
from hubmere.client.producer import HubProducer, producer_id_of
from hubmere.pipeline.decode import decode
from hubmere.pipeline.source import COLUMNS
from hubmere.settings import HubSetting
from hubmere.testing import Node
from hubmere.translate.columns import record_of
from hubmere.wire.kafka.records import encode_batch

PARTITIONS = 4
EVENTS_PER_BATCH = 150
POOL_BYTES = 1024 * 1024
SMALL_TRIGGER_EVENTS = 400
SMALL_TRIGGERS = 20
TASKS = 8
START = json.dumps({"offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True})


@dataclass(frozen=True)
class Shape:
    """A kind of event."""

    name: str
    body_bytes: int
    has_properties: bool


SHAPES = (
    Shape("100 B, body only", 100, False),
    Shape("100 B, key and 2 properties", 100, True),
    Shape("1 KB, body only", 1024, False),
    Shape("1 KB, key and 2 properties", 1024, True),
)


class CeilingSource(DataSource):
    """Yields one prebuilt batch again and again."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return CeilingReader(self.options["path"], int(self.options["events"]))


class CeilingReader(DataSourceReader):
    def __init__(self, path: str, events: int) -> None:
        self._path = path
        self._events = events

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = next(iter(pa.ipc.open_stream(Path(self._path).read_bytes())))
        left = self._events // TASKS
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


def fill(client: Client, hub: str, shape: Shape, events: int) -> None:
    """Publish so many events, in batches as clients send them."""
    # Readings that differ: Parquet would keep equal ones once.
    pool = Random(7).randbytes(POOL_BYTES).hex().encode()
    producer = HubProducer(client, hub, producer_id_of([hub.encode()]))
    for number in range(events // EVENTS_PER_BATCH):
        first = number * EVENTS_PER_BATCH
        bodies = [
            pool[at : at + shape.body_bytes] for at in range(first % POOL_BYTES, first % POOL_BYTES + EVENTS_PER_BATCH)
        ]
        records = [
            record_of(index, body, f"device-{index % 50}", (("color", "red"), ("n", str(index))))
            if shape.has_properties
            else record_of(index, body, None, ())
            for index, body in enumerate(bodies)
        ]
        producer.send(number % PARTITIONS, encode_batch(records))
    producer.flush()


def decode_seconds(fetched: list[tuple[int, Fetched]]) -> float:
    """One core, no Spark, no network."""
    began = time.perf_counter()
    for partition, each in fetched:
        for _ in decode(each, partition, 0, 1 << 62):
            pass
    return time.perf_counter() - began


def drain_seconds(rows: DataFrame) -> float:
    """Read everything and throw it away."""
    began = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def best(rounds: int, works: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The least time of each, interleaved; the first round warms up."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            found[name].append(work())
    return {name: min(times[1:]) for name, times in found.items()}


def measure(spark: SparkSession, client: Client, conf: dict[str, str], hub: str, rounds: int, folder: Path) -> None:
    """One kind of event, all ways."""
    reader = HubReader(client, hub)
    bounds = reader.bounds(range(PARTITIONS))
    events = sum(end - first for first, end in bounds.values())
    fetched = [(index, each) for index, (first, end) in bounds.items() for each in reader.read_range(index, first, end)]
    log_bytes = sum(len(each.data) for _, each in fetched)
    prebuilt = next(decode(fetched[0][1], 0, 0, 1 << 62))
    stream = folder / f"{hub}.arrow"
    with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, prebuilt.schema) as writer:
        writer.write_batch(prebuilt)
    source = spark.read.format("eventhubs").options(**conf).load()
    parquet = str(folder / f"{hub}.parquet")
    source.write.parquet(parquet)
    ceiling = spark.read.format("ceiling").option("path", str(stream)).option("events", str(events)).load()
    times = best(
        rounds,
        {
            "decode, one core": lambda: decode_seconds(fetched),
            "source": lambda: drain_seconds(source),
            "ceiling": lambda: drain_seconds(ceiling),
            "parquet": lambda: drain_seconds(spark.read.parquet(parquet)),
        },
    )
    for name, seconds in times.items():
        ratio = times["ceiling"] / seconds
        print(
            f"  {name:<18} {events / seconds / 1e6:6.2f} M rows/s {log_bytes / seconds / 1e6:8.0f} MB/s"
            f"   {ratio:5.2f} of the ceiling   {times['parquet'] / seconds:5.2f} of Parquet"
        )


def small_triggers(spark: SparkSession, conf: dict[str, str], folder: Path) -> None:
    """What a micro-batch of few events costs."""
    options = conf | {"eventhubs.maxEventsPerTrigger": str(SMALL_TRIGGER_EVENTS)}
    query = (
        spark.readStream.format("eventhubs")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    deadline = time.monotonic() + 120
    while len(query.recentProgress) < SMALL_TRIGGERS and time.monotonic() < deadline:
        time.sleep(0.2)
    query.stop()
    warm = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress][SMALL_TRIGGERS // 2 :]
    print(f"  a micro-batch of {SMALL_TRIGGER_EVENTS} events: {statistics.median(warm):.0f} ms")


def session() -> SparkSession:
    """Spark on two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").appName("hubmere-bench")
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(CeilingSource)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    hubs = [HubSetting(name=f"shape-{number}", partition_count=PARTITIONS) for number in range(len(SHAPES))]
    with Node(hubs=hubs) as node, tempfile.TemporaryDirectory() as folder:
        host, _, port = node.kafka.rpartition(":")
        place = Place(host=host, port=int(port), is_secure=False)
        account = Account(place=place, connection_string=node.connection_string, client_id="hubmere-bench")
        spark = session()
        with Client(account) as client:
            for hub, shape in zip(hubs, SHAPES, strict=True):
                conf = {
                    "eventhubs.connectionString": f"{node.connection_string};EntityPath={hub.name}",
                    "eventhubs.endpoint": node.kafka,
                    "eventhubs.tls": "false",
                    "eventhubs.startingPosition": START,
                }
                events = arguments.events if shape.body_bytes < 1000 else arguments.events // 2
                fill(client, hub.name, shape, events)
                print(shape.name)
                measure(spark, client, conf, hub.name, arguments.rounds, Path(folder))
            small_triggers(spark, conf, Path(folder))
        spark.stop()


if __name__ == "__main__":
    main()
