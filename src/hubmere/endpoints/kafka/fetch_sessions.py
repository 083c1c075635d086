"""Fetch sessions (KIP-227): a client names its partitions once, then only what has changed; answers do the same.

A session belongs to its connection and ends with it: a client that comes back on another one is told that its session
is not known and begins anew, which every client does by itself. Without a session each request is complete.
"""

import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple

from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchPartitionResponse, FetchRequest

# A client keeps one session for each node; another may begin before an old one has ended.
MAX_SESSIONS: Final = 4
# Partitions of one session: as many as the largest hubs of a large namespace have together.
MAX_PARTITIONS: Final = 100_000

_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1

Place = tuple[str, int]


class Wanted(NamedTuple):
    """A partition to read, and from where."""

    topic: str
    partition: FetchPartition


class FetchSession:
    """What a client reads, and what it was told last of each partition."""

    __slots__ = ("_next_epoch", "_told", "_wanted", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._next_epoch = 1
        self._wanted: dict[Place, Wanted] = {}
        self._told: dict[Place, tuple[int, int, int]] = {}

    def wanted(self) -> list[Wanted]:
        """The partitions in the order in which they are to be read."""
        return list(self._wanted.values())

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
                self._wanted.pop((forgotten.name, index), None)
                self._told.pop((forgotten.name, index), None)
        for topic in body.topics:
            for partition in topic.partitions:
                if len(self._wanted) < MAX_PARTITIONS or (topic.name, partition.index) in self._wanted:
                    self._wanted[topic.name, partition.index] = Wanted(topic.name, partition)

    def changed(self, parts: Iterable[tuple[str, FetchPartitionResponse]]) -> list[tuple[str, FetchPartitionResponse]]:
        """The parts that tell the client something new; those with events go to the end of the order."""
        news = []
        for topic, part in parts:
            place = (topic, part.index)
            facts = (part.high_watermark, part.last_stable_offset, part.log_start_offset)
            if part.records or part.error_code or self._told.get(place) != facts:
                self._told[place] = facts
                news.append((topic, part))
            if part.records and place in self._wanted:
                self._wanted[place] = self._wanted.pop(place)
        return news


def open_session(session: KafkaSession, body: FetchRequest) -> FetchSession | ErrorCode | None:
    """The session that a request speaks of: a new one, a known one, none, or what is wrong with it."""
    kept = session.fetch_sessions
    if body.session_epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
        kept.pop(body.session_id, None)
        return None if body.session_epoch == _FINAL_EPOCH else _begin(session, body)
    known = kept.get(body.session_id)
    if not isinstance(known, FetchSession):
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if not known.accepts(body.session_epoch):
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    known.update(body)
    return known


def _begin(session: KafkaSession, body: FetchRequest) -> FetchSession:
    kept = session.fetch_sessions
    while len(kept) >= MAX_SESSIONS:
        del kept[next(iter(kept))]
    fresh = FetchSession(secrets.randbelow(_MAX_EPOCH) + 1)
    fresh.update(body)
    kept[fresh.number] = fresh
    return fresh
