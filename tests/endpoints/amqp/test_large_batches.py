"""Large batches, which a thread opens: every reader gets their events, also one that starts inside or leaves early."""

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import body_of
from endpoints.amqp.raw_client import RawClient
from hubmere.records.compression import Codec
from hubmere.records.records import Record, encode_batch
from hubmere.wire.amqp.codec.message import Message

COUNT = 3000
SIZE_BYTES = 2000


def store_large_batch(node: AmqpNode) -> None:
    """A batch of 6 MB, compressed to a few KB."""
    records = [Record(index, 1, None, b"%d " % index + bytes(SIZE_BYTES), ()) for index in range(COUNT)]
    batch = encode_batch(records, codec=Codec.GZIP)
    node.call(lambda: node.hub("orders").log(0).append(bytearray(batch), 0))


def numbers(messages: list[Message]) -> list[int]:
    return [int(body_of(message).split()[0]) for message in messages]


def test_readers_of_a_large_batch_get_every_event(node: AmqpNode, client: RawClient) -> None:
    """Two readers wait for the same opening."""
    readers = client.reader(), client.reader()
    for link in readers:
        link.grant(COUNT)
    client.flush()
    store_large_batch(node)

    for link in readers:
        assert numbers(client.receive(link, COUNT, credit=0)) == list(range(COUNT))


def test_reader_that_leaves_does_not_disturb_the_others(node: AmqpNode, client: RawClient) -> None:
    """The batch may still be being opened when its connection closes."""
    store_large_batch(node)
    for _ in range(3):
        with RawClient(node) as leaving:
            leaving.authorize()
            leaving.reader().grant(COUNT)
            leaving.flush()

    assert numbers(client.receive(client.reader(), COUNT)) == list(range(COUNT))


def test_small_credit_is_kept_within_a_large_batch(node: AmqpNode, client: RawClient) -> None:
    """A reader gets what it asked for, and the next events later."""
    store_large_batch(node)
    link = client.reader()

    got = numbers(client.receive(link, 7)) + numbers(client.receive(link, 5))

    assert got == list(range(12))
