"""What several gateways share, and how long clients are silent when one of them or a broker ends.

    python -m bench.gateways [--steals 100] [--rounds 5] [--only NAME ...]

Three Kafka brokers and two gateways. Egress of the brokers is what the sockets of a gateway received. Everything else
is a time: how long an exclusive reader needs to attach and to take over from another gateway, how long a change made
through one gateway takes to be in force at the other, and the longest time without an acknowledgement around a fault.
Throughput units are measured with three more gateways that limit their clients.
"""

import argparse
import contextlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from bench.cluster import ARM, ARM_VERSION, Bench, address_of, kafka_settings, manage, row, run, status_of
from bench.load.library import BenchFailed
from bench.load.raw_amqp import Client, from_now
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.testing import Node

READERS, BATCHES, BATCH_BYTES = 50, 40, 50_000
PACE_S: Final = 0.01
# How long senders run before a fault and after it.
BEFORE_S, AFTER_S = 2.0, 12.0
RELEASE_S = 0.1
# One throughput unit is 1 MB/s; after some idle seconds, no gateway has a demand.
UNIT_BATCH_BYTES, IDLE_S = 16 * 1024, 3.0


# --- egress


def received_bytes(bench: Bench, node: Node) -> int:
    """What the open connections of a gateway to its brokers have received."""
    ports = " or ".join(f"dport = :{address.rpartition(':')[2]}" for address in bench.brokers.bootstrap.split(","))
    command = ["ss", "-tinpHO", "state", "established", f"( {ports} )"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    own = [line for line in lines if f"pid={node.pid}," in line]
    return sum(int(found.group(1)) for line in own if (found := re.search(r"bytes_received:(\d+)", line)))


def egress(bench: Bench, readers: int) -> float:
    """MB that the brokers send to one gateway while so many readers follow a partition, which another one writes."""
    reading, writing = bench.gateways
    consumers = [Consumer({**kafka_settings(reading), "group.id": "unused"}) for _ in range(readers)]
    end = _end_of(consumers[0])
    for consumer in consumers:
        consumer.assign([TopicPartition("batches", 0, end)])
        consumer.consume(1, 0.05)
    counts = [0] * readers

    def follow(number: int) -> None:
        deadline = time.monotonic() + 30
        while counts[number] < BATCHES and time.monotonic() < deadline:
            counts[number] += sum(message.error() is None for message in consumers[number].consume(BATCHES, 0.1))

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    before = received_bytes(bench, reading)
    producer = Producer({**kafka_settings(writing), "linger.ms": 0})
    for _ in range(BATCHES):
        producer.produce("batches", bytes(BATCH_BYTES), partition=0)
        producer.flush(30)
    for thread in threads:
        thread.join()
    total = received_bytes(bench, reading) - before
    for consumer in consumers:
        consumer.close()
    if min(counts) < BATCHES:
        raise BenchFailed("a reader did not get all events")
    return total / 1e6


def _end_of(consumer: Consumer) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition("batches", 0), timeout=30)[1])


def measure_egress(bench: Bench) -> None:
    one, many = egress(bench, 1), egress(bench, READERS)
    row(f"egress of the cluster, {READERS} readers", many, one, "MB", "(bar: 1.1 x one reader)")


# --- exclusive readers


def attach_seconds(client: Client, epoch: int) -> float:
    """How long the attach of an exclusive reader takes."""
    began = time.perf_counter()
    client.receiver("acks/ConsumerGroups/$Default/Partitions/0", from_now(), epoch=epoch)
    return time.perf_counter() - began


def measure_owners(bench: Bench, steals: int) -> None:
    """Attach to a free place, and take it over from a reader on the other gateway, which stays attached."""
    attaches, takeovers = [], []
    for _ in range(max(steals // 4, 5)):
        with Client(address_of(bench.gateways[0])) as client:
            attaches.append(attach_seconds(client, 0))
        # The end of the connection has released the place.
        time.sleep(RELEASE_S)
    with contextlib.ExitStack() as stack:
        for epoch in range(1, steals + 1):
            client = stack.enter_context(Client(address_of(bench.gateways[epoch % 2])))
            takeovers.append(attach_seconds(client, epoch))
    show_ms("attach of an exclusive reader", attaches, "(bar: p50 30 ms)")
    show_ms("takeover from another gateway", takeovers, "(bar: p50 100 ms)")


def show_ms(name: str, seconds: Sequence[float], bar: str) -> None:
    """One line with the median and the longest time."""
    p50_ms, most_ms = statistics.median(seconds) * 1000, max(seconds) * 1000
    print(f"  {name:<44}{p50_ms:>12,.1f} ms p50 {most_ms:>12,.1f} ms at most  {bar}", flush=True)


# --- changes


def post_status(node: Node, hub: str, key_name: str, key: str) -> int:
    """Publish one event over HTTP with a key; the status of the answer."""
    uri = f"{node.http.rstrip('/')}/{hub}"
    token = make_token(uri, key_name, key, expires_at_s=int(time.time()) + 600)
    url = f"{uri}/partitions/0/messages"
    return status_of(urllib.request.Request(url, method="POST", data=b"x", headers={"Authorization": token}))


def seconds_until_accepted(node: Node, hub: str, key_name: str, key: str) -> float:
    """How long a gateway refuses an event."""
    began = time.perf_counter()
    while post_status(node, hub, key_name, key) != 201:
        if time.perf_counter() - began > 30:
            raise BenchFailed(f"a change of {hub} is not in force after 30 s")
        time.sleep(0.005)
    return time.perf_counter() - began


def seconds_until_known(node: Node, hub: str) -> float:
    """How long a gateway does not find a hub."""
    began = time.perf_counter()
    url = f"{node.http.rstrip('/')}{ARM}/namespaces/hubmere/eventhubs/{hub}?{ARM_VERSION}"
    headers = {"Authorization": f"Bearer {node.admin_token}"}
    while status_of(urllib.request.Request(url, headers=headers)) != 200:
        if time.perf_counter() - began > 30:
            raise BenchFailed(f"the hub {hub} is not known after 30 s")
        time.sleep(0.005)
    return time.perf_counter() - began


def measure_keys(bench: Bench, rounds: int) -> None:
    """A key is changed through one gateway, and used through the other."""
    first, second = bench.gateways
    keys = []
    manage(first, "PUT", "authorizationRules/changed", {"properties": {"rights": ["Send"]}})
    for _ in range(rounds):
        changed = manage(first, "POST", "authorizationRules/changed/regenerateKeys", {"keyType": "PrimaryKey"})
        keys.append(seconds_until_accepted(second, "acks", "changed", str(changed["primaryKey"])))
    show_ms("key of one gateway, in force at the other", keys, "(bar: 1,000 ms)")


def measure_new_hubs(bench: Bench, rounds: int) -> None:
    """A hub is created through one gateway; the other one accepts its first event, and delivers it.

    Beside it, a Kafka client creates a topic with the same copies, and appends to it straight.
    """
    first, second = bench.gateways
    parts = ConnectionString.parse(first.connection_string)
    created, known, accepted, delivered, straight = [], [], [], [], []
    reader = Consumer({**kafka_settings(second), "group.id": "unused"})
    for number in range(rounds):
        name, began = f"created-{number}", time.perf_counter()
        manage(first, "PUT", f"eventhubs/{name}", {"properties": {"partitionCount": 1}})
        ready = time.perf_counter()
        created.append(ready - began)
        known.append(seconds_until_known(second, name))
        seconds_until_accepted(second, name, parts.key_name or "", parts.key or "")
        accepted.append(time.perf_counter() - ready)
        reader.assign([TopicPartition(name, 0, 0)])
        while (message := reader.poll(30)) is None or message.error() is not None:
            if message is None:
                raise BenchFailed(f"the first event of {name} is not delivered")
        delivered.append(time.perf_counter() - ready)
        straight.append(first_event_straight(bench, f"straight-{number}"))
    reader.close()
    show_ms("creation of a hub", created, "")
    show_ms("hub of one gateway, known at the other", known, "(bar: 1,000 ms)")
    show_ms("hub of one gateway, first event at the other", accepted, "(bar: 1,000 ms)")
    show_ms("hub of one gateway, event read at the other", delivered, "(bar: 1,000 ms)")
    show_ms("  first event of a new topic, straight", straight, "")


def first_event_straight(bench: Bench, topic: str) -> float:
    """How long a Kafka client waits for its first acknowledgement after a topic was created."""
    settings = {"bootstrap.servers": bench.brokers.bootstrap, "log_level": 0}
    new = NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})
    admin = AdminClient(settings)
    for done in admin.create_topics([new]).values():
        done.result(30)
    began = time.perf_counter()
    producer = Producer({**settings, "linger.ms": 0})
    producer.produce(topic, b"x", partition=0)
    producer.flush(30)
    return time.perf_counter() - began


# --- throughput units


def rate_of_lone_client(node: Node) -> float:
    """Publish as fast as a gateway allows; MB/s in the third and fourth second after the first request."""
    producer = Producer({**kafka_settings(node), "linger.ms": 0, "batch.size": UNIT_BATCH_BYTES})
    acknowledged: list[float] = []

    def on_delivery(error: object, _: object) -> None:
        if error is None:
            acknowledged.append(time.perf_counter())

    began = time.perf_counter()
    while time.perf_counter() - began < 4.0:
        if len(producer) < 4:
            producer.produce("limited", bytes(UNIT_BATCH_BYTES), partition=0, on_delivery=on_delivery)
        producer.poll(0.005)
    producer.purge()
    producer.flush(10)
    return sum(2.0 <= at - began < 4.0 for at in acknowledged) * UNIT_BATCH_BYTES / 2 / 2**20


def measure_units(bench: Bench, rounds: int) -> None:
    """One throughput unit over three gateways: a lone client, also after another left, and after a gateway died."""
    settings = {"store": "cluster", "cluster_kafka": bench.brokers.bootstrap, "cluster_prefix": "units."}
    settings |= {"cluster_secret_file": str(bench.secret_file), "as": "standard"}
    with contextlib.ExitStack() as stack:
        first, second, third = (stack.enter_context(Node(settings=settings)) for _ in range(3))
        manage(first, "PUT", "eventhubs/limited", {"properties": {"partitionCount": 2, "messageRetentionInDays": 1}})
        seconds_until_known(second, "limited")
        alone, moved, died = [], [], []
        for _ in range(rounds):
            time.sleep(IDLE_S)
            alone.append(rate_of_lone_client(first))
            moved.append(rate_of_lone_client(second))
            rate_of_lone_client(third)
            third.kill()
            died.append(rate_of_lone_client(first))
            third.start()
    show_parts("units, a lone client 2 s after its first request", alone)
    show_parts("units, 2 s after one of another gateway left", moved)
    show_parts("units, 2 s after a gateway was killed", died)


def show_parts(name: str, parts: Sequence[float]) -> None:
    """One line with the median and the smallest part of the namespace's throughput."""
    print(f"  {name:<50}{statistics.median(parts):>6.2f} p50 {min(parts):>12.2f} at least  (bar: 0.9)", flush=True)


# --- silence


class PacedSender(threading.Thread):
    """Sends an event every 10 ms with librdkafka, and remembers the longest time without an acknowledgement."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({**settings, "linger.ms": 0, "message.timeout.ms": 60_000, "log_level": 0})
        self._topic = topic
        self._stopping = threading.Event()
        self._last = time.perf_counter()
        self.longest_s = 0.0
        self.count = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            self._producer.produce(self._topic, b"x", partition=0, on_delivery=self._on_delivery)
            self._producer.poll(PACE_S)
        self._producer.flush(30)

    def _on_delivery(self, error: object, _: object) -> None:
        if error is None:
            now = time.perf_counter()
            self.longest_s = max(self.longest_s, now - self._last) if self.count else 0.0
            self._last, self.count = now, self.count + 1

    def stop(self) -> float:
        """End; the longest silence."""
        self._stopping.set()
        self.join()
        return self.longest_s


@contextlib.contextmanager
def senders(*of: PacedSender) -> Iterator[None]:
    """Some senders that run before, during and after a fault."""
    for sender in of:
        sender.start()
    time.sleep(BEFORE_S)
    try:
        yield
        time.sleep(AFTER_S)
    finally:
        for sender in of:
            sender.stop()


def measure_silence(bench: Bench) -> None:
    """The longest time without an acknowledgement when a broker is killed, and when a gateway is stopped or killed."""
    first, second = bench.gateways
    straight = {"bootstrap.servers": bench.brokers.bootstrap}
    through = PacedSender(kafka_settings(first, second), "acks")
    beside = PacedSender(straight, bench.topics["acks"])
    host, port = bench.leader_of("acks")
    broker = next(each for each in bench.brokers.brokers if each.address == f"{host}:{port}")
    with senders(through, beside):
        assert broker.process is not None
        broker.process.kill()
        broker.process.wait()
    row("silence, broker killed", through.longest_s, beside.longest_s, "s", "(bar: straight + 1 s)")
    bench.brokers.start_broker(broker)
    for name, sent, bar in (("stopped", signal.SIGTERM, "(bar: 1 s)"), ("killed", signal.SIGKILL, "(bar: 3 s)")):
        sender = PacedSender(kafka_settings(first, second), "acks")
        with senders(sender):
            second.kill() if sent == signal.SIGKILL else second.stop()
        show_ms(f"silence, gateway {name}", [sender.longest_s], bar)
        second.start()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steals", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    measurements: dict[str, Callable[[Bench], None]] = {
        "egress": measure_egress,
        "owners": lambda bench: measure_owners(bench, options.steals),
        "hubs": lambda bench: measure_new_hubs(bench, options.rounds),
        "keys": lambda bench: measure_keys(bench, options.rounds),
        "units": lambda bench: measure_units(bench, options.rounds),
        "silence": measure_silence,
    }
    parser.add_argument("--only", nargs="*", choices=list(measurements))
    options = parser.parse_args(arguments)
    run("bench.gateways", measurements, options.only, seconds=1.0, rounds=options.rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
