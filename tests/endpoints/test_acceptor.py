"""TLS handshakes that fail because a client has wrong settings leave a line in the log."""

import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from hubmere.testing import Node

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node(settings={"memory": True}) as node:
        yield node


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def connect(address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(address)), timeout=PATIENCE_S)


def await_line(node: Node, text: str) -> None:
    """Wait until a line of the node's log has a text."""
    deadline = time.monotonic() + PATIENCE_S
    while text not in node.logs():
        assert time.monotonic() < deadline, node.logs()
        time.sleep(0.01)


def test_client_that_does_not_trust_the_certificate_is_named_with_the_remedy(node: Node) -> None:
    """The most frequent mistake with TLS; the client often reports only a lost connection."""
    with connect(node.kafkas) as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")

    failed = f"a TLS handshake from 127.0.0.1 on port {port_of(node.kafkas)} failed: "
    await_line(node, f"{failed}the client does not trust the certificate; `hubmere cert` names the authority")


def test_client_without_tls_is_named(node: Node) -> None:
    """It has the port of the other listener, or the wrong security protocol."""
    with connect(node.amqps) as plain:
        plain.sendall(b"AMQP\x03\x01\x00\x00")
        while plain.recv(1024):
            pass

    await_line(node, f"on port {port_of(node.amqps)} failed: the client does not use TLS, which this port needs")


def test_probe_of_a_port_leaves_no_line(node: Node) -> None:
    """Load balancers connect and close, every second."""
    for _ in range(3):
        connect(node.https).close()
    with connect(node.https) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while plain.recv(1024):
            pass

    await_line(node, f"on port {port_of(node.https)} failed: the client does not use TLS")
    assert node.logs().count(f"on port {port_of(node.https)} failed") == 1
