"""A flipped bit in the marker of a transaction: the partition continues, and the transaction keeps its outcome."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from client.hubs import an_account
from conformance.amqp.azure_clients import a_consumer, receive
from hubmere.client.connection import Client
from hubmere.client.consumer import HubReader
from hubmere.records.header import read_header
from hubmere.settings import HubSetting
from hubmere.store.log.segments.segment import LOG, stem
from hubmere.testing import Node

WAIT_S = 240.0


def _kafka(node: Node, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": node.connection_string,
        **more,
    }


def _a_transaction(producer: Producer, *values: bytes, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce("orders", value, partition=0)
    producer.flush(WAIT_S)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def _break_last_marker(data: Path) -> int:
    """Flip a bit in the last control batch of the only log; returns its sequence number."""
    (path,) = data.glob(f"log/*/{stem(0)}{LOG}")
    content = bytearray(path.read_bytes())
    at, marker = 0, -1
    while at < len(content) and (header := read_header(content, at)).size_bytes > 0 and header.magic == 2:
        marker = at if header.is_control else marker
        at += header.size_bytes
    assert marker >= 0
    sequence = read_header(content, marker).base_sequence_number
    content[marker + 70] ^= 1
    path.write_bytes(content)
    return sequence


@contextmanager
def _a_node_without_its_last_marker(data: Path, *, commit: bool) -> Iterator[Node]:
    """A node whose last transaction marker was damaged by a flipped bit between a kill and the next start."""
    with Node(hubs=[HubSetting(name="orders", partition_count=1)], data=data) as node:
        producer = Producer(_kafka(node, **{"transactional.id": "t"}))
        producer.init_transactions(WAIT_S)
        _a_transaction(producer, b"one", b"two", commit=commit)
        node.kill()
        _break_last_marker(data)
        node.start()
        yield node


def _read_committed(node: Node, *, until: bytes) -> list[bytes | None]:
    """The events of a read_committed consumer, up to one that must be visible."""
    more = {"group.id": "readers", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer(_kafka(node, **more))
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    seen: list[bytes | None] = []
    for _ in range(int(WAIT_S)):
        for message in consumer.consume(100, timeout=1.0):
            error = message.error()
            assert error is None or error.code() == KafkaError._TRANSPORT
            if error is None:
                seen.append(message.value())
        if until in seen:
            break
    consumer.close()
    return seen


def _publish_last(node: Node) -> None:
    producer = Producer(_kafka(node))
    producer.produce("orders", b"last", partition=0)
    assert producer.flush(WAIT_S) == 0


def test_a_committed_transaction_without_its_marker_stays_visible(tmp_path: Path) -> None:
    """Before, it stayed open for ever, and read_committed consumers never read past it."""
    with _a_node_without_its_last_marker(tmp_path / "data", commit=True) as node:
        _publish_last(node)

        seen = _read_committed(node, until=b"last")

    assert seen == [b"one", b"two", b"last"]


def test_an_aborted_transaction_without_its_marker_stays_hidden(tmp_path: Path) -> None:
    """Its events must not become visible because the disk has lost the abort marker."""
    with _a_node_without_its_last_marker(tmp_path / "data", commit=False) as node:
        _publish_last(node)

        seen = _read_committed(node, until=b"last")

    assert seen == [b"last"]


def test_amqp_readers_and_spark_get_past_a_transaction_without_its_marker(tmp_path: Path) -> None:
    """They and Capture read committed events too."""
    with _a_node_without_its_last_marker(tmp_path / "data", commit=True) as node:
        _publish_last(node)

        with a_consumer(node.emulator_connection_string, "orders") as consumer:
            received = receive(consumer, 3, partition_id="0", starting_position="-1")
        with Client(an_account(node)) as client:
            bounds = HubReader(client, "orders").bounds([0])[0]

    assert [event.body_as_str() for _, event in received.events] == ["one", "two", "last"]
    assert bounds.end > received.events[-1][1].sequence_number


def test_producer_of_a_transaction_without_its_marker_can_continue(tmp_path: Path) -> None:
    """Its next transactions have their own outcomes."""
    with _a_node_without_its_last_marker(tmp_path / "data", commit=True) as node:
        assert _read_committed(node, until=b"two") == [b"one", b"two"]
        producer = Producer(_kafka(node, **{"transactional.id": "t"}))
        producer.init_transactions(WAIT_S)
        _a_transaction(producer, b"aborted", commit=False)
        _a_transaction(producer, b"three", commit=True)

        seen = _read_committed(node, until=b"three")

    assert seen == [b"one", b"two", b"three"]


def test_next_transaction_of_a_producer_does_not_decide_the_lost_one(tmp_path: Path) -> None:
    """Before, the abort of the next transaction hid the events of the committed one as well."""
    with _a_node_without_its_last_marker(tmp_path / "data", commit=True) as node:
        producer = Producer(_kafka(node, **{"transactional.id": "t"}))
        producer.init_transactions(WAIT_S)
        _a_transaction(producer, b"aborted", commit=False)
        _a_transaction(producer, b"three", commit=True)

        seen = _read_committed(node, until=b"three")

    assert seen == [b"one", b"two", b"three"]
