"""Maps names in requests and responses: a hub is a topic of another name on the cluster, and so is a group.

The declarations of the messages say where names are: a struct with `name` and partitions names a topic, a field
`group_id` a group, a field `transactional_id` a transactional id. Consumers also name topics inside the bytes of
JoinGroup and SyncGroup. They are mapped too, since Kafka's coordinator reads them: it expires offsets of topics to
which no member of a group subscribes (KIP-211).
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from hubmere.wire.kafka.errors import RemoteProtocolError
from hubmere.wire.kafka.messages.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    TopicPartitions,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
    write_subscription,
)

Rename = Callable[[str], str]

_PARTITION_FIELDS: Final = ("partitions", "partition_indexes")
_GROUP_FIELDS: Final = ("group_id",)
_TRANSACTION_FIELD: Final = "transactional_id"


def map_names(value: Any, *, topic: Rename, group: Rename, transaction: Rename) -> Any:
    """A copy of a message with other names of topics, groups and transactional ids; payloads stay the same objects."""
    if isinstance(value, tuple):
        return tuple(map_names(each, topic=topic, group=group, transaction=transaction) for each in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    known = {field.name: getattr(value, field.name) for field in fields(value)}
    changes: dict[str, Any] = {}
    names_topic = "name" in known and any(name in known for name in _PARTITION_FIELDS)
    for name, part in known.items():
        if name in _GROUP_FIELDS and part:
            changes[name] = group(part)
        elif name == _TRANSACTION_FIELD and part:
            changes[name] = transaction(part)
        elif name == "name" and names_topic and part is not None:
            changes[name] = topic(part)
        elif isinstance(part, tuple) or is_dataclass(part):
            changes[name] = map_names(part, topic=topic, group=group, transaction=transaction)
    return replace(value, **changes)


def map_subscription(data: bytes, topic: Rename) -> bytes:
    """A subscription with other names of topics; bytes that are no subscription stay as they are."""
    try:
        value = read_subscription(data)
    except RemoteProtocolError:
        return data
    owned = _rename_topics(value.owned_partitions, topic)
    renamed = replace(value, topics=tuple(map(topic, value.topics)), owned_partitions=owned)
    return write_subscription(renamed, version_of(data))


def map_assignment(data: bytes, topic: Rename) -> bytes:
    """An assignment with other names of topics; bytes that are no assignment stay as they are."""
    if not data:
        return data
    try:
        value = read_assignment(data)
    except RemoteProtocolError:
        return data
    assigned = _rename_topics(value.assigned_partitions, topic)
    return write_assignment(replace(value, assigned_partitions=assigned), version_of(data))


def _rename_topics(topics: Iterable[TopicPartitions], topic: Rename) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic=topic(each.topic), partitions=each.partitions) for each in topics)


def is_consumer(protocol_type: str | None) -> bool:
    """Whether the members of a group are consumers, so that their bytes name topics."""
    return protocol_type == CONSUMER_PROTOCOL_TYPE
