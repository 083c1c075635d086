"""What a ConsumerGroupHeartbeat must contain, checked before anything is changed (KIP-848, KIP-1082)."""

from hubmere.broker.coordinator.consumer_group.assignors import ASSIGNORS
from hubmere.broker.coordinator.consumer_group.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Heartbeat
from hubmere.broker.coordinator.refusals import InvalidHeartbeat, UnsupportedAssignor

# A member that wants more topics than this by name uses a regular expression.
MAX_TOPIC_NAMES = 10_000


def require_valid(group_id: str, beat: Heartbeat) -> None:
    """Refuse a heartbeat that contradicts itself, in the words of the protocol's own field names."""
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
