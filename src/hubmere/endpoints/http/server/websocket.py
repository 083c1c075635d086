"""AMQP over WebSocket: the same session as on TCP, on a stream of binary messages (reference: AMQP 7).

Incoming message boundaries are ignored. Each outgoing message holds one AMQP frame, because some clients size their
buffers by it. The session gets input in slices, as on TCP. Back-pressure works both ways: nothing is received while the
session has paused reading, and the session stops producing when too much output is queued.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from hubmere.endpoints.fairness import MAX_COSTLY_BYTES, LoopShare
from hubmere.endpoints.http.context import Receive, Scope, Send, client_address, log
from hubmere.endpoints.stream import READ_BYTES, WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES, Session

PATH = ("$servicebus", "websocket")
# The Azure service's own name, and the registered one.
SUBPROTOCOLS = ("AMQPWSB10", "amqp")

_NORMAL_CLOSURE = 1000
_UNSUPPORTED_DATA = 1003
_INTERNAL_ERROR = 1011
_POLICY_VIOLATION = 1008
# How long a closing connection may take to send its queue.
_GOODBYE_SECONDS = 1.0
_PROTOCOL_HEADER = b"AMQP"
_PROTOCOL_HEADER_BYTES = 8


class FrameSplitter:
    """Splits the outgoing byte stream at AMQP frame boundaries; an incomplete frame waits for the next write."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def split(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """The frames that are complete now."""
        stream = memoryview(self._rest + data if self._rest else data)
        at = 0
        while len(stream) - at >= _PROTOCOL_HEADER_BYTES:
            head = bytes(stream[at : at + 4])
            size = _PROTOCOL_HEADER_BYTES if head == _PROTOCOL_HEADER else int.from_bytes(head, "big")
            if len(stream) - at < size:
                break
            yield bytes(stream[at : at + size])
            at += size
        self._rest = bytes(stream[at:])


class WebSocketWire:
    """A Wire over one accepted WebSocket.

    Thread rule: the node's loop only.
    """

    def __init__(self, scope: Scope, session: Session) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._splitter = FrameSplitter()
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._is_full = False
        self._is_closing = False
        self._is_lost = False
        self._code = _NORMAL_CLOSURE
        self._has_output = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._share = LoopShare(MAX_COSTLY_BYTES)
        self.peer = client_address(scope)
        self.is_secure = scope["scheme"] == "wss"

    # --- the session calls these ---

    @property
    def is_writable(self) -> bool:
        """Whether the output queue is below its limit."""
        return not self._is_full

    @property
    def unsent_bytes(self) -> int:
        """Size of the output queue."""
        return self._queued_bytes

    def write(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send bytes; dropped once the connection is closing."""
        if self._is_closing or self._is_lost:
            return
        for data in parts:
            for frame in self._splitter.split(data):
                self._frames.append(frame)
                self._queued_bytes += len(frame)
        self._is_full = self._is_full or self._queued_bytes > WRITE_HIGH_WATER_BYTES
        self._has_output.set()

    def close(self) -> None:
        """Send what is queued, then close."""
        self._is_closing = True
        self._has_output.set()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._frames.clear()
        self._has_output.set()

    def pause_reading(self) -> None:
        """Stop reading from the client."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Read from the client again."""
        self._may_read.set()

    def trust_peer(self) -> None:
        """Accept larger slices: the client is authenticated."""
        self._share.widen(READ_BYTES)

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Run a callback at a monotonic time, within `call_session`."""
        return self._loop.call_at(when, self.call_session, callback)

    def call_soon(self, callback: Callable[[], None]) -> asyncio.Handle:
        """Run a callback on the next turn of the loop, within `call_session`."""
        return self._loop.call_soon(self.call_session, callback)

    # --- the endpoint calls these ---

    @property
    def is_ending(self) -> bool:
        """Whether the session has closed the wire."""
        return self._is_closing

    def call_session(self, call: Callable[[], None]) -> None:
        """Call into the session; an error closes this connection and no other."""
        if self._is_lost:
            return
        try:
            call()
        except Exception:  # noqa: BLE001 - the top of a connection: log it and close this one only
            log.exception("closing the WebSocket connection from %s after an error", self.peer)
            self._code = _INTERNAL_ERROR
            self.abort()

    def on_lost(self) -> None:
        """The connection is closed: notify the session, once."""
        if not self._is_lost:
            self.call_session(self._session.on_lost)
            self._is_lost = True

    async def receive_all(self, receive: Receive) -> None:
        """Pass input to the session until the client disconnects."""
        while True:
            await self._may_read.wait()
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            data: bytes | None = message.get("bytes")
            if data is None:
                # AMQP travels in binary messages only (AMQP WebSocket binding, 2.2).
                self._code = _UNSUPPORTED_DATA
                self.close()
                return
            await self._deliver(data)

    async def _deliver(self, data: bytes) -> None:
        """Pass one message to the session in slices, between which other connections are served."""
        share, at = self._share, 0
        while at < len(data):
            await self._may_read.wait()
            piece = data[at : at + share.piece_bytes]
            at += len(piece)
            began = time.thread_time()
            self.call_session(partial(self._session.on_data, piece))
            if share.spend(len(piece), time.thread_time() - began):
                await asyncio.sleep(0)

    async def send_all(self, send: Send) -> None:
        """Send the output queue until the session closes the wire."""
        while not (self._is_closing and not self._frames):
            await self._has_output.wait()
            self._has_output.clear()
            while self._frames:
                frame = self._frames.popleft()
                await send({"type": "websocket.send", "bytes": frame})
                self._on_sent(len(frame))
        await send({"type": "websocket.close", "code": self._code})

    def _on_sent(self, size_bytes: int) -> None:
        self._queued_bytes -= size_bytes
        if self._is_full and self._queued_bytes <= WRITE_LOW_WATER_BYTES:
            self._is_full = False
            self.call_session(self._session.on_writable)


class WebSocketEndpoint:
    """Accepts AMQP over WebSocket and runs a session on each connection."""

    def __init__(self, make_session: Callable[[], Session]) -> None:
        self._make_session = make_session
        self._open: dict[WebSocketWire, Session] = {}

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket until it is closed."""
        await receive()
        offered = [name for name in scope["subprotocols"] if name.lower() in map(str.lower, SUBPROTOCOLS)]
        if not offered:
            await refuse(send)
            return
        await send({"type": "websocket.accept", "subprotocol": offered[0]})
        session = self._make_session()
        wire = WebSocketWire(scope, session)
        self._open[wire] = session
        try:
            wire.call_session(lambda: session.on_connected(wire))
            await _run_both_directions(wire, receive, send)
        finally:
            wire.on_lost()
            del self._open[wire]

    def stop(self) -> None:
        """Close every session in order: the node is stopping."""
        for wire, session in list(self._open.items()):
            wire.call_session(session.stop)


async def refuse(send: Send) -> None:
    """Refuse a WebSocket request for an unknown path or subprotocol."""
    await send({"type": "websocket.close", "code": _POLICY_VIOLATION})


async def _run_both_directions(wire: WebSocketWire, receive: Receive, send: Send) -> None:
    """Run both directions until one of them ends. A client that disconnects is a normal end."""
    receiving = asyncio.create_task(wire.receive_all(receive))
    sending = asyncio.create_task(wire.send_all(send))
    try:
        await asyncio.wait((receiving, sending), return_when=asyncio.FIRST_COMPLETED)
        if receiving.done() and not sending.done() and wire.is_ending:
            await asyncio.wait((sending,), timeout=_GOODBYE_SECONDS)
    finally:
        for task in (receiving, sending):
            task.cancel()
        for task in (receiving, sending):
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await task
