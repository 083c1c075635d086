"""One consumer group: members, epochs, target assignment and deadlines (KIP-848).

A heartbeat is handled in these steps. Everything that can be refused is refused before the first change.

1. Find the member, or admit it; check its epoch.
2. Apply the values of the heartbeat. A changed subscription, a changed topic, a new member or a member that left raises
   the group's epoch.
3. If the group's epoch is newer than the target assignment, compute a new target for all members.
4. Move this member one step towards its target (`reconciliation`).
5. Answer with the member's epoch and assignment once the changes are durable.

Heartbeats of many members at once share steps 3 to 5 (`shared_targets`).

Nothing here waits or reads a clock: time is an argument, in monotonic seconds. Thread rule: the owner's thread only.
"""

import uuid
from collections.abc import Callable, Iterable
from typing import Final

from hubmere.broker.coordinator.consumer_group import classic
from hubmere.broker.coordinator.consumer_group.assignments import (
    NOTHING,
    Assignment,
    Topic,
    TopicDirectory,
    TopicPartition,
)
from hubmere.broker.coordinator.consumer_group.assignors import ASSIGNORS, MemberSpec, elect
from hubmere.broker.coordinator.consumer_group.durability import Durability, Respond
from hubmere.broker.coordinator.consumer_group.embedded import CONSUMER_PROTOCOL_TYPE, EmbeddedProtocol, NamedPartition
from hubmere.broker.coordinator.consumer_group.matching import Matching
from hubmere.broker.coordinator.consumer_group.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupConfig,
    ConsumerMember,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatReply,
    MemberState,
    Subscription,
)
from hubmere.broker.coordinator.consumer_group.reconciliation import reconcile
from hubmere.broker.coordinator.consumer_group.regex import RegexResolver
from hubmere.broker.coordinator.consumer_group.shared_targets import AdmittedBeat, SharedTargets, answer_beat
from hubmere.broker.coordinator.consumer_group.validation import require_valid
from hubmere.broker.coordinator.membership import GroupState, GroupType, JoinReply, JoinRequest, SyncReply, SyncRequest
from hubmere.broker.coordinator.refusals import (
    CONSUMER_MAX_SIZE,
    CoordinatorUnavailable,
    FencedMemberEpoch,
    GroupFull,
    MemberFenced,
    UnknownMember,
    UnreleasedInstance,
)
from hubmere.model.errors import Refusal

Persist = Callable[["ConsumerGroup", Respond], None]


class ConsumerGroup:
    """The members of one consumer group and the epoch they are in."""

    type: Final = GroupType.CONSUMER

    def __init__(
        self,
        group_id: str,
        *,
        config: ConsumerGroupConfig,
        topics: TopicDirectory,
        resolver: RegexResolver,
        embedded: EmbeddedProtocol,
        persist: Persist,
    ) -> None:
        self.group_id = group_id
        self.config = config
        self.directory = topics
        self.embedded = embedded
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        # The subscribed topics that exist, by name, as of the last epoch.
        self.topics: dict[str, Topic] = {}
        self.is_dead = False
        self._instances: dict[str, str] = {}
        # Who holds which partition. A partition has one entry, so it cannot have two owners.
        self._owners: dict[TopicPartition, str] = {}
        self._matching = Matching(group_id, resolver)
        self._shared_targets = SharedTargets(self)
        self._durability = Durability(lambda respond: persist(self, respond), self._shared_targets.continue_all)
        self._revision: int | None = None
        self._is_epoch_due = False

    # --- heartbeats ---

    def heartbeat(self, beat: Heartbeat, now: float, reply: HeartbeatReply) -> None:
        """Join, stay or leave; answered when everything that changed is durable."""
        self.require_alive()
        require_valid(self.group_id, beat)
        if beat.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            self._leave(beat, now, reply)
        else:
            self._stay(beat, now, reply)

    def _stay(self, beat: Heartbeat, now: float, reply: HeartbeatReply) -> None:
        self.require_room(beat.member_id, beat.instance_id)
        known = self._find(beat)
        if beat.regex:
            self._matching.require_valid(beat.regex)
        member = known if known is not None and beat.epoch != JOIN_EPOCH else self._admit(beat, known)
        before = member.assigned
        self._update(member, beat)
        member.expires_at = now + self.config.session_timeout_s
        admitted = AdmittedBeat(member, beat, before, now, reply)
        if self.is_being_written and self._needs_target():
            self._shared_targets.add(admitted)
            return
        self.refresh(now)
        self.move(member, beat.owned, now)
        answer_beat(self, admitted)

    @property
    def is_being_written(self) -> bool:
        """Whether a write of the group is under way."""
        return self._durability.is_writing

    def _needs_target(self) -> bool:
        is_old = self.epoch > self.assignment_epoch or self._revision != self.directory.revision
        return self._is_epoch_due or is_old

    def answer(self, reply: Callable[..., None], answer: object) -> None:
        """Give an answer when everything up to now is durable."""

        def respond(refusal: Refusal | None) -> None:
            reply(answer if refusal is None else CoordinatorUnavailable(self.group_id))

        self._durability.when_durable(respond)

    def require_alive(self) -> None:
        """Refuse when the group is being deleted."""
        if self.is_dead:
            raise CoordinatorUnavailable(self.group_id)

    def require_room(self, member_id: str, instance_id: str | None) -> None:
        """Refuse a newcomer to a full group."""
        is_newcomer = member_id not in self.members and self.static_member(instance_id) is None
        if is_newcomer and len(self.members) >= self.config.max_size:
            raise GroupFull(self.group_id, self.config.max_size, CONSUMER_MAX_SIZE)

    # --- finding and admitting members ---

    def _find(self, beat: Heartbeat) -> ConsumerMember | None:
        """The member that sends a heartbeat; None for a newcomer. Refused unless the epoch fits."""
        if beat.epoch == JOIN_EPOCH:
            return self._find_joining(beat)
        member = self.member(beat.member_id, beat.instance_id)
        self._require_epoch(member, beat)
        return member

    def _find_joining(self, beat: Heartbeat) -> ConsumerMember | None:
        """The existing member that a join refers to: the same id, or the static member that it replaces."""
        known = self.static_member(beat.instance_id) or self.members.get(beat.member_id)
        is_other = known is not None and known.member_id != beat.member_id
        if known is not None and is_other and known.classic is None and not known.is_away:
            raise UnreleasedInstance(self.group_id, beat.instance_id or "", known.member_id)
        return known

    def _require_epoch(self, member: ConsumerMember, beat: Heartbeat) -> None:
        if beat.epoch == member.epoch:
            return
        # The answer with the newer epoch may have been lost; then the member owns nothing beyond it.
        is_previous = beat.epoch == member.previous_epoch
        if not is_previous or beat.owned is None or not beat.owned <= member.assigned:
            raise FencedMemberEpoch(self.group_id, member.member_id, beat.epoch, member.epoch)

    def member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """A member by id, which must be the one that has the instance id if there is one."""
        if instance_id is None:
            member = self.members.get(member_id)
        else:
            member = self.static_member(instance_id)
            if member is not None and member.member_id != member_id:
                raise MemberFenced(self.group_id, instance_id)
        if member is None:
            raise UnknownMember(self.group_id, member_id)
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with an instance id."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def _admit(self, beat: Heartbeat, known: ConsumerMember | None) -> ConsumerMember:
        member_id = beat.member_id or str(uuid.uuid4())
        if known is None:
            return self.add(ConsumerMember(member_id, instance_id=beat.instance_id))
        if known.member_id != member_id:
            return self.replace(known, member_id)
        # It joins again and owns nothing, so its partitions are free.
        self._restart(known, NOTHING)
        return known

    def add(self, member: ConsumerMember) -> ConsumerMember:
        """Add a new member; the next epoch includes it."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._is_epoch_due = True
        self.touch(member)
        return member

    def replace(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member is back under another id: it takes over the old one's partitions, without a new epoch."""
        self._restart(old, old.assigned)
        for partition in old.held_partitions:
            self._owners[partition] = member_id
        # It keeps the old one's position in the order of members.
        self.members = {(member_id if key == old.member_id else key): other for key, other in self.members.items()}
        self._matching.discard(old.member_id)
        old.member_id = member_id
        self._matching.add(old)
        assert old.instance_id is not None
        self._instances[old.instance_id] = member_id
        self.touch(old)
        return old

    def _restart(self, member: ConsumerMember, assigned: Assignment) -> None:
        """Start at epoch 0 with these partitions."""
        with_less = member.held_partitions - assigned
        member.epoch = member.previous_epoch = JOIN_EPOCH
        member.state, member.assigned, member.revoking, member.revoke_by = MemberState.STABLE, assigned, NOTHING, None
        self._release(with_less)
        self.touch(member)

    def _release(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            del self._owners[partition]

    @property
    def changes(self) -> int:
        """A number that grows with every change."""
        return self._durability.changes

    def touch(self, member: ConsumerMember) -> None:
        """A member changed and is to be written again."""
        member.encoded = None
        self._durability.note_change()

    # --- subscriptions ---

    def _update(self, member: ConsumerMember, beat: Heartbeat) -> None:
        timeout_s = member.rebalance_timeout_s if beat.rebalance_timeout_s is None else beat.rebalance_timeout_s
        rack_id = member.rack_id if beat.rack_id is None else beat.rack_id
        assignor = member.assignor if beat.assignor is None else beat.assignor
        new = (timeout_s, rack_id, assignor, beat.client_id, beat.client_host, None)
        old = (member.rebalance_timeout_s, member.rack_id, member.assignor, member.client_id, member.client_host)
        if new != (*old, member.classic):
            self._is_epoch_due |= assignor != member.assignor
            member.rebalance_timeout_s, member.rack_id, member.assignor = timeout_s, rack_id, assignor
            member.client_id, member.client_host, member.classic = beat.client_id, beat.client_host, None
            self.touch(member)
        member.may_read = beat.may_read
        self.subscribe(member, beat.topics, beat.regex)

    def subscribe(self, member: ConsumerMember, topics: frozenset[str] | None, regex: str | None) -> None:
        """Take over a subscription; None leaves its part as it was."""
        old = member.subscription
        topics = old.topics if topics is None else topics
        regex = old.regex if regex is None else regex
        if (topics, regex) == (old.topics, old.regex):
            return
        is_same_regex = regex == old.regex
        member.subscription = Subscription(topics, regex, old.matched if is_same_regex else frozenset())
        if not is_same_regex:
            self._matching.add(member)
        self._is_epoch_due = True
        self.touch(member)

    # --- epochs and targets ---

    def refresh(self, now: float) -> None:
        """Follow changes of topics and subscriptions: raise the epoch if there are any, and compute a new target."""
        if self._revision != self.directory.revision:
            self._revision = self.directory.revision
            for member in self.members.values():
                self._matching.add(member)
            self._is_epoch_due |= self._subscribed_topics() != self.topics
        for member in self._matching.evaluate(self.members, now):
            self._is_epoch_due = True
            self.touch(member)
        if self._is_epoch_due:
            self._is_epoch_due = False
            self.topics = self._subscribed_topics()
            self.epoch += 1
            self._durability.note_change()
        if self.epoch > self.assignment_epoch and self.members:
            self._assign()

    def _subscribed_topics(self) -> dict[str, Topic]:
        found = map(self.directory.find, self.subscribed_names())
        return {topic.name: topic for topic in found if topic is not None}

    def subscribed_names(self) -> frozenset[str]:
        """The topics that members want to read, whether they exist or not."""
        return frozenset().union(*{member.subscription.names for member in self.members.values()})

    def _assign(self) -> None:
        counts = {topic.topic_id: topic.partition_count for topic in self.topics.values()}
        # Most members subscribe to the same names.
        ids = {
            names: frozenset(self.topics[name].topic_id for name in names & self.topics.keys())
            for names in {member.subscription.names for member in self.members.values()}
        }
        specs = {
            member.member_id: MemberSpec(
                instance_id=member.instance_id, topics=ids[member.subscription.names], previous=member.target
            )
            for member in self.members.values()
        }
        for member_id, target in ASSIGNORS[self.assignor](specs, counts).items():
            member = self.members[member_id]
            if target != member.target:
                member.target = target
                self.touch(member)
        self.assignment_epoch = self.epoch
        self._durability.note_change()

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        return elect(member.assignor for member in self.members.values())

    def move(self, member: ConsumerMember, owned: Assignment | None, now: float) -> None:
        """Take the member's next step towards its target."""
        held_partitions, before = member.held_partitions, (member.epoch, member.state, member.assigned, member.revoking)
        reconcile(
            member,
            self.assignment_epoch,
            owned,
            lambda one: self._owners.get(one, member.member_id) == member.member_id,
        )
        if before == (member.epoch, member.state, member.assigned, member.revoking):
            return
        self._release(held_partitions - member.held_partitions)
        self._owners.update(dict.fromkeys(member.held_partitions - held_partitions, member.member_id))
        member.since = {one: member.since.get(one, member.epoch) for one in member.held_partitions}
        is_unrevoked = member.state is MemberState.UNREVOKED and member.classic is None
        member.revoke_by = now + member.rebalance_timeout_s if is_unrevoked else None
        self.touch(member)

    # --- leaving ---

    def _leave(self, beat: Heartbeat, now: float, reply: HeartbeatReply) -> None:
        member = self.member(beat.member_id, beat.instance_id)
        if beat.epoch == STATIC_LEAVE_EPOCH:
            self._release(member.revoking)
            member.revoking, member.revoke_by, member.epoch = NOTHING, None, STATIC_LEAVE_EPOCH
            member.expires_at = now + self.config.session_timeout_s
            self.touch(member)
        else:
            self.remove(member)
        self.answer(reply, HeartbeatAnswer(member_id=member.member_id, epoch=beat.epoch))

    def remove(self, member: ConsumerMember) -> None:
        """A member is gone; the next heartbeat of another one computes a target without it."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._matching.discard(member.member_id)
        self._release(member.held_partitions)
        self.topics = self._subscribed_topics()
        self.epoch += 1
        self._durability.note_change()

    # --- members with the classic protocol ---

    def join(self, request: JoinRequest, now: float, reply: JoinReply) -> None:
        """JoinGroup of a classic consumer."""
        classic.join(self, request, now, reply)

    def sync(self, request: SyncRequest, now: float, reply: SyncReply) -> None:
        """SyncGroup of a classic consumer."""
        classic.sync(self, request, now, reply)

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Whether another member still holds a partition of this member's target."""
        missing = member.target - member.assigned
        return any(self._owners.get(partition, member.member_id) != member.member_id for partition in missing)

    def classic_heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Heartbeat of a classic consumer."""
        classic.heartbeat(self, member_id, instance_id, generation, now)

    def leave(self, member_id: str, instance_id: str | None, now: float) -> None:
        """LeaveGroup of a classic consumer."""
        classic.leave(self, member_id, instance_id)
        self.keep_changes()

    @property
    def has_only_classic_members(self) -> bool:
        """Whether the group can be a classic group again."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    # --- time ---

    def next_deadline(self) -> float | None:
        """When `advance` is due if no request arrives before."""
        due = [at for member in self.members.values() for at in member.deadlines()]
        if self._matching.continue_at is not None:
            due.append(self._matching.continue_at)
        return min(due, default=None)

    def advance(self, now: float) -> None:
        """Remove members that are silent or do not give up partitions, and continue to evaluate regular expressions."""
        for member in list(self.members.values()):
            if min(member.deadlines()) <= now:
                self.remove(member)
        if self._matching.continue_at is not None and self._matching.continue_at <= now:
            self.refresh(now)
        self.keep_changes()

    def keep_changes(self) -> None:
        """Write changes for which no answer waits; after a failure they are written with the next change."""
        self._durability.when_durable(_ignore_result)

    # --- queries and deletion ---

    @property
    def state(self) -> GroupState:
        """The state of the group."""
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        is_stable = all(member.is_reconciled(self.assignment_epoch) for member in self.members.values())
        return GroupState.STABLE if is_stable else GroupState.RECONCILING

    @property
    def protocol_type(self) -> str:
        """The protocol type in lists: the members of consumer groups are consumers."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def protocol(self) -> str:
        """The protocol in descriptions: the assignor."""
        return self.assignor

    def by_topic_name(self, partitions: Assignment) -> frozenset[NamedPartition]:
        """Partitions by topic name; those of deleted topics are left out."""
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        return frozenset((names[one.topic_id], one.partition) for one in partitions if one.topic_id in names)

    def restore(
        self,
        members: Iterable[ConsumerMember],
        *,
        epoch: int,
        assignment_epoch: int,
        topics: Iterable[Topic] | None = None,
    ) -> None:
        """Take over members with what they hold: after a restart, or from a classic group (then without topics)."""
        self.epoch, self.assignment_epoch = epoch, assignment_epoch
        for member in members:
            # A leader of a classic group may have given a partition to two members; the first one keeps it.
            member.assigned -= self._owners.keys()
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self._instances[member.instance_id] = member.member_id
            self._owners.update(dict.fromkeys(member.held_partitions, member.member_id))
            member.since = dict.fromkeys(member.held_partitions, member.epoch)
        self.topics = self._subscribed_topics() if topics is None else {topic.name: topic for topic in topics}

    def close(self) -> list[Respond]:
        """Another group replaces this one; returns the callbacks that still wait."""
        self.is_dead = True
        return [*self._durability.close(), *self._shared_targets.close()]

    def die(self) -> None:
        """Mark the group as deleted; it must be empty."""
        assert not self.members
        self.is_dead = True


def _ignore_result(_: Refusal | None) -> None:
    """The group stays changed in memory, and the next write includes the change."""
