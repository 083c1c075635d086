"""Checks of what a cluster promises, for whole gateways and for known bad builds of them."""

import signal
import threading
import time

from azure.eventhub import EventData, EventHubConsumerClient
from confluent_kafka import Consumer, Producer, TopicPartition

from cluster.gateways import get, post_event
from cluster.load import create_hub
from cluster.machines import GatewayProcess, Machines
from cluster.running import PATIENCE_S, eventually
from hubmere.cluster.control.entries import Beat, Claim, Entry, decode_entry

# A leader answers REQUEST_TIMED_OUT after 10 s; then the gateway repeats its batches.
_ALONE_SECONDS = 13.0
_MOVES = 20


class ExclusiveReader:
    """A reader of partition 0 with an epoch."""

    def __init__(self, gateway: GatewayProcess, hub: str, epoch: int) -> None:
        self.bodies: list[str] = []
        self.errors: list[Exception] = []
        self.first_at = 0.0
        self._client = EventHubConsumerClient.from_connection_string(
            gateway.connection_string, "$Default", eventhub_name=hub, retry_total=0
        )
        self._thread = threading.Thread(target=self._receive, args=(epoch,), daemon=True)
        self._thread.start()

    def _receive(self, epoch: int) -> None:
        self._client.receive(
            self._on_event,
            on_error=lambda _, error: self.errors.append(error),
            partition_id="0",
            starting_position="-1",
            owner_level=epoch,
        )

    def _on_event(self, _: object, event: EventData | None) -> None:
        if event is not None:
            self.first_at = self.first_at or time.time()
            self.bodies.append(event.body_as_str())

    def close(self) -> None:
        """Detach."""
        self._client.close()
        self._thread.join(PATIENCE_S)


def seconds_until_stolen(machines: Machines, hub: str, control: str) -> float:
    """Freeze the gateway of an owner and steal its place; how long after its last beat the new owner reads.

    `control` is the topic of the control log. On a busy machine the last beat can be long before the freeze.
    """
    first, second = machines.gateways[:2]
    create_hub(machines, hub, gateway=1)
    old = ExclusiveReader(first, hub, 1)
    assert eventually(lambda: old.bodies == ["first"])
    first.signal(signal.SIGSTOP)
    try:
        new = ExclusiveReader(second, hub, 2)
        assert eventually(lambda: bool(new.bodies))
        post_event(second.ready, hub, "after")
        assert eventually(lambda: new.bodies == ["first", "after"])
    finally:
        first.signal(signal.SIGCONT)
    assert eventually(lambda: bool(old.errors))
    old.close()
    new.close()
    assert old.bodies == ["first"], "an event was delivered to an old owner"
    return new.first_at - _last_beat_s(machines, control, 1, new.first_at)


def _last_beat_s(machines: Machines, control: str, epoch: int, until_s: float) -> float:
    """When the gateway whose reader has claimed a place with an epoch sent its last beat before a time."""
    entries = [(at_s, entry) for at_s, entry in _control_entries(machines, control) if at_s <= until_s]
    session = [entry.session for _, entry in entries if isinstance(entry, Claim) and entry.epoch == epoch][-1]
    return max(at_s for at_s, entry in entries if isinstance(entry, Beat) and entry.session == session)


def _control_entries(machines: Machines, control: str) -> list[tuple[float, Entry]]:
    """The entries of the control log with their times, as the brokers have them."""
    settings = {"bootstrap.servers": machines.brokers.bootstrap, "group.id": "unused", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    found: list[tuple[float, Entry]] = []
    try:
        low, end = consumer.get_watermark_offsets(TopicPartition(control, 0), timeout=PATIENCE_S)
        consumer.assign([TopicPartition(control, 0, low)])
        position, deadline = low, time.monotonic() + PATIENCE_S
        while position < end:
            assert time.monotonic() < deadline, f"the control log is read up to {position} of {end}"
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    found.append((message.timestamp()[1] / 1000, decode_entry(message.value() or b"")))
                    position = (message.offset() or 0) + 1
    finally:
        consumer.close()
    return found


def errors_of_a_moving_consumer(machines: Machines, hub: str) -> list[str]:
    """Move a consumer to a gateway that has not heard of the newest events; the errors that it gets."""
    first, second = machines.gateways[:2]
    create_hub(machines, hub)
    producer = Producer({**first.kafka, "log_level": 0})
    behind = Consumer({**second.kafka, "group.id": "unused", "auto.offset.reset": "error", "log_level": 0})
    errors: list[str] = []
    try:
        for number in range(_MOVES):
            for body in (b"before", b"after"):
                producer.produce(hub, body, partition=1)
                assert producer.flush(PATIENCE_S) == 0
            behind.assign([TopicPartition(hub, 1, 2 * number + 1)])
            message = behind.poll(PATIENCE_S)
            assert message is not None
            if message.error() is not None:
                errors.append(str(message.error()))
    finally:
        behind.close()
    return errors


def leave_a_leader_alone(machines: Machines, control: str) -> None:
    """Freeze the followers of the control log's leader, for so long that appends to it time out and are repeated."""
    alone = machines.leader_of(control)
    others = [number for number in range(3) if number != alone]
    for number in others:
        machines.signal_broker(number, signal.SIGSTOP)
    try:
        assert eventually(lambda: get(machines.gateways[0].ready, "/health")[0] == 503)
        time.sleep(_ALONE_SECONDS)
    finally:
        for number in others:
            machines.signal_broker(number, signal.SIGCONT)
    machines.await_sync()
