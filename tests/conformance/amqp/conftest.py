"""Nodes for foreign AMQP clients: one for all tests that leave it as it is, with TLS beside it."""

import ssl
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from endpoints.amqp.amqp_node import AmqpNode
from hubmere.endpoints import certificates
from hubmere.model.tier import LimitsBook


@pytest.fixture(scope="session")
def shared_node() -> Iterator[AmqpNode]:
    """One node for all tests; each creates its own hub, so that no test sees another's events."""
    with AmqpNode(book=LimitsBook(overrides={"hubs_per_namespace": "unlimited"})) as node:
        yield node


class Hubs:
    """Hands out hubs that no other test uses."""

    def __init__(self, node: AmqpNode) -> None:
        self.node = node
        self._made = 0

    def next(self, partitions: int = 2) -> str:
        """A new hub for a test."""
        self._made += 1
        name = f"test-{self._made}"
        self.node.add_hub(name, partitions)
        return name


@pytest.fixture(scope="session")
def hubs(shared_node: AmqpNode) -> Hubs:
    return Hubs(shared_node)


@pytest.fixture
def hub(hubs: Hubs) -> str:
    """A fresh hub with two partitions on the shared node."""
    return hubs.next()


@pytest.fixture
def connection_string(shared_node: AmqpNode) -> str:
    return shared_node.connection_string()


class TlsNode(NamedTuple):
    """A node with a certificate of a private CA."""

    node: AmqpNode
    ca_file: str

    @property
    def connection_string(self) -> str:
        return f"Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={self.node.key}"

    @property
    def endpoint(self) -> str:
        """For clients that take a port only here."""
        return f"https://localhost:{self.node.port}"


@pytest.fixture(scope="session")
def tls_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    folder = tmp_path_factory.mktemp("tls")
    with AmqpNode(tls=_server_context(folder)) as node:
        yield TlsNode(node, str(folder / "ca.pem"))


@pytest.fixture
def tls_hub(tls_node: TlsNode) -> str:
    """A fresh hub on the node with TLS."""
    name = f"tls-{uuid.uuid4().hex}"
    tls_node.node.add_hub(name, 2)
    return name


def _server_context(folder: Path) -> ssl.SSLContext:
    now = datetime.now(UTC)
    ca = certificates.build_ca(now)
    server = certificates.build_server_certificate(ca, ("localhost", "127.0.0.1"), now)
    (folder / "ca.pem").write_bytes(ca.certificate)
    (folder / "server.pem").write_bytes(server.certificate)
    (folder / "server.key").write_bytes(server.key)
    return certificates.server_context(folder / "server.pem", folder / "server.key")
