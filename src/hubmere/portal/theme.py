"""How the portal looks: colours, layout, dialogs and notices that every page shares. Light and dark, desk and phone.

Nothing here decides anything. Text that comes from clients is only ever given to elements that show it as text.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from nicegui import ui

from hubmere.broker.live import LiveHub, LiveNamespace
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.portal.app import SIGN_IN_PATH
from hubmere.portal.desk import Desk
from hubmere.portal.sessions import SignedOut

T = TypeVar("T")

# What a person does by a button; it may be awaited.
Action = Callable[..., Awaitable[None] | None]

_REFRESH_SECONDS = 1.0

CSS = """
:root { --ground: #f3f6f6; --card: #ffffff; --line: #d5dedf; --soft: #566569; --accent: #0b7a75; }
body.body--dark { --ground: #0f1719; --card: #172225; --line: #2b3a3e; --soft: #9db0b3; --accent: #4fc3b8; }
body { background: var(--ground); font-family: system-ui, sans-serif; font-size: 15px; }
a.nicegui-link, .h-link { color: var(--accent); text-decoration: none; }
a.nicegui-link:hover, .h-link:hover { text-decoration: underline; }
a:focus-visible, button:focus-visible, .q-btn:focus-visible, [tabindex]:focus-visible
  { outline: 3px solid var(--accent) !important; outline-offset: 2px; }
.nicegui-content { padding: 0; align-items: stretch; }
.h-header { background: var(--card); color: inherit; border-bottom: 1px solid var(--line); padding: 6px 14px; }
.h-header .row { width: 100%; flex-wrap: nowrap; align-items: center; gap: 10px; }
.h-brand { font-weight: 700; font-size: 1.1rem; }
.h-soft { color: var(--soft); }
.h-shell { display: flex; width: 100%; min-height: calc(100vh - 48px); }
.h-nav { background: var(--card); border-right: 1px solid var(--line); padding: 10px 8px; width: 210px;
  flex: none; }
.h-menu { display: none; }
.h-nav a { display: flex; gap: 12px; align-items: center; padding: 9px 12px; border-radius: 8px; color: inherit;
  text-decoration: none; width: 100%; }
.h-nav a:hover { background: var(--ground); text-decoration: none; }
.h-nav a[aria-current] { background: var(--ground); color: var(--accent); font-weight: 600; }
.h-main { padding: 18px; flex: 1; min-width: 0; max-width: 1500px; margin: 0 auto; gap: 16px;
  align-items: stretch; }
.h-title { font-size: 1.45rem; font-weight: 650; margin: 0; overflow-wrap: anywhere; }
.h-card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; gap: 10px;
  width: 100%; align-items: stretch; box-shadow: none; min-width: 0; }
.h-grid { display: grid; gap: 14px; width: 100%;
  grid-template-columns: repeat(auto-fill, minmax(min(310px, 100%), 1fr)); }
.h-tiles { display: grid; gap: 12px; width: 100%; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
.h-tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px; gap: 0; }
.h-tile-number { font-size: 1.3rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.h-row { display: flex; flex-wrap: wrap; gap: 10px; align-items: center; width: 100%; }
.h-row.between { justify-content: space-between; }
.h-chart { height: 190px; width: 100%; }
.h-table { width: 100%; background: transparent; box-shadow: none; }
body.body--dark .text-primary { --q-primary: #4fc3b8; }
body.body--dark .text-negative { --q-negative: #ff8a80; }
.h-row .q-btn--outline.q-btn--dense { padding: 2px 10px; }
.h-table td { font-variant-numeric: tabular-nums; }
.h-mono { font-family: ui-monospace, monospace; font-size: .85rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.h-code { width: 100%; max-height: 420px; overflow: auto; background: var(--ground); border: 1px solid var(--line);
  border-radius: 8px; padding: 10px 12px; margin: 0; }
.h-badge { border-radius: 99px; padding: 1px 10px; font-size: .8rem; border: 1px solid currentColor; }
.h-badge.wrong { color: #c5362f; } .h-badge.doubtful { color: #a86a00; } .h-badge.good { color: var(--accent); }
body.body--dark .h-badge.wrong { color: #ff8a80; } body.body--dark .h-badge.doubtful { color: #ffc266; }
.h-finding { border-left: 4px solid #d64545; padding: 4px 12px; gap: 2px; }
.h-finding.doubtful { border-color: #e0a100; }
.q-dialog .h-card { min-width: min(520px, 92vw); max-height: 90vh; overflow: auto; flex-wrap: nowrap; }
@media (max-width: 900px) { .h-menu { display: inline-flex; } .h-shell { display: block; } .h-nav { display: none; }
  .h-nav.h-open { display: block; width: 100%; border-right: 0; border-bottom: 1px solid var(--line); } }
@media (max-width: 640px) { .h-main { padding: 10px; } .h-hide-small { display: none; } .h-chart { height: 150px; } }
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a person is: their desk, the namespace they look at, and how addresses of the portal begin."""

    desk: Desk
    namespace_name: str
    prefix: str

    @property
    def namespace(self) -> LiveNamespace:
        """The namespace as it is now; raises when it has gone."""
        return self.desk.namespace(self.namespace_name)

    def hub(self, name: str) -> LiveHub:
        """A hub as it is now; raises when it has gone. Asked for anew each time: a deleted hub must not be touched."""
        return self.desk.hub(self.namespace, name)

    def may(self, right: Rights, hub: LiveHub | None = None) -> bool:
        """Whether a right is held here."""
        return self.desk.may(right, self.namespace, hub)

    def url(self, page: str, **query: str) -> str:
        """The address of a page of this namespace, below the portal."""
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return f"/n/{quote(self.namespace_name)}{page}{'?' if asked else ''}{asked}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the navigation."""

    page: str
    title: str
    icon: str
    needs: Rights
    # Whether it says nothing to the holder of a single hub's key.
    is_whole: bool = False


NAVIGATION: Sequence[Entry] = (
    Entry("", "Overview", "insights", Rights.ALL),
    Entry("/explorer", "Explorer", "search", Rights.LISTEN | Rights.SEND),
    Entry("/scale", "Scale", "speed", Rights.ALL, is_whole=True),
    Entry("/capture", "Capture", "inventory_2", Rights.ALL),
    Entry("/access", "Access", "vpn_key", Rights.MANAGE),
    Entry("/links", "Links", "device_hub", Rights.LISTEN),
    Entry("/audit", "Audit", "fact_check", Rights.MANAGE, is_whole=True),
)
_THEMES: Mapping[bool | None, tuple[bool | None, str, str]] = {
    None: (False, "brightness_auto", "Colours: as the browser prefers"),
    False: (True, "light_mode", "Colours: light"),
    True: (None, "dark_mode", "Colours: dark"),
}


# --- layout ----------------------------------------------------------------------------------------------------------


@contextmanager
def frame(place: Place, page: str, title: str) -> Iterator[None]:
    """Header and navigation around a page."""
    ui.add_css(CSS)
    ui.colors(primary="#0b7a75", secondary="#4a6265", negative="#c5362f", positive="#12856f")
    dark = ui.dark_mode(place.desk.session.theme)
    with ui.element("div").classes("h-shell"):
        navigation = _navigation(place, page)
        body = ui.column().classes("h-main")
    _header(place, navigation, dark)
    with body:
        ui.label(title).classes("h-title").props('role="heading" aria-level="1"')
        yield


def _navigation(place: Place, page: str) -> ui.element:
    principal, sees_all = place.desk.principal, place.desk.sees_all(place.namespace)
    with ui.element("nav").classes("h-nav").props('aria-label="Pages"') as navigation:
        for entry in NAVIGATION:
            if not principal.rights.allows(entry.needs) or (entry.is_whole and not sees_all):
                continue
            with ui.link(target=place.url(entry.page)) as link:
                ui.icon(entry.icon).props('aria-hidden="true"')
                ui.label(entry.title)
            if entry.page == page:
                link.props('aria-current="page"')
    return navigation


def _header(place: Place, navigation: ui.element, dark: ui.dark_mode) -> None:
    session = place.desk.session

    def turn() -> None:
        session.theme = _THEMES[session.theme][0]
        dark.value = session.theme
        show_theme()

    def show_theme() -> None:
        _, icon, text = _THEMES[session.theme]
        button.props(f'icon={icon} aria-label="{text}"')

    def sign_out() -> None:
        session.is_open = False
        ui.navigate.to(SIGN_IN_PATH)

    with ui.header().classes("h-header"), ui.row():
        menu = ui.button(icon="menu", on_click=lambda: navigation.classes(toggle="h-open"))
        menu.classes("h-menu").props('flat round dense aria-label="Menu"')
        ui.link("Hubmere", place.url("")).classes("h-brand")
        _namespace_choice(place)
        ui.space()
        ui.label(_who(place)).classes("h-soft h-hide-small")
        button = ui.button(on_click=turn).props("flat round dense")
        show_theme()
        ui.button("Sign out", on_click=sign_out).props("flat dense no-caps")


def _namespace_choice(place: Place) -> None:
    names = [str(live.entity.name) for live in place.desk.namespaces()]
    if len(names) <= 1:
        ui.label(place.namespace_name).classes("h-soft")
        return

    def go(event: Any) -> None:
        ui.navigate.to(f"/n/{quote(event.value)}")

    ui.select(names, value=place.namespace.entity.name, on_change=go).props('dense borderless aria-label="Namespace"')


def _who(place: Place) -> str:
    principal = place.desk.principal
    return "Administrator" if principal.is_admin else f"{principal.rule} ({', '.join(principal.rights.names)})"


@contextmanager
def card(title: str | None = None) -> Iterator[None]:
    """A framed part of a page."""
    with ui.column().classes("h-card"):
        if title is not None:
            heading(title)
        yield


def heading(text: str) -> None:
    """The title of a part of a page."""
    ui.label(text).props('role="heading" aria-level="2"').style("font-weight: 650")


def row(between: bool = False) -> ui.element:
    """Things beside each other that wrap on a phone."""
    return ui.element("div").classes("h-row between" if between else "h-row")


def tile(title: str) -> ui.label:
    """A number with its name; the number is what is returned."""
    with ui.column().classes("h-tile"):
        ui.label(title).classes("h-soft")
        return ui.label("").classes("h-tile-number")


def code(text: str) -> ui.element:
    """Text in a fixed width, shown as it is."""
    with ui.element("pre").classes("h-code h-mono").props('tabindex="0"') as box:
        ui.label(text)
    return box


def copied(text: str, what: str) -> None:
    """Put a text on the clipboard and say so."""
    ui.clipboard.write(text)
    ui.notify(f"{what} copied.", type="positive")


def note(text: str) -> ui.label:
    """A remark."""
    return ui.label(text).classes("h-soft")


# --- doing and following ---------------------------------------------------------------------------------------------


def told(refusal: Refusal) -> None:
    """Tell a refusal to whoever asked; one whose session has ended is led to the sign-in page."""
    if isinstance(refusal, SignedOut):
        ui.navigate.to(SIGN_IN_PATH)
    else:
        ui.notify(refusal.text(), type="negative", multi_line=True, close_button="Close", timeout=10_000)


def acting(action: Action) -> Callable[..., Awaitable[None]]:
    """An action of a person: what refuses it is told, and nothing else happens."""

    async def act(*arguments: Any) -> None:
        try:
            wanted = action(*arguments)
            if wanted is not None:
                await wanted
        except Refusal as refusal:
            told(refusal)

    return act


def follow(refresh: Callable[[], None], interval_s: float = _REFRESH_SECONDS) -> None:
    """Show something now, and again every second while the page is open."""
    over = False

    def again() -> None:
        nonlocal over
        try:
            refresh()
        except Refusal as refusal:
            timer.deactivate()
            if not over:
                told(refusal)
            over = True

    refresh()
    timer = ui.timer(interval_s, again, immediate=False)


@contextmanager
def dialog(title: str, *, has_close: bool = False) -> Iterator[ui.dialog]:
    """A dialog that is open at once and forgotten when it is closed."""
    with ui.dialog(value=True) as opened, ui.column().classes("h-card"):
        opened.on("hide", opened.delete)
        with row(between=True).style("flex-wrap: nowrap"):
            heading(title)
            if has_close:
                ui.button(icon="close", on_click=opened.close).props('flat round dense aria-label="Close"')
        yield opened


def dialog_buttons(opened: ui.dialog, label: str, action: Action) -> None:
    """The two ways out of a dialog that asks for something."""
    with row():
        ui.space()
        ui.button("Cancel", on_click=opened.close).props("flat no-caps")
        ui.button(label, on_click=acting(action)).props("no-caps unelevated")


async def confirmed(question: str, button: str, *, typed: str | None = None) -> bool:
    """Ask before something that cannot be undone; `typed` is what must be written to go on."""
    with ui.dialog() as asking, ui.column().classes("h-card"):
        ui.label(question)
        wanted = None if typed is None else ui.input(f"Type {typed} to go on").props("outlined dense autofocus")
        with row():
            ui.space()
            ui.button("Cancel", on_click=lambda: asking.submit(False)).props("flat no-caps")
            go = ui.button(button, on_click=lambda: asking.submit(True)).props("no-caps color=negative")
        if wanted is not None:
            go.bind_enabled_from(wanted, "value", lambda text: text == typed)
    answer = await asking
    asking.delete()
    return bool(answer)
