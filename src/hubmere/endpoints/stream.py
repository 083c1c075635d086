"""The asyncio protocol below AMQP and Kafka: bytes in, bytes out, timers, and back-pressure in both directions.

A `Session` implements one protocol for one connection. It writes to a `Wire`, which is a TCP socket, a TLS socket or a
WebSocket, and does not use asyncio. Everything of one connection runs on the node's loop, in calls made by this
module. An exception that escapes a session ends that connection and no other. Each connection has a bounded share of
every loop turn, and so have all connections together (`fairness`).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol, cast

from hubmere.endpoints.fairness import MAX_COSTLY_BYTES, UNMEASURED_BYTES, LoopShare, LoopTurn

log = logging.getLogger("hubmere.connection")

# Above this many unsent bytes `is_writable` is False: about ten writes of 64 to 128 KB.
WRITE_HIGH_WATER_BYTES = 1024 * 1024
WRITE_LOW_WATER_BYTES = 256 * 1024
# The largest read, as in uvloop.
READ_BYTES: Final = 256 * 1024
# A closed connection whose peer does not read the remaining bytes is aborted after this time.
LINGER_SECONDS: Final = 30.0
# Read buffer that all connections share; bytes in it are copied before the next read.
SCRATCH: Final = memoryview(bytearray(READ_BYTES))
# A connection of which more bytes are held for a later turn is not read meanwhile.
MAX_HELD_BYTES: Final = 4096


class Wire(Protocol):
    """What a session may do with its connection."""

    @property
    def peer(self) -> str:
        """The client's network address, for network rules, logs and the portal."""

    @property
    def is_secure(self) -> bool:
        """Whether the connection uses TLS."""

    @property
    def is_writable(self) -> bool:
        """False while too many bytes are unsent."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and that the operating system has not accepted yet."""

    def write(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send buffers in order, with one system call if possible; never blocks."""

    def close(self) -> None:
        """Send queued bytes, then close."""

    def abort(self) -> None:
        """Close at once."""

    def pause_reading(self) -> None:
        """Stop reading from the client."""

    def resume_reading(self) -> None:
        """Read from the client again."""

    def trust_peer(self) -> None:
        """The client is authenticated: it may send more at a time."""

    def call_at(self, when: float, callback: Callable[[], None]) -> "Timer":
        """Run a callback at a monotonic time."""

    def call_soon(self, callback: Callable[[], None]) -> "Timer":
        """Run a callback on the next turn of the loop."""


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Session(Protocol):
    """One connection of a protocol's endpoint."""

    def on_connected(self, wire: Wire) -> None:
        """The connection is open."""

    def on_data(self, data: bytes) -> None:
        """Bytes from the client, in order."""

    def on_writable(self) -> None:
        """The socket accepts more again."""

    def on_lost(self) -> None:
        """The connection is gone: release everything. Called exactly once, also after `close`."""

    def stop(self) -> None:
        """The node is stopping: close the protocol in its own way, then close the wire."""


class StreamSession(Session, Protocol):
    """A session that provides the buffers for reads from a socket."""

    @property
    def can_wait(self) -> bool:
        """Whether the session may be served after others when a turn of the loop has too much work."""

    def get_buffer(self) -> memoryview:
        """Buffer for the next read: `SCRATCH`, or one that the session owns."""

    def buffer_updated(self, count: int) -> None:
        """The next `count` bytes from the client are in the buffer that `get_buffer` returned."""


class Registry(Protocol):
    """Counts the connections of the node."""

    def admit(self, stream: "Stream") -> bool:
        """Whether one more connection is within the limits; counts it if so."""

    def forget(self, stream: "Stream") -> None:
        """Count a connection that is gone."""


class Stream(asyncio.BufferedProtocol):
    """One TCP or TLS connection and its session."""

    __slots__ = (
        "_buffer_bytes",
        "_held",
        "_is_held",
        "_is_paused",
        "_is_shared_buffer",
        "_is_waiting_for_turn",
        "_loop",
        "_make_session",
        "_registry",
        "_share",
        "_transport",
        "_turn",
        "is_writable",
        "peer",
        "protocol",
        "session",
    )

    def __init__(
        self, registry: Registry, make_session: Callable[[], StreamSession], turn: LoopTurn, protocol: str = ""
    ) -> None:
        # The protocol whose share of the connections it uses, and the client's network address without its port.
        self.protocol = protocol
        self.peer = ""
        self._registry = registry
        self._make_session = make_session
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._share = LoopShare(MAX_COSTLY_BYTES)
        self._turn = turn
        self._buffer_bytes = 0
        self._is_shared_buffer = True
        # Bytes that were read and wait for a later turn, and whether they are in the queue of that turn.
        self._held = b""
        self._is_held = False
        # Reasons not to read: the session has paused reading, or the share of this turn is used up.
        self._is_paused = False
        self._is_waiting_for_turn = False
        self.session: StreamSession | None = None
        self.is_writable = True

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; a full node closes the connection before it costs anything."""
        # The transports of uvloop have the methods of asyncio's class but do not inherit from it.
        made = self._transport = cast("asyncio.Transport", transport)
        name = made.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) else ""
        if not self._registry.admit(self):
            made.abort()
            return
        made.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)
        session = self._make_session()
        self.session = session
        self._run_guarded(lambda: session.on_connected(self))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Buffer for the next read; `buffer_updated` follows before anything else happens."""
        buffer = SCRATCH if self.session is None else self.session.get_buffer()
        if buffer is SCRATCH and self._share.piece_bytes < READ_BYTES:
            buffer = SCRATCH[: self._share.piece_bytes]
        self._is_shared_buffer = buffer.obj is SCRATCH.obj
        self._buffer_bytes = len(buffer)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes from the client."""
        if self.session is None:
            return
        if (self._held or not self._turn.has_time(self)) and self._is_shared_buffer:
            self._hold(bytes(SCRATCH[:nbytes]))
            return
        is_measured = nbytes > UNMEASURED_BYTES or nbytes == self._buffer_bytes
        began = time.thread_time() if is_measured else 0.0
        try:
            self.session.buffer_updated(nbytes)
        except Exception:  # noqa: BLE001 - the top of a connection: log, and end this one only
            self._on_failure()
            return
        if is_measured:
            if self._share.spend(nbytes, time.thread_time() - began):
                self._wait_for_turn()
            elif nbytes < self._buffer_bytes:
                self._share.end_turn()

    def _hold(self, data: bytes) -> None:
        """Keep a read for a later turn."""
        self._held += data
        if not self._is_held:
            self._is_held = True
            self._turn.hold(self)
        if len(self._held) > MAX_HELD_BYTES:
            self._wait_for_turn()

    @property
    def can_wait(self) -> bool:
        """Whether the session may be served after others."""
        return self.session is not None and self.session.can_wait

    def handle_held(self) -> None:
        """Handle a held read, unless the session has paused reading: then when it resumes."""
        self._is_held = False
        if self._held and not self._is_paused and self.session is not None:
            data, self._held = self._held, b""
            try:
                self.session.on_data(data)
            except Exception:  # noqa: BLE001 - the top of a connection: log, and end this one only
                self._on_failure()

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
        """The socket accepts more again."""
        self.is_writable = True
        if self.session is not None:
            self._run_guarded(self.session.on_writable)

    def eof_received(self) -> bool:
        """Close a connection whose peer has closed its side."""
        self.handle_held()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone; the client has sent what is held, and may not wait for an answer."""
        self.handle_held()
        session, self.session = self.session, None
        if session is not None:
            self._registry.forget(self)
            try:
                session.on_lost()
            except Exception:
                log.exception("cleanup after a lost connection failed")
        self._transport = None

    # --- called by the session ---

    @property
    def is_secure(self) -> bool:
        """Whether the connection uses TLS."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the transport's write buffer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send buffers; they are discarded if the connection is gone."""
        if self._transport is None:
            return
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif parts:
            self._transport.writelines(parts)

    def close(self) -> None:
        """Send queued bytes, then close; abort after a while if the peer does not read them."""
        if self._transport is not None and not self._transport.is_closing():
            if self._transport.get_write_buffer_size():
                self._loop.call_later(LINGER_SECONDS, self.abort)
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading from the client."""
        self._is_paused = True
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client again, in this connection's next turn."""
        self._is_paused = False
        if self._held and not self._is_held:
            self._is_held = True
            self._turn.hold(self)
        if self._transport is None or self._is_waiting_for_turn:
            return
        if not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def trust_peer(self) -> None:
        """The client is authenticated: it may send more at a time."""
        self._share.widen(READ_BYTES)

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Run a callback at a monotonic time; an exception ends this connection."""
        return self._loop.call_at(when, self._run_guarded, callback)

    def call_soon(self, callback: Callable[[], None]) -> asyncio.Handle:
        """Run a callback on the next turn of the loop; an exception ends this connection."""
        return self._loop.call_soon(self._run_guarded, callback)

    def stop(self) -> None:
        """Close the session in its protocol's way."""
        if self.session is not None:
            self._run_guarded(self.session.stop)

    def _run_guarded(self, call: Callable[[], None]) -> None:
        if self.session is None:
            return
        try:
            call()
        except Exception:  # noqa: BLE001 - the top of a connection: log, and end this one only
            self._on_failure()

    def _on_failure(self) -> None:
        log.exception("a connection from %s is closed because of an internal error", self.peer)
        self.abort()
