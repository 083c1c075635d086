"""`hubmere links` and `hubmere audit`: who is connected, and who changed what."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from azure.eventhub import EventHubConsumerClient
from confluent_kafka import Consumer

from commands.runner import at, hubmere
from hubmere.testing import Node

Json = dict[str, Any]
_PATIENCE_SECONDS = 240.0


def the_connection(node: Node, is_it: Callable[[Json], bool]) -> Json:
    """The matching connection, once the node has all its data."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        found: list[Json] = [one for one in at(node, "links", "list", "-o", "json").json if is_it(one)]
        if found:
            return found[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_until_gone(node: Node, number: str) -> None:
    """Wait until a connection has ended."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(one["name"] == number for one in at(node, "links", "list", "-o", "json").json):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def a_reader(node: Node, hub: str) -> Iterator[threading.Thread]:
    """An unmodified AMQP client that reads one partition."""
    client = EventHubConsumerClient.from_connection_string(
        node.emulator_connection_string, "$Default", eventhub_name=hub, retry_total=0
    )
    thread = threading.Thread(
        target=client.receive,
        kwargs={"on_event": lambda _, __: None, "partition_id": "0", "starting_position": "-1", "owner_level": 7},
    )
    thread.start()
    try:
        yield thread
    finally:
        client.close()
        thread.join()


def reads(hub: str) -> Callable[[Json], bool]:
    """Whether a connection has a reader on a hub that is ready for events."""
    return lambda shown: any(
        link["role"] == "reads" and link["eventHub"] == hub and link["credit"] != 0 for link in shown["links"]
    )


@pytest.mark.foreign
def test_reader_over_amqp_is_shown_with_credit_and_position(node: Node, hub: str) -> None:
    """The line has client, identity, address, link, credit, position, lag and epoch."""
    with a_reader(node, hub):
        shown = the_connection(node, reads(hub))

    [link] = [link for link in shown["links"] if link["role"] == "reads"]
    assert shown["protocol"] == "AMQP"
    assert shown["rule"] == "RootManageSharedAccessKey"
    assert shown["remoteAddress"] == "127.0.0.1"
    assert "azsdk-python-eventhubs" in shown["software"]
    assert shown["clientId"]
    assert link["address"] == f"{hub}/consumergroups/$default/partitions/0"
    assert (link["consumerGroup"], link["partition"], link["epoch"]) == ("$default", 0, 7)
    assert (link["position"], link["lag"]) == (0, 0)
    assert link["credit"] > 0


@pytest.mark.foreign
def test_consumer_over_kafka_is_shown_with_its_software(node: Node, hub: str) -> None:
    """Its client id, its software, and its position."""
    host, port = str(node.kafka).rsplit(":", 1)
    consumer = Consumer(
        {
            "bootstrap.servers": f"{host}:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": node.connection_string,
            "group.id": "shown",
            "client.id": "till-7",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([hub])
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        shown = the_connection(
            node, lambda one: reads(hub)(one) and any(link["position"] == 0 for link in one["links"])
        )
    finally:
        stop.set()
        thread.join()
        consumer.close()

    assert shown["protocol"] == "Kafka"
    assert shown["clientId"] == "till-7"
    assert shown["software"].startswith(("confluent-kafka", "librdkafka"))
    assert {link["lag"] for link in shown["links"] if link["role"] == "reads"} == {0}


def test_client_over_http_is_shown_by_its_last_request(node: Node, hub: str) -> None:
    """A connection is described by its last request."""
    with httpx.Client(base_url=str(node.http), headers={"User-Agent": "a-device/1.0"}) as client:
        token = hubmere("sas", "--connection-string", node.connection_string, "--hub", hub).lines[0]
        client.post(f"/{hub}/messages", headers={"Authorization": token}, content=b"x").raise_for_status()

        shown = the_connection(node, lambda one: one["software"] == "a-device/1.0")

    assert (shown["protocol"], shown["rule"]) == ("HTTP", "RootManageSharedAccessKey")
    [link] = shown["links"]
    assert (link["role"], link["eventHub"], link["address"]) == ("publishes", hub, f"/{hub}/messages")


@pytest.mark.foreign
def test_closing_a_connection_is_audited(node: Node, hub: str) -> None:
    """An operator closes a stuck consumer, and the audit log says who did it."""
    with a_reader(node, hub):
        number = the_connection(node, reads(hub))["name"]

        closed = at(node, "links", "close", "-n", number)
        # The client connects again after half a minute, with another number.
        wait_until_gone(node, number)

    assert closed.code == 0
    entries = at(node, "audit", "-o", "json").json
    [entry] = [entry for entry in entries if entry["target"].endswith(f"/connections/{number}")]
    assert (entry["action"], entry["actor"], entry["outcome"]) == ("close connection", "(admin)", "done")
    assert entry["remoteAddress"] == "127.0.0.1"


def test_unknown_connection_cannot_be_closed(node: Node) -> None:
    """Numbers are not used twice, so this closes no other connection."""
    assert at(node, "links", "close", "-n", "999999").code != 0
    assert at(node, "links", "close", "-n", "x").code != 0


def test_audit_shows_changes_and_refusals(node: Node, hub: str) -> None:
    """Newest first, with the tracking id that the refused client got."""
    path = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/hubmere/eventhubs/nope"
    refused = httpx.put(f"{node.http}{path}", json={}, headers={"Authorization": "BearerToken wrong"})

    entries = at(node, "audit", "-o", "json").json

    assert refused.status_code == 401
    assert entries[0]["outcome"] == "refused"
    assert entries[0]["actor"] == "(unknown)"
    assert entries[0]["name"] in refused.text
    assert any((entry["action"], entry["target"]) == ("create hub", f"hubmere/{hub}") for entry in entries)
    assert at(node, "audit", "-o", "table").lines[0].split() == [
        "Time",
        "Actor",
        "From",
        "Action",
        "Target",
        "Outcome",
        "Reason",
    ]


def test_audit_is_a_file_in_the_data_folder(node: Node, hub: str) -> None:
    """For collectors; no key of the node is in it."""
    text = (node.data / "audit.log").read_text()

    assert f'"target": "hubmere/{hub}"' in text
    assert node.connection_string.partition("SharedAccessKey=")[2].partition(";")[0] not in text
