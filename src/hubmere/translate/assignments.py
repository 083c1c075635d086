"""Which partitions a member of a Kafka group was given: the group protocol's opaque bytes, opened for people.

Coordinators pass these bytes on unopened; only those who look at a group need to know what is in them. What cannot be
read belongs to a protocol of the client's own, and says nothing.
"""

from functools import lru_cache

from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.messages.consumer_protocol import read_assignment

# Assignments change with a rebalance and are looked at every second.
_REMEMBERED = 1024


@lru_cache(maxsize=_REMEMBERED)
def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """Topic and partition of everything that a member has to read; nothing when that cannot be told."""
    if not assignment:
        return ()
    try:
        topics = read_assignment(assignment).assigned_partitions
    except RemoteProtocolError:
        return ()
    return tuple((topic.topic, partition) for topic in topics for partition in topic.partitions)
