"""Fetch sessions (KIP-227): a client names its partitions once, then only what has changed; answers do the same.

A session belongs to its connection and ends with it: a client that comes back on another one is told that its session
is not known and begins anew, which every client does by itself. Without a session each request is complete.
"""

import secrets
from collections.abc import Collection
from itertools import count
from typing import Final

from hubmere.endpoints.kafka.fetch.state import CachedPartition, FetchState, SessionlessFetch
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import FetchRequest

# A client keeps one session for each node; another may begin before an old one has ended.
MAX_SESSIONS: Final = 4
# Partitions of one session: as many as the largest hubs of a large namespace have together.
MAX_PARTITIONS: Final = 100_000

_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1


class FetchSession(FetchState):
    """What a client reads, and what it was told last of each partition; those that gave events go to the end."""

    __slots__ = ("_next_epoch", "_places", "_turns", "number")

    def __init__(self, session: KafkaSession, number: int) -> None:
        super().__init__(session)
        self.number = number
        self._next_epoch = 1
        self._places: dict[tuple[str, int], CachedPartition] = {}
        self._turns = count()

    def places(self) -> Collection[CachedPartition]:
        """Every partition."""
        return self._places.values()

    def is_told(self, place: CachedPartition) -> bool:
        """Whether the client knows the facts of a partition."""
        return place.told == place.facts

    def accepts(self, epoch: int) -> bool:
        """Whether this is the client's next request; if so, one more is next."""
        if epoch != self._next_epoch:
            return False
        self._next_epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return True

    def update(self, body: FetchRequest) -> None:
        """Take over what the request adds, moves and forgets."""
        for forgotten in body.forgotten_topics:
            for index in forgotten.partitions:
                self._forget(forgotten.name, index)
        for topic in body.topics:
            for partition in topic.partitions:
                place = self._places.get((topic.name, partition.index))
                if place is not None:
                    place.want(partition)
                elif len(self._places) < MAX_PARTITIONS:
                    place = CachedPartition(self, topic.name, partition, next(self._turns))
                    self._places[topic.name, partition.index] = place
                    self.due[place] = None

    def _forget(self, topic: str, index: int) -> None:
        place = self._places.pop((topic, index), None)
        if place is not None:
            place.let_go()
            self.due.pop(place, None)

    def gave(self, place: CachedPartition) -> None:
        """A partition gave events: the others come first now."""
        place.turn = next(self._turns)


def open_reading(session: KafkaSession, body: FetchRequest) -> FetchState | ErrorCode:
    """What a request reads: by the session that it speaks of, or by what it names; or what is wrong with it."""
    kept = session.fetch_sessions
    if body.session_epoch == _INITIAL_EPOCH or body.session_epoch == _FINAL_EPOCH:
        if body.session_id != _NO_SESSION:
            _end(session, body.session_id)
        return _full(session, body) if body.session_epoch == _FINAL_EPOCH else _begin(session, body)
    known = kept.get(body.session_id)
    if known is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(known, FetchSession)
    if not known.accepts(body.session_epoch):
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if known.parked is not None:
        # Two requests of a session at once: the first cannot wait for positions that are no longer wanted.
        known.parked.time_is_up()
    known.update(body)
    return known


def _full(session: KafkaSession, body: FetchRequest) -> SessionlessFetch:
    """The reading of the last complete request goes on; one whose fetch still waits is left to itself."""
    last = session.full_reading
    if not isinstance(last, SessionlessFetch) or last.parked is not None:
        last = session.full_reading = SessionlessFetch(session)
    last.update(body.topics)
    return last


def _begin(session: KafkaSession, body: FetchRequest) -> FetchSession:
    kept = session.fetch_sessions
    while len(kept) >= MAX_SESSIONS:
        _end(session, next(iter(kept)))
    fresh = FetchSession(session, secrets.randbelow(_MAX_EPOCH) + 1)
    fresh.update(body)
    kept[fresh.number] = fresh
    return fresh


def _end(session: KafkaSession, number: int) -> None:
    ended = session.fetch_sessions.pop(number, None)
    if isinstance(ended, FetchSession):
        if ended.parked is not None:
            ended.parked.time_is_up()
        ended.close()
