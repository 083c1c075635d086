"""Reads events of a hub for display: one page from a position on, and a live tail.

These reads are not readers of a consumer group: they have no epoch and no checkpoint and do not count towards the
limit of five readers. Each step decodes a bounded number of events, so that a large hub does not block the node; `scan`
pages through a whole hub.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from hubmere.broker import MAX_OPENING_WAIT_S, HubView
from hubmere.model.errors import InvalidArgument, Refusal
from hubmere.model.names import DEFAULT_GROUP
from hubmere.model.position import Position
from hubmere.portal.sign_in.portal_session import PageContext
from hubmere.translate import EventView, events

# Maximum events decoded in one turn of the loop: about 5 ms at 50 µs per event.
EVENTS_PER_TURN = 100
# Maximum bytes read in one turn; a larger event is read completely.
BYTES_PER_TURN = 256 * 1024
# Maximum events on the page; older ones are removed.
MAX_LISTED_EVENTS = 200
_MAX_DIGITS = 19
_OPENING_POLL_S = 0.05
_NUMBERED: dict[str, Callable[[int], Position]] = {
    "sequence": lambda number: Position.sequence(number, inclusive=True),
    "offset": lambda number: Position.offset(number, inclusive=True),
}


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event and its partition."""

    partition: int
    event: EventView


@dataclass(frozen=True, slots=True)
class Page:
    """Events of one read, and the sequence number at which the next read continues."""

    events: list[FoundEvent]
    next_sequence: int
    is_end: bool


def parse_position(kind: str, text: str) -> Position:
    """The start position of a search. `kind` is first, latest, sequence, offset or time; `text` is its value."""
    value = text.strip()
    if kind == "first":
        return Position.first()
    if kind == "latest":
        return Position.latest()
    if kind in _NUMBERED:
        if not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
            raise InvalidArgument(kind, value, "a whole number")
        return _NUMBERED[kind](int(value))
    return Position.time(_milliseconds(value), inclusive=True)


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument(
            "time", text, "a time such as 2026-01-31T12:00:00, in UTC unless it has an offset"
        ) from None


def read_page(
    context: PageContext, hub: HubView, partition: int, position: Position, limit: int = EVENTS_PER_TURN
) -> Page:
    """Events of a partition from a position on; needs the Listen right."""
    seen = context.caller.peek(
        hub.name,
        context.session.now_s,
        group=DEFAULT_GROUP,
        partition=str(partition),
        position=position,
        max_bytes=BYTES_PER_TURN,
    )
    if seen.chunk is None:
        return Page([], seen.sequence, is_end=True)
    chunk = seen.chunk
    limit = min(limit, EVENTS_PER_TURN)
    found = events(
        chunk.data,
        chunk.offset,
        seen.sequence,
        limit,
        on_unreadable=partial(hub.report_unreadable, partition),
        offsets_are_sequences=seen.partition.offsets_are_sequences,
        offsets=chunk.offsets,
    )
    following = found[-1].sequence + 1 if len(found) == limit else chunk.next_sequence
    is_end = following >= seen.partition.state.last_stable
    return Page([FoundEvent(partition, event) for event in found], following, is_end)


async def until_open(hub: HubView, partitions: Sequence[int]) -> None:
    """Wait a while until the logs of partitions are open; a later read reports why one is not."""
    for partition in partitions:
        hub.open_ahead(partition)
    for _ in range(round(MAX_OPENING_WAIT_S / _OPENING_POLL_S)):
        if not set(partitions) & set(hub.opening_partitions):
            return
        await asyncio.sleep(_OPENING_POLL_S)


@dataclass(slots=True)
class Tail:
    """A live tail of some partitions of a hub. Call `read_new` regularly.

    If more events arrive than one turn decodes, the tail skips to the newest and counts the skipped events: nobody
    could read them as they scroll by.
    """

    context: PageContext
    hub: HubView
    partitions: tuple[int, ...]
    skipped: int = 0
    _next: dict[int, int] = field(default_factory=dict)

    def start(self) -> None:
        """Start at the current end of each partition."""
        self._next = {partition: self._end(partition) or 0 for partition in self.partitions}

    def read_new(self) -> list[FoundEvent]:
        """The events committed since the last call, oldest first, at most one turn of work."""
        found: list[FoundEvent] = []
        limit = max(EVENTS_PER_TURN // len(self.partitions), 1)
        for partition in self.partitions:
            end = self._end(partition)
            if end is None or end <= self._next[partition]:
                continue
            begin = max(self._next[partition], end - limit)
            self.skipped += begin - self._next[partition]
            page = read_page(self.context, self.hub, partition, Position.sequence(begin, inclusive=True), limit)
            self._next[partition] = max(page.next_sequence, begin)
            found += page.events
        return sorted(found, key=lambda hit: (hit.event.enqueued_ms, hit.partition, hit.event.sequence))

    def _end(self, partition: int) -> int | None:
        try:
            return self.hub.partition(partition).state.last_stable
        except Refusal:
            return None
