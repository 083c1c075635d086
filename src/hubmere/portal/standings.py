"""Where the readers of a hub stand, whatever protocol they speak.

AMQP readers are the hub's own subscriptions; processors leave checkpoints and ownerships in the catalog; Kafka groups
leave committed offsets there, and their coordinator knows which member was given which partition. One row says who
reads which partition, up to where, and how far that is behind.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hubmere.broker.broker import Broker
from hubmere.broker.coordinator.groups import GroupDescription
from hubmere.broker.live import LiveHub
from hubmere.model.names import fold
from hubmere.translate import assigned_partitions

# Kafka groups of a namespace that are looked through for one hub; each costs a look-up in memory.
MAX_KAFKA_GROUPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One reader of one partition: `position` is the next sequence number it wants, None before it has said so."""

    group: str
    protocol: str
    partition: int
    reader: str
    epoch: int | None
    position: int | None
    lag: int


def standings(broker: Broker, hub: LiveHub) -> list[Standing]:
    """Every reader, checkpoint and committed offset of a hub, by group and partition."""
    found = [*_readers(broker, hub), *_checkpoints(broker, hub), *_kafka(broker, hub)]
    return sorted(found, key=lambda standing: (standing.group, standing.partition, standing.protocol))


def lag_by_group(broker: Broker, hub: LiveHub) -> dict[str, int]:
    """How many events each group is behind, over all partitions that it reads.

    Where a group has both a reader and a checkpoint on a partition, the one further behind counts: what was handed out
    is not yet dealt with.
    """
    worst: dict[tuple[str, int], int] = {}
    for standing in standings(broker, hub):
        place = (standing.group, standing.partition)
        worst[place] = max(worst.get(place, 0), standing.lag)
    lags: dict[str, int] = {}
    for (group, _), lag in worst.items():
        lags[group] = lags.get(group, 0) + lag
    return lags


def _readers(broker: Broker, hub: LiveHub) -> Iterator[Standing]:
    names = {fold(group.name): str(group.name) for group in broker.catalog.view.groups(hub.entity)}
    for reader in hub.readers.all():
        yield Standing(
            group=names.get(reader.group, reader.group),
            protocol="AMQP",
            partition=reader.partition,
            reader=reader.name,
            epoch=reader.epoch,
            position=reader.next_sequence,
            lag=max(reader.lag, 0),
        )


def _checkpoints(broker: Broker, hub: LiveHub) -> Iterator[Standing]:
    view = broker.catalog.view
    for group in view.groups(hub.entity):
        for checkpoint in view.checkpoints(hub.entity.uid, group.name):
            owner = view.find_ownership(hub.entity.uid, group.name, checkpoint.partition)
            yield Standing(
                group=group.name,
                protocol="Checkpoint",
                partition=checkpoint.partition,
                reader=checkpoint.client_id if owner is None else owner.owner,
                epoch=None if owner is None or owner.owner_level < 0 else owner.owner_level,
                position=checkpoint.sequence + 1,
                lag=_behind(hub, checkpoint.partition, checkpoint.sequence + 1),
            )


def _kafka(broker: Broker, hub: LiveHub) -> Iterator[Standing]:
    """Committed offsets with who owns the partition now, and owners that have committed nothing yet."""
    coordinator = broker.coordinators.find(hub.namespace)
    view, namespace = broker.catalog.view, hub.namespace.entity.key[0]
    if coordinator is None:
        group_ids = list(view.groups_with_offsets(namespace))
    else:
        group_ids = [group.group_id for group in coordinator.groups.list()]
    for group_id in group_ids[:MAX_KAFKA_GROUPS]:
        owners = {} if coordinator is None else _kafka_owners(coordinator.groups.describe(group_id), hub)
        offsets = view.group_offsets(namespace, group_id)
        # A negative offset asks for the client's default start: it is no position yet.
        known = (offset for offset in offsets if offset.hub_uid == hub.entity.uid and offset.sequence >= 0)
        committed = {offset.partition: offset.sequence for offset in known}
        for partition in sorted(owners.keys() | committed.keys()):
            position = committed.get(partition)
            yield Standing(
                group=group_id,
                protocol="Kafka",
                partition=partition,
                reader=owners.get(partition, ""),
                epoch=None,
                position=position,
                lag=0 if position is None else _behind(hub, partition, position),
            )


def _kafka_owners(group: GroupDescription, hub: LiveHub) -> dict[int, str]:
    """Which member reads which partition of a hub: by the name it has given itself, and the address it came from."""
    return {
        # Hosts of members begin with a slash, as Kafka's tools show them.
        partition: f"{member.instance_id or member.client_id or member.member_id} at {member.client_host.lstrip('/')}"
        for member in group.members
        for topic, partition in assigned_partitions(member.assignment)
        if topic == hub.name
    }


def _behind(hub: LiveHub, partition: int, position: int) -> int:
    return hub.behind(partition, position) if partition < hub.entity.partition_count else 0
