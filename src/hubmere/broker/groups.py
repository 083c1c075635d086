"""All Kafka groups of one namespace: found by id, kept in the catalog, and woken when something is due.

A group is there while it has members or committed offsets; it needs no creation. What must outlive a restart (its
generation, its members and what they were assigned) is written to the catalog before members hear of it. Groups are not
the consumer groups of a hub, which AMQP readers name. Thread rule: the owner's thread only.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hubmere.broker.deadlines import Deadlines
from hubmere.broker.group import Group, Kept
from hubmere.broker.membership import GroupState, Joining, JoinReply, Member, MemberView, Protocol, Syncing, SyncReply
from hubmere.broker.refusals import (
    GroupNotEmpty,
    GroupUnknown,
    InvalidGroupId,
    SessionTimeoutOutOfRange,
    UnknownMember,
)
from hubmere.model.errors import InvalidName, LimitReached, Refusal
from hubmere.model.names import KafkaGroupId, kafka_group_id
from hubmere.store.catalog import Catalog
from hubmere.store.progress import GroupMetadata
from hubmere.store.view import Drop, Put

# Reference, kafka 1.4: what the service takes as session.timeout.ms.
SHORTEST_SESSION_MS, LONGEST_SESSION_MS = 6_000, 300_000
# How long the first members of an empty group wait for others, so that they start with one rebalance and not with many.
INITIAL_DELAY_S = 0.5
# Groups of one namespace: each is a few hundred bytes in memory and in the catalog.
MAX_GROUPS = 100_000

Done = Callable[[Refusal | None], None]


class GroupSummary(NamedTuple):
    """A group as lists show it."""

    group_id: str
    protocol_type: str
    state: GroupState


class GroupDescription(NamedTuple):
    """A group as administrators see it."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberView, ...]


class Groups:
    """The groups of one namespace."""

    def __init__(
        self, namespace: str, catalog: Catalog, *, now: float, initial_delay_s: float = INITIAL_DELAY_S
    ) -> None:
        self._namespace = namespace
        self._catalog = catalog
        self._initial_delay_s = initial_delay_s
        self._groups: dict[str, Group] = {}
        # A group's moment may have moved to later meanwhile: then it is looked at in vain, and set again.
        self._deadlines = Deadlines()
        self._now_ms = 0
        for kept in catalog.view.group_metadata(namespace):
            self._load(kept, now)

    # --- members ---

    def join(self, group_id: str, wish: Joining, now: float, now_ms: int, reply: JoinReply) -> None:
        """Become or stay a member of a group, which need not exist before."""
        checked = self._checked(group_id)
        if not SHORTEST_SESSION_MS <= wish.session_timeout_s * 1000 <= LONGEST_SESSION_MS:
            raise SessionTimeoutOutOfRange(group_id, SHORTEST_SESSION_MS, LONGEST_SESSION_MS)
        self._now_ms = now_ms
        group = self._groups.get(checked)
        if group is None:
            if wish.member_id:
                raise UnknownMember(group_id, wish.member_id)
            group = self._open(checked)
        try:
            group.join(wish, now, reply)
        finally:
            self._schedule(group)

    def sync(self, group_id: str, wish: Syncing, now: float, now_ms: int, reply: SyncReply) -> None:
        """Ask for an assignment, or bring all of them."""
        self._now_ms = now_ms
        group = self._of_member(group_id, wish.member_id)
        try:
            group.sync(wish, now, reply)
        finally:
            self._schedule(group)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """A member is alive."""
        self._of_member(group_id, member_id).heartbeat(member_id, instance_id, generation, now)

    def leave(self, group_id: str, member_id: str, instance_id: str | None, now: float, now_ms: int) -> None:
        """A member goes."""
        self._now_ms = now_ms
        group = self._of_member(group_id, member_id)
        try:
            group.leave(member_id, instance_id, now)
        finally:
            self._schedule(group)

    def require_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> None:
        """Refuse a commit by someone who may not; a group without members takes it from anyone."""
        group = self._groups.get(self._checked(group_id))
        if group is not None:
            group.require_commit(member_id, instance_id, generation, now)
        elif generation >= 0 or member_id:
            raise UnknownMember(group_id, member_id)

    def _checked(self, group_id: str) -> KafkaGroupId:
        try:
            return kafka_group_id(group_id)
        except InvalidName:
            raise InvalidGroupId(group_id) from None

    def _of_member(self, group_id: str, member_id: str) -> Group:
        group = self._groups.get(self._checked(group_id))
        if group is None:
            raise UnknownMember(group_id, member_id)
        return group

    # --- looking ---

    def find(self, group_id: str) -> Group | None:
        """A group that has, or had, members."""
        return self._groups.get(group_id)

    def list(self) -> list[GroupSummary]:
        """Every group that has members or committed offsets."""
        found = {
            group.group_id: GroupSummary(group.group_id, group.protocol_type or "", group.state)
            for group in self._groups.values()
        }
        for group_id in self._catalog.view.groups_with_offsets(self._namespace):
            found.setdefault(group_id, GroupSummary(group_id, "", GroupState.EMPTY))
        return [found[group_id] for group_id in sorted(found)]

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members; one that is not there is described as dead."""
        group = self._groups.get(group_id)
        if group is not None:
            names = (group.protocol_type or "", group.protocol or "")
            return GroupDescription(group_id, group.state, *names, group.views())
        has_offsets = bool(self._catalog.view.group_offsets(self._namespace, group_id))
        return GroupDescription(group_id, GroupState.EMPTY if has_offsets else GroupState.DEAD, "", "", ())

    def is_empty(self, group_id: str) -> bool:
        """Whether a group has no members."""
        group = self._groups.get(group_id)
        return group is None or group.state is GroupState.EMPTY

    # --- letting go ---

    def delete(self, group_id: str, done: Done) -> None:
        """Forget a group without members, with all that it committed."""
        self._checked(group_id)
        offsets = self._catalog.view.group_offsets(self._namespace, group_id)
        group = self._groups.get(group_id)
        if group is None and not offsets:
            raise GroupUnknown(group_id)
        if not self.is_empty(group_id):
            raise GroupNotEmpty(group_id)
        record = GroupMetadata(namespace=self._namespace, group_id=group_id, state="")

        def dropped(refusal: Refusal | None) -> None:
            if refusal is None and group is not None and self._groups.get(group_id) is group:
                self._forget(group)
            done(refusal)

        self._catalog.submit(Drop(record), *map(Drop, offsets), callback=dropped)

    def forget_unused(self) -> None:
        """Let go of groups that have neither members nor offsets."""
        for group in list(self._groups.values()):
            is_used = group.state is not GroupState.EMPTY or group.next_deadline() is not None
            if not is_used and not self._catalog.view.group_offsets(self._namespace, group.group_id):
                self._forget(group)
                record = GroupMetadata(namespace=self._namespace, group_id=group.group_id, state="")
                self._catalog.submit(Drop(record))

    def _forget(self, group: Group) -> None:
        if group.state is GroupState.EMPTY:
            group.die()
            del self._groups[group.group_id]
            self._deadlines.drop(group.group_id)

    # --- time ---

    def next_deadline(self) -> float | None:
        """When the next group wants to be woken."""
        return self._deadlines.next()

    def advance(self, now: float, now_ms: int) -> None:
        """Wake every group for which something is due."""
        self._now_ms = now_ms
        for group_id in self._deadlines.take(now):
            group = self._groups.get(group_id)
            if group is not None:
                group.advance(now)
                self._schedule(group)

    def _schedule(self, group: Group) -> None:
        """Note when the group wants to be woken; heartbeats only move that to later and need not be noted."""
        deadline = group.next_deadline()
        if deadline is not None:
            self._deadlines.set_earlier(group.group_id, deadline)

    # --- keeping ---

    def _open(self, group_id: KafkaGroupId) -> Group:
        if len(self._groups) >= MAX_GROUPS:
            raise LimitReached("groups", MAX_GROUPS)
        group = self._groups[group_id] = Group(group_id, initial_delay_s=self._initial_delay_s, keep=self._keep)
        return group

    def _keep(self, group: Group, kept: Kept) -> None:
        state = _encode(group)
        record = GroupMetadata(
            namespace=self._namespace, group_id=group.group_id, state=state, modified_ms=self._now_ms
        )
        try:
            self._catalog.submit(Put(record), callback=kept)
        except Refusal as refusal:
            kept(refusal)

    def _load(self, kept: GroupMetadata, now: float) -> None:
        group = Group(kept.group_id, initial_delay_s=self._initial_delay_s, keep=self._keep)
        state = json.loads(kept.state)
        members = [_decode_member(row, now) for row in state["members"]]
        group.restore(
            members,
            generation=state["generation"],
            protocol_type=state["protocol_type"],
            protocol=state["protocol"],
            leader=state["leader"],
        )
        self._groups[kept.group_id] = group
        self._schedule(group)


# --- the kept form ---------------------------------------------------------------------------------------------------


def _encode(group: Group) -> str:
    return json.dumps(
        {
            "generation": group.generation,
            "protocol_type": group.protocol_type or "",
            "protocol": group.protocol or "",
            "leader": group.leader or "",
            "members": [_encode_member(member) for member in group.members.values()],
        },
        separators=(",", ":"),
    )


def _encode_member(member: Member) -> Mapping[str, Any]:
    wish = member.wish
    return {
        "id": member.member_id,
        "instance": wish.instance_id,
        "client": wish.client_id,
        "host": wish.client_host,
        "session_s": wish.session_timeout_s,
        "rebalance_s": wish.rebalance_timeout_s,
        "type": wish.protocol_type,
        "protocols": [[protocol.name, b64encode(protocol.metadata).decode()] for protocol in wish.protocols],
        "assignment": b64encode(member.assignment).decode(),
    }


def _decode_member(row: Mapping[str, Any], now: float) -> Member:
    wish = Joining(
        member_id=row["id"],
        instance_id=row["instance"],
        client_id=row["client"],
        client_host=row["host"],
        session_timeout_s=row["session_s"],
        rebalance_timeout_s=row["rebalance_s"],
        protocol_type=row["type"],
        protocols=tuple(Protocol(name, b64decode(metadata)) for name, metadata in row["protocols"]),
    )
    return Member(row["id"], wish, now + wish.session_timeout_s, b64decode(row["assignment"]))
