"""Deadlines of idle timeouts and heartbeats (AMQP 1.0, 2.4.5); `connection` acts when one has passed.

Times are seconds of any monotonic clock.
"""

from __future__ import annotations

# A peer that asks for a heartbeat every few milliseconds gets them no faster than this.
MIN_HEARTBEAT_SECONDS = 0.25
# If the peer announced no idle-time-out, request an answer this long before our own timeout, as the service does.
ECHO_LEAD_SECONDS = 1.0
# After we have closed, wait at most this long for the peer's close.
CLOSE_TIMEOUT_SECONDS = 10.0


class Timers:
    """When the peer last sent, when we last sent, and the deadlines that follow. Owned by one connection."""

    __slots__ = (
        "_closing_since",
        "_idle_seconds",
        "_started",
        "is_heartbeat",
        "last_received",
        "last_sent",
        "now",
        "send_seconds",
    )

    def __init__(self, now: float, idle_timeout_ms: int) -> None:
        self.now = self._started = self.last_received = self.last_sent = now
        self._idle_seconds = idle_timeout_ms / 1000
        self._closing_since: float | None = None
        # Send something after this much silence of our own; 0: never. A heartbeat, or else a request for an answer.
        self.send_seconds = 0.0
        self.is_heartbeat = False

    def start_idle_timer(self, peer_idle_timeout_ms: int | None) -> None:
        """The connection is open: from now on, send often enough for the peer's idle-time-out."""
        if peer_idle_timeout_ms:
            self.is_heartbeat = True
            self.send_seconds = max(MIN_HEARTBEAT_SECONDS, peer_idle_timeout_ms / 1000 / 2)
        elif self._idle_seconds:
            self.send_seconds = max(self._idle_seconds - ECHO_LEAD_SECONDS, self._idle_seconds / 2)

    def handshake_deadline(self, handshake_seconds: float) -> float:
        """When the peer's open must have arrived."""
        return self._started + handshake_seconds

    def idle_deadline(self) -> float | None:
        """When an open connection has to send something or to give up on its peer."""
        deadlines = []
        if self._idle_seconds:
            deadlines.append(self._silence_deadline())
        if self.send_seconds:
            deadlines.append(self.last_sent + self.send_seconds)
        return min(deadlines, default=None)

    def is_peer_silent(self) -> bool:
        """Whether the peer has been silent for longer than we accept."""
        return self._idle_seconds > 0 and self.now >= self._silence_deadline()

    def _silence_deadline(self) -> float:
        # AMQP 1.0, 2.4.5: what we announce is half of what we accept.
        return self.last_received + self._idle_seconds * 2

    def close_deadline(self) -> float:
        """When to stop waiting for the peer's close; now, until `start_close_timer` was called."""
        return self.now if self._closing_since is None else self._closing_since + CLOSE_TIMEOUT_SECONDS

    def start_close_timer(self) -> bool:
        """Start to wait for the peer's close; False if the timer was already running, so that it has expired.

        `Connection.close` has no timestamp, so the timer starts at the next `advance`.
        """
        if self._closing_since is not None:
            return False
        self._closing_since = self.now
        return True
