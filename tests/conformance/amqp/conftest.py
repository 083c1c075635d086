"""Nodes for foreign AMQP clients: one for all tests that do not change it, and one with TLS.

If Kafka brokers are given (`conformance_node.GATEWAY_VARIABLE`), both are one gateway in front of them.
"""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from conformance.conformance_node import is_on_cluster
from conformance.gateway_node import GatewayNode
from endpoints.amqp.amqp_node import NAMESPACE, AmqpNode
from hubmere.endpoints import certificates
from hubmere.model.entity import Status
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook

SharedNode = AmqpNode | GatewayNode


@pytest.fixture(scope="session")
def shared_node() -> Iterator[SharedNode]:
    """One node for all tests; each creates its own hub, so that no test sees another's events."""
    if is_on_cluster():
        with GatewayNode() as gateway:
            yield gateway
    else:
        with AmqpNode(book=LimitsBook(overrides={"hubs_per_namespace": "unlimited"})) as node:
            yield node


class Hubs:
    """Creates a separate hub for each test, and changes it."""

    def __init__(self, node: SharedNode) -> None:
        self.node = node
        self._made = 0

    def next(self, partitions: int = 2) -> str:
        """A new hub for a test."""
        self._made += 1
        name = f"test-{self._made}"
        self.node.add_hub(name, partitions)
        return name

    def disable_sending(self, hub: str) -> None:
        """Refuse publications to a hub."""
        if isinstance(self.node, GatewayNode):
            self.node.write_hub(hub, partitionCount=2, status=Status.SEND_DISABLED.value)
        else:
            self._update(self.node, hub, HubSpec(partition_count=2, status=Status.SEND_DISABLED))

    def change_retention(self, hub: str, hours: int) -> None:
        """Change the retention of a hub."""
        if isinstance(self.node, GatewayNode):
            self.node.write_hub(hub, retentionDescription={"cleanupPolicy": "Delete", "retentionTimeInHours": hours})
        else:
            self._update(self.node, hub, HubSpec(retention_hours=hours))

    def delete(self, hub: str) -> None:
        """Delete a hub."""
        if isinstance(self.node, GatewayNode):
            self.node.delete_hub(hub)
        else:
            self.node.manage(lambda manager, actor, done: manager.delete_hub(NAMESPACE, hub, actor, done))

    @staticmethod
    def _update(node: AmqpNode, hub: str, spec: HubSpec) -> None:
        node.manage(lambda manager, actor, done: manager.update_hub(NAMESPACE, hub, spec, actor, done))


@pytest.fixture(scope="session")
def hubs(shared_node: SharedNode) -> Hubs:
    return Hubs(shared_node)


@pytest.fixture
def hub(hubs: Hubs) -> str:
    """A fresh hub with two partitions on the shared node."""
    return hubs.next()


@pytest.fixture
def connection_string(shared_node: SharedNode) -> str:
    return shared_node.connection_string()


class TlsNode(NamedTuple):
    """A node with a certificate of a private CA."""

    hubs: Hubs
    port: int
    key: str
    ca_file: str

    @property
    def connection_string(self) -> str:
        return f"Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={self.key}"

    @property
    def endpoint(self) -> str:
        """For clients that take a port only here."""
        return f"https://localhost:{self.port}"


@pytest.fixture(scope="session")
def tls_node(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[TlsNode]:
    if is_on_cluster():
        gateway = request.getfixturevalue("shared_node")
        port = int(gateway.node.amqps.rpartition(":")[2])
        yield TlsNode(request.getfixturevalue("hubs"), port, gateway.key, gateway.node.ca_file)
    else:
        folder = tmp_path_factory.mktemp("tls")
        with AmqpNode(tls=_server_context(folder)) as node:
            yield TlsNode(Hubs(node), node.port, node.key, str(folder / "ca.pem"))


@pytest.fixture
def tls_hub(tls_node: TlsNode) -> str:
    """A fresh hub on the node with TLS."""
    return tls_node.hubs.next()


def _server_context(folder: Path) -> ssl.SSLContext:
    now = datetime.now(UTC)
    ca = certificates.build_ca(now)
    server = certificates.build_server_certificate(ca, ("localhost", "127.0.0.1"), now)
    (folder / "ca.pem").write_bytes(ca.certificate)
    (folder / "server.pem").write_bytes(server.certificate)
    (folder / "server.key").write_bytes(server.key)
    return certificates.server_context(folder / "server.pem", folder / "server.key")
