"""Members of a consumer group: their heartbeats, the answers, and the coordinator's state of each member."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from hubmere.broker.coordinator.consumer_group.assignments import NOTHING, Assignment, TopicPartition
from hubmere.broker.coordinator.membership import GroupProtocol, GroupState
from hubmere.broker.coordinator.refusals import GroupRefused

# Member epochs with a special meaning (KIP-848).
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """Configuration of all consumer groups of a node."""

    session_timeout_s: float = 45.0  # group.consumer.session.timeout.ms
    heartbeat_interval_s: float = 5.0  # group.consumer.heartbeat.interval.ms
    max_size: int = 5_000  # group.consumer.max.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat: join, stay or leave. None means "as before"."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_s: float | None = None
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    # Whether the caller may read a topic; only such topics are matched by its regular expression.
    may_read: Callable[[str], bool] = lambda _: True

    @property
    def is_full(self) -> bool:
        """Whether the member sends everything, as it does when it joins or has missed an answer."""
        has_subscription = self.topics is not None or self.regex is not None
        is_complete = self.rebalance_timeout_s is not None and has_subscription and self.owned is not None
        return self.epoch == JOIN_EPOCH or is_complete


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The member's epoch and, when it changed or was asked for, its assignment."""

    member_id: str
    epoch: int
    heartbeat_interval_s: float = 0.0
    assignment: Assignment | None = None


HeartbeatReply = Callable[[HeartbeatAnswer | GroupRefused], None]


class MemberState(StrEnum):
    """Whether a member has reached its target assignment."""

    STABLE = "stable"  # it has reached its epoch
    UNREVOKED = "unrevoked"  # it still has to give up partitions
    UNRELEASED = "unreleased"  # it waits for partitions that others have not given up


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a member: topics by name, and those that its regular expression matched."""

    topics: frozenset[str] = frozenset()
    regex: str = ""
    matched: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """All topics by name."""
        return self.topics | self.matched if self.matched else self.topics

    def with_topics(self, topics: frozenset[str]) -> "Subscription":
        """The same subscription with other names."""
        return replace(self, topics=topics)


@dataclass(slots=True)
class ClassicSide:
    """State of a member that uses the classic protocol: its join request and its deadlines."""

    protocols: tuple[GroupProtocol, ...]
    session_timeout_s: float
    sync_by: float | None = None
    rejoin_by: float | None = None

    @property
    def protocol(self) -> str:
        """The protocol that its answers name: the one it prefers."""
        return self.protocols[0].name


class ConsumerMember:
    """One member. `held_partitions` is what no other member may read: assigned, or not yet given up."""

    __slots__ = (
        "assigned",
        "assignor",
        "classic",
        "client_host",
        "client_id",
        "encoded",
        "epoch",
        "expires_at",
        "instance_id",
        "may_read",
        "member_id",
        "previous_epoch",
        "rack_id",
        "rebalance_timeout_s",
        "revoke_by",
        "revoking",
        "since",
        "state",
        "subscription",
        "target",
    )

    def __init__(self, member_id: str, *, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_s = 0.0
        self.subscription = Subscription()
        self.assignor: str | None = None
        self.epoch = JOIN_EPOCH
        self.previous_epoch = JOIN_EPOCH
        self.state = MemberState.STABLE
        self.assigned = NOTHING
        self.revoking = NOTHING
        self.target = NOTHING
        # The epoch in which it was given each partition that it holds.
        self.since: dict[TopicPartition, int] = {}
        self.classic: ClassicSide | None = None
        self.expires_at = 0.0
        # When a member that does not give up partitions is removed.
        self.revoke_by: float | None = None
        self.may_read: Callable[[str], bool] | None = None
        # Its durable form, until it changes.
        self.encoded: str | None = None

    @property
    def held_partitions(self) -> Assignment:
        """The partitions that nobody else may be given."""
        return self.assigned | self.revoking

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that left temporarily."""
        return self.epoch == STATIC_LEAVE_EPOCH

    def holds_since(self, epoch: int, partitions: Assignment) -> bool:
        """Whether it has held all these partitions in that epoch and ever since."""
        return bool(partitions) and all(self.since.get(one, epoch + 1) <= epoch for one in partitions)

    def is_reconciled(self, epoch: int) -> bool:
        """Whether it has reached the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def deadlines(self) -> list[float]:
        """The moments at which it is removed if it stays silent."""
        classic = () if self.classic is None else (self.classic.sync_by, self.classic.rejoin_by)
        return [at for at in (self.expires_at, self.revoke_by, *classic) if at is not None]


class ConsumerMemberView(NamedTuple):
    """A member as administrators see it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: frozenset[str]
    regex: str
    assigned: Assignment
    target: Assignment
    is_classic: bool


class ConsumerGroupDescription(NamedTuple):
    """A consumer group as administrators see it."""

    group_id: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberView, ...]
