"""Where the readers of a hub stand, whatever protocol they speak.

AMQP readers are the hub's own subscriptions; processors leave checkpoints and ownerships in the catalog; Kafka groups
leave committed offsets there. One row says who reads which partition, up to where, and how far that is behind.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hubmere.broker.live import LiveHub
from hubmere.broker.service import Broker
from hubmere.model.errors import Refusal
from hubmere.model.names import fold

# Kafka groups of a namespace that are looked through for one hub; each costs a look-up in memory.
MAX_KAFKA_GROUPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One reader of one partition: `position` is the next sequence number it wants."""

    group: str
    protocol: str
    partition: int
    reader: str
    epoch: int | None
    position: int
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
    view = broker.catalog.view
    namespace = hub.namespace.entity.key[0]
    for group_id in list(view.groups_with_offsets(namespace))[:MAX_KAFKA_GROUPS]:
        for offset in view.group_offsets(namespace, group_id):
            if offset.hub_uid == hub.entity.uid:
                yield Standing(
                    group=group_id,
                    protocol="Kafka",
                    partition=offset.partition,
                    reader="",
                    epoch=None,
                    position=offset.sequence,
                    lag=_behind(hub, offset.partition, offset.sequence),
                )


def _behind(hub: LiveHub, partition: int, position: int) -> int:
    if partition >= hub.entity.partition_count:
        return 0
    try:
        state = hub.log(partition).state
    except Refusal:
        return 0
    # What retention has let go can be read by nobody, so nobody is behind on it.
    return max(state.end_sequence - max(position, state.first_sequence), 0)
