"""How long an event takes through a Spark query, from publish to the result hub, beside Spark's own Kafka source.

    python -m bench.spark_latency [--seconds 30] [--rounds 2] [--rate 1000]

A thread publishes events at a fixed rate; each body is the time of its publication. A query copies them to a result hub
as fast as it can (no trigger interval), and the node stamps each copy when it is stored. The difference is the latency;
the first third of each run is a warm-up that does not count. `hub to hub` uses `format("eventhubs")` on both sides,
`Kafka to Kafka` Spark's own Kafka source and sink on the same node, if `make kafka-jars` has installed them. The line
with `fewer files` keeps the checkpoint with a file manager that starts no process for each file. Runs take turns, and
the medians of the rounds are shown. The last lines are Spark's answer to its triggers for lower latencies.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench.spark import KAFKA_JARS, LATEST, PARTITIONS, session
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from hubmere.client.connection import Account, Client, KafkaAddress
from hubmere.client.consumer import HubReader
from hubmere.client.producer import HubProducer, producer_id_of
from hubmere.records.records import Record, encode_batch
from hubmere.settings import HubSetting
from hubmere.testing import Node
from hubmere.translate import events

HUB = "events"
PUBLISHES_PER_SECOND = 100
# The time until a query reads, and until its last events are stored.
START_SECONDS, SETTLE_SECONDS = 120.0, 5.0
MOST_EVENTS = 10_000_000
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class Latency(NamedTuple):
    """Latencies of one run, in milliseconds."""

    p50_ms: float
    p99_ms: float
    events: int


class Publisher(threading.Thread):
    """Publishes at a fixed rate; the body of an event is the time of its publication in nanoseconds."""

    def __init__(self, client: Client, rate: int) -> None:
        super().__init__(daemon=True)
        self._producer = HubProducer(client, HUB, producer_id_of([str(time.time_ns()).encode()]))
        self._per_publish = rate // PUBLISHES_PER_SECOND
        self._ending = threading.Event()

    def run(self) -> None:
        number, next_s = 0, time.monotonic()
        while not self._ending.wait(max(0.0, next_s - time.monotonic())):
            next_s += 1 / PUBLISHES_PER_SECOND
            body = str(time.time_ns()).encode()
            records = [Record(index, 0, None, body) for index in range(self._per_publish)]
            self._producer.send(number % PARTITIONS, encode_batch(records))
            number += 1
        self._producer.flush()

    def end(self) -> None:
        self._ending.set()
        self.join()


def latencies(client: Client, hub: str, since_ns: int) -> Latency:
    """The latencies of the events that were published after a time, from the times of their copies."""
    reader = HubReader(client, hub)
    found = [
        event.enqueued_ms - int(event.body or b"0") / 1e6
        for partition, (first, end) in reader.bounds(range(PARTITIONS)).items()
        for fetched in reader.read_range(partition, first, end)
        for event in events(fetched.data, 0, first, MOST_EVENTS)
        if int(event.body or b"0") >= since_ns
    ]
    quantiles = statistics.quantiles(found, n=100)
    return Latency(quantiles[49], quantiles[98], len(found))


class Copier:
    """Queries from the hub to a result hub."""

    def __init__(self, spark: SparkSession, node: Node) -> None:
        self._spark = spark
        self._hubs = {
            "eventhubs.connectionString": node.connection_string,
            "eventhubs.endpoint": node.kafka,
            "eventhubs.tls": "false",
        }
        login = f'username="$ConnectionString" password="{node.connection_string}";'
        self._kafka = {
            "kafka.bootstrap.servers": node.kafka,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {login}",
        }

    def events(self) -> DataFrame:
        """New events of the hub."""
        conf = self._hubs | {"eventhubs.name": HUB, "eventhubs.startingPosition": LATEST}
        return self._spark.readStream.format("eventhubs").options(**conf).load()

    def by_hubs(self, result: str) -> Any:
        """The copy by `format("eventhubs")`."""
        return (
            self.events()
            .select("body")
            .writeStream.format("eventhubs")
            .options(**self._hubs, **{"eventhubs.name": result})
        )

    def by_kafka(self, result: str) -> Any:
        """The copy by Spark's Kafka source and sink."""
        source = self._spark.readStream.format("kafka").options(**self._kafka)
        rows = source.option("subscribe", HUB).option("startingOffsets", "latest").load().select("value")
        return rows.writeStream.format("kafka").options(**self._kafka).option("topic", result)


@contextmanager
def conf_of(spark: SparkSession, name: str, value: str | None) -> Iterator[None]:
    """A setting of the session for the length of a block."""
    if value is not None:
        spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def run(client: Client, result: str, copy: Callable[[str], Any], seconds: float, rate: int) -> Latency:
    """One query for some seconds."""
    publisher = Publisher(client, rate)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = copy(result).option("checkpointLocation", checkpoint).start()
        publisher.start()
        deadline = time.monotonic() + START_SECONDS
        while not any(progress["numInputRows"] for progress in query.recentProgress) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(seconds / 3)
        since_ns = time.time_ns()
        time.sleep(seconds * 2 / 3)
        publisher.end()
        time.sleep(SETTLE_SECONDS)
        query.stop()
    return latencies(client, result, since_ns)


def show_refusals(copier: Copier) -> None:
    """Spark's answer to each trigger that is meant for lower latencies than micro-batches have."""
    for name, trigger in (("real-time mode", {"realTime": "5 seconds"}), ("continuous", {"continuous": "1 second"})):
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = copier.events().select("body").writeStream.format("console").outputMode("update")
            try:
                query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
                query.awaitTermination(30)
                answer = "accepted"
                query.stop()
            except (PySparkException, Py4JJavaError) as refusal:
                answer = str(refusal).strip().splitlines()[0]
        print(f"  {name}: {answer}", flush=True)


def measure(spark: SparkSession, node: Node, client: Client, arguments: argparse.Namespace) -> None:
    """Run every method in turn, and print the medians of the rounds."""
    copier = Copier(spark, node)
    methods: dict[str, tuple[Callable[[str], Any], str | None]] = {
        "hub to hub": (copier.by_hubs, None),
        "hub to hub, fewer files": (copier.by_hubs, FILE_MANAGER),
    }
    if any(KAFKA_JARS.glob("*.jar")):
        methods["Kafka to Kafka"] = (copier.by_kafka, None)
    found: dict[str, list[Latency]] = {name: [] for name in methods}
    for number in range(arguments.rounds):
        for index, (name, (copy, manager)) in enumerate(methods.items()):
            with conf_of(spark, MANAGER, manager):
                result = f"result-{number}-{index}"
                found[name].append(run(client, result, copy, arguments.seconds, arguments.rate))
    for name, rounds in found.items():
        p50_ms, p99_ms = (statistics.median(each[index] for each in rounds) for index in (0, 1))
        counted = sum(each.events for each in rounds)
        print(f"  {name:<24} p50 {p50_ms:5.0f} ms  p99 {p99_ms:5.0f} ms  of {counted} events", flush=True)
    show_refusals(copier)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=int, default=1000)
    arguments = parser.parse_args()
    names = [HUB, *(f"result-{number}-{index}" for number in range(arguments.rounds) for index in range(3))]
    with Node(hubs=[HubSetting(name=name, partition_count=PARTITIONS) for name in names]) as node:
        host, _, port = node.kafka.rpartition(":")
        address = KafkaAddress(host=host, port=int(port), is_secure=False)
        account = Account(address=address, connection_string=node.connection_string, client_id="hubmere-bench")
        spark = session()
        with Client(account) as client:
            print(f"{arguments.rate} events of 19 bytes per second", flush=True)
            measure(spark, node, client, arguments)
        spark.stop()


if __name__ == "__main__":
    main()
