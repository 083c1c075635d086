"""How often a group may commit for one partition: too many commits are kept all the same, and answered later.

The service allows four a second for each partition (reference: kafka 1.4) and delays what is more. A group may save up
one second of them. Nothing here waits or reads a clock: the caller is told how long to hold the client back.
"""

from collections.abc import Iterable

# Group, hub and partition.
Place = tuple[str, str, int]

# What a group may save up: a second's worth, as with throughput units.
BURST_SECONDS = 1.0
# A client's heartbeats wait behind its commits: no delay comes near the shortest session of six seconds.
MAX_DELAY_SECONDS = 1.0
# Places that are remembered; those that owe nothing are forgotten first, then those that came first.
MAX_PLACES = 100_000


class CommitPace:
    """The commits of one namespace. Thread rule: the owner's thread only."""

    def __init__(self) -> None:
        # Until when the commits so far use up what a place is allowed.
        self._used_until: dict[Place, float] = {}

    def __len__(self) -> int:
        return len(self._used_until)

    def delay(self, places: Iterable[Place], rate_per_s: int | None, now: float) -> float:
        """Count one commit for each place; how many seconds the client is to wait, 0 without a rate."""
        if rate_per_s is None:
            return 0.0
        return max((self._count(place, rate_per_s, now) for place in places), default=0.0)

    def _count(self, place: Place, rate_per_s: int, now: float) -> float:
        if place not in self._used_until and len(self._used_until) >= MAX_PLACES:
            self._make_room(now)
        # Whoever waits as told owes no more than one commit; who does not is not held back for ever either.
        until = min(
            max(self._used_until.get(place, now), now) + 1 / rate_per_s, now + BURST_SECONDS + MAX_DELAY_SECONDS
        )
        self._used_until[place] = until
        return max(until - now - BURST_SECONDS, 0.0)

    def _make_room(self, now: float) -> None:
        self._used_until = {place: until for place, until in self._used_until.items() if until > now}
        if len(self._used_until) >= MAX_PLACES:
            del self._used_until[next(iter(self._used_until))]
