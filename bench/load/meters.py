"""Processor time of a measurement: of the process between clients and brokers, of the brokers, and of the clients.

Where all of them share one machine, a process between clients and brokers takes processor time that the brokers would
use otherwise. Let B be the processor time of brokers and clients for one MB without that process, and G its own. If
straight clients keep all cores busy, and the process saves the brokers nothing, then no more than B / (B + G) of the
straight rate is possible: `Meter.ceiling`. A gateway that joins requests saves the brokers work, and may be faster.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.load.machine import cpu_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Processor time so far, or within a measurement; `between` is that of a gateway or relay."""

    between: float = 0.0
    brokers: float = 0.0
    clients: float = 0.0
    at: float = 0.0

    def plus(self, other: "Used", sign: int = 1) -> "Used":
        """The sum, or with -1 the difference."""
        return Used(
            between=self.between + sign * other.between,
            brokers=self.brokers + sign * other.brokers,
            clients=self.clients + sign * other.clients,
            at=self.at + sign * other.at,
        )

    @property
    def total(self) -> float:
        """Of all parts."""
        return self.between + self.brokers + self.clients

    @property
    def cores(self) -> float:
        """How many cores were busy, on average."""
        return self.total / max(self.at, 0.001)


@dataclass(slots=True)
class Meter:
    """Adds up the processor time of measurements. `between` is the gateway or relays, empty for straight clients."""

    brokers: Sequence[int]
    between: Sequence[int] = ()
    used: Used = field(default_factory=Used)
    _mb: float = 0.0

    def __call__(self, measure: Callable[[], tuple[float, float]]) -> float:
        """Count the processor time of a measurement, which returns a rate and its number of MB; returns the rate."""
        before = self._now()
        rate, megabytes = measure()
        self.used = self._now().plus(before, -1).plus(self.used)
        self._mb += megabytes
        return rate

    def _now(self) -> Used:
        return Used(
            between=sum(map(cpu_seconds, self.between)),
            brokers=sum(map(cpu_seconds, self.brokers)),
            clients=time.process_time(),
            at=time.perf_counter(),
        )

    def _ms(self, seconds: float) -> float:
        return seconds / max(self._mb, 1e-9) * 1000

    def __str__(self) -> str:
        used = self.used
        between, brokers, clients = map(self._ms, (used.between, used.brokers, used.clients))
        share = used.between / max(used.brokers, 0.001)
        own = f"between {between:,.1f} ({share:.0%} of brokers), " if self.between else ""
        text = f"ms/MB: {own}brokers {brokers:,.1f}, clients {clients:,.1f}"
        return f"{text}; {used.cores:.1f} of {os.cpu_count() or 1} cores"

    def ceiling(self, straight: "Meter") -> float:
        """B / (B + G): the part of the straight rate that is left if this process saves the brokers nothing."""
        cost = straight._ms(straight.used.total)
        return cost / max(cost + self._ms(self.used.between), 1e-9)

    def beside(self, straight: "Meter") -> str:
        """The processor time of all parts, the ceiling, and the ratio of all processor time."""
        ratio = straight._ms(straight.used.total) / max(self._ms(self.used.total), 1e-9)
        return f"{self}; B/(B+G) {self.ceiling(straight):.2f}, by processor time {ratio:.2f}"
