"""Handlers for ConsumerGroupHeartbeat and ConsumerGroupDescribe: the coordinator assigns partitions (KIP-848).

Groups need the right to listen, as in the classic protocol. A member needs it on each hub that it names; its regular
expression matches only hubs on which it has that right.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Final
from uuid import UUID

from hubmere.broker import (
    Assignment,
    ConsumerGroupDescription,
    ConsumerMemberView,
    Heartbeat,
    HeartbeatAnswer,
    TopicPartition,
    refusals,
)
from hubmere.endpoints.kafka.admin.operations import group_operations
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.groups.access import require_group
from hubmere.endpoints.kafka.groups.classic import may_read, require_listening
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import MAX_NAMES, TOO_MANY_NAMES, Steps, in_slices
from hubmere.model.entity import Rights
from hubmere.model.errors import NotSupported, Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    MemberAssignment,
    NamedPartitions,
    OwnedPartitions,
    TargetAssignment,
)
from hubmere.wire.kafka.messages.share_groups import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse

_OWN_MEMBER_ID_SINCE: Final = 1  # KIP-1082: the client chooses its member id
# The longest rebalance timeout, whatever a client asks for.
_LONGEST_REBALANCE_S: Final = 1800.0
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_JOINING: Final = 0  # the epoch of a member that is not one yet


# --- ConsumerGroupHeartbeat ------------------------------------------------------------------------------------------


def heartbeat(session: KafkaSession, request: Request) -> None:
    """Join, stay or leave; the response has the assignment if it changed."""
    body: ConsumerGroupHeartbeatRequest = request.body

    def reply(answer: HeartbeatAnswer | Refusal) -> None:
        session.context.group_replies.send(session, lambda: session.respond(request, _heartbeat_response(answer)))

    try:
        require_listening(session, body.group_id)
        if body.member_epoch == _JOINING:
            require_group(session, body.group_id)
        if request.version >= _OWN_MEMBER_ID_SINCE and not body.member_id:
            raise refusals.InvalidHeartbeat(body.group_id, "MemberId can't be empty")
        _require_readable(session, body.subscribed_topic_names or ())
        beat = _to_heartbeat(session, request)
        session.coordinator.groups.consumer_heartbeat(body.group_id, beat, session.now, session.now_ms, reply)
    except Refusal as refusal:
        reply(refusal)
    session.context.watch_deadlines()


def _require_readable(session: KafkaSession, topics: Iterable[str]) -> None:
    """Refuse a subscription to a hub without the right to listen; the hub need not exist yet."""
    for name in topics:
        session.principal.require(Rights.LISTEN, session.caller.resource(name))


def _to_heartbeat(session: KafkaSession, request: Request) -> Heartbeat:
    body: ConsumerGroupHeartbeatRequest = request.body
    timeout_ms = body.rebalance_timeout_ms
    names, owned = body.subscribed_topic_names, body.topic_partitions
    return Heartbeat(
        member_id=body.member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=request.client_id or "",
        client_host=f"/{session.wire.peer}",
        rebalance_timeout_s=min(timeout_ms / 1000, _LONGEST_REBALANCE_S) if timeout_ms >= 0 else None,
        topics=None if names is None else frozenset(names),
        regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=None if owned is None else _owned_partitions(owned),
        may_read=may_read(session),
    )


def _owned_partitions(topics: Iterable[OwnedPartitions]) -> Assignment:
    return frozenset(
        TopicPartition(str(topic.topic_id), partition) for topic in topics for partition in topic.partitions
    )


def _heartbeat_response(answer: HeartbeatAnswer | Refusal) -> ConsumerGroupHeartbeatResponse:
    if isinstance(answer, Refusal):
        return ConsumerGroupHeartbeatResponse(
            error_code=code_of(answer), error_message=answer.text(), member_epoch=0, heartbeat_interval_ms=0
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=round(answer.heartbeat_interval_s * 1000),
        assignment=None if answer.assignment is None else _target(answer.assignment),
    )


def _target(assignment: Assignment) -> TargetAssignment:
    topics = tuple(
        OwnedPartitions(topic_id=UUID(topic_id), partitions=partitions)
        for topic_id, partitions in _by_topic(assignment).items()
    )
    return TargetAssignment(topic_partitions=topics)


def _by_topic(assignment: Assignment) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in found.items()}


# --- ConsumerGroupDescribe -------------------------------------------------------------------------------------------


@in_slices
def describe(session: KafkaSession, request: Request) -> Steps:
    """Consumer groups with their epochs, members and assignments; one that is named twice is described once."""
    body: ConsumerGroupDescribeRequest = request.body
    names = {hub.entity.topic_id: hub.name for hub in session.namespace.hubs()}
    is_asked = body.include_authorized_operations
    group_ids = dict.fromkeys(body.group_ids)
    groups: list[DescribedConsumerGroup] = []
    for group_id in group_ids:
        if len(group_ids) > MAX_NAMES:
            groups.append(_refusal_row(group_id, NotSupported(TOO_MANY_NAMES)))
        else:
            groups.append(_describe(session, group_id, names, with_operations=is_asked))
        yield from repeat(None, len(groups[-1].members) + 1)
    session.respond(request, ConsumerGroupDescribeResponse(groups=tuple(groups)))


def _describe(
    session: KafkaSession, group_id: str, names: Mapping[str, str], *, with_operations: bool
) -> DescribedConsumerGroup:
    try:
        require_group(session, group_id)
        described = _to_message(session.coordinator.groups.describe_consumers(group_id), names)
        if not with_operations:
            return described
        allowed = group_operations(session.caller)
        return replace(described, authorized_operations=allowed)
    except Refusal as refusal:
        return _refusal_row(group_id, refusal)


def _refusal_row(group_id: str, refusal: Refusal) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=code_of(refusal),
        error_message=refusal.text(),
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _to_message(group: ConsumerGroupDescription, names: Mapping[str, str]) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_to_member(member, names) for member in group.members),
    )


def _to_member(member: ConsumerMemberView, names: Mapping[str, str]) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex or None,
        assignment=_to_assignment(member.assigned, names),
        target_assignment=_to_assignment(member.target, names),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _to_assignment(assignment: Assignment, names: Mapping[str, str]) -> MemberAssignment:
    topics = tuple(
        NamedPartitions(topic_id=UUID(topic_id), topic_name=names[topic_id], partitions=partitions)
        for topic_id, partitions in _by_topic(assignment).items()
        if topic_id in names
    )
    return MemberAssignment(topic_partitions=topics)


# --- ShareGroupHeartbeat ---------------------------------------------------------------------------------------------


def refuse_share_group(session: KafkaSession, request: Request) -> None:
    """Answer as a Kafka cluster with share groups disabled; librdkafka hangs if the API is not announced."""
    response = ShareGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="Share groups (KIP-932) are not served; use a consumer group.",
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
    session.respond(request, response)


HANDLERS: Final[Mapping[int, Handler]] = {
    CONSUMER_GROUP_HEARTBEAT.key: heartbeat,
    CONSUMER_GROUP_DESCRIBE.key: describe,
    SHARE_GROUP_HEARTBEAT.key: refuse_share_group,
}
