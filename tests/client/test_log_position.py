"""The byte position of batches in the log, which a node sends to our clients in addition to Kafka's fields."""

from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from client.hubs import PATIENCE_S, Hubs, an_account, bodies
from hubmere.client.connection import Client
from hubmere.client.consumer import UNKNOWN_POSITION, HubReader


@pytest.mark.parametrize(("client_id", "is_told"), [("hubmere-spark", True), ("another", False)])
def test_byte_position_is_sent_only_to_our_clients(hubs: Hubs, client_id: str, is_told: bool) -> None:
    """Other clients get exactly the fields of Kafka's protocol."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(3))

    with Client(replace(an_account(hubs.node), client_id=client_id)) as client:
        (fetched,) = HubReader(client, hub).read_range(0, 0, 3)

    assert (fetched.position != UNKNOWN_POSITION) is is_told


def test_byte_limit_is_estimated_without_positions(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster has no positions in bytes: the limit still applies, with the first events as the measure."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, *([b"x" * 1000] * 10 for _ in range(10)))
    monkeypatch.setattr(HubReader, "_ask_after_bytes", lambda self, ranges: {})

    with Client(replace(an_account(hubs.node), client_id="another")) as client:
        reader = HubReader(client, hub)
        ends = [reader.find_after_bytes(0, 0, 100, size_bytes) for size_bytes in (1, 25_000, 10_000_000)]

    assert ends[0] == 10
    assert 20 <= ends[1] <= 25
    assert ends[2] == 100


def test_foreign_client_with_our_client_id_can_read(hubs: Hubs) -> None:
    """A client skips an unknown tag (KIP-482), so the additional field does no harm."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(3))
    consumer = Consumer(
        {
            "bootstrap.servers": hubs.node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": hubs.node.connection_string,
            "client.id": "hubmere-foreign",
            "group.id": "$Default",
            "auto.offset.reset": "earliest",
        }
    )

    consumer.subscribe([hub])
    messages = consumer.consume(3, timeout=PATIENCE_S)
    consumer.close()

    assert [message.value() for message in messages] == bodies(3)
