"""The pages while they are served: importing this brings the user-interface library along, `start` begins it."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from nicegui import app as nice
from nicegui import core, ui

from hubmere.portal.app import Receive, Scope, Send
from hubmere.portal.pages import access, audit, capture, explorer, hub, links, overview, scale

# Each registers itself when it is imported.
PAGES = (overview, hub, explorer, scale, capture, access, links, audit)

# A laptop that sleeps for a moment keeps its page; a closed tab is forgotten after this long.
_RECONNECT_SECONDS = 10.0
# A page that was away longer is loaded anew instead of being told all it missed.
_KEPT_MESSAGES = 200

_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b7a75"/>'
    '<path d="M9 7v18M23 7v18M9 16h14" stroke="#fff" stroke-width="4" stroke-linecap="round"/></svg>'
)


class RunningPages:
    """The pages while the node runs. Thread rule: the node's loop only."""

    def __init__(self, app: FastAPI, life: AbstractAsyncContextManager[Any]) -> None:
        self._app = app
        self._life = life

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket."""
        await self._app(scope, receive, send)

    async def stop(self) -> None:
        """Let go of every open page."""
        await self._life.__aexit__(None, None, None)


async def start() -> RunningPages:
    """Begin to serve the pages, in the running loop."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    # WebSocket only: one kind of connection, which the door has checked. The library would answer polling, and tell
    # browsers that pages of any origin may read the answer.
    nice.config.socket_io_js_transports = ["websocket"]
    core.sio.eio.transports = ["websocket"]
    core.sio.eio.cors_allowed_origins = []
    ui.run_with(
        app,
        title="Hubmere",
        favicon=_ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        # Packing a megabyte would hold up the node's loop; browsers keep the assets for good instead.
        gzip_middleware_factory=None,
        binding_refresh_interval=None,
        reconnect_timeout=_RECONNECT_SECONDS,
        message_history_length=_KEPT_MESSAGES,
        show_welcome_message=False,
    )
    life = app.router.lifespan_context(app)
    await life.__aenter__()
    return RunningPages(app, life)
