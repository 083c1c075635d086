"""What classic consumers embed in JoinGroup and SyncGroup, for groups whose partitions the coordinator assigns."""

from collections.abc import Iterable

from hubmere.broker import EmbeddedSubscription, MalformedBytes, NamedPartition
from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.messages.consumer_protocol import (
    NEWEST_VERSION,
    ConsumerAssignment,
    TopicPartitions,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)


class ConsumerEmbedded:
    """Implements `EmbeddedProtocol` with Kafka's consumer protocol."""

    def read_subscription(self, data: bytes) -> EmbeddedSubscription:
        """A member's metadata in JoinGroup."""
        try:
            subscription = read_subscription(data)
        except RemoteProtocolError as error:
            raise MalformedBytes from error
        return EmbeddedSubscription(
            topics=frozenset(subscription.topics),
            owned=_flat(subscription.owned_partitions),
            rack_id=subscription.rack_id,
        )

    def read_assignment(self, data: bytes) -> frozenset[NamedPartition]:
        """A member's assignment in SyncGroup; empty bytes are no partitions."""
        if not data:
            return frozenset()
        try:
            return _flat(read_assignment(data).assigned_partitions)
        except RemoteProtocolError as error:
            raise MalformedBytes from error

    def write_assignment(self, partitions: Iterable[NamedPartition], metadata: bytes) -> bytes:
        """An assignment, in the version of the member's own metadata."""
        topics: dict[str, list[int]] = {}
        for name, partition in sorted(partitions):
            topics.setdefault(name, []).append(partition)
        assigned = tuple(TopicPartitions(topic=name, partitions=tuple(found)) for name, found in topics.items())
        version = version_of(metadata) if metadata else NEWEST_VERSION
        return write_assignment(ConsumerAssignment(assigned_partitions=assigned), version)


def _flat(topics: Iterable[TopicPartitions]) -> frozenset[NamedPartition]:
    return frozenset((topic.topic, partition) for topic in topics for partition in topic.partitions)
