"""kafka-python: produce, consume, groups and administration."""

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.conformance_node import Transport
from conformance.kafka.foreign import KafkaAdminClient, KafkaConsumer, KafkaError, KafkaProducer, NewTopic, Place
from conformance.kafka.kafka_clients import kafka_python
from conformance.matrix import Feature, Name
from hubmere.testing import Node

judges = pytest.mark.judges

# The library leaves its own wake-up sockets to the garbage collector (see conftest).
pytestmark = [
    pytest.mark.foreign,
    judges(client=Name.KAFKA_PYTHON, transport=Transport.PLAIN),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_PATIENCE_S = 240.0


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """Objects that a client left open are collected here, and not in another test."""
    yield
    gc.collect()


def publish(node: Node, topic: str, *values: bytes, tls: bool = False, **more: Any) -> list[Any]:
    """Publish events to the first partition; returns the client's metadata of each."""
    producer = KafkaProducer(**kafka_python(node, tls=tls, **more))
    try:
        futures = [producer.send(topic, value=value, key=b"k", headers=[("h", b"1")], partition=0) for value in values]
        return [future.get(_PATIENCE_S) for future in futures]
    finally:
        producer.close()


def read(consumer: Any, count: int) -> list[Any]:
    """The next messages. Each poll waits until some arrive.

    kafka-python 3.0.12 forgets an assignment if a poll ends while the member joins again, as it does when the metadata
    of the topic arrives after its first join: its later polls do not wait for the join any more.
    """
    messages: list[Any] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(messages) < count:
        left_s = deadline - time.monotonic()
        assert left_s > 0, f"only {len(messages)} of {count} messages came"
        for batch in consumer.poll(timeout_ms=1000 * left_s).values():
            messages += batch
    return messages


@judges(feature=Feature.CODECS)
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_events_are_read_back_unchanged(node: Node, topic: str, codec: str | None) -> None:
    """Reference check 11: every codec is used, with the packages that the library uses for them."""
    values = [b"%d" % number * 100 for number in range(50)]
    results = publish(node, topic, *values, compression_type=codec)

    consumer = KafkaConsumer(**kafka_python(node, auto_offset_reset="earliest"))
    consumer.assign([Place(topic, 0)])
    messages = read(consumer, 50)
    consumer.close()

    assert [one.offset for one in results] == list(range(50))
    assert [(one.key, one.value, one.headers) for one in messages] == [(b"k", value, [("h", b"1")]) for value in values]


@judges(feature=Feature.RECORDS)
@pytest.mark.parametrize(
    "tls",
    [pytest.param(False, id="plaintext"), pytest.param(True, id="tls", marks=judges(transport=Transport.TLS))],
)
def test_records_are_read_back_over_each_transport(node: Node, topic: str, tls: bool) -> None:
    """Key, value and headers; over TLS with the node's own CA."""
    publish(node, topic, b"x", tls=tls)

    consumer = KafkaConsumer(**kafka_python(node, tls=tls, auto_offset_reset="earliest"))
    consumer.assign([Place(topic, 0)])
    messages = read(consumer, 1)
    consumer.close()

    assert [(one.key, one.value, one.headers) for one in messages] == [(b"k", b"x", [("h", b"1")])]


@judges(feature=Feature.GROUPS)
def test_group_continues_at_its_committed_offsets(node: Node, topic: str, group: str) -> None:
    """Join, sync, heartbeat, commit and leave are sent by another implementation."""
    publish(node, topic, *(b"%d" % number for number in range(10)))
    arguments = kafka_python(
        node, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=60_000,
        heartbeat_interval_ms=1000,
    )  # fmt: skip
    for expected in (b"0", b"5"):
        consumer = KafkaConsumer(topic, **arguments, max_poll_records=5)
        messages = read(consumer, 5)
        consumer.commit()
        consumer.close()

        assert messages[0].value == expected


@judges(feature=Feature.POSITIONS)
def test_positions_are_found(node: Node, topic: str) -> None:
    """They are the beginning, the end and a time."""
    results = publish(node, topic, b"a", b"b")
    consumer = KafkaConsumer(**kafka_python(node))
    place = Place(topic, 0)

    found = consumer.offsets_for_times({place: results[0].timestamp})
    ends = (consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place])
    consumer.close()

    assert found[place].offset == 0
    assert ends == (0, 2)


@judges(feature=Feature.TOPICS)
def test_topics_are_created_listed_and_deleted(node: Node, topic: str) -> None:
    """It uses kafka-python's admin client."""
    admin = KafkaAdminClient(**kafka_python(node))
    try:
        admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
        listed = admin.list_topics()
        described = admin.describe_topics([topic])
        admin.delete_topics([topic])

        assert topic in listed
        assert len(described[0]["partitions"]) == 3
        assert topic not in admin.list_topics()
    finally:
        admin.close()


@judges(feature=Feature.REFUSALS)
def test_wrong_key_is_reported(node: Node) -> None:
    """Reference check 6."""
    wrong = node.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")

    with pytest.raises(KafkaError):
        KafkaAdminClient(**kafka_python(node) | {"sasl_plain_password": wrong, "bootstrap_timeout_ms": 1500})
