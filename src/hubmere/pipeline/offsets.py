"""Offsets of a streaming query and the work they stand for: what is kept, what is admitted, who reads which range.

An offset says for each partition which event comes next, and of which hub: one that was deleted and created again has
the same name and another id. In Spark's checkpoint it has the shape that Microsoft's connector writes, with the id
beside it: `{"hub": {"0": 42}, "$hubId": "..."}`. A checkpoint of the connector, or of a version that kept no id, can be
continued. Nothing here asks the node anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hubmere.client.consumer import Bounds

# A task costs Spark 25 to 30 ms, in which one core reads some 30,000 events: smaller ones are put together.
MIN_EVENTS_PER_TASK: Final = 32_768
# A task that dies is read again: what one may have to repeat stays bounded, whatever the number of cores.
MAX_EVENTS_PER_TASK: Final = 1_000_000
# Tasks in between. Not the number of cores: a micro-batch that is repeated on another machine must be cut the same way,
# or a sink that knows its tasks by number would take their rows for others.
DEFAULT_TASKS: Final = 8


# Beside the hub's name, which cannot begin with a dollar sign.
_ID_KEY: Final = "$hubId"


class CheckpointMismatch(ValueError):
    """The offsets of a checkpoint are not about this hub."""

    def __init__(self, hub: str, found: Iterable[str]) -> None:
        super().__init__(hub, tuple(found))
        self.hub = hub
        self.found = tuple(found)

    def __str__(self) -> str:
        about = ", ".join(map(repr, self.found)) or "no hub"
        return f"the checkpoint is about {about}, the query about '{self.hub}': use another checkpoint location"


class Lost(NamedTuple):
    """Events that a query was to read and that are gone."""

    partition: int
    start: int
    end: int


class DataLost(RuntimeError):
    """A query cannot go on where it stopped; names what is missing."""

    def __init__(self, hub: str, lost: Sequence[Lost]) -> None:
        super().__init__(hub, tuple(lost))
        self.hub = hub
        self.lost = tuple(lost)

    def __str__(self) -> str:
        ranges = ", ".join(
            f"partition {lost.partition}: {lost.start} to {lost.end - 1}"
            if lost.end > lost.start
            else f"partition {lost.partition}: it ends at {lost.end}, the query is at {lost.start}"
            for lost in self.lost
        )
        return (
            f"events of '{self.hub}' are gone that the query has not read ({ranges}); "
            "set failOnDataLoss to false to go on without them"
        )


class HubRecreated(RuntimeError):
    """The hub of a query was deleted and created again: its sequence numbers mean other events now."""

    def __init__(self, hub: str, known: str, found: str) -> None:
        super().__init__(hub, known, found)
        self.hub = hub
        self.known = known
        self.found = found

    def __str__(self) -> str:
        return (
            f"the hub '{self.hub}' was deleted and created again (its id was {self.known} and is {self.found}): events "
            "that the query has not read are gone; set failOnDataLoss to false to read the new hub from its beginning"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOffset:
    """How far a query is: for each partition the next sequence number, and the id of the hub if it is known."""

    hub: str
    id: str | None
    next: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        numbers = {str(partition): self.next[partition] for partition in sorted(self.next)}
        return {self.hub: numbers} | ({} if self.id is None else {_ID_KEY: self.id})

    @classmethod
    def from_json(cls, hub: str, kept: Mapping[str, Any]) -> "HubOffset":
        """As Spark gives it back; raises CheckpointMismatch."""
        found = [name for name in kept if name != _ID_KEY]
        if found != [hub]:
            raise CheckpointMismatch(hub, found)
        numbers = {int(partition): int(sequence) for partition, sequence in kept[hub].items()}
        return cls(hub=hub, id=kept.get(_ID_KEY), next=numbers)

    def is_of(self, hub_id: str | None) -> bool:
        """Whether its numbers count in the hub with this id; an unknown id is taken for the same."""
        return self.id is None or hub_id is None or self.id == hub_id


@dataclass(frozen=True, slots=True)
class Range:
    """Events of one partition, from `start` up to, and not including, `end`."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


# --- admission -------------------------------------------------------------------------------------------------------


def admit(start: Mapping[int, int], end: Mapping[int, int], max_events: int) -> dict[int, int]:
    """How far to read with so many events, shared out in proportion to what waits; at least one where any waits."""
    backlog = {partition: max(0, end[partition] - start[partition]) for partition in end}
    total = sum(backlog.values())
    if total <= max_events:
        return dict(end)
    shares = {partition: max_events * waiting // total for partition, waiting in backlog.items()}
    left = max_events - sum(shares.values())
    # What rounding left goes to the partitions that it took most from.
    for partition in sorted(backlog, key=lambda index: (-(max_events * backlog[index] % total), index))[:left]:
        shares[partition] += 1
    return {
        partition: start[partition] + min(backlog[partition], max(shares[partition], 1 if backlog[partition] else 0))
        for partition in end
    }


def resume(start: Mapping[int, int], bounds: Mapping[int, Bounds]) -> tuple[dict[int, int], list[Lost]]:
    """Where to go on in a hub as it is now, and what is gone: partitions that are new begin at their beginning."""
    found: dict[int, int] = {}
    lost: list[Lost] = []
    for partition, (first, end) in bounds.items():
        wanted = start.get(partition, first)
        if wanted < first:
            lost.append(Lost(partition, wanted, first))
        elif wanted > end:
            lost.append(Lost(partition, wanted, end))
        found[partition] = first if wanted < first or wanted > end else wanted
    return found, lost


# --- tasks -----------------------------------------------------------------------------------------------------------


def plan_tasks(ranges: Sequence[Range], parallelism: int = DEFAULT_TASKS) -> list[tuple[Range, ...]]:
    """The ranges cut and put together into tasks of the same size: no more than make sense, in order."""
    total = sum(map(len, ranges))
    if not total:
        return []
    useful = -(-total // MIN_EVENTS_PER_TASK)
    count = min(useful, max(parallelism, -(-total // MAX_EVENTS_PER_TASK)))
    cuts = [total * number // count for number in range(1, count + 1)]
    tasks: list[tuple[Range, ...]] = []
    current: list[Range] = []
    done = 0
    for each in ranges:
        at = each.start
        while at < each.end:
            stop = min(each.end, at + cuts[len(tasks)] - done)
            current.append(Range(each.partition, at, stop))
            done += stop - at
            at = stop
            if done == cuts[len(tasks)]:
                tasks.append(tuple(current))
                current = []
    return tasks
