"""Clients with one event in flight each: their events share a batch, and each gets its own outcome at once."""

import contextlib
from collections.abc import Iterator

import pytest

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import BATCH_FORMAT, a_batch, an_event
from endpoints.amqp.raw_client import RawClient
from endpoints.amqp.test_publishing import _batches, bodies
from hubmere.endpoints.amqp.links.publish_link import PARTITION_CREDIT, PublishLink
from hubmere.model.errors import StorageFull
from hubmere.store.log.writer import LogWriter
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.performatives import Accepted, Rejected

MALFORMED = b"\x00\x53\x75\xa0\xff"
_WARM_UP = 3


@contextlib.contextmanager
def several(node: AmqpNode, count: int = 8) -> Iterator[list[tuple[RawClient, Link]]]:
    """Connections that have published a few events, so that the layout of their transfers is cached."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(RawClient(node))
            client.authorize()
            link = client.sender("orders/Partitions/0")
            for _ in range(_WARM_UP):
                client.publish(link, an_event("first"))
            clients.append((client, link))
        yield clients


@pytest.fixture
def singles(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each read with one event used the fast path."""
    seen: list[bool] = []
    publish = PublishLink.on_single

    def noted(self: PublishLink, delivery_id: int, payload: bytes, message_format: int) -> bool:
        seen.append(publish(self, delivery_id, payload, message_format))
        return seen[-1]

    monkeypatch.setattr(PublishLink, "on_single", noted)
    return seen


def outcome(client: RawClient, ids: list[int]) -> list[type]:
    states = client.outcomes(ids)
    return [type(states[number]) for number in ids]


def test_events_of_many_connections_share_a_batch(node: AmqpNode, singles: list[bool]) -> None:
    """Each sender gets the outcome of its own event."""
    with several(node) as clients:
        before = node.call(lambda: _batches(node.hub().log(0)))
        singles.clear()
        with node.held():
            sent = [client.send(link, an_event(f"{number}")) for number, (client, link) in enumerate(clients)]
        outcomes = [outcome(client, ids) for (client, _), ids in zip(clients, sent, strict=True)]
        batches = node.call(lambda: _batches(node.hub().log(0))) - before
        kept = bodies(clients[0][0], 0, 8 * (_WARM_UP + 1))

    assert outcomes == [[Accepted]] * 8
    assert singles == [True] * 8
    assert batches < 4
    assert sorted(kept[8 * _WARM_UP :]) == [b"%d" % number for number in range(8)]


def test_malformed_event_among_many_connections_is_rejected_alone(node: AmqpNode, singles: list[bool]) -> None:
    """The other events of the turn are stored."""
    with several(node) as clients:
        with node.held():
            sent = [
                client.send(link, MALFORMED if number == 3 else an_event(f"{number}"))
                for number, (client, link) in enumerate(clients)
            ]
        outcomes = [outcome(client, ids)[0] for (client, _), ids in zip(clients, sent, strict=True)]

    assert outcomes == [Rejected if number == 3 else Accepted for number in range(8)]


def test_events_of_one_link_keep_their_order(node: AmqpNode, client: RawClient, singles: list[bool]) -> None:
    """Single events, batches and runs alternate, in separate packets of one turn."""
    link = client.sender("orders/Partitions/0")
    client.publish(link, an_event("a"))
    client.publish(link, an_event("b"))
    ids: list[int] = []
    with node.held():
        for number in range(5):
            ids += client.send(link, an_event(f"single-{number}"))
            client.flush()
            ids += client.send(link, a_batch([an_event(f"batch-{number}")]), message_format=BATCH_FORMAT)
            client.flush()
            ids += client.send(link, an_event(f"key-{number}", key="k"))
            client.flush()
    states = client.outcomes(ids)
    kept = bodies(client, 0, 17)

    assert all(isinstance(state, Accepted) for state in states.values())
    assert kept[2:] == [b"%s-%d" % (kind, n) for n in range(5) for kind in (b"single", b"batch", b"key")]


def test_credit_is_renewed_for_a_client_with_one_event_in_flight(client: RawClient, singles: list[bool]) -> None:
    """More events than the first credit, one after the other."""
    link = client.sender("orders/Partitions/0")
    count = PARTITION_CREDIT + 50

    for _ in range(count):
        client.publish(link, an_event())
        assert link.credit > 0

    assert singles.count(True) > count * 0.9


def test_full_disk_fails_every_event_of_the_turn(node: AmqpNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is accepted that is not stored."""
    with several(node, 4) as clients:

        def refuse(self: LogWriter, *more: object) -> None:
            raise StorageFull("no space")

        monkeypatch.setattr(LogWriter, "append", refuse)
        with node.held():
            for client, link in clients:
                client.send(link, an_event("late"))
        conditions = {client.detached(link).condition for client, link in clients}

    assert conditions
    assert node.call(lambda: node.hub().log(0).state.committed) == 4 * _WARM_UP


def test_event_of_a_link_that_is_detached_in_the_same_turn_is_settled_first(
    node: AmqpNode, singles: list[bool]
) -> None:
    """A link is detached once its accepted deliveries are settled, so that nothing is sent twice."""
    with several(node, 3) as clients:
        with node.held():
            sent = [client.send(link, an_event("last")) for client, link in clients]
            clients[0][1].detach()
            clients[0][0].flush()
        outcomes = [outcome(client, ids) for (client, _), ids in zip(clients[1:], sent[1:], strict=True)]

    assert outcomes == [[Accepted]] * 2
    assert node.call(lambda: node.hub().log(0).state.committed) == 3 * _WARM_UP + 3
