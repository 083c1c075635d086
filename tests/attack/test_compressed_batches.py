"""Small compressed batches with very many or very large events, read by AMQP: the loop and the memory stay bounded.

A Kafka producer writes such a batch with one request, and an AMQP reader makes the node decompress and encode it. The
check for long turns (`stalls`) fails these tests if the node does so in one turn.
"""

import contextlib
import random
import socket
from collections.abc import Iterator

import pytest

from attack.normal_client import address_of
from attack.test_memory import MIB, KafkaClient, a_produce, amqp_opening, an_attach, forget_peak, resident_bytes
from hubmere.records.compression import Codec
from hubmere.records.records import Record, encode_batch
from hubmere.settings import HubSetting
from hubmere.testing import Node
from hubmere.wire.amqp.codec.frames import frame
from hubmere.wire.amqp.codec.performatives import Flow

LAST = b"this is the last event"
READERS = 4
# The decompressed batch, twice while it is opened, one slice of messages for each reader, and what they have not read.
ALLOWED_BYTES = 96 * MIB


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node(hubs=[HubSetting(name="orders", partition_count=4)], settings={"memory": True}) as running:
        yield running


def a_text(words: list[bytes]) -> bytes:
    return b" ".join(random.choices(words, k=110))


def values(kind: str) -> list[bytes]:
    """The events of a batch that has less than 1 MB when it is compressed."""
    if kind == "tiny":
        return [b""] * 500_000
    if kind == "large":
        return [bytes(1_000_000)] * 15
    if kind == "huge":
        return [bytes(15 * MIB)]
    words = [random.randbytes(4) for _ in range(50)]
    return [a_text(words) for _ in range(7_000)]


def unlimited_credit() -> bytes:
    window = 2**31 - 1
    flow = Flow(next_incoming_id=0, incoming_window=window, next_outgoing_id=0, outgoing_window=window)
    flow.handle, flow.delivery_count, flow.link_credit = 0, 0, 2**31 - 1
    return frame(flow)


def wait_for_last(reader: socket.socket) -> int:
    """Read until the last event arrives; returns the number of bytes."""
    size_bytes, end = 0, b""
    while LAST not in end:
        data = reader.recv(1 << 18)
        assert data, "the node has closed the connection"
        size_bytes += len(data)
        end = (end + data)[-(1 << 18) - len(LAST) :]
    return size_bytes


@pytest.mark.parametrize(
    ("kind", "codec", "partition"),
    [("tiny", Codec.ZSTD, 0), ("text", Codec.GZIP, 1), ("large", Codec.LZ4, 2), ("huge", Codec.GZIP, 3)],
)
def test_batch_that_inflates_is_delivered_in_small_turns(node: Node, kind: str, codec: Codec, partition: int) -> None:
    """Every reader gets all events, in less memory than they have together."""
    given = [*values(kind), LAST]
    records = [Record(index, 1_700_000_000_000, None, value, ()) for index, value in enumerate(given)]
    batch = bytes(encode_batch(records, codec=codec))
    assert len(batch) < MIB
    producer = KafkaClient(node)
    with contextlib.closing(producer.socket):
        producer.call(a_produce(batch, partition), 7)
    forget_peak(node)
    before = resident_bytes(node)

    with contextlib.ExitStack() as stack:
        readers = []
        for _ in range(READERS):
            reader = stack.enter_context(socket.create_connection(address_of(node.amqp), 300))
            reader.sendall(amqp_opening(node, an_attach(0, reads=True, partition=partition)) + unlimited_credit())
            readers.append(reader)
        sizes = [wait_for_last(reader) for reader in readers]

    assert min(sizes) > sum(map(len, given))
    if kind != "huge":
        assert resident_bytes(node, "VmHWM") - before < ALLOWED_BYTES
