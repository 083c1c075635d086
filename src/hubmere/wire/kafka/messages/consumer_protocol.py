"""The consumer protocol: subscriptions and assignments in the opaque bytes of the classic group protocol.

Needed only to inspect groups (DescribeGroups, OffsetDelete, the portal); joins and syncs pass the bytes on unopened.
Each value starts with its own version; newer versions only append fields, so an unknown one is read as the newest we
know.
"""

from struct import Struct
from typing import Final

from hubmere.wire.kafka.codegen import reader_of, writer_of
from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.primitives import Buffer
from hubmere.wire.kafka.schema import BYTES, INT32, STRING, array, struct, wire

# The name of the group protocol whose bytes these are.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NEWEST_VERSION: Final = 3

_VERSION: Final = Struct(">h")


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@struct
class ConsumerSubscription:
    """The topics that a member subscribes to, and the partitions that it owns while it joins again (KIP-429)."""

    topics: tuple[str, ...] = wire(array(STRING))
    user_data: bytes | None = wire(BYTES, nullable=True, default=None)
    owned_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), since=1, default=())
    generation_id: int = wire(INT32, since=2, default=-1)
    rack_id: str | None = wire(STRING, since=3, nullable=True, default=None)


@struct
class ConsumerAssignment:
    """The partitions that a member reads."""

    assigned_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))
    user_data: bytes | None = wire(BYTES, nullable=True, default=None)


def read_subscription(data: Buffer) -> ConsumerSubscription:
    """A member's metadata in JoinGroup."""
    value: ConsumerSubscription = reader_of(ConsumerSubscription, version_of(data), False)(data, _VERSION.size)[0]
    return value


def read_assignment(data: Buffer) -> ConsumerAssignment:
    """A member's assignment in SyncGroup."""
    value: ConsumerAssignment = reader_of(ConsumerAssignment, version_of(data), False)(data, _VERSION.size)[0]
    return value


def write_subscription(subscription: ConsumerSubscription, version: int = NEWEST_VERSION) -> bytes:
    """The bytes of a subscription."""
    return _write(ConsumerSubscription, subscription, version)


def write_assignment(assignment: ConsumerAssignment, version: int = NEWEST_VERSION) -> bytes:
    """The bytes of an assignment."""
    return _write(ConsumerAssignment, assignment, version)


def version_of(data: Buffer) -> int:
    """The version in which embedded bytes are written, at most the newest one that is known here."""
    if len(data) < _VERSION.size:
        raise RemoteProtocolError(f"{len(data)} bytes cannot hold a consumer protocol version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise RemoteProtocolError(f"consumer protocol version {version}")
    return min(int(version), NEWEST_VERSION)


def _write(cls: type, value: object, version: int) -> bytes:
    return b"".join(writer_of(cls, version, False)(value, bytearray(_VERSION.pack(version))))
