"""Events that were published over HTTPS, as an unmodified AMQP client reads them (checks 23 to 29 of service 11)."""

import json
import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from azure.eventhub import EventData, TransportType

from conformance.amqp.azure_clients import WEBSOCKET_TIMEOUT_S, Received, a_consumer, a_producer
from conformance.conformance_node import Transport
from conformance.matrix import Feature, Name
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.testing import Node

judges = pytest.mark.judges

pytestmark = pytest.mark.foreign


@pytest.fixture
def http(node: Node) -> Iterator[httpx.Client]:
    """An HTTPS client that trusts the node's CA and sends a SAS token."""
    parts = ConnectionString.parse(node.connection_string)
    assert parts.key_name is not None
    assert parts.key is not None
    token = make_token("https://localhost/", parts.key_name, parts.key, expires_at_s=4_000_000_000)
    with httpx.Client(
        base_url=node.https, verify=ssl.create_default_context(cafile=node.ca_file), headers={"Authorization": token}
    ) as client:
        yield client


@pytest.fixture
def hub(http: httpx.Client, request: pytest.FixtureRequest) -> str:
    """A hub of two partitions for one test."""
    name = request.node.name.replace("_", "-")
    description = "<EventHubDescription><PartitionCount>2</PartitionCount></EventHubDescription>"
    http.put(f"/{name}", content=description).raise_for_status()
    return str(name)


def test_an_amqp_reader_gets_what_was_posted(node: Node, http: httpx.Client, hub: str) -> None:
    """One reader checks bodies, typed properties, batches and publishers."""
    key = {"BrokerProperties": '{"PartitionKey":"k"}'}
    batch = [{"Body": "one", "UserProperties": {"x": 1}}, {"Body": "two"}]
    batch_type = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
    posts = [
        http.post(f"/{hub}/messages", content=bytes(range(10)), headers={**key, "Alert": "Strong Wind", "N": "5"}),
        http.post(f"/{hub}/messages", content=json.dumps(batch), headers=batch_type),
        http.post(f"/{hub}/publishers/dev-01/messages", content=b"published"),
    ]

    consumer = a_consumer(node.emulator_connection_string, hub)
    received = Received(consumer, 4).start().wait()
    events = {event.body_as_str(): event for _, event in received.events}

    assert [post.status_code for post in posts] == [201, 201, 201]
    single = events[bytes(range(10)).decode()]
    assert b"".join(single.body) == bytes(range(10))
    assert single.partition_key == b"k"
    assert single.properties == {b"Alert": b"Strong Wind", b"N": 5}
    assert events["one"].properties == {b"x": 1}
    assert events["two"].sequence_number == events["one"].sequence_number + 1
    assert events["published"].system_properties[b"x-opt-publisher"] == b"dev-01"
    assert events["published"].partition_key == b"dev-01"


def test_key_selects_the_same_partition_over_http_and_amqp(node: Node, http: httpx.Client, hub: str) -> None:
    """27: both use the same hash."""
    with a_producer(node.emulator_connection_string, hub) as producer:
        for index in range(8):
            batch = producer.create_batch(partition_key=f"key-{index}")
            batch.add(EventData(f"amqp-{index}"))
            producer.send_batch(batch)
    for index in range(8):
        http.post(f"/{hub}/messages", content=f"http-{index}", headers={"PartitionKey": f"key-{index}"})

    places: dict[str, set[str]] = {}
    for partition in ("0", "1"):
        look = http.get(f"/{hub}/consumergroups/$Default/partitions/{partition}/messages", params={"limit": 1000})
        for event in look.json()["events"]:
            places.setdefault(event["partitionKey"], set()).add(partition)

    assert len(places) == 8
    assert all(len(partitions) == 1 for partitions in places.values())


@judges(client=Name.PYTHON, transport=Transport.WEB_SOCKET, feature=Feature.BATCHES)
def test_the_sdk_sends_and_receives_over_websockets(node: Node, hub: str) -> None:
    """AMQP over WebSocket on the HTTPS port, with TLS by our CA."""
    options: dict[str, Any] = {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": node.https,
        "connection_verify": node.ca_file,
        "socket_timeout": WEBSOCKET_TIMEOUT_S,
    }
    with a_producer(node.connection_string, hub, **options) as producer:
        batch = producer.create_batch(partition_id="1")
        for index in range(100):
            batch.add(EventData(f"ws-{index}" + "x" * 1000))
        producer.send_batch(batch)
    consumer = a_consumer(node.connection_string, hub, **options)
    received = Received(consumer, 100, partition_id="1").start().wait()

    assert [body.rstrip("x") for body in received.bodies] == [f"ws-{index}" for index in range(100)]
