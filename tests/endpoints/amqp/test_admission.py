"""Which connections are accepted: namespaces by host name, network rules, and the connection limit of the tier."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from endpoints.amqp.amqp_node import NAMESPACE, AmqpNode
from endpoints.amqp.messages import an_event
from endpoints.amqp.raw_client import RawClient, Refused
from hubmere.endpoints import certificates
from hubmere.model.entity import DefaultAction, NetworkRuleSet
from hubmere.model.names import hub_name, namespace_name
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import LimitsBook
from hubmere.wire.amqp import ClientCredentials


def test_host_name_selects_the_namespace(node: AmqpNode) -> None:
    """Two namespaces share one port: each host name gives access to the hubs of its own namespace."""
    other = namespace_name("other-space")
    node.manage(lambda manager, actor, done: manager.create_namespace(other, NamespaceSpec(), actor, done))
    spec = HubSpec(partition_count=1)
    node.manage(lambda manager, actor, done: manager.create_hub(other, hub_name("there"), spec, actor, done))
    key = node.broker.entities.rule(node.broker._namespace(other).entity, "RootManageSharedAccessKey").primary_key
    credentials = ClientCredentials.plain("RootManageSharedAccessKey", key)

    with RawClient(node, credentials=credentials, hostname="other-space.localhost") as client:
        client.publish(client.sender("there"), an_event())
        with pytest.raises(Refused) as refused:
            client.sender("orders")

    assert refused.value.condition == "amqp:not-found"


def test_key_of_one_namespace_is_refused_in_another(node: AmqpNode) -> None:
    """Signing in under one host name and opening under another does not help."""
    other = namespace_name("other-space")
    node.manage(lambda manager, actor, done: manager.create_namespace(other, NamespaceSpec(), actor, done))

    with RawClient(node, hostname="other-space.localhost") as client:
        status, text = client.put_token("orders", client.token("orders"))

    assert status == 401
    assert text.startswith("InvalidSignature")


def test_connection_from_a_denied_address_is_closed(node: AmqpNode) -> None:
    """Network rules are checked before any credential, also before PLAIN."""
    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.1.2.0/24",))
    node.manage(lambda manager, actor, done: manager.update_network(NAMESPACE, rules, actor, done))

    with RawClient(node, begins=False) as client:
        refused = client.closed()

    assert refused.condition == "amqp:unauthorized-access"
    assert "address is not allowed" in refused.description


def test_connections_of_a_namespace_are_limited() -> None:
    """One more is closed with a reason; when a connection ends, another one is accepted."""
    book = LimitsBook(overrides={"connections": 2})
    with AmqpNode(book=book) as node, RawClient(node) as first, RawClient(node):
        with RawClient(node, begins=False) as third:
            refused = third.closed()
        first.socket.close()
        while node.call(lambda: node.broker._namespace(NAMESPACE).counters.active_connections) > 1:
            pass
        with RawClient(node) as again:
            again.authorize()

    assert refused.condition == "amqp:resource-limit-exceeded"


def test_external_is_accepted_if_tls_requires_certificates(tmp_path: Path) -> None:
    """The listener has checked the certificate; this gives no rights, so a token is still needed."""
    ca = certificates.build_ca(datetime.now(UTC))
    server = certificates.build_server_certificate(ca, ("localhost",), datetime.now(UTC))
    for name, content in (("ca.pem", ca.certificate), ("server.pem", server.certificate), ("server.key", server.key)):
        (tmp_path / name).write_bytes(content)
    context = certificates.server_context(tmp_path / "server.pem", tmp_path / "server.key")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    with AmqpNode(tls=context, takes_certificates=True) as node:
        client = RawClient(node, credentials=ClientCredentials("EXTERNAL"))
        client.socket = trusting.wrap_socket(client.socket, server_hostname="localhost")
        with client:
            with pytest.raises(Refused):
                client.sender("orders")
            client.authorize("orders")
            client.publish(client.sender("orders"), an_event())
