"""Port to the bytes that classic consumers embed in JoinGroup and SyncGroup: subscriptions and assignments.

The broker knows no wire format; the Kafka endpoint provides the implementation.
"""

from collections.abc import Iterable
from typing import NamedTuple
from typing import Protocol as Port

# The protocol type of classic groups whose members are consumers.
CONSUMER_PROTOCOL_TYPE = "consumer"

# Topic name and partition.
NamedPartition = tuple[str, int]


class EmbeddedSubscription(NamedTuple):
    """What a classic consumer wants to read, and what it owns while it joins again (KIP-429)."""

    topics: frozenset[str]
    owned: frozenset[NamedPartition]
    rack_id: str | None


class MalformedBytes(Exception):
    """The embedded bytes cannot be read."""


class EmbeddedProtocol(Port):
    """Reads and writes embedded bytes; reading raises `MalformedBytes`."""

    def read_subscription(self, data: bytes) -> EmbeddedSubscription:
        """A member's metadata in JoinGroup."""

    def read_assignment(self, data: bytes) -> frozenset[NamedPartition]:
        """A member's assignment in SyncGroup; empty bytes are no partitions."""

    def write_assignment(self, partitions: Iterable[NamedPartition], metadata: bytes) -> bytes:
        """An assignment, in the version of the member's own metadata."""


class NoEmbeddedProtocol:
    """For a broker without a Kafka endpoint: nothing can be read."""

    def read_subscription(self, data: bytes) -> EmbeddedSubscription:
        """Refuse."""
        raise MalformedBytes

    def read_assignment(self, data: bytes) -> frozenset[NamedPartition]:
        """Refuse."""
        raise MalformedBytes

    def write_assignment(self, partitions: Iterable[NamedPartition], metadata: bytes) -> bytes:
        """Nothing."""
        return b""
