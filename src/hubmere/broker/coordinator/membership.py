"""What members of a group say and hear: wishes, answers, and a member with the requests of it that wait.

Values and one small holder; who is a member and when a rebalance begins is decided in `group`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from hubmere.broker.coordinator.refusals import GroupRefused


class GroupState(StrEnum):
    """Where a group stands; the names are those that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    # Only consumer groups (KIP-848): the target is out of date; members are on their way to it.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(StrEnum):
    """Which protocol a group uses; the names are those that Kafka's tools show."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"


class Protocol(NamedTuple):
    """A way of assigning partitions that a member can take part in, and what it brings along for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A wish to become or stay a member."""

    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_s: float
    rebalance_timeout_s: float
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_known_id: bool = True  # KIP-394: a newcomer is told its id first
    may_skip_assignment: bool = False  # KIP-814: a leader that comes back can be told to leave things as they are
    # Whether the caller may read a topic; asked where the coordinator assigns partitions (KIP-848).
    may_read: Callable[[str], bool] = lambda _: True


class MemberView(NamedTuple):
    """A member as the leader and administrators see it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResponse:
    """The member is part of a generation; only the leader is told who the others are."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[MemberView, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings those of all."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResponse:
    """What a member has to read."""

    protocol_type: str
    protocol: str
    assignment: bytes


JoinReply = Callable[[JoinResponse | GroupRefused], None]
SyncReply = Callable[[SyncResponse | GroupRefused], None]


class Member:
    """One member: its wish, its assignment, and the requests of it that wait."""

    __slots__ = ("assignment", "expires_at", "join_reply", "member_id", "request", "sync_reply")

    def __init__(self, member_id: str, request: JoinRequest, expires_at: float, assignment: bytes = b"") -> None:
        self.member_id = member_id
        self.request = request
        self.expires_at = expires_at
        self.assignment = assignment
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        """Whether it has a name that outlives its process (KIP-345)."""
        return self.request.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether one of its requests waits for us, so that its silence means nothing."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata_of(self, protocol: str | None) -> bytes:
        """What it brought along for a protocol."""
        return next((metadata for name, metadata in self.request.protocols if name == protocol), b"")

    def answer_join(self, answer: JoinResponse | GroupRefused) -> None:
        """Answer a join that waits, if one does."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(answer)

    def answer_sync(self, answer: SyncResponse | GroupRefused) -> None:
        """Answer a sync that waits, if one does."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(answer)
