"""AMQP over WebSocket with the real AMQP session: a link ends when its token expires, as on the AMQP port."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest
import websocket

from broker.issuers import OWNER_ID, a_trusted_issuer, claims, token
from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import an_event
from endpoints.amqp.raw_client import WAIT_SECONDS, RawClient
from endpoints.http.harness import NAMESPACE, HttpNode
from hubmere.broker.broker import Broker
from hubmere.endpoints.amqp.endpoint import AmqpEndpoint
from hubmere.endpoints.stream import Session
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.entity import RoleAssignment
from hubmere.model.names import namespace_name
from hubmere.model.security.roles import DATA_SENDER
from hubmere.model.security.sas import make_token
from node_clock import NodeClock

SAS = "servicebus.windows.net:sastoken"


def amqp_sessions(broker: Broker, clock: Clock) -> Callable[[], Session]:
    """AMQP sessions that close links as soon as their tokens expire."""
    endpoint = AmqpEndpoint(
        broker,
        clock,
        Addresses(namespace=NAMESPACE),
        idle_timeout_s=36_000.0,
        handshake_timeout_s=30.0,
        token_grace_s=0.0,
    )
    return endpoint.session


class WebSocketStream:
    """A WebSocket with the methods of a socket that the raw AMQP client uses."""

    def __init__(self, client: websocket.WebSocket) -> None:
        self._client = client

    def sendall(self, data: bytes) -> None:
        self._client.send_binary(data)

    def recv(self, _size: int) -> bytes:
        try:
            return bytes(self._client.recv_data()[1])
        except websocket.WebSocketTimeoutException:
            raise TimeoutError from None

    def settimeout(self, seconds: float) -> None:
        self._client.settimeout(seconds)

    def close(self) -> None:
        self._client.shutdown()


@pytest.fixture
def clock() -> NodeClock:
    """The clock of the node."""
    return NodeClock()


@pytest.fixture
def node(clock: NodeClock) -> Iterator[HttpNode]:
    """A node that serves AMQP over WebSocket."""
    with HttpNode(amqp_session=lambda broker: amqp_sessions(broker, clock), clock=clock) as running:
        running.add_hub("orders")
        yield running


@contextmanager
def connected(node: HttpNode) -> Iterator[RawClient]:
    """An AMQP client over a WebSocket."""
    url = f"ws://127.0.0.1:{node.port}/$servicebus/websocket"
    stream = WebSocketStream(websocket.create_connection(url, subprotocols=["AMQPWSB10"], timeout=WAIT_SECONDS))
    with RawClient(cast("AmqpNode", node), stream=cast("socket.socket", stream)) as client:
        yield client


def sas_token(node: HttpNode, lifetime_s: int) -> tuple[str, str]:
    """A SAS token of the root key, with its type in `put-token`."""
    rule = "RootManageSharedAccessKey"
    expires_at_s = node.clock.now_ms() // 1000 + lifetime_s
    return make_token("sb://localhost/orders", rule, node.key(), expires_at_s=expires_at_s), SAS


def oauth_token(node: HttpNode, lifetime_s: int) -> tuple[str, str]:
    """An OAuth token of an issuer that the node trusts, with its type in `put-token`."""
    return token(claims(exp=node.clock.now_ms() // 1000 + lifetime_s)), "jwt"


def trust_issuer(node: HttpNode) -> None:
    """Trust the issuer of the tests, and let its owner send."""
    node.call(lambda: node.broker.access.identities.trust(a_trusted_issuer()))
    assignment = RoleAssignment(
        namespace=namespace_name(NAMESPACE),
        name="0b5c1b0e-0000-0000-0000-000000000000",
        role_id=DATA_SENDER.id,
        principal_id=OWNER_ID,
    )
    node.changed(lambda done: node.broker.manager.assign_role(assignment, node.actor(), done))


@pytest.mark.parametrize("a_token", [sas_token, oauth_token])
def test_a_link_over_websocket_goes_when_its_token_expires(
    node: HttpNode, clock: NodeClock, a_token: Callable[[HttpNode, int], tuple[str, str]]
) -> None:
    """The link is detached for renewal, the connection stays, and another token opens the next link."""
    trust_issuer(node)
    with connected(node) as client:
        text, kind = a_token(node, 600)
        first, _ = client.put_token("orders", text, kind=kind)
        sender = client.sender("orders/Partitions/0")
        client.publish(sender, an_event("before"))
        clock.advance(600)

        refused = client.detached(sender)
        text, kind = a_token(node, 600)
        second, _ = client.put_token("orders", text, kind=kind)
        client.publish(client.sender("orders/Partitions/0"), an_event("after"))

    assert (first, second) == (202, 202)
    assert refused.condition == "amqp:link:detach-forced"
    assert "Code: RenewToken" in refused.description
    assert len(node.stored("orders", 0)) == 2
