"""What a client reads from one fetch to the next: its partitions, which of them may have news, and one parked fetch.

Clients ask for the same partitions a thousand times a second. So rights, logs and watches are kept between fetches, and
a fetch looks only at the partitions that are due: those that have moved, those of which the client wants something
else than before, and those that had more to give. A partition at whose end the client stands is not due until it moves.
Hubs that were deleted, made anew or shut are noticed at each look, by topic, and so is a client that signed in anew.
What is kept is bounded by the size of a request, or by that of a fetch session.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from hubmere.broker.live import LiveHub
from hubmere.broker.read import PartitionReader
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.stream import Timer
from hubmere.model.names import fold
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchTopic

# The end of a partition, its stable end and its start: what an answer tells of it besides events.
Facts = tuple[int, int, int]
NO_FACTS: Final = (-1, -1, -1)


class Parked(Protocol):
    """A fetch that waits for more bytes."""

    @property
    def deadline(self) -> float:
        """When it has waited for long enough."""

    def moved(self) -> None:
        """A partition has moved; called from within a commit, so nothing is read here."""

    def time_is_up(self) -> None:
        """The deadline is reached."""


class CachedPartition:
    """One partition: what the client wants of it, what was found at the last look, and what the client was told."""

    __slots__ = (
        "_has_moved",
        "_reading",
        "facts",
        "index",
        "partition",
        "quiet_part",
        "reader",
        "seen_bytes",
        "told",
        "topic",
        "turn",
    )

    def __init__(self, reading: "FetchState", topic: str, partition: FetchPartition, turn: int) -> None:
        self._reading = reading
        self._has_moved = True
        self.topic = topic
        self.index = partition.index
        self.partition = partition
        # Lower turns are read first.
        self.turn = turn
        self.reader: PartitionReader | None = None
        self.facts: Facts = NO_FACTS
        self.seen_bytes = 0
        # What an answer says of it while there are no events, ready to send.
        self.quiet_part: bytes | None = None
        self.told: Facts | None = None

    def want(self, partition: FetchPartition) -> None:
        """Take another position: worth a look, unless it is where the partition ended at the last one."""
        known, self.partition = self.partition, partition
        if partition.current_leader_epoch == known.current_leader_epoch:
            if partition.fetch_offset == self.facts[0] and not self._has_moved and self._reading.is_told(self):
                self._reading.due.pop(self, None)
                return
            if partition.fetch_offset == known.fetch_offset:
                return
        self._reading.due[self] = None

    def begin(self, session: KafkaSession) -> PartitionReader:
        """Follow the partition from now on; raises what forbids it."""
        hub = session.reach.readable(self.topic)
        self.reader = session.shared.broker.follow(hub, self.index, self._moved, principal=session.principal)
        self._reading.hubs[fold(self.topic)] = hub
        return self.reader

    def seen(self, facts: Facts, size_bytes: int) -> None:
        """What a look has found."""
        self._has_moved = False
        self.seen_bytes = size_bytes
        if facts != self.facts:
            self.facts = facts
            self.quiet_part = None

    def refused(self) -> None:
        """The client cannot have what it wants: it is told so until it wants something else."""
        self._has_moved = True

    def grown_bytes(self) -> int:
        """About how many bytes have come since the last look."""
        return 0 if self.reader is None else max(self.reader.state.size_bytes - self.seen_bytes, 0)

    def is_passed(self) -> bool:
        """Whether the start has moved beyond where the client stands."""
        return self.reader is not None and self.reader.state.log_start > self.partition.fetch_offset

    def let_go(self) -> None:
        """Follow it no longer: the next look begins anew."""
        reader, self.reader = self.reader, None
        self._has_moved = True
        if reader is not None:
            reader.close()

    def _moved(self) -> None:
        self._has_moved = True
        reading = self._reading
        reading.due[self] = None
        if reading.parked is not None:
            reading.parked.moved()


class FetchState(ABC):
    """The partitions of a client in order. Thread rule: the loop's thread only.

    At most one fetch is parked at a time. Its timer outlives it: the next one that waits takes it over, so that a
    client that is answered often costs a timer twice a second and not a thousand times.
    """

    __slots__ = ("_form", "_reach", "_session", "_timer", "_timer_at", "due", "hubs", "parked")

    def __init__(self, session: KafkaSession) -> None:
        self._session = session
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._reach = session.reach
        self._form = (-1, False)
        self.due: dict[CachedPartition, None] = {}
        # The hubs of the places that are followed, by folded name.
        self.hubs: dict[str, LiveHub] = {}
        self.parked: Parked | None = None
        session.cleanups[self.close] = None

    @abstractmethod
    def places(self) -> Collection[CachedPartition]:
        """Every partition."""

    @abstractmethod
    def is_told(self, place: CachedPartition) -> bool:
        """Whether an answer need not speak of a partition that has no events for the client."""

    def answered(self) -> None:
        """No fetch waits any more."""
        self.parked = None

    # --- what a fetch looks at ---

    def take_form(self, version: int, *, is_committed_only: bool) -> None:
        """How the next answer is written: a client seldom changes it, and then nothing that was ready can be used."""
        if self._form != (version, is_committed_only):
            self._form = (version, is_committed_only)
            for place in self.places():
                place.quiet_part = None

    def due_places(self) -> Sequence[CachedPartition]:
        """The partitions that may have news, those first whose turn it is."""
        if not self._is_still_allowed():
            self._let_go_of_hubs()
        return sorted(self.due, key=_turn_of) if len(self.due) > 1 else tuple(self.due)

    def all_places(self) -> Sequence[CachedPartition]:
        """As `due_places`, with every partition."""
        self.due = dict.fromkeys(self.places())
        return self.due_places()

    def _is_still_allowed(self) -> bool:
        served = self._session.namespace.hubs
        for name, hub in self.hubs.items():
            if served.get(name) is not hub or not hub.entity.status.may_receive:
                return False
        return self._reach is self._session.reach

    def _let_go_of_hubs(self) -> None:
        self._reach = self._session.reach
        self.hubs.clear()
        for place in self.places():
            place.let_go()
            self.due[place] = None

    # --- waiting ---

    def park(self, fetch: Parked) -> None:
        """Have a fetch wait until something moves or its time is up."""
        self.parked = fetch
        if self._timer is None or self._timer_at > fetch.deadline:
            self._set_timer(fetch.deadline)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._session.wire.call_at(when, self._look_at_time)

    def _look_at_time(self) -> None:
        self._timer = None
        parked = self.parked
        if parked is not None and parked.deadline > self._timer_at:
            self._set_timer(parked.deadline)
        elif parked is not None:
            parked.time_is_up()

    def close(self) -> None:
        """Follow nothing any more; closing twice is harmless."""
        self._session.cleanups.pop(self.close, None)
        self.parked = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for place in self.places():
            place.let_go()


def _turn_of(place: CachedPartition) -> int:
    return place.turn


class SessionlessFetch(FetchState):
    """The partitions of requests that name all of them each time, in the order of the last request.

    Clients begin each request with another partition, so it is the order that changes, and seldom the partitions.
    """

    __slots__ = ("_last_turn", "_places", "topics")

    def __init__(self, session: KafkaSession) -> None:
        super().__init__(session)
        self._last_turn = 0
        self._places: dict[tuple[str, int], CachedPartition] = {}
        self.topics: list[tuple[str, list[CachedPartition]]] = []

    def places(self) -> Collection[CachedPartition]:
        """Every partition."""
        return self._places.values()

    def is_told(self, place: CachedPartition) -> bool:
        """Answers speak of every partition in any case, by the facts that were found last."""
        return True

    def answered(self) -> None:
        """No fetch waits any more; where another reading has taken this one's place it is not needed either."""
        super().answered()
        if self._session.full_reading is not self:
            self.close()

    def update(self, topics: Iterable[FetchTopic]) -> None:
        """Take the partitions and positions of the next request; one that is named twice counts once, as in Kafka."""
        before = self._last_turn
        self.topics = [(topic.name, self._take(topic, before)) for topic in topics]
        if len(self._places) != self._last_turn - before:
            for key, place in list(self._places.items()):
                if place.turn <= before:
                    place.let_go()
                    self.due.pop(place, None)
                    del self._places[key]

    def _take(self, topic: FetchTopic, before: int) -> list[CachedPartition]:
        name, known, turn, taken = topic.name, self._places, self._last_turn, []
        for partition in topic.partitions:
            place = known.get((name, partition.index))
            if place is None:
                place = known[name, partition.index] = CachedPartition(self, name, partition, before)
                self.due[place] = None
            elif place.turn > before:
                continue
            else:
                place.want(partition)
            turn += 1
            place.turn = turn
            taken.append(place)
        self._last_turn = turn
        return taken
