"""A bounded share of each loop turn for every connection, so that a flood on one does not delay the others.

All connections share one event loop. A connection that always has input would be read again and again before any other
one is: libuv reads a socket up to 32 times in a row, and each read may hold tens of thousands of small requests. The
rule here is the same for every protocol:

1. Input is handled in pieces. After each piece the time that it took is compared with a budget.
2. A piece that took longer than the budget makes the next ones smaller; cheap pieces make them larger again, up to a
   limit, which is small for clients that are not authenticated. A piece that took much longer lowers that limit for
   the rest of the connection.
3. When the budget of a turn is spent, reading stops until the next turn, in which every other connection is served.

The time is processor time, so that a busy machine does not look like an expensive client. Small reads are not measured:
one of them per turn is always cheap, and libuv continues with other sockets after it.

Small reads of many connections are expensive together: all members of all groups join at once after a network failure.
`LoopTurn` bounds the time for all connections:

1. When the reads of a turn have taken `READ_SECONDS`, the bytes of further reads are held, which costs microseconds.
   Those of clients that can wait, because they sign in or join groups, are held after `PATIENT_READ_SECONDS`.
2. The next turn begins with held reads, for `HELD_SECONDS`, and then reads sockets again, so that a client with a new
   request does not wait for all that are held.
3. Held reads of clients that publish or read come before those of clients that can wait, but some of these are handled
   in each turn, too.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

# Processor time of one connection per loop turn. A request of another client takes about three turns, so a flood delays
# it by about three times this.
TURN_SECONDS: Final = 0.002
# Pieces never become smaller than this: the smallest requests are about ten bytes.
MIN_PIECE_BYTES: Final = 512
# Reads up to this size are not measured.
UNMEASURED_BYTES: Final = 2048
# Size of the first piece, before anything is known about the cost.
FIRST_PIECE_BYTES: Final = 16 * 1024
# The largest piece of a client that is not authenticated, or that has sent expensive input: the most expensive requests
# of this size take less than 50 ms.
MAX_COSTLY_BYTES: Final = 64 * 1024
# A piece that takes this many times the budget is expensive.
_COSTLY: Final = 5
# The largest piece for the parser of a text protocol.
MAX_PARSED_BYTES: Final = 16 * 1024

# Time for the reads of one turn: 500 small publications, which are cheaper together.
READ_SECONDS: Final = 0.010
PATIENT_READ_SECONDS: Final = 0.004
# Time for reads that were held in earlier turns.
HELD_SECONDS: Final = 0.002
# Held reads of each kind that are handled in a turn at least.
MIN_HELD_READS: Final = 4
# A turn with fewer reads is not measured.
UNMEASURED_READS: Final = 4


class Reader(Protocol):
    """A connection that reads."""

    @property
    def can_wait(self) -> bool:
        """Whether the connection may be served after others."""

    def handle_held(self) -> None:
        """Handle the bytes of the held read."""


class LoopTurn:
    """The reads of all connections in one turn of the loop. Thread rule: the node's loop only.

    A turn is measured from its fourth read on: the end of a turn is a call in the next one, which few reads do not pay.
    """

    __slots__ = ("_began", "_count", "_is_scheduled", "_loop", "_patient", "_urgent")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._began = 0.0
        self._is_scheduled = False
        self._urgent: deque[Reader] = deque()
        self._patient: deque[Reader] = deque()

    def has_time(self, reader: Reader) -> bool:
        """Whether a read of a connection is handled in this turn."""
        self._count += 1
        if self._count < UNMEASURED_READS:
            return True
        if self._count == UNMEASURED_READS:
            self._began = time.monotonic()
            self._schedule()
        took_s = time.monotonic() - self._began
        return took_s < PATIENT_READ_SECONDS or (took_s < READ_SECONDS and not reader.can_wait)

    def hold(self, reader: Reader) -> None:
        """Handle the last read of a connection in one of the next turns."""
        (self._patient if reader.can_wait else self._urgent).append(reader)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn with held reads."""
        self._is_scheduled = False
        self._count = 0
        until = time.monotonic() + HELD_SECONDS
        for queue in (self._urgent, self._patient):
            count = 0
            while queue and (count < MIN_HELD_READS or time.monotonic() < until):
                queue.popleft().handle_held()
                count += 1
        if self._urgent or self._patient:
            self._schedule()


class LoopShare:
    """How much of a connection's input is handled at once, derived from the cost of the last pieces.

    Thread rule: the node's loop only.
    """

    __slots__ = ("_is_costly", "_largest_bytes", "_spent_s", "piece_bytes")

    def __init__(self, largest_bytes: int) -> None:
        self._largest_bytes = largest_bytes
        self._spent_s = 0.0
        self._is_costly = False
        self.piece_bytes = min(largest_bytes, FIRST_PIECE_BYTES)

    def spend(self, size_bytes: int, took_s: float) -> bool:
        """Record the cost of a piece; True if the budget of this turn is spent. Every turn has a full budget."""
        if took_s > TURN_SECONDS:
            if took_s > _COSTLY * TURN_SECONDS:
                self._is_costly = True
                self._largest_bytes = min(self._largest_bytes, MAX_COSTLY_BYTES)
            fitting = int(size_bytes * TURN_SECONDS / took_s)
            self.piece_bytes = max(min(fitting, self.piece_bytes), MIN_PIECE_BYTES)
        elif took_s < TURN_SECONDS / 2 and self.piece_bytes < self._largest_bytes:
            self.piece_bytes = min(self.piece_bytes * 2, self._largest_bytes)
        self._spent_s += took_s
        if self._spent_s < TURN_SECONDS:
            return False
        self._spent_s = 0.0
        return True

    def widen(self, largest_bytes: int) -> None:
        """Allow larger pieces for a client that has authenticated, if all pieces were cheap so far.

        The next piece is large at once: 64 small Kafka requests in flight are 17 KB, and a read that splits them costs
        a tenth of their rate.
        """
        if not self._is_costly:
            self._largest_bytes = max(self._largest_bytes, largest_bytes)
            self.piece_bytes = max(self.piece_bytes, min(MAX_COSTLY_BYTES, largest_bytes))

    def end_turn(self) -> None:
        """The connection has no more input for now."""
        self._spent_s = 0.0


class SlicedInput:
    """Feeds the input of one transport to a parser in pieces; a protocol uses it in place of the transport.

    `feed` gets the pieces in order. While reading is paused, by the protocol or because the client does not read the
    responses, nothing is fed, and received bytes wait here: at most one read of the transport.
    Thread rule: the node's loop only.
    """

    __slots__ = ("_at", "_data", "_feed", "_holds", "_is_scheduled", "_loop", "_share", "_transport")

    def __init__(self, transport: Any, feed: Callable[[bytes], None]) -> None:
        self._transport = transport
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._share = LoopShare(MAX_PARSED_BYTES)
        self._data = b""
        self._at = 0
        self._holds: set[str] = set()
        self._is_scheduled = False

    def __getattr__(self, name: str) -> Any:
        """Everything except the control of reading is delegated to the transport."""
        return getattr(self._transport, name)

    def receive(self, data: bytes) -> None:
        """Bytes from the transport."""
        if len(data) <= UNMEASURED_BYTES and not self._data and not self._holds:
            self._feed(data)
            return
        self._data = self._data[self._at :] + data if self._data else data
        self._at = 0
        self._run()

    @property
    def has_rest(self) -> bool:
        """Whether received bytes wait to be fed."""
        return self._at < len(self._data)

    def drop(self) -> None:
        """Discard waiting bytes."""
        self._data, self._at = b"", 0

    def pause_reading(self) -> None:
        """Stop feeding, on behalf of the protocol."""
        self.hold("protocol")

    def resume_reading(self) -> None:
        """Feed again."""
        self.release("protocol")

    def hold(self, reason: str) -> None:
        """Stop feeding for a reason, until `release` is called with it."""
        self._holds.add(reason)
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def release(self, reason: str) -> None:
        """Remove a reason; feed again if it was the last one."""
        if reason in self._holds:
            self._holds.discard(reason)
            self._resume()

    def _resume(self) -> None:
        if self._holds or self._transport.is_closing():
            return
        if self.has_rest:
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._run_scheduled)
        else:
            self._transport.resume_reading()

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        if not self._transport.is_closing():
            self._run()

    def _run(self) -> None:
        """Feed pieces until the budget of the turn is spent, reading is paused, or nothing is left."""
        share = self._share
        while self.has_rest and not self._holds and not self._transport.is_closing():
            piece = self._data[self._at : self._at + share.piece_bytes]
            self._at += len(piece)
            began = time.thread_time()
            self._feed(piece)
            if share.spend(len(piece), time.thread_time() - began):
                break
        if not self.has_rest:
            self.drop()
            share.end_turn()
        if self.has_rest and not self._transport.is_closing():
            self._transport.pause_reading()
        self._resume()
