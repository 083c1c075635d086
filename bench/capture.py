"""The end-to-end rate of Capture, compared with a plain fastavro writer; and the cost of a micro-batch.

    python -m bench.capture [--events 1000000] [--rounds 2]

One node on this machine's disk, `local[2]`, 1 KB events in four partitions, files in a folder, synchronised before they
are published. `capture` is the whole job: planning, reading over the network, encoding, publishing.
`encoder` is the encoder alone, on one core; `fastavro` writes the same events from ready-made Python objects, on one
core. Rounds are interleaved and the best one is shown: compare the ratios.
"""

import argparse
import http.server
import io
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastavro
from bench.spark import SHAPES, Shape, fill, session
from pyspark.sql import SparkSession

from hubmere.client.connection import Account, Client, KafkaAddress
from hubmere.client.consumer import Fetched, HubReader
from hubmere.client.producer import HubProducer, producer_id_of
from hubmere.pipeline.capture.files.avro import AvroFile
from hubmere.pipeline.capture.files.schema import SCHEMA
from hubmere.pipeline.capture.hub import HubCapture
from hubmere.pipeline.capture.job import Application
from hubmere.pipeline.capture.node_client import NodeClient
from hubmere.pipeline.capture.plan import read_hub
from hubmere.pipeline.decode import visible_batches
from hubmere.records.records import Record, encode_batch
from hubmere.settings import HubSetting
from hubmere.testing import Node

PARTITIONS = 4
SIZE_LIMIT_BYTES = 64 * 1024 * 1024
FASTAVRO_EVENTS = 30_000
TOKEN = "bench"
SMALL_ROUNDS = 8
NAME_FORMAT = "{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}"


@contextmanager
def served_plan(node: Node, hub: dict[str, Any]) -> Iterator[NodeClient]:
    """A client of an HTTP server that answers like a node, with a capture plan of one hub."""
    plan = {"revision": "1", "bootstrap": node.kafka, "security": "SASL_PLAINTEXT", "caFile": None, "hubs": [hub]}

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self, body: bytes) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer(json.dumps(plan).encode())

        def do_POST(self) -> None:
            self._answer(b"")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield NodeClient(f"http://127.0.0.1:{server.server_address[1]}", TOKEN, None)
    finally:
        server.shutdown()
        server.server_close()


def a_hub(node: Node, hub: str, folder: Path, interval_s: int, encoding: str = "Avro") -> dict[str, Any]:
    """The entry of a hub in the capture plan."""
    return {
        "namespace": "bench", "hub": hub, "id": "1", "partitionCount": PARTITIONS,
        "connectionString": f"{node.connection_string};EntityPath={hub}",
        "since": {str(index): 0 for index in range(PARTITIONS)}, "encoding": encoding,
        "intervalSeconds": interval_s, "sizeLimitBytes": SIZE_LIMIT_BYTES, "skipEmptyArchives": True,
        "nameFormat": NAME_FORMAT, "destination": {"url": folder.as_uri(), "options": {}},
    }  # fmt: skip


def capture_seconds(spark: SparkSession, node: Node, hub: str, encoding: str) -> float:
    """Capture all stored events into an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served_plan(node, a_hub(node, hub, folder / "out", 900, encoding)) as door:
            application = Application(spark.sparkContext, door, str(folder / "checkpoints"), once=True)
            began = time.perf_counter()
            assert application.run() == 0
            return time.perf_counter() - began


def encoder_seconds(fetched: list[tuple[int, Fetched]]) -> float:
    """One core, no Spark, no network, no disk."""
    began = time.perf_counter()
    for partition, each in fetched:
        file = AvroFile(io.BytesIO(), "name", "1/0/0-1", deflates=False)
        for batch in visible_batches(each, 0, 1 << 62):
            file.add(batch, partition, 0, 1 << 62)
        file.close()
    return time.perf_counter() - began


def fastavro_seconds(shape: Shape) -> float:
    """A plain writer in one process, from ready-made objects."""
    schema = fastavro.parse_schema(SCHEMA)
    event = {
        "Offset": "123456789", "EnqueuedTimeUtc": "1/2/2026 3:04:05 AM", "SystemProperties": {}, "Properties": {},
        "Body": b"x" * shape.body_bytes,
    }  # fmt: skip
    records = [{"SequenceNumber": number, **event} for number in range(FASTAVRO_EVENTS)]
    began = time.perf_counter()
    fastavro.writer(io.BytesIO(), schema, records)
    return time.perf_counter() - began


def publish_few(client: Client, hub: str, name: str) -> None:
    """Publish a few events to each partition; a second call with the same name would be dropped as a repeat."""
    producer = HubProducer(client, hub, producer_id_of([name.encode()]))
    for partition in range(PARTITIONS):
        producer.send(partition, encode_batch([Record(index, 0, None, b"x" * 1024) for index in range(50)]))
    producer.flush()


def micro_batches(spark: SparkSession, node: Node, client: Client, hub: str) -> None:
    """The time of a check of windows that stay open, and of a micro-batch with a small file for each partition."""
    checks: list[float] = []
    batches: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        at = {"bootstrap": node.kafka, "security": "SASL_PLAINTEXT", "caFile": None}
        plan = read_hub({**a_hub(node, hub, folder / "out", 1), "at": at})
        capture = HubCapture(spark.sparkContext, plan, str(folder / "checkpoint"), once=False, on_change=lambda: None)
        for number in range(SMALL_ROUNDS):
            capture.run()
            began = time.perf_counter()
            capture.run()
            checks.append(time.perf_counter() - began)
            publish_few(client, hub, f"{number}")
            # Wait until the window of the events has ended.
            time.sleep(2.1)
            began = time.perf_counter()
            capture.run()
            batches.append(time.perf_counter() - began)
            assert capture.error is None, capture.error
        capture.close()
    print(f"  a check of windows that stay open: {statistics.median(checks[1:]) * 1e3:.0f} ms")
    print(f"  a micro-batch of {PARTITIONS} small files: {statistics.median(batches[1:]) * 1e3:.0f} ms")


def best(rounds: int, works: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The shortest time of each; rounds are interleaved, and the first one is a warm-up that does not count."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            found[name].append(work())
    return {name: min(times[1:]) for name, times in found.items()}


def measure(spark: SparkSession, node: Node, client: Client, hub: str, shape: Shape, rounds: int) -> None:
    """Measure one kind of event with every method."""
    reader = HubReader(client, hub)
    bounds = reader.bounds(range(PARTITIONS))
    events = sum(end - first for first, end in bounds.values())
    fetched = [(index, each) for index, (first, end) in bounds.items() for each in reader.read_range(index, first, end)]
    times = best(
        rounds,
        {
            "capture, Avro": lambda: capture_seconds(spark, node, hub, "Avro"),
            "capture, Parquet": lambda: capture_seconds(spark, node, hub, "Parquet"),
            "encoder, one core": lambda: encoder_seconds(fetched),
            "fastavro, one core": lambda: fastavro_seconds(shape) * events / FASTAVRO_EVENTS,
        },
    )
    for name, seconds in times.items():
        print(
            f"  {name:<20} {events / seconds / 1e3:7.0f} k events/s "
            f"{events * shape.body_bytes / seconds / 1e6:7.0f} MB/s of bodies   "
            f"{times['fastavro, one core'] / seconds:5.2f} of fastavro"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    shapes = (SHAPES[0], SHAPES[2])
    hubs = [HubSetting(name=f"shape-{number}", partition_count=PARTITIONS) for number in range(len(shapes))]
    small = HubSetting(name="small", partition_count=PARTITIONS)
    with Node(hubs=[*hubs, small]) as node:
        host, _, port = node.kafka.rpartition(":")
        address = KafkaAddress(host=host, port=int(port), is_secure=False)
        account = Account(address=address, connection_string=node.connection_string, client_id="hubmere-bench")
        spark = session()
        with Client(account) as client:
            for hub, shape in zip(hubs, shapes, strict=True):
                fill(client, hub.name, shape, arguments.events)
                print(shape.name)
                measure(spark, node, client, hub.name, shape, arguments.rounds)
            micro_batches(spark, node, client, small.name)
        spark.stop()


if __name__ == "__main__":
    main()
