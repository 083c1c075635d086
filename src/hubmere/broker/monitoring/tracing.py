"""Interface of tracers: the broker reports publications and deliveries to a tracer.

A `Tracer` is given to the broker once, before anything is opened. Publishers and readers call it if there is one;
without a tracer the cost is one comparison with None. The tracer decides what a span contains and where it is sent.
"""

from collections.abc import Callable
from typing import Protocol

from hubmere.records.header import Buffer

# Ends a span, with the error or None.
EndSpan = Callable[[Exception | None], None]


class Tracer(Protocol):
    """Records spans. Thread rule: the owner's thread only."""

    def publishing(self, namespace: str, hub: str, batch: Buffer, count: int) -> EndSpan:
        """Start the span of a publication; the returned function is called when it is durable or refused."""

    def record_delivery(
        self,
        namespace: str,
        hub: str,
        partition: int,
        group: str,
        data: Buffer,
        first_sequence: int,
        next_sequence: int,
    ) -> None:
        """Record that a reader received the events from one sequence number up to another."""
