"""A stored batch whose records cannot be decoded: an AMQP reader skips it, and the node reports it."""

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import BATCH_FORMAT, a_batch, an_event, body_of
from endpoints.amqp.raw_client import RawClient
from hubmere.model.monitoring.damage import DamagedRange, DamageKind
from hubmere.records.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, write_header


def an_undecodable_batch(count: int) -> bytearray:
    """A batch that an older version could have stored: garbage after a valid header."""
    batch = bytearray(HEADER_BYTES) + b"\xff" * 100
    length = len(batch) - LENGTH_PREFIX_BYTES
    write_header(batch, BatchHeader(0, length, 0, MAGIC, 0, 0, count - 1, 0, 0, -1, -1, -1, count))
    return batch


def test_undecodable_batch_is_skipped_and_reported(node: AmqpNode, client: RawClient) -> None:
    """The events after it are delivered, and an operator can see which ones are missing."""
    sender = client.sender("orders/Partitions/0")
    client.publish(sender, a_batch([an_event("before")]), message_format=BATCH_FORMAT)
    node.call(lambda: node.hub("orders").log(0).append(an_undecodable_batch(3), 0))
    client.publish(sender, a_batch([an_event("after")]), message_format=BATCH_FORMAT)

    bodies = [body_of(message) for message in client.receive(client.reader(), 2)]

    def damage() -> list[tuple[int, DamagedRange]]:
        return node.hub("orders").damaged_ranges()

    assert bodies == [b"before", b"after"]
    ((partition, found),) = node.call(damage)
    assert (partition, found.first_sequence, found.next_sequence) == (0, 1, 4)
    assert found.kind is DamageKind.UNREADABLE
