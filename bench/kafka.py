"""Kafka in the whole product (sign-in, quotas, log, group commit), beside Apache Kafka 4 with the same clients.

    python -m bench.kafka [--seconds 1.5] [--rounds 3] [--quick]

Two clients, both C: a raw one that pipelines requests of one record, so that the broker is the limit, and librdkafka,
which customers have. Both brokers run at once and are measured in turns; the median of each is shown. Apache Kafka
acknowledges from the page cache, as `os` does, and without sign-in; its column is left out where its jars are not
there. Read the ratios and the processor time; rates depend on the machine and on who else uses it.
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
# What librdkafka fetches of a partition at a time, and how much is sent to see what sending costs the machine at least.
FETCH_BYTES, SENT_BYTES = 1024 * 1024, 1_000_000_000
# Warm-up of the JVM: requests before the measurement, or a time.
WARM_UP_REQUESTS, WARM_UP_SECONDS = 50_000, 12.0
# Rates that are never reached here: the quotas are counted as for any customer, and refuse nothing.
_ENDLESS = 10**13
_SETTINGS: dict[str, str | int | float | bool | Path | list[str]] = {
    f"limits.{rate}_per_unit": _ENDLESS for rate in ("ingress_bytes", "ingress_events", "egress_bytes", "egress_events")
}
_TOPICS = ("singles", "small", "large", "paced", "secure-small", "secure-large", "warm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every measurement needs."""

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
    def place(self) -> tuple[str, int]:
        """Where the raw client goes."""
        host, _, port = self.plain["bootstrap.servers"].rpartition(":")
        return host, int(port)

    def topic(self, name: str, *, secure: bool = False) -> Topic:
        """A topic, by the way that is measured."""
        return Topic(name=name, partitions=PARTITIONS, settings=self.secure if secure else self.plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One measurement: a rate, and microseconds of the broker's processor time for each message."""

    rate: float
    cost_us: float


# --- brokers


@contextlib.contextmanager
def hubmere(folder: Path, durability: str) -> Iterator[Broker]:
    """A fresh node; its second start is the one that is timed, as for Kafka, whose folder is made before it starts."""
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


def timed(broker: Broker, measure: Callable[[], Requests | Flow]) -> Taken:
    """Run a measurement; returns its result and the CPU time of the broker."""
    began = cpu_seconds(broker.pid)
    run = measure()
    used = cpu_seconds(broker.pid) - began
    count = run.count if isinstance(run, Requests) else run.messages
    return Taken(rate=run.rate, cost_us=used / max(count, 1) * 1e6)


def singles(bench: Bench, broker: Broker, topic: str, seconds: float) -> Taken:
    """Requests of one record each, pipelined on one connection."""
    batch = a_batch(1, ONE_RECORD_BYTES, int(time.time() * 1000))
    with RawProducer(broker.place, broker.password) as producer:
        return timed(
            broker,
            lambda: producer.produce(
                bench.raw, topic, batch, partitions=PARTITIONS, in_flight=IN_FLIGHT, seconds=seconds
            ),
        )


def in_and_out(
    bench: Bench, brokers: list[Broker], topic: str, size_bytes: int, *, rounds: int = 1, secure: bool = False
) -> tuple[list[list[Taken]], list[list[Taken]]]:
    """Rates of librdkafka: produce for a time, in several rounds, then consume, in as many; brokers in turns. It
    consumes all events: a client fetches ahead, and unused fetches would count as the broker's cost.
    """
    topics = [broker.topic(topic, secure=secure) for broker in brokers]
    counts = [0] * len(brokers)

    def produce(place: int) -> Flow:
        flow = bench.rdkafka.produce(topics[place], size_bytes, bench.seconds)
        counts[place] += flow.messages
        return flow

    def consume(place: int) -> Flow:
        return bench.rdkafka.consume(topics[place], counts[place], CONSUME_SECONDS)

    def in_turns(work: Callable[[int], Flow]) -> list[list[Taken]]:
        return [[timed(broker, partial(work, place)) for place, broker in enumerate(brokers)] for _ in range(rounds)]

    return in_turns(produce), in_turns(consume)


def latency(bench: Bench, broker: Broker, rate: int) -> tuple[float, float, float]:
    """Median and 99th percentile in milliseconds from due to received, and the part of a processor that it took."""
    began, cpu = time.perf_counter(), cpu_seconds(broker.pid)
    count = int(rate * bench.seconds)
    waits = bench.rdkafka.latencies_ms(broker.topic("paced"), PACED_BYTES, rate=rate, count=count)
    busy = (cpu_seconds(broker.pid) - cpu) / (time.perf_counter() - began)
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100], busy


# --- tables


def row(name: str, broker: str, value: float, unit: str, aim: str = "", beside: str = "") -> None:
    """One line: the result of a broker, the goal, and the baseline."""
    print(f"  {name:<30}{broker:<18}{_number(value):>12} {unit:<6}{aim:<22}{beside}", flush=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def show(bench: Bench, name: str, unit: str, factor: float, aim: str, rounds: list[list[Taken]]) -> None:
    """The medians of one measurement for each broker, with the ratio to the last where that is the peer."""
    columns = list(zip(*rounds, strict=True))
    rates = [statistics.median(taken.rate for taken in column) * factor for column in columns]
    costs = [min(taken.cost_us for taken in column) for column in columns]
    has_peer = bench.brokers[-1].password is None and len(columns) == len(bench.brokers)
    for broker, rate, cost in zip(bench.brokers, rates, costs, strict=False):
        beside = f"broker's processor {cost:6.2f} s per million"
        if has_peer and broker is not bench.brokers[-1]:
            beside += f"; {rate / rates[-1]:.2f} x the rate, {cost / costs[-1]:.2f} x the processor of {_peer(bench)}"
        row(name, broker.name, rate, unit, aim if broker is bench.brokers[0] else "", beside)


def _peer(bench: Bench) -> str:
    return bench.brokers[-1].name


def measure_singles(bench: Bench) -> None:
    """One-record requests."""
    rounds = [
        [singles(bench, broker, "singles", bench.seconds) for broker in bench.brokers] for _ in range(bench.rounds)
    ]
    show(bench, "one-record requests", "/s", 1.0, "(aim: 60,000; 3 x)", rounds)


def measure_flow(bench: Bench, *, secure: bool) -> None:
    """librdkafka's defaults with acks=all."""
    way = ", TLS" if secure else ""
    for name, size_bytes in (("small", SMALL), ("large", LARGE)):
        topic = f"secure-{name}" if secure else name
        rounds = 1 if secure else bench.rounds
        produced, consumed = in_and_out(bench, bench.brokers, topic, size_bytes, rounds=rounds, secure=secure)
        show(bench, f"produce, {size_bytes} B{way}", "MB/s", size_bytes / MB, "(aim: 1 x, 0.5 x CPU)", produced)
        show(bench, f"consume, {size_bytes} B{way}", "MB/s", size_bytes / MB, "(aim: 1 x, 0.5 x CPU)", consumed)
        if not secure:
            least = send_cost_s_per_gb(bench.folder, FETCH_BYTES, total_bytes=SENT_BYTES)
            row(f"read and send, {size_bytes} B", "the machine", least * size_bytes / 1000, "s per million, the least")


def measure_latency(bench: Bench) -> None:
    """End to end with linger 0."""
    aims = {"Hubmere, os": "(aim: p99 5)", "Hubmere, fsync": "(aim: p99 10)"}
    for rate in PACES:
        rounds = [[latency(bench, broker, rate) for broker in bench.brokers] for _ in range(bench.rounds)]
        for broker, column in zip(bench.brokers, zip(*rounds, strict=True), strict=True):
            p50, p99, busy = (statistics.median(numbers) for numbers in zip(*column, strict=True))
            aim = aims.get(broker.name, "") if rate == PACES[-1] else ""
            row(f"end to end, {rate:,}/s, p50", broker.name, p50, "ms", "", f"{busy:.0%} of a processor")
            row(f"end to end, {rate:,}/s, p99", broker.name, p99, "ms", aim)


def measure_rest(bench: Bench, rest_mb: list[float]) -> None:
    """Start and memory."""
    for broker, before in zip(bench.brokers, rest_mb, strict=True):
        row("start to first connection", broker.name, broker.start_seconds, "s", "(aim: 1)" if broker.password else "")
        after = private_bytes(broker.pid) / MB
        row(
            "memory at rest",
            broker.name,
            before,
            "MB",
            "(aim: 100)" if broker.password else "",
            f"{after:,.0f} at the end",
        )


def warm_up(bench: Bench, broker: Broker) -> None:
    """Let a broker reach its speed."""
    left, until = WARM_UP_REQUESTS, time.perf_counter() + WARM_UP_SECONDS
    while left > 0 and time.perf_counter() < until:
        left -= int(singles(bench, broker, "warm", 1.0).rate)
    in_and_out(bench, [broker], "warm", LARGE)


def measure_all(bench: Bench) -> None:
    """Every table."""
    rest_mb = [private_bytes(broker.pid) / MB for broker in bench.brokers]
    for broker in bench.brokers:
        warm_up(bench, broker)
    measure_singles(bench)
    measure_flow(bench, secure=False)
    measure_latency(bench)
    measure_flow(bench, secure=True)
    measure_rest(bench, rest_mb)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that everything works")
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
        bench = Bench(raw=raw, rdkafka=rdkafka, brokers=brokers, seconds=seconds, rounds=rounds, folder=folder)
        measure_all(bench)
    print(f"load average after: {load_average():.1f}")


if __name__ == "__main__":
    main()
