"""Measurements of the simulated devices: a few physical quantities that vary, as JSON. No clock, no network."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

# A reading changes by at most this share of the distance to the bound, so that it varies and stays inside.
_STEP = 0.08
# A sensor fails once in so many readings: a pipeline has to expect that.
_READINGS_PER_FAILURE = 40
_SITES = ("harbour", "mill", "depot", "quarry")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One measured quantity and its bounds."""

    name: str
    low: float
    high: float


QUANTITIES = (Quantity("temperature", -5.0, 40.0), Quantity("humidity", 20.0, 95.0), Quantity("load", 0.0, 1.0))


class Device:
    """A device that remembers its last readings. The same seed gives the same readings."""

    def __init__(self, number: int, seed: int = 0) -> None:
        self.name = f"device-{number:03}"
        self.site = _SITES[number % len(_SITES)]
        self._random = random.Random(f"{seed}/{number}")
        self._now = {each.name: self._random.uniform(each.low, each.high) for each in QUANTITIES}
        self._count = 0

    def measure(self, now_ms: int) -> bytes:
        """The next reading, as the body of an event."""
        self._count += 1
        for each in QUANTITIES:
            towards = each.high if self._random.random() < 0.5 else each.low
            self._now[each.name] += (towards - self._now[each.name]) * _STEP * self._random.random()
        time = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
        reading = {"device": self.name, "site": self.site, "number": self._count, "time": time}
        measured: dict[str, float | None] = {name: round(value, 3) for name, value in self._now.items()}
        if self._count % _READINGS_PER_FAILURE == 0:
            measured[QUANTITIES[0].name] = None
        return json.dumps(reading | measured).encode()


def fleet(count: int) -> Iterator[Device]:
    """Create a number of devices."""
    return (Device(number) for number in range(count))
