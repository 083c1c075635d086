"""When a connection is not read: its requests or responses need too much memory, or its client is over its quota.

The limits are checked after requests that may have changed something (`is_check_due`), not after each of thousands.
"""

from typing import Final

from hubmere.endpoints.kafka.writer import ResponseWriter
from hubmere.endpoints.stream import Wire
from hubmere.model.clock import Clock
from hubmere.wire.kafka.connection import ServerConnection

# Requests that may wait for their responses: well above the five of ordered producers and the thousand of librdkafka.
# A client that sends more is read again when some are answered.
MAX_IN_FLIGHT: Final = 2048
# Publications of one connection that wait for their commit; more stay in the socket.
MAX_UNCOMMITTED_BYTES: Final = 32 * 1024 * 1024
# Below these, small requests are gathered with those of other connections, without a check of the limits.
MAX_GATHERED_IN_FLIGHT: Final = 512
_GATHERED_BYTES: Final = 1024 * 1024
# Responses that may be in memory before they are written and the limits are checked: about ten writes.
MAX_UNSENT_BYTES: Final = 1024 * 1024
# Uncommitted publications count against the node's memory from here on; less is committed in milliseconds.
_COUNTED_UNCOMMITTED_BYTES: Final = 64 * 1024


class BackPressure:
    """The limits of one connection. Thread rule: the loop's thread only."""

    __slots__ = ("_throttled_until", "is_check_due", "is_slicing", "uncommitted_bytes")

    def __init__(self) -> None:
        self._throttled_until = 0.0
        self.is_check_due = False
        # Whether a response is being built in slices; the requests behind it wait.
        self.is_slicing = False
        self.uncommitted_bytes = 0

    @property
    def is_none(self) -> bool:
        """Whether nothing waits for a commit, and the client is not over its quota."""
        return not (self.uncommitted_bytes or self.is_slicing or self._throttled_until)

    @property
    def is_low(self) -> bool:
        """Whether few publications wait for their commit."""
        return self.uncommitted_bytes < _GATHERED_BYTES

    @property
    def counted_bytes(self) -> int:
        """Uncommitted bytes that count against the node's memory."""
        return self.uncommitted_bytes if self.uncommitted_bytes > _COUNTED_UNCOMMITTED_BYTES else 0

    def hold(self, size_bytes: int) -> None:
        """A publication waits for its commit."""
        self.uncommitted_bytes += size_bytes
        if self.uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
            self.is_check_due = True

    def release(self, size_bytes: int) -> None:
        """A publication was committed, or failed."""
        self.uncommitted_bytes -= size_bytes

    def throttle(self, until: float) -> bool:
        """Read nothing before a time; False if the connection is throttled longer already."""
        if until <= self._throttled_until:
            return False
        self._throttled_until = until
        self.is_check_due = True
        return True

    def end_throttle(self, until: float) -> None:
        """The timer for this time has fired, which may be a millisecond early; a later time stays in force."""
        if until >= self._throttled_until:
            self._throttled_until = 0.0

    def is_over(self, engine: ServerConnection, writer: ResponseWriter, wire: Wire, clock: Clock) -> bool:
        """Whether a limit is reached."""
        return (
            self.uncommitted_bytes > MAX_UNCOMMITTED_BYTES
            or engine.is_waiting
            or writer.has_backlog
            or engine.blocked_bytes > MAX_UNCOMMITTED_BYTES
            or engine.in_flight > MAX_IN_FLIGHT
            or self.is_slicing
            or not wire.is_writable
            or (self._throttled_until > 0 and self._throttled_until > clock.monotonic())
        )
