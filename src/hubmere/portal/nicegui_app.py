"""Serves the pages with NiceGUI. Importing this module imports the library; `start` starts it in the running loop."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from nicegui import app as nice
from nicegui import core, ui

from hubmere.portal.app import Receive, Scope, Send
from hubmere.portal.pages import (
    access,
    audit,
    capture,
    captured,
    explorer,
    gateways,
    hub,
    links,
    network,
    overview,
    recovery,
    roles,
    scale,
)
from hubmere.portal.pages.consumers import group, groups, processors
from hubmere.portal.pages.routes import register_not_found

# Each module registers its page when it is imported.
PAGES = (
    network,
    recovery,
    overview,
    hub,
    explorer,
    groups,
    group,
    processors,
    scale,
    capture,
    captured,
    access,
    roles,
    links,
    audit,
    gateways,
)

# What pages use of `ui`. The library imports a part of it with its first use, which would take 50 ms of the loop's time
# when the first page is built; this module is imported in a thread.
PARTS_IN_USE = (
    "add_css",
    "add_head_html",
    "button",
    "checkbox",
    "chip",
    "clipboard",
    "colors",
    "column",
    "context",
    "dark_mode",
    "dialog",
    "download",
    "echart",
    "element",
    "expansion",
    "header",
    "icon",
    "input",
    "label",
    "linear_progress",
    "link",
    "navigate",
    "notify",
    "number",
    "page",
    "page_title",
    "row",
    "run_with",
    "select",
    "space",
    "switch",
    "tab",
    "tab_panel",
    "tab_panels",
    "table",
    "tabs",
    "textarea",
    "timer",
    "toggle",
)
for _name in PARTS_IN_USE:
    getattr(ui, _name)

# A page that loses its connection can reconnect within this time; after that the node discards its state.
_RECONNECT_SECONDS = 10.0
# Messages kept for a reconnecting page; a page that missed more is reloaded.
_MAX_HISTORY_MESSAGES = 200

_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b7a75"/>'
    '<path d="M9 7v18M23 7v18M9 16h14" stroke="#fff" stroke-width="4" stroke-linecap="round"/></svg>'
)


class NiceGuiPages:
    """The running NiceGUI application. Thread rule: the node's loop only."""

    def __init__(self, app: FastAPI, lifespan: AbstractAsyncContextManager[Any]) -> None:
        self._app = app
        self._lifespan = lifespan

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request or one WebSocket."""
        await self._app(scope, receive, send)

    async def stop(self) -> None:
        """Close every open page."""
        await self._lifespan.__aexit__(None, None, None)


async def start() -> NiceGuiPages:
    """Start the application in the running loop."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    # WebSocket only, because `Portal` checks the origin of every WebSocket. The library would also accept HTTP polling
    # and allow every origin to read the responses.
    nice.config.socket_io_js_transports = ["websocket"]
    core.sio.eio.transports = ["websocket"]
    core.sio.eio.cors_allowed_origins = []
    # Quasar's progress bar for slow HTTP requests has no accessible name.
    nice.config.quasar_config["loadingBar"]["skipHijack"] = True
    ui.run_with(
        app,
        title="Hubmere",
        favicon=_ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        # Compressing a megabyte would block the node's loop; browsers cache the assets instead.
        gzip_middleware_factory=None,
        binding_refresh_interval=None,
        reconnect_timeout=_RECONNECT_SECONDS,
        message_history_length=_MAX_HISTORY_MESSAGES,
        show_welcome_message=False,
    )
    register_not_found()
    lifespan = app.router.lifespan_context(app)
    await lifespan.__aenter__()
    return NiceGuiPages(app, lifespan)
