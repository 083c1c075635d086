"""The rates of the Spark source and sink, compared with the ceiling of Spark, Parquet and Spark's own Kafka source.

    python -m bench.spark [--events 1000000] [--rounds 3] [--only "1 KB"]

The node uses this machine's disk; Spark runs as `local[2]`, reads all nine columns and discards the rows. `ceiling` is
a source that yields prepared Arrow batches: the cost of the transfer from Python to Spark without any reading.
`parquet` is Spark's own reader of the same rows, `kafka` its Kafka source on the first events of the same hub, if `make
kafka-jars` has installed it. `source` reads the node's files, `source, fetching` does not (option `localSegments`).
`decode` is the decoder alone, on one core. `sink` writes the same rows, which Spark keeps in memory, to another hub,
and waits until they are on disk. `sink, discarding` is a sink in Python that takes the same rows and discards them:
Spark's own share of the sink's time. `sink, to a file` writes their bodies to a file of each task and waits until they
are on disk, without records, checksums and a node: the least that any sink can do. All are repeated with 1,000 rows in
an Arrow batch in place of Spark's default of 10,000.

Every method reads all events, and then one event in a job with one task: the first job shows the rate as a user sees
it, the second the fixed cost of planning and starting a job; `net` is the rate without the fixed cost. Rounds are
interleaved; the best one is shown, and the ratios are the median of the ratios of each round. The first round is a
warm-up, since code that Spark's JVM has not compiled yet takes several times as long. CPU time includes Spark, its
Python workers and the node, and depends less on other load. Compare the ratios.
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
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from hubmere.client.connection import Account, Client, KafkaAddress
from hubmere.client.consumer import Fetched, HubReader
from hubmere.client.producer import HubProducer, producer_id_of
from hubmere.pipeline.decode import decode
from hubmere.pipeline.encode import Row, new_segment
from hubmere.pipeline.ranges import settle
from hubmere.pipeline.source import COLUMNS
from hubmere.pipeline.worker_files import enlarge_output
from hubmere.settings import HubSetting
from hubmere.testing import Node

HUB = "events"
RESULT_HUB = "results"
PARTITIONS = 4
EVENTS_PER_BATCH = 150
POOL_BYTES = 8 * 1024 * 1024
SMALL_TRIGGER_EVENTS = 400
SMALL_TRIGGERS = 20
TASKS = 8
# Spark's Kafka source reads only so many events, because it is slower.
KAFKA_EVENTS = 200_000
IDLE_TRIGGERS = 20
ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
SMALL_BATCH_ROWS = 1000
TRIGGER_SECONDS = 240
# The methods that all others are compared with.
COMPARED = ("source", "source, fetching", "ceiling", "parquet", "sink, to a file", "sink, discarding")
# Spark's Kafka source; PySpark does not contain its jars.
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

    def batch(self, pool: bytes, number: int) -> bytearray:
        """A batch of events. Bodies are slices of one text; Parquet stores repeated content within a block once."""
        segment = new_segment(0)
        for index in range(EVENTS_PER_BATCH):
            at = (number * EVENTS_PER_BATCH + index) * self.body_bytes
            segment.add(0, self._row(index, pool[at : at + self.body_bytes]))
        ((_, batch),) = segment.close_all()
        return batch

    def _row(self, index: int, body: bytes) -> Row:
        if not self.has_properties:
            return Row(body, None, None, ())
        return Row(body, f"device-{index % 50}", None, (("color", "red"), ("n", str(index))))


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
        # The source does the same: without it the garbage collector would take most of the time.
        settle()
        enlarge_output()
        batch = next(iter(pa.ipc.open_stream(Path(self._path).read_bytes())))
        left = self._events // min(TASKS, self._events)
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


class DiscardingSink(DataSource):
    """Takes rows as Arrow batches and discards them."""

    @classmethod
    def name(cls) -> str:
        return "discarding"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return DiscardingWriter()


class DiscardingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        for _ in iterator:
            pass
        return WriterCommitMessage()


class FilingSink(DataSource):
    """Takes rows as Arrow batches, and writes their bodies to files that are deleted at once."""

    @classmethod
    def name(cls) -> str:
        return "filing"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return FilingWriter(self.options["path"])


class FilingWriter(DataSourceArrowWriter):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            for batch in iterator:
                # Validity, offsets, bytes.
                file.write(batch.column("body").buffers()[2])
            os.fdatasync(file.fileno())
        return WriterCommitMessage()


def readings() -> bytes:
    """Text as devices send it: repeated names and different numbers, which compress to about half."""
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
        shape.batch(pool, number)
        for number in range(min(events // EVENTS_PER_BATCH, POOL_BYTES // shape.body_bytes // EVENTS_PER_BATCH))
    ]
    producer = HubProducer(client, hub, producer_id_of([hub.encode()]))
    for number in range(events // EVENTS_PER_BATCH):
        producer.send(number % PARTITIONS, bytearray(made[number % len(made)]))
    producer.flush()


class Cost(NamedTuple):
    """Elapsed time and CPU time of a piece of work, in seconds."""

    elapsed: float
    processor: float


def processor_ticks() -> dict[int, int]:
    """CPU time so far of this process and its descendants: Spark, its workers and the node."""
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
    # Spark ends workers that were idle for a minute: the CPU time of ended workers must not be subtracted.
    ticks = sum(used - before.get(pid, 0) for pid, used in processor_ticks().items())
    return Cost(elapsed, ticks / _TICKS)


def decode_all(fetched: list[tuple[int, Fetched]]) -> None:
    """One core, no Spark, no network."""
    for partition, each in fetched:
        for _ in decode(each, partition, 0, 1 << 62):
            pass


def drain(rows: DataFrame) -> None:
    """Read all rows and discard them."""
    rows.write.format("noop").mode("overwrite").save()


def write(rows: DataFrame, conf: dict[str, str]) -> None:
    """Write all rows to a hub."""
    rows.write.format("eventhubs").options(**conf).mode("append").save()


def in_small_batches(spark: SparkSession, work: Callable[[], object]) -> None:
    """Run a job for which Spark passes fewer rows at a time to Python."""
    spark.conf.set(ROWS_PER_BATCH, SMALL_BATCH_ROWS)
    try:
        work()
    finally:
        spark.conf.unset(ROWS_PER_BATCH)


def discard(rows: DataFrame) -> None:
    """Transfer all rows to a sink in Python that discards them."""
    rows.write.format("discarding").mode("append").save()


def write_files(rows: DataFrame, folder: Path) -> None:
    """Write the bodies of all rows to files."""
    rows.write.format("filing").option("path", str(folder)).mode("append").save()


@dataclass(frozen=True)
class ReadMethod:
    """One method to read or to write: a job for all events, and a job for one event."""

    events: int
    everything: Callable[[], object]
    little: Callable[[], object] = lambda: None


class MethodCosts(NamedTuple):
    """Costs of a method in each round: of a job with all events, and of a job with one event."""

    events: int
    everything: list[Cost]
    little: list[Cost]

    @property
    def seconds(self) -> list[float]:
        """Seconds for an event, of each round."""
        return [cost.elapsed / self.events for cost in self.everything]

    @property
    def net_seconds(self) -> list[float]:
        """The same without the fixed cost of a job."""
        fixed = min(cost.elapsed for cost in self.little)
        return [(cost.elapsed - fixed) / self.events for cost in self.everything]

    @property
    def processor(self) -> list[float]:
        """CPU seconds for an event, of each round."""
        return [cost.processor / self.events for cost in self.everything]


def rounds_of(rounds: int, methods: dict[str, ReadMethod]) -> dict[str, MethodCosts]:
    """The costs of each method; rounds are interleaved, and the first one is a warm-up that does not count."""
    found = {name: MethodCosts(method.events, [], []) for name, method in methods.items()}
    for number in range(rounds + 1):
        for name, method in methods.items():
            everything, little = measured(method.everything), measured(method.little)
            if number:
                found[name].everything.append(everything)
                found[name].little.append(little)
    return found


def median_ratio(others: Sequence[float], own: Sequence[float]) -> float:
    """How many times as fast as another method, in the median of the rounds."""
    return statistics.median(other / each for other, each in zip(others, own, strict=True))


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
    """Measure one kind of event with every method."""
    reader = HubReader(client, HUB)
    bounds = reader.bounds(range(PARTITIONS))
    events = sum(end - first for first, end in bounds.values())
    fetched = [(index, each) for index, (first, end) in bounds.items() for each in reader.read_range(index, first, end)]
    log_bytes = sum(len(each.data) for _, each in fetched)
    methods = {"decode, one core": ReadMethod(events, lambda: decode_all(fetched))}
    methods |= spark_methods(spark, conf, next(decode(fetched[0][1], 0, 0, 1 << 62)), events, folder)
    if any(KAFKA_JARS.glob("*.jar")):
        some = min(events, KAFKA_EVENTS)
        methods["kafka"] = ReadMethod(some, lambda: drain(kafka_rows(spark, node, some)))
    show(rounds_of(rounds, methods), log_bytes / events)


def spark_methods(
    spark: SparkSession, conf: dict[str, str], prebuilt: pa.RecordBatch, events: int, folder: Path
) -> dict[str, ReadMethod]:
    """The source, the ceiling with a prepared batch, and Parquet with the rows of the source."""
    hub = spark.read.format("eventhubs").options(**conf, **{"eventhubs.name": HUB})
    fetched = spark.read.format("eventhubs").options(
        **conf, **{"eventhubs.name": HUB, "eventhubs.localSegments": "off"}
    )
    source, few = hub.load(), hub.option("eventhubs.endingPosition", SECOND).load()
    every, few_fetched = fetched.load(), fetched.option("eventhubs.endingPosition", SECOND).load()
    stream, parquet, little = (str(folder / name) for name in ("batch.arrow", "all.parquet", "few.parquet"))
    with pa.OSFile(stream, "wb") as sink, pa.ipc.new_stream(sink, prebuilt.schema) as writer:
        writer.write_batch(prebuilt)
    source.write.parquet(parquet)
    rows = source.select("body", "partitionKey", "properties").persist()
    rows.count()
    few.coalesce(1).write.parquet(little)
    ceiling = spark.read.format("ceiling").option("path", stream)
    most, one = ceiling.option("events", str(events)).load(), ceiling.option("events", "1").load()
    return {
        "source": ReadMethod(events, lambda: drain(source), lambda: drain(few)),
        "source, fetching": ReadMethod(events, lambda: drain(every), lambda: drain(few_fetched)),
        "ceiling": ReadMethod(events, lambda: drain(most), lambda: drain(one)),
        "parquet": ReadMethod(
            events, lambda: drain(spark.read.parquet(parquet)), lambda: drain(spark.read.parquet(little))
        ),
    } | sink_methods(spark, rows, conf | {"eventhubs.name": RESULT_HUB}, events, folder)


def sink_methods(
    spark: SparkSession, rows: DataFrame, conf: dict[str, str], events: int, folder: Path
) -> dict[str, ReadMethod]:
    """The sink, and two that do less; with Spark's default batches and with small ones."""
    jobs: dict[str, Callable[[DataFrame], object]] = {
        "sink": lambda each: write(each, conf),
        "sink, to a file": lambda each: write_files(each, folder),
        "sink, discarding": discard,
    }
    found: dict[str, ReadMethod] = {}
    for name, job in jobs.items():
        every, one = partial(job, rows), partial(job, rows.limit(1))
        found[name] = ReadMethod(events, every, one)
        found[f"{name}, 1,000"] = ReadMethod(
            events, partial(in_small_batches, spark, every), partial(in_small_batches, spark, one)
        )
    return found


def show(found: dict[str, MethodCosts], event_bytes: float) -> None:
    """Print a line for each method: rate, ratios to the others (gross and net), CPU time and fixed cost."""
    for name, each in found.items():
        ratios = "  ".join(
            f"{median_ratio(other.seconds, each.seconds):5.2f} "
            f"({median_ratio(other.net_seconds, each.net_seconds):4.2f} net, "
            f"{median_ratio(other.processor, each.processor):4.2f} processor) of {beside}"
            for beside, other in found.items()
            if beside in COMPARED and beside != name
        )
        seconds, fixed = min(each.seconds), min(cost.elapsed for cost in each.little)
        print(
            f"  {name:<23} {1 / seconds / 1e6:5.2f} M rows/s {event_bytes / seconds / 1e6:6.0f} MB/s "
            f"{min(each.processor) * 1e6:6.2f} µs/row, fixed {fixed * 1e3:4.0f} ms; {ratios}",
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
    """Print the time of a micro-batch: with few events, with as many rows made by Spark itself, and without events."""
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
    with Node(hubs=[HubSetting(name=name, partition_count=PARTITIONS) for name in (HUB, RESULT_HUB)]) as node:
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
    spark.dataSource.register(DiscardingSink)
    spark.dataSource.register(FilingSink)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="kinds of events whose names contain this")
    arguments = parser.parse_args()
    spark = session()
    shapes = [shape for shape in SHAPES if arguments.only in shape.name]
    for shape in shapes:
        events = arguments.events if shape.body_bytes < 1000 else arguments.events // 4
        # Each shape has its own node, so that the disk holds one shape at a time.
        with a_filled_node(shape, events) as (node, client), tempfile.TemporaryDirectory() as folder:
            conf = {
                "eventhubs.connectionString": node.connection_string,
                "eventhubs.endpoint": node.kafka,
                "eventhubs.tls": "false",
                "eventhubs.startingPosition": START,
            }
            print(shape.name, flush=True)
            measure(spark, client, node, conf, arguments.rounds, Path(folder))
            if shape is SHAPES[-1] and not arguments.only:
                measure_triggers(spark, conf | {"eventhubs.name": HUB}, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
