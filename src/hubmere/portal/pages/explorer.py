"""Explorer page: page through events, search and filter them, follow new ones, open, export and send them."""

from collections.abc import Mapping, Sequence

from fastapi import Request
from nicegui import ui

from hubmere.broker import HubView
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.model.position import Position
from hubmere.portal import formatting, theme
from hubmere.portal.events import search
from hubmere.portal.events.scan import Scan
from hubmere.portal.events.search import FoundEvent, Tail
from hubmere.portal.pages.parts.event import open_event
from hubmere.portal.pages.parts.event_search import FIELD_STYLE, EventSearch, FilterFields
from hubmere.portal.pages.parts.event_table import row_key
from hubmere.portal.pages.parts.send import resend_dialog, send_dialog
from hubmere.portal.pages.routes import CAPTURED_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext

_ALL = "all"
_NEWEST = "last"
_KINDS = {
    _NEWEST: "Newest events",
    "first": "Oldest events",
    "sequence": "From a sequence number",
    "offset": "From an offset",
    "time": "From a time (UTC)",
}
_PLAIN_KINDS = (_NEWEST, "first")
_TAIL_SECONDS = 0.5


@page("/explorer", "Explorer")
def explorer(context: PageContext, request: Request) -> None:
    """Choice of a hub, its events, and the dialog that sends an event."""
    names = [str(hub.name) for hub in context.hubs()]
    if not names:
        theme.note("There are no event hubs yet.")
        ui.link("Create one on the overview", context.url(""))
        return
    wanted = request.query_params.get("hub") or names[0]
    name = str(context.hub(wanted).name)
    with theme.card(), theme.row():
        theme.choice(
            names, name, "Event hub", on_change=lambda event: _open_hub(context, event.value), min_width_px=220
        )
        ui.space()
        if context.hub(name).entity.capture is not None and context.may(Rights.LISTEN, context.hub(name)):
            ui.link("Captured files", context.url(CAPTURED_PATH, hub=name))
        if context.may(Rights.SEND, context.hub(name)):
            ui.button("Send event", on_click=theme.action_handler(lambda: send_dialog(context, name))).props(
                "no-caps unelevated"
            )
    if context.may(Rights.LISTEN, context.hub(name)):
        _Events(context, name, request.query_params)
    else:
        theme.note("To see events, sign in with a key that has the Listen right.")


def _open_hub(context: PageContext, hub: str | None) -> None:
    if hub:
        ui.navigate.to(context.url("/explorer", hub=hub))


def _one_of(options: Sequence[str], wanted: str | None) -> str:
    """The wanted option if there is one of this name, else the first one."""
    return wanted if wanted is not None and wanted in options else options[0]


class _Form:
    """The fields of a search, with the values in the address of the page."""

    def __init__(self, hub: HubView, on_search: theme.Action, query: Mapping[str, str]) -> None:
        search_again = theme.action_handler(on_search)
        partitions = [_ALL, *hub.entity.partition_ids]
        with theme.row():
            self.partition = ui.select(partitions, value=_one_of(partitions, query.get("partition")), label="Partition")
            self.kind = ui.select(_KINDS, value=_one_of(list(_KINDS), query.get("from")), label="Search")
            self._value = ui.input("Value", value=query.get("at", "")).on("keydown.enter", search_again)
            self._value.bind_visibility_from(self.kind, "value", lambda kind: kind not in _PLAIN_KINDS)
            for field in (self.partition, self.kind, self._value):
                field.props("outlined dense").style(FIELD_STYLE)
            self.filter = FilterFields(on_search, query)

    def query(self) -> dict[str, str]:
        """The fields that differ from those of a new page, as parameters of its address."""
        found = {} if self.partition.value == _ALL else {"partition": str(self.partition.value)}
        if self.kind.value != _NEWEST:
            found["from"] = str(self.kind.value)
        if self.kind.value not in _PLAIN_KINDS:
            found["at"] = (self._value.value or "").strip()
        return found | self.filter.query()

    def partitions(self, hub: HubView) -> tuple[int, ...]:
        """The chosen partitions."""
        chosen = self.partition.value
        return tuple(range(hub.partition_count)) if chosen == _ALL else (int(chosen),)

    @property
    def newest_first(self) -> bool:
        """Whether the newest events come first."""
        return bool(self.kind.value == _NEWEST)

    def position(self) -> Position:
        """Where the search begins."""
        return search.parse_position("first" if self.newest_first else self.kind.value, self._value.value or "")


class _Events:
    """The table of events: pages of a search, or new events."""

    def __init__(self, context: PageContext, hub: str, query: Mapping[str, str]) -> None:
        self._context = context
        self._hub = hub
        self._tail: Tail | None = None
        with theme.card():
            self._form = _Form(context.hub(hub), self._search_again, query)
            self._search = EventSearch[list[tuple[int, int, int]]](
                new_scan=self._new_scan,
                require_right=self._readable_hub,
                on_open=self._open,
                file_name=hub,
                add_controls=self._add_live_switch,
                on_search=self._begin_search,
            )
        self._timer = ui.timer(_TAIL_SECONDS, theme.action_handler(self._show_new_events), active=False)
        ui.timer(0.05, theme.action_handler(self._search.search), once=True)

    def _add_live_switch(self) -> None:
        self._live = ui.switch("Live", on_change=theme.action_handler(self._switch_live))

    def _readable_hub(self) -> HubView:
        """The hub; refused if the person no longer has the Listen right."""
        hub = self._context.hub(self._hub)
        self._context.require(Rights.LISTEN, hub)
        return hub

    # --- search ---

    async def _search_again(self) -> None:
        await self._search.search()

    def _begin_search(self) -> None:
        """A reload, a bookmark and the back button find the same search again."""
        self._live.value = False
        address = self._context.url("/explorer", hub=self._hub, **self._form.query())
        ui.navigate.history.replace(self._context.prefix + address)

    async def _new_scan(self) -> Scan:
        hub = self._readable_hub()
        scan = Scan(self._context, hub, self._form.filter.event_filter(), newest_first=self._form.newest_first)
        position, partitions = self._form.position(), self._form.partitions(hub)
        await search.until_open(hub, partitions)
        scan.start(dict.fromkeys(partitions, position))
        return scan

    # --- live tail ---

    def _switch_live(self) -> None:
        self._timer.active = bool(self._live.value)
        self._tail = None
        if self._live.value:
            hub = self._readable_hub()
            self._search.stop()
            self._tail = Tail(self._context, hub, self._form.partitions(hub))
            self._tail.start()
            self._search.set_status("Live: new events appear here.", is_live=True)

    def _show_new_events(self) -> None:
        try:
            hub = self._readable_hub()
        except Refusal:
            # The hub or the right is gone: one message is enough.
            self._live.value = False
            raise
        tail = self._tail
        if tail is None or tail.hub is not hub:
            self._live.value = False
            return
        wanted = self._form.filter.event_filter()
        self._add([hit for hit in tail.read_new() if wanted.matches(hit.event)])
        if tail.skipped:
            text = f"Live: skipped {formatting.quantity(tail.skipped, 'event')}, which arrived too fast."
            self._search.set_status(text, is_live=True)

    def _add(self, hits: Sequence[FoundEvent]) -> None:
        if hits:
            known = {row_key(hit): hit for hit in (*self._search.events, *hits)}
            newest = sorted(known.values(), key=lambda hit: (-hit.event.enqueued_ms, -hit.event.sequence))
            self._search.show(newest[: search.MAX_LISTED_EVENTS])

    def _open(self, hit: FoundEvent) -> None:
        may_send = self._context.may(Rights.SEND, self._context.hub(self._hub))
        resend = (lambda: resend_dialog(self._context, self._hub, hit)) if may_send else None
        open_event(self._hub, hit, on_resend=resend)
