"""Which partition a publication goes to.

1. A publication to a named partition goes there.
2. A publication with a partition key goes to the partition of the key's hash (`model.keys`, the service's own hash), so
   that events of one key stay in order.
3. Every other publication goes to the next partition in turn. `publish` skips a partition that cannot store events.
"""

from hubmere.model.keys import partition_of_key


class RoundRobin:
    """Spreads publications without a key evenly. One per hub, shared by all its publishers."""

    __slots__ = ("_next",)

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def take(self, partition_count: int) -> int:
        """The next partition in turn."""
        chosen = self._next % partition_count
        self._next = chosen + 1
        return chosen


def fixed_partition(named: int | None, key: str | None, partition_count: int) -> int | None:
    """The only partition a publication may go to; None when any partition will do."""
    if named is not None:
        return named
    return None if key is None else partition_of_key(key, partition_count)
