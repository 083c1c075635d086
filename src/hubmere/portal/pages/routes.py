"""Registers pages: path, title, session of the request, and the message shown if access is refused."""

import asyncio
from collections.abc import Callable
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import ui

from hubmere.broker import refusals
from hubmere.model.errors import NotFound, Refusal
from hubmere.portal import theme
from hubmere.portal.app import SESSION_KEY
from hubmere.portal.page_garbage import PageGarbage
from hubmere.portal.sign_in.portal_session import PageContext, PortalSession

HUB_PATH = "/hub"
GROUP_PATH = "/group"
CAPTURED_PATH = "/captured"
# Pages that are named by a parameter: the hub or the group that they show.
_NAMED_BY = {HUB_PATH: "hub", GROUP_PATH: "group"}
_GARBAGE = PageGarbage()

Build = Callable[[PageContext, Request], None]


def page(path: str, title: str) -> Callable[[Build], Build]:
    """Register a page of a namespace. The builder is called inside the frame."""

    def decorate(build: Build) -> Build:
        @ui.page(f"/n/{{namespace}}{path}", title=f"{title} · Hubmere")
        async def open_page(request: Request, namespace: str) -> None:
            _GARBAGE.count_page()
            session: PortalSession = request.scope[SESSION_KEY]
            context = PageContext(session, namespace, request.scope["root_path"])
            try:
                context = PageContext(session, context.namespace.name, context.prefix)
                with theme.frame(context, path, _heading(path, title, request)):
                    # The frame takes a third of the time of a page: other clients of the node get a turn.
                    await asyncio.sleep(0)
                    _build(build, context, request)
            except Refusal as refusal:
                _show_refused(refusal)

        return build

    return decorate


def _heading(path: str, title: str, request: Request) -> str:
    """The title above the page: on the page of a hub or of a group, its name."""
    return request.query_params.get(_NAMED_BY.get(path, ""), title)


def _build(build: Build, context: PageContext, request: Request) -> None:
    """Build a page; a refusal is shown inside the frame, so that the navigation stays usable."""
    try:
        build(context, request)
    except Refusal as refusal:
        _show_refused(refusal, context.url(""))


def _show_refused(refusal: Refusal, overview: str = "/") -> None:
    is_missing = isinstance(refusal, (NotFound, refusals.GroupUnknown))
    ui.context.client.status_code = 404 if is_missing else 403
    with theme.card("Not found" if is_missing else "This page cannot be shown"):
        ui.label(refusal.text()).props('role="alert"')
        ui.link("Go to the overview", overview)


@ui.page("/")
def first(request: Request) -> RedirectResponse:
    """Redirect to the overview of the first namespace that the credential covers."""
    session: PortalSession = request.scope[SESSION_KEY]
    names = [namespace.name for namespace in session.caller.namespaces()]
    return RedirectResponse(f"{request.scope['root_path']}/n/{quote(names[0])}", 303)


def register_not_found() -> None:
    """Register the page for addresses without a page; after all other pages, because it matches everything."""

    @ui.page("/{path:path}", title="Not found · Hubmere")
    def not_found(path: str) -> None:
        ui.add_css(theme.CSS)
        with ui.column().classes("h-main"):
            _show_refused(NotFound(f"/{path}"))
