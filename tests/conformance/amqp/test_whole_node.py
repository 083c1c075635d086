"""The Azure SDK for Python with a node that was started by the command, as an operator does."""

import pytest
from azure.eventhub import EventData, TransportType

from conformance.amqp.azure_clients import a_consumer, a_producer, receive
from hubmere.testing import Node

# The SDK leaves some of its sockets to the garbage collector.
pytestmark = [
    pytest.mark.foreign,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_accepted_event_survives_the_end_of_the_process() -> None:
    """An accepted event is on disk: SIGKILL does not lose it."""
    with Node(hubs=["orders"]) as node:
        with a_producer(node.emulator_connection_string, "orders") as producer:
            for number in range(20):
                producer.send_event(EventData(f"{number}"), partition_id="0")
        node.kill()
        node.start()

        received = receive(a_consumer(node.emulator_connection_string, "orders"), 20, partition_id="0")

    assert received.bodies == [f"{number}" for number in range(20)]


def test_printed_connection_string_works_over_tls() -> None:
    """It uses the node's own CA, on a port that is not the default."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        tls = {
            "transport_type": TransportType.Amqp,
            "custom_endpoint_address": f"https://{node.amqps}",
            "connection_verify": node.ca_file,
        }
        with a_producer(node.connection_string, "orders", **tls) as producer:
            producer.send_batch([EventData("over TLS")], partition_id="0")

        received = receive(a_consumer(node.connection_string, "orders", **tls), 1, partition_id="0")

    assert received.bodies == ["over TLS"]
