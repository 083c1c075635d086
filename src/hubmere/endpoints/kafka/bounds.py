"""How many entries one request may have: limits the work of a small request, far above what clients need.

A request with more than `MAX_ENTRIES` entries closes the connection, like one that is too large; Kafka has no other
error that fits every request. Requests that name topics, groups or resources get a result for each of up to
`slices.MAX_NAMES` names, and INVALID_REQUEST for each if there are more.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import MAX_ENTRIES
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.messages.admin import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_LOG_DIRS,
)
from hubmere.wire.kafka.messages.configs import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from hubmere.wire.kafka.messages.consumer_groups import CONSUMER_GROUP_DESCRIBE
from hubmere.wire.kafka.messages.fetch import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from hubmere.wire.kafka.messages.groups import DELETE_GROUPS, DESCRIBE_GROUPS, LEAVE_GROUP
from hubmere.wire.kafka.messages.metadata import DESCRIBE_TOPIC_PARTITIONS, METADATA
from hubmere.wire.kafka.messages.offsets import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from hubmere.wire.kafka.messages.transactions import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
)

Count = Callable[[Any], int]


def _partitions(topics: Iterable[Any] | None) -> int:
    return sum(len(topic.partitions) + 1 for topic in topics or ())


def _offset_fetch(body: Any) -> int:
    groups = (*body.groups, body)
    return sum(len(topic.partition_indexes) + 1 for group in groups for topic in group.topics or ()) + len(body.groups)


# What counts as an entry: every name, and every partition.
COUNTS: Final[Mapping[int, Count]] = {
    METADATA.key: lambda body: len(body.topics or ()),
    DESCRIBE_TOPIC_PARTITIONS.key: lambda body: len(body.topics),
    LIST_OFFSETS.key: lambda body: _partitions(body.topics),
    OFFSET_FOR_LEADER_EPOCH.key: lambda body: _partitions(body.topics),
    OFFSET_COMMIT.key: lambda body: _partitions(body.topics),
    OFFSET_FETCH.key: _offset_fetch,
    OFFSET_DELETE.key: lambda body: _partitions(body.topics),
    FIND_COORDINATOR.key: lambda body: len(body.coordinator_keys),
    LEAVE_GROUP.key: lambda body: len(body.members),
    DESCRIBE_GROUPS.key: lambda body: len(body.groups),
    DELETE_GROUPS.key: lambda body: len(body.group_ids),
    CONSUMER_GROUP_DESCRIBE.key: lambda body: len(body.group_ids),
    CREATE_TOPICS.key: lambda body: sum(len(topic.configs) + len(topic.assignments) + 1 for topic in body.topics),
    DELETE_TOPICS.key: lambda body: len(body.topics) + len(body.topic_names),
    CREATE_PARTITIONS.key: lambda body: len(body.topics),
    DELETE_RECORDS.key: lambda body: _partitions(body.topics),
    DESCRIBE_LOG_DIRS.key: lambda body: _partitions(body.topics),
    DESCRIBE_CONFIGS.key: lambda body: sum(len(one.configuration_keys or ()) + 1 for one in body.resources),
    ALTER_CONFIGS.key: lambda body: sum(len(one.configs) + 1 for one in body.resources),
    INCREMENTAL_ALTER_CONFIGS.key: lambda body: sum(len(one.configs) + 1 for one in body.resources),
    ADD_PARTITIONS_TO_TXN.key: lambda body: _partitions(body.topics),
    TXN_OFFSET_COMMIT.key: lambda body: _partitions(body.topics),
    DESCRIBE_PRODUCERS.key: lambda body: sum(len(topic.partition_indexes) + 1 for topic in body.topics),
    DESCRIBE_TRANSACTIONS.key: lambda body: len(body.transactional_ids),
}


def with_bounds(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The same handlers with a check of the number of entries."""
    return {key: _with_bound(handler, COUNTS[key]) if key in COUNTS else handler for key, handler in handlers.items()}


def _with_bound(handler: Handler, count: Count) -> Handler:
    def handle(session: KafkaSession, request: Request) -> None:
        entries = count(request.body)
        if entries > MAX_ENTRIES:
            session.disconnect(f"{request!r} has {entries} entries; {MAX_ENTRIES} is the most")
        else:
            handler(session, request)

    return handle
