"""A copy of one hub to another that must be exact, whatever is killed meanwhile."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from client.hubs import Hubs, bodies
from hubmere.translate import events
from pipeline.copying import unfinished
from pipeline.queries import conf

PARTITIONS, RUN = 3, 50
# Micro-batches for each kill: a query that ends before enough kills proves nothing.
TRIGGERS_PER_DEATH, EVENTS_PER_TRIGGER = 3, 150
# The time for one run of a query or program. A JVM that has a fortieth of a processor needs minutes to start.
LIFE_SECONDS = 1800
POLL_SECONDS = 0.005
MOST_EVENTS = 1_000_000


class Copying:
    """Two hubs and a checkpoint."""

    def __init__(self, hubs: Hubs, deaths: int, folder: Path, triggers_per_death: int = TRIGGERS_PER_DEATH) -> None:
        self.hubs = hubs
        self.checkpoint = folder / "checkpoint"
        self.source, self.target = self.new_source(), hubs.new(PARTITIONS)
        runs = deaths * triggers_per_death * EVENTS_PER_TRIGGER // PARTITIONS // RUN
        self.events = runs * RUN * PARTITIONS
        for partition in range(PARTITIONS):
            hubs.publish(self.source, partition, *(bodies(RUN, f"{partition} {run}") for run in range(runs)))
        self._seen = -1

    def new_source(self) -> str:
        """The hub to copy."""
        return self.hubs.new(PARTITIONS)

    @property
    def options(self) -> tuple[dict[str, str], dict[str, str]]:
        limit = {"maxEventsPerTrigger": str(EVENTS_PER_TRIGGER)}
        return conf(self.hubs, self.source, **limit), conf(self.hubs, self.target)

    def write_arguments(self) -> Path:
        """Write the arguments of the program to a file, since other users can read command lines."""
        source, target = self.options
        path = self.checkpoint.with_name("copying.json")
        path.write_text(json.dumps({"source": source, "target": target, "checkpoint": str(self.checkpoint)}))
        return path

    def await_open_batch(self, is_over: Callable[[], bool]) -> int | None:
        """Wait for a new micro-batch that is logged but not committed; returns None if the query ends before."""
        deadline = time.monotonic() + LIFE_SECONDS
        while time.monotonic() < deadline:
            number = unfinished(self.checkpoint)
            if number is not None and number > self._seen:
                self._seen = number
                return number
            if is_over():
                return None
            time.sleep(POLL_SECONDS)
        raise AssertionError("the query neither continues nor ends")

    def assert_exact(self) -> None:
        """Check that every event is stored once, in its partition and in order."""
        source, target = (list(stored(self.hubs, hub)) for hub in (self.source, self.target))
        assert len(source) == self.events
        assert target == source


def stored(hubs: Hubs, hub: str, partitions: int = PARTITIONS) -> Iterator[tuple[int, bytes | None]]:
    """Partition and body of the events of a hub, in the order of sequence numbers; read without Spark."""
    reader = hubs.reader(hub)
    for partition, (first, end) in reader.bounds(range(partitions)).items():
        for fetched in reader.read_range(partition, first, end):
            for event in events(fetched.data, 0, first, MOST_EVENTS):
                yield partition, event.body
