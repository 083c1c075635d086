"""The partitions that a member of a Kafka group reads, decoded for monitoring.

Coordinators pass assignments on as opaque bytes. An assignment that cannot be decoded belongs to a protocol of the
client's own and counts as empty.
"""

from functools import lru_cache

from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.messages.consumer_protocol import read_assignment

# Assignments change with a rebalance; the portal reads them every second.
_CACHED_ASSIGNMENTS = 1024


@lru_cache(maxsize=_CACHED_ASSIGNMENTS)
def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """Topic and partition of everything that a member reads; empty if the assignment cannot be decoded."""
    if not assignment:
        return ()
    try:
        topics = read_assignment(assignment).assigned_partitions
    except RemoteProtocolError:
        return ()
    return tuple((topic.topic, partition) for topic in topics for partition in topic.partitions)
