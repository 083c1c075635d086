"""What the Spark source reads per second, beside what Spark can take at most, Parquet and Spark's own Kafka source.

    python -m bench.spark [--events 400000] [--rounds 3]

One node on this machine's disk, `local[2]`, a sink that throws rows away, all nine columns. `ceiling` is a source that
yields Arrow batches which were made before: what the way from Python into Spark costs without any reading. `parquet` is
Spark's own reader on the same rows, `kafka` its Kafka source on the same hub, where `make kafka-jars` could fetch it.
`decode` is the decoder alone, on one core. Rounds are interleaved and the best is kept. Processor time is that of
Spark, of its Python workers and of the node, and holds on a machine that others use too. Read the ratios.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

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
POOL_BYTES = 8 * 1024 * 1024
SMALL_TRIGGER_EVENTS = 400
SMALL_TRIGGERS = 20
TASKS = 8
IDLE_TRIGGERS = 20
TRIGGER_SECONDS = 240
# Spark's Kafka source, which is not among the jars of PySpark.
KAFKA_JARS = Path(__file__).parents[1] / ".cache" / "kafka" / "spark"
_TICKS = os.sysconf("SC_CLK_TCK")
START = json.dumps({"offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True})
LATEST = json.dumps({"offset": "@latest", "seqNo": -1, "enqueuedTime": None, "isInclusive": False})


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


def readings() -> bytes:
    """Text as devices send it: names that come again and numbers that do not, so that it can be shrunk by half."""
    chance = Random(7)
    text = bytearray()
    while len(text) < POOL_BYTES:
        values = (chance.randrange(10**6), chance.random() * 40, chance.random() * 100, chance.randbytes(8).hex())
        text += b'{"device":%d,"temperature":%.6f,"humidity":%.6f,"trace":"%s"}' % (*values[:3], values[3].encode())
    return bytes(text[:POOL_BYTES])


def fill(client: Client, hub: str, shape: Shape, events: int) -> None:
    """Publish so many events, in batches as clients send them."""
    pool = readings()
    producer = HubProducer(client, hub, producer_id_of([hub.encode()]))
    for number in range(events // EVENTS_PER_BATCH):
        first = number * EVENTS_PER_BATCH
        # Side by side, not overlapping: what is read twice within one of its blocks, Parquet keeps once.
        places = [
            (first + index) * shape.body_bytes % (POOL_BYTES - shape.body_bytes) for index in range(EVENTS_PER_BATCH)
        ]
        records = [
            record_of(
                index, pool[at : at + shape.body_bytes], f"device-{index % 50}", (("color", "red"), ("n", str(index)))
            )
            if shape.has_properties
            else record_of(index, pool[at : at + shape.body_bytes], None, ())
            for index, at in enumerate(places)
        ]
        producer.send(number % PARTITIONS, encode_batch(records))
    producer.flush()


class Cost(NamedTuple):
    """What a piece of work took, in seconds."""

    elapsed: float
    processor: float


def processor_seconds() -> float:
    """What this process and all below it have used: Spark, its workers, the node; those that ended included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[pid] for pid in ours if pid in used) / _TICKS


def measured(work: Callable[[], object]) -> Cost:
    """Do something and say what it took."""
    used, began = processor_seconds(), time.perf_counter()
    work()
    return Cost(time.perf_counter() - began, processor_seconds() - used)


def decode_all(fetched: list[tuple[int, Fetched]]) -> None:
    """One core, no Spark, no network."""
    for partition, each in fetched:
        for _ in decode(each, partition, 0, 1 << 62):
            pass


def drain(rows: DataFrame) -> None:
    """Read everything and throw it away."""
    rows.write.format("noop").mode("overwrite").save()


def best(rounds: int, works: dict[str, Callable[[], object]]) -> dict[str, Cost]:
    """The least of each, interleaved; the first round warms up."""
    found: dict[str, list[Cost]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            found[name].append(measured(work))
    return {
        name: Cost(min(cost.elapsed for cost in costs[1:]), min(cost.processor for cost in costs[1:]))
        for name, costs in found.items()
    }


def kafka_rows(spark: SparkSession, node: Node, hub: str) -> DataFrame:
    """The same hub through Spark's Kafka source."""
    login = f'username="$ConnectionString" password="{node.connection_string}";'
    options = {
        "kafka.bootstrap.servers": node.kafka,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {login}",
        "subscribe": hub,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    return spark.read.format("kafka").options(**options).load()


def measure(
    spark: SparkSession, client: Client, node: Node, conf: dict[str, str], hub: str, rounds: int, folder: Path
) -> None:
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
    works: dict[str, Callable[[], object]] = {
        "decode, one core": lambda: decode_all(fetched),
        "source": lambda: drain(source),
        "ceiling": lambda: drain(ceiling),
        "parquet": lambda: drain(spark.read.parquet(parquet)),
    }
    if any(KAFKA_JARS.glob("*.jar")):
        works["kafka"] = lambda: drain(kafka_rows(spark, node, hub))
    costs = best(rounds, works)
    for name, cost in costs.items():
        ratios = (f"{costs[other].elapsed / cost.elapsed:5.2f} of {other}" for other in ("ceiling", "parquet"))
        processor = (f"{costs[other].processor / cost.processor:5.2f}" for other in ("ceiling", "parquet"))
        print(
            f"  {name:<18} {events / cost.elapsed / 1e6:6.2f} M rows/s {log_bytes / cost.elapsed / 1e6:8.0f} MB/s "
            f"{'  '.join(ratios)}   {cost.processor / events * 1e6:6.2f} µs/row: {' '.join(processor)}",
            flush=True,
        )


def triggers(rows: DataFrame, checkpoint: Path, count: int, *, with_rows: bool) -> float:
    """The median time in ms of a query's triggers, those that had rows or those that had none."""
    query = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    deadline = time.monotonic() + TRIGGER_SECONDS
    found: dict[str, float] = {}
    while len(found) < count and time.monotonic() < deadline:
        found |= {
            progress["timestamp"]: progress["durationMs"]["triggerExecution"]
            for progress in query.recentProgress
            if bool(progress["numInputRows"]) == with_rows
        }
        time.sleep(0.2)
    query.stop()
    return statistics.median(list(found.values())[len(found) // 2 :])


def measure_triggers(spark: SparkSession, conf: dict[str, str], folder: Path) -> None:
    """What a micro-batch costs: of few events, of as many rows made by Spark itself, and of nothing."""
    hub = spark.readStream.format("eventhubs")
    small = hub.options(**conf).option("eventhubs.maxEventsPerTrigger", str(SMALL_TRIGGER_EVENTS)).load()
    own = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(SMALL_TRIGGER_EVENTS)).load()
    idle = spark.readStream.format("eventhubs").options(**conf | {"eventhubs.startingPosition": LATEST}).load()
    print(
        f"  a micro-batch of {SMALL_TRIGGER_EVENTS} events: "
        f"{triggers(small, folder / 'small', SMALL_TRIGGERS, with_rows=True):.0f} ms; "
        f"of as many rows that Spark makes: {triggers(own, folder / 'own', SMALL_TRIGGERS, with_rows=True):.0f} ms; "
        f"a trigger without events: {triggers(idle, folder / 'idle', IDLE_TRIGGERS, with_rows=False):.0f} ms"
    )


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
        "spark.jars": ",".join(map(str, sorted(KAFKA_JARS.glob("*.jar")))),
        # A trigger without events tells about itself at once.
        "spark.sql.streaming.noDataProgressEventInterval": "0",
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
                print(shape.name, flush=True)
                measure(spark, client, node, conf, hub.name, arguments.rounds, Path(folder))
            measure_triggers(spark, conf, Path(folder))
        spark.stop()


if __name__ == "__main__":
    main()
