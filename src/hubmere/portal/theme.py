"""Layout and widgets that all pages share: colours, frame, navigation, dialogs and notifications.

No decisions are made here. Text from clients is only passed to elements that escape it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from nicegui import ui

from hubmere.broker import Principal
from hubmere.model.entity import Rights
from hubmere.model.errors import PartitionOpening, Refusal
from hubmere.model.security.roles import Control
from hubmere.portal.app import SIGN_IN_PATH, sign_in_url
from hubmere.portal.sign_in.logins import SignedOut
from hubmere.portal.sign_in.portal_session import PageContext

T = TypeVar("T")

# Handler of a button; may be a coroutine function.
Action = Callable[..., Awaitable[None] | None]

_REFRESH_SECONDS = 1.0

CSS = """
:root { --ground: #f3f6f6; --card: #ffffff; --line: #d5dedf; --soft: #566569; --accent: #0b7a75; }
body.body--dark { --ground: #0f1719; --card: #172225; --line: #2b3a3e; --soft: #9db0b3; --accent: #4fc3b8; }
body { background: var(--ground); font-family: system-ui, sans-serif; font-size: 15px; }
a.nicegui-link, .h-link { color: var(--accent); text-decoration: none; }
a.nicegui-link:hover, .h-link:hover { text-decoration: underline; }
/* Quasar puts up to 22 % of the text's colour behind it, which leaves a contrast of less than 4.5. */
body.desktop .q-btn:hover > .q-focus-helper, body.desktop .q-btn:focus > .q-focus-helper { opacity: .06 !important; }
a:focus-visible, button:focus-visible, .q-btn:focus-visible, [tabindex]:focus-visible
  { outline: 3px solid var(--accent) !important; outline-offset: 2px; }
.nicegui-content { padding: 0; align-items: stretch; }
.h-header { background: var(--card); color: inherit; border-bottom: 1px solid var(--line); padding: 6px 14px; }
.h-header > .row { width: 100%; flex-wrap: nowrap; align-items: center; gap: 10px; }
.h-header .q-btn { white-space: nowrap; flex-shrink: 0; }
.h-header .q-select { min-width: 96px; }
.h-header .q-field__native { white-space: nowrap; }
.h-header .q-field__native > span { overflow: hidden; text-overflow: ellipsis; max-width: 28vw; }
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
.h-tiles { display: grid; gap: 12px; width: 100%; grid-template-columns: repeat(auto-fill, minmax(125px, 1fr)); }
.h-tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px; gap: 0;
  min-width: 0; }
.h-tile-number { font-size: 1.3rem; font-weight: 650; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.h-row { display: flex; flex-wrap: wrap; gap: 10px; align-items: center; width: 100%; }
.h-row.between { justify-content: space-between; }
.h-facts { display: grid; gap: 10px 24px; margin: 0;
  grid-template-columns: repeat(auto-fill, minmax(min(270px, 100%), 1fr)); }
.h-facts dt { font-size: .85rem; } .h-facts dd { margin: 0; overflow-wrap: anywhere; }
.h-steps { margin: 0; padding: 0 16px 14px 36px; display: grid; gap: 8px; }
.h-range { border: 1px solid var(--line); background: var(--card); }
.h-range .q-btn { padding: 2px 12px; }
.h-chart { height: 190px; width: 100%; }
.h-table { width: 100%; background: transparent; box-shadow: none; }
body.body--dark .text-primary { --q-primary: #4fc3b8; }
body.body--dark .q-field--focused .q-field__label { color: #4fc3b8 !important; }
body.body--dark .text-negative { --q-negative: #ff8a80; }
.h-row .q-btn--outline.q-btn--dense { padding: 2px 10px; }
.h-table td { font-variant-numeric: tabular-nums; }
.h-table.h-acts th:last-child, .h-table.h-acts td:last-child { position: sticky; right: 0; background: var(--card); }
.h-table .q-table td.h-wraps { white-space: normal; overflow-wrap: anywhere; min-width: 140px; }
.h-table .q-table td.h-cuts { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; max-width: 220px; }
.h-table .q-table td.h-fills { width: 100%; max-width: 0; min-width: 140px; }
.h-clickable tbody tr { cursor: pointer; }
.h-sort { background: none; border: 0; padding: 0; font: inherit; color: inherit; cursor: pointer;
  text-align: inherit; }
.h-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.h-item { width: 100%; border-bottom: 1px solid var(--line); padding: 8px 2px; display: grid; gap: 2px; }
.h-item-line { display: grid; grid-template-columns: 38% 1fr; gap: 8px; }
.h-item-line > * { overflow-wrap: anywhere; }
.q-notification { font-size: 15px; }
.q-notification.bg-positive { background: #0a5c50 !important; color: #fff !important; }
.q-notification.bg-negative { background: #a3211a !important; color: #fff !important; }
.q-notification.bg-info { background: #1d4f73 !important; color: #fff !important; }
.q-notification.bg-warning { background: #6b4700 !important; color: #fff !important; }
.q-notification .q-btn { color: #fff !important; }
.q-chip { max-width: 100%; height: auto; } .q-chip__content { white-space: normal; overflow-wrap: anywhere; }
.h-mono { font-family: ui-monospace, monospace; font-size: .85rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.h-code { width: 100%; max-height: 420px; overflow: auto; background: var(--ground); border: 1px solid var(--line);
  border-radius: 8px; padding: 10px 12px; margin: 0; }
.h-badge { border-radius: 99px; padding: 1px 10px; font-size: .8rem; border: 1px solid currentColor; }
.h-badge.error { color: #c5362f; } .h-badge.warning { color: #a86a00; } .h-badge.good { color: var(--accent); }
body.body--dark .h-badge.error { color: #ff8a80; } body.body--dark .h-badge.warning { color: #ffc266; }
.h-finding { border-left: 4px solid #d64545; padding: 4px 12px; gap: 2px; }
.h-finding.warning { border-color: #e0a100; }
.q-dialog .h-card { min-width: min(520px, 92vw); max-height: 90vh; overflow: auto; flex-wrap: nowrap; }
@media (max-width: 900px) { .h-menu { display: inline-flex; } .h-shell { display: block; } .h-nav { display: none; }
  .h-nav.h-open { display: block; width: 100%; border-right: 0; border-bottom: 1px solid var(--line); } }
/* Columns beside each other would not fit: their texts are broken between words. */
@media (max-width: 1400px) { .h-table .q-table th, .h-table .q-table td { white-space: normal; padding: 4px 6px; }
  .h-table .q-table th { vertical-align: bottom; }
  .h-table .q-table th:not(.sorted) .q-table__sort-icon { display: none; }
  .h-table .q-table td.h-wraps { min-width: 90px; } .h-table .q-table td.h-cuts { max-width: 130px; }
  .h-table .q-table td.h-fills { max-width: 0; min-width: 80px; } .h-table .q-table td .q-btn { padding: 2px 4px; } }
@media (min-width: 1101px) { .h-table.h-acts td:last-child, .h-table.h-one-line .q-table td { white-space: nowrap; } }
@media (max-width: 640px) { .h-main { padding: 10px; } .h-hide-small { display: none; } .h-chart { height: 150px; } }
"""

# Tab stays in the topmost dialog: from its last control to its first, and back with Shift (ARIA Authoring Practices,
# modal dialogs). Quasar lets the focus reach the page behind.
_FOCUS_TRAP = """
document.addEventListener("keydown", (event) => {
  const dialog = event.key === "Tab" && [...document.querySelectorAll(".q-dialog[role=dialog]")].at(-1);
  if (!dialog) return;
  const stops = [...dialog.querySelectorAll("a[href], button, input, textarea, [tabindex]")]
    .filter((element) => element.tabIndex >= 0 && !element.disabled && element.checkVisibility());
  const [end, start] = event.shiftKey ? [stops[0], stops.at(-1)] : [stops.at(-1), stops[0]];
  const focused = document.activeElement;
  if (start && (focused === end || !dialog.contains(focused))) {
    event.preventDefault();
    start.focus();
  }
});
"""

# Enter in a field confirms the dialog, as in a form. In a list it chooses an option; in a text area it is a line end.
_ENTER_CONFIRMS = """
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing || event.repeat) return;
  if (!event.target.matches(".q-dialog input:not([role=combobox])")) return;
  event.target.closest(".q-dialog").querySelector("button.h-default:not([disabled])")?.click();
});
"""

# The node refuses the WebSocket of a login that has ended, as after a restart, and NiceGUI tries to connect for ever.
# The portal redirects the requests of such a page, and answers a HEAD of any other page without building it.
_LEAVE_WITHOUT_LOGIN = """
setInterval(async () => {
  if (!window.socket || window.socket.connected) return;
  const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" }).catch(() => null);
  if (answer?.type === "opaqueredirect") location.reload();
}, 3000);
"""


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """One link of the navigation."""

    page: str
    title: str
    icon: str
    required: Rights
    # Whether the page needs a credential of the namespace rather than of one hub.
    needs_namespace: bool = False
    # Whether a role that may read the management plane is enough.
    is_for_readers: bool = False
    # Whether only gateways of a cluster have the page.
    is_for_clusters: bool = False


NAVIGATION: Sequence[NavigationEntry] = (
    NavigationEntry("", "Overview", "insights", Rights.ALL, is_for_readers=True),
    NavigationEntry("/explorer", "Explorer", "search", Rights.LISTEN | Rights.SEND),
    NavigationEntry("/groups", "Groups", "groups", Rights.LISTEN, is_for_readers=True),
    NavigationEntry("/processors", "Processors", "sync", Rights.LISTEN, is_for_readers=True),
    NavigationEntry("/scale", "Scale", "speed", Rights.ALL, needs_namespace=True, is_for_readers=True),
    NavigationEntry("/capture", "Capture", "inventory_2", Rights.ALL, is_for_readers=True),
    NavigationEntry("/access", "Access", "vpn_key", Rights.MANAGE),
    NavigationEntry("/roles", "Roles", "badge", Rights.MANAGE, is_for_readers=True),
    NavigationEntry("/network", "Network", "lan", Rights.MANAGE, needs_namespace=True),
    NavigationEntry("/recovery", "Recovery", "sync_alt", Rights.MANAGE, needs_namespace=True),
    NavigationEntry("/links", "Links", "device_hub", Rights.LISTEN, is_for_readers=True),
    NavigationEntry("/audit", "Audit", "fact_check", Rights.MANAGE, needs_namespace=True),
    NavigationEntry("/gateways", "Gateways", "dns", Rights.ALL, is_for_readers=True, is_for_clusters=True),
)
_THEMES: Mapping[bool | None, tuple[bool | None, str, str]] = {
    None: (False, "brightness_auto", "Colours: browser default"),
    False: (True, "light_mode", "Colours: light"),
    True: (None, "dark_mode", "Colours: dark"),
}


# --- layout ----------------------------------------------------------------------------------------------------------


@contextmanager
def frame(context: PageContext, page: str, title: str) -> Iterator[None]:
    """Header and navigation around a page."""
    ui.add_css(CSS)
    ui.add_head_html(f"<script>{_FOCUS_TRAP}{_ENTER_CONFIRMS}{_LEAVE_WITHOUT_LOGIN}</script>")
    ui.colors(primary="#0b7a75", secondary="#4a6265", negative="#c5362f", positive="#12856f")
    ui.page_title(f"{title} · {context.namespace_name} · Hubmere")
    dark = ui.dark_mode(context.session.login.theme)
    with ui.element("div").classes("h-shell"):
        navigation = _navigation(context, page)
        body = ui.column().classes("h-main")
    _header(context, navigation, dark)
    # Every page, also one that does not refresh itself, closes when its login ends.
    ui.timer(_REFRESH_SECONDS, action_handler(lambda: _require_login(context)))
    with body:
        ui.label(title).classes("h-title").props('role="heading" aria-level="1"')
        yield


def _require_login(context: PageContext) -> None:
    """Raise if the login has ended."""
    context.session.caller  # noqa: B018  the property raises


def _navigation(context: PageContext, page: str) -> ui.element:
    principal, covers_namespace = context.caller.principal, context.covers_namespace
    with ui.element("nav").classes("h-nav").props('aria-label="Pages"') as navigation:
        for entry in NAVIGATION:
            if not _is_shown(entry, principal) or (entry.needs_namespace and not covers_namespace):
                continue
            if entry.is_for_clusters and not context.session.broker.gateways():
                continue
            with ui.link(target=context.url(entry.page)) as link:
                ui.icon(entry.icon).props('aria-hidden="true"')
                ui.label(entry.title)
            if entry.page == page:
                link.props('aria-current="page"')
    return navigation


def _is_shown(entry: NavigationEntry, principal: Principal) -> bool:
    control = principal.control_anywhere
    if principal.rights.allows(entry.required) or (entry.is_for_readers and control >= Control.READ):
        return True
    return bool(entry.required & Rights.MANAGE) and control >= Control.WRITE


def _header(context: PageContext, navigation: ui.element, dark: ui.dark_mode) -> None:
    login = context.session.login

    def switch_theme() -> None:
        login.theme = _THEMES[login.theme][0]
        dark.value = login.theme
        show_theme()

    def show_theme() -> None:
        _, icon, text = _THEMES[login.theme]
        button.props(f'icon={icon} aria-label="{text}"')

    def sign_out() -> None:
        login.sign_out()
        ui.navigate.to(SIGN_IN_PATH)

    with ui.header().classes("h-header"), ui.row():
        menu = ui.button(icon="menu", on_click=lambda: navigation.classes(toggle="h-open"))
        menu.classes("h-menu").props('flat round dense aria-label="Menu"')
        ui.link("Hubmere", context.url("")).classes("h-brand")
        _namespace_choice(context)
        ui.space()
        ui.label(_principal_label(context)).classes("h-soft h-hide-small")
        button = ui.button(on_click=switch_theme).props("flat round dense")
        show_theme()
        ui.button("Sign out", on_click=sign_out).props("flat dense no-caps")


def _namespace_choice(context: PageContext) -> None:
    names = [str(namespace.name) for namespace in context.caller.namespaces()]
    if len(names) <= 1:
        ui.label(context.namespace_name).classes("h-soft")
        return

    def open_namespace(event: Any) -> None:
        ui.navigate.to(f"/n/{quote(event.value)}")

    ui.select(names, value=context.namespace.name, on_change=open_namespace).props(
        'dense borderless aria-label="Namespace"'
    )


def _principal_label(context: PageContext) -> str:
    principal, name = context.caller.principal, context.session.login.name
    if name:
        return name
    return "Administrator" if principal.is_admin else f"{principal.rule} ({', '.join(principal.rights.names)})"


@contextmanager
def card(title: str | None = None) -> Iterator[None]:
    """A framed section of a page."""
    with ui.column().classes("h-card"):
        if title is not None:
            heading(title)
        yield


def heading(text: str) -> None:
    """The heading of a section."""
    ui.label(text).props('role="heading" aria-level="2"').style("font-weight: 650")


def row(between: bool = False) -> ui.element:
    """A horizontal row that wraps on small screens."""
    return ui.element("div").classes("h-row between" if between else "h-row")


def choice(
    options: Sequence[str],
    value: str,
    label: str,
    *,
    on_change: Callable[[Any], Any] | None = None,
    min_width_px: int = 0,
) -> ui.select:
    """A choice of one among many, such as the hubs of a namespace.

    NiceGUI builds the list of options again with each change of an element, which takes 7 ms for 1,000 hubs. So the
    options are set last.
    """
    found = ui.select([value], value=value, label=label, with_input=True, on_change=on_change).props("outlined dense")
    if min_width_px:
        found.style(f"min-width: {min_width_px}px")
    return found.set_options(list(options))


def tile(title: str) -> ui.label:
    """A tile with a title and a number. Returns the label of the number."""
    with ui.column().classes("h-tile"):
        ui.label(title).classes("h-soft")
        return ui.label("").classes("h-tile-number")


def fact(name: str, value: str) -> ui.label:
    """A name and its value in a list of facts. Returns the label of the value."""
    with ui.element("div"):
        with ui.element("dt").classes("h-soft"):
            ui.label(name)
        with ui.element("dd"):
            return ui.label(value)


def code(text: str) -> ui.element:
    """Preformatted text in a monospace font."""
    with ui.element("pre").classes("h-code h-mono").props('tabindex="0"') as box:
        ui.label(text)
    return box


def copy_to_clipboard(text: str, what: str) -> None:
    """Copy a text to the clipboard and notify the person."""
    ui.clipboard.write(text)
    ui.notify(f"{what} copied.", type="positive")


def note(text: str) -> ui.label:
    """A line of secondary text."""
    return ui.label(text).classes("h-soft")


def status() -> ui.label:
    """A line for the result of an action, read out by screen readers. It has its height before it has a text."""
    return note("").props('role="status"').style("min-height: 1lh")


# --- actions and refresh ---------------------------------------------------------------------------------------------

_DEFECT = "This action failed because of a defect in Hubmere. The log of the node says what happened."


def show_refusal(refusal: Refusal, *, is_last: bool = False) -> None:
    """Show a refusal as a notification. If the login has ended, go to the sign-in page.

    `is_last` is for a page that cannot be refreshed any more: the notification says so and stays.
    """
    if isinstance(refusal, SignedOut):
        request = ui.context.client.request
        path = request.url.path.removeprefix(request.scope["root_path"])
        ui.navigate.to(sign_in_url(path, request.url.query))
    else:
        text = f"{refusal.text()} This page is no longer updated." if is_last else refusal.text()
        timeout_ms = 0 if is_last else 10_000
        ui.notify(text, type="negative", multi_line=True, close_button="Close", timeout=timeout_ms)


def action_handler(action: Action) -> Callable[..., Awaitable[None]]:
    """Wrap a button handler: a refusal is shown as a notification, and a defect of the portal as one that stays."""

    async def act(*arguments: Any) -> None:
        try:
            pending = action(*arguments)
            if pending is not None:
                await pending
        except Refusal as refusal:
            show_refusal(refusal)
        except Exception:
            ui.notify(_DEFECT, type="negative", multi_line=True, close_button="Close", timeout=0)
            raise  # NiceGUI logs it

    return act


def refresh_regularly(refresh: Callable[[], None], interval_s: float = _REFRESH_SECONDS) -> None:
    """Call `refresh` now and every second while the page is open, until it raises a refusal.

    A log that is being opened is no reason to stop.
    """
    has_failed = False

    def refresh_again() -> None:
        nonlocal has_failed
        try:
            refresh()
        except PartitionOpening:
            return
        except Refusal as refusal:
            timer.deactivate()
            if not has_failed:
                show_refusal(refusal, is_last=True)
            has_failed = True

    refresh()
    timer = ui.timer(interval_s, refresh_again, immediate=False)


@contextmanager
def dialog(title: str, *, has_close: bool = False) -> Iterator[ui.dialog]:
    """Open a dialog; it is deleted when it is closed."""
    with ui.context.client.content, ui.dialog(value=True) as box, ui.column().classes("h-card"):
        box.props["aria-label"] = title
        box.on("hide", box.delete)
        with row(between=True).style("flex-wrap: nowrap"):
            heading(title)
            if has_close:
                ui.button(icon="close", on_click=box.close).props('flat round dense aria-label="Close"')
        yield box


def dialog_buttons(box: ui.dialog, label: str, action: Action) -> None:
    """The Cancel button and the button that confirms a dialog. A double click confirms it once."""
    is_running = False

    async def run_once() -> None:
        nonlocal is_running
        if is_running or not box.value:
            return
        is_running = True
        try:
            pending = action()
            if pending is not None:
                await pending
        finally:
            is_running = False

    with row():
        ui.space()
        ui.button("Cancel", on_click=box.close).props("flat no-caps")
        ui.button(label, on_click=action_handler(run_once)).props("no-caps unelevated").classes("h-default")


async def confirm(question: str, button: str, *, typed: str | None = None) -> bool:
    """Ask for confirmation. `typed` is a text that the person must type first."""
    with ui.dialog() as box, ui.column().classes("h-card"):
        box.props["aria-label"] = question
        ui.label(question)
        field = None if typed is None else ui.input(f"Type {typed} to confirm").props("outlined dense autofocus")
        with row():
            ui.space()
            ui.button("Cancel", on_click=lambda: box.submit(False)).props("flat no-caps")
            accept = ui.button(button, on_click=lambda: box.submit(True)).props("no-caps color=negative")
            accept.classes("h-default")
        if field is not None:
            accept.bind_enabled_from(field, "value", lambda text: text == typed)
    answer = await box
    # The person may have left the page.
    if not box.is_deleted:
        box.delete()
    return bool(answer)
