"""One asyncio protocol that drives any engine: bytes in, bytes out, timers, and push-back both ways.

A Session (one per connection, written per protocol) sees a Wire: something to write to that may be a TCP socket, a TLS
socket or a WebSocket. The session never touches asyncio. Everything of one connection happens on the node's loop, in
calls made by this module; an exception that escapes a session ends that connection and no other. Each connection has
a bounded share of every loop turn (`fairness`).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol, cast

from hubmere.endpoints.fairness import MAX_COSTLY_BYTES, UNMEASURED_BYTES, LoopShare

log = logging.getLogger("hubmere.connection")

# Above this many unsent bytes the session is told to stop producing: about ten writes of 64 to 128 KB.
WRITE_HIGH_WATER_BYTES = 1024 * 1024
WRITE_LOW_WATER_BYTES = 256 * 1024
# What one read takes at most, as uvloop has it.
READ_BYTES: Final = 256 * 1024
# A closed connection whose peer does not read what is left for it is ended after this time.
LINGER_SECONDS: Final = 30.0
# Where bytes arrive that have no place of their own: all connections share it, so they are copied before the next read.
SCRATCH: Final = memoryview(bytearray(READ_BYTES))


class Wire(Protocol):
    """What a session may do with its connection."""

    @property
    def peer(self) -> str:
        """The client's network address, for network rules, logs and the portal."""

    @property
    def is_secure(self) -> bool:
        """Whether TLS protects it."""

    @property
    def is_writable(self) -> bool:
        """False while the socket holds as much as it should."""

    @property
    def unsent_bytes(self) -> int:
        """What was written and is not with the operating system yet."""

    def write(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send buffers in order, in one piece where that can be; never blocks."""

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Close at once."""

    def pause_reading(self) -> None:
        """Stop taking bytes from the client."""

    def resume_reading(self) -> None:
        """Take bytes from the client again."""

    def trust_peer(self) -> None:
        """The client has signed in: it may send more at a time."""

    def call_at(self, when: float, callback: Callable[[], None]) -> "Timer":
        """Run a callback at a monotonic time."""

    def call_soon(self, callback: Callable[[], None]) -> "Timer":
        """Run a callback on the next turn of the loop."""


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None:
        """Forget it."""


class Session(Protocol):
    """What a protocol's endpoint does with one connection."""

    def on_connected(self, wire: Wire) -> None:
        """The connection is there."""

    def on_data(self, data: bytes) -> None:
        """Bytes from the client, in order."""

    def on_writable(self) -> None:
        """The socket can take more again."""

    def on_lost(self) -> None:
        """The connection is gone: free everything. Called exactly once, also after close()."""

    def stop(self) -> None:
        """The node is stopping: say good-bye in the protocol's way, then close the wire."""


class StreamSession(Session, Protocol):
    """A session that can be read for straight from a socket."""

    def get_buffer(self) -> memoryview:
        """Buffer for the next read: `SCRATCH`, or one that the session owns."""

    def buffer_updated(self, count: int) -> None:
        """The next `count` bytes from the client are in the buffer that `get_buffer` returned."""


class Registry(Protocol):
    """Who counts the connections."""

    def admit(self, stream: "Stream") -> bool:
        """Whether one more may be served; counts it if so."""

    def forget(self, stream: "Stream") -> None:
        """A connection is gone."""


class Stream(asyncio.BufferedProtocol):
    """One TCP or TLS connection and its session."""

    __slots__ = (
        "_buffer_bytes",
        "_is_paused",
        "_is_waiting_for_turn",
        "_loop",
        "_make_session",
        "_registry",
        "_share",
        "_transport",
        "is_writable",
        "peer",
        "protocol",
        "session",
    )

    def __init__(self, registry: Registry, make_session: Callable[[], StreamSession], protocol: str = "") -> None:
        # Whose share of the node's connections it uses, and the client's network address without its port.
        self.protocol = protocol
        self.peer = ""
        self._registry = registry
        self._make_session = make_session
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._share = LoopShare(MAX_COSTLY_BYTES)
        self._buffer_bytes = 0
        # Why nothing is read: the session wants it so, or the share of this turn is used up.
        self._is_paused = False
        self._is_waiting_for_turn = False
        self.session: StreamSession | None = None
        self.is_writable = True

    # --- asyncio calls these ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there; an overfull node closes it before it costs anything."""
        # uvloop's transports have the methods of asyncio's without being of that class.
        made = self._transport = cast("asyncio.Transport", transport)
        name = made.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) else ""
        if not self._registry.admit(self):
            made.abort()
            return
        made.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)
        session = self._make_session()
        self.session = session
        self._guarded(lambda: session.on_connected(self))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Buffer for the next read; `buffer_updated` follows before anything else happens."""
        buffer = SCRATCH if self.session is None else self.session.get_buffer()
        if buffer is SCRATCH and self._share.piece_bytes < READ_BYTES:
            buffer = SCRATCH[: self._share.piece_bytes]
        self._buffer_bytes = len(buffer)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes from the client."""
        if self.session is None:
            return
        is_measured = nbytes > UNMEASURED_BYTES or nbytes == self._buffer_bytes
        began = time.thread_time() if is_measured else 0.0
        try:
            self.session.buffer_updated(nbytes)
        except Exception:  # noqa: BLE001 - the top of a connection: log, and end this one only
            self._failed()
            return
        if is_measured:
            if self._share.spend(nbytes, time.thread_time() - began):
                self._wait_for_turn()
            elif nbytes < self._buffer_bytes:
                self._share.end_turn()

    def _wait_for_turn(self) -> None:
        """Read nothing more in this turn of the loop."""
        if self._transport is not None and not self._is_waiting_for_turn and not self._transport.is_closing():
            self._is_waiting_for_turn = True
            self._transport.pause_reading()
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_waiting_for_turn = False
        if not self._is_paused:
            self.resume_reading()

    def pause_writing(self) -> None:
        """The socket is full."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """The socket has room."""
        self.is_writable = True
        if self.session is not None:
            self._guarded(self.session.on_writable)

    def eof_received(self) -> bool:
        """Half-closed peers are done with us."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        session, self.session = self.session, None
        if session is not None:
            self._registry.forget(self)
            try:
                session.on_lost()
            except Exception:
                log.exception("cleaning up after a lost connection failed")
        self._transport = None

    # --- the session calls these ---

    @property
    def is_secure(self) -> bool:
        """Whether TLS protects it."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def unsent_bytes(self) -> int:
        """What waits in the transport."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send buffers; dropped when the connection is already gone."""
        if self._transport is None:
            return
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif parts:
            self._transport.writelines(parts)

    def close(self) -> None:
        """Send what is queued, then close; a peer that does not read it is given up after a while."""
        if self._transport is not None and not self._transport.is_closing():
            if self._transport.get_write_buffer_size():
                self._loop.call_later(LINGER_SECONDS, self.abort)
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop taking bytes from the client."""
        self._is_paused = True
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes from the client again, in this connection's next turn."""
        self._is_paused = False
        if self._transport is None or self._is_waiting_for_turn:
            return
        if not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def trust_peer(self) -> None:
        """The client has signed in: it may send more at a time."""
        self._share.widen(READ_BYTES)

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Run a callback at a monotonic time, under this connection's guard."""
        return self._loop.call_at(when, self._guarded, callback)

    def call_soon(self, callback: Callable[[], None]) -> asyncio.Handle:
        """Run a callback on the next turn of the loop, under this connection's guard."""
        return self._loop.call_soon(self._guarded, callback)

    def stop(self) -> None:
        """Let the session say good-bye."""
        if self.session is not None:
            self._guarded(self.session.stop)

    def _guarded(self, call: Callable[[], None]) -> None:
        if self.session is None:
            return
        try:
            call()
        except Exception:  # noqa: BLE001 - the top of a connection: log, and end this one only
            self._failed()

    def _failed(self) -> None:
        log.exception("a connection from %s failed and is closed", self.peer)
        self.abort()
