"""Crashes and restarts with clients that stay open (checks 41 and 42)."""

import threading
import time
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from conformance.conformance_node import Transport
from conformance.kafka.kafka_clients import librdkafka
from conformance.matrix import Feature, Name
from hubmere.settings import HubSetting
from hubmere.testing import Node

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.judges(client=Name.CONFLUENT, transport=Transport.PLAIN, feature=Feature.RESTARTS),
]

_PATIENCE_S = 240.0
# Clients reconnect quickly, so that the tests are short.
_IMPATIENT: dict[str, Any] = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100}


def _read_all(node: Node, count: int) -> list[bytes]:
    consumer = Consumer(librdkafka(node, group_id="check"))
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    values: list[bytes] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(values) < count and time.monotonic() < deadline:
        values += [message.value() for message in consumer.consume(1000, 0.5) if message.error() is None]
    consumer.close()
    return values


def test_every_acknowledged_event_survives_a_crash() -> None:
    """Check 42: an idempotent producer continues, and each of its events is stored once and in order."""
    with Node(hubs=[HubSetting(name="orders", partition_count=1)]) as node:
        acknowledged: list[bytes] = []

        def note(error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            acknowledged.append(message.value())

        settings = librdkafka(node, enable_idempotence=True, linger_ms=1, **_IMPATIENT)
        producer = Producer(settings)

        def crash_and_return() -> None:
            node.kill()
            node.start()

        crash = threading.Timer(0.5, crash_and_return)
        crash.start()
        number = 0
        while crash.is_alive() or number < 2000:
            producer.produce("orders", value=b"%d" % number, partition=0, on_delivery=note)
            # The start of a node can take long; the producer's queue is not endless.
            producer.poll(0.001 if len(producer) < 10_000 else 0.1)
            number += 1
        assert producer.flush(_PATIENCE_S) == 0
        crash.join()

        stored = _read_all(node, number)

    assert len(acknowledged) == number
    assert stored == [b"%d" % index for index in range(number)]


def test_consumer_continues_after_a_restart() -> None:
    """Check 41: it is the same member, and nothing after its commit is lost or repeated."""
    with Node(hubs=[HubSetting(name="orders", partition_count=2)]) as node:
        producer = Producer(librdkafka(node, **_IMPATIENT))
        settings = librdkafka(node, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **_IMPATIENT)
        consumer = Consumer(settings | {"session.timeout.ms": 300_000})
        consumer.subscribe(["orders"])
        seen: list[bytes] = []
        for expected in (b"before", b"after"):
            producer.produce("orders", value=expected, partition=1)
            assert producer.flush(_PATIENCE_S) == 0
            deadline = time.monotonic() + _PATIENCE_S
            while expected not in seen and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    seen.append(message.value())
                    consumer.commit(message, asynchronous=False)
            if expected == b"before":
                node.restart()
        consumer.close()

    assert seen == [b"before", b"after"]
