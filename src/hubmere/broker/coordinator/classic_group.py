"""One group of readers that share partitions: the classic Kafka group protocol (reference: kafka 2.10).

Who is a member, which generation it is, who leads, and when a rebalance begins and ends. What members bring along and
are assigned are opaque bytes. Nothing here waits or reads a clock: time is an argument, in monotonic seconds, and a
request that has to wait is answered later through the reply that came with it. Immediate refusals are raised, later
ones are handed to the reply; each reply is called exactly once. Thread rule: the owner's thread only.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

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

# A bound on what a rebalance hands around: the leader is told of every member.
MAX_MEMBERS = 5_000

# From which states a state can be entered.
ENTERED_FROM: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING}),
    GroupState.PREPARING: frozenset({GroupState.EMPTY, GroupState.COMPLETING, GroupState.STABLE}),
    GroupState.COMPLETING: frozenset({GroupState.PREPARING}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING}),
    GroupState.DEAD: frozenset({GroupState.EMPTY}),
}

OnPersisted = Callable[[Refusal | None], None]
# Makes a group's state durable, then calls back.
Persist = Callable[["ClassicGroup", OnPersisted], None]


class ClassicGroup:
    """The members of one group and the generation they are in."""

    type: Final = GroupType.CLASSIC

    def __init__(self, group_id: str, *, initial_delay_s: float, persist: Persist) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        # Ids that were handed out and not joined with yet, with the time at which they are forgotten.
        self._pending: dict[str, float] = {}
        self._initial_delay_s = initial_delay_s
        self._persist = persist
        self._join_by = 0.0
        # While the first members of an empty group gather: the latest end of it, else None.
        self._gather_until: float | None = None
        self._has_newcomer = False
        self._sync_by = 0.0
        self._unsynced: set[str] = set()
        # The generation whose assignments are on their way to the disk.
        self._persisting_generation = -1

    # --- joining ---

    def join(self, request: JoinRequest, now: float, reply: JoinReply) -> None:
        """Become or stay a member; answered when the generation is complete, or at once when it need not change."""
        self._require_alive()
        self._require_protocols(request)
        if request.member_id:
            self._join_again(request, now, reply)
        elif request.instance_id is not None and request.instance_id in self._instances:
            self._replace(self.members[self._instances[request.instance_id]], request, now, reply)
        else:
            self._require_capacity()
            fresh = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
            if request.needs_known_id and request.instance_id is None:
                self._pending[fresh] = now + request.session_timeout_s
                raise MemberIdRequired(self.group_id, fresh)
            self._admit(fresh, request, now, reply)

    def _require_alive(self) -> None:
        if self.state is GroupState.DEAD:
            raise CoordinatorUnavailable(self.group_id)

    def _require_capacity(self) -> None:
        if len(self.members) + len(self._pending) >= MAX_MEMBERS:
            raise GroupFull(self.group_id, MAX_MEMBERS)

    def _require_protocols(self, request: JoinRequest) -> None:
        names = {protocol.name for protocol in request.protocols}
        others = [member for member in self.members.values() if not self._is_same_member(member, request)]
        is_fitting = bool(request.protocol_type and names) and (
            not others or (request.protocol_type == self.protocol_type and bool(names & self._common_protocols(others)))
        )
        if not is_fitting:
            raise InconsistentProtocol(self.group_id)

    def _is_same_member(self, member: Member, request: JoinRequest) -> bool:
        if request.instance_id is not None:
            return member.request.instance_id == request.instance_id
        return member.member_id == request.member_id

    def _admit(self, member_id: str, request: JoinRequest, now: float, reply: JoinReply) -> None:
        member = Member(member_id, request, now + request.session_timeout_s)
        self.members[member_id] = member
        if request.instance_id is not None:
            self._instances[request.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        self.protocol_type = request.protocol_type
        self._has_newcomer = True
        self._wait_for_join(member, reply, now)

    def _join_again(self, request: JoinRequest, now: float, reply: JoinReply) -> None:
        if request.instance_id is None and self._pending.pop(request.member_id, None) is not None:
            self._admit(request.member_id, request, now, reply)
            return
        member = self._member(request.member_id, request.instance_id)
        is_changed = member.request.protocols != request.protocols
        if self.state is GroupState.PREPARING or is_changed or self._is_leader_of_stable(member):
            member.request = request
            self._wait_for_join(member, reply, now)
        else:
            # It missed our answer: nothing changes for the others.
            member.expires_at = now + request.session_timeout_s
            reply(self._join_response(member))

    def _is_leader_of_stable(self, member: Member) -> bool:
        """A leader that joins a stable group again asks for a rebalance: it has seen new partitions."""
        return self.state is GroupState.STABLE and member.member_id == self.leader

    def _replace(self, old: Member, request: JoinRequest, now: float, reply: JoinReply) -> None:
        """A static member is back as another process: it takes over, the old process is fenced (KIP-345)."""
        assert request.instance_id is not None
        fresh = f"{request.instance_id}-{uuid.uuid4()}"
        fenced = MemberFenced(self.group_id, request.instance_id)
        old.answer_join(fenced)
        old.answer_sync(fenced)
        member = Member(fresh, request, now + request.session_timeout_s, old.assignment)
        # The newcomer keeps the place of the old one in the order of members.
        self.members = {
            (fresh if key == old.member_id else key): (member if key == old.member_id else other)
            for key, other in self.members.items()
        }
        self._instances[request.instance_id] = fresh
        self._unsynced.discard(old.member_id)
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = fresh
        if self.state is GroupState.STABLE and self._choose_protocol() == self.protocol:
            self._welcome_back(member, old, reply, was_leader=was_leader)
        else:
            self._wait_for_join(member, reply, now)

    def _welcome_back(self, member: Member, old: Member, reply: JoinReply, *, was_leader: bool) -> None:
        """No rebalance: the same assignment under a new id, once that is durable."""
        joined = self._join_response(member)
        if was_leader and not member.request.may_skip_assignment:
            # Before KIP-814 only the old id keeps it from taking itself for the leader and assigning anew.
            joined = replace(joined, leader=old.member_id, members=())
        elif was_leader:
            joined = replace(joined, skip_assignment=True)

        def on_persisted(refusal: Refusal | None) -> None:
            reply(joined if refusal is None else CoordinatorUnavailable(self.group_id))

        self._persist(self, on_persisted)

    def _wait_for_join(self, member: Member, reply: JoinReply, now: float) -> None:
        member.answer_join(RebalanceInProgress(self.group_id))
        member.join_reply = reply
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
        is_waiting_for_none = not self._pending and all(member.join_reply for member in self.members.values())
        if self.state is GroupState.PREPARING and self._gather_until is None and is_waiting_for_none:
            self._complete_join(now)

    def _join_time_is_up(self, now: float) -> None:
        if self._gather_until is not None and self._has_newcomer and now < self._gather_until:
            # Others are just coming: give them the same time again, but not for ever.
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
            # Only static members are left and none has come back: they stay until their sessions end.
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
        self.protocol = self._choose_protocol()
        self._enter(GroupState.COMPLETING)
        self._sync_by = now + self._longest_rebalance_s()
        self._unsynced = {member.member_id for member in joined}
        for member in self.members.values():
            member.expires_at = now + member.request.session_timeout_s
        for member in joined:
            member.answer_join(self._join_response(member))

    def _common_protocols(self, members: Iterable[Member]) -> set[str]:
        names = [{protocol.name for protocol in member.request.protocols} for member in members]
        return set.intersection(*names) if names else set()

    def _choose_protocol(self) -> str:
        """Among the protocols that all members know, the one that most of them like best."""
        shared = self._common_protocols(self.members.values())
        votes: dict[str, int] = {}
        for member in self.members.values():
            favourite = next(protocol.name for protocol in member.request.protocols if protocol.name in shared)
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=lambda name: votes[name])

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

    def views(self) -> tuple[MemberView, ...]:
        """Every member, with what it brought along for the protocol in force."""
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
        """Ask for an assignment; answered when the leader has brought it."""
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
        """Take the leader's assignments; members hear of them when they are durable."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
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
        """A member is alive; refused when it has to join again."""
        self._require_alive()
        member = self._member(member_id, instance_id)
        self._require_generation(generation)
        member.expires_at = now + member.request.session_timeout_s
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress(self.group_id)

    def require_commit(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Refuse a commit by someone who is not a member in this generation; from outside only without members."""
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
        """A member goes, or is put out by its instance id."""
        self._require_alive()
        if instance_id is None and self._pending.pop(member_id, None) is not None:
            self._complete_join_if_all(now)
            return
        if instance_id is not None and not member_id:
            member_id = self._instances.get(instance_id, "")
        self._remove(self._member(member_id, instance_id), now)

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            known = self._instances.get(instance_id)
            if known is not None and known != member_id:
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
        del self.members[member.member_id]
        if member.request.instance_id is not None:
            del self._instances[member.request.instance_id]
        self._unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        gone = UnknownMember(self.group_id, member.member_id)
        member.answer_join(gone)
        member.answer_sync(gone)

    def die(self) -> None:
        """The group is deleted; only an empty one can be."""
        self._enter(GroupState.DEAD)

    # --- coming back after a restart ---

    def restore(
        self, members: Iterable[Member], *, generation: int, protocol_type: str, protocol: str, leader: str
    ) -> None:
        """Take up where a kept group was: stable, every member with a fresh session."""
        self.generation, self.protocol_type = generation, protocol_type
        for member in members:
            self.members[member.member_id] = member
            if member.request.instance_id is not None:
                self._instances[member.request.instance_id] = member.member_id
        if self.members:
            self.protocol, self.leader = protocol, leader
            self.state = GroupState.STABLE

    def rebalance(self, now: float) -> None:
        """Have every member join again."""
        self._prepare(now)

    # --- time ---

    def next_deadline(self) -> float | None:
        """When something is due if nobody says anything until then."""
        due = [member.expires_at for member in self.members.values() if not member.is_waiting]
        due += self._pending.values()
        if self.state is GroupState.PREPARING:
            due.append(self._join_by)
        elif self._unsynced:
            due.append(self._sync_by)
        return min(due, default=None)

    def advance(self, now: float) -> None:
        """Do what is due: forget ids nobody joined with, put out silent members, end a join that took too long."""
        for member_id in [key for key, at in self._pending.items() if at <= now]:
            del self._pending[member_id]
        for member in list(self.members.values()):
            if not member.is_waiting and member.expires_at <= now and member.member_id in self.members:
                self._remove(member, now)
        if self._unsynced and self._sync_by <= now and self.state is not GroupState.PREPARING:
            for member_id in list(self._unsynced):
                self._forget(self.members[member_id])
            self._prepare(now)
        if self.state is GroupState.PREPARING and self._join_by <= now:
            self._join_time_is_up(now)
        self._complete_join_if_all(now)


def _ignore_result(_: Refusal | None) -> None:
    """An empty group that could not be kept is kept as it was before, which costs its next members one generation."""
