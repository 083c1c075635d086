"""Kafka throughput and latency of a whole node, compared with Apache Kafka 4 with the same clients.

    python -m bench.kafka [--seconds 1.5] [--rounds 3] [--quick]

There are two clients, both in C: a raw one that pipelines requests of one record, so that the broker is the limit, and
librdkafka, which customers use. Both brokers run at the same time and are measured in turns; the median of each is
shown. Apache Kafka acknowledges from the page cache, as `os` does, and without sign-in; its column is left out where
its jars are not installed. Compare the ratios and the CPU time; rates depend on the machine and on its other load.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.load import apache_kafka, raw_kafka
from bench.load.library import BenchFailed, Library
from bench.load.machine import MB, cpu_seconds, load_average, private_bytes, send_cost_s_per_gb
from bench.load.raw_kafka import RawProducer, Requests, a_batch
from bench.load.rdkafka import Flow, RdKafka, Topic

from hubmere.settings import HubSetting
from hubmere.testing import Node

PARTITIONS = 4
IN_FLIGHT = 64
ONE_RECORD_BYTES = 200
SMALL, LARGE = 100, 1024
PACES = (1_000, 10_000)
PACED_BYTES = 100
# The longest that reading back everything may take.
CONSUME_SECONDS = 30.0
# How much librdkafka fetches of a partition at a time, and how much data the baseline for sending copies.
FETCH_BYTES, SENT_BYTES = 1024 * 1024, 1_000_000_000
# Warm-up of the JVM before the measurement: a number of requests, or a time.
WARM_UP_REQUESTS, WARM_UP_SECONDS = 50_000, 12.0
# These rates are never reached here: quotas are counted as for any customer, but refuse nothing.
_ENDLESS = 10**13
_SETTINGS: dict[str, str | int | float | bool | Path | list[str]] = {
    f"limits.{rate}_per_unit": _ENDLESS for rate in ("ingress_bytes", "ingress_events", "egress_bytes", "egress_events")
}
_TOPICS = ("singles", "small", "large", "paced", "secure-small", "secure-large", "warm")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Clients, brokers and options that every measurement uses."""

    raw: Library
    rdkafka: RdKafka
    brokers: list["Broker"]
    seconds: float
    rounds: int
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker under test, and how its clients reach it."""

    name: str
    pid: int
    plain: dict[str, str]
    secure: dict[str, str]
    password: str | None
    start_seconds: float

    @property
    def kafka_address(self) -> tuple[str, int]:
        """Host and port for the raw client."""
        host, _, port = self.plain["bootstrap.servers"].rpartition(":")
        return host, int(port)

    def topic(self, name: str, *, secure: bool = False) -> Topic:
        """A topic with the settings for plain text or TLS."""
        return Topic(name=name, partitions=PARTITIONS, settings=self.secure if secure else self.plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measurement: a rate, and microseconds of the broker's processor time for each message."""

    rate: float
    cost_us: float


# --- brokers


@contextlib.contextmanager
def hubmere(folder: Path, durability: str) -> Iterator[Broker]:
    """A new node. Its second start is timed: Kafka's folder is also formatted before its timed start."""
    hubs = [HubSetting(name=name, partition_count=PARTITIONS) for name in _TOPICS]
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        Node(hubs=hubs, settings={**_SETTINGS, "durability": durability}, data=Path(data)) as node,
    ):
        node.stop()
        began = time.perf_counter()
        node.start()
        took = time.perf_counter() - began
        sign_in = {"sasl.mechanism": "PLAIN", "sasl.username": "$ConnectionString"}
        plain = {"bootstrap.servers": node.kafka, "security.protocol": "SASL_PLAINTEXT", **sign_in}
        secure = {"bootstrap.servers": node.kafkas, "security.protocol": "SASL_SSL", "ssl.ca.location": node.ca_file}
        yield Broker(
            name=f"Hubmere, {durability}",
            pid=node.pid,
            plain={**plain, "sasl.password": node.emulator_connection_string},
            secure={**secure, **sign_in, "sasl.password": node.connection_string},
            password=node.emulator_connection_string,
            start_seconds=took,
        )


@contextlib.contextmanager
def peer(folder: Path) -> Iterator[Broker]:
    """Apache Kafka."""
    with apache_kafka.apache_kafka(folder / "apache", _TOPICS, PARTITIONS) as node:
        secure = {"security.protocol": "SSL", "ssl.ca.location": str(node.ca_file)}
        yield Broker(
            name="Apache Kafka",
            pid=node.pid,
            plain={"bootstrap.servers": node.plain},
            secure={"bootstrap.servers": node.tls, **secure},
            password=None,
            start_seconds=node.start_seconds,
        )


# --- what is measured


def timed(broker: Broker, measure: Callable[[], Requests | Flow]) -> Measurement:
    """Run a measurement; returns its result and the CPU time of the broker."""
    began = cpu_seconds(broker.pid)
    run = measure()
    used = cpu_seconds(broker.pid) - began
    count = run.count if isinstance(run, Requests) else run.messages
    return Measurement(rate=run.rate, cost_us=used / max(count, 1) * 1e6)


def singles(context: RunContext, broker: Broker, topic: str, seconds: float) -> Measurement:
    """Requests of one record each, pipelined on one connection."""
    batch = a_batch(1, ONE_RECORD_BYTES, int(time.time() * 1000))
    with RawProducer(broker.kafka_address, broker.password) as producer:
        return timed(
            broker,
            lambda: producer.produce(
                context.raw, topic, batch, partitions=PARTITIONS, in_flight=IN_FLIGHT, seconds=seconds
            ),
        )


def in_and_out(
    context: RunContext,
    brokers: list[Broker],
    topic: str,
    size_bytes: int,
    *,
    rounds: int = 1,
    secure: bool = False,
) -> tuple[list[list[Measurement]], list[list[Measurement]]]:
    """Rates of librdkafka: produce for a time, in several rounds, then consume, in as many; brokers in turns. It
    consumes all events: a client fetches ahead, and unused fetches would count as the broker's cost.
    """
    topics = [broker.topic(topic, secure=secure) for broker in brokers]
    counts = [0] * len(brokers)

    def produce(index: int) -> Flow:
        flow = context.rdkafka.produce(topics[index], size_bytes, context.seconds)
        counts[index] += flow.messages
        return flow

    def consume(index: int) -> Flow:
        return context.rdkafka.consume(topics[index], counts[index], CONSUME_SECONDS)

    def in_turns(work: Callable[[int], Flow]) -> list[list[Measurement]]:
        return [[timed(broker, partial(work, index)) for index, broker in enumerate(brokers)] for _ in range(rounds)]

    return in_turns(produce), in_turns(consume)


def latency(context: RunContext, broker: Broker, rate: int) -> tuple[float, float, float]:
    """Median and 99th percentile in ms from due time to arrival of a message, and the broker's share of a CPU."""
    began, cpu = time.perf_counter(), cpu_seconds(broker.pid)
    count = int(rate * context.seconds)
    waits = context.rdkafka.latencies_ms(broker.topic("paced"), PACED_BYTES, rate=rate, count=count)
    busy = (cpu_seconds(broker.pid) - cpu) / (time.perf_counter() - began)
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100], busy


# --- tables


def row(name: str, broker: str, value: float, unit: str, goal: str = "", comparison: str = "") -> None:
    """One line: the result of a broker, the goal, and the baseline."""
    print(f"  {name:<30}{broker:<18}{_number(value):>12} {unit:<6}{goal:<22}{comparison}", flush=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def show(context: RunContext, name: str, unit: str, factor: float, goal: str, rounds: list[list[Measurement]]) -> None:
    """The medians of one measurement for each broker, with the ratio to Apache Kafka if it is measured."""
    columns = list(zip(*rounds, strict=True))
    rates = [statistics.median(taken.rate for taken in column) * factor for column in columns]
    costs = [min(taken.cost_us for taken in column) for column in columns]
    has_peer = context.brokers[-1].password is None and len(columns) == len(context.brokers)
    for broker, rate, cost in zip(context.brokers, rates, costs, strict=False):
        comparison = f"broker's processor {cost:6.2f} s per million"
        if has_peer and broker is not context.brokers[-1]:
            comparison += (
                f"; {rate / rates[-1]:.2f} x the rate, {cost / costs[-1]:.2f} x the processor of {_peer(context)}"
            )
        row(name, broker.name, rate, unit, goal if broker is context.brokers[0] else "", comparison)


def _peer(context: RunContext) -> str:
    return context.brokers[-1].name


def measure_singles(context: RunContext) -> None:
    """One-record requests."""
    rounds = [
        [singles(context, broker, "singles", context.seconds) for broker in context.brokers]
        for _ in range(context.rounds)
    ]
    show(context, "one-record requests", "/s", 1.0, "(goal: 60,000; 3 x)", rounds)


def measure_flow(context: RunContext, *, secure: bool) -> None:
    """librdkafka's defaults with acks=all."""
    way = ", TLS" if secure else ""
    for name, size_bytes in (("small", SMALL), ("large", LARGE)):
        topic = f"secure-{name}" if secure else name
        rounds = 1 if secure else context.rounds
        produced, consumed = in_and_out(context, context.brokers, topic, size_bytes, rounds=rounds, secure=secure)
        show(context, f"produce, {size_bytes} B{way}", "MB/s", size_bytes / MB, "(goal: 1 x, 0.5 x CPU)", produced)
        show(context, f"consume, {size_bytes} B{way}", "MB/s", size_bytes / MB, "(goal: 1 x, 0.5 x CPU)", consumed)
        if not secure:
            least = send_cost_s_per_gb(context.folder, FETCH_BYTES, total_bytes=SENT_BYTES)
            row(f"read and send, {size_bytes} B", "the machine", least * size_bytes / 1000, "s per million, the least")


def measure_latency(context: RunContext) -> None:
    """End to end with linger 0."""
    goals = {"Hubmere, os": "(goal: p99 5)", "Hubmere, fsync": "(goal: p99 10)"}
    for rate in PACES:
        rounds = [[latency(context, broker, rate) for broker in context.brokers] for _ in range(context.rounds)]
        for broker, column in zip(context.brokers, zip(*rounds, strict=True), strict=True):
            p50, p99, busy = (statistics.median(numbers) for numbers in zip(*column, strict=True))
            goal = goals.get(broker.name, "") if rate == PACES[-1] else ""
            row(f"end to end, {rate:,}/s, p50", broker.name, p50, "ms", "", f"{busy:.0%} of a processor")
            row(f"end to end, {rate:,}/s, p99", broker.name, p99, "ms", goal)


def measure_rest(context: RunContext, rest_mb: list[float]) -> None:
    """Start and memory."""
    for broker, before in zip(context.brokers, rest_mb, strict=True):
        row("start to first connection", broker.name, broker.start_seconds, "s", "(goal: 1)" if broker.password else "")
        after = private_bytes(broker.pid) / MB
        row(
            "memory at rest",
            broker.name,
            before,
            "MB",
            "(goal: 100)" if broker.password else "",
            f"{after:,.0f} at the end",
        )


def warm_up(context: RunContext, broker: Broker) -> None:
    """Send requests before the measurement, so that the broker reaches its normal speed."""
    left, until = WARM_UP_REQUESTS, time.perf_counter() + WARM_UP_SECONDS
    while left > 0 and time.perf_counter() < until:
        left -= int(singles(context, broker, "warm", 1.0).rate)
    in_and_out(context, [broker], "warm", LARGE)


def measure_all(context: RunContext) -> None:
    """Every table."""
    rest_mb = [private_bytes(broker.pid) / MB for broker in context.brokers]
    for broker in context.brokers:
        warm_up(context, broker)
    measure_singles(context)
    measure_flow(context, secure=False)
    measure_latency(context)
    measure_flow(context, secure=True)
    measure_rest(context, rest_mb)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round, to check that everything works")
    options = parser.parse_args()
    seconds, rounds = (0.5, 1) if options.quick else (options.seconds, options.rounds)
    reason = apache_kafka.missing()
    print(f"load average before: {load_average():.1f}" + (f"; no Apache Kafka: {reason}" if reason else ""))
    with contextlib.ExitStack() as stack:
        try:
            raw = stack.enter_context(Library(raw_kafka.SOURCE))
            rdkafka = stack.enter_context(RdKafka())
        except BenchFailed as failure:
            sys.exit(f"not measured: {failure}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-kafka-")))
        brokers = [stack.enter_context(hubmere(folder, durability)) for durability in ("os", "fsync")]
        if reason is None:
            brokers.append(stack.enter_context(peer(folder)))
        context = RunContext(raw=raw, rdkafka=rdkafka, brokers=brokers, seconds=seconds, rounds=rounds, folder=folder)
        measure_all(context)
    print(f"load average after: {load_average():.1f}")


if __name__ == "__main__":
    main()
