"""The blocking AMQP peer against a live node."""

from collections.abc import Iterator

import pytest

from hubmere.cli.demo.workers import amqp_peer
from hubmere.client.amqp import AmqpFailure, AmqpPeer
from hubmere.testing import Node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node(hubs=["orders"], settings={"memory": True}) as running:
        yield running


def until(peer: AmqpPeer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        bodies.extend(peer.receive_bodies(10))
    return bodies


def test_events_of_one_peer_are_read_by_another(node: Node) -> None:
    """They need more than one grant of credit, and are read in order from the time of the attach."""
    with amqp_peer(node.ready, "reader") as reader, amqp_peer(node.ready, "sender") as sender:
        sender.send("orders", b"before", "a", {})
        for partition in range(4):
            reader.read_from("orders", "$Default", partition)

        for number in range(600):
            sender.send("orders", f"{number}".encode(), "a", {"site": "mill"})

        assert until(reader, 600) == [f"{number}".encode() for number in range(600)]


def test_a_wrong_key_is_refused(node: Node) -> None:
    """The error has the text of the node."""
    host, _, port = node.amqp.rpartition(":")
    peer = AmqpPeer(host, int(port), "RootManageSharedAccessKey", "d3Jvbmc=", container_id="stranger")

    with pytest.raises(AmqpFailure), peer:
        pass


def test_a_missing_hub_is_reported(node: Node) -> None:
    """The error has the reason of the node."""
    with amqp_peer(node.ready, "lost") as peer, pytest.raises(AmqpFailure, match=r"not-found|could not be found"):
        peer.send("nowhere", b"", "a", {})


def test_address_without_a_listener_is_a_failure() -> None:
    """No process listens on port 1 of loopback."""
    with pytest.raises(AmqpFailure, match=r"127\.0\.0\.1:1"), AmqpPeer("127.0.0.1", 1, "r", "k", container_id="early"):
        pass
