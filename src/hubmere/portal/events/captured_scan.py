"""Pages through the events of one captured file, with a filter.

Reads run on a thread, at most `EVENTS_PER_TURN` events at a time. A page ends early after `MAX_SCANNED_EVENTS` events,
or when `stop` is called; the next one continues there.
"""

import asyncio
from collections.abc import Callable

from hubmere.model.capture.files import CapturedEvent, CapturedEvents, CapturedFiles, CapturedHub, Scalar
from hubmere.portal.events.scan import MAX_SCANNED_EVENTS, EventFilter
from hubmere.portal.events.search import EVENTS_PER_TURN, FoundEvent
from hubmere.translate import EventView, TypedValue

_TYPES = {int: "long", float: "double", str: "string", bytes: "binary", type(None): "null"}
_PARTITION_KEY = "x-opt-partition-key"
_PUBLISHER = "x-opt-publisher"
_KAFKA_KEY = "x-opt-kafka-key"


class CapturedScan:
    """One search in a file. Thread rule: the owner's thread only; one `next_page` at a time."""

    def __init__(self, files: CapturedFiles, hub: CapturedHub, name: str, partition: int, wanted: EventFilter) -> None:
        self._files = files
        self._hub = hub
        self._name = name
        self._partition = partition
        self._wanted = wanted
        self._is_stopped = False
        self._events: CapturedEvents | None = None
        self.position = 0
        self.total = 0
        self.scanned = 0

    @property
    def has_more(self) -> bool:
        """Whether there are events that were not examined yet."""
        return self._events is None or self.position < self.total

    @property
    def progress(self) -> float:
        """The examined part of the file, from 0 to 1."""
        return min(self.position / self.total, 1.0) if self.total else 1.0

    @property
    def examined_text(self) -> str:
        """How many events were examined, for people."""
        return f"{self.position:,} of {self.total:,}"

    def stop(self) -> None:
        """End the current page early."""
        self._is_stopped = True

    def bookmark(self) -> int:
        """The number of the event in the file at which the next page begins."""
        return self.position

    def return_to(self, bookmark: int) -> None:
        """Begin the next page at a bookmark."""
        self.position = bookmark

    async def next_page(self, limit: int, on_progress: Callable[[], None] = lambda: None) -> list[FoundEvent]:
        """The next `limit` matches, or fewer at the end, if it is stopped, or if it has done its share of work."""
        self._is_stopped = False
        last = self.scanned + MAX_SCANNED_EVENTS
        page: list[FoundEvent] = []
        # The file is open while a page is read, and never longer: a person may leave it on the screen for days.
        opened = await asyncio.to_thread(self._files.open_file, self._hub, self._name, self.position)
        self._events, self.total = opened, opened.total
        try:
            while len(page) < limit and self.scanned < last and not self._is_stopped:
                found = await asyncio.to_thread(opened.read, min(limit - len(page), EVENTS_PER_TURN))
                if not found:
                    break
                self.scanned += len(found)
                self.position = opened.position
                hits = (FoundEvent(self._partition, to_view(event)) for event in found)
                page += [hit for hit in hits if self._wanted.matches(hit.event)]
                on_progress()
        finally:
            await asyncio.to_thread(opened.close)
        return page


def to_view(event: CapturedEvent) -> EventView:
    """A captured event as the table of events shows it."""
    key, kafka_key, publisher = map(event.system.get, (_PARTITION_KEY, _KAFKA_KEY, _PUBLISHER))
    return EventView(
        sequence=event.sequence,
        offset=int(event.offset) if event.offset.isdecimal() else -1,
        enqueued_ms=event.enqueued_ms,
        key=kafka_key if isinstance(kafka_key, bytes) else None if kafka_key is None else str(kafka_key).encode(),
        partition_key=None if key is None else _text(key),
        publisher=None if publisher is None else _text(publisher),
        body=event.body,
        properties={name: _typed_value(value) for name, value in event.properties.items()},
        system_properties={name: _typed_value(value) for name, value in event.system.items()},
        headers=(),
    )


def _text(value: Scalar) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _typed_value(value: Scalar | None) -> TypedValue:
    return TypedValue(_TYPES[type(value)], value)
