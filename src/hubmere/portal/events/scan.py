"""Pages through the events of a hub, newest or oldest first, over all partitions and with a filter.

A scan keeps one cursor per partition. `next_page` works like this:

1. Each cursor without a waiting match reads on, at most `EVENTS_PER_TURN` events at a time, until it has one or has no
   events left. The scan yields to the loop after every read.
2. The match with the newest (or oldest) time of all cursors goes to the page; repeat until the page is full.
3. After `MAX_SCANNED_EVENTS` events, or when `stop` is called, the page ends early. The next call continues there.

A scan without a filter therefore reads little more than it shows, and a rare match never blocks the node.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hubmere.broker import HubView, LogOpening
from hubmere.model.errors import Refusal
from hubmere.model.position import Position
from hubmere.portal import formatting
from hubmere.portal.events.search import EVENTS_PER_TURN, FoundEvent, read_page
from hubmere.portal.sign_in.portal_session import PageContext
from hubmere.translate import EventView

# Maximum events that one page examines: a few seconds of work. The person can continue the search.
MAX_SCANNED_EVENTS = 100_000
# How often one read waits for captured files: they are listed, and some parts of them are loaded.
_MAX_LOADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a search shows: all conditions must hold. An empty text means no condition."""

    text: str = ""
    key: str = ""
    until_ms: int | None = None
    until_sequence: int | None = None

    def matches(self, event: EventView) -> bool:
        """Whether an event is shown. Keys are compared as text and as bytes, so Kafka keys are found too."""
        if self.until_ms is not None and event.enqueued_ms > self.until_ms:
            return False
        if self.until_sequence is not None and event.sequence > self.until_sequence:
            return False
        if self.key and event.partition_key != self.key and event.key != self.key.encode():
            return False
        return not self.text or self._contains_text(event)

    def _contains_text(self, event: EventView) -> bool:
        wanted, raw = self.text.casefold(), self.text.encode()
        if event.body is not None and (raw in event.body or wanted in event.body.decode("utf-8", "replace").casefold()):
            return True
        if wanted in (event.partition_key or "").casefold() or (event.key is not None and raw in event.key):
            return True
        return any(
            wanted in name.casefold() or _holds(typed.value, wanted, raw)
            for name, typed in (*event.properties.items(), *event.system_properties.items())
        )


def _holds(value: object, wanted: str, raw: bytes) -> bool:
    """Whether a value contains a text as it is shown; text amid binary data is found as well."""
    if isinstance(value, (bytes, bytearray, memoryview)) and raw in bytes(value):
        return True
    return wanted in formatting.value_text(value).casefold()


@dataclass(slots=True)
class _Cursor:
    """Where a scan is in one partition: it still has to read from `first` to before `end`."""

    partition: int
    first: int
    end: int
    waiting: deque[FoundEvent] = field(default_factory=deque)

    @property
    def is_done(self) -> bool:
        return self.first >= self.end


class Scan:
    """One search. Thread rule: the owner's thread only; one `next_page` at a time."""

    def __init__(self, context: PageContext, hub: HubView, wanted: EventFilter, *, newest_first: bool) -> None:
        self._context = context
        self._hub = hub
        self._wanted = wanted
        self._newest_first = newest_first
        self._cursors: list[_Cursor] = []
        self._is_stopped = False
        self._total = 0
        self.scanned = 0

    def start(self, starts: Mapping[int, Position]) -> None:
        """Begin at a position in each partition. Partitions that are unavailable are left out."""
        for partition, position in starts.items():
            try:
                view = self._hub.partition(partition)
                state = view.state
                first = state.log_start if position == Position.first() else view.find(position)
            except Refusal:
                continue
            until = self._wanted.until_sequence
            end = state.last_stable if until is None else min(state.last_stable, until + 1)
            self._cursors.append(_Cursor(partition, max(first, state.log_start), end))
        self._total = sum(max(cursor.end - cursor.first, 0) for cursor in self._cursors)

    @property
    def has_more(self) -> bool:
        """Whether there are events that were not examined or not shown yet."""
        return any(cursor.waiting or not cursor.is_done for cursor in self._cursors)

    @property
    def progress(self) -> float:
        """The examined part of the search, from 0 to 1."""
        return min(self.scanned / self._total, 1.0) if self._total else 1.0

    @property
    def examined_text(self) -> str:
        """How many events were examined, for people."""
        return f"{self.scanned:,}"

    def stop(self) -> None:
        """End the current page early."""
        self._is_stopped = True

    # --- going back ---

    def bookmark(self) -> list[tuple[int, int, int]]:
        """The places from which the next page begins."""
        return [self._place(cursor) for cursor in self._cursors]

    def _place(self, cursor: _Cursor) -> tuple[int, int, int]:
        if not cursor.waiting:
            return cursor.partition, cursor.first, cursor.end
        shown_next = cursor.waiting[0].event.sequence
        if self._newest_first:
            return cursor.partition, cursor.first, shown_next + 1
        return cursor.partition, shown_next, cursor.end

    def return_to(self, bookmark: list[tuple[int, int, int]]) -> None:
        """Begin the next page at a bookmark."""
        self._cursors = [_Cursor(partition, first, end) for partition, first, end in bookmark]
        left = sum(max(cursor.end - cursor.first, 0) for cursor in self._cursors)
        self.scanned = max(self._total - left, 0)

    # --- pages ---

    async def next_page(self, limit: int, on_progress: Callable[[], None] = lambda: None) -> list[FoundEvent]:
        """The next `limit` matches, or fewer if the scan is stopped, has done its share of work, or is at its end."""
        self._is_stopped = False
        last = self.scanned + MAX_SCANNED_EVENTS
        page: list[FoundEvent] = []
        while len(page) < limit:
            for cursor in self._cursors:
                while not cursor.waiting and not cursor.is_done and self.scanned < last and not self._is_stopped:
                    await self._read_when_loaded(cursor)
                    on_progress()
                    await asyncio.sleep(0)
            waiting = [cursor for cursor in self._cursors if cursor.waiting]
            if not waiting:
                break
            page.append(min(waiting, key=self._order).waiting.popleft())
        return page

    def _order(self, cursor: _Cursor) -> tuple[int, int]:
        event = cursor.waiting[0].event
        return (-event.enqueued_ms, -event.sequence) if self._newest_first else (event.enqueued_ms, event.sequence)

    async def _read_when_loaded(self, cursor: _Cursor) -> None:
        """Read on; waits while events are loaded from captured files."""
        for _ in range(_MAX_LOADS):
            try:
                self._read_on(cursor)
                return
            except LogOpening as opening:
                loaded = asyncio.Event()
                waiting = opening.wait(loaded.set, self._context.session.clock.monotonic())
                try:
                    await loaded.wait()
                finally:
                    waiting.cancel()
        self._read_on(cursor)

    def _read_on(self, cursor: _Cursor) -> None:
        """Read the next few events of a partition and keep those that match."""
        if self._newest_first:
            self._read_back(cursor)
            return
        page = self._read(cursor.partition, cursor.first, cursor.end)
        following = min(page.next_sequence, cursor.end) if not page.is_end else cursor.end
        self.scanned += following - cursor.first
        cursor.first = following
        cursor.waiting += page.matches

    def _read_back(self, cursor: _Cursor) -> None:
        """Read the events just before the end of what is left, all of them: reads go forward only."""
        begin = max(cursor.end - EVENTS_PER_TURN, cursor.first)
        found: list[FoundEvent] = []
        position = begin
        while position < cursor.end:
            page = self._read(cursor.partition, position, cursor.end)
            found += page.matches
            if page.is_end or page.next_sequence <= position:
                break
            position = page.next_sequence
        self.scanned += cursor.end - begin
        cursor.end = begin
        cursor.waiting += reversed(found)

    def _read(self, partition: int, first: int, end: int) -> "_Read":
        position = Position.sequence(first, inclusive=True)
        page = read_page(self._context, self._hub, partition, position, min(end - first, EVENTS_PER_TURN))
        matches = [hit for hit in page.events if hit.event.sequence < end and self._wanted.matches(hit.event)]
        return _Read(matches, page.next_sequence, page.is_end or page.next_sequence >= end)


@dataclass(frozen=True, slots=True)
class _Read:
    """The matches of one read, and where the next one continues."""

    matches: list[FoundEvent]
    next_sequence: int
    is_end: bool
