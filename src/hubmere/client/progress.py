"""Offsets that a reader outside of any group stores under a group's name, so that its progress can be monitored."""

from collections.abc import Mapping

from hubmere.client.connection import Client, Connection
from hubmere.client.failures import Refused
from hubmere.wire.kafka.messages.offsets import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic


def commit_offsets(client: Client, group: str, hub: str, offsets: Mapping[int, int]) -> None:
    """Store the next sequence number of each partition in one attempt; Refused when the node does not accept them."""
    partitions = tuple(
        OffsetCommitPartition(index=index, committed_offset=offset, committed_metadata=None)
        for index, offset in sorted(offsets.items())
    )
    wanted = OffsetCommitRequest(group_id=group, topics=(OffsetCommitTopic(name=hub, partitions=partitions),))

    def attempt(connection: Connection) -> None:
        for topic in connection.ask(wanted).topics:
            for part in topic.partitions:
                if part.error_code:
                    raise Refused(f"partition {part.index} of '{hub}' for the group '{group}'", part.error_code)

    client.call_once(attempt)
