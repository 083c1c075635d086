"""Parks a fetch, wakes it when a partition moves, and keeps the partitions of a client between two fetches.

Clients ask for the same partitions a thousand times a second. So readers are kept open between fetches, and a fetch
reads only the partitions that are due:

1. A partition is due when it has moved since it was read, when the client names another position, and when it had more
   events than fitted. A partition whose end the client has reached is not due until it moves.
2. A fetch that finds too little is parked here until a partition moves or its deadline is reached.
3. Before each read, hubs that were deleted, created again or disabled, and a client whose credential or rights have
   changed, close all readers; opening them again checks every right.

The state is bounded by the size of a request, or by that of a fetch session.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from hubmere.broker import HubView, PartitionReader
from hubmere.endpoints.kafka.fetch.deadlines import SHORTEST_SHARED_S
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.stream import Timer
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchTopic

# High watermark, last stable offset and log start offset: what a response says of a partition besides events.
Watermarks = tuple[int, int, int]
UNKNOWN_WATERMARKS: Final = (-1, -1, -1)


class ParkedFetch(Protocol):
    """A fetch that waits for more bytes."""

    @property
    def deadline(self) -> float:
        """When it has to be answered."""

    def on_moved(self) -> None:
        """A partition has moved; called during a commit, so it must not read."""

    def on_deadline(self) -> None:
        """The deadline is reached."""


class CachedPartition:
    """One partition: what the client asks for, what the last read found, and what the client was sent."""

    __slots__ = (
        "_has_moved",
        "_state",
        "empty_response",
        "index",
        "order",
        "partition",
        "reader",
        "sent_watermarks",
        "size_bytes",
        "topic",
        "watermarks",
    )

    def __init__(self, state: "FetchState", topic: str, partition: FetchPartition, order: int) -> None:
        self._state = state
        self._has_moved = True
        self.topic = topic
        self.index = partition.index
        self.partition = partition
        # Lower numbers are read first.
        self.order = order
        self.reader: PartitionReader | None = None
        # As of the last read.
        self.watermarks: Watermarks = UNKNOWN_WATERMARKS
        self.size_bytes = 0
        # The encoded response for this partition while it has no events.
        self.empty_response: bytes | None = None
        self.sent_watermarks: Watermarks | None = None

    def update(self, partition: FetchPartition) -> None:
        """Take the position of the next request; the partition is due unless the position is its known end."""
        previous, self.partition = self.partition, partition
        if partition.current_leader_epoch == previous.current_leader_epoch:
            if partition.fetch_offset == self.watermarks[0] and not self._has_moved and self._state.can_omit(self):
                self._state.due.pop(self, None)
                return
            if partition.fetch_offset == previous.fetch_offset:
                return
        self._state.due[self] = None

    def open_reader(self, session: KafkaSession, *, stored_only: bool = False) -> PartitionReader:
        """Open the partition's reader; raises the refusal if the client may not read it."""
        caller, now_s = session.caller, session.now_s
        self.reader = reader = caller.follow(self.topic, self.index, self._on_moved, now_s, stored_only=stored_only)
        self._state.hubs[self.topic] = reader.hub
        return reader

    def close_reader(self) -> None:
        """Close the reader; the next read opens another."""
        reader, self.reader = self.reader, None
        self._has_moved = True
        if reader is not None:
            reader.close()

    def on_read(self, watermarks: Watermarks, size_bytes: int) -> None:
        """Record what a read has found."""
        self._has_moved = False
        self.size_bytes = size_bytes
        if watermarks != self.watermarks:
            self.watermarks = watermarks
            self.empty_response = None

    def on_refused(self) -> None:
        """The position is not valid: answer with this refusal until the client names another position."""
        self._has_moved = True

    def grown_bytes(self) -> int:
        """About how many bytes were appended since the last read."""
        return 0 if self.reader is None else max(self.reader.state.size_bytes - self.size_bytes, 0)

    def is_deleted(self) -> bool:
        """Whether the event at the client's position has been deleted since."""
        return self.reader is not None and self.reader.state.log_start > self.partition.fetch_offset

    def is_readable(self) -> bool:
        """Whether its log can be read now."""
        try:
            return self.reader is not None and self.reader.state is not None
        except Refusal:
            return False

    def _on_moved(self) -> None:
        self._has_moved = True
        state = self._state
        state.due[self] = None
        if state.parked is not None:
            state.parked.on_moved()


class FetchState(ABC):
    """The partitions of a client in order. Thread rule: the loop's thread only.

    At most one fetch is parked at a time. Its timer outlives it: the next fetch that is parked uses it again, so that a
    client that is answered often costs a timer twice a second and not a thousand times.
    """

    __slots__ = ("_format", "_revision", "_session", "_timer", "_timer_at", "due", "hubs", "parked")

    def __init__(self, session: KafkaSession) -> None:
        self._session = session
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._revision = session.caller.revision
        self._format = (-1, False)
        self.due: dict[CachedPartition, None] = {}
        # The hubs of the open readers, by topic.
        self.hubs: dict[str, HubView] = {}
        self.parked: ParkedFetch | None = None
        session.cleanups[self.close] = None

    @abstractmethod
    def partitions(self) -> Collection[CachedPartition]:
        """Every partition."""

    @abstractmethod
    def can_omit(self, partition: CachedPartition) -> bool:
        """Whether a partition without events needs no read for the next response."""

    def on_answered(self) -> None:
        """The fetch is answered: none is parked any more."""
        self.parked = None

    # --- partitions to read ---

    def set_format(self, version: int, *, is_committed_only: bool) -> None:
        """Set how the next response is encoded; encoded partitions of another format are dropped."""
        if self._format != (version, is_committed_only):
            self._format = (version, is_committed_only)
            for partition in self.partitions():
                partition.empty_response = None

    def due_partitions(self) -> Sequence[CachedPartition]:
        """The partitions that are due, in the order in which they are read."""
        if not self._are_readers_valid():
            self._close_readers()
        return sorted(self.due, key=_order_of) if len(self.due) > 1 else tuple(self.due)

    def partitions_at_deadline(self) -> Sequence[CachedPartition]:
        """As `due_partitions`, with those that cannot be read any more: a log that goes offline does not move."""
        for partition in self.partitions():
            if partition not in self.due and not partition.is_readable():
                self.due[partition] = None
        return self.due_partitions()

    def _are_readers_valid(self) -> bool:
        for hub in self.hubs.values():
            if not hub.is_current or not hub.entity.status.may_receive:
                return False
        return self._revision == self._session.caller.revision

    def _close_readers(self) -> None:
        self._revision = self._session.caller.revision
        self.hubs.clear()
        for partition in self.partitions():
            partition.close_reader()
            self.due[partition] = None

    # --- parking ---

    def park(self, fetch: ParkedFetch) -> None:
        """Keep a fetch until a partition moves or its deadline is reached."""
        self.parked = fetch
        if self._timer is None or self._timer_at > fetch.deadline:
            self._set_timer(fetch.deadline)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        session = self._session
        if when - session.now < SHORTEST_SHARED_S:
            self._timer = session.wire.call_at(when, self._on_timer)
        else:
            self._timer = session.context.fetch_deadlines.add(session, when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        parked = self.parked
        if parked is not None and parked.deadline > self._timer_at:
            self._set_timer(parked.deadline)
        elif parked is not None:
            parked.on_deadline()

    def close(self) -> None:
        """Close all readers; closing twice is harmless."""
        self._session.cleanups.pop(self.close, None)
        self.parked = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self.partitions():
            partition.close_reader()


def _order_of(partition: CachedPartition) -> int:
    return partition.order


class SessionlessFetch(FetchState):
    """The partitions of requests that name all of them each time, in the order of the last request.

    Clients begin each request with another partition, so the order changes, and seldom the partitions.
    """

    __slots__ = ("_last_order", "_last_topics", "_partitions", "topics")

    def __init__(self, session: KafkaSession) -> None:
        super().__init__(session)
        self._last_order = 0
        self._last_topics: Iterable[FetchTopic] | None = None
        self._partitions: dict[tuple[str, int], CachedPartition] = {}
        self.topics: list[tuple[str, list[CachedPartition]]] = []

    def partitions(self) -> Collection[CachedPartition]:
        """Every partition."""
        return self._partitions.values()

    def can_omit(self, partition: CachedPartition) -> bool:
        """Responses contain every partition in any case, with the watermarks of the last read."""
        return True

    def on_answered(self) -> None:
        """The fetch is answered; a state that another one has replaced is closed."""
        super().on_answered()
        if self._session.sessionless_fetch is not self:
            self.close()

    def update(self, topics: Iterable[FetchTopic]) -> None:
        """Take the partitions of the next request; a partition that is named twice counts once, as in Kafka.

        The engine gives the same object for a request with the same bytes: then nothing has changed.
        """
        if topics is self._last_topics:
            return
        self._last_topics = topics
        before = self._last_order
        self.topics = [(topic.name, self._update_topic(topic, before)) for topic in topics]
        if len(self._partitions) != self._last_order - before:
            for key, partition in list(self._partitions.items()):
                if partition.order <= before:
                    partition.close_reader()
                    self.due.pop(partition, None)
                    del self._partitions[key]

    def _update_topic(self, topic: FetchTopic, before: int) -> list[CachedPartition]:
        name, known, order, updated = topic.name, self._partitions, self._last_order, []
        for wanted in topic.partitions:
            partition = known.get((name, wanted.index))
            if partition is None:
                partition = known[name, wanted.index] = CachedPartition(self, name, wanted, before)
                self.due[partition] = None
            elif partition.order > before:
                continue
            else:
                partition.update(wanted)
            order += 1
            partition.order = order
            updated.append(partition)
        self._last_order = order
        return updated
