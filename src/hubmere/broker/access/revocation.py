"""Revocation: review open connections when the rules of their namespace change.

Algorithm:
1. `LiveState` calls `review` when a change is durable: a rule or a role assignment was changed or deleted, a hub with
   its rules or a namespace was deleted, or the namespace's network access, Kafka switch or `disableLocalAuth` changed.
2. All connections that are open at this moment are put into `_pending`. Clients that connect later are checked by the
   new rules when they sign in.
3. Connections are checked in slices of `SLICE_CONNECTIONS`, each in its own turn of the loop (`defer`), so that a node
   with many connections keeps serving. Endpoints check new links by the current rules without waiting for this.
4. Each connection calls `judge` for every principal that it holds, and closes what is not allowed any more, as its
   protocol prescribes.

A rotated key leaves open links their grace time (`Access.current`), unless the rotation says that they end at once:
`end_rotated` holds for that rule until the review is done. Time is not read here: connections have a clock.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from hubmere.broker.access.authentication import Access, Principal

# Judging takes some 5 µs, closing some 50 µs: a slice takes a few milliseconds at most.
SLICE_CONNECTIONS = 50

# (principal, seconds since 1970) -> the principal by the rules in force; raises the refusal that ends it.
Judge = Callable[[Principal, float], Principal]
_RuleKey = tuple[str, str, str]


class Reviewable(Protocol):
    """A connection whose rights can be reviewed."""

    def review(self, judge: Judge) -> None:
        """End what the rules in force do not allow."""


def _at_once(work: Callable[[], None]) -> None:
    work()


class Revocation:
    """Judges open connections again. Thread rule: the owner's thread only.

    `defer` runs a call on a later turn of the loop; a broker without a loop does everything at once.
    """

    __slots__ = ("_access", "_connections", "_ended_rules", "_is_planned", "_pending", "defer")

    def __init__(self, access: Access, connections: Callable[[], Iterable[Reviewable]]) -> None:
        self._access = access
        self._connections = connections
        self._pending: dict[Reviewable, None] = {}
        self._ended_rules: set[_RuleKey] = set()
        self._is_planned = False
        self.defer: Callable[[Callable[[], None]], object] = _at_once

    def review(self) -> None:
        """Judge every open connection again, soon."""
        self._pending.update(dict.fromkeys(self._connections()))
        self._plan()

    def end_rotated(self, namespace: str, hub: str, rule: str) -> None:
        """Have links end at once that were opened with a key of a rule that is not in force; names are folded."""
        self._ended_rules.add((namespace, hub, rule))
        self.review()

    def judge(self, principal: Principal, now_s: float) -> Principal:
        """A principal by the rules in force; raises the refusal that ends it."""
        rule = (principal.namespace, principal.hub, principal.rule.lower())
        return self._access.current(principal, now_s, ends_rotated=rule in self._ended_rules)

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self.defer(self._review_slice)

    def _review_slice(self) -> None:
        self._is_planned = False
        for _ in range(min(SLICE_CONNECTIONS, len(self._pending))):
            connection = next(iter(self._pending))
            del self._pending[connection]
            connection.review(self.judge)
        if self._pending:
            self._plan()
        else:
            self._ended_rules.clear()
