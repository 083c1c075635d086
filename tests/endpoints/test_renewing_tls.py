"""The certificate of a running node follows its namespaces: real TLS clients with names that were added later."""

import socket
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from hubmere.endpoints.certificates import covers, fold_names, server_names
from hubmere.model.addresses import Addresses
from hubmere.model.security.connection_string import ConnectionString
from hubmere.settings import load
from hubmere.settings.problems import BadSettings
from hubmere.testing import Node

PATIENCE_S = 120.0
NAMESPACES = "/subscriptions/0/resourceGroups/hubmere/providers/Microsoft.EventHub/namespaces"
SERVICES = ("amqps", "kafkas", "https")


@pytest.fixture(params=[(), ("events.example.org",), ("*.example.org",), ("*.example",)], ids=str)
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """Nodes with every form of host name."""
    with Node(hubs=["orders"], settings={"memory": True, "hostname": request.param}) as node:
        yield node


def port_of(node: Node, service: str) -> int:
    address = getattr(node, service)
    port = urlsplit(address if "//" in address else f"//{address}").port
    assert port is not None
    return port


def shake_hands(node: Node, service: str, name: str) -> ssl.SSLSocket:
    """A verified connection to a port under a name, independent of DNS."""
    context = ssl.create_default_context(cafile=node.ca_file)
    plain = socket.create_connection(("127.0.0.1", port_of(node, service)), timeout=PATIENCE_S)
    return context.wrap_socket(plain, server_hostname=name)


def host_of(node: Node, namespace: str) -> str:
    """The host name in the connection string of a namespace."""
    keys = manage(node, "POST", f"{namespace}/authorizationRules/RootManageSharedAccessKey/listKeys")
    return ConnectionString.parse(keys["primaryConnectionString"]).host


def manage(node: Node, method: str, path: str, body: object = None) -> Any:
    """A request to the management API, by the address of the machine."""
    answer = httpx.request(
        method,
        f"http://127.0.0.1:{port_of(node, 'http')}{NAMESPACES}/{path}",
        params={"api-version": "2024-01-01"},
        headers={"Authorization": f"Bearer {node.admin_token}"},
        json=body,
        timeout=PATIENCE_S,
    )
    return answer.raise_for_status().json()


def test_certificate_covers_the_name_of_a_namespace_that_was_created_at_run_time(node: Node) -> None:
    """The connection string names it, and the client must accept it; open connections stay."""
    before = shake_hands(node, "https", host_of(node, node.namespace))
    manage(node, "PUT", "second", {"location": "westeurope", "sku": {"name": "Standard"}})

    for service in SERVICES:
        shake_hands(node, service, host_of(node, "second")).close()
        shake_hands(node, service, host_of(node, node.namespace)).close()

    before.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert before.recv(12) == b"HTTP/1.1 200"
    before.close()


def test_certificate_covers_an_alias_that_was_created_at_run_time() -> None:
    """Clients that use the alias of geo-disaster recovery use TLS too."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        manage(node, "PUT", f"{node.namespace}/disasterRecoveryConfigs/shop-events", {"properties": {}})

        shake_hands(node, "amqps", "shop-events.localhost").close()


def test_unknown_name_is_not_covered(node: Node) -> None:
    """A client that asks for a name must not make the node sign a certificate."""
    name = f"nobody.{node.namespace}.example.net"

    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(node, "https", name)

    shake_hands(node, "https", "localhost").close()


@pytest.mark.parametrize(
    ("hostnames", "own", "second"),
    [
        ((), "localhost", "second.localhost"),
        (("events.example.org",), "events.example.org", "second.events.example.org"),
        (("*.example.org",), "first.example.org", "second.example.org"),
        (("*.example", "node.example"), "first.example", "second.example"),
        (("first.example.org",), "first.example.org", "second.first.example.org"),
    ],
)
def test_every_namespace_has_a_name_that_the_certificate_covers(
    hostnames: tuple[str, ...], own: str, second: str
) -> None:
    """Connection strings and certificates use the same settings."""
    addresses = Addresses(namespace="first", hostnames=hostnames)

    names = fold_names(server_names(hostnames, ["first", "second"], "machine"))

    assert (addresses.host, addresses.host_of("first"), addresses.host_of("Second")) == (own, own, second)
    assert covers(names, own)
    assert covers(names, second)


@pytest.mark.parametrize(
    ("name", "is_covered"),
    [
        ("a.example.org", True),
        ("A.EXAMPLE.org.", True),
        ("example.org", False),
        ("b.a.example.org", False),
        ("a.single", False),
        ("exact.single", True),
    ],
)
def test_wildcard_matches_one_label_and_needs_two_more(name: str, is_covered: bool) -> None:
    """This is OpenSSL's rule; other names must be listed."""
    assert covers(fold_names(("*.Example.org", "*.single", "exact.single")), name) is is_covered


@pytest.mark.parametrize("text", ["*.", "*.*.example", "*example", "a.*.example", "*.10.0.0.1", "*"])
def test_invalid_wildcard_is_refused(text: str) -> None:
    """There may be one star, at the beginning."""
    with pytest.raises(BadSettings):
        load({"hostname": [text]}, {})
