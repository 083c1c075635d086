"""What a client reads from one fetch to the next: its partitions, which of them may have news, and one parked fetch.

Clients ask for the same partitions a thousand times a second. So rights, logs and watches are kept between fetches, and
a fetch looks only at the partitions that are due: those that have moved, those of which the client wants something
else than before, and those that had more to give. A partition at whose end the client stands is not due until it moves.
Hubs that were deleted, made anew or shut are noticed at each look, by topic.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Protocol

from hubmere.broker.fetching import Follow
from hubmere.broker.live import LiveHub
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.stream import Timer
from hubmere.model.errors import PartitionNotFound
from hubmere.model.names import fold
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchTopic

# The end of a partition, its stable end and its start: what an answer tells of it besides events.
Facts = tuple[int, int, int]


class Parked(Protocol):
    """A fetch that waits for more bytes."""

    @property
    def deadline(self) -> float:
        """When it has waited for long enough."""

    def moved(self) -> None:
        """A partition has moved; called from within a commit, so nothing is read here."""

    def time_is_up(self) -> None:
        """The deadline is reached."""


class Place:
    """One partition: what the client wants of it, and what it was told last."""

    __slots__ = ("_reading", "facts", "follow", "index", "partition", "seen_bytes", "told", "topic", "turn")

    def __init__(self, reading: "Reading", topic: str, partition: FetchPartition, turn: int) -> None:
        self._reading = reading
        self.topic = topic
        self.index = partition.index
        self.partition = partition
        # Lower turns are read first.
        self.turn = turn
        self.follow: Follow | None = None
        self.facts: Facts = (-1, -1, -1)
        self.told: Facts | None = None
        self.seen_bytes = 0

    def want(self, partition: FetchPartition) -> None:
        """Take another position; where nothing changes there is nothing to look at again."""
        known, self.partition = self.partition, partition
        if partition.fetch_offset != known.fetch_offset or partition.current_leader_epoch != known.current_leader_epoch:
            self._reading.due[self] = None

    def begin(self, session: KafkaSession) -> Follow:
        """Follow the partition from now on; raises what forbids it."""
        hub = session.readable(self.topic)
        if not 0 <= self.index < hub.entity.partition_count:
            raise PartitionNotFound(self.topic, str(self.index), hub.entity.partition_count)
        hub.require_receiving()
        self.follow = Follow(hub, self.index, self._moved)
        self._reading.hubs[self.topic] = hub
        return self.follow

    def grown_bytes(self) -> int:
        """About how many bytes have come since the last look."""
        return 0 if self.follow is None else max(self.follow.log.state.size_bytes - self.seen_bytes, 0)

    def let_go(self) -> None:
        """Follow it no longer: the next look begins anew."""
        follow, self.follow = self.follow, None
        if follow is not None:
            follow.close()

    def _moved(self) -> None:
        reading = self._reading
        reading.due[self] = None
        if reading.parked is not None:
            reading.parked.moved()


class Reading(ABC):
    """The partitions of a client in order. Thread rule: the loop's thread only.

    At most one fetch is parked at a time. Its timer outlives it: the next one that waits takes it over, so that a
    client that is answered often costs a timer twice a second and not a thousand times.
    """

    __slots__ = ("_session", "_timer", "_timer_at", "due", "hubs", "parked")

    def __init__(self, session: KafkaSession) -> None:
        self._session = session
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self.due: dict[Place, None] = {}
        # The hubs of the places that are followed.
        self.hubs: dict[str, LiveHub] = {}
        self.parked: Parked | None = None
        session.on_lost[self.close] = None

    @abstractmethod
    def places(self) -> Collection[Place]:
        """Every partition."""

    @abstractmethod
    def is_told(self, place: Place) -> bool:
        """Whether an answer need not speak of a partition that has no events for the client."""

    def answered(self) -> None:
        """No fetch waits any more."""
        self.parked = None

    # --- what a fetch looks at ---

    def due_places(self) -> Iterable[Place]:
        """The partitions that may have news, those first whose turn it is."""
        served = self._session.namespace.hubs
        for topic, hub in self.hubs.items():
            if served.get(fold(topic)) is not hub or not hub.entity.status.may_receive:
                self._let_go_of_hubs()
                break
        return sorted(self.due, key=_turn_of) if len(self.due) > 1 else tuple(self.due)

    def all_places(self) -> Iterable[Place]:
        """As `due_places`, with every partition."""
        self.due = dict.fromkeys(self.places())
        return self.due_places()

    def _let_go_of_hubs(self) -> None:
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
        self._session.on_lost.pop(self.close, None)
        self.parked = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for place in self.places():
            place.let_go()


def _turn_of(place: Place) -> int:
    return place.turn


class FullReading(Reading):
    """The partitions of requests that name all of them each time, in the order of the request."""

    __slots__ = ("_places",)

    def __init__(self, session: KafkaSession, topics: Iterable[FetchTopic]) -> None:
        super().__init__(session)
        named = [(topic.name, partition) for topic in topics for partition in topic.partitions]
        self._places = [Place(self, name, partition, turn) for turn, (name, partition) in enumerate(named)]
        self.due = dict.fromkeys(self._places)

    def places(self) -> Collection[Place]:
        """Every partition."""
        return self._places

    def is_told(self, place: Place) -> bool:
        """Answers speak of every partition in any case, by the facts that were found last."""
        return True

    def answered(self) -> None:
        """No fetch waits any more; where another reading has taken this one's place it is not needed either."""
        super().answered()
        if self._session.full_reading is not self:
            self.close()

    def goes_on(self, topics: Iterable[FetchTopic]) -> bool:
        """Take the positions of the next request; False when it names other partitions, and this is to be closed."""
        places = iter(self._places)
        for topic in topics:
            name = topic.name
            for partition in topic.partitions:
                place = next(places, None)
                if place is None or place.index != partition.index or place.topic != name:
                    return False
                place.want(partition)
        return next(places, None) is None
