"""The rate of the Spark source, compared with the ceiling of Spark, Parquet and Spark's own Kafka source.

    python -m bench.spark [--events 1000000] [--rounds 3]

One node on this machine's disk, `local[2]`, a sink that throws rows away, all nine columns. `ceiling` is a source that
yields Arrow batches which were made before: what the way from Python into Spark costs without any reading. `parquet` is
Spark's own reader on the same rows, `kafka` its Kafka source on the first events of the same hub, where
`make kafka-jars` could fetch it. `decode` is the decoder alone, on one core.

Every way reads all events, and next to nothing in a job that has one task: the first gives the rate as a user sees it,
the second what it costs to plan and to start anything; `net` is the rate without that. Rounds are interleaved and the
best is kept; the first warms up, since what Spark's JVM has not compiled yet takes several times as long. Processor
time is that of Spark, of its Python workers and of the node, and holds better on a machine that others use too. Read
the ratios.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from hubmere.client.connection import Account, Client, KafkaAddress
from hubmere.client.consumer import Fetched, HubReader
from hubmere.client.producer import HubProducer, producer_id_of
from hubmere.pipeline.decode import decode
from hubmere.pipeline.ranges import settle
from hubmere.pipeline.source import COLUMNS
from hubmere.records.records import Record, encode_batch
from hubmere.settings import HubSetting
from hubmere.testing import Node
from hubmere.translate.columns import record_of

HUB = "events"
PARTITIONS = 4
EVENTS_PER_BATCH = 150
POOL_BYTES = 8 * 1024 * 1024
SMALL_TRIGGER_EVENTS = 400
SMALL_TRIGGERS = 20
TASKS = 8
# Spark's Kafka source takes long enough with these.
KAFKA_EVENTS = 200_000
IDLE_TRIGGERS = 20
TRIGGER_SECONDS = 240
# Spark's Kafka source, which is not among the jars of PySpark.
KAFKA_JARS = Path(__file__).parents[1] / ".cache" / "kafka" / "spark"
_TICKS = os.sysconf("SC_CLK_TCK")
START = json.dumps({"offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True})
SECOND = json.dumps({"offset": None, "seqNo": 1, "enqueuedTime": None, "isInclusive": False})
LATEST = json.dumps({"offset": "@latest", "seqNo": -1, "enqueuedTime": None, "isInclusive": False})


@dataclass(frozen=True)
class Shape:
    """A kind of event."""

    name: str
    body_bytes: int
    has_properties: bool

    def record(self, index: int, pool: bytes, batch: int) -> Record:
        """One event of a batch. Bodies are slices of one text; Parquet stores repeated content within a block once."""
        at = (batch * EVENTS_PER_BATCH + index) * self.body_bytes
        body = pool[at : at + self.body_bytes]
        if not self.has_properties:
            return record_of(index, body, None, ())
        return record_of(index, body, f"device-{index % 50}", (("color", "red"), ("n", str(index))))


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
        return [InputPartition(number) for number in range(min(TASKS, self._events))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # As the source does: without it the ceiling would be a wait for the garbage collector.
        settle()
        batch = next(iter(pa.ipc.open_stream(Path(self._path).read_bytes())))
        left = self._events // min(TASKS, self._events)
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
    """Publish a number of events, in batches as clients send them; bodies repeat after the pool of text."""
    pool = readings()
    made = [
        encode_batch([shape.record(index, pool, number) for index in range(EVENTS_PER_BATCH)])
        for number in range(min(events // EVENTS_PER_BATCH, POOL_BYTES // shape.body_bytes // EVENTS_PER_BATCH))
    ]
    producer = HubProducer(client, hub, producer_id_of([hub.encode()]))
    for number in range(events // EVENTS_PER_BATCH):
        producer.send(number % PARTITIONS, bytearray(made[number % len(made)]))
    producer.flush()


class Cost(NamedTuple):
    """What a piece of work took, in seconds."""

    elapsed: float
    processor: float


def processor_ticks() -> dict[int, int]:
    """What this process and each one below it have used so far: Spark, its workers, the node."""
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
    return {pid: used[pid] for pid in ours if pid in used}


def measured(work: Callable[[], object]) -> Cost:
    """Run a function; returns its time and CPU time."""
    before, began = processor_ticks(), time.perf_counter()
    work()
    elapsed = time.perf_counter() - began
    # Spark ends workers that had nothing to do for a minute: what those used before must not be taken off.
    ticks = sum(used - before.get(pid, 0) for pid, used in processor_ticks().items())
    return Cost(elapsed, ticks / _TICKS)


def decode_all(fetched: list[tuple[int, Fetched]]) -> None:
    """One core, no Spark, no network."""
    for partition, each in fetched:
        for _ in decode(each, partition, 0, 1 << 62):
            pass


def drain(rows: DataFrame) -> None:
    """Read everything and throw it away."""
    rows.write.format("noop").mode("overwrite").save()


@dataclass(frozen=True)
class Way:
    """One way to read: so many events, and next to nothing."""

    events: int
    everything: Callable[[], object]
    little: Callable[[], object] = lambda: None


class Found(NamedTuple):
    """What a way has cost at best, for each event and for a job that has hardly any."""

    seconds: float
    net_seconds: float
    processor: float
    fixed_seconds: float


def best(rounds: int, ways: dict[str, Way]) -> dict[str, Found]:
    """The least of each, interleaved; the first round warms up."""
    found: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            found[name].append((measured(way.everything), measured(way.little)))
    return {name: the_least(costs[1:], ways[name].events) for name, costs in found.items()}


def the_least(costs: list[tuple[Cost, Cost]], events: int) -> Found:
    """The least of each kind of cost."""
    elapsed = min(everything.elapsed for everything, _ in costs)
    fixed = min(little.elapsed for _, little in costs)
    processor = min(everything.processor for everything, _ in costs)
    return Found(elapsed / events, (elapsed - fixed) / events, processor / events, fixed)


def kafka_rows(spark: SparkSession, node: Node, events: int) -> DataFrame:
    """The first events of the same hub through Spark's Kafka source."""
    login = f'username="$ConnectionString" password="{node.connection_string}";'
    options = {
        "kafka.bootstrap.servers": node.kafka,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {login}",
        "subscribe": HUB,
        "startingOffsets": "earliest",
        "endingOffsets": json.dumps({HUB: {str(number): events // PARTITIONS for number in range(PARTITIONS)}}),
        "includeHeaders": "true",
    }
    return spark.read.format("kafka").options(**options).load()


def measure(spark: SparkSession, client: Client, node: Node, conf: dict[str, str], rounds: int, folder: Path) -> None:
    """One kind of event, all ways."""
    reader = HubReader(client, HUB)
    bounds = reader.bounds(range(PARTITIONS))
    events = sum(end - first for first, end in bounds.values())
    fetched = [(index, each) for index, (first, end) in bounds.items() for each in reader.read_range(index, first, end)]
    log_bytes = sum(len(each.data) for _, each in fetched)
    ways = {"decode, one core": Way(events, lambda: decode_all(fetched))}
    ways |= ways_of_spark(spark, conf, next(decode(fetched[0][1], 0, 0, 1 << 62)), events, folder)
    if any(KAFKA_JARS.glob("*.jar")):
        some = min(events, KAFKA_EVENTS)
        ways["kafka"] = Way(some, lambda: drain(kafka_rows(spark, node, some)))
    show(best(rounds, ways), log_bytes / events)


def ways_of_spark(
    spark: SparkSession, conf: dict[str, str], prebuilt: pa.RecordBatch, events: int, folder: Path
) -> dict[str, Way]:
    """The source, the ceiling with a prepared batch, and Parquet with the rows of the source."""
    hub = spark.read.format("eventhubs").options(**conf)
    source, few = hub.load(), hub.option("eventhubs.endingPosition", SECOND).load()
    stream, parquet, little = (str(folder / name) for name in ("batch.arrow", "all.parquet", "few.parquet"))
    with pa.OSFile(stream, "wb") as sink, pa.ipc.new_stream(sink, prebuilt.schema) as writer:
        writer.write_batch(prebuilt)
    source.write.parquet(parquet)
    few.coalesce(1).write.parquet(little)
    ceiling = spark.read.format("ceiling").option("path", stream)
    most, one = ceiling.option("events", str(events)).load(), ceiling.option("events", "1").load()
    return {
        "source": Way(events, lambda: drain(source), lambda: drain(few)),
        "ceiling": Way(events, lambda: drain(most), lambda: drain(one)),
        "parquet": Way(events, lambda: drain(spark.read.parquet(parquet)), lambda: drain(spark.read.parquet(little))),
    }


def show(found: dict[str, Found], event_bytes: float) -> None:
    """A line for each: the rate, the ratio to the others, gross and net, the CPU time, the fixed cost."""
    for name, each in found.items():
        ratios = "  ".join(
            f"{found[other].seconds / each.seconds:5.2f} ({found[other].net_seconds / each.net_seconds:4.2f} net, "
            f"{found[other].processor / each.processor:4.2f} processor) of {other}"
            for other in ("ceiling", "parquet")
        )
        print(
            f"  {name:<18} {1 / each.seconds / 1e6:5.2f} M rows/s {event_bytes / each.seconds / 1e6:6.0f} MB/s "
            f"{each.processor * 1e6:6.2f} µs/row, fixed {each.fixed_seconds * 1e3:4.0f} ms; {ratios}",
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


@contextmanager
def a_filled_node(shape: Shape, events: int) -> Iterator[tuple[Node, Client]]:
    """A node with a hub full of events, and a client of it."""
    with Node(hubs=[HubSetting(name=HUB, partition_count=PARTITIONS)]) as node:
        host, _, port = node.kafka.rpartition(":")
        address = KafkaAddress(host=host, port=int(port), is_secure=False)
        account = Account(address=address, connection_string=node.connection_string, client_id="hubmere-bench")
        with Client(account) as client:
            fill(client, HUB, shape, events)
            yield node, client


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
        # A trigger without events is reported at once.
        "spark.sql.streaming.noDataProgressEventInterval": "0",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(CeilingSource)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    spark = session()
    for shape in SHAPES:
        events = arguments.events if shape.body_bytes < 1000 else arguments.events // 4
        # A node for each, so that the disk holds one shape at a time.
        with a_filled_node(shape, events) as (node, client), tempfile.TemporaryDirectory() as folder:
            conf = {
                "eventhubs.connectionString": f"{node.connection_string};EntityPath={HUB}",
                "eventhubs.endpoint": node.kafka,
                "eventhubs.tls": "false",
                "eventhubs.startingPosition": START,
            }
            print(shape.name, flush=True)
            measure(spark, client, node, conf, arguments.rounds, Path(folder))
            if shape is SHAPES[-1]:
                measure_triggers(spark, conf, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
