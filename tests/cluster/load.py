"""Numbered events from clients of all protocols while a cluster is harmed.

Compares what was acknowledged to the clients with what the brokers have, and that with what every gateway delivers.
"""

import threading
import time
import urllib.error
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cluster.gateways import ask, post_event
from cluster.machines import Machines
from cluster.running import PATIENCE_S, eventually

PARTITIONS = 3
_PAUSE_S = 0.05
_ARM = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.EventHub"


class Sender(threading.Thread, ABC):
    """Sends numbered events to one partition, each once, and remembers which were acknowledged.

    After a failure it goes on with the next number, at the next gateway.
    """

    def __init__(
        self, machines: Machines, hub: str, number: int, stopping: threading.Event, pace_s: float = 0.0
    ) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.sent_at: dict[str, float] = {}
        self._pace_s = pace_s
        self.partition = number % PARTITIONS
        self.acknowledged: list[str] = []
        self.failures: list[str] = []
        self._machines = machines
        self._hub = hub
        self._stopping = stopping
        self._count = 0

    def run(self) -> None:
        at = self.number
        while not self._stopping.is_set():
            gateway = self._machines.gateways[at % len(self._machines.gateways)]
            at += 1
            try:
                self.send_from(gateway.ready, gateway.connection_string)
            except (EventHubError, OSError, KafkaException, urllib.error.URLError) as failure:
                self.failures.append(str(failure))
                time.sleep(_PAUSE_S)

    def next_body(self) -> str:
        """The next event."""
        time.sleep(self._pace_s)
        self._count += 1
        body = f"{self.number}-{self._count}"
        self.sent_at[body] = time.monotonic()
        return body

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @abstractmethod
    def send_from(self, ready: dict[str, Any], connection_string: str) -> None:
        """Send through one gateway until it fails or all is over."""


class AmqpSender(Sender):
    """The Azure SDK. It repeats an event that was under way when its connection broke, and nothing else."""

    def send_from(self, ready: dict[str, Any], connection_string: str) -> None:
        producer = EventHubProducerClient.from_connection_string(
            connection_string, eventhub_name=self._hub, retry_total=0
        )
        with producer:
            while not self.is_stopping:
                body = self.next_body()
                producer.send_event(EventData(body), partition_id=str(self.partition), timeout=60)
                self.acknowledged.append(body)


class HttpSender(Sender):
    """One request per event, never repeated."""

    def send_from(self, ready: dict[str, Any], connection_string: str) -> None:
        while not self.is_stopping:
            body = self.next_body()
            status, text, _ = post_event(ready, self._hub, body, partition=self.partition)
            if status != 201:
                raise OSError(f"status {status}: {text}")
            self.acknowledged.append(body)


class KafkaSender(Sender):
    """librdkafka with an idempotent producer, which repeats by itself and must not duplicate."""

    def send_from(self, ready: dict[str, Any], connection_string: str) -> None:
        gateways = self._machines.gateways
        settings = {
            **gateways[0].kafka,
            "bootstrap.servers": ",".join(str(gateway.ready["kafka"]) for gateway in gateways),
            "enable.idempotence": True,
            "message.timeout.ms": 120_000,
            "log_level": 0,
        }
        producer = Producer(settings)
        fatal: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.append((message.value() or b"").decode())
            elif error.fatal():
                fatal.append(error)

        while not self.is_stopping and not fatal:
            producer.produce(self._hub, self.next_body().encode(), partition=self.partition, on_delivery=on_delivery)
            producer.poll(0.01)
        producer.flush(PATIENCE_S)
        if fatal:
            raise KafkaException(fatal[0])


class Follower(threading.Thread):
    """Follows partition 0 through one gateway; after a failure it goes on where it was."""

    def __init__(self, machines: Machines, gateway: int, hub: str, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self.events: dict[int, str] = {}
        self.repeated: list[int] = []
        self._machines = machines
        self._gateway = gateway
        self._hub = hub
        self._stopping = stopping

    @property
    def bodies(self) -> list[str]:
        """What was received, by sequence number."""
        return [body for _, body in sorted(self.events.copy().items())]

    def run(self) -> None:
        while not self._stopping.is_set():
            failed = threading.Event()
            client = EventHubConsumerClient.from_connection_string(
                self._machines.gateways[self._gateway].connection_string,
                "$Default",
                eventhub_name=self._hub,
                retry_total=0,
            )
            reading = threading.Thread(target=self._receive, args=(client, failed), daemon=True)
            reading.start()
            while not failed.wait(_PAUSE_S) and not self._stopping.is_set():
                pass
            with suppress(Exception):
                client.close()
            reading.join(PATIENCE_S)

    def _receive(self, client: EventHubConsumerClient, failed: threading.Event) -> None:
        after = str(max(self.events)) if self.events else "-1"
        client.receive(
            self._on_event,
            on_error=lambda *_: failed.set(),
            partition_id="0",
            starting_position=after,
        )

    def _on_event(self, _: object, event: EventData | None) -> None:
        if event is not None and event.sequence_number is not None:
            if event.sequence_number in self.events:
                self.repeated.append(event.sequence_number)
            self.events[event.sequence_number] = event.body_as_str()


class Load:
    """All senders and followers of one hub, for the length of a `with` block."""

    def __init__(self, machines: Machines, hub: str, *, amqp: int = 3, pace_s: float = 0.0) -> None:
        self.machines = machines
        self.hub = hub
        self._stopping = threading.Event()
        kinds: list[type[Sender]] = [*([AmqpSender] * amqp), KafkaSender, HttpSender]
        self.senders = [kind(machines, hub, number, self._stopping, pace_s) for number, kind in enumerate(kinds)]
        self._reading = threading.Event()
        self.followers = [Follower(machines, number, hub, self._reading) for number in range(len(machines.gateways))]

    def __enter__(self) -> "Load":
        for thread in (*self.senders, *self.followers):
            thread.start()
        self.await_progress()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let everybody finish what is under way."""
        self._stopping.set()
        self._reading.set()
        for thread in (*self.senders, *self.followers):
            thread.join(PATIENCE_S)

    def await_progress(self, more: int = 10) -> None:
        """Wait until every sender has been told of some more events."""
        before = [len(sender.acknowledged) for sender in self.senders]

        def has_progressed() -> bool:
            return all(len(s.acknowledged) >= n + more for s, n in zip(self.senders, before, strict=True))

        assert eventually(has_progressed), [(type(s).__name__, s.failures[-2:]) for s in self.senders]

    def finish(self, *, broken_connections: int = 0) -> None:
        """Stop the senders, and compare. `broken_connections`: how often the SDK may have repeated an event."""
        self._stopping.set()
        for sender in self.senders:
            sender.join(PATIENCE_S)
        stored = read_straight(self.machines, self.hub)
        for sender in self.senders:
            own = [body for body in stored[sender.partition] if body.startswith(f"{sender.number}-")]
            self._check(sender, own, broken_connections if isinstance(sender, AmqpSender) else 0)
        for number in range(len(self.machines.gateways)):
            through = read_partitions(self.machines.gateways[number].kafka, self.hub)
            assert through == stored, f"gateway {number} delivers something else than the brokers have"
        for follower in self.followers:
            assert eventually(lambda: follower.bodies == stored[0])  # noqa: B023 - called in this turn of the loop
            assert not follower.repeated
        assert_equal_catalogs(self.machines)

    @staticmethod
    def _check(sender: Sender, stored: list[str], allowed: int) -> None:
        lost = set(sender.acknowledged) - set(stored)
        assert not lost, f"{type(sender).__name__}: {len(lost)} acknowledged events are lost: {sorted(lost)[:5]}"
        twice = [body for body, count in Counter(stored).items() if count > 1]
        assert len(twice) <= allowed, f"{type(sender).__name__}: stored twice: {twice[:5]}"
        numbers = [int(body.partition("-")[2]) for body in dict.fromkeys(stored)]
        assert numbers == sorted(numbers), f"{type(sender).__name__}: not in the order of the sender"


def topics_of(machines: Machines) -> set[str]:
    """The topics of all hubs."""
    admin = AdminClient({"bootstrap.servers": machines.brokers.bootstrap, "log_level": 0})
    return {name for name in admin.list_topics(timeout=PATIENCE_S).topics if ".hub." in name}


def create_hub(machines: Machines, hub: str, *, partitions: int = PARTITIONS, gateway: int = 0) -> None:
    """Create a hub through one gateway, and remember its topic: the new one that has an event."""
    before = topics_of(machines)
    place = machines.gateways[gateway].ready
    url = f"{_ARM}/namespaces/hubmere/eventhubs/{hub}?api-version=2024-01-01"
    properties = {"partitionCount": partitions, "messageRetentionInDays": 1}

    def is_created() -> bool:
        return ask(place, "PUT", url, {"properties": properties})[0] == 200

    assert eventually(is_created)
    assert eventually(lambda: post_event(place, hub, "first")[0] == 201)
    new = topics_of(machines) - before
    (machines.topics[hub],) = {topic for topic in new if _has_events(machines, topic)}


def _has_events(machines: Machines, topic: str) -> bool:
    """Whether partition 0 has events; hubs that others create have topics without any."""
    consumer = Consumer({"bootstrap.servers": machines.brokers.bootstrap, "group.id": "unused", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)[1]) > 0
    except KafkaException:
        return False  # it has just been deleted
    finally:
        consumer.close()


def read_straight(machines: Machines, hub: str) -> list[list[str]]:
    """The events of each partition, as the brokers have them."""
    settings = {"bootstrap.servers": machines.brokers.bootstrap}
    return read_partitions(settings, machines.topics[hub])


def read_partitions(settings: dict[str, str], topic: str) -> list[list[str]]:
    """All events of each partition, by a Kafka client."""
    consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False, "log_level": 0})
    found: list[list[str]] = []
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition, 0)
            end = _end_of(consumer, place)
            consumer.assign([place])
            found.append(_read_to(consumer, end))
    finally:
        consumer.close()
    return found


def _end_of(consumer: Consumer, place: TopicPartition) -> int:
    ends: list[int] = []

    def is_known() -> bool:
        with suppress(KafkaException):
            ends.append(consumer.get_watermark_offsets(place, timeout=60)[1])
        return bool(ends)

    assert eventually(is_known)
    return ends[-1]


def _read_to(consumer: Consumer, end: int) -> list[str]:
    bodies: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    position = 0
    while position < end:
        assert time.monotonic() < deadline, f"a reader is stuck at {position} of {end}"
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                bodies.append((message.value() or b"").decode())
                position = (message.offset() or 0) + 1
    return bodies


def assert_equal_catalogs(machines: Machines) -> None:
    """All gateways list the same hubs."""

    def hubs(ready: dict[str, Any]) -> list[str]:
        path = f"{_ARM}/namespaces/hubmere/eventhubs?api-version=2024-01-01"
        return sorted(str(hub["name"]) for hub in ask(ready, "GET", path)[1].get("value", []))

    def are_equal() -> bool:
        first, *others = [hubs(gateway.ready) for gateway in machines.gateways]
        return bool(first) and all(each == first for each in others)

    assert eventually(are_equal)


def run_harmed(machines: Machines, hub: str, harm: Callable[[Load], int]) -> None:
    """Create a hub, harm the cluster under load, and compare. `harm` returns how many connections it broke."""
    create_hub(machines, hub)
    with Load(machines, hub) as load:
        broken = harm(load)
        load.await_progress()
        load.finish(broken_connections=broken)
