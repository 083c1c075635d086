"""Moves one member towards its target without two members ever holding the same partition (KIP-848).

    STABLE      at the target's epoch: nothing to do; older: take the next step
    UNREVOKED   still owns what it has to give up: wait; gave it up: release it, then take the next step
    UNRELEASED  take the next step: partitions that others released meanwhile are assigned

A step compares the assignment with the target. Partitions that are not in the target are revoked first, and the member
stays in its epoch until it has confirmed that. Then it enters the target's epoch with every partition of the target
that no other member holds.
"""

from collections.abc import Callable

from hubmere.broker.coordinator.consumer_group.assignments import NOTHING, Assignment, TopicPartition
from hubmere.broker.coordinator.consumer_group.members import ConsumerMember, MemberState


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[TopicPartition], bool],
) -> None:
    """Take the next possible step; `owned` are the partitions of the heartbeat, None if it names none."""
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if _owns(owned, member.revoking):
            return
        member.revoking = NOTHING
        epoch += 1
    _step(member, epoch, target_epoch, owned, is_free)


def _owns(owned: Assignment | None, partitions: Assignment) -> bool:
    """Whether the member may still read one of the partitions."""
    return owned is None or not owned.isdisjoint(partitions)


def _step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[TopicPartition], bool],
) -> None:
    retained = member.assigned & member.target
    surplus = member.assigned - retained
    if surplus and _owns(owned, surplus):
        _enter(member, MemberState.UNREVOKED, epoch, retained, surplus)
        return
    missing = member.target - retained
    available = frozenset(filter(is_free, missing))
    state = MemberState.STABLE if available == missing else MemberState.UNRELEASED
    _enter(member, state, target_epoch, retained | available, NOTHING)


def _enter(member: ConsumerMember, state: MemberState, epoch: int, assigned: Assignment, revoking: Assignment) -> None:
    if epoch != member.epoch:
        member.previous_epoch, member.epoch = member.epoch, epoch
    member.state, member.assigned, member.revoking = state, assigned, revoking
