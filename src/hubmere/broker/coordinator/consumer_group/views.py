"""A consumer group as administrators and the portal see it."""

from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup
from hubmere.broker.coordinator.consumer_group.members import (
    ConsumerGroupDescription,
    ConsumerMember,
    ConsumerMemberView,
)
from hubmere.broker.coordinator.membership import MemberView


def describe(group: ConsumerGroup) -> ConsumerGroupDescription:
    """The group with its epochs and members."""
    members = tuple(_member_view(member) for member in group.members.values())
    return ConsumerGroupDescription(
        group.group_id, group.state, group.epoch, group.assignment_epoch, group.assignor, members
    )


def _member_view(member: ConsumerMember) -> ConsumerMemberView:
    return ConsumerMemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=member.subscription.topics,
        regex=member.subscription.regex,
        assigned=member.assigned,
        target=member.target,
        is_classic=member.classic is not None,
    )


def classic_views(group: ConsumerGroup) -> tuple[MemberView, ...]:
    """Every member with its assignment in the form that classic consumers know."""
    return tuple(
        MemberView(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=b"",
            assignment=group.embedded.write_assignment(group.by_topic_name(member.assigned), b""),
        )
        for member in group.members.values()
    )
