"""Back-pressure: a client that sends faster than it reads uses limited memory, and others are not affected."""

import socket

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.endpoints.kafka.fetch.fetch import MAX_FETCH_BYTES
from hubmere.endpoints.kafka.pressure import MAX_IN_FLIGHT, MAX_UNSENT_BYTES
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.wire.kafka.messages.metadata import MetadataRequest


def unsent_bytes(node: KafkaNode) -> int:
    """The largest number of unsent bytes of a client."""

    def most() -> int:
        transports = [stream._transport for stream in node.connections.streams]
        return max(transport.get_write_buffer_size() for transport in transports if transport is not None)

    return node.call(most)


def sessions(node: KafkaNode) -> list[KafkaSession]:
    found = node.call(lambda: [stream.session for stream in node.connections.streams])
    return [session for session in found if isinstance(session, KafkaSession)]


def test_client_that_does_not_read_its_answers_is_not_read(node: KafkaNode, client: RawClient) -> None:
    """It requests two hundred answers of a megabyte in one small packet."""
    big = a_batch(b"x" * 1_000_000)
    client.call(a_produce(big), 9)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    for _ in range(200):
        client.engine.request(a_fetch(), 11)
    client.socket.sendall(b"".join(client.engine.data_to_send()))
    with RawClient(node) as other:
        assert other.sign_in().call(MetadataRequest(topics=None), 5).topics[0].name == "orders"

    held = unsent_bytes(node)
    sizes = {len(only(client.answer()).records) for _ in range(200)}

    assert held <= MAX_UNSENT_BYTES + 3 * len(big)
    assert sizes == {len(big)}


def test_client_with_too_many_requests_is_read_again_when_some_are_answered(client: RawClient) -> None:
    """Answers accumulate behind a waiting fetch; each of them is sent in the end, in order."""
    count = 3 * MAX_IN_FLIGHT
    client.engine.request(a_fetch(max_wait_ms=300), 11)
    for _ in range(count):
        client.engine.request(a_produce(a_batch(b"x"), partition=1), 9)
    client.socket.sendall(b"".join(client.engine.data_to_send()))

    client.answer()
    offsets = [only(client.answer()).base_offset for _ in range(count)]

    assert offsets == list(range(count))


def test_size_of_one_answer_is_limited(client: RawClient) -> None:
    """A client may request gigabytes."""
    for _ in range(20):
        client.call(a_produce(a_batch(b"x" * 1_000_000)), 9)

    part = only(client.call(a_fetch(max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1), 11))

    assert MAX_FETCH_BYTES // 2 < len(part.records) <= MAX_FETCH_BYTES


def test_no_state_is_kept_of_a_disconnected_client(node: KafkaNode, client: RawClient) -> None:
    """Neither its session nor its pending requests remain."""
    client.call(MetadataRequest(topics=None), 5)
    with RawClient(node) as other:
        other.sign_in().send(a_fetch(max_wait_ms=200_000), 11)
        assert len(sessions(node)) == 2
    while len(sessions(node)) == 2:
        client.call(MetadataRequest(topics=()), 5)

    assert node.call(lambda: len(node.hub().log(0)._watchers._watchers)) == 0  # type: ignore[attr-defined]
