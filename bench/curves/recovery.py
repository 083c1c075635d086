"""The cost of a crash by the amount of data: the first use of a log after kill -9."""

import time

from bench.curves.common import Curve, Subject, Tools, a_node, batch_now
from bench.curves.partitions import HUB, OTHER, longest_wait_ms
from bench.load.kafka_crowd import connected, produce_frame
from bench.load.raw_kafka import RawProducer

# Batches of one event of 10 B since the last recovery point, and megabytes in batches of 100 KB.
BATCHES = (20_000, 100_000, 400_000)
MEGABYTES = (100, 400, 1_200)
_MAX_FILL_S = 20.0


def after_crash(tools: Tools) -> list[Curve]:
    """First use of a log after kill -9, by batches and by bytes."""
    batches = Curve(
        slug="recovery-batches",
        has_log_y=True,
        title="First use of a log after kill -9",
        x_title="small batches since the last recovery point",
        y_title="milliseconds",
    )
    data = Curve(
        slug="recovery-data",
        title="First use of a log after kill -9, large batches",
        x_title="megabytes in the log",
        y_title="milliseconds",
    )
    for count in BATCHES:
        with a_node(tools, {HUB: 1, OTHER: 1}) as subject:
            stored = _fill(tools, subject, batch_now(1, 10), count, in_flight=64)
            _add(batches, stored, subject)
    for megabytes in MEGABYTES:
        with a_node(tools, {HUB: 1, OTHER: 1}) as subject:
            stored = _fill(tools, subject, batch_now(100, 1000), megabytes * 10, in_flight=8)
            _add(data, stored / 10, subject)
    return [batches, data]


def _fill(tools: Tools, subject: Subject, batch: bytes, count: int, *, in_flight: int) -> int:
    """Write at least so many batches."""
    stored, began = 0, time.perf_counter()
    with RawProducer(subject.kafka_address, subject.password) as producer:
        while stored < count and time.perf_counter() - began < _MAX_FILL_S:
            done = producer.produce(tools.kafka, HUB, batch, partitions=1, in_flight=in_flight, seconds=0.1)
            stored += done.count
    return stored


def _add(curve: Curve, x: float, subject: Subject) -> None:
    subject.node.kill()
    subject.node.start()
    small = produce_frame([(OTHER, [0])], batch_now(1, 10))
    with (
        connected(subject.kafka_address, subject.password) as first,
        connected(subject.kafka_address, subject.password) as other,
    ):
        began = time.perf_counter()
        wait_ms = longest_wait_ms(first, other, produce_frame([(HUB, [0])], batch_now(1, 10)), small)
        took_s = time.perf_counter() - began
    curve.add("the request itself", round(x), took_s * 1000)
    curve.add("longest wait of another client", round(x), wait_ms)
