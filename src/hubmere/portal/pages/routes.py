"""How a page is found and opened: its path, the desk of whoever asks, and what is shown when it is not for them."""

from collections.abc import Callable
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import ui

from hubmere.model.errors import Refusal
from hubmere.portal import theme
from hubmere.portal.app import DESK
from hubmere.portal.desk import Desk
from hubmere.portal.theme import Place

HUB_PATH = "/hub"

Build = Callable[[Place, Request], None]


def page(path: str, title: str) -> Callable[[Build], Build]:
    """A page of a namespace; the builder is called inside the frame."""

    def decorate(build: Build) -> Build:
        @ui.page(f"/n/{{namespace}}{path}", title=f"{title} · Hubmere")
        def opened(request: Request, namespace: str) -> None:
            desk: Desk = request.scope[DESK]
            place = Place(desk, namespace, request.scope["root_path"])
            try:
                place = Place(desk, place.namespace.entity.name, place.prefix)
                with theme.frame(place, path, _heading(path, title, request)):
                    _guarded(build, place, request)
            except Refusal as refusal:
                _refused(refusal)

        return build

    return decorate


def _heading(path: str, title: str, request: Request) -> str:
    """What stands above a page: a hub's own page is headed by the hub's name."""
    return request.query_params.get("hub", title) if path == HUB_PATH else title


def _guarded(build: Build, place: Place, request: Request) -> None:
    """A page that its reader may not see says so inside the frame, so that the way back is there."""
    try:
        build(place, request)
    except Refusal as refusal:
        _refused(refusal)


def _refused(refusal: Refusal) -> None:
    ui.context.client.status_code = 403
    with theme.card("This cannot be shown"):
        ui.label(refusal.text()).props('role="alert"')


@ui.page("/")
def first(request: Request) -> RedirectResponse:
    """The overview of the first namespace that a person reaches."""
    desk: Desk = request.scope[DESK]
    names = [live.entity.name for live in desk.namespaces()]
    return RedirectResponse(f"{request.scope['root_path']}/n/{quote(names[0])}", 303)
