"""Two nodes under one alias: the first is killed, the second takes over, and a foreign client continues (service 8)."""

import gc
import random
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.eventhub import EventData, EventHubProducerClient

from conformance.amqp.azure_clients import Received, a_consumer
from hubmere.settings import HubSetting
from hubmere.testing import Node

pytestmark = pytest.mark.foreign

BASE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces"
EAST = f"{BASE}/east-ns/disasterRecoveryConfigs/shop"
WEST = f"{BASE}/west-ns/disasterRecoveryConfigs/shop"
ALIAS_HOST = "shop.localhost"
# Loopback has many addresses: each node has the same ports on its own address.
EAST_ADDRESS, WEST_ADDRESS = "127.0.0.1", "127.0.0.2"


class Dns:
    """The address of the alias for this process; an operator changes it at a failover."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._resolve = socket.getaddrinfo

    def getaddrinfo(self, host: Any, *more: Any, **named: Any) -> Any:
        return self._resolve(self.address if host == ALIAS_HOST else host, *more, **named)


def shared_port() -> int:
    """A port that is free on both addresses, below the ports that systems choose themselves (RFC 6335: 49152).

    Linux begins at 32768. One of these may be taken by a connection of another test before the second node starts.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with suppress(OSError), ExitStack() as stack:
            for address in (EAST_ADDRESS, WEST_ADDRESS):
                stack.enter_context(socket.create_server((address, port)))
            return port
    raise AssertionError("no port is free")


@pytest.fixture
def west() -> Iterator[Node]:
    """The node that takes over."""
    names = ["west.localhost", ALIAS_HOST, WEST_ADDRESS]
    port = shared_port()
    with Node(
        settings={"namespace": "west-ns", "host": WEST_ADDRESS, "hostname": names, "amqps_port": port}
    ) as running:
        yield running


@pytest.fixture
def east(west: Node) -> Iterator[Node]:
    """The node that is killed; the other one is its partner."""
    partner = "georecovery.partners.west-ns"
    port = west.amqps.rpartition(":")[2]
    settings: dict[str, str | int | list[str]] = {
        "namespace": "east-ns",
        "host": EAST_ADDRESS,
        "hostname": ["east.localhost", ALIAS_HOST],
        "amqps_port": int(port),
        f"{partner}.url": west.https.replace("west.localhost", WEST_ADDRESS),
        f"{partner}.token": west.admin_token,
        f"{partner}.ca_file": west.ca_file,
    }
    with Node(settings=settings, hubs=[HubSetting(name="orders", partition_count=1)]) as running:
        yield running


def _administrator(node: Node, address: str) -> httpx.Client:
    port = node.https.rpartition(":")[2]
    return httpx.Client(
        base_url=f"https://{address}:{port}",
        verify=ssl.create_default_context(cafile=node.ca_file),
        headers={"Authorization": f"Bearer {node.admin_token}"},
    )


def _await_state(arm: httpx.Client, state: str | None) -> None:
    """Wait until the first node shows a state of the pairing; None: until it no longer has the alias."""
    deadline = time.monotonic() + 120
    while True:
        answer = arm.get(EAST)
        if (answer.json()["properties"]["provisioningState"] if answer.is_success else None) == state:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _send(producer: EventHubProducerClient, body: str) -> None:
    batch = producer.create_batch(partition_id="0")
    batch.add(EventData(body))
    producer.send_batch(batch)


# The SDK does not close the socket of a killed peer.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_client_of_the_alias_continues_when_the_primary_is_killed(
    east: Node, west: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client with one connection string works before and after the primary is killed."""
    dns = Dns(EAST_ADDRESS)
    monkeypatch.setattr(socket, "getaddrinfo", dns.getaddrinfo)
    trusted = tmp_path / "both.pem"
    trusted.write_text(Path(east.ca_file).read_text() + Path(west.ca_file).read_text())
    with _administrator(east, EAST_ADDRESS) as arm:
        arm.put(EAST, json={"properties": {"partnerNamespace": "west-ns"}}).raise_for_status()
        _await_state(arm, "Succeeded")
        keys = arm.post(f"{EAST}/authorizationRules/RootManageSharedAccessKey/listKeys").json()
    alias_string = keys["aliasPrimaryConnectionString"]
    # The SDK accepts a TLS port only in the custom endpoint; the host name is still the alias.
    endpoint = f"sb://{ALIAS_HOST}:{west.amqps.rpartition(':')[2]}"
    options: dict[str, Any] = {"connection_verify": str(trusted), "custom_endpoint_address": endpoint}
    producer = EventHubProducerClient.from_connection_string(
        alias_string, eventhub_name="orders", retry_backoff_factor=0.1, **options
    )

    with producer, _administrator(west, WEST_ADDRESS) as arm:
        _send(producer, "before")
        east.kill()
        failed_over = arm.post(f"{WEST}/failover")
        dns.address = WEST_ADDRESS
        _send(producer, "after")
        role = arm.get(WEST).json()["properties"]["role"]
    consumer = a_consumer(alias_string, "orders", **options)
    received = Received(consumer, 1).start().wait()

    assert (failed_over.status_code, role) == (200, "PrimaryNotReplicating")
    assert [event.body_as_str() for _, event in received.events] == ["after"]
    east.start()
    with _administrator(east, EAST_ADDRESS) as arm:
        _await_state(arm, None)
    # Collect the sockets that the SDK left open here, and not in the next test.
    del producer
    gc.collect()
