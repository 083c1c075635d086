"""Reads that a busy turn of the loop holds for a later one: nothing is lost, nothing changes its order."""

from collections.abc import Iterator

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.endpoints.stream import MAX_HELD_BYTES
from hubmere.records.header import split_batches
from hubmere.records.records import decode_records

PRODUCE_VERSION, FETCH_VERSION = 9, 11


@pytest.fixture
def busy(either_loop: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaNode]:
    """A node without time for reads: it holds every read."""
    monkeypatch.setattr("hubmere.endpoints.fairness.READ_SECONDS", -1.0)
    monkeypatch.setattr("hubmere.endpoints.fairness.PATIENT_READ_SECONDS", -1.0)
    monkeypatch.setattr("hubmere.endpoints.fairness.UNMEASURED_READS", 1)
    monkeypatch.setattr("hubmere.endpoints.fairness.HELD_SECONDS", -1.0)
    with KafkaNode() as node:
        yield node


def values_of(client: RawClient, count: int) -> list[bytes | None]:
    """The first events of the partition, as soon as there are so many."""
    values: list[bytes | None] = []
    while len(values) < count:
        records = only(client.call(a_fetch(len(values), max_wait_ms=200_000), FETCH_VERSION)).records
        values += [record.value for batch in split_batches(bytes(records)) for record in decode_records(batch)]
    return values


def test_requests_of_a_connection_keep_their_order(busy: KafkaNode) -> None:
    """Requests in flight together, more bytes than are held at once, and large ones that are read in several parts."""
    sizes = [10, 100_000, 10, 300_000] + [MAX_HELD_BYTES // 3] * 20
    with RawClient(busy) as client:
        client.sign_in()
        for number, size in enumerate(sizes):
            client.send(a_produce(a_batch(bytes([number]) * size)), PRODUCE_VERSION)
        offsets = [only(client.answer()).base_offset for _ in sizes]
        values = values_of(client, len(sizes))

    assert offsets == list(range(len(sizes)))
    assert values == [bytes([number]) * size for number, size in enumerate(sizes)]


def test_event_of_a_client_that_does_not_wait_is_published(busy: KafkaNode) -> None:
    """A producer with acks=0 sends its last events and closes the connection at once."""
    with RawClient(busy) as client:
        client.sign_in()
        client.send(a_produce(a_batch(b"last"), acks=0), PRODUCE_VERSION)
    with RawClient(busy) as reader:
        assert values_of(reader.sign_in(), 1) == [b"last"]


def test_many_connections_are_all_answered(busy: KafkaNode) -> None:
    """Every connection has its turn."""
    clients = [RawClient(busy).sign_in() for _ in range(20)]
    try:
        for number, client in enumerate(clients):
            client.send(a_produce(a_batch(b"%d" % number)), PRODUCE_VERSION)
        offsets = {only(client.answer()).base_offset for client in clients}
    finally:
        for client in clients:
            client.socket.close()
    assert offsets == set(range(20))
