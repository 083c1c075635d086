"""AMQP links and requests for a partition whose log is being opened: they wait, others do not."""

import time

import pytest

from broker.gates import Gate, expire
from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import an_event
from endpoints.amqp.raw_client import RawClient
from endpoints.amqp.test_management import READ_PARTITION, map_of, status_of
from hubmere.endpoints.amqp.links.idempotence import CAPABILITY
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.message import Message, read_message, write_message
from hubmere.wire.amqp.codec.performatives import Properties, Source, Target
from hubmere.wire.amqp.codec.types import Long, Symbol
from hubmere.wire.amqp.signals import DeliveriesReceived, LinkAttached

PATIENCE_S = 240.0
READER = "orders/ConsumerGroups/$Default/Partitions/0"


def a_gate(node: AmqpNode) -> Gate:
    """Delay the opening of partition 0 of `orders`; partition 1 opens at once."""
    return node.call(lambda: Gate(node.hub(), 0))


def await_waiting(node: AmqpNode, gate: Gate, count: int) -> None:
    """Wait until a number of requests wait."""
    deadline = time.monotonic() + PATIENCE_S
    while node.call(lambda: gate.waiting.count) != count:
        assert time.monotonic() < deadline


def let_time_pass(node: AmqpNode) -> None:
    """Advance time by the longest wait that a request is allowed."""
    node.call(lambda: expire(node.broker.upkeep, node._clock.monotonic()))


def test_receiver_is_attached_when_the_log_is_open(
    node: AmqpNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credit that it granted before the answer counts, and other links of its connection work meanwhile."""
    gate = a_gate(node)
    link = client._session.attach("reader", is_sender=False, source=Source(address=READER), target=Target())
    # Our own client would wait for the answer; other clients grant credit at once.
    with monkeypatch.context() as patch:
        patch.setattr(Link, "_is_usable", lambda _: True)
        link.grant(10)
    client.flush()
    await_waiting(node, gate, 1)

    client.publish(client.sender("orders/Partitions/1"), an_event(b"other"))
    to_zero = client.sender("orders/Partitions/0")
    sent = client.send(to_zero, an_event(b"mine"))
    await_waiting(node, gate, 2)
    were_attached = client.pending(LinkAttached)
    node.call(gate.release)

    client.expect(LinkAttached, lambda signal: signal.link is link)
    received = client.expect(DeliveriesReceived, lambda signal: signal.link is link)
    assert [signal for signal in were_attached if signal.link is link] == []
    assert len(client.outcomes(sent)) == 1
    assert b"mine" in bytes(received.payloads[0])
    assert node.call(lambda: gate.waiting.count) == 0


def test_receiver_that_waited_too_long_is_refused_as_busy(node: AmqpNode, client: RawClient) -> None:
    """The SDKs retry this condition."""
    gate = a_gate(node)
    link = client._session.attach("reader", is_sender=False, source=Source(address=READER), target=Target())
    client.flush()
    await_waiting(node, gate, 1)

    let_time_pass(node)

    refused = client.detached(link)
    assert refused.condition == "com.microsoft:server-busy"
    assert "Partition 0 of 'orders' is still being opened" in refused.description


def test_receiver_that_disconnects_leaves_no_waiting_request(node: AmqpNode) -> None:
    """Its connection is closed while its attach waits."""
    gate = a_gate(node)
    with RawClient(node) as client:
        client.authorize()
        client._session.attach("reader", is_sender=False, source=Source(address=READER), target=Target())
        client.flush()
        await_waiting(node, gate, 1)

    await_waiting(node, gate, 0)
    node.call(gate.release)

    assert node.call(lambda: node.hub().readers.all()) == []


def ask_and_go_on(client: RawClient, message_id: str) -> None:
    """Send a request about partition 0 to the management node, and do not wait for the reply."""
    sender = client._requests["$management"]
    request = Message(
        properties=Properties(message_id=message_id, reply_to="to-$management"), application_properties=READ_PARTITION
    )
    sender.send(write_message(request))
    client.flush()


def test_request_about_a_partition_is_answered_when_the_log_is_open(node: AmqpNode, client: RawClient) -> None:
    """Other requests on the same links are answered first."""
    gate = a_gate(node)
    client.ask("$management", READ_PARTITION | {"partition": "1"})
    ask_and_go_on(client, "waits")
    await_waiting(node, gate, 1)

    other = client.ask("$management", READ_PARTITION | {"partition": "1"}, message_id="other")
    node.call(gate.release)
    reply = read_message(client.expect(DeliveriesReceived).payloads[0])

    assert other.properties is not None
    assert other.properties.correlation_id == "other"
    assert reply.properties is not None
    assert reply.properties.correlation_id == "waits"
    assert map_of(reply)["last_enqueued_sequence_number"] == -1


def test_request_that_waited_too_long_is_refused_as_busy(node: AmqpNode, client: RawClient) -> None:
    """The SDKs retry."""
    gate = a_gate(node)
    client.ask("$management", READ_PARTITION | {"partition": "1"})
    ask_and_go_on(client, "waits")
    await_waiting(node, gate, 1)

    let_time_pass(node)
    reply = read_message(client.expect(DeliveriesReceived).payloads[0])

    assert status_of(reply) == 503
    assert (reply.application_properties or {})["errorCondition"] == "com.microsoft:server-busy"


def test_request_of_a_client_that_disconnects_leaves_nothing_behind(node: AmqpNode) -> None:
    """Its reply cannot be sent."""
    gate = a_gate(node)
    with RawClient(node) as client:
        client.authorize()
        client.ask("$management", READ_PARTITION | {"partition": "1"})
        ask_and_go_on(client, "waits")
        await_waiting(node, gate, 1)

    await_waiting(node, gate, 0)
    node.call(gate.release)


def test_idempotent_producer_is_attached_when_the_log_is_open(node: AmqpNode, client: RawClient) -> None:
    """The answer has the last sequence number of the producer in the partition."""
    gate = a_gate(node)
    link = client._session.attach(
        "producer",
        is_sender=True,
        target=Target(address="orders/Partitions/0"),
        desired_capabilities=(CAPABILITY,),
        properties={Symbol("com.microsoft:producer-id"): Long(7)},
    )
    client.flush()
    await_waiting(node, gate, 1)

    node.call(gate.release)

    answer = client.expect(LinkAttached, lambda signal: signal.link is link).attach
    assert answer.offered_capabilities == (CAPABILITY,)
