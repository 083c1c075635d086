"""How many connections the node holds, and for whom.

One number bounds all ports together. Of it, one protocol and one network address get a share each, so that neither can
take everything. HTTP has a small reserve on top for health checks and management: an operator gets in when nobody else
does. In the reserve a newcomer replaces the oldest connection that has not sent a request.
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

# Connections for health checks and management beyond the limit: some probes and a few people.
RESERVED = 16
# How often a refusal is logged, so that an attack leaves a few lines only.
_LOG_INTERVAL_S = 10.0
_ALL = 100


class Reserved(Protocol):
    """A connection that uses the reserve."""

    @property
    def is_silent(self) -> bool:
        """Whether no request has come on it yet."""

    def give_way(self) -> None:
        """Close at once for one that came later."""


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
    # In the order of their coming; a dictionary for its order.
    _reserve: dict[Reserved, None] = field(default_factory=dict)
    _logged_at: float = float("-inf")

    @property
    def count(self) -> int:
        """Connections that are held, those of the reserve left out."""
        return self._by_protocol.total()

    # --- streams ---

    def admit(self, stream: "Stream") -> bool:
        """Count a connection in; False when it cannot be held."""
        if not self.enter(stream.protocol, stream.peer):
            return False
        self.streams.add(stream)
        return True

    def forget(self, stream: "Stream") -> None:
        """Count a connection out."""
        if stream in self.streams:
            self.streams.discard(stream)
            self.leave(stream.protocol, stream.peer)

    # --- any connection ---

    def enter(self, protocol: str, address: str) -> bool:
        """Count a connection in; False, and a line in the log, when it cannot be held."""
        why = self._why_full(protocol, address)
        if why is not None:
            self._log_refusal(protocol, address, why)
            return False
        self._by_protocol[protocol] += 1
        self._by_address[address] += 1
        self.on_open()
        return True

    def leave(self, protocol: str, address: str) -> None:
        """Count a connection out."""
        self._by_protocol[protocol] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self.on_close()

    def has_room(self, protocol: str, address: str) -> bool:
        """Whether a connection could be held now."""
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

    def enter_reserve(self, connection: Reserved) -> bool:
        """Let a connection use the reserve, in the place of a silent one if need be; False when all are in use."""
        if len(self._reserve) >= RESERVED:
            silent = next((one for one in self._reserve if one.is_silent), None)
            if silent is None:
                return False
            self.leave_reserve(silent)
            silent.give_way()
        self._reserve[connection] = None
        return True

    def leave_reserve(self, connection: Reserved) -> None:
        """A connection uses the reserve no longer."""
        self._reserve.pop(connection, None)
