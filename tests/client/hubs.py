"""A real node for tests of its clients, and helpers that use our own client."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from conformance.conformance_node import gateway_settings
from hubmere.client.connection import Account, Client, Connection, KafkaAddress
from hubmere.client.consumer import HubReader
from hubmere.client.producer import HubProducer, producer_id_of
from hubmere.records.records import Record, encode_batch
from hubmere.testing import Node
from hubmere.wire.kafka.messages.admin import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeletableTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    GrowingTopic,
)

# Long enough for a node that is restarted, short enough for a failing test.
PATIENCE_S = 240.0
ADMIN_TIMEOUT_MS = 60_000


def an_account(node: Node, *, secure: bool = False, patience_s: float = PATIENCE_S) -> Account:
    """The address and credential of our client for a node."""
    host, _, port = (node.kafkas if secure else node.kafka).rpartition(":")
    address = KafkaAddress(host=host, port=int(port), is_secure=secure, ca_file=node.ca_file if secure else None)
    return Account(
        address=address,
        connection_string=node.connection_string,
        client_id="hubmere-test",
        answer_timeout_s=PATIENCE_S,
        patience_s=patience_s,
    )


def a_batch(bodies: Sequence[bytes]) -> bytearray:
    """A batch of events without keys and properties."""
    return encode_batch([Record(index, 0, None, body) for index, body in enumerate(bodies)])


def bodies(count: int, name: str = "event") -> list[bytes]:
    """A number of different bodies."""
    return [b"%s %d" % (name.encode(), number) for number in range(count)]


class Hubs:
    """The hubs of a node; each test can create its own."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.client = Client(an_account(node))
        self._made = 0

    def new(self, partitions: int = 2) -> str:
        """A new hub for a test."""
        self._made += 1
        name = f"hub-{self._made}"
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        self._ask(CreateTopicsRequest(topics=(topic,)), "topics")
        return name

    def delete(self, hub: str) -> None:
        """Delete a hub with its events."""
        gone = DeleteTopicsRequest(topics=(DeletableTopic(name=hub),), topic_names=(hub,), timeout_ms=ADMIN_TIMEOUT_MS)
        self._ask(gone, "responses")

    def make_again(self, hub: str, partitions: int) -> None:
        """Create a hub again under a name that was used before."""
        self.delete(hub)
        topic = CreatableTopic(name=hub, num_partitions=partitions, replication_factor=1)
        self._ask(CreateTopicsRequest(topics=(topic,)), "topics")

    def grow(self, hub: str, partitions: int) -> None:
        """Add partitions up to a number."""
        topic = GrowingTopic(name=hub, count=partitions)
        self._ask(CreatePartitionsRequest(topics=(topic,), timeout_ms=ADMIN_TIMEOUT_MS, validate_only=False), "results")

    def trim(self, hub: str, partition: int, before: int) -> None:
        """Delete the oldest events, as retention does."""
        part = DeleteRecordsPartition(index=partition, offset=before)
        topics = (DeleteRecordsTopic(name=hub, partitions=(part,)),)
        answer = self.client.call(
            lambda connection: connection.ask(DeleteRecordsRequest(topics=topics, timeout_ms=ADMIN_TIMEOUT_MS))
        )
        assert [part.error_code for topic in answer.topics for part in topic.partitions] == [0]

    def publish(self, hub: str, partition: int, *batches: Sequence[bytes], name: str = "") -> None:
        """Write batches; to write the same batches again, give another name."""
        parts = [name.encode(), hub.encode(), str(partition).encode(), *(b"|".join(batch) for batch in batches)]
        producer = HubProducer(self.client, hub, producer_id_of(parts))
        for batch in batches:
            producer.send(partition, a_batch(batch))
        producer.flush()

    def reader(self, hub: str) -> HubReader:
        """A reader of a hub."""
        return HubReader(self.client, hub)

    def _ask(self, body: object, results: str) -> None:
        def attempt(connection: Connection) -> object:
            return connection.ask(body)

        answer = self.client.call(attempt)
        assert [(result.error_code, result.error_message) for result in getattr(answer, results)] == [(0, None)]


@contextmanager
def a_node_with_hubs(*, memory: bool = True) -> Iterator[Hubs]:
    """A separate node, or a gateway, without the limits of a tier, except the size of a publication."""
    with tempfile.TemporaryDirectory(prefix="hubmere-gateway-") as folder:
        store: dict[str, str | bool] = {**gateway_settings(Path(folder))} or {"memory": memory}
        with Node(settings={"as": "unlimited", "limits.publication_bytes": 1024 * 1024, **store}) as node:
            hubs = Hubs(node)
            try:
                yield hubs
            finally:
                hubs.client.close()
