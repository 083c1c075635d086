"""Proof of a right: how long a peer may stay, and how much it may open, before a token or a key has proved one.

Decides nothing about tokens: the connection reports when a right was proved or lost, and disconnects the peer when its
time is over or it has opened too much.
"""

from math import inf

# Sessions and links that a peer may have before it has proved a right: the claims node and the management node need two
# links each, and some clients begin a session for each pair.
MAX_UNPROVEN = 16


class Proof:
    """Whether the peer of one connection has proved a right. Thread rule: the loop's thread only."""

    __slots__ = ("_opened", "deadline", "is_given")

    def __init__(self) -> None:
        self.is_given = False
        # When the peer is disconnected unless it has proved a right; for a peer that has, the time means nothing.
        self.deadline = inf
        self._opened = 0

    def require_by(self, deadline: float) -> None:
        """The peer has no right, or none any more: it has to prove one before this time."""
        self.is_given = False
        self.deadline = deadline
        self._opened = 0

    def give(self) -> None:
        """The peer has proved a right."""
        self.is_given = True

    def allows_another(self) -> bool:
        """Count a session or a link; False if it is one too many for a peer without a right."""
        if self.is_given:
            return True
        self._opened += 1
        return self._opened <= MAX_UNPROVEN

    def expire(self, now: float) -> bool:
        """Whether the time to prove a right is over; True only once."""
        if self.is_given or now < self.deadline:
            return False
        self.deadline = inf
        return True
