"""Throughput and latency of a gateway in front of three Kafka brokers.

    python -m bench.cluster [--seconds 2] [--rounds 2] [--only NAME ...]

The same clients speak through a gateway and straight to the leader, in turns; AMQP is compared with a single node
(`durability = "os"`), and with a Kafka client that appends the same bytes straight to the leader: no gateway appends
faster than its brokers do. All numbers are medians. Compare the ratios: brokers, gateways and clients share one
machine. A bare relay, which only passes bytes on between clients and the leader, shows what any process between them
costs. The last column has the processor time for each MB of batches, of the gateway or relay ("between"), of the
brokers and of the clients; the ceiling B/(B+G) (see `bench.load.meters`); and the straight clients' processor time of
all parts divided by that of this line, which is the ratio of the rates if the processors are the limit.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.load import raw_kafka
from bench.load.library import BenchFailed, Library
from bench.load.machine import MB, load_average
from bench.load.meters import Meter
from bench.load.raw_amqp import Address, Client, Pump, batch_of, event, from_first, from_now
from bench.load.raw_kafka import RawProducer, a_batch
from bench.load.rdkafka import RdKafka, Topic
from bench.load.relay import Relay
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from hubmere.cli.cluster.brokers import BrokersFailed, LocalBrokers, find_jars
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.settings import HubSetting
from hubmere.testing import Node

EVENTS, LARGE, SMALL = 100, 1024, 100
BATCHES_IN_FLIGHT, AMQP_IN_FLIGHT = 5, 32
ACKS, PACE_S = 150, 0.01
# Events in a batch as large as a gateway joins, and events that a reader of the past gets.
JOINED, OUT_EVENTS = 900, 60_000
ARM: Final = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.EventHub"
ARM_VERSION: Final = "api-version=2024-01-01"
HUBS: Final = ("batches", "singles", "rdkafka", "acks", "amqp", "tail")


@dataclass(slots=True, kw_only=True)
class Bench:
    """The cluster, the single node beside it, the clients and the options."""

    brokers: LocalBrokers
    gateways: list[Node]
    alone: Node
    raw: Library
    pump: Pump
    rdkafka: RdKafka
    seconds: float
    rounds: int
    secret_file: Path
    topics: dict[str, str] = field(default_factory=dict)

    def leader_of(self, hub: str) -> tuple[str, int]:
        """The address of the broker that leads partition 0 of a hub."""
        found = AdminClient({"bootstrap.servers": self.brokers.bootstrap}).list_topics(self.topics[hub], timeout=30)
        leader = found.brokers[found.topics[self.topics[hub]].partitions[0].leader]
        return str(leader.host), int(leader.port)

    @property
    def broker_pids(self) -> list[int]:
        """The processes of the brokers."""
        return [broker.pid for broker in self.brokers.brokers]

    def straight_meter(self) -> Meter:
        """For clients of the brokers."""
        return Meter(self.broker_pids)

    def gateway_meter(self) -> Meter:
        """For clients of the first gateway."""
        return Meter(self.broker_pids, [self.gateways[0].pid])


# --- what is started


@contextlib.contextmanager
def cluster(folder: Path, seconds: float, rounds: int) -> Iterator[Bench]:
    """Three brokers, two gateways, and a node of its own."""
    with contextlib.ExitStack() as stack:
        brokers = LocalBrokers(folder / "kafka")
        stack.callback(brokers.stop)
        brokers.start()
        secret = folder / "secret"
        secret.write_text("a secret of all gateways", encoding="utf-8")
        settings = {"store": "cluster", "cluster_kafka": brokers.bootstrap, "cluster_secret_file": str(secret)}
        hubs = [HubSetting(name=name, partition_count=1) for name in HUBS]
        gateways = [stack.enter_context(Node(settings={**settings, "as": "unlimited"})) for _ in range(2)]
        alone = stack.enter_context(Node(hubs=hubs, settings={"as": "unlimited", "durability": "os"}))
        bench = Bench(
            brokers=brokers,
            gateways=gateways,
            alone=alone,
            raw=stack.enter_context(Library(raw_kafka.SOURCE)),
            pump=stack.enter_context(Pump()),
            rdkafka=stack.enter_context(RdKafka()),
            seconds=seconds,
            rounds=rounds,
            secret_file=secret,
        )
        for hub in HUBS:
            bench.topics[hub] = _create(bench, hub)
        yield bench


def _create(bench: Bench, hub: str) -> str:
    """Create a hub through a gateway, and publish its first event; returns the name of its topic."""
    admin = AdminClient({"bootstrap.servers": bench.brokers.bootstrap})
    before = set(admin.list_topics(timeout=30).topics)
    manage(bench.gateways[0], "PUT", f"eventhubs/{hub}", {"properties": {"partitionCount": 1}})
    while post(bench.gateways[0], hub) != 201:
        time.sleep(0.1)
    (topic,) = {name for name in set(admin.list_topics(timeout=30).topics) - before if ".hub." in name}
    return str(topic)


def manage(node: Node, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
    """A call of the resource manager."""
    url = f"{node.http.rstrip('/')}{ARM}/namespaces/hubmere/{path}?{ARM_VERSION}"
    headers = {"Authorization": f"Bearer {node.admin_token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, method=method, data=data, headers=headers)) as answer:
        found: dict[str, Any] = json.loads(answer.read() or b"{}")
    return found


def kafka_settings(*nodes: Node) -> dict[str, Any]:
    """Settings of a Kafka client of some gateways."""
    return {
        "bootstrap.servers": ",".join(node.kafka for node in nodes),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": nodes[0].emulator_connection_string,
        "log_level": "0",
    }


def post(node: Node, hub: str) -> int:
    """Publish one event over HTTP; returns the status."""
    parts = ConnectionString.parse(node.connection_string)
    uri = f"{node.http.rstrip('/')}/{hub}"
    token = make_token(uri, parts.key_name or "", parts.key or "", expires_at_s=int(time.time()) + 600)
    url = f"{uri}/partitions/0/messages"
    return status_of(urllib.request.Request(url, method="POST", data=b"x", headers={"Authorization": token}))


def status_of(request: urllib.request.Request) -> int:
    """The status of the answer to an HTTP request."""
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


# --- measurements


def row(name: str, ours: float, peer: float, unit: str, bar: str, more: object = "") -> None:
    """One line: the two results, their ratio, and the bar of the design."""
    ratio = ours / peer if peer else 0.0
    print(f"  {name:<44}{ours:>12,.1f}{peer:>12,.1f} {unit:<8}{ratio:>7.2f} x  {bar:<28}{more}", flush=True)


def in_turns(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The median of each measurement; they are taken in turns."""
    taken = [[measure() for measure in measures] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def kafka_rate(
    bench: Bench, place: tuple[str, int], password: str | None, topic: str, batch: bytes, **how: int
) -> float:
    """Requests per second over some connections at once."""
    connections, in_flight = how["connections"], how["in_flight"]
    with contextlib.ExitStack() as stack:
        producers = [stack.enter_context(RawProducer(place, password)) for _ in range(connections)]
        counts = [0] * connections

        def run(number: int) -> None:
            requests = producers[number].produce(
                bench.raw, topic, batch, partitions=1, in_flight=in_flight, seconds=bench.seconds
            )
            counts[number] = requests.count

        threads = [threading.Thread(target=run, args=(number,)) for number in range(connections)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.perf_counter() - began)


def straight_mb(bench: Bench, batch: bytes, **how: int) -> float:
    """MB per second that a Kafka client appends to the leader of the hub `batches`."""
    rate = kafka_rate(bench, bench.leader_of("batches"), None, bench.topics["batches"], batch, **how)
    return rate * len(batch) / MB


def kafka_address(node: Node) -> tuple[str, int]:
    """Where Kafka clients reach a node."""
    host, _, port = node.kafka.rpartition(":")
    return host, int(port)


def measure_kafka(bench: Bench, name: str, hub: str, batch: bytes, bar: str, *, relayed: bool, **how: int) -> None:
    """Produce requests through a gateway, straight to the leader, and through a bare relay to it."""
    gateway, leader = bench.gateways[0], bench.leader_of(hub)
    password = gateway.emulator_connection_string
    with contextlib.ExitStack() as stack:
        ours, straight = bench.gateway_meter(), bench.straight_meter()
        turns: list[tuple[Meter, tuple[str, int], str | None, str]] = [
            (ours, kafka_address(gateway), password, hub),
            (straight, leader, None, bench.topics[hub]),
        ]
        if relayed:
            relay = stack.enter_context(Relay(leader))
            turns.append((Meter(bench.broker_pids, [relay.pid]), relay.address, None, bench.topics[hub]))

        def take(meter: Meter, place: tuple[str, int], password: str | None, topic: str) -> float:
            def measure() -> tuple[float, float]:
                rate = kafka_rate(bench, place, password, topic, batch, **how)
                return rate, rate * bench.seconds * len(batch) / MB

            return meter(measure)

        rates = in_turns(bench.rounds, *(partial(take, *turn) for turn in turns))
        print_parts(name, bar, "req/s", rates, [turn[0] for turn in turns])


def print_parts(name: str, bar: str, unit: str, rates: Sequence[float], meters: Sequence[Meter]) -> None:
    """Lines for the gateway, for straight clients, and for a relay if there was one."""
    ours, straight, *relays = rates
    row(name, ours, straight, unit, bar, meters[0].beside(meters[1]))
    for relayed in relays:
        row("  a bare relay", relayed, straight, unit, "", meters[2].beside(meters[1]))
    print(f"  {'  straight':<105}{meters[1]}", flush=True)


def measure_rdkafka(bench: Bench) -> None:
    """librdkafka with its defaults."""
    gateway = bench.gateways[0]
    with contextlib.ExitStack() as stack:
        brokers = [address.rpartition(":") for address in bench.brokers.bootstrap.split(",")]
        relays = [stack.enter_context(Relay((host, int(port)))) for host, _, port in brokers]
        ports = {int(port): relay.address[1] for (_, _, port), relay in zip(brokers, relays, strict=True)}
        through = Topic(name="rdkafka", partitions=1, settings=kafka_settings(gateway))
        settings = {"bootstrap.servers": bench.brokers.bootstrap}
        straight = Topic(name=bench.topics["rdkafka"], partitions=1, settings=settings)
        relayed = Topic(name=straight.name, partitions=1, settings=settings, relays=ports)
        meters = [
            bench.gateway_meter(),
            bench.straight_meter(),
            Meter(bench.broker_pids, [relay.pid for relay in relays]),
        ]

        def take(meter: Meter, topic: Topic) -> float:
            def measure() -> tuple[float, float]:
                flow = bench.rdkafka.produce(topic, LARGE, bench.seconds)
                return flow.rate * LARGE / MB, flow.messages * LARGE / MB

            return meter(measure)

        turns = zip(meters, (through, straight, relayed), strict=True)
        rates = in_turns(bench.rounds, *(partial(take, *turn) for turn in turns))
        print_parts("librdkafka, its defaults, 1 KB", "(bar: 0.8 x)", "MB/s", rates, meters)
    measure_acks(bench, through, straight)


def measure_acks(bench: Bench, through: Topic, straight: Topic) -> None:
    """The acknowledgement of single events at a low rate."""
    paced = [Producer({**topic.settings, "linger.ms": 0}) for topic in (through, straight)]
    names = ("acks", bench.topics["acks"])
    ours, theirs = in_turns(
        bench.rounds, *(lambda p=p, n=n: ack_p50_ms(p, n) for p, n in zip(paced, names, strict=True))
    )
    row("acknowledgement at 100/s, p50", ours, theirs, "ms", "(bar: straight + 2 ms)")


def ack_p50_ms(producer: Producer, topic: str) -> float:
    """The median time of an acknowledgement."""
    waits = []
    for _ in range(ACKS):
        began = time.perf_counter()
        producer.produce(topic, bytes(SMALL), partition=0)
        producer.flush(30)
        waits.append((time.perf_counter() - began) * 1000)
        time.sleep(max(PACE_S - (time.perf_counter() - began), 0.0))
    return statistics.median(waits)


def address_of(node: Node) -> Address:
    """Where AMQP clients reach a node."""
    parts = ConnectionString.parse(node.emulator_connection_string)
    port = int(node.amqp.rpartition(":")[2])
    return Address(host="127.0.0.1", port=port, user=parts.key_name or "", password=parts.key or "")


def measure_amqp_in(bench: Bench) -> None:
    """Batches in over one link, compared with a single node, and with what the brokers accept from a Kafka client."""
    payload = batch_of(event(LARGE), EVENTS)
    now_ms, meter = int(time.time() * 1000), bench.gateway_meter()
    eight, two = bench.straight_meter(), bench.straight_meter()

    def batches_in(node: Node) -> float:
        with Client(address_of(node)) as client:
            link = client.sender("amqp/Partitions/0")
            run = bench.pump.send(client, link, payload, batch=True, in_flight=AMQP_IN_FLIGHT, seconds=bench.seconds)
        return run.rate * EVENTS * LARGE / MB

    def timed(rate: float) -> tuple[float, float]:
        return rate, rate * bench.seconds

    same, joined = a_batch(EVENTS, LARGE, now_ms), a_batch(JOINED, LARGE, now_ms)
    ours, theirs, ceiling, large = in_turns(
        bench.rounds,
        lambda: meter(lambda: timed(batches_in(bench.gateways[0]))),
        lambda: batches_in(bench.alone),
        lambda: eight(lambda: timed(straight_mb(bench, same, connections=8, in_flight=BATCHES_IN_FLIGHT))),
        lambda: two(lambda: timed(straight_mb(bench, joined, connections=2, in_flight=BATCHES_IN_FLIGHT))),
    )
    row("AMQP in, batches of 100 x 1 KB", ours, theirs, "MB/s", "(bar: 0.7 x one node, or:)", meter)
    row("  the same batches straight, 8 connections", ours, ceiling, "MB/s", "(bar: 0.9 x)", meter.beside(eight))
    row("  batches of 900 KB straight, 2 connections", ours, large, "MB/s", "", meter.beside(two))


def measure_amqp_out(bench: Bench) -> None:
    """Events out over one link, from the first one."""
    gateway, alone, meter = bench.gateways[0], bench.alone, bench.gateway_meter()
    batch = a_batch(EVENTS, LARGE, int(time.time() * 1000))
    for node in (gateway, alone):
        kafka_rate(
            bench, kafka_address(node), node.emulator_connection_string, "amqp", batch, connections=1, in_flight=5
        )

    def events_out(node: Node) -> float:
        with Client(address_of(node)) as client:
            link = client.receiver("amqp/ConsumerGroups/$Default/Partitions/0", from_first())
            return bench.pump.receive(client, link, limit=OUT_EVENTS, seconds=4 * bench.seconds).rate

    def by_gateway() -> float:
        return meter(lambda: (events_out(gateway), OUT_EVENTS * LARGE / MB))

    ours, theirs = in_turns(bench.rounds, by_gateway, lambda: events_out(alone))
    row("AMQP out, 1 KB, one link, from the first", ours, theirs, "/s", "(bar: 0.9 x one node)", meter)


def measure_tail(bench: Bench) -> None:
    """Events out over one link at the tail, while a Kafka client publishes as fast as the log accepts them."""
    gateway, alone, meter = bench.gateways[0], bench.alone, bench.gateway_meter()
    small = a_batch(EVENTS, SMALL, int(time.time() * 1000))
    published: list[float] = []

    def tail(node: Node, place: tuple[str, int], password: str | None, topic: str) -> float:
        with Client(address_of(node)) as client:
            link = client.receiver("tail/ConsumerGroups/$Default/Partitions/0", from_now())

            def publish() -> None:
                rate = kafka_rate(bench, place, password, topic, small, connections=2, in_flight=BATCHES_IN_FLIGHT)
                published.append(rate * EVENTS)

            thread = threading.Thread(target=publish)
            thread.start()
            # It ends before the publisher does: a reader that waits for nothing counts as stalled.
            received = bench.pump.receive(client, link, limit=1 << 40, seconds=bench.seconds / 2)
            thread.join()
            return received.rate

    def by_gateway() -> float:
        leader = bench.leader_of("tail")

        def measure() -> tuple[float, float]:
            rate = tail(gateway, leader, None, bench.topics["tail"])
            # All that was published is counted, and so is the time after the reader has ended.
            return rate, published[-1] * bench.seconds * SMALL / MB

        return meter(measure)

    rates = [by_gateway() for _ in range(bench.rounds)]
    straight = statistics.median(published)
    row("AMQP out, 100 B, tail; peer: published", statistics.median(rates), straight, "/s", "(bar: 0.9 x)", meter)
    rates = [tail(alone, kafka_address(alone), alone.emulator_connection_string, "tail") for _ in range(bench.rounds)]
    row("  one node; peer: published", statistics.median(rates), statistics.median(published[bench.rounds :]), "/s", "")


def measure_batches(bench: Bench) -> None:
    """Batches of 100 events on one connection and on eight."""
    large = a_batch(EVENTS, LARGE, int(time.time() * 1000))
    for connections in (1, 8):
        title = f"100 x 1 KB batches, {connections} connection(s)"
        how: dict[str, Any] = {"connections": connections, "in_flight": BATCHES_IN_FLIGHT}
        measure_kafka(bench, title, "batches", large, "(bar: 0.9 x; 20 %)", relayed=connections == 8, **how)


def measure_singles(bench: Bench) -> None:
    """Single events of clients that wait for each answer, so that their rate is their number divided by the latency.

    One straight client has the latency of brokers that have nothing else to do, which a gateway can hardly undercut: N
    times its rate is about the most that N clients of a gateway can get.
    """
    one = a_batch(1, SMALL, int(time.time() * 1000))
    for connections, bar in ((1, ""), (16, "(bar: 1.5 x)"), (64, "(bar: 1 x)")):
        title = f"single 100 B events, {connections} connection(s)"
        relayed = connections == 16
        measure_kafka(bench, title, "singles", one, bar, relayed=relayed, connections=connections, in_flight=1)


MEASUREMENTS: Final[dict[str, Callable[[Bench], None]]] = {
    "batches": measure_batches,
    "rdkafka": measure_rdkafka,
    "singles": measure_singles,
    "amqp-in": measure_amqp_in,
    "amqp-out": measure_amqp_out,
    "amqp-tail": measure_tail,
}


def run(
    program: str,
    measurements: Mapping[str, Callable[[Bench], None]],
    only: Collection[str] | None,
    *,
    seconds: float,
    rounds: int,
    columns: str = "",
) -> None:
    """Run the chosen measurements, or all of them, on one cluster; `columns` are the headings of their results."""
    try:
        find_jars()
    except BrokersFailed as missing:
        print(f"  left out: {missing}")
        return
    try:
        with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), seconds, rounds) as bench:
            print(f"  load {load_average():.1f}{columns}")
            for name, measure in measurements.items():
                if name in (only or measurements):
                    measure(bench)
    except (BenchFailed, BrokersFailed) as failed:
        sys.exit(f"{program}: {failed}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=list(MEASUREMENTS))
    options = parser.parse_args(arguments)
    columns = f"{'':<39}{'gateway':>12}{'peer':>12}"
    size = {"seconds": options.seconds, "rounds": options.rounds}
    run("bench.cluster", MEASUREMENTS, options.only, columns=columns, **size)


if __name__ == "__main__":
    main(sys.argv[1:])
