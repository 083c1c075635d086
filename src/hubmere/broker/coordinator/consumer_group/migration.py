"""Turns a classic group of consumers into a consumer group and back, without a stop (KIP-848, policy `bidirectional`).

Upgrade: the first member with the consumer protocol joins a classic group. All members keep their partitions; requests
that wait are answered with "rebalance in progress", and the newcomer raises the epoch.
Downgrade: the last member with the consumer protocol is gone. The others form a classic group in the same generation
and are asked to join again.
"""

from hubmere.broker.coordinator.classic_group import ClassicGroup
from hubmere.broker.coordinator.consumer_group.classic import by_topic_id
from hubmere.broker.coordinator.consumer_group.embedded import CONSUMER_PROTOCOL_TYPE, MalformedBytes
from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup
from hubmere.broker.coordinator.consumer_group.members import ClassicSide, ConsumerMember
from hubmere.broker.coordinator.membership import JoinRequest, Member
from hubmere.broker.coordinator.refusals import NotConsumerGroup, RebalanceInProgress


def upgrade(old: ClassicGroup, new: ConsumerGroup, now: float) -> None:
    """Move the members of a classic group; refused, without a change, if they are not all consumers."""
    if old.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise NotConsumerGroup(old.group_id)
    try:
        members = [_to_consumer(old, member, new, now) for member in old.members.values()]
    except MalformedBytes:
        raise NotConsumerGroup(old.group_id) from None
    for waiting in list(old.members.values()):
        waiting.answer_join(RebalanceInProgress(old.group_id))
        waiting.answer_sync(RebalanceInProgress(old.group_id))
    new.restore(members, epoch=old.generation, assignment_epoch=old.generation)


def _to_consumer(old: ClassicGroup, member: Member, new: ConsumerGroup, now: float) -> ConsumerMember:
    request = member.request
    subscription = new.embedded.read_subscription(member.metadata_of(old.protocol) or request.protocols[0].metadata)
    moved = ConsumerMember(member.member_id, instance_id=request.instance_id)
    moved.rack_id, moved.client_id, moved.client_host = subscription.rack_id, request.client_id, request.client_host
    moved.rebalance_timeout_s = request.rebalance_timeout_s
    moved.subscription = moved.subscription.with_topics(frozenset(filter(request.may_read, subscription.topics)))
    moved.epoch = moved.previous_epoch = old.generation
    moved.assigned = moved.target = by_topic_id(new, new.embedded.read_assignment(member.assignment))
    moved.classic = ClassicSide(protocols=request.protocols, session_timeout_s=request.session_timeout_s)
    moved.expires_at = now + request.session_timeout_s
    return moved


def downgrade(old: ConsumerGroup, new: ClassicGroup, now: float) -> None:
    """Move the members of a consumer group that all use the classic protocol, and make them join again."""
    members = [_to_classic(old, member, now) for member in old.members.values()]
    shared = set.intersection(*({one.name for one in member.request.protocols} for member in members))
    protocol = next(one.name for one in members[0].request.protocols if one.name in shared)
    new.restore(
        members,
        generation=old.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=protocol,
        leader=members[0].member_id,
    )
    new.rebalance(now)


def _to_classic(old: ConsumerGroup, member: ConsumerMember, now: float) -> Member:
    side = member.classic
    assert side is not None
    request = JoinRequest(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_s=side.session_timeout_s,
        rebalance_timeout_s=member.rebalance_timeout_s,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=side.protocols,
    )
    assignment = old.embedded.write_assignment(old.by_topic_name(member.assigned), side.protocols[0].metadata)
    return Member(member.member_id, request, now + side.session_timeout_s, assignment)
