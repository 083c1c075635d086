"""Costs by number of partitions: those in use, those that exist, and the first use of many partitions."""

import time
from functools import partial

from bench.curves.common import Curve, Subject, Tools, a_node, batch_now
from bench.load.kafka_crowd import KafkaCrowd, connected, produce_frame
from bench.load.machine import private_bytes
from bench.load.raw_kafka import RawProducer

from hubmere.testing import NodeFailed

HUB, OTHER = "grown", "other"
IN_USE = (1, 10, 100, 1_000)
EXISTING = (1, 1_000, 5_000)
FIRST_USED = (10, 100, 1_000)
_IN_FLIGHT = 16
_WARM_UP_S = 0.4


def in_use(tools: Tools) -> list[Curve]:
    """Requests of 16 KB, spread over more and more partitions."""
    curve = Curve(
        slug="partitions-in-use",
        title="Partitions in use",
        x_title="partitions that are written in turn",
        y_title="processor time of the node per request of 16 KB, µs",
    )
    batch = batch_now(16, 1000)
    for durability in ("os", "fsync"):
        with a_node(tools, {HUB: IN_USE[-1]}, durability) as subject:
            for count in IN_USE:
                with RawProducer(subject.kafka_address, subject.password) as producer:
                    open_all(subject, HUB, count)
                    work = partial(producer.produce, tools.kafka, HUB, batch, partitions=count, in_flight=_IN_FLIGHT)
                    work(seconds=_WARM_UP_S)
                    cpu_s, _, done = subject.cost_of(partial(work, seconds=tools.seconds))
                curve.add(durability, count, cpu_s / done.count * 1e6)
    return [curve]


def open_all(subject: Subject, hub: str, count: int) -> None:
    """Write one small event to each partition, so that its log is open."""
    with connected(subject.kafka_address, subject.password) as crowd:
        crowd.ask_all([produce_frame([(hub, range(count))], batch_now(1, 10))])


def existing(tools: Tools) -> list[Curve]:
    """Start time and memory of a node with unused partitions."""
    starts = Curve(
        slug="partitions-existing",
        title="Partitions that exist, unused",
        x_title="partitions",
        y_title="seconds from the command to the first connection",
    )
    for count in EXISTING:
        with a_node(tools, {HUB: count}) as subject:
            memory_mb = private_bytes(subject.node.pid) / 1e6
            subject.node.stop()
            began = time.perf_counter()
            subject.node.start()
            starts.add("clean restart", count, time.perf_counter() - began)
            subject.node.kill()
            began = time.perf_counter()
            subject.node.start()
            starts.add("after kill -9", count, time.perf_counter() - began)
            starts.notes.append(f"{count:,} partitions: {memory_mb:.0f} MB at rest")
    return [starts]


def first_use(tools: Tools) -> list[Curve]:
    """One request to many partitions, and the longest wait of another client meanwhile."""
    waits = Curve(
        slug="partitions-first-use",
        has_log_y=True,
        title="First request to many partitions: what another client waits",
        x_title="partitions in the request",
        y_title="longest wait of another client, ms",
    )
    for count in FIRST_USED:
        with a_node(tools, {HUB: count, OTHER: 1}) as subject:
            waits.add("new", count, _longest_wait_ms(subject, count))
            waits.add("used before", count, _longest_wait_ms(subject, count))
            subject.node.kill()
            subject.node.start()
            waits.add("after kill -9", count, _longest_wait_ms(subject, count))
            waits.notes.append(f"stop with {count:,} used partitions: {_stop_seconds(subject)}")
    return [waits]


def _stop_seconds(subject: Subject) -> str:
    began = time.perf_counter()
    try:
        subject.node.stop()
    except NodeFailed:
        return f"more than {time.perf_counter() - began:.0f} s"
    return f"{time.perf_counter() - began:.2f} s"


def _longest_wait_ms(subject: Subject, count: int) -> float:
    """Send one large request, and small requests of another client until the large one is answered."""
    with (
        connected(subject.kafka_address, subject.password) as first,
        connected(subject.kafka_address, subject.password) as other,
    ):
        frame = produce_frame([(HUB, range(count))], batch_now(1, 10))
        return longest_wait_ms(first, other, frame, produce_frame([(OTHER, [0])], batch_now(1, 10)))


def longest_wait_ms(first: KafkaCrowd, other: KafkaCrowd, frame: bytes, small: bytes) -> float:
    """Longest wait of `other` for its small requests while `first` waits for its answer."""
    [slow] = first.members
    answered = slow.answers
    longest_s, deadline = 0.0, time.perf_counter() + 120
    other.ask_all([small])
    slow.send(frame)
    while slow.answers == answered and time.perf_counter() < deadline:
        began = time.perf_counter()
        other.ask_all([small])
        longest_s = max(longest_s, time.perf_counter() - began)
        first.run(0.002, lambda _member, _answer: None)
    return longest_s * 1000
