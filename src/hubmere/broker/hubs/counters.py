"""Counters of requests, events and bytes per hub and per namespace, as the service counts them.

Counting is one integer addition on the owner's thread; names, labels and rates are added by monitoring. A batch
of 100 events is one request and 100 messages (reference: service 8).
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple


class Traffic(NamedTuple):
    """The counters from which monitoring computes rates, at one moment."""

    incoming_messages: int = 0
    outgoing_messages: int = 0
    incoming_bytes: int = 0
    outgoing_bytes: int = 0
    incoming_requests: int = 0
    successful_requests: int = 0
    throttled_requests: int = 0
    server_errors: int = 0
    user_errors: int = 0


_traffic_of = attrgetter(*Traffic._fields)


@dataclass(slots=True)
class Counters:
    """Totals since the node started; they only grow, except the two gauges of connections."""

    incoming_requests: int = 0
    # Only refusals are counted separately, because they are rare; successful requests are the difference.
    refused_requests: int = 0
    server_errors: int = 0
    user_errors: int = 0
    throttled_requests: int = 0
    quota_exceeded_errors: int = 0
    incoming_messages: int = 0
    incoming_bytes: int = 0
    outgoing_messages: int = 0
    outgoing_bytes: int = 0
    captured_messages: int = 0
    captured_bytes: int = 0
    capture_lost_messages: int = 0
    memory_refusals: int = 0
    connections_opened: int = 0
    connections_closed: int = 0

    @property
    def successful_requests(self) -> int:
        """Requests that were not refused."""
        return self.incoming_requests - self.refused_requests

    @property
    def active_connections(self) -> int:
        """Connections that are open now."""
        return self.connections_opened - self.connections_closed

    @property
    def traffic(self) -> Traffic:
        """A snapshot for computing rates; a tenth of the cost of a copy of all counters."""
        return tuple.__new__(Traffic, _traffic_of(self))

    def count_memory_refusal(self) -> None:
        """Something was refused because the node's memory budget was used up."""
        self.memory_refusals += 1

    def count_opened(self) -> None:
        """One more connection."""
        self.connections_opened += 1

    def count_closed(self) -> None:
        """One connection less."""
        self.connections_closed += 1
