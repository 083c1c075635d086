"""Positions and lag of all consumers of a hub, for every protocol.

Three sources are combined: open AMQP readers, checkpoints and ownerships of event processors, and committed offsets of
Kafka groups with the partition assignments of their coordinator. One `ConsumerPosition` says who reads a partition, the
next event, and the lag.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hubmere.broker import Broker, GroupDescription, HubView, Reader
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.model.names import fold
from hubmere.portal import formatting
from hubmere.portal.history.reader_names import reader_label
from hubmere.translate import assigned_partitions

# Names of protocols on pages.
AMQP, KAFKA = "AMQP", "Kafka"
# Maximum number of Kafka groups of a namespace that are searched for one hub; each costs a look-up in memory.
MAX_KAFKA_GROUPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPosition:
    """One consumer of one partition. `position` is the next sequence number that it reads, None if unknown."""

    group: str
    protocol: str
    partition: int
    reader: str
    epoch: int | None
    position: int | None
    lag: int

    @property
    def lag_text(self) -> str:
        """The lag for people. A lag of 0 would say that everything was read."""
        return "unknown" if self.position is None else formatting.number(self.lag)


# Names of readers by `reader_names`; the others have the names that they gave themselves.
ReaderNames = Mapping[Reader, str]
_NO_NAMES: ReaderNames = {}


def consumer_positions(
    broker: Broker, hub: HubView, now_ms: int, names: ReaderNames = _NO_NAMES
) -> list[ConsumerPosition]:
    """All readers, checkpoints and committed offsets of a hub, sorted by group and partition."""
    found = [*_readers(broker, hub, names), *_checkpoints(broker, hub, now_ms), *_kafka(broker, hub)]
    return sorted(found, key=lambda row: (row.group, row.partition, row.protocol))


def amqp_positions(
    broker: Broker, hub: HubView, group: str, now_ms: int, names: ReaderNames = _NO_NAMES
) -> list[ConsumerPosition]:
    """The readers and checkpoints of one consumer group of a hub, by partition."""
    found = (*_readers(broker, hub, names), *_checkpoints(broker, hub, now_ms))
    return sorted(
        (row for row in found if fold(row.group) == fold(group)), key=lambda row: (row.partition, row.protocol)
    )


def group_label(broker: Broker, hub: HubView, group: str) -> str:
    """The name of a consumer group as it was created; readers and blobs have it in lower case."""
    names = (str(each.name) for each in broker.entities.groups(hub.entity))
    return next((name for name in names if fold(name) == fold(group)), group)


def lag_by_group(positions: Iterable[ConsumerPosition]) -> dict[str, int]:
    """The lag of each group in events, over all partitions that it reads.

    If a group has both a reader and a checkpoint on a partition, the larger lag counts: events that were delivered but
    not checkpointed are not processed yet.
    """
    worst: dict[tuple[str, int], int] = {}
    for row in positions:
        key = (row.group, row.partition)
        worst[key] = max(worst.get(key, 0), row.lag)
    lags: dict[str, int] = {}
    for (group, _), lag in worst.items():
        lags[group] = lags.get(group, 0) + lag
    return lags


def _readers(broker: Broker, hub: HubView, names: ReaderNames = _NO_NAMES) -> Iterator[ConsumerPosition]:
    groups = {fold(group.name): str(group.name) for group in broker.entities.groups(hub.entity)}
    for reader in hub.readers():
        yield ConsumerPosition(
            group=groups.get(reader.group, reader.group),
            protocol=AMQP,
            partition=reader.partition,
            reader=names.get(reader) or reader_label(reader.name),
            epoch=reader.epoch,
            position=reader.next_sequence,
            lag=max(reader.lag, 0),
        )


def _checkpoints(broker: Broker, hub: HubView, now_ms: int) -> Iterator[ConsumerPosition]:
    names = {fold(group.name): str(group.name) for group in broker.entities.groups(hub.entity)}
    for state in broker.processors.of_hub(hub.uid, now_ms):
        stored = state.stored
        yield ConsumerPosition(
            group=names.get(fold(stored.group), stored.group),
            protocol="Checkpoint",
            partition=state.partition,
            reader=stored.owner or "",
            epoch=None,
            position=None if stored.sequence is None else stored.sequence + 1,
            lag=state.lag or 0,
        )


def _kafka(broker: Broker, hub: HubView) -> Iterator[ConsumerPosition]:
    """Committed offsets with the current owner of the partition, and owners that have not committed yet."""
    namespace = fold(hub.namespace.name)
    for group in broker.coordinators.describe_groups(namespace, MAX_KAFKA_GROUPS):
        owners = _kafka_owners(group, hub)
        offsets = broker.entities.group_offsets(namespace, group.group_id)
        # A negative offset means that the client starts at its default position.
        known = (offset for offset in offsets if offset.hub_uid == hub.uid and offset.sequence >= 0)
        committed = {offset.partition: offset.sequence for offset in known}
        for partition in sorted(owners.keys() | committed.keys()):
            position = committed.get(partition)
            yield ConsumerPosition(
                group=group.group_id,
                protocol=KAFKA,
                partition=partition,
                reader=owners.get(partition, ""),
                epoch=None,
                position=position,
                lag=0 if position is None else _lag(hub, partition, position),
            )


def _kafka_owners(group: GroupDescription, hub: HubView) -> dict[int, str]:
    """The member that reads each partition of a hub: its name and address."""
    return {
        # The host of a member starts with a slash, as in Kafka's own tools.
        partition: f"{member.instance_id or member.client_id or member.member_id} at {member.client_host.lstrip('/')}"
        for member in group.members
        for topic, partition in assigned_partitions(member.assignment)
        if topic == hub.name
    }


def _lag(hub: HubView, partition: int, position: int) -> int:
    return hub.lag(partition, position) if partition < hub.partition_count else 0


# --- lag of all groups, for the recorder ------------------------------------------------------------------------------

# A round over all hubs and groups takes about this many visits.
_VISITS_PER_ROUND = 10
# Maximum number of hubs or groups in one visit, about 0.1 ms each; a larger node takes more visits.
_MAX_VISITED = 50


class GroupLag(NamedTuple):
    """The lag of a group in one hub. `group` starts with the protocol, because names of groups may coincide."""

    hub_uid: str
    group: str
    lag: int


def amqp_label(group: str) -> str:
    """The label of a consumer group of a hub (readers and checkpoints)."""
    return f"amqp/{fold(group)}"


def kafka_label(group_id: str) -> str:
    """The label of a Kafka group."""
    return f"kafka/{group_id}"


@dataclass(slots=True)
class LagVisitor:
    """Finds the lag of every group, a few hubs and groups at a time."""

    broker: Broker
    clock: Clock
    # A hub, or the name of a namespace and a Kafka group in it.
    _waiting: deque[HubView | tuple[str, str]] = field(default_factory=deque)
    _count: int = 1

    def visit(self) -> Iterator[GroupLag]:
        """The lags of the next few hubs and groups."""
        if not self._waiting:
            self._plan()
        for _ in range(min(self._count, len(self._waiting))):
            item = self._waiting.popleft()
            try:
                yield from self._of_kafka(*item) if isinstance(item, tuple) else self._of_hub(item)
            except Refusal:
                # Deleted since the round was planned.
                continue

    def _plan(self) -> None:
        for namespace in self.broker.namespace_views():
            self._waiting += namespace.hubs()
            groups = self.broker.entities.groups_with_offsets(fold(namespace.name))
            self._waiting += ((namespace.name, group) for group in groups)
        self._count = min(-(-len(self._waiting) // _VISITS_PER_ROUND), _MAX_VISITED)

    def _of_kafka(self, namespace: str, group_id: str) -> Iterator[GroupLag]:
        caller = self.broker.administrator().at(namespace)
        coordinator = caller.coordinator(self.clock.monotonic(), self.clock.now_ms())
        lags: dict[str, int] = {}
        for position in coordinator.administration.positions(group_id):
            lags[position.hub] = lags.get(position.hub, 0) + position.lag
        for hub, lag in lags.items():
            yield GroupLag(caller.visible_hub(hub).uid, kafka_label(group_id), lag)

    def _of_hub(self, hub: HubView) -> Iterator[GroupLag]:
        if not hub.is_current:
            return
        # Most hubs have neither readers nor checkpoints.
        readers = _readers(self.broker, hub) if hub.readers() else ()
        for group, lag in lag_by_group((*readers, *_checkpoints(self.broker, hub, self.clock.now_ms()))).items():
            yield GroupLag(hub.uid, amqp_label(group), lag)
