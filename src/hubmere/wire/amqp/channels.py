"""The sessions of one connection by channel number (AMQP 1.0, 2.5.1 and 2.7.2).

Each side numbers its channels on its own: a session has our channel, on which we send, and the peer's, on which it
receives. This module assigns our numbers, checks the peer's, and finds the session of a frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hubmere.wire.amqp.codec.frames import framing_error
from hubmere.wire.amqp.codec.performatives import Begin, End
from hubmere.wire.amqp.errors import Condition, LocalProtocolError, RemoteProtocolError
from hubmere.wire.amqp.session import Session, SessionState, free_number
from hubmere.wire.amqp.signals import Signal

if TYPE_CHECKING:
    from hubmere.wire.amqp.connection import Connection


class Channels:
    """The sessions of one connection. Owned by that connection, which is an argument: a reference to it would be a
    cycle that keeps both in memory until the garbage collector runs.
    """

    __slots__ = ("_by_local_number", "_by_remote_number", "_ended_numbers", "_local_max", "remote_max")

    def __init__(self, channel_max: int) -> None:
        self._local_max = channel_max
        self._by_remote_number: dict[int, Session] = {}
        self._by_local_number: dict[int, Session] = {}
        self._ended_numbers: set[int] | None = None  # numbers of the peer, so at most channel-max of them
        self.remote_max = 0

    def __iter__(self) -> Iterator[Session]:
        """The sessions that the peer has begun or answered."""
        return iter(self._by_remote_number.values())

    def find(self, number: int) -> Session | None:
        """The session of a frame that the peer sent; None if the frame is late and to be ignored."""
        session = self._by_remote_number.get(number)
        if session is None and not (self._ended_numbers and number in self._ended_numbers):
            # The Azure SDK for Python detaches links after the end of their session, so ended numbers are ignored.
            raise RemoteProtocolError(Condition.ILLEGAL_STATE, f"no session is mapped to channel {number}")
        return session

    def begin(self, connection: Connection) -> Session:
        """Queue our begin for a new session."""
        number = free_number(self._by_local_number)
        if number > min(self.remote_max, self._local_max):
            raise LocalProtocolError("no channel is free for a new session")
        session = Session(connection, number, SessionState.PENDING)
        session.emit(session.begin_frame(None))
        self._by_local_number[number] = session
        return session

    def receive_begin(self, connection: Connection, begin: Begin, number: int, signals: list[Signal]) -> None:
        """The peer's begin: map the session, and answer it unless it is itself the answer to ours."""
        if number > self._local_max:
            raise framing_error(f"channel {number} exceeds channel-max {self._local_max}")
        if number in self._by_remote_number:
            raise RemoteProtocolError(Condition.NOT_ALLOWED, f"channel {number} is mapped to another session")
        if begin.remote_channel is None:
            session = Session(connection, self._answering_number(number), SessionState.PENDING)
            session.receive_begin(begin, signals)
            session.answer_begin(number)
            self._by_local_number[session.channel] = session
        else:
            session = self._pending_session(begin.remote_channel)
            session.receive_begin(begin, signals)
        self._by_remote_number[number] = session
        if self._ended_numbers:
            self._ended_numbers.discard(number)

    def _answering_number(self, remote_number: int) -> int:
        # Answering on the peer's channel number is accepted by all clients and keeps traces readable.
        if remote_number not in self._by_local_number and remote_number <= self.remote_max:
            return remote_number
        number = free_number(self._by_local_number)
        if number > self.remote_max:
            raise RemoteProtocolError(Condition.NOT_ALLOWED, "the peer's channel-max leaves no channel for an answer")
        return number

    def _pending_session(self, local_number: int) -> Session:
        session = self._by_local_number.get(local_number)
        if session is None or session.state is not SessionState.PENDING:
            raise RemoteProtocolError(Condition.ILLEGAL_STATE, "a remote-channel names no begin of this side")
        return session

    def receive_end(self, end: End, number: int, signals: list[Signal]) -> None:
        """The peer's end; a second one for the same channel is ignored."""
        session = self._by_remote_number.pop(number, None)
        if session is not None:
            del self._by_local_number[session.channel]
            self._ended_numbers = self._ended_numbers or set()
            self._ended_numbers.add(number)
            session.receive_end(end, signals)

    def clear(self, signals: list[Signal]) -> None:
        """The connection is over: report the end of every session."""
        for session in self._by_local_number.values():
            session.on_lost(signals, None)
        self._by_local_number.clear()
        self._by_remote_number.clear()
