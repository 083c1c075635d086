"""Limits on the number of open connections: in total, per protocol and per network address.

One number bounds all ports together. A protocol and a network address get a share of it each, so that neither can use
all connections. HTTP has a small reserve beyond the limit for health checks and management, so that an operator can
connect to a full node. In the reserve a new connection replaces the oldest one that has not sent a request.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hubmere.endpoints.stream import Stream

log = logging.getLogger("hubmere.connection")

# Connections for health checks and management beyond the limit: some probes and a few operators.
RESERVED = 16
# Minimum time between two log lines about refusals, so that an attack does not fill the log.
_LOG_INTERVAL_S = 10.0
_ALL = 100


class ReservedConnection(Protocol):
    """A connection that uses the reserve."""

    @property
    def is_silent(self) -> bool:
        """Whether it has not sent a request yet."""

    def give_way(self) -> None:
        """Close at once, in favour of a newer connection."""


@dataclass(slots=True)
class ConnectionLimits:
    """Counts open connections against the limits of the node, of a protocol and of an address.

    AMQP and Kafka streams are listed, so that the node can close them. The HTTP server closes its own, which are only
    counted.
    Thread rule: the node's loop only.
    """

    limit: int
    on_open: Callable[[], None] = lambda: None
    on_close: Callable[[], None] = lambda: None
    protocol_percent: int = _ALL
    address_percent: int = _ALL
    streams: "set[Stream]" = field(default_factory=set)
    _by_protocol: Counter[str] = field(default_factory=Counter)
    _by_address: Counter[str] = field(default_factory=Counter)
    # In the order in which they were opened.
    _reserve: dict[ReservedConnection, None] = field(default_factory=dict)
    _logged_at: float = float("-inf")

    @property
    def count(self) -> int:
        """Open connections without those of the reserve."""
        return self._by_protocol.total()

    # --- streams ---

    def admit(self, stream: "Stream") -> bool:
        """Count a new connection; False if a limit is reached."""
        if not self.enter(stream.protocol, stream.peer):
            return False
        self.streams.add(stream)
        return True

    def forget(self, stream: "Stream") -> None:
        """Count a closed connection."""
        if stream in self.streams:
            self.streams.discard(stream)
            self.leave(stream.protocol, stream.peer)

    # --- all connections ---

    def enter(self, protocol: str, address: str) -> bool:
        """Count a new connection; False, and a log line, if a limit is reached."""
        why = self._why_full(protocol, address)
        if why is not None:
            self._log_refusal(protocol, address, why)
            return False
        self._by_protocol[protocol] += 1
        self._by_address[address] += 1
        self.on_open()
        return True

    def leave(self, protocol: str, address: str) -> None:
        """Count a closed connection."""
        self._by_protocol[protocol] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self.on_close()

    def has_room(self, protocol: str, address: str) -> bool:
        """Whether one more connection would be within the limits."""
        return self._why_full(protocol, address) is None

    def _why_full(self, protocol: str, address: str) -> str | None:
        if self.count >= self.limit:
            return f"the node holds {self.limit} connections (max_connections)"
        share = self._share(self.protocol_percent)
        if self._by_protocol[protocol] >= share:
            return f"{protocol} holds {share} connections (protocol_connections_percent)"
        share = self._share(self.address_percent)
        if self._by_address[address] >= share:
            return f"this address holds {share} connections (address_connections_percent)"
        return None

    def _share(self, percent: int) -> int:
        return max(self.limit * percent // _ALL, 1)

    def _log_refusal(self, protocol: str, address: str, why: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL_S:
            self._logged_at = now
            log.warning("refused a connection of %s from %s: %s", protocol, address, why)

    # --- the reserve ---

    def enter_reserve(self, connection: ReservedConnection) -> bool:
        """Let a connection use the reserve, if necessary instead of a silent one; False if all are in use."""
        if len(self._reserve) >= RESERVED:
            silent = next((one for one in self._reserve if one.is_silent), None)
            if silent is None:
                return False
            self.leave_reserve(silent)
            silent.give_way()
        self._reserve[connection] = None
        return True

    def leave_reserve(self, connection: ReservedConnection) -> None:
        """A connection does not use the reserve any more."""
        self._reserve.pop(connection, None)
