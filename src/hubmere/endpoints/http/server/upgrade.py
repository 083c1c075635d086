"""A WebSocket on a connection that began as HTTP: uvicorn's, read in slices, which tells when it is gone.

Loaded with the first upgrade and not before: most nodes never see one, and the library behind it is not small.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from hubmere.endpoints.fairness import SlicedInput
from hubmere.endpoints.http.context import log
from hubmere.endpoints.http.server.uvicorn_seam import check_seams, websocket_seam
from hubmere.endpoints.http.server.websocket import PATH

check_seams([websocket_seam(WSProtocol)])

# A client that has not read what was written for so long does not read at all.
UNREAD_SECONDS = 60.0
_AMQP_PATH = b"/" + "/".join(PATH).encode()


class WebSocketProtocol(WSProtocol):  # type: ignore[misc]  # uvicorn ships no types that we follow
    """uvicorn's WebSocket with a bounded share of each loop turn, bounded answers, and a call at its end.

    Thread rule: the node's loop only.
    """

    def __init__(self, *args: Any, on_lost: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_lost = on_lost
        self._unread_deadline: asyncio.Handle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin: reading is controlled through the slices from here on."""
        super().connection_made(transport)
        self.transport = self._input = SlicedInput(transport, self._feed)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        self._input.receive(data)

    def _feed(self, data: bytes) -> None:
        """One piece of input; what the library cannot read ends this connection and no other."""
        try:
            super().data_received(data)
        except Exception:  # noqa: BLE001 - the top of a connection: log, and end this one only
            log.exception("a WebSocket connection from %s failed and is closed", self.client)
            self._input.drop()
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read its answers, pongs among them: it has some time, and no more is read from it."""
        super().pause_writing()
        self._input.hold("answers")
        if self._unread_deadline is None:
            self._unread_deadline = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads."""
        self._cancel_unread_deadline()
        super().resume_writing()
        self._input.release("answers")

    def shutdown(self) -> None:
        """Say good-bye; a connection whose state allows no good-bye is closed without."""
        try:
            super().shutdown()
        except Exception:  # noqa: BLE001 - a stopping node goes on with its other connections
            log.exception("a WebSocket connection from %s could not be closed in order", self.client)
            self.transport.abort()

    def handle_message(self, event: Any) -> None:
        """uvicorn gathers whole messages; AMQP is a stream, of which each piece is handed on as it comes.

        So an endless message holds no memory, and the stream's own limits hold.
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
