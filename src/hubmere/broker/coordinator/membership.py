"""Members of a classic group: their requests and responses, and a member with its pending replies.

Values and one small class; `classic_group` decides who is a member and when a rebalance starts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from hubmere.broker.coordinator.refusals import GroupRefused


class GroupState(StrEnum):
    """The state of a group; the names are those of Kafka's tools."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    # Only consumer groups (KIP-848): the target is outdated; members have not reached it yet.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(StrEnum):
    """Which protocol a group uses; the names are those of Kafka's tools."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"


class GroupProtocol(NamedTuple):
    """An assignment strategy that a member supports, and its metadata for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A request to become or stay a member."""

    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_s: float
    rebalance_timeout_s: float
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    needs_known_id: bool = True  # KIP-394: a new member gets its id first
    may_skip_assignment: bool = False  # KIP-814: a returning leader can be asked not to assign
    # Whether the caller may read a topic; used when the coordinator assigns partitions (KIP-848).
    may_read: Callable[[str], bool] = lambda _: True


class MemberView(NamedTuple):
    """A member, for the leader and for administration."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResponse:
    """The member is part of a generation; only the leader gets the list of members."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[MemberView, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A request for an assignment; the leader's request has the assignments of all members."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResponse:
    """The assignment of a member."""

    protocol_type: str
    protocol: str
    assignment: bytes


JoinReply = Callable[[JoinResponse | GroupRefused], None]
SyncReply = Callable[[SyncResponse | GroupRefused], None]


class Member:
    """One member: its join request, its assignment, and its pending replies."""

    __slots__ = ("assignment", "encoded_request", "expires_at", "join_reply", "member_id", "request", "sync_reply")

    def __init__(self, member_id: str, request: JoinRequest, expires_at: float, assignment: bytes = b"") -> None:
        self.member_id = member_id
        self.request = request
        self.expires_at = expires_at
        self.assignment = assignment
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None
        # The durable form of its request, until that changes.
        self.encoded_request: str | None = None

    def set_request(self, request: JoinRequest) -> None:
        """Take over the request with which it joined again."""
        if replace(request, may_read=self.request.may_read) != self.request:
            self.encoded_request = None
        self.request = request

    @property
    def is_static(self) -> bool:
        """Whether it has an instance id, which survives a restart of its process (KIP-345)."""
        return self.request.instance_id is not None

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """The protocols that it supports, the one that it prefers first."""
        return tuple([protocol.name for protocol in self.request.protocols])

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a reply of ours, so that its session must not expire."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata_of(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol."""
        return next((metadata for name, metadata in self.request.protocols if name == protocol), b"")

    def answer_join(self, answer: JoinResponse | GroupRefused) -> None:
        """Answer the pending join, if there is one."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(answer)

    def answer_sync(self, answer: SyncResponse | GroupRefused) -> None:
        """Answer the pending sync, if there is one."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(answer)
