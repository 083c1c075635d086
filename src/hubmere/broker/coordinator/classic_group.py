"""One classic group: the Kafka group protocol in which a member assigns the partitions (reference: kafka 2.10).

Decides who is a member, the generation, the leader, and when a rebalance starts and ends. Metadata and assignments of
members are opaque bytes. Nothing here waits or reads a clock: time is an argument, in monotonic seconds. A request that
has to wait is answered later through its reply callback. Immediate refusals are raised, later ones are passed to the
callback; each callback is called exactly once. A request costs the same in a group of any size (`member_table`); only
the beginning and the end of a rebalance visit all members. Thread rule: the owner's thread only.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from hubmere.broker.coordinator.consumer_group.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    EmbeddedProtocol,
    NoEmbeddedProtocol,
)
from hubmere.broker.coordinator.member_table import MemberTable
from hubmere.broker.coordinator.membership import (
    GroupState,
    GroupType,
    JoinReply,
    JoinRequest,
    JoinResponse,
    Member,
    MemberView,
    SyncReply,
    SyncRequest,
    SyncResponse,
)
from hubmere.broker.coordinator.refusals import (
    CoordinatorUnavailable,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberFenced,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from hubmere.model.errors import Refusal

# Bounds the size of a rebalance: the leader gets the list of all members.
MAX_MEMBERS = 5_000

# The allowed state transitions: from which states a state can be entered.
ENTERED_FROM: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING}),
    GroupState.PREPARING: frozenset({GroupState.EMPTY, GroupState.COMPLETING, GroupState.STABLE}),
    GroupState.COMPLETING: frozenset({GroupState.PREPARING}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING}),
    GroupState.DEAD: frozenset({GroupState.EMPTY}),
}

OnPersisted = Callable[[Refusal | None], None]
# Makes the state of a group durable, then calls back.
Persist = Callable[["ClassicGroup", OnPersisted], None]


class ClassicGroup:
    """The members of one group and the generation they are in."""

    type: Final = GroupType.CLASSIC

    def __init__(
        self,
        group_id: str,
        *,
        initial_delay_s: float,
        persist: Persist,
        embedded: EmbeddedProtocol | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self._table = MemberTable()
        self._embedded = embedded or NoEmbeddedProtocol()
        self._initial_delay_s = initial_delay_s
        self._persist = persist
        self._join_by = 0.0
        # During the initial rebalance delay of an empty group: its latest end, else None.
        self._gather_until: float | None = None
        self._has_newcomer = False
        self._sync_by = 0.0
        self._unsynced: set[str] = set()
        # The generation whose assignments are being persisted.
        self._persisting_generation = -1

    @property
    def members(self) -> Mapping[str, Member]:
        """The members by id, in the order in which they joined."""
        return self._table.by_id

    # --- joining ---

    def join(self, request: JoinRequest, now: float, reply: JoinReply) -> None:
        """Add or renew a member. The reply comes when the generation is complete, or at once if no rebalance is
        needed."""
        self._require_alive()
        self._require_protocols(request)
        if request.member_id:
            self._join_again(request, now, reply)
        elif (known := self._table.instance(request.instance_id)) is not None:
            self._replace(known, request, now, reply)
        else:
            self._require_capacity()
            fresh = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
            if request.needs_known_id and request.instance_id is None:
                self._table.issue(fresh, now + request.session_timeout_s)
                raise MemberIdRequired(self.group_id, fresh)
            self._admit(fresh, request, now, reply)

    def _require_alive(self) -> None:
        if self.state is GroupState.DEAD:
            raise CoordinatorUnavailable(self.group_id)

    def _require_capacity(self) -> None:
        if len(self.members) + len(self._table.issued) >= MAX_MEMBERS:
            raise GroupFull(self.group_id, MAX_MEMBERS)

    def _require_protocols(self, request: JoinRequest) -> None:
        names = {protocol.name for protocol in request.protocols}
        same = self._same_member(request)
        is_first = len(self.members) == (same is not None)
        is_fitting = bool(request.protocol_type and names) and (
            is_first or (request.protocol_type == self.protocol_type and self._table.supports_any(names, same))
        )
        if not is_fitting:
            raise InconsistentProtocol(self.group_id)

    def _same_member(self, request: JoinRequest) -> Member | None:
        """The member that a request comes from."""
        if request.instance_id is not None:
            return self._table.instance(request.instance_id)
        return self.members.get(request.member_id)

    def _admit(self, member_id: str, request: JoinRequest, now: float, reply: JoinReply) -> None:
        member = Member(member_id, request, now + request.session_timeout_s)
        self._table.add(member)
        if self.leader is None:
            self.leader = member_id
        self.protocol_type = request.protocol_type
        self._has_newcomer = True
        self._wait_for_join(member, reply, now)

    def _join_again(self, request: JoinRequest, now: float, reply: JoinReply) -> None:
        if request.instance_id is None and self._table.take_issued(request.member_id):
            self._admit(request.member_id, request, now, reply)
            return
        member = self._member(request.member_id, request.instance_id)
        is_changed = member.request.protocols != request.protocols
        if self.state is GroupState.PREPARING or is_changed or self._is_leader_of_stable(member):
            self._table.update(member, request)
            self._wait_for_join(member, reply, now)
        else:
            # The member missed our answer: nothing changes for the others.
            member.expires_at = now + request.session_timeout_s
            reply(self._join_response(member))

    def _is_leader_of_stable(self, member: Member) -> bool:
        """Whether a rejoin needs a rebalance: a leader that joins a stable group again has seen new partitions."""
        return self.state is GroupState.STABLE and member.member_id == self.leader

    def _replace(self, old: Member, request: JoinRequest, now: float, reply: JoinReply) -> None:
        """A static member has restarted: the new process takes over, the old one is fenced (KIP-345)."""
        assert request.instance_id is not None
        fresh = f"{request.instance_id}-{uuid.uuid4()}"
        fenced = MemberFenced(self.group_id, request.instance_id)
        self._table.answer_join(old, fenced)
        old.answer_sync(fenced)
        member = Member(fresh, request, now + request.session_timeout_s, old.assignment)
        self._table.replace(old, member)
        self._unsynced.discard(old.member_id)
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = fresh
        if self.state is GroupState.STABLE and self._table.preferred_protocol() == self.protocol:
            self._welcome_back(member, old, reply, was_leader=was_leader)
        else:
            self._wait_for_join(member, reply, now)

    def _welcome_back(self, member: Member, old: Member, reply: JoinReply, *, was_leader: bool) -> None:
        """Answer without a rebalance: the same assignment under a new id, as soon as that is durable."""
        joined = self._join_response(member)
        if was_leader and not member.request.may_skip_assignment:
            # Before KIP-814, only the old id keeps the client from acting as leader and assigning again.
            joined = replace(joined, leader=old.member_id, members=())
        elif was_leader:
            joined = replace(joined, skip_assignment=True)

        def on_persisted(refusal: Refusal | None) -> None:
            reply(joined if refusal is None else CoordinatorUnavailable(self.group_id))

        self._persist(self, on_persisted)

    def _wait_for_join(self, member: Member, reply: JoinReply, now: float) -> None:
        self._table.answer_join(member, RebalanceInProgress(self.group_id))
        self._table.wait_for_join(member, reply)
        if self.state is not GroupState.PREPARING:
            self._prepare(now)
        self._complete_join_if_all(now)

    # --- rebalancing ---

    def _enter(self, state: GroupState) -> None:
        assert self.state in ENTERED_FROM[state], (self.state, state)
        self.state = state

    def _prepare(self, now: float) -> None:
        was_empty = self.state is GroupState.EMPTY
        for member in self.members.values():
            member.answer_sync(RebalanceInProgress(self.group_id))
        self._unsynced.clear()
        self._enter(GroupState.PREPARING)
        longest_s = self._longest_rebalance_s()
        self._join_by = now + longest_s
        self._gather_until = None
        if was_empty and self._initial_delay_s > 0:
            self._gather_until = now + longest_s
            self._join_by = now + min(self._initial_delay_s, longest_s)
            self._has_newcomer = False

    def _longest_rebalance_s(self) -> float:
        return max((member.request.rebalance_timeout_s for member in self.members.values()), default=0.0)

    def _complete_join_if_all(self, now: float) -> None:
        if self.state is GroupState.PREPARING and self._gather_until is None and self._table.is_complete:
            self._complete_join(now)

    def _join_time_is_up(self, now: float) -> None:
        if self._gather_until is not None and self._has_newcomer and now < self._gather_until:
            # New members have just joined: extend the delay, but not beyond the rebalance timeout.
            self._has_newcomer = False
            self._join_by = min(now + self._initial_delay_s, self._gather_until)
            return
        self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        self._gather_until = None
        for member in [m for m in self.members.values() if m.join_reply is None and not m.is_static]:
            self._forget(member)
        joined = [member for member in self.members.values() if member.join_reply is not None]
        if not self.members:
            self._become_empty()
        elif not joined:
            # Only static members are left and none has rejoined: they stay until their sessions expire.
            self._join_by = now + self._longest_rebalance_s()
        else:
            self._begin_generation(joined, now)

    def _become_empty(self) -> None:
        self._enter(GroupState.EMPTY)
        self.generation += 1
        self.leader = self.protocol = None
        self._persist(self, _ignore_result)

    def _begin_generation(self, joined: list[Member], now: float) -> None:
        if self.leader not in {member.member_id for member in joined}:
            self.leader = joined[0].member_id
        self.generation += 1
        self.protocol = self._table.preferred_protocol()
        self._enter(GroupState.COMPLETING)
        # A rebalance timeout below the session timeout, such as 0, would remove members that are alive.
        longest_session_s = max(member.request.session_timeout_s for member in joined)
        self._sync_by = now + max(self._longest_rebalance_s(), longest_session_s)
        self._unsynced = {member.member_id for member in joined}
        for member in self.members.values():
            member.expires_at = now + member.request.session_timeout_s
        for member in joined:
            self._table.answer_join(member, self._join_response(member))

    def _join_response(self, member: Member) -> JoinResponse:
        assert self.protocol_type is not None
        assert self.protocol is not None
        assert self.leader is not None
        return JoinResponse(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            member_id=member.member_id,
            members=self.views() if member.member_id == self.leader else (),
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None if that is not known."""
        if not self.members:
            return frozenset()
        return self._table.topics(self._embedded) if self.protocol_type == CONSUMER_PROTOCOL_TYPE else None

    def views(self) -> tuple[MemberView, ...]:
        """Every member, with its metadata for the chosen protocol."""
        return tuple(
            MemberView(
                member.member_id,
                member.request.instance_id,
                member.request.client_id,
                member.request.client_host,
                member.metadata_of(self.protocol),
                member.assignment,
            )
            for member in self.members.values()
        )

    # --- assignments ---

    def sync(self, request: SyncRequest, now: float, reply: SyncReply) -> None:
        """Request an assignment; the reply comes when the leader has sent it."""
        self._require_alive()
        member = self._member(request.member_id, request.instance_id)
        self._require_generation(request.generation)
        is_other = request.protocol_type not in (None, self.protocol_type) or request.protocol not in (
            None,
            self.protocol,
        )
        if is_other:
            raise InconsistentProtocol(self.group_id)
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress(self.group_id)
        member.expires_at = now + member.request.session_timeout_s
        self._unsynced.discard(member.member_id)
        if self.state is GroupState.STABLE:
            reply(self._sync_response(member))
            return
        member.answer_sync(RebalanceInProgress(self.group_id))
        member.sync_reply = reply
        if member.member_id == self.leader and self._persisting_generation != self.generation:
            self._distribute(request.assignments, now)

    def _distribute(self, assignments: Mapping[str, bytes], now: float) -> None:
        """Store the leader's assignments; members are answered when they are durable."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_reply is not None:
                # It has waited for the leader and could not send a heartbeat.
                member.expires_at = now + member.request.session_timeout_s
        generation = self._persisting_generation = self.generation

        def on_persisted(refusal: Refusal | None) -> None:
            if self.generation != generation or self.state is not GroupState.COMPLETING:
                return
            if refusal is not None:
                self._persisting_generation = -1
                for member in list(self.members.values()):
                    member.answer_sync(CoordinatorUnavailable(self.group_id))
                return
            self._enter(GroupState.STABLE)
            for member in list(self.members.values()):
                member.answer_sync(self._sync_response(member))

        self._persist(self, on_persisted)

    def _sync_response(self, member: Member) -> SyncResponse:
        assert self.protocol_type is not None
        assert self.protocol is not None
        return SyncResponse(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)

    # --- staying and leaving ---

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Renew the session of a member; refused if it has to join again."""
        self._require_alive()
        member = self._member(member_id, instance_id)
        self._require_generation(generation)
        member.expires_at = now + member.request.session_timeout_s
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress(self.group_id)

    def require_commit(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Refuse a commit unless a member of this generation sends it; an empty group accepts commits of
        non-members."""
        self._require_alive()
        is_outsider = generation < 0 and not member_id and instance_id is None
        if is_outsider and self.state is GroupState.EMPTY:
            return
        member = self._member(member_id, instance_id)
        self._require_generation(generation)
        if self.state is GroupState.COMPLETING:
            raise RebalanceInProgress(self.group_id)
        member.expires_at = now + member.request.session_timeout_s

    def leave(self, member_id: str, instance_id: str | None, now: float) -> None:
        """A member leaves, or is removed by its instance id."""
        self._require_alive()
        if instance_id is None and self._table.take_issued(member_id):
            self._complete_join_if_all(now)
            return
        known = self._table.instance(instance_id)
        if known is not None and not member_id:
            member_id = known.member_id
        self._remove(self._member(member_id, instance_id), now)

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        known = self._table.instance(instance_id)
        if known is not None and instance_id is not None and known.member_id != member_id:
            raise MemberFenced(self.group_id, instance_id)
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.request.instance_id != instance_id):
            raise UnknownMember(self.group_id, member_id)
        return member

    def _require_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(self.group_id, generation, self.generation)

    def _remove(self, member: Member, now: float) -> None:
        self._forget(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare(now)
        self._complete_join_if_all(now)

    def _forget(self, member: Member) -> None:
        self._table.remove(member)
        self._unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        gone = UnknownMember(self.group_id, member.member_id)
        member.answer_join(gone)
        member.answer_sync(gone)

    def die(self) -> None:
        """Mark the group as deleted; it must be empty."""
        self._enter(GroupState.DEAD)

    # --- coming back after a restart ---

    def restore(
        self, members: Iterable[Member], *, generation: int, protocol_type: str, protocol: str, leader: str
    ) -> None:
        """Restore a persisted group: stable, every member with a new session."""
        self.generation, self.protocol_type = generation, protocol_type
        for member in members:
            self._table.add(member)
        if self.members:
            self.protocol, self.leader = protocol, leader
            self.state = GroupState.STABLE

    def rebalance(self, now: float) -> None:
        """Make every member join again."""
        self._prepare(now)

    # --- time ---

    def next_deadline(self) -> float | None:
        """When `advance` is due if no request arrives before."""
        due = [self._table.next_expiry()]
        if self.state is GroupState.PREPARING:
            due.append(self._join_by)
        elif self._unsynced:
            due.append(self._sync_by)
        return min((at for at in due if at is not None), default=None)

    def advance(self, now: float) -> None:
        """Do what is due: expire unused member ids, remove members whose session expired, complete an overdue join."""
        for member in self._table.expire(now):
            # The removal of one before it may have completed a rebalance, which renews the others' sessions.
            if member.member_id in self.members and not member.is_waiting and member.expires_at <= now:
                self._remove(member, now)
        if self._unsynced and self._sync_by <= now and self.state is not GroupState.PREPARING:
            for member_id in list(self._unsynced):
                self._forget(self.members[member_id])
            self._prepare(now)
        if self.state is GroupState.PREPARING and self._join_by <= now:
            self._join_time_is_up(now)
        self._complete_join_if_all(now)


def _ignore_result(_: Refusal | None) -> None:
    """Ignore a failed write of an empty group: the older state on disk only costs one generation."""
