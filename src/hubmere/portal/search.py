"""Live tail and look-ups over a hub: by partition and sequence, offset or time, and by key.

Reads without becoming a reader: no epoch, no place among the five, no checkpoint. Every step opens a bounded number of
events, so that a search over a large hub never holds up the node; a search that goes on is continued by whoever asked.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from hubmere.broker.broker import Broker
from hubmere.broker.live import LiveHub
from hubmere.model.errors import InvalidArgument, Refusal
from hubmere.model.keys import partition_of_key
from hubmere.model.names import DEFAULT_GROUP
from hubmere.model.position import Position
from hubmere.translate import EventView, events

# Opened in one turn of the loop: about 5 ms of work at 50 µs an event.
EVENTS_PER_TURN = 100
# Read in one turn; an event that is larger is read whole.
BYTES_PER_TURN = 256 * 1024
# What one search by key looks through before it asks whether to go on.
SEARCHED_EVENTS = 20_000
# Events of the tail that are shown; older ones scroll out.
TAIL_EVENTS = 200
_MAX_DIGITS = 19
_NUMBERED: dict[str, Callable[[int], Position]] = {
    "sequence": lambda value: Position.sequence(value, inclusive=True),
    "offset": lambda value: Position.offset(value, inclusive=True),
}


@dataclass(frozen=True, slots=True)
class Found:
    """An event and the partition it lies in."""

    partition: int
    event: EventView


@dataclass(frozen=True, slots=True)
class Page:
    """What one look gave, and where the next one would go on."""

    events: list[Found]
    next_sequence: int
    is_end: bool


def parse_position(kind: str, text: str) -> Position:
    """Where to look: `kind` is first, latest, sequence, offset or time; numbers and times mean "from here on"."""
    given = text.strip()
    if kind == "first":
        return Position.first()
    if kind == "latest":
        return Position.latest()
    if kind in _NUMBERED:
        if not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
            raise InvalidArgument(kind, given, "a whole number")
        return _NUMBERED[kind](int(given))
    return Position.time(_milliseconds(given), inclusive=True)


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument(
            "time", text, "a time such as 2026-01-31T12:00:00, in UTC unless it says otherwise"
        ) from None


def look(broker: Broker, hub: LiveHub, partition: int, position: Position, limit: int = EVENTS_PER_TURN) -> Page:
    """Some events of a partition from a position on; for callers whose right to listen was checked."""
    seen = broker.look(hub, group=DEFAULT_GROUP, partition=str(partition), position=position, max_bytes=BYTES_PER_TURN)
    if seen.chunk is None:
        return Page([], seen.sequence, is_end=True)
    chunk, is_compacted = seen.chunk, hub.entity.retention.is_compacted
    limit = min(limit, EVENTS_PER_TURN)
    found = events(
        chunk.data,
        chunk.offset,
        seen.sequence,
        limit,
        on_unreadable=partial(hub.report_unreadable, partition),
        offsets_are_sequences=is_compacted,
    )
    following = found[-1].sequence + 1 if len(found) == limit else chunk.next_sequence
    is_end = following >= seen.log.state.last_stable
    return Page([Found(partition, event) for event in found], following, is_end)


def last(hub: LiveHub, partition: int, count: int) -> Position:
    """Where the last so many events of a partition begin."""
    return Position.sequence(max(hub.log(partition).state.last_stable - count, 0), inclusive=True)


async def look_up(broker: Broker, hub: LiveHub, starts: Mapping[int, Position], limit: int) -> dict[int, Page]:
    """A page of each partition from its own position on; yields to others after every partition."""
    pages: dict[int, Page] = {}
    for partition, position in starts.items():
        pages[partition] = look(broker, hub, partition, position, max(limit // len(starts), 1))
        await asyncio.sleep(0)
    return pages


async def find_key(broker: Broker, hub: LiveHub, key: str, position: Position, limit: int) -> Page:
    """Events of one partition key, in the partition where the key belongs; yields to others after every turn."""
    partition = partition_of_key(key, hub.entity.partition_count)
    found: list[Found] = []
    wanted = key.encode()
    for _ in range(SEARCHED_EVENTS // EVENTS_PER_TURN):
        page = look(broker, hub, partition, position)
        found += [hit for hit in page.events if hit.event.partition_key == key or hit.event.key == wanted]
        if page.is_end or len(found) >= limit:
            return Page(found[:limit], page.next_sequence, page.is_end)
        position = Position.sequence(page.next_sequence, inclusive=True)
        await asyncio.sleep(0)
    return Page(found, position.value, is_end=False)


@dataclass(slots=True)
class Tail:
    """Follows some partitions of a hub from now on: call `more` now and then.

    A burst larger than a turn is skipped to its end, and how much was skipped is told: a tail is for looking, and what
    scrolls by unread need not be opened.
    """

    broker: Broker
    hub: LiveHub
    partitions: tuple[int, ...]
    skipped: int = 0
    _next: dict[int, int] = field(default_factory=dict)

    def start(self) -> None:
        """Take the ends as they are now."""
        self._next = {partition: self._end(partition) or 0 for partition in self.partitions}

    def more(self) -> list[Found]:
        """What was committed since the last call, oldest first, within one turn's work."""
        found: list[Found] = []
        room = max(EVENTS_PER_TURN // len(self.partitions), 1)
        for partition in self.partitions:
            end = self._end(partition)
            if end is None or end <= self._next[partition]:
                continue
            begin = max(self._next[partition], end - room)
            self.skipped += begin - self._next[partition]
            page = look(self.broker, self.hub, partition, Position.sequence(begin, inclusive=True), room)
            self._next[partition] = max(page.next_sequence, begin)
            found += page.events
        return sorted(found, key=lambda hit: (hit.event.enqueued_ms, hit.partition, hit.event.sequence))

    def _end(self, partition: int) -> int | None:
        try:
            return self.hub.log(partition).state.last_stable
        except Refusal:
            return None
