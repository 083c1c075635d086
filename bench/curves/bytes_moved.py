"""The cost by size of an event, and how much each thread of a node works."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.curves.common import Curve, Subject, Tools, a_node, batch_now
from bench.load.raw_amqp import Client, event, from_first
from bench.load.raw_kafka import RawProducer

HUB = "grown"
SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
_WARM_UP_S = 0.2
# The largest size of a frame's header.
_FRAME_HEAD_BYTES = 100
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Loads for the measurement of threads: name, events in a batch, their size, requests in flight.
_LOADS = (("batches of 900 KB", 900, 1_000, 4), ("batches of 16 KB", 16, 1_000, 16), ("single events", 1, 100, 64))


def sizes(tools: Tools) -> list[Curve]:
    """Single events of growing size, published over Kafka and AMQP, received over AMQP."""
    curve = Curve(
        slug="event-size",
        has_log_y=True,
        title="Size of single events",
        x_title="bytes of an event",
        y_title="processor time of the node per event, µs",
    )
    for size in SIZES:
        with a_node(tools, {HUB: 2}) as subject:
            in_flight = 4 if size > 100_000 else 64
            _kafka_in(replace(tools, seconds=_WARM_UP_S), subject, size, in_flight)
            _amqp_in(replace(tools, seconds=_WARM_UP_S), subject, size, in_flight)
            _add(curve, "Kafka in", size, subject, partial(_kafka_in, tools, subject, size, in_flight))
            stored = _add(curve, "AMQP in", size, subject, partial(_amqp_in, tools, subject, size, in_flight))
            _add(curve, "AMQP out", size, subject, partial(_amqp_out, tools, subject, size, stored))
    for name, points in curve.lines.items():
        curve.notes.append(
            f"{name}: " + ", ".join(f"{cost / size * 1000:.1f} ms/MB at {size:,} B" for size, cost in points)
        )
    return [curve]


def _add(curve: Curve, name: str, size: int, subject: Subject, work: "partial[int]") -> int:
    """Measure one point; returns the number of its events."""
    cpu_s, _, count = subject.cost_of(work)
    curve.add(name, size, cpu_s / max(count, 1) * 1e6)
    return count


def _kafka_in(tools: Tools, subject: Subject, size: int, in_flight: int) -> int:
    with RawProducer(subject.kafka_address, subject.password) as producer:
        batch = batch_now(1, size)
        return producer.produce(tools.kafka, HUB, batch, partitions=1, in_flight=in_flight, seconds=tools.seconds).count


def _amqp_in(tools: Tools, subject: Subject, size: int, in_flight: int) -> int:
    with Client(subject.amqp_address) as client:
        link = client.sender(f"{HUB}/Partitions/1")
        return tools.amqp.send(
            client, link, event(size), batch=False, in_flight=in_flight, seconds=tools.seconds
        ).deliveries


def _amqp_out(tools: Tools, subject: Subject, size: int, stored: int) -> int:
    with Client(subject.amqp_address) as client:
        link = client.receiver(f"{HUB}/ConsumerGroups/$Default/Partitions/1", from_first())
        # The client counts frames, and a large event has several.
        frames = -(-size // (link.max_frame_size - _FRAME_HEAD_BYTES))
        return tools.amqp.receive(client, link, limit=stored * frames, seconds=tools.seconds).deliveries // frames


def second_core(tools: Tools) -> list[Curve]:
    """How much of a CPU the thread of the event loop and the other threads use under full load."""
    curve = Curve(
        slug="second-core",
        title="Threads of a node under full load",
        x_title="load: 1 = 900 KB, 2 = 16 KB, 3 = single events",
        y_title="processors in use",
    )
    for durability in ("os", "fsync"):
        with a_node(tools, {HUB: 4}, durability) as subject:
            for number, (name, count, size, in_flight) in enumerate(_LOADS, start=1):
                batch = batch_now(count, size)
                with RawProducer(subject.kafka_address, subject.password) as producer:
                    work = partial(producer.produce, tools.kafka, HUB, batch, partitions=4, in_flight=in_flight)
                    work(seconds=_WARM_UP_S)
                    before = _thread_seconds(subject.node.pid)
                    done = work(seconds=tools.seconds)
                    after = _thread_seconds(subject.node.pid)
                used = {thread: after[thread] - before.get(thread, 0.0) for thread in after}
                loop_s = used.pop(subject.node.pid)
                curve.add(f"loop, {durability}", number, loop_s / done.seconds)
                curve.add(f"others, {durability}", number, sum(used.values()) / done.seconds)
                curve.notes.append(
                    f"{durability}, {name}: {done.rate:,.0f} requests/s, {done.rate * count * size / 1e6:,.0f} MB/s"
                )
    return [curve]


def _thread_seconds(pid: int) -> dict[int, float]:
    """CPU time of each thread; the thread of the event loop has the id of the process."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(task.name)] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return found
