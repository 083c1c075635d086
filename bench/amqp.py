"""AMQP throughput and latency of a whole node, compared with RabbitMQ, with the disk, and with the Azure SDK as client.

    python -m bench.amqp [--seconds 1.5] [--rounds 3]

The node signs clients in, counts quotas and writes its log as in production. After a handshake in Python the client is
C (`bench.load`), so that the broker is the limit and not the client; both share the machine. The brokers are measured
in turns, and the median of each is shown. RabbitMQ's column is left out where it is not installed. Compare the ratios;
absolute numbers depend on the machine and on its other load.
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

from hubmere.model.security.connection_string import ConnectionString
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
# These rates are never reached here: quotas are counted as for any customer, but refuse nothing.
_ENDLESS = 10**13
_RATES = ("ingress_bytes", "ingress_events", "egress_bytes", "egress_events")
_SETTINGS: dict[str, str | int | float | bool | Path | list[str]] = {
    **{f"limits.{rate}_per_unit": _ENDLESS for rate in _RATES},
    "limits.connections": "unlimited",
}

Measure = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Clients, peers and options that every measurement uses."""

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
        """The lowest cost of a round since the last call."""
        cost = min(self.costs_us)
        self.costs_us.clear()
        return cost


@contextlib.contextmanager
def a_node(context: RunContext, durability: str, *, pure: bool = False) -> Iterator[Broker]:
    """A new node with one hub; `pure` runs its kernels interpreted."""
    hubs = [HubSetting(name=HUB, partition_count=5)]
    with (
        _interpreted(pure),
        tempfile.TemporaryDirectory(dir=context.folder) as data,
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
    """The AMQP address to which events for a partition are sent."""
    return f"{HUB}/Partitions/{partition}"


def source_of(partition: int) -> str:
    """The AMQP address from which events of a partition are received."""
    return f"{HUB}/ConsumerGroups/$Default/Partitions/{partition}"


# --- what is measured


def send(context: RunContext, address: Address, target: str, payload: bytes, *, is_batch: bool = False) -> Run:
    """Send the same payload repeatedly, with as many deliveries in flight as is usual for its kind."""
    in_flight = BATCHES_IN_FLIGHT if is_batch else SINGLES_IN_FLIGHT
    with Client(address) as client:
        link = client.sender(target)
        return context.pump.send(client, link, payload, batch=is_batch, in_flight=in_flight, seconds=context.seconds)


def batches_in(context: RunContext, broker: Broker) -> float:
    """Megabytes of bodies per second, 1 KB events in batches."""
    payload = batch_of(event(LARGE), BATCH_EVENTS)
    run = broker.watch(
        BATCH_EVENTS, lambda: send(context, broker.address, target_of(LARGE_BATCHES), payload, is_batch=True)
    )
    return run.rate * BATCH_EVENTS * LARGE / MB


def singles_in(context: RunContext, broker: Broker) -> float:
    """Events per second, one per delivery."""
    return broker.watch(1, lambda: send(context, broker.address, target_of(SINGLES), event(SMALL))).rate


def fill(context: RunContext, broker: Broker) -> int:
    """Publish small events to their partition; returns how many."""
    payload = batch_of(event(SMALL), BATCH_EVENTS)
    return send(context, broker.address, target_of(SMALL_BATCHES), payload, is_batch=True).deliveries * BATCH_EVENTS


def events_out(context: RunContext, broker: Broker, count: int) -> float:
    """Events per second from the beginning of a partition over one link."""
    with Client(broker.address) as client:
        link = client.receiver(source_of(SMALL_BATCHES), from_first())
        run = broker.watch(1, lambda: context.pump.receive(client, link, limit=count, seconds=context.seconds))
    return run.rate


def rabbit_in(context: RunContext, rabbit: RabbitMq, size_bytes: int) -> float:
    """Single sends per second to a RabbitMQ stream."""
    return send(context, rabbit.address, rabbit.address_of(rabbitmq.STREAM), event(size_bytes)).rate


def rabbit_out(context: RunContext, rabbit: RabbitMq) -> float:
    """Events per second from a quorum queue: this RabbitMQ delivers no stream from its start over AMQP 1.0."""
    target = rabbit.address_of(rabbitmq.QUORUM)
    sent = send(context, rabbit.address, target, event(SMALL))
    with Client(rabbit.address) as client:
        receiver = client.receiver(target)
        return context.pump.receive(client, receiver, limit=sent.deliveries, seconds=context.seconds).rate


def latency(context: RunContext, broker: Broker) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds from publish to receive, at a steady rate."""
    with Client(broker.address) as sending, Client(broker.address) as receiving:
        sender = sending.sender(target_of(PACED))
        receiver = receiving.receiver(source_of(PACED), from_now())
        waits = context.pump.latencies_ms(
            (sending, sender), (receiving, receiver), event(SMALL), rate=LATENCY_RATE, count=LATENCY_COUNT
        )
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


def sdk_send(broker: Broker) -> float:
    """Events per second that a program with the Azure SDK publishes in batches, building them included."""
    body = event(SMALL)[5:]
    with EventHubProducerClient.from_connection_string(broker.connection_string, eventhub_name=HUB) as producer:
        # The first send connects, signs in and attaches; the SDK pauses meanwhile.
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
    """The median of each measure; the measures run in turns."""
    taken = [[measure() for measure in measures] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def row(name: str, ours: float, unit: str, goal: str, comparison: str = "", peer: float | None = None) -> None:
    """One line: the result, the goal, and the ratio to the baseline."""
    ratio = f"{ours / peer:>8.2f} x {comparison} ({_number(peer)})" if peer else f"{'':>11}{comparison}"
    print(f"  {name:<44}{_number(ours):>12} {unit:<6}{goal:<20}{ratio}", flush=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def cost_row(broker: Broker) -> None:
    """CPU time per event in the measurement above; other load on the machine changes it less than the rate."""
    row("  cost to the broker, best round", broker.take_cost_us(), "us", "", "per event")


def measure_batches(context: RunContext, broker: Broker, durability: str, goal: str) -> None:
    """Batches of 1 KB events, compared with plain writes to the same disk and with single sends to RabbitMQ."""
    block = batch_of(event(LARGE), BATCH_EVENTS)
    sync = durability == "fsync"
    measures: list[Measure] = [
        lambda: batches_in(context, broker),
        lambda: raw_write_mb_per_s(context.folder, block, seconds=context.seconds, sync=sync),
    ]
    rabbit = context.rabbit
    if rabbit is not None and not sync:
        measures.append(lambda: rabbit_in(context, rabbit, LARGE) * LARGE / MB)
    ours, raw, *peer = alternate(context.rounds, *measures)
    row(f"batches in, 1 KB events, {durability}", ours, "MB/s", goal, "raw write", raw)
    if peer:
        row("", ours, "MB/s", "", "RabbitMQ stream, single sends", peer[0])
    cost_row(broker)


def measure_singles(context: RunContext, broker: Broker, form: str, goal: str) -> None:
    """Single sends of 100 bytes, a hundred in flight."""
    measures: list[Measure] = [lambda: singles_in(context, broker)]
    rabbit = context.rabbit
    if rabbit is not None:
        measures.append(lambda: rabbit_in(context, rabbit, SMALL))
    ours, *peer = alternate(context.rounds, *measures)
    row(f"single sends, 100 B, os, {form}", ours, "/s", goal, "RabbitMQ stream", peer[0] if peer else None)
    cost_row(broker)


def measure_out(context: RunContext, broker: Broker, form: str, goal: str) -> None:
    """Small events received over one link."""
    count = fill(context, broker)
    measures: list[Measure] = [lambda: events_out(context, broker, count)]
    rabbit = context.rabbit
    if rabbit is not None:
        measures.append(lambda: rabbit_out(context, rabbit))
    ours, *peer = alternate(context.rounds, *measures)
    row(f"events out, 100 B, one link, {form}", ours, "/s", goal, "RabbitMQ quorum queue", peer[0] if peer else None)
    cost_row(broker)


def measure_latency(context: RunContext, broker: Broker) -> None:
    """Latency from publish to receive, compared with one flush of the disk."""
    rounds = [
        (fdatasync_p50_ms(context.folder, count=FLUSHES, interval_s=1 / LATENCY_RATE), *latency(context, broker))
        for _ in range(context.rounds)
    ]
    flush_ms, p50, p99 = map(statistics.median, zip(*rounds, strict=True))
    row("publish to receive, 1,000/s, fsync, p50", p50, "ms", "(goal: 2)", "fdatasync p50", flush_ms)
    row("publish to receive, 1,000/s, fsync, p99", p99, "ms", "(goal: 10)", "fdatasync p50", flush_ms)


def measure_memory(broker: Broker) -> None:
    """Idle connections and links."""
    found = crowd.footprint(broker.address, broker.pid, HUB)
    whole_mb = found.bytes_per_connection * crowd.CONNECTIONS / MB
    comparison = f"measured with {found.connections:,}"
    row("10,000 idle connections with a link each", whole_mb, "MB", "(goal: 100)", comparison)
    row("  each connection", found.bytes_per_connection / 1024, "KiB", "(goal: 5)")
    row("  each further link", found.bytes_per_further_link / 1024, "KiB", "")


def measure_sdk(broker: Broker) -> None:
    """Rates of a program with the Azure SDK for Python; the SDK itself is the limit."""
    row("Azure SDK for Python: send_batch, 100 B", sdk_send(broker), "/s", "")
    row("Azure SDK for Python: receive_batch, 100 B", sdk_receive(broker), "/s", "")


def measure_all(context: RunContext) -> None:
    """Every table, node by node."""
    form = "interpreted" if str(kernels.frames.__file__).endswith(".py") else "compiled"
    print(f"  {'':<44}{'median':>12} {'':<6}{'':<20}{'ratio':>8}")
    with a_node(context, "os") as broker:
        measure_batches(context, broker, "os", "(goal: 300)")
        measure_singles(context, broker, form, "(goal: 100,000; 3 x)")
        measure_out(context, broker, form, "(goal: 500,000)" if form == "compiled" else "(goal: 200,000)")
    with a_node(context, "fsync") as broker:
        measure_batches(context, broker, "fsync", "(goal: 200)")
        measure_latency(context, broker)
        measure_sdk(broker)
    with a_node(context, "os") as broker:
        measure_memory(broker)
    if form == "compiled":
        with a_node(context, "os", pure=True) as broker:
            measure_singles(context, broker, "interpreted", "")
            measure_out(context, broker, "interpreted", "(goal: 200,000)")


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
            print(f"compared with RabbitMQ {rabbit.version}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-amqp-")))
        measure_all(RunContext(pump=pump, rabbit=rabbit, folder=folder, seconds=options.seconds, rounds=options.rounds))
    print(f"load average after: {load_average():.1f}")


if __name__ == "__main__":
    main()
