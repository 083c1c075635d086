"""Heartbeats that share the computation of one target assignment.

A target is computed from all members, so computing one for each of many members that join at once takes quadratic time.
Instead:

1. A heartbeat that needs a new target while the group is being written waits. Its answer would have waited for that
   write anyway.
2. When the write has ended, one target is computed for all heartbeats that wait.
3. Their members take their next step, and are answered when the changes are durable: one more write. At most
   `MAX_AT_ONCE` do so in one turn of the owner; the others continue after that write.

The first member of a group, and one that joins alone, does not wait. Thread rule: the owner's thread only.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from hubmere.broker.coordinator.consumer_group.assignments import Assignment
from hubmere.broker.coordinator.consumer_group.durability import Respond
from hubmere.broker.coordinator.consumer_group.members import (
    ConsumerMember,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatReply,
)
from hubmere.broker.coordinator.refusals import CoordinatorUnavailable, UnknownMember

if TYPE_CHECKING:
    from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup


# Heartbeats that continue in one turn: a step and an answer take about 50 microseconds.
MAX_AT_ONCE: Final = 100


class AdmittedBeat(NamedTuple):
    """A heartbeat whose member is known and up to date, with the assignment that the member had before."""

    member: ConsumerMember
    beat: Heartbeat
    before: Assignment
    now: float
    reply: HeartbeatReply


class SharedTargets:
    """The heartbeats of one group that wait for a target."""

    __slots__ = ("_group", "_waiting")

    def __init__(self, group: "ConsumerGroup") -> None:
        self._group = group
        self._waiting: list[AdmittedBeat] = []

    def add(self, admitted: AdmittedBeat) -> None:
        """Wait for the end of the write."""
        self._waiting.append(admitted)

    def continue_all(self) -> None:
        """The write has ended: compute one target for all that wait, and answer them."""
        while self._waiting and not self._group.is_being_written:
            waiting, self._waiting = self._waiting[:MAX_AT_ONCE], self._waiting[MAX_AT_ONCE:]
            self._continue(waiting)

    def _continue(self, waiting: list[AdmittedBeat]) -> None:
        group, now = self._group, waiting[-1].now
        group.refresh(now)
        present = [one for one in waiting if self._is_present(one.member)]
        gone = [one for one in waiting if not self._is_present(one.member)]
        for one in present:
            group.move(one.member, one.beat.owned, now)
        for one in present:
            answer_beat(group, one)
        for one in gone:
            one.reply(UnknownMember(group.group_id, one.beat.member_id))

    def _is_present(self, member: ConsumerMember) -> bool:
        return self._group.members.get(member.member_id) is member

    def close(self) -> list[Respond]:
        """Another group replaces this one; returns the refusals of those that wait."""
        waiting, self._waiting = self._waiting, []
        return [self._refusal(one) for one in waiting]

    def _refusal(self, one: AdmittedBeat) -> Respond:
        return lambda _: one.reply(CoordinatorUnavailable(self._group.group_id))


def answer_beat(group: "ConsumerGroup", one: AdmittedBeat) -> None:
    """Answer a heartbeat when everything up to now is durable."""
    member = one.member
    is_told = one.beat.is_full or member.assigned != one.before
    answer = HeartbeatAnswer(
        member_id=member.member_id,
        epoch=member.epoch,
        heartbeat_interval_s=group.config.heartbeat_interval_s,
        assignment=member.assigned if is_told else None,
    )
    group.answer(one.reply, answer)
