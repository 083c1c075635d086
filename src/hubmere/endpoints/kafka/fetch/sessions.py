"""Fetch sessions (KIP-227): a client names its partitions once, then only what has changed; responses do the same.

A session belongs to its connection and ends with it. A client that reconnects gets the error "unknown session" and
starts another one. Without a session each request names all its partitions.
"""

import secrets
from collections.abc import Collection
from itertools import count
from typing import Final

from hubmere.endpoints.kafka.fetch.state import CachedPartition, FetchState, SessionlessFetch
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import FetchRequest

# A client has one session with each node; another may begin before an old one has ended.
MAX_SESSIONS: Final = 4
# Partitions of one session: as many as the largest hubs of a large namespace have together.
MAX_PARTITIONS: Final = 100_000

_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1


class FetchSession(FetchState):
    """The partitions of one fetch session; those that gave events are read last."""

    __slots__ = ("_next_epoch", "_orders", "_partitions", "session_id")

    def __init__(self, session: KafkaSession, session_id: int) -> None:
        super().__init__(session)
        self.session_id = session_id
        self._next_epoch = 1
        self._partitions: dict[tuple[str, int], CachedPartition] = {}
        self._orders = count()

    def partitions(self) -> Collection[CachedPartition]:
        """Every partition."""
        return self._partitions.values()

    def can_omit(self, partition: CachedPartition) -> bool:
        """Whether the client has the partition's watermarks."""
        return partition.sent_watermarks == partition.watermarks

    def accept_epoch(self, epoch: int) -> bool:
        """Whether this is the client's next request; if so, the epoch moves on."""
        if epoch != self._next_epoch:
            return False
        self._next_epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return True

    def update(self, body: FetchRequest) -> None:
        """Add, move and remove the partitions that the request names."""
        for forgotten in body.forgotten_topics:
            for index in forgotten.partitions:
                self._remove(forgotten.name, index)
        for topic in body.topics:
            for wanted in topic.partitions:
                partition = self._partitions.get((topic.name, wanted.index))
                if partition is not None:
                    partition.update(wanted)
                elif len(self._partitions) < MAX_PARTITIONS:
                    partition = CachedPartition(self, topic.name, wanted, next(self._orders))
                    self._partitions[topic.name, wanted.index] = partition
                    self.due[partition] = None

    def _remove(self, topic: str, index: int) -> None:
        partition = self._partitions.pop((topic, index), None)
        if partition is not None:
            partition.close_reader()
            self.due.pop(partition, None)

    def move_to_end(self, partition: CachedPartition) -> None:
        """Read a partition that gave events after the others."""
        partition.order = next(self._orders)


def open_fetch(session: KafkaSession, body: FetchRequest) -> FetchSession | SessionlessFetch | ErrorCode:
    """The partitions that a request reads, of its session or of its own; or what is wrong with it."""
    if body.session_epoch == _INITIAL_EPOCH or body.session_epoch == _FINAL_EPOCH:
        if body.session_id != _NO_SESSION:
            _end_session(session, body.session_id)
        return _sessionless(session, body) if body.session_epoch == _FINAL_EPOCH else _begin_session(session, body)
    known = session.fetch_sessions.get(body.session_id)
    if known is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if not known.accept_epoch(body.session_epoch):
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if known.parked is not None:
        # Two requests of a session at once: the first cannot wait for positions that are replaced.
        known.parked.on_deadline()
    known.update(body)
    return known


def _sessionless(session: KafkaSession, body: FetchRequest) -> SessionlessFetch:
    """The state of the last request without a session; one whose fetch is parked is replaced."""
    state = session.sessionless_fetch
    if state is None or state.parked is not None:
        state = session.sessionless_fetch = SessionlessFetch(session)
    state.update(body.topics)
    return state


def _begin_session(session: KafkaSession, body: FetchRequest) -> FetchSession:
    sessions = session.fetch_sessions
    while len(sessions) >= MAX_SESSIONS:
        _end_session(session, next(iter(sessions)))
    begun = FetchSession(session, secrets.randbelow(_MAX_EPOCH) + 1)
    begun.update(body)
    sessions[begun.session_id] = begun
    return begun


def _end_session(session: KafkaSession, session_id: int) -> None:
    ended = session.fetch_sessions.pop(session_id, None)
    if ended is not None:
        if ended.parked is not None:
            ended.parked.on_deadline()
        ended.close()
