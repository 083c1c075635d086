"""Classic consumers in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848, online migration).

A classic consumer is a member like the others. Its generation is its member epoch. There is no leader: the coordinator
assigns partitions. When its target changes, its heartbeat is answered with "rebalance in progress"; it joins again with
the partitions that it still owns, and syncs to get its assignment. It is removed when it does not join again or does
not sync in time.
"""

import uuid
from typing import TYPE_CHECKING

from hubmere.broker.coordinator.consumer_group.assignments import Assignment, TopicPartition
from hubmere.broker.coordinator.consumer_group.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    EmbeddedSubscription,
    MalformedBytes,
    NamedPartition,
)
from hubmere.broker.coordinator.consumer_group.members import ClassicSide, ConsumerMember, MemberState
from hubmere.broker.coordinator.membership import (
    JoinReply,
    JoinRequest,
    JoinResponse,
    SyncReply,
    SyncRequest,
    SyncResponse,
)
from hubmere.broker.coordinator.refusals import (
    IllegalGeneration,
    InconsistentProtocol,
    MemberFenced,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)

if TYPE_CHECKING:
    from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup


def join(group: "ConsumerGroup", request: JoinRequest, now: float, reply: JoinReply) -> None:
    """Become or stay a member; answered when that is durable, without waiting for the others."""
    group.require_alive()
    subscription = _read_subscription(group, request)
    _require_protocols(group, request)
    group.require_room(request.member_id, request.instance_id)
    known = _find(group, request)
    fresh_id = request.member_id or f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
    if not request.member_id and request.instance_id is None and request.needs_known_id:
        raise MemberIdRequired(group.group_id, fresh_id)
    member = _admit(group, known, fresh_id, request)
    _update(group, member, request, subscription, now)
    group.refresh(now)
    group.move(member, by_topic_id(group, subscription.owned), now)
    assert member.classic is not None
    joined = JoinResponse(
        generation=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=member.classic.protocol,
        leader="",
        member_id=member.member_id,
    )
    group.answer(reply, joined)


def _read_subscription(group: "ConsumerGroup", request: JoinRequest) -> EmbeddedSubscription:
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
        raise InconsistentProtocol(group.group_id)
    try:
        return group.embedded.read_subscription(request.protocols[0].metadata)
    except MalformedBytes:
        raise InconsistentProtocol(group.group_id) from None


def _require_protocols(group: "ConsumerGroup", request: JoinRequest) -> None:
    """Classic members must share a protocol, so that the group can become a classic group again."""
    others = {
        member.member_id: member.classic
        for member in group.members.values()
        if member.classic is not None and member.member_id != request.member_id
    }
    replaced = group.static_member(request.instance_id)
    if replaced is not None:
        others.pop(replaced.member_id, None)
    shared = {protocol.name for protocol in request.protocols}
    for side in others.values():
        shared &= {protocol.name for protocol in side.protocols}
    if not shared:
        raise InconsistentProtocol(group.group_id)


def _find(group: "ConsumerGroup", request: JoinRequest) -> ConsumerMember | None:
    if request.instance_id is None:
        return group.members.get(request.member_id)
    known = group.static_member(request.instance_id)
    if known is None and request.member_id:
        raise UnknownMember(group.group_id, request.member_id)
    if known is not None and request.member_id not in ("", known.member_id):
        raise MemberFenced(group.group_id, request.instance_id)
    return known


def _admit(
    group: "ConsumerGroup", known: ConsumerMember | None, member_id: str, request: JoinRequest
) -> ConsumerMember:
    if known is None:
        return group.add(ConsumerMember(member_id, instance_id=request.instance_id))
    return known if known.member_id == member_id else group.replace(known, member_id)


def _update(
    group: "ConsumerGroup", member: ConsumerMember, request: JoinRequest, subscription: EmbeddedSubscription, now: float
) -> None:
    member.classic = ClassicSide(
        protocols=request.protocols,
        session_timeout_s=request.session_timeout_s,
        sync_by=now + request.rebalance_timeout_s,
    )
    member.client_id, member.client_host, member.rack_id = request.client_id, request.client_host, subscription.rack_id
    member.rebalance_timeout_s, member.assignor = request.rebalance_timeout_s, None
    member.expires_at = now + request.session_timeout_s
    group.touch(member)
    group.subscribe(member, frozenset(filter(request.may_read, subscription.topics)), "")


def by_topic_id(group: "ConsumerGroup", partitions: frozenset[NamedPartition]) -> Assignment:
    """Partitions by topic id; those of topics that do not exist are left out."""
    found = ((group.directory.find(name), index) for name, index in partitions)
    return frozenset(TopicPartition(topic.topic_id, index) for topic, index in found if topic is not None)


def sync(group: "ConsumerGroup", request: SyncRequest, now: float, reply: SyncReply) -> None:
    """Answer a member with its assignment."""
    group.require_alive()
    member, side = _classic_member(group, request.member_id, request.instance_id, request.generation)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol not in (None, side.protocol):
        raise InconsistentProtocol(group.group_id)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        _ask_to_rejoin(member, side, now)
        raise RebalanceInProgress(group.group_id)
    side.sync_by = None
    member.expires_at = now + side.session_timeout_s
    assignment = group.embedded.write_assignment(group.by_topic_name(member.assigned), side.protocols[0].metadata)
    synced = SyncResponse(protocol_type=CONSUMER_PROTOCOL_TYPE, protocol=side.protocol, assignment=assignment)
    group.answer(reply, synced)


def heartbeat(group: "ConsumerGroup", member_id: str, instance_id: str | None, generation: int, now: float) -> None:
    """A member is alive; refused when it has to join again."""
    group.require_alive()
    member, side = _classic_member(group, member_id, instance_id, generation)
    member.expires_at = now + side.session_timeout_s
    group.refresh(now)
    group.keep_changes()
    is_unrevoked = member.state is MemberState.UNREVOKED
    can_get_more = member.state is MemberState.UNRELEASED and not group.waits_for_release(member)
    if member.epoch < group.epoch or is_unrevoked or can_get_more:
        _ask_to_rejoin(member, side, now)
        raise RebalanceInProgress(group.group_id)


def leave(group: "ConsumerGroup", member_id: str, instance_id: str | None) -> None:
    """A member leaves, or is removed by its instance id."""
    group.require_alive()
    if instance_id is not None and not member_id:
        known = group.static_member(instance_id)
        member_id = "" if known is None else known.member_id
    member = group.member(member_id, instance_id)
    if member.classic is None:
        raise UnknownMember(group.group_id, member_id)
    group.remove(member)


def _classic_member(
    group: "ConsumerGroup", member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicSide]:
    member = group.member(member_id, instance_id)
    if member.classic is None:
        raise UnknownMember(group.group_id, member_id)
    if generation != member.epoch:
        raise IllegalGeneration(group.group_id, generation, member.epoch)
    return member, member.classic


def _ask_to_rejoin(member: ConsumerMember, side: ClassicSide, now: float) -> None:
    if side.rejoin_by is None:
        side.rejoin_by = now + member.rebalance_timeout_s
