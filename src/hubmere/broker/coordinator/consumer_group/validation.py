"""Checks of requests to a consumer group, before anything is changed.

Heartbeats must be consistent (KIP-848, KIP-1082). Commits and fetches of offsets need the member's id and epoch
(KIP-848, KIP-1251).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hubmere.broker.coordinator.consumer_group.assignors import ASSIGNORS
from hubmere.broker.coordinator.consumer_group.classic import by_topic_id
from hubmere.broker.coordinator.consumer_group.embedded import NamedPartition
from hubmere.broker.coordinator.consumer_group.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember, Heartbeat
from hubmere.broker.coordinator.refusals import (
    IllegalGeneration,
    InvalidHeartbeat,
    StaleMemberEpoch,
    UnsupportedAssignor,
)

if TYPE_CHECKING:
    from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup

# A member that subscribes to more topics must use a regular expression.
MAX_TOPIC_NAMES = 10_000


def require_valid(group_id: str, beat: Heartbeat) -> None:
    """Refuse an inconsistent heartbeat; the text uses the field names of the protocol."""
    problem = _problem(beat)
    if problem is not None:
        raise InvalidHeartbeat(group_id, problem)
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(group_id, beat.assignor, ", ".join(ASSIGNORS))


def _problem(beat: Heartbeat) -> str | None:
    if beat.instance_id == "":
        return "InstanceId can't be empty"
    if beat.rack_id == "":
        return "RackId can't be empty"
    if len(beat.topics or ()) > MAX_TOPIC_NAMES:
        return f"SubscribedTopicNames can't have more than {MAX_TOPIC_NAMES} names; use SubscribedTopicRegex"
    if beat.epoch == JOIN_EPOCH:
        return _join_problem(beat)
    if beat.epoch < STATIC_LEAVE_EPOCH:
        return "MemberEpoch is invalid"
    if not beat.member_id:
        return "MemberId can't be empty"
    if beat.epoch == STATIC_LEAVE_EPOCH and beat.instance_id is None:
        return "InstanceId can't be null when a static member leaves temporarily"
    return None


def _join_problem(beat: Heartbeat) -> str | None:
    if beat.rebalance_timeout_s is None:
        return "RebalanceTimeoutMs must be provided in first request"
    if beat.owned is None or beat.owned:
        return "TopicPartitions must be empty when (re-)joining"
    if beat.topics is None and beat.regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining"
    return None


def require_commit(
    group: "ConsumerGroup",
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[NamedPartition] = (),
) -> None:
    """Refuse a commit unless a member sends it in its current epoch; a group without members accepts any commit.

    An older epoch is enough for partitions that the member has held since then (KIP-1251): its epoch may change while
    the commit is on its way, and no other member can have read them.
    """
    group.require_alive()
    if epoch < 0 and not group.members:
        return
    member = group.member(member_id, instance_id)
    is_old = member.classic is None and 0 <= epoch < member.epoch
    if not (is_old and member.holds_since(epoch, by_topic_id(group, frozenset(partitions)))):
        _require_current(group, member, epoch)


def require_fetch(group: "ConsumerGroup", member_id: str | None, epoch: int) -> None:
    """Refuse a fetch of offsets by a member in another epoch; a request without member is always allowed."""
    group.require_alive()
    if member_id is not None or epoch >= 0:
        _require_current(group, group.member(member_id or "", None), epoch)


def _require_current(group: "ConsumerGroup", member: ConsumerMember, epoch: int) -> None:
    if epoch == member.epoch:
        return
    if member.classic is not None:
        raise IllegalGeneration(group.group_id, epoch, member.epoch)
    raise StaleMemberEpoch(group.group_id, epoch, member.epoch)
