"""Events published over AMQP, Kafka or HTTP and read over each of them (checks 45 to 49). Each protocol shows what it
can express, as the reference maps it (kafka 4.1 and 4.3), and returns its own events unchanged.
"""

import datetime
import json
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from azure.eventhub import EventData
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from conformance.amqp.azure_clients import a_consumer, a_producer, receive
from conformance.kafka.kafka_clients import librdkafka
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.settings import HubSetting
from hubmere.testing import Node

pytestmark = pytest.mark.foreign

_PATIENCE_S = 240.0
_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
_TIME = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
# The sequence number of each protocol's event in the one partition.
_AMQP, _KAFKA, _HTTP, _NULL = range(4)


class Views(NamedTuple):
    """The same events as each protocol returns them."""

    amqp: list[Any]
    kafka: list[Any]
    http: list[Any]


@pytest.fixture(scope="module")
def views() -> Iterator[Views]:
    """Four events in one partition, published over all three protocols and read over all three."""
    with Node(hubs=[HubSetting(name="matrix", partition_count=1)]) as node, _http(node) as http:
        _publish_by_amqp(node)
        _publish_by_kafka(node, b"from kafka")
        _publish_by_http(http)
        _publish_by_kafka(node, None)
        received = receive(a_consumer(node.emulator_connection_string, "matrix"), 4)
        assert received.errors == []
        path = "/matrix/consumergroups/$Default/partitions/0/messages"
        yield Views([event for _, event in received.events], _read_by_kafka(node), http.get(path).json()["events"])


def _http(node: Node) -> httpx.Client:
    parts = ConnectionString.parse(node.connection_string)
    assert parts.key_name is not None
    assert parts.key is not None
    token = make_token("http://localhost/matrix", parts.key_name, parts.key, expires_at_s=4_000_000_000)
    return httpx.Client(base_url=node.http, headers={"Authorization": token})


def _publish_by_amqp(node: Node) -> None:
    event = EventData(b"from amqp")
    event.properties = {"text": "hello", "number": 1234, "small": 5, "when": _TIME, "id": _UUID, "yes": True}
    event.message_id = "m-1"
    event.content_type = "text/plain"
    with a_producer(node.emulator_connection_string, "matrix") as producer:
        batch = producer.create_batch(partition_key="amqp-key")
        batch.add(event)
        producer.send_batch(batch)


def _publish_by_kafka(node: Node, value: bytes | None) -> None:
    producer = Producer(librdkafka(node))
    headers = [("h", b"\x01\x02"), ("gone", None)]
    producer.produce("matrix", key=b"kafka-key", value=value, headers=headers, partition=0)
    assert producer.flush(_PATIENCE_S) == 0


def _publish_by_http(http: httpx.Client) -> None:
    headers = {"BrokerProperties": json.dumps({"PartitionKey": "http-key"}), "n": "5", "b": "true", "s": "x"}
    assert http.post("/matrix/messages", content=b"from http", headers=headers).status_code == 201


def _read_by_kafka(node: Node) -> list[Any]:
    consumer = Consumer(librdkafka(node, group_id="matrix"))
    consumer.assign([TopicPartition("matrix", 0, OFFSET_BEGINNING)])
    messages: list[Any] = []
    while len(messages) < 4:
        messages += [message for message in consumer.consume(4, _PATIENCE_S) if message.error() is None]
    consumer.close()
    return messages


def _body(event: Any) -> bytes:
    return b"".join(event.body)


# --- everywhere ------------------------------------------------------------------------------------------------------


def test_body_position_and_time_are_the_same_over_all_protocols(views: Views) -> None:
    """The sequence number is the Kafka offset; the time is that of the append."""
    bodies = [b"from amqp", b"from kafka", b"from http", b""]

    assert [_body(event) for event in views.amqp] == bodies
    assert [message.value() or b"" for message in views.kafka] == bodies
    assert [(event["body"] or "").encode() for event in views.http] == bodies
    assert [event.sequence_number for event in views.amqp] == [0, 1, 2, 3]
    assert [message.offset() for message in views.kafka] == [0, 1, 2, 3]
    assert [event["sequenceNumber"] for event in views.http] == [0, 1, 2, 3]
    times_ms = [message.timestamp()[1] for message in views.kafka]
    assert [round(event.enqueued_time.timestamp() * 1000) for event in views.amqp] == times_ms
    shown = [datetime.datetime.fromisoformat(event["enqueuedTime"]) for event in views.http]
    assert [round(at.timestamp() * 1000) for at in shown] == times_ms


def test_byte_offset_is_the_same_over_amqp_and_http(views: Views) -> None:
    """A checkpoint contains it."""
    assert [event.offset for event in views.amqp] == [event["offset"] for event in views.http]


# --- published over AMQP ---------------------------------------------------------------------------------------------


def test_amqp_event_is_returned_to_amqp_unchanged(views: Views) -> None:
    """Check 46: every section and type is compared."""
    event = views.amqp[_AMQP]

    assert event.properties == {
        b"text": b"hello",
        b"number": 1234,
        b"small": 5,
        b"when": int(_TIME.timestamp() * 1000),
        b"id": _UUID,
        b"yes": True,
    }
    assert event.partition_key == b"amqp-key"
    assert (event.message_id, event.content_type) == ("m-1", "text/plain")


def test_amqp_event_is_a_keyed_record_with_encoded_headers(views: Views) -> None:
    """Check 45: properties keep their AMQP encoding, the message id is text, the partition key is the key."""
    message = views.kafka[_AMQP]

    headers = dict(message.headers())
    assert message.key() == b"amqp-key"
    assert headers["text"] == b"\xa1\x05hello"
    assert headers["id"] == b"\x98" + _UUID.bytes
    assert headers["when"] == b"\x83" + int(_TIME.timestamp() * 1000).to_bytes(8, "big")
    assert headers["message-id"] == b"m-1"
    assert headers["content-type"] == b"text/plain"


def test_amqp_event_is_shown_as_json(views: Views) -> None:
    """People and tools read it."""
    event = views.http[_AMQP]

    assert event["partitionKey"] == "amqp-key"
    assert event["properties"]["text"] == {"type": "string", "value": "hello"}


# --- published by Kafka ----------------------------------------------------------------------------------------------


def test_kafka_event_is_returned_to_kafka_unchanged(views: Views) -> None:
    """Batches are not opened: nothing is added or lost, including null values."""
    for place, value in ((_KAFKA, b"from kafka"), (_NULL, None)):
        message = views.kafka[place]
        assert (message.key(), message.value()) == (b"kafka-key", value)
        assert message.headers() == [("h", b"\x01\x02"), ("gone", None)]


def test_kafka_event_shows_its_headers_and_key_over_amqp(views: Views) -> None:
    """Check 47: properties are binary or null, and the key, which is no partition key, is a separate annotation."""
    event = views.amqp[_KAFKA]

    assert event.properties == {b"h": b"\x01\x02", b"gone": None}
    assert event.raw_amqp_message.annotations[b"x-opt-kafka-key"] == b"kafka-key"
    assert event.partition_key is None


# --- published over HTTP ---------------------------------------------------------------------------------------------


def test_http_event_has_typed_properties_over_amqp(views: Views) -> None:
    """Headers that look like numbers and booleans get these types."""
    event = views.amqp[_HTTP]

    assert {name: event.properties[name] for name in (b"n", b"b", b"s")} == {b"n": 5, b"b": True, b"s": b"x"}
    assert event.partition_key == b"http-key"


def test_http_event_is_a_keyed_record_with_encoded_headers(views: Views) -> None:
    """Check 48: the AMQP encodings are the compact ones."""
    message = views.kafka[_HTTP]

    headers = dict(message.headers())
    assert message.key() == b"http-key"
    assert {name: headers[name] for name in ("n", "b", "s")} == {"n": b"\x54\x05", "b": b"\x41", "s": b"\xa1\x01x"}
