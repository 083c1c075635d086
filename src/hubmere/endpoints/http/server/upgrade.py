"""uvicorn's WebSocket connection, read in slices and with a callback when it is closed.

Loaded with the first WebSocket, because most nodes never serve one and the library behind it is large.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from hubmere.endpoints.fairness import SlicedInput
from hubmere.endpoints.http.context import log
from hubmere.endpoints.http.server.uvicorn_internals import check_internals, websocket_internals
from hubmere.endpoints.http.server.websocket import PATH

check_internals([websocket_internals(WSProtocol)])

# How long a client may leave its messages unread.
UNREAD_SECONDS = 60.0
_AMQP_PATH = b"/" + "/".join(PATH).encode()


class WebSocketProtocol(WSProtocol):  # type: ignore[misc]  # uvicorn ships no types that we follow
    """uvicorn's WebSocket with a bounded share of each loop turn, a bounded output and a callback at its end.

    Thread rule: the node's loop only.
    """

    def __init__(self, *args: Any, on_lost: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_lost = on_lost
        self._unread_deadline: asyncio.Handle | None = None

    def connection_made(self, transport: Any) -> None:
        """Read from the connection in slices from now on."""
        super().connection_made(transport)
        self.transport = self._input = SlicedInput(transport, self._feed)

    def data_received(self, data: bytes) -> None:
        """Handle bytes from the client."""
        self._input.receive(data)

    def _feed(self, data: bytes) -> None:
        """Parse one piece of input; an error closes this connection and no other."""
        try:
            super().data_received(data)
        except Exception:  # noqa: BLE001 - the top of a connection: log it and close this one only
            log.exception("closing the WebSocket connection from %s after an error", self.client)
            self._input.drop()
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read its messages, including pongs: stop reading input and start the timeout."""
        super().pause_writing()
        self._input.hold("answers")
        if self._unread_deadline is None:
            self._unread_deadline = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads its messages again."""
        self._cancel_unread_deadline()
        super().resume_writing()
        self._input.release("answers")

    def shutdown(self) -> None:
        """Close in order; if the state of the connection does not allow that, abort it."""
        try:
            super().shutdown()
        except Exception:  # noqa: BLE001 - a stopping node continues with its other connections
            log.exception("a WebSocket connection from %s could not be closed cleanly", self.client)
            self.transport.abort()

    def handle_message(self, event: Any) -> None:
        """Pass on each piece of an AMQP message as it arrives, where uvicorn would collect the whole message.

        An endless message then holds no memory, and the limits of the stream apply.
        """
        if self.scope["raw_path"].lower() != _AMQP_PATH:
            super().handle_message(event)
            return
        kind = "text" if isinstance(event.data, str) else "bytes"
        if event.data or event.message_finished:
            data = event.data if kind == "text" else bytes(event.data)
            self.queue.put_nowait({"type": "websocket.receive", kind: data})
        if not self.read_paused:  # type: ignore[has-type]  # as above
            self.read_paused = True
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's count."""
        self._cancel_unread_deadline()
        self._input.drop()
        super().connection_lost(exc)
        self._on_lost()

    def _cancel_unread_deadline(self) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None
