"""Single events, compared with other brokers, in one run and in turns.

    python -m bench.peers [--seconds 1.5] [--rounds 3]

Each row names the durability of an acknowledged event: in the page cache of one machine, or flushed to its disk. Peers
that are not on the machine are left out and named: Apache Kafka (`make kafka-jars`), RabbitMQ (Debian's package) and
NATS (`python -m bench.load.nats`). Only Hubmere authenticates its clients. The client of NATS is Python.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.curves.common import Subject, Tools, a_node, batch_now
from bench.load import apache_kafka, nats, rabbitmq, raw_kafka
from bench.load.library import BenchFailed, Library
from bench.load.machine import cpu_seconds, load_average
from bench.load.rabbitmq import RabbitMq
from bench.load.raw_amqp import Address, Client, Pump, event
from bench.load.raw_kafka import RawProducer

HUB = "events"
SIZES = (100, 1024)
IN_FLIGHT = 100
PAGE_CACHE, FLUSHED = "page cache", "flushed"

# Publishes for some seconds; returns the number of acknowledged events and the seconds.
Publish = Callable[[int], tuple[int, float]]


@dataclass(slots=True, kw_only=True)
class Contender:
    """One protocol of one broker, and its results: events per second and µs of the broker for each, by size."""

    name: str
    safety: str
    pid: int
    publish: Publish
    taken: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    def measure(self, size_bytes: int) -> None:
        """Publish for some seconds, and record rate and cost."""
        before = cpu_seconds(self.pid)
        count, seconds = self.publish(size_bytes)
        used = cpu_seconds(self.pid) - before
        self.taken.setdefault(size_bytes, []).append((count / seconds, used / max(count, 1) * 1e6))


def by_kafka(tools: Tools, address: tuple[str, int], password: str | None) -> Publish:
    """Requests of one event, to one partition."""

    def publish(size_bytes: int) -> tuple[int, float]:
        with RawProducer(address, password) as producer:
            run = producer.produce(
                tools.kafka, HUB, batch_now(1, size_bytes), partitions=1, in_flight=IN_FLIGHT, seconds=tools.seconds
            )
        return run.count, run.seconds

    return publish


def by_amqp(tools: Tools, address: Address, target: str) -> Publish:
    """Single transfers on one link."""

    def publish(size_bytes: int) -> tuple[int, float]:
        with Client(address) as client:
            link = client.sender(target)
            run = tools.amqp.send(
                client, link, event(size_bytes), batch=False, in_flight=IN_FLIGHT, seconds=tools.seconds
            )
        return run.deliveries, run.seconds

    return publish


def by_nats(tools: Tools, server: nats.Nats) -> Publish:
    """Single messages to a stream."""

    def publish(size_bytes: int) -> tuple[int, float]:
        run = server.publish(size_bytes, in_flight=IN_FLIGHT, seconds=tools.seconds)
        return run.deliveries, run.seconds

    return publish


def contenders(tools: Tools, stack: contextlib.ExitStack) -> list[Contender]:
    """Every broker that is installed on this machine."""
    found = []
    for durability, safety in (("os", PAGE_CACHE), ("fsync", FLUSHED)):
        subject: Subject = stack.enter_context(a_node(tools, {HUB: 1}, durability))
        pid, amqp = subject.node.pid, by_amqp(tools, subject.amqp_address, f"{HUB}/Partitions/0")
        kafka = by_kafka(tools, subject.kafka_address, subject.password)
        found.append(Contender(name=f"Hubmere, {durability}, Kafka", safety=safety, pid=pid, publish=kafka))
        found.append(Contender(name=f"Hubmere, {durability}, AMQP", safety=safety, pid=pid, publish=amqp))
    if reason := apache_kafka.missing():
        print(f"  without Apache Kafka: {reason}")
    else:
        node = stack.enter_context(apache_kafka.apache_kafka(tools.folder / "apache", [HUB], 1))
        host, _, port = node.plain.rpartition(":")
        kafka = by_kafka(tools, (host, int(port)), None)
        found.append(Contender(name="Apache Kafka 4, Kafka", safety=PAGE_CACHE, pid=node.pid, publish=kafka))
    if reason := rabbitmq.missing():
        print(f"  without RabbitMQ: {reason}")
    else:
        rabbit = stack.enter_context(RabbitMq())
        amqp = by_amqp(tools, rabbit.address, rabbit.address_of(rabbitmq.STREAM))
        name = f"RabbitMQ {rabbit.version} stream, AMQP 1.0"
        found.append(Contender(name=name, safety=PAGE_CACHE, pid=rabbit.pid, publish=amqp))
    if reason := nats.missing():
        print(f"  without NATS: {reason}")
        return found
    for is_flushing, safety in ((False, PAGE_CACHE), (True, FLUSHED)):
        server = stack.enter_context(nats.nats(tools.folder, is_flushing=is_flushing))
        name = f"NATS JetStream {nats.VERSION}" + (", sync always" if is_flushing else "")
        found.append(Contender(name=name, safety=safety, pid=server.pid, publish=by_nats(tools, server)))
    return found


def show(found: list[Contender]) -> None:
    """One row for each contender, with its ratio to the first one with the same durability."""
    print(
        f"  {'':<36}{'acknowledged is':<18}" + "".join(f"{f'{size} B, events/s':>22}{'µs each':>10}" for size in SIZES)
    )
    first = {each.safety: each for each in reversed(found)}
    for each in found:
        cells = []
        for size in SIZES:
            rate, cost = (statistics.median(column) for column in zip(*each.taken[size], strict=True))
            base = statistics.median(rate for rate, _ in first[each.safety].taken[size])
            cells.append(f"{f'{rate:,.0f} ({rate / base:.2f} x)':>22}{cost:>10.1f}")
        print(f"  {each.name:<36}{each.safety:<18}{''.join(cells)}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"load average before: {load_average():.1f}")
    with contextlib.ExitStack() as stack:
        try:
            kafka, amqp = stack.enter_context(Library(raw_kafka.SOURCE)), stack.enter_context(Pump())
        except BenchFailed as failure:
            sys.exit(f"not measured: {failure}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-peers-")))
        tools = Tools(kafka=kafka, amqp=amqp, folder=folder, seconds=options.seconds)
        found = contenders(tools, stack)
        # The first round is not counted: a JVM gets faster while it runs.
        for number in range(options.rounds + 1):
            for each in found:
                for size in SIZES:
                    each.measure(size)
                if number == 0:
                    each.taken.clear()
        show(found)
    print(f"load average after: {load_average():.1f}")


if __name__ == "__main__":
    main()
