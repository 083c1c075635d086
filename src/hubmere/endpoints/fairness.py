"""A bounded share of each loop turn for every connection, so that one that floods does not delay the others.

All connections share one event loop. A connection that always has input would be read again and again before any other
one is: libuv reads a socket up to 32 times in a row, and each read may hold tens of thousands of small requests. The
rule here is the same for every protocol:

1. A read is handed over in pieces. After each piece the time that it took is compared with a budget.
2. A piece that took longer than the budget makes the next ones smaller; cheap ones make them larger again, up to a
   size that is small for peers that have not signed in. A piece that took much longer bounds that size for good.
3. When the budget of a turn is spent, reading stops until the next turn, in which every other connection is served.

Time is the processor's, so that a busy machine does not look like a costly client. Small reads are not measured: one of
them per turn is always cheap, and libuv goes on to other sockets after it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

# What one connection may use of a loop turn. An innocent request takes about three turns, so that it waits for a flood
# about three times this long.
TURN_SECONDS: Final = 0.002
# Pieces never become smaller than this: the smallest requests are about ten bytes.
MIN_PIECE_BYTES: Final = 512
# Reads up to this size are handed over unmeasured.
UNMEASURED_BYTES: Final = 2048
# Pieces begin with this size, before anything is known about their cost.
FIRST_PIECE_BYTES: Final = 16 * 1024
# The largest piece of a peer that has not signed in, or that was found to send costly input: the most costly requests
# of this many bytes take less than 50 ms.
MAX_COSTLY_BYTES: Final = 64 * 1024
# A piece that takes this many times the budget was costly.
_COSTLY: Final = 5
# The largest piece that a text protocol's parser is given at once.
MAX_PARSED_BYTES: Final = 16 * 1024


class LoopShare:
    """How much of a connection's input is taken at once, by what the last pieces cost.

    Thread rule: the node's loop only.
    """

    __slots__ = ("_is_costly", "_largest_bytes", "_spent_s", "piece_bytes")

    def __init__(self, largest_bytes: int) -> None:
        self._largest_bytes = largest_bytes
        self._spent_s = 0.0
        self._is_costly = False
        self.piece_bytes = min(largest_bytes, FIRST_PIECE_BYTES)

    def spend(self, size_bytes: int, took_s: float) -> bool:
        """Note what a piece cost. True when the budget of this turn is spent; the next turn begins with a full one."""
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
        """Take larger pieces, if all have been cheap: the peer has signed in.

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
    """Hands the input of one transport to a parser in pieces; stands in for the transport where reading is paused.

    `feed` takes the pieces in order. While reading is paused, by the protocol or because the answers are not read,
    nothing is fed and what was already received waits here: at most one read of the transport.
    Thread rule: the node's loop only.
    """

    __slots__ = ("_at", "_data", "_feed", "_holds", "_is_planned", "_loop", "_share", "_transport")

    def __init__(self, transport: Any, feed: Callable[[bytes], None]) -> None:
        self._transport = transport
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._share = LoopShare(MAX_PARSED_BYTES)
        self._data = b""
        self._at = 0
        self._holds: set[str] = set()
        self._is_planned = False

    def __getattr__(self, name: str) -> Any:
        """Everything but the control of reading is the transport's."""
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
        """Forget what waits: nobody will read it."""
        self._data, self._at = b"", 0

    def pause_reading(self) -> None:
        """Take no more input: the protocol has enough to do."""
        self.hold("protocol")

    def resume_reading(self) -> None:
        """Take input again."""
        self.release("protocol")

    def hold(self, reason: str) -> None:
        """Take no more input for a reason, until that reason is gone."""
        self._holds.add(reason)
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def release(self, reason: str) -> None:
        """A reason is gone; when it was the last one, input is taken again."""
        if reason in self._holds:
            self._holds.discard(reason)
            self._go_on()

    def _go_on(self) -> None:
        if self._holds or self._transport.is_closing():
            return
        if self.has_rest:
            if not self._is_planned:
                self._is_planned = True
                self._loop.call_soon(self._run_planned)
        else:
            self._transport.resume_reading()

    def _run_planned(self) -> None:
        self._is_planned = False
        if not self._transport.is_closing():
            self._run()

    def _run(self) -> None:
        """Feed pieces until the turn's budget is spent, the protocol pauses, or nothing is left."""
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
        self._go_on()
