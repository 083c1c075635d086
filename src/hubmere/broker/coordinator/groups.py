"""All Kafka groups of one namespace: found by id, persisted in the catalog, and woken at their deadlines.

A group is classic (`classic_group`) or a consumer group (`consumer_group`, KIP-848). The first consumer heartbeat turns
a classic group of consumers into a consumer group; when only classic members are left in it, it becomes a classic one.

A group exists while it has members or committed offsets; it is not created explicitly. State that must survive a
restart (generation, members, assignments) is written to the catalog before members are answered. These groups are not
the consumer groups of a hub, which AMQP readers use. Thread rule: the owner's thread only.
"""

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hubmere.broker.coordinator import group_records
from hubmere.broker.coordinator.classic_group import ClassicGroup, OnPersisted
from hubmere.broker.coordinator.consumer_group import serialization as consumer_serialization
from hubmere.broker.coordinator.consumer_group.assignments import NoTopics, TopicDirectory
from hubmere.broker.coordinator.consumer_group.embedded import EmbeddedProtocol, NamedPartition, NoEmbeddedProtocol
from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup
from hubmere.broker.coordinator.consumer_group.members import (
    JOIN_EPOCH,
    ConsumerGroupConfig,
    ConsumerGroupDescription,
    Heartbeat,
    HeartbeatReply,
)
from hubmere.broker.coordinator.consumer_group.migration import downgrade, upgrade
from hubmere.broker.coordinator.consumer_group.regex import RegexResolver
from hubmere.broker.coordinator.consumer_group.validation import require_commit, require_fetch, require_valid
from hubmere.broker.coordinator.consumer_group.views import classic_views, describe
from hubmere.broker.coordinator.deadlines import Deadlines
from hubmere.broker.coordinator.membership import (
    GroupState,
    GroupType,
    JoinReply,
    JoinRequest,
    MemberView,
    SyncReply,
    SyncRequest,
)
from hubmere.broker.coordinator.refusals import (
    CONSUMER_MAX_SIZE,
    GroupFull,
    GroupNotEmpty,
    GroupUnknown,
    InvalidGroupId,
    NotConsumerGroup,
    SessionTimeoutOutOfRange,
    UnknownMember,
)
from hubmere.model.errors import InvalidName, LimitReached, Refusal
from hubmere.model.names import KafkaGroupId, kafka_group_id
from hubmere.store.catalog.runtime_state import GroupMetadata
from hubmere.store.catalog.view import Drop, Put
from hubmere.store.engine import Catalog

# The range of session.timeout.ms in the service (reference: kafka 1.4).
SHORTEST_SESSION_MS, LONGEST_SESSION_MS = 6_000, 300_000
# Initial rebalance delay: the first members of an empty group wait for others, to start with one rebalance.
INITIAL_DELAY_S = 0.5
# Groups of one namespace: each is a few hundred bytes in memory and in the catalog.
MAX_GROUPS = 100_000
# Groups whose deadlines are handled in one turn: to complete the joins of one takes about 150 microseconds.
MAX_ADVANCED = 50

OnDone = Callable[[Refusal | None], None]
AnyGroup = ClassicGroup | ConsumerGroup


class GroupSummary(NamedTuple):
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType = GroupType.CLASSIC


class GroupDescription(NamedTuple):
    """A group with its members, for administration."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberView, ...]
    type: GroupType = GroupType.CLASSIC


class Groups:
    """The groups of one namespace."""

    def __init__(
        self,
        namespace: str,
        catalog: Catalog,
        *,
        now: float,
        initial_delay_s: float = INITIAL_DELAY_S,
        topics: TopicDirectory | None = None,
        config: ConsumerGroupConfig | None = None,
        embedded: EmbeddedProtocol | None = None,
    ) -> None:
        self._namespace = namespace
        self._catalog = catalog
        self._initial_delay_s = initial_delay_s
        self._topics = topics or NoTopics()
        self._resolver = RegexResolver(self._topics)
        self._config = config or ConsumerGroupConfig()
        self._embedded = embedded or NoEmbeddedProtocol()
        self._groups: dict[str, AnyGroup] = {}
        # Deadlines may be stale (too early); an early wake-up only reschedules.
        self._deadlines = Deadlines()
        self._now_ms = 0
        for record in catalog.view.group_metadata(namespace):
            self._load(record, now)

    # --- members ---

    def join(self, group_id: str, request: JoinRequest, now: float, now_ms: int, reply: JoinReply) -> None:
        """Add or renew a member of a group, which is created if needed."""
        checked = self._parse_id(group_id)
        if not SHORTEST_SESSION_MS <= request.session_timeout_s * 1000 <= LONGEST_SESSION_MS:
            raise SessionTimeoutOutOfRange(group_id, SHORTEST_SESSION_MS, LONGEST_SESSION_MS)
        self._now_ms = now_ms
        group = self._groups.get(checked)
        if group is None and request.member_id:
            raise UnknownMember(group_id, request.member_id)
        if group is None or (isinstance(group, ConsumerGroup) and group.state is GroupState.EMPTY):
            # An empty consumer group becomes a classic one: its next members choose the protocol.
            group = self._open(checked, generation=0 if group is None else group.epoch)
        try:
            group.join(request, now, reply)
        finally:
            self._after_change(group, now)

    def sync(self, group_id: str, request: SyncRequest, now: float, now_ms: int, reply: SyncReply) -> None:
        """Request an assignment, or (the leader) provide all of them."""
        self._now_ms = now_ms
        group = self._of_member(group_id, request.member_id)
        try:
            group.sync(request, now, reply)
        finally:
            self._after_change(group, now)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Heartbeat of a member with the classic protocol."""
        group = self._of_member(group_id, member_id)
        if isinstance(group, ClassicGroup):
            group.heartbeat(member_id, instance_id, generation, now)
            return
        try:
            group.classic_heartbeat(member_id, instance_id, generation, now)
        finally:
            self._after_change(group, now)

    def leave(self, group_id: str, member_id: str, instance_id: str | None, now: float, now_ms: int) -> None:
        """A member with the classic protocol leaves."""
        self._now_ms = now_ms
        group = self._of_member(group_id, member_id)
        try:
            group.leave(member_id, instance_id, now)
        finally:
            self._after_change(group, now)

    def topics_matching(self, group_id: str, regex: str) -> frozenset[str] | None:
        """The topics that an expression matches; None while this is still being evaluated. Raises InvalidRegex."""
        self._resolver.refill()
        return self._resolver.matches(group_id, regex)

    def consumer_heartbeat(
        self, group_id: str, beat: Heartbeat, now: float, now_ms: int, reply: HeartbeatReply
    ) -> None:
        """A member with the consumer protocol joins, stays or leaves."""
        checked = self._parse_id(group_id)
        require_valid(group_id, beat)
        self._now_ms = now_ms
        self._resolver.refill()
        group = self._groups.get(checked)
        if not isinstance(group, ConsumerGroup):
            if beat.epoch != JOIN_EPOCH:
                raise UnknownMember(group_id, beat.member_id)
            group = self._open_for_consumers(checked, group, beat, now)
        changes = group.changes
        group.heartbeat(beat, now, reply)
        # Its deadline is scheduled when the change is written: to look for it visits every member.
        if group.changes != changes and group.has_only_classic_members:
            self._after_change(group, now)

    def _open_for_consumers(
        self, group_id: KafkaGroupId, old: ClassicGroup | None, beat: Heartbeat, now: float
    ) -> ConsumerGroup:
        """A new consumer group, or one with the members of a classic group; a refusal changes nothing."""
        if beat.regex:
            self._resolver.require_valid(group_id, beat.regex)
        group = self._new_consumer_group(group_id)
        if old is None:
            self._require_capacity()
        else:
            if len(old.members) >= self._config.max_size:
                raise GroupFull(group_id, self._config.max_size, CONSUMER_MAX_SIZE)
            if old.members:
                upgrade(old, group, now)
            else:
                group.epoch = group.assignment_epoch = old.generation
        self._groups[group_id] = group
        return group

    def require_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: float,
        partitions: Iterable[NamedPartition] = (),
    ) -> None:
        """Refuse a commit by a client that is not a current member; a group without members accepts any."""
        group = self._groups.get(self._parse_id(group_id))
        if isinstance(group, ConsumerGroup):
            require_commit(group, member_id, instance_id, generation, partitions)
        elif group is not None:
            group.require_commit(member_id, instance_id, generation, now)
        elif generation >= 0 or member_id:
            raise UnknownMember(group_id, member_id)

    def require_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Refuse a fetch of offsets by a member of a consumer group with a wrong epoch."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            require_fetch(group, member_id, epoch)

    def _parse_id(self, group_id: str) -> KafkaGroupId:
        try:
            return kafka_group_id(group_id)
        except InvalidName:
            raise InvalidGroupId(group_id) from None

    def _of_member(self, group_id: str, member_id: str) -> AnyGroup:
        group = self._groups.get(self._parse_id(group_id))
        if group is None:
            raise UnknownMember(group_id, member_id)
        return group

    # --- queries ---

    def find(self, group_id: str) -> AnyGroup | None:
        """A group that has or had members; None if there is none."""
        return self._groups.get(group_id)

    def list(self) -> list[GroupSummary]:
        """Every group that has members or committed offsets."""
        found = {
            group.group_id: GroupSummary(group.group_id, group.protocol_type or "", group.state, group.type)
            for group in self._groups.values()
        }
        for group_id in self._catalog.view.groups_with_offsets(self._namespace):
            found.setdefault(group_id, GroupSummary(group_id, "", GroupState.EMPTY))
        return [found[group_id] for group_id in sorted(found)]

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members; a missing one is described as dead."""
        group = self._groups.get(group_id)
        if group is not None:
            names = (group.protocol_type or "", group.protocol or "")
            members = group.views() if isinstance(group, ClassicGroup) else classic_views(group)
            return GroupDescription(group_id, group.state, *names, members, group.type)
        has_offsets = bool(self._catalog.view.group_offsets(self._namespace, group_id))
        return GroupDescription(group_id, GroupState.EMPTY if has_offsets else GroupState.DEAD, "", "", ())

    def describe_consumers(self, group_id: str) -> ConsumerGroupDescription:
        """A consumer group with its epochs and members."""
        group = self._groups.get(self._parse_id(group_id))
        if not isinstance(group, ConsumerGroup):
            raise GroupUnknown(group_id) if group is None else NotConsumerGroup(group_id)
        return describe(group)

    def is_empty(self, group_id: str) -> bool:
        """Whether a group has no members."""
        group = self._groups.get(group_id)
        return group is None or group.state is GroupState.EMPTY

    # --- deletion ---

    def delete(self, group_id: str, on_done: OnDone) -> None:
        """Delete a group without members, with its committed offsets."""
        self._parse_id(group_id)
        offsets = self._catalog.view.group_offsets(self._namespace, group_id)
        group = self._groups.get(group_id)
        if group is None and not offsets:
            raise GroupUnknown(group_id)
        if not self.is_empty(group_id):
            raise GroupNotEmpty(group_id)
        record = GroupMetadata(namespace=self._namespace, group_id=group_id, state="")

        def on_dropped(refusal: Refusal | None) -> None:
            if refusal is None and group is not None and self._groups.get(group_id) is group:
                self._forget(group)
            on_done(refusal)

        self._catalog.submit(Drop(record), *map(Drop, offsets), callback=on_dropped)

    def delete_unused(self) -> None:
        """Delete groups that have neither members nor offsets."""
        for group in list(self._groups.values()):
            is_used = group.state is not GroupState.EMPTY or group.next_deadline() is not None
            if not is_used and not self._catalog.view.group_offsets(self._namespace, group.group_id):
                self._forget(group)
                record = GroupMetadata(namespace=self._namespace, group_id=group.group_id, state="")
                self._catalog.submit(Drop(record))

    def _forget(self, group: AnyGroup) -> None:
        if group.state is GroupState.EMPTY:
            group.die()
            del self._groups[group.group_id]
            self._deadlines.drop(group.group_id)

    # --- time ---

    def next_deadline(self) -> float | None:
        """The earliest deadline of all groups."""
        return self._deadlines.next()

    def advance(self, now: float, now_ms: int) -> None:
        """Advance groups whose deadline has passed; if there are many, `next_deadline` stays in the past."""
        self._now_ms = now_ms
        self._resolver.refill()
        for group_id in self._deadlines.take(now, MAX_ADVANCED):
            group = self._groups.get(group_id)
            if group is not None:
                group.advance(now)
                self._after_change(group, now)

    def _after_change(self, group: AnyGroup, now: float) -> None:
        """After a possible change of a group: turn it into a classic group if possible, and schedule its deadline."""
        if isinstance(group, ConsumerGroup) and group.has_only_classic_members:
            group = self._downgrade(group, now)
        self._schedule(group)

    def _downgrade(self, old: ConsumerGroup, now: float) -> ClassicGroup:
        group = self._new_classic_group(old.group_id)
        downgrade(old, group, now)
        self._groups[old.group_id] = group
        waiting = old.close()

        def on_persisted(refusal: Refusal | None) -> None:
            for respond in waiting:
                respond(refusal)

        self._persist(group, on_persisted)
        return group

    def _schedule(self, group: AnyGroup) -> None:
        """Schedule the group's deadline; heartbeats only postpone it and need no call."""
        deadline = group.next_deadline()
        if deadline is not None:
            self._deadlines.set_earlier(group.group_id, deadline)

    # --- persistence ---

    def _open(self, group_id: KafkaGroupId, *, generation: int) -> ClassicGroup:
        """A new classic group; if it replaces a consumer group, it continues its generations."""
        self._require_capacity()
        group = self._new_classic_group(group_id)
        group.generation = generation
        self._groups[group_id] = group
        return group

    def _require_capacity(self) -> None:
        if len(self._groups) >= MAX_GROUPS:
            raise LimitReached("groups", MAX_GROUPS)

    def _new_classic_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(
            group_id, initial_delay_s=self._initial_delay_s, persist=self._persist, embedded=self._embedded
        )

    def _new_consumer_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            config=self._config,
            topics=self._topics,
            resolver=self._resolver,
            embedded=self._embedded,
            persist=self._persist,
        )

    def _persist(self, group: AnyGroup, on_persisted: OnPersisted) -> None:
        if isinstance(group, ConsumerGroup):
            # Once for all heartbeats that share the write.
            self._schedule(group)
        record = GroupMetadata(
            namespace=self._namespace, group_id=group.group_id, state=_encode(group), modified_ms=self._now_ms
        )
        try:
            self._catalog.submit(Put(record), callback=on_persisted)
        except Refusal as refusal:
            on_persisted(refusal)

    def _load(self, record: GroupMetadata, now: float) -> None:
        state = json.loads(record.state)
        group: AnyGroup
        if state.get("type") == GroupType.CONSUMER:
            group = self._new_consumer_group(record.group_id)
            consumer_serialization.decode_group(group, state, now)
        else:
            group = self._new_classic_group(record.group_id)
            group_records.decode_group(group, state, now)
        self._groups[record.group_id] = group
        self._schedule(group)


def _encode(group: AnyGroup) -> str:
    if isinstance(group, ClassicGroup):
        return group_records.encode_group(group)
    return consumer_serialization.encode_group(group)
