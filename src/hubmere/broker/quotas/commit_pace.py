"""Throttles offset commits: commits above the rate are stored, but answered with a delay.

The service allows four a second for each group and partition (reference: kafka 1.4) and delays what is more. A burst of
one second is allowed. Nothing here waits or reads a clock: `delay` returns how long to delay the response.
"""

from collections.abc import Iterable

# Group, hub and partition.
CommitKey = tuple[str, str, int]

# Allowed burst: one second, as with throughput units.
BURST_SECONDS = 1.0
# A client's heartbeats wait behind its commits, so a delay must stay far below the shortest session of six seconds.
MAX_DELAY_SECONDS = 1.0
# Bound of the table. Entries without debt are dropped first, then the oldest.
MAX_KEYS = 100_000


class CommitPace:
    """The commits of one namespace. Thread rule: the owner's thread only."""

    def __init__(self) -> None:
        # The time until which the commits so far use up the allowance.
        self._used_until: dict[CommitKey, float] = {}

    def __len__(self) -> int:
        return len(self._used_until)

    def delay(self, keys: Iterable[CommitKey], rate_per_s: int | None, now: float) -> float:
        """Count one commit for each key; returns the delay of the response in seconds, 0 without a rate."""
        if rate_per_s is None:
            return 0.0
        return max((self._count(key, rate_per_s, now) for key in keys), default=0.0)

    def _count(self, key: CommitKey, rate_per_s: int, now: float) -> float:
        if key not in self._used_until and len(self._used_until) >= MAX_KEYS:
            self._evict(now)
        # Cap the debt, so that a client that ignores throttling is not delayed without bound.
        until = min(max(self._used_until.get(key, now), now) + 1 / rate_per_s, now + BURST_SECONDS + MAX_DELAY_SECONDS)
        self._used_until[key] = until
        return max(until - now - BURST_SECONDS, 0.0)

    def _evict(self, now: float) -> None:
        self._used_until = {key: until for key, until in self._used_until.items() if until > now}
        if len(self._used_until) >= MAX_KEYS:
            del self._used_until[next(iter(self._used_until))]
