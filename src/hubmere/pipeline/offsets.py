"""Offsets of a streaming query: their form in the checkpoint, the limits of a micro-batch, and the tasks of a range.

An offset has the next event of each partition, and the id of the hub: a hub that was deleted and created again has the
same name and another id. In Spark's checkpoint it has the format of Microsoft's connector, with the id added: `{"hub":
{"0": 42}, "$hubId": "..."}`. A checkpoint of the connector, or of a version that kept no id, can be continued. Nothing
here calls the node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hubmere.client.consumer import Bounds

# A task costs Spark 25 to 30 ms, in which one core reads about 30,000 events: smaller tasks are merged.
MIN_EVENTS_PER_TASK: Final = 32_768
# A failed task is repeated: this bounds the work to repeat, whatever the number of cores.
MAX_EVENTS_PER_TASK: Final = 1_000_000
# The number of tasks, unless the two limits above require another. It is not the number of cores: a micro-batch that is
# repeated on another machine must be split the same way, because sinks identify tasks by number.
DEFAULT_TASKS: Final = 8


# Beside the hub's name, which cannot begin with a dollar sign.
_ID_KEY: Final = "$hubId"


class CheckpointMismatch(ValueError):
    """The checkpoint belongs to another hub."""

    def __init__(self, hub: str, found: Iterable[str]) -> None:
        super().__init__(hub, tuple(found))
        self.hub = hub
        self.found = tuple(found)

    def __str__(self) -> str:
        about = ", ".join(map(repr, self.found)) or "no hub"
        return f"the checkpoint belongs to {about}, the query reads '{self.hub}': use another checkpoint location"


class Lost(NamedTuple):
    """Events that a query should have read but that were deleted."""

    partition: int
    start: int
    end: int


class DataLost(RuntimeError):
    """A query cannot continue where it stopped; lists the missing events."""

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
            f"events of '{self.hub}' that the query has not read are lost ({ranges}); "
            "set failOnDataLoss to false to continue without them"
        )


class HubRecreated(RuntimeError):
    """The hub of a query was deleted and created again: the sequence numbers refer to other events now."""

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
    """The position of a query: the next sequence number of each partition, and the id of the hub if known."""

    hub: str
    id: str | None
    next: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        """The JSON form for Spark."""
        numbers = {str(partition): self.next[partition] for partition in sorted(self.next)}
        return {self.hub: numbers} | ({} if self.id is None else {_ID_KEY: self.id})

    @classmethod
    def from_json(cls, hub: str, kept: Mapping[str, Any]) -> "HubOffset":
        """Parse the JSON form of Spark; raises CheckpointMismatch."""
        found = [name for name in kept if name != _ID_KEY]
        if found != [hub]:
            raise CheckpointMismatch(hub, found)
        numbers = {int(partition): int(sequence) for partition, sequence in kept[hub].items()}
        return cls(hub=hub, id=kept.get(_ID_KEY), next=numbers)

    def is_of(self, hub_id: str | None) -> bool:
        """Whether its sequence numbers belong to the hub with this id; an unknown id counts as the same hub."""
        return self.id is None or hub_id is None or self.id == hub_id


def hub_of(kept: Mapping[str, Any]) -> str:
    """The hub of an offset in its JSON form; raises ValueError if it has none, or several."""
    [hub] = (name for name in kept if name != _ID_KEY)
    return hub


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
    """How far to read with an event limit: shared in proportion to the backlog, at least one event per backlog."""
    backlog = {partition: max(0, end[partition] - start[partition]) for partition in end}
    total = sum(backlog.values())
    if total <= max_events:
        return dict(end)
    shares = {partition: max_events * waiting // total for partition, waiting in backlog.items()}
    left = max_events - sum(shares.values())
    # The remainder of rounding goes to the partitions that lost most by it.
    for partition in sorted(backlog, key=lambda index: (-(max_events * backlog[index] % total), index))[:left]:
        shares[partition] += 1
    return {
        partition: start[partition] + min(backlog[partition], max(shares[partition], 1 if backlog[partition] else 0))
        for partition in end
    }


def resume(start: Mapping[int, int], bounds: Mapping[int, Bounds]) -> tuple[dict[int, int], list[Lost]]:
    """Where to continue, and which events are gone; new partitions are read from their beginning."""
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
    """Split and merge the ranges into tasks of equal size, in order."""
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
