"""Whether a member of a consumer group may commit and fetch offsets: by its id and its epoch (KIP-848, KIP-1251)."""

from collections.abc import Iterable

from hubmere.broker.coordinator.consumer_group.classic import identified
from hubmere.broker.coordinator.consumer_group.embedded import NamedPartition
from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup
from hubmere.broker.coordinator.consumer_group.members import ConsumerMember
from hubmere.broker.coordinator.refusals import IllegalGeneration, StaleMemberEpoch


def require_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[NamedPartition] = (),
) -> None:
    """Refuse a commit that is not of a member in its current epoch; from outside only without members.

    An older epoch is enough for partitions that the member has held ever since (KIP-1251): its epoch may change while
    the commit is under way, and nobody else can have read them.
    """
    group.require_alive()
    if epoch < 0 and not group.members:
        return
    member = group.member(member_id, instance_id)
    is_old = member.classic is None and 0 <= epoch < member.epoch
    if not (is_old and member.holds_since(epoch, identified(group, frozenset(partitions)))):
        _require_current(group, member, epoch)


def require_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Refuse to tell committed offsets to a member in another epoch; who names no member is always told."""
    group.require_alive()
    if member_id is not None or epoch >= 0:
        _require_current(group, group.member(member_id or "", None), epoch)


def _require_current(group: ConsumerGroup, member: ConsumerMember, epoch: int) -> None:
    if epoch == member.epoch:
        return
    if member.classic is not None:
        raise IllegalGeneration(group.group_id, epoch, member.epoch)
    raise StaleMemberEpoch(group.group_id, epoch, member.epoch)
