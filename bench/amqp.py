"""AMQP in the whole product (sign-in, quotas, log, group commit), beside RabbitMQ, the disk, and what the SDK sees.

    python -m bench.amqp [--seconds 1.5] [--rounds 3]

The client is C behind a Python handshake (`bench.load`), so that the broker is the limit; broker and client share the
machine. Rounds of what is compared alternate, and the median of each is shown. RabbitMQ's column is left out where it
is not installed. Read the ratios; absolute numbers depend on the machine and on who else uses it.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, TransportType
from bench.load import crowd, rabbitmq
from bench.load.library import BenchFailed
from bench.load.machine import MB, cpu_seconds, fdatasync_p50_ms, load_average, raw_write_mb_per_s
from bench.load.rabbitmq import RabbitMq
from bench.load.raw_amqp import Address, Client, Pump, Run, batch_of, event, from_first, from_now

from hubmere.model.connection_string import ConnectionString
from hubmere.records import kernels
from hubmere.settings import HubSetting
from hubmere.testing import Node

HUB = "bench"
# Each measurement has its own partition, so that readers get only its events.
SMALL_BATCHES, SINGLES, LARGE_BATCHES, PACED, SDK = range(5)
SMALL, LARGE = 100, 1024
# As many events of 1 KB as fit one publication of the Standard tier (1 MiB).
BATCH_EVENTS = 1000
BATCHES_IN_FLIGHT = 4
SINGLES_IN_FLIGHT = 100
LATENCY_RATE, LATENCY_COUNT = 1000, 1500
FLUSHES = 300
SDK_SECONDS = 2.0
# Rates that are never reached here: the quotas are counted as for any customer, and refuse nothing.
_ENDLESS = 10**13
_RATES = ("ingress_bytes", "ingress_events", "egress_bytes", "egress_events")
_SETTINGS: dict[str, str | int | float | bool | Path | list[str]] = {
    **{f"limits.{rate}_per_unit": _ENDLESS for rate in _RATES},
    "limits.connections": "unlimited",
}

Measure = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every measurement needs."""

    pump: Pump
    rabbit: RabbitMq | None
    folder: Path
    seconds: float
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One node under test, and its cost in the last measurement: microseconds of CPU time per event, by round."""

    address: Address
    pid: int
    connection_string: str
    costs_us: list[float] = field(default_factory=list)

    def watch(self, events_per_delivery: int, measure: Callable[[], Run]) -> Run:
        """Run a measurement and record its cost."""
        began = cpu_seconds(self.pid)
        run = measure()
        used = cpu_seconds(self.pid) - began
        self.costs_us.append(used / (run.deliveries * events_per_delivery) * 1e6)
        return run

    def take_cost_us(self) -> float:
        """The least that a round has cost since this was last asked."""
        cost = min(self.costs_us)
        self.costs_us.clear()
        return cost


@contextlib.contextmanager
def a_node(bench: Bench, durability: str, *, pure: bool = False) -> Iterator[Broker]:
    """A fresh node with one hub, its kernels compiled or not."""
    hubs = [HubSetting(name=HUB, partition_count=5)]
    with (
        _interpreted(pure),
        tempfile.TemporaryDirectory(dir=bench.folder) as data,
        Node(hubs=hubs, settings={**_SETTINGS, "durability": durability}, data=Path(data)) as node,
    ):
        parts = ConnectionString.parse(node.emulator_connection_string)
        assert parts.key_name is not None
        assert parts.key is not None
        port = int(node.ready.amqp.rpartition(":")[2]) if node.ready.amqp else 0
        address = Address(host="127.0.0.1", port=port, user=parts.key_name, password=parts.key)
        yield Broker(address=address, pid=node.pid, connection_string=node.emulator_connection_string)


@contextlib.contextmanager
def _interpreted(wanted: bool) -> Iterator[None]:
    if wanted:
        os.environ["HUBMERE_PURE"] = "1"
    try:
        yield
    finally:
        os.environ.pop("HUBMERE_PURE", None)


def target_of(partition: int) -> str:
    """Where events for a partition are sent."""
    return f"{HUB}/Partitions/{partition}"


def source_of(partition: int) -> str:
    """Where events of a partition are received."""
    return f"{HUB}/ConsumerGroups/$Default/Partitions/{partition}"


# --- what is measured


def send(bench: Bench, address: Address, target: str, payload: bytes, *, is_batch: bool = False) -> Run:
    """Send one payload again and again, as many in flight as its kind has."""
    in_flight = BATCHES_IN_FLIGHT if is_batch else SINGLES_IN_FLIGHT
    with Client(address) as client:
        link = client.sender(target)
        return bench.pump.send(client, link, payload, batch=is_batch, in_flight=in_flight, seconds=bench.seconds)


def batches_in(bench: Bench, broker: Broker) -> float:
    """Megabytes of bodies per second, 1 KB events in batches."""
    payload = batch_of(event(LARGE), BATCH_EVENTS)
    run = broker.watch(
        BATCH_EVENTS, lambda: send(bench, broker.address, target_of(LARGE_BATCHES), payload, is_batch=True)
    )
    return run.rate * BATCH_EVENTS * LARGE / MB


def singles_in(bench: Bench, broker: Broker) -> float:
    """Events per second, one per delivery."""
    return broker.watch(1, lambda: send(bench, broker.address, target_of(SINGLES), event(SMALL))).rate


def fill(bench: Bench, broker: Broker) -> int:
    """Put small events into their partition; how many."""
    payload = batch_of(event(SMALL), BATCH_EVENTS)
    return send(bench, broker.address, target_of(SMALL_BATCHES), payload, is_batch=True).deliveries * BATCH_EVENTS


def events_out(bench: Bench, broker: Broker, count: int) -> float:
    """Events per second from the beginning of a partition over one link."""
    with Client(broker.address) as client:
        link = client.receiver(source_of(SMALL_BATCHES), from_first())
        run = broker.watch(1, lambda: bench.pump.receive(client, link, limit=count, seconds=bench.seconds))
    return run.rate


def rabbit_in(bench: Bench, rabbit: RabbitMq, size_bytes: int) -> float:
    """Single sends to a stream, per second."""
    return send(bench, rabbit.address, rabbitmq.address_of(rabbitmq.STREAM), event(size_bytes)).rate


def rabbit_out(bench: Bench, rabbit: RabbitMq) -> float:
    """The same from a quorum queue: this RabbitMQ does not give a stream from its beginning over AMQP 1.0."""
    target = rabbitmq.address_of(rabbitmq.QUORUM)
    sent = send(bench, rabbit.address, target, event(SMALL))
    with Client(rabbit.address) as client:
        return bench.pump.receive(client, client.receiver(target), limit=sent.deliveries, seconds=bench.seconds).rate


def latency(bench: Bench, broker: Broker) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds from publish to receive, at a steady rate."""
    with Client(broker.address) as sending, Client(broker.address) as receiving:
        sender = sending.sender(target_of(PACED))
        receiver = receiving.receiver(source_of(PACED), from_now())
        waits = bench.pump.latencies_ms(
            (sending, sender), (receiving, receiver), event(SMALL), rate=LATENCY_RATE, count=LATENCY_COUNT
        )
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


def sdk_send(broker: Broker) -> float:
    """Events per second that a program with the Azure SDK publishes in batches, building them included."""
    body = event(SMALL)[5:]
    with EventHubProducerClient.from_connection_string(broker.connection_string, eventhub_name=HUB) as producer:
        # The first one connects, signs in and attaches, with pauses of the SDK's own.
        producer.send_event(EventData(body), partition_id=str(SDK))
        sent, began = 0, time.perf_counter()
        while time.perf_counter() - began < SDK_SECONDS:
            batch = producer.create_batch(partition_id=str(SDK))
            for _ in range(BATCH_EVENTS):
                batch.add(EventData(body))
            producer.send_batch(batch)
            sent += BATCH_EVENTS
        return sent / (time.perf_counter() - began)


def sdk_receive(broker: Broker) -> float:
    """Events per second that a program with the Azure SDK receives from one partition."""
    moments: list[tuple[float, int]] = []
    consumer = EventHubConsumerClient.from_connection_string(
        broker.connection_string, "$Default", eventhub_name=HUB, transport_type=TransportType.Amqp
    )

    def note(_partition: object, events: list[EventData]) -> None:
        moments.append((time.perf_counter(), len(events)))
        if moments[-1][0] - moments[0][0] > SDK_SECONDS or not events:
            consumer.close()

    with consumer:
        consumer.receive_batch(
            note, partition_id=str(SDK), starting_position="-1", max_batch_size=1000, max_wait_time=1, prefetch=3000
        )
    return sum(count for _, count in moments[1:]) / (moments[-1][0] - moments[0][0])


# --- tables


def alternate(rounds: int, *measures: Measure) -> list[float]:
    """The median of each measure, all of them taken in turn."""
    taken = [[measure() for measure in measures] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def row(name: str, ours: float, unit: str, aim: str, beside: str = "", peer: float | None = None) -> None:
    """One line: the result, the goal, and the ratio to the baseline."""
    ratio = f"{ours / peer:>8.2f} x {beside} ({_number(peer)})" if peer else f"{'':>11}{beside}"
    print(f"  {name:<44}{_number(ours):>12} {unit:<6}{aim:<20}{ratio}", flush=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def cost_row(broker: Broker) -> None:
    """What the measurement above took of a processor: hardly moved by others on the machine, as rates are."""
    row("  cost to the broker, best round", broker.take_cost_us(), "us", "", "per event")


def measure_batches(bench: Bench, broker: Broker, durability: str, aim: str) -> None:
    """Batches of 1 KB events, compared with plain writes to the same disk and with single sends to RabbitMQ."""
    block = batch_of(event(LARGE), BATCH_EVENTS)
    sync = durability == "fsync"
    measures: list[Measure] = [
        lambda: batches_in(bench, broker),
        lambda: raw_write_mb_per_s(bench.folder, block, seconds=bench.seconds, sync=sync),
    ]
    rabbit = bench.rabbit
    if rabbit is not None and not sync:
        measures.append(lambda: rabbit_in(bench, rabbit, LARGE) * LARGE / MB)
    ours, raw, *peer = alternate(bench.rounds, *measures)
    row(f"batches in, 1 KB events, {durability}", ours, "MB/s", aim, "raw write", raw)
    if peer:
        row("", ours, "MB/s", "", "RabbitMQ stream, single sends", peer[0])
    cost_row(broker)


def measure_singles(bench: Bench, broker: Broker, form: str, aim: str) -> None:
    """Single sends of 100 bytes, a hundred in flight."""
    measures: list[Measure] = [lambda: singles_in(bench, broker)]
    rabbit = bench.rabbit
    if rabbit is not None:
        measures.append(lambda: rabbit_in(bench, rabbit, SMALL))
    ours, *peer = alternate(bench.rounds, *measures)
    row(f"single sends, 100 B, os, {form}", ours, "/s", aim, "RabbitMQ stream", peer[0] if peer else None)
    cost_row(broker)


def measure_out(bench: Bench, broker: Broker, form: str, aim: str) -> None:
    """Small events out over one link."""
    count = fill(bench, broker)
    measures: list[Measure] = [lambda: events_out(bench, broker, count)]
    rabbit = bench.rabbit
    if rabbit is not None:
        measures.append(lambda: rabbit_out(bench, rabbit))
    ours, *peer = alternate(bench.rounds, *measures)
    row(f"events out, 100 B, one link, {form}", ours, "/s", aim, "RabbitMQ quorum queue", peer[0] if peer else None)
    cost_row(broker)


def measure_latency(bench: Bench, broker: Broker) -> None:
    """Latency from publish to receive, compared with one flush of the disk."""
    rounds = [
        (fdatasync_p50_ms(bench.folder, count=FLUSHES, interval_s=1 / LATENCY_RATE), *latency(bench, broker))
        for _ in range(bench.rounds)
    ]
    flush_ms, p50, p99 = map(statistics.median, zip(*rounds, strict=True))
    row("publish to receive, 1,000/s, fsync, p50", p50, "ms", "(aim: 2)", "fdatasync p50", flush_ms)
    row("publish to receive, 1,000/s, fsync, p99", p99, "ms", "(aim: 10)", "fdatasync p50", flush_ms)


def measure_memory(broker: Broker) -> None:
    """Idle connections and links."""
    found = crowd.footprint(broker.address, broker.pid, HUB)
    whole_mb = found.bytes_per_connection * crowd.CONNECTIONS / MB
    beside = f"measured with {found.connections:,}"
    row("10,000 idle connections with a link each", whole_mb, "MB", "(aim: 100)", beside)
    row("  each connection", found.bytes_per_connection / 1024, "KiB", "(aim: 5)")
    row("  each further link", found.bytes_per_further_link / 1024, "KiB", "")


def measure_sdk(broker: Broker) -> None:
    """What a program with the Azure SDK for Python gets, which is its own limit."""
    row("Azure SDK for Python: send_batch, 100 B", sdk_send(broker), "/s", "")
    row("Azure SDK for Python: receive_batch, 100 B", sdk_receive(broker), "/s", "")


def measure_all(bench: Bench) -> None:
    """Every table, node by node."""
    form = "interpreted" if str(kernels.frames.__file__).endswith(".py") else "compiled"
    print(f"  {'':<44}{'median':>12} {'':<6}{'':<20}{'ratio':>8}")
    with a_node(bench, "os") as broker:
        measure_batches(bench, broker, "os", "(aim: 300)")
        measure_singles(bench, broker, form, "(aim: 100,000; 3 x)")
        measure_out(bench, broker, form, "(aim: 500,000)" if form == "compiled" else "(aim: 200,000)")
    with a_node(bench, "fsync") as broker:
        measure_batches(bench, broker, "fsync", "(aim: 200)")
        measure_latency(bench, broker)
        measure_sdk(broker)
    with a_node(bench, "os") as broker:
        measure_memory(broker)
    if form == "compiled":
        with a_node(bench, "os", pure=True) as broker:
            measure_singles(bench, broker, "interpreted", "")
            measure_out(bench, broker, "interpreted", "(aim: 200,000)")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    reason = rabbitmq.missing()
    print(f"load average before: {load_average():.1f}" + (f"; no RabbitMQ column: {reason}" if reason else ""))
    with contextlib.ExitStack() as stack:
        try:
            pump = stack.enter_context(Pump())
        except BenchFailed as failure:
            sys.exit(f"not measured: {failure}")
        rabbit = None if reason else stack.enter_context(RabbitMq())
        if rabbit is not None:
            print(f"beside RabbitMQ {rabbit.version}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-amqp-")))
        measure_all(Bench(pump=pump, rabbit=rabbit, folder=folder, seconds=options.seconds, rounds=options.rounds))
    print(f"load average after: {load_average():.1f}")


if __name__ == "__main__":
    main()
