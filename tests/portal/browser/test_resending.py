"""Events that an operator sends again, as unmodified clients get them."""

import uuid
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import expect

from portal.browser.visitor import Visitor

_KEY = "device-7"
# A partition that neither the service's nor librdkafka's rule chooses for the key.
_PARTITION = 2


def _records(visitor: Visitor, hub: str, count: int) -> list[Any]:
    """The records of one partition that a Kafka consumer gets."""
    consumer = Consumer(visitor.node.kafka_config(f"of-{hub}"))
    consumer.assign([TopicPartition(hub, _PARTITION, 0)])
    try:
        found = [consumer.poll(120) for _ in range(count)]
    finally:
        consumer.close()
    assert all(record is not None and record.error() is None for record in found)
    return found


def _events(visitor: Visitor, hub: str, count: int) -> list[EventData]:
    """The events of the first partition that an AMQP receiver gets."""
    found: list[EventData] = []
    with EventHubConsumerClient.from_connection_string(
        visitor.node.emulator_connection_string, "$Default", eventhub_name=hub
    ) as client:

        def on_event(_: object, event: EventData | None) -> None:
            if event is not None:
                found.append(event)
            if len(found) >= count:
                client.close()

        client.receive(on_event, partition_id="0", starting_position="-1")
    return found


def _open_resend(visitor: Visitor, hub: str, row: str) -> None:
    visitor.open(f"/explorer?hub={hub}", "Explorer")
    visitor.button(f"Open {row}").click()
    visitor.button("Resend").click()
    expect(visitor.page.get_by_role("dialog")).to_have_count(2)


def test_kafka_record_keeps_key_headers_and_partition(admin: Visitor) -> None:
    """All events of a key stay in one partition, whatever rule its producer has."""
    admin.add_hub("again-kafka", partitions=4)
    producer = Producer(admin.node.kafka_config())
    headers: list[Any] = [("trace", b"\x00\xff"), ("none", None)]
    producer.produce("again-kafka", b'{"n": 1}', _KEY, partition=_PARTITION, headers=headers)
    assert producer.flush(120) == 0

    _open_resend(admin, "again-kafka", f"{_PARTITION}/0")
    expect(admin.field("Partition key (optional)")).to_have_value(_KEY)
    admin.button("Send").click()
    admin.expect_notification("Event 1 was sent.")

    first, second = _records(admin, "again-kafka", 2)
    assert (second.key(), second.value(), second.headers()) == (first.key(), first.value(), first.headers())
    assert (second.key(), second.headers()) == (_KEY.encode(), headers)


def test_changed_event_keeps_what_was_not_changed(admin: Visitor) -> None:
    """A property that JSON cannot carry, the type of a number and the message id stay; the body is the new one."""
    admin.add_hub("again-amqp", partitions=1)
    event = EventData("line one\r\nline two")
    unique = uuid.UUID(int=7)
    event.properties = {"id": unique, "n": 5, "room": "kitchen"}
    event.message_id, event.content_type = "m-1", "text/plain"
    with EventHubProducerClient.from_connection_string(
        admin.node.emulator_connection_string, eventhub_name="again-amqp"
    ) as producer:
        producer.send_batch([event], partition_key=_KEY)

    _open_resend(admin, "again-amqp", "0/0")
    expect(admin.page.get_by_text("because JSON has no such type: id.")).to_be_visible()
    properties = admin.field("Properties as a JSON object (optional)")
    properties.fill('{"n": 5, "room": "hall"}')
    admin.button("Send").click()
    admin.expect_notification("Event 1 was sent.")

    _, changed = _events(admin, "again-amqp", 2)
    assert changed.body_as_str() == "line one\r\nline two"
    assert changed.properties == {b"id": unique, b"n": 5, b"room": b"hall"}
    assert (changed.message_id, changed.content_type) == ("m-1", "text/plain")
    assert changed.partition_key == _KEY.encode()


def test_large_and_binary_bodies_are_sent_unchanged(admin: Visitor) -> None:
    """A form cannot carry them, so their field says their size."""
    admin.add_hub("again-large", partitions=1)
    bodies = (b"x" * 900_000, b"\x00\x01\xff")
    for body in bodies:
        admin.rest("POST", "again-large/messages", content=body)

    for row, text in (("0/0", "(878.9 KB, sent unchanged)"), ("0/1", "(3 B, sent unchanged)")):
        _open_resend(admin, "again-large", row)
        expect(admin.field("Body")).to_have_value(text)
        expect(admin.field("Body")).to_be_disabled()
        admin.field("Partition key (optional)").fill("k")
        admin.button("Send").click()
        admin.expect_notification("was sent.")

    assert [b"".join(event.body) for event in _events(admin, "again-large", 4)] == [*bodies, *bodies]
