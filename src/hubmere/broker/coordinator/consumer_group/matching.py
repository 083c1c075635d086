"""The members of a group that subscribe by regular expression, and which of them are still to be evaluated."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hubmere.broker.coordinator.consumer_group.members import ConsumerMember
from hubmere.broker.coordinator.consumer_group.regex import RegexResolver

# Pause before an interrupted evaluation continues, so that other clients are served.
_PAUSE_S: Final = 0.01


class Matching:
    """Which members wait for the evaluation of their regular expression. Thread rule: the owner's thread only."""

    __slots__ = ("_group_id", "_resolver", "_waiting", "continue_at")

    def __init__(self, group_id: str, resolver: RegexResolver) -> None:
        self._group_id = group_id
        self._resolver = resolver
        self._waiting: set[str] = set()
        # When to call `evaluate` again, if the last call could not finish.
        self.continue_at: float | None = None

    def require_valid(self, regex: str) -> None:
        """Refuse an expression that cannot be evaluated."""
        self._resolver.require_valid(self._group_id, regex)

    def add(self, member: ConsumerMember) -> None:
        """Evaluate a member's expression, if it has one."""
        self._waiting.discard(member.member_id)
        if member.subscription.regex:
            self._waiting.add(member.member_id)

    def discard(self, member_id: str) -> None:
        """The member is gone."""
        self._waiting.discard(member_id)

    def evaluate(self, members: Mapping[str, ConsumerMember], now: float) -> list[ConsumerMember]:
        """Continue as far as the slice of work allows; returns the members whose topics have changed."""
        self.continue_at = None
        changed = []
        for member in [members[member_id] for member_id in sorted(self._waiting)]:
            # After a restart it is unknown which topics a member may read until its next heartbeat.
            if member.may_read is None:
                continue
            matched = self._resolver.matches(self._group_id, member.subscription.regex)
            if matched is None:
                self.continue_at = now + _PAUSE_S
                continue
            self._waiting.discard(member.member_id)
            matched = frozenset(filter(member.may_read, matched))
            if matched != member.subscription.matched:
                member.subscription = replace(member.subscription, matched=matched)
                changed.append(member)
        return changed
