"""Administration of Kafka groups: positions and lag of each group, resets with a preview, deletion.

Used by the portal and by the management API. A reset writes new committed offsets for a group:

1. `plan_reset` computes the new offset of every chosen partition and changes nothing: this is the preview.
2. `reset` computes the same, refuses while the group has members (they would overwrite the offsets with their next
   commit), and writes all offsets in one change of the catalog.

Targets are moved into the range of retained events, as Kafka's own tool does. Rights are checked by the caller of this
module; the Manage right on the namespace is needed to reset or delete a group. Thread rule: the owner's thread only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from hubmere.broker.coordinator.consumer_group.embedded import EmbeddedProtocol, MalformedBytes, NamedPartition
from hubmere.broker.coordinator.groups import GroupDescription, Groups
from hubmere.broker.coordinator.membership import GroupState, GroupType, MemberView
from hubmere.broker.coordinator.offsets import Commit, Offsets
from hubmere.broker.coordinator.refusals import GroupNotEmpty, GroupUnknown
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.management.auditing import Actor, OnDone
from hubmere.model.errors import InvalidArgument, PartitionNotFound, PartitionOpening, Refusal
from hubmere.model.position import Position
from hubmere.store.audit import AuditLine, AuditLog
from hubmere.store.catalog.runtime_state import GroupOffset
from hubmere.store.engine import LogState, PartitionLog


class ResetKind(StrEnum):
    """Where a reset moves a group."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A reset of committed offsets.

    `value` is a time in milliseconds (`time`), an offset (`offset`) or a number of events, negative to go back
    (`shift`); the other kinds ignore it. Without `hub`, the reset covers every partition that the group has committed.
    """

    kind: ResetKind
    value: int = 0
    hub: str | None = None
    partitions: tuple[int, ...] | None = None


class PlannedOffset(NamedTuple):
    """The new committed offset of one partition. `current` is None if the group has not committed there."""

    hub: str
    partition: int
    current: int | None
    target: int
    log_start: int
    end: int

    @property
    def lag(self) -> int:
        """Events that the group has to read after the reset."""
        return max(self.end - self.target, 0)


class GroupPosition(NamedTuple):
    """A group's position in one partition: the committed offset, and the member that reads the partition now."""

    hub: str
    partition: int
    committed: int | None
    committed_ms: int | None
    log_start: int
    end: int
    lag: int
    member_id: str
    client_id: str
    client_host: str


class GroupOverview(NamedTuple):
    """One row of a list of groups."""

    group_id: str
    state: GroupState
    type: GroupType
    protocol_type: str
    member_count: int
    hubs: tuple[str, ...]
    partition_count: int
    lag: int


class GroupAdministration:
    """Administration of the Kafka groups of one namespace."""

    def __init__(
        self,
        namespace: LiveNamespace,
        groups: Groups,
        offsets: Offsets,
        *,
        embedded: EmbeddedProtocol,
        audit: AuditLog,
    ) -> None:
        self._namespace = namespace
        self._groups = groups
        self._offsets = offsets
        self._embedded = embedded
        self._audit = audit

    # --- queries ---

    def group_ids(self) -> list[str]:
        """The ids of all groups, sorted."""
        return [group.group_id for group in self._groups.list()]

    def overview(self, group_id: str) -> GroupOverview:
        """One group with its total lag. A group that does not exist has the state `Dead`."""
        described = self._groups.describe(group_id)
        positions = self._positions(described)
        return GroupOverview(
            group_id,
            described.state,
            described.type,
            described.protocol_type,
            len(described.members),
            tuple(dict.fromkeys(position.hub for position in positions)),
            len(positions),
            sum(position.lag for position in positions),
        )

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members; refused if there is none."""
        described = self._groups.describe(group_id)
        if described.state is GroupState.DEAD:
            raise GroupUnknown(group_id)
        return described

    def positions(self, group_id: str) -> list[GroupPosition]:
        """The positions of a group, by hub and partition: committed offsets, and partitions that members read."""
        return self._positions(self._groups.describe(group_id))

    def _positions(self, group: GroupDescription) -> list[GroupPosition]:
        owners = self._owners(group)
        committed: dict[NamedPartition, GroupOffset] = {
            (hub.name, offset.partition): offset for hub, offset in self._offsets.all(group.group_id)
        }
        hubs = {hub.name: hub for hub in self._namespace.hubs.values()}
        return [
            _position(hubs[name], partition, committed.get((name, partition)), owners.get((name, partition)))
            for name, partition in sorted(owners.keys() | committed.keys())
            if name in hubs and partition < hubs[name].entity.partition_count
        ]

    def _owners(self, group: GroupDescription) -> Mapping[NamedPartition, MemberView]:
        owners: dict[NamedPartition, MemberView] = {}
        for member in group.members:
            try:
                owners.update(dict.fromkeys(self._embedded.read_assignment(member.assignment), member))
            except MalformedBytes:
                # Groups of other programs, such as Kafka Connect, embed other bytes.
                continue
        return owners

    # --- resets ---

    def plan_reset(self, group_id: str, reset: Reset) -> list[PlannedOffset]:
        """The offsets that `reset` would commit, by hub and partition."""
        planned = []
        for hub, partition, current in self._reset_partitions(group_id, reset):
            state = _reset_log(hub, partition, reset).state
            wanted = reset_target(hub, partition, current, state, reset)
            target = min(max(wanted, state.log_start), state.committed)
            planned.append(PlannedOffset(hub.name, partition, current, target, state.log_start, state.committed))
        return planned

    def reset(self, group_id: str, reset: Reset, actor: Actor, on_done: OnDone) -> list[PlannedOffset]:
        """Commit the planned offsets; refused while the group has members. Returns what is committed."""
        on_complete = self._on_complete("reset group", group_id, actor, on_done)
        try:
            if not self._groups.is_empty(group_id):
                raise GroupNotEmpty(group_id)
            planned = self.plan_reset(group_id, reset)
            hubs = {hub.name: hub.entity for hub in self._namespace.hubs.values()}
            commits = [Commit(hubs[each.hub], each.partition, each.target, -1, "") for each in planned]
            self._offsets.commit(group_id, commits, actor.now_ms, on_complete)
        except PartitionOpening:
            # Not refused: the caller tries again when the log is open.
            raise
        except Refusal as refusal:
            self._audit.write(self._line("reset group", group_id, actor, refusal))
            raise
        return planned

    def delete(self, group_id: str, actor: Actor, on_done: OnDone) -> None:
        """Delete a group without members, with its committed offsets."""
        on_complete = self._on_complete("delete group", group_id, actor, on_done)
        try:
            self._groups.delete(group_id, on_complete)
        except Refusal as refusal:
            self._audit.write(self._line("delete group", group_id, actor, refusal))
            raise

    def _reset_partitions(self, group_id: str, reset: Reset) -> Sequence[tuple[LiveHub, int, int | None]]:
        """The partitions of a reset, each with its committed offset."""
        committed = {
            (offset.hub_uid, offset.partition): offset.sequence
            for _, offset in self._offsets.all(group_id)
            if offset.sequence >= 0
        }
        chosen: list[tuple[LiveHub, int, int | None]]
        if reset.hub is None:
            hubs = {hub.entity.uid: hub for hub in self._namespace.hubs.values()}
            places = sorted((hubs[uid].name, partition, uid) for uid, partition in committed)
            chosen = [(hubs[uid], partition, committed[uid, partition]) for _, partition, uid in places]
            if not chosen:
                raise GroupUnknown(group_id)
        else:
            hub = self._namespace.hub(reset.hub)
            uid, count = hub.entity.uid, hub.entity.partition_count
            numbers = range(count) if reset.partitions is None else reset.partitions
            for number in numbers:
                if not 0 <= number < count:
                    raise PartitionNotFound(hub.name, str(number), count)
            chosen = [(hub, number, committed.get((uid, number))) for number in numbers]
        if reset.kind is ResetKind.SHIFT:
            chosen = [one for one in chosen if one[2] is not None]
            if not chosen:
                raise InvalidArgument("reset", reset.kind, "a shift needs partitions with a committed offset")
        return chosen

    def _on_complete(self, action: str, group_id: str, actor: Actor, on_done: OnDone) -> OnDone:
        def on_complete(refusal: Refusal | None) -> None:
            self._audit.write(self._line(action, group_id, actor, refusal), lambda: on_done(refusal))

        return on_complete

    def _line(self, action: str, group_id: str, actor: Actor, refusal: Refusal | None) -> AuditLine:
        return actor.line(action, f"{self._namespace.entity.name}/groups/{group_id}", refusal)


def _position(hub: LiveHub, partition: int, offset: GroupOffset | None, owner: MemberView | None) -> GroupPosition:
    # A negative offset means that the client starts at its default position.
    committed = None if offset is None or offset.sequence < 0 else offset.sequence
    try:
        state = hub.log(partition).state
        log_start, end = state.log_start, state.committed
    except Refusal:
        log_start = end = -1
    return GroupPosition(
        hub.name,
        partition,
        committed,
        None if offset is None else offset.committed_ms,
        log_start,
        end,
        0 if committed is None else max(end - max(committed, log_start), 0),
        "" if owner is None else owner.member_id,
        "" if owner is None else owner.instance_id or owner.client_id,
        # The host of a member starts with a slash, as in Kafka's own tools.
        "" if owner is None else owner.client_host.lstrip("/"),
    )


def _reset_log(hub: LiveHub, partition: int, reset: Reset) -> PartitionLog:
    """The log of a partition; raises LogOpening until it is known where its captured files begin."""
    if hub.history is None:
        return hub.log(partition)
    is_time = reset.kind is ResetKind.TIME
    return hub.current_log(partition, Position.time(reset.value, inclusive=True) if is_time else None)


def reset_target(hub: LiveHub, partition: int, current: int | None, state: LogState, reset: Reset) -> int:
    """The new offset before it is moved into the range of retained events."""
    if reset.kind is ResetKind.EARLIEST:
        return state.log_start
    if reset.kind is ResetKind.LATEST:
        return state.committed
    if reset.kind is ResetKind.TIME:
        return hub.log(partition).find(Position.time(reset.value, inclusive=True))
    if reset.kind is ResetKind.SHIFT:
        assert current is not None
        return current + reset.value
    return reset.value
