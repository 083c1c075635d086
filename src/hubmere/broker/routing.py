"""Where a publication without a key goes: the next partition in turn."""


class RoundRobin:
    """Spreads keyless publications evenly; one per hub, shared by all its publishers."""

    __slots__ = ("_next",)

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def take(self, partition_count: int) -> int:
        """The next partition in turn."""
        chosen = self._next % partition_count
        self._next = chosen + 1
        return chosen
