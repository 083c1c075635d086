"""Idempotent producers over AMQP (reference: AMQP 4.5, check 44)."""

from pathlib import Path

import pytest

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import BATCH_FORMAT, a_batch, a_numbered_event, body_of
from endpoints.amqp.raw_client import RawClient, Refused
from hubmere.endpoints.amqp.links.idempotence import CAPABILITY, ProducerTerms, agree
from hubmere.model.errors import InvalidArgument, ProducerFenced
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.performatives import Accepted, Rejected, Target
from hubmere.wire.amqp.codec.types import Int, Long, Short, Symbol, Value

ID, EPOCH, SEQUENCE = (
    Symbol("com.microsoft:producer-id"),
    Symbol("com.microsoft:producer-epoch"),
    Symbol("com.microsoft:producer-sequence-number"),
)


def a_producer(client: RawClient, asked: dict[Value, Value] | None = None) -> tuple[Link, ProducerTerms]:
    link, answer = client.attach(
        is_sender=True,
        target=Target(address="orders/Partitions/0"),
        desired_capabilities=("com.microsoft:georeplication", CAPABILITY),
        properties=asked,
    )
    assert answer.offered_capabilities == (CAPABILITY,)
    received = answer.properties or {}
    assert (type(received[ID]), type(received[EPOCH]), type(received[SEQUENCE])) == (Long, Short, Int)
    return link, ProducerTerms(producer_id=received[ID], epoch=received[EPOCH], last_sequence=received[SEQUENCE])


def a_numbered_batch(terms: ProducerTerms, first: int, count: int) -> bytes:
    events = [
        a_numbered_event(f"{number}", producer=terms.producer_id, epoch=terms.epoch, sequence=number)
        for number in range(first, first + count)
    ]
    return a_batch(events)


def outcome(client: RawClient, link: Link, payload: bytes) -> Accepted | Rejected:
    (state,) = client.outcomes(client.send(link, payload, message_format=BATCH_FORMAT)).values()
    assert isinstance(state, Accepted | Rejected)
    return state


def stored(client: RawClient, count: int) -> list[bytes]:
    return [body_of(message) for message in client.receive(client.reader(), count)]


def test_new_producer_gets_an_id_that_every_client_can_represent(client: RawClient) -> None:
    """JavaScript's numbers are exact up to 2^53; the first event has number 1."""
    link, terms = a_producer(client)

    assert 0 < terms.producer_id < 2**53
    assert (terms.epoch, terms.last_sequence) == (0, 0)
    assert isinstance(outcome(client, link, a_numbered_batch(terms, 1, 3)), Accepted)


def test_duplicate_is_accepted_and_not_stored(client: RawClient) -> None:
    """The acknowledgement was lost, but the event was stored."""
    link, terms = a_producer(client)
    batch = a_numbered_batch(terms, 1, 3)

    states = [
        outcome(client, link, batch),
        outcome(client, link, batch),
        outcome(client, link, a_numbered_batch(terms, 4, 1)),
    ]

    assert all(isinstance(state, Accepted) for state in states)
    assert stored(client, 4) == [b"1", b"2", b"3", b"4"]


def test_a_gap_is_rejected(client: RawClient) -> None:
    """An event was lost, and the client must learn it."""
    link, terms = a_producer(client)
    outcome(client, link, a_numbered_batch(terms, 1, 1))

    state = outcome(client, link, a_numbered_batch(terms, 3, 1))

    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:out-of-order-sequence"


def test_old_numbers_on_other_events_are_rejected(client: RawClient) -> None:
    """They are not duplicates; treating them as such would lose them."""
    link, terms = a_producer(client)
    outcome(client, link, a_numbered_batch(terms, 1, 5))

    state = outcome(client, link, a_numbered_batch(terms, 2, 1))

    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:out-of-order-sequence"
    assert "old sequence" in str(state.error.description)


def test_producer_continues_with_the_last_accepted_number(client: RawClient) -> None:
    """A link without a number of its own gets the last accepted one."""
    link, terms = a_producer(client)
    outcome(client, link, a_numbered_batch(terms, 1, 5))
    link.detach()

    _, again = a_producer(client, {ID: Long(terms.producer_id), EPOCH: Short(0), SEQUENCE: None})

    assert again == ProducerTerms(producer_id=terms.producer_id, epoch=0, last_sequence=5)


def test_producer_that_missed_an_answer_continues_with_its_own_number(client: RawClient) -> None:
    """It sends the unanswered batch again under the same numbers, and nothing is stored twice."""
    link, terms = a_producer(client)
    outcome(client, link, a_numbered_batch(terms, 1, 2))
    outcome(client, link, a_numbered_batch(terms, 3, 2))
    link.detach()

    link, again = a_producer(client, {ID: Long(terms.producer_id), EPOCH: Short(0), SEQUENCE: Int(2)})
    state = outcome(client, link, a_numbered_batch(again, again.last_sequence + 1, 2))

    assert again.last_sequence == 2
    assert isinstance(state, Accepted)
    assert stored(client, 4) == [b"1", b"2", b"3", b"4"]


def test_a_higher_epoch_takes_over(node: AmqpNode, client: RawClient) -> None:
    """What the older link sends is then rejected, and its epoch cannot attach again."""
    link, terms = a_producer(client)
    outcome(client, link, a_numbered_batch(terms, 1, 2))
    with RawClient(node) as other:
        other.authorize()
        new, taken = a_producer(other, {ID: Long(terms.producer_id), EPOCH: Short(1), SEQUENCE: None})
        late = outcome(client, link, a_numbered_batch(terms, 3, 1))
        outcome(other, new, a_numbered_batch(taken, taken.last_sequence + 1, 1))

        with pytest.raises(Refused) as refused:
            a_producer(client, {ID: Long(terms.producer_id), EPOCH: Short(0), SEQUENCE: Int(2)})

    assert isinstance(late, Rejected)
    assert late.error is not None
    assert late.error.condition == "com.microsoft:producer-epoch-stolen"
    assert (taken.epoch, taken.last_sequence) == (1, 2)
    assert refused.value.condition == "com.microsoft:producer-epoch-stolen"


def test_link_may_not_use_the_id_of_another_producer(client: RawClient) -> None:
    """Its numbers would be those of another producer."""
    link, terms = a_producer(client)
    other = ProducerTerms(producer_id=terms.producer_id + 1, epoch=0, last_sequence=0)

    assert isinstance(outcome(client, link, a_numbered_batch(other, 1, 1)), Rejected)


def test_idempotent_producer_needs_a_partition(client: RawClient) -> None:
    """Sequence numbers are kept per partition."""
    with pytest.raises(Refused) as refused:
        client.attach(is_sender=True, target=Target(address="orders"), desired_capabilities=(CAPABILITY,))

    assert refused.value.condition == "com.microsoft:argument-error"


def test_duplicates_are_recognised_after_a_restart(tmp_path: Path) -> None:
    """A client that retries after a restart must not publish twice."""
    with AmqpNode(data=tmp_path) as node, RawClient(node) as client:
        client.authorize()
        link, terms = a_producer(client)
        batch = a_numbered_batch(terms, 1, 3)
        outcome(client, link, batch)

    with AmqpNode(data=tmp_path) as node, RawClient(node) as client:
        client.authorize()
        asked: dict[Value, Value] = {ID: Long(terms.producer_id), EPOCH: Short(0), SEQUENCE: Int(0)}
        link, again = a_producer(client, asked)
        states = [outcome(client, link, batch), outcome(client, link, a_numbered_batch(terms, 4, 1))]
        received = stored(client, 4)

    assert again.last_sequence == 0
    assert all(isinstance(state, Accepted) for state in states)
    assert received == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("asked", "past", "terms"),
    [
        ({ID: Long(7)}, None, (7, 0, 0)),
        ({ID: Long(7), EPOCH: Short(2), SEQUENCE: Int(9)}, None, (7, 2, 9)),
        ({ID: Long(7)}, (3, 40), (7, 3, 40)),
        ({ID: Long(7), EPOCH: Short(3), SEQUENCE: Int(1)}, (3, 40), (7, 3, 1)),
        ({ID: Long(7), EPOCH: Short(4), SEQUENCE: Int(1)}, (3, 40), (7, 4, 1)),
        ({ID: Long(7), EPOCH: Short(4)}, (3, 40), (7, 4, 40)),
        ({ID: Long(7), EPOCH: None, SEQUENCE: None}, (0, -1), (7, 0, 0)),
    ],
)
def test_first_number_of_a_producer_comes_from_the_attach_or_the_log(
    asked: dict[Value, Value], past: tuple[int, int] | None, terms: tuple[int, int, int]
) -> None:
    """A sender that names a number continues there; otherwise it continues with the log's last number."""
    agreed = agree(asked, lambda _: past)

    assert (agreed.producer_id, agreed.epoch, agreed.last_sequence) == terms


def test_older_epoch_is_refused() -> None:
    """It was superseded; the live tests of the JavaScript SDK look for both epochs in the words of the service."""
    with pytest.raises(ProducerFenced) as refusal:
        agree({ID: Long(7), EPOCH: Short(1)}, lambda _: (2, 5))

    assert "Received:1 Current:2" in refusal.value.text()


@pytest.mark.parametrize("asked", [{ID: "7"}, {SEQUENCE: True}])
def test_properties_of_another_type_are_refused(asked: dict[Value, Value]) -> None:
    """They are stored as numbers in the log."""
    with pytest.raises(InvalidArgument):
        agree(asked, lambda _: None)


@pytest.mark.parametrize("asked", [{ID: Long(-1)}, {EPOCH: Short(-1)}, {ID: Long(1), EPOCH: Int(70000)}])
def test_properties_out_of_range_are_refused_as_by_the_service(client: RawClient, asked: dict[Value, Value]) -> None:
    """SDKs report the condition as an argument out of range; the text is that of the service."""
    with pytest.raises(Refused) as refusal:
        a_producer(client, asked)

    assert refusal.value.condition == "com.microsoft:argument-out-of-range"
    assert refusal.value.description.startswith(
        "Invalid range for idempotent producer state. Producer Id, Epoch, and Sequence Number must be zero or positive."
    )
