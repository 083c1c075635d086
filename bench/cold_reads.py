"""Catch-up from captured files against catch-up from the log, and what it costs tail readers of another hub.

Two hubs hold the same events of 1 KB. The log of one has all of them; the other has them in captured files only. A
Kafka consumer reads each from the beginning, in turns. Then a consumer follows a third hub, to which events are
published at a fixed rate: alone, and while another process reads the files again and again, in turns.

    python -m bench.cold_reads [events] [rounds]
"""

import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from hubmere.pipeline.capture.destinations import destination_of
from hubmere.pipeline.capture.files.names import Span
from hubmere.pipeline.capture.node_client import NodeClient
from hubmere.pipeline.capture.planning.planner import HubPlanner, files_of
from hubmere.pipeline.capture.writing import write_file
from hubmere.testing import Node

BODY = bytes(range(256)) * 4
TAIL_RATE = 2_000
TAIL_SECONDS = 8.0


def hub_place(node: Node, hub: str) -> str:
    root = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces"
    return f"{node.http}{root}/{node.namespace}/eventhubs/{hub}?api-version=2024-01-01"


def describe(node: Node, hub: str, **capture: object) -> None:
    """Create or change a hub with one partition."""
    described = {"enabled": True, "encoding": "Avro", "skipEmptyArchives": True, **capture}
    body = {"properties": {"partitionCount": 1, "captureDescription": described}}
    answer = httpx.put(hub_place(node, hub), json=body, headers={"Authorization": f"Bearer {node.admin_token}"})
    assert answer.is_success, answer.text


def fill(node: Node, hub: str, events: int) -> None:
    """Publish events of 1 KB in batches of 64 KB."""
    producer = Producer(node.kafka_config(linger_ms=20, batch_size=65_536))
    for number in range(events):
        while True:
            try:
                producer.produce(hub, number.to_bytes(4) + BODY[4:], partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(600) == 0


def capture(node: Node, hub: str) -> None:
    """Write all events into files, as the capture job does."""
    with closing(NodeClient(node.http, node.admin_token, None)) as client:
        plan = next(plan for plan in client.plan().values() if plan.hub == hub)
    with closing(HubPlanner(plan)) as planner:
        planner.freeze_end()
        offset = planner.first_offset()
        while (following := planner.next_offset(offset)) is not None:
            for task in files_of(plan, following):
                written = write_file(plan, task, uuid4().hex)
                if written.token is not None:
                    span = Span(plan.id, written.partition, written.first, written.end)
                    destination_of(plan.target.url, plan.target.options).publish(written.name, span, written.token)
            offset = following


def trim(node: Node, hub: str, before: int) -> None:
    admin = AdminClient(node.kafka_config())
    for future in admin.delete_records([TopicPartition(hub, 0, before)]).values():
        future.result(60)


def catch_up(config: dict[str, Any], hub: str, events: int) -> float:
    """Events per second of a consumer that reads a hub from its beginning."""
    consumer = Consumer({**config, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(hub, 0, OFFSET_BEGINNING)])
    found, started = 0, 0.0
    try:
        while found < events:
            messages = consumer.consume(1000, 30.0)
            assert messages, "nothing arrives"
            started = started or time.perf_counter()
            assert all(message.error() is None for message in messages)
            found += len(messages)
        return found / (time.perf_counter() - started)
    finally:
        consumer.close()


def read_forever(config: dict[str, Any], hub: str, events: int) -> None:
    while True:
        catch_up(config, hub, events)


def follow(node: Node, hub: str) -> float:
    """Events per second that a tail reader gets while they are published at a fixed rate."""
    consumer = Consumer({**node.kafka_config("tail"), "enable.auto.commit": False})
    consumer.assign([TopicPartition(hub, 0, OFFSET_END)])
    consumer.poll(2.0)
    stop = threading.Event()

    def publish() -> None:
        producer = Producer(node.kafka_config(linger_ms=5))
        begun, sent = time.perf_counter(), 0
        while not stop.is_set():
            due = int((time.perf_counter() - begun) * TAIL_RATE)
            for _ in range(due - sent):
                producer.produce(hub, BODY, partition=0)
            sent = due
            producer.poll(0.005)
        producer.flush(60)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        consumer.consume(1, 30.0)
        begun, found = time.perf_counter(), 0
        while time.perf_counter() - begun < TAIL_SECONDS:
            found += len(consumer.consume(500, 0.05))
        return found / (time.perf_counter() - begun)
    finally:
        stop.set()
        publisher.join()
        consumer.close()


def compare_rates(node: Node, events: int, rounds: int) -> None:
    rates: dict[str, list[float]] = {"log": [], "files": []}
    for _ in range(rounds):
        for hub, found in rates.items():
            found.append(catch_up(node.kafka_config(), hub, events))
    log, files = (statistics.median(found) for found in rates.values())
    print(f"catch-up from the log {log:,.0f} events/s, from files {files:,.0f} events/s: ratio {files / log:.2f}")
    print(f"  each round: {', '.join(f'{b / a:.2f}' for a, b in zip(*rates.values(), strict=True))}")


def compare_tails(node: Node, events: int, rounds: int) -> None:
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(follow(node, "tail"))
        reader = multiprocessing.Process(target=read_forever, args=(node.kafka_config(), "files", events))
        reader.start()
        try:
            beside.append(follow(node, "tail"))
        finally:
            reader.terminate()
            reader.join()
    one, other = statistics.median(alone), statistics.median(beside)
    print(
        f"tail reader alone {one:,.0f} events/s, beside a catch-up from files {other:,.0f}: loss {1 - other / one:.1%}"
    )


def main(events: int = 200_000, rounds: int = 5) -> None:
    """Run both comparisons on a node of its own."""
    with tempfile.TemporaryDirectory() as folder:
        own: dict[str, str | int | float | bool | Path | list[str]] = {
            "data": str(Path(folder) / "data"),
            "as": "unlimited",
            "capture_supervise": False,
            "capture_folder": str(Path(folder) / "captured"),
        }
        with Node(settings=own) as node:
            for hub in ("log", "files", "tail"):
                describe(node, hub)
            for hub in ("log", "files"):
                fill(node, hub, events)
            capture(node, "files")
            trim(node, "files", events)
            describe(node, "files", coldReads=True)
            compare_rates(node, events, rounds)
            compare_tails(node, events, rounds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
