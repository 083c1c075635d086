"""Explorer page: page through events, search and filter them, follow new ones, open, export and send them."""

from collections.abc import Iterable, Sequence

from fastapi import Request
from nicegui import ui

from hubmere.broker import HubView
from hubmere.model.entity import Rights
from hubmere.model.position import Position
from hubmere.portal import export, search, theme
from hubmere.portal.pages.event import open_event
from hubmere.portal.pages.event_table import event_table, row_key
from hubmere.portal.pages.routes import CAPTURED_PATH, page
from hubmere.portal.pages.send import send_dialog
from hubmere.portal.portal_session import PageContext
from hubmere.portal.scan import EventFilter, Scan
from hubmere.portal.search import FoundEvent, Tail

_ALL = "all"
_PAGE_EVENTS = 100
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
        return
    wanted = request.query_params.get("hub") or names[0]
    name = str(context.hub(wanted).name)
    with theme.card(), theme.row():
        hub = ui.select(
            names,
            value=name,
            label="Event hub",
            with_input=True,
            on_change=lambda event: _open_hub(context, event.value),
        )
        hub.props("outlined dense").style("min-width: 220px")
        ui.space()
        if context.hub(name).entity.capture is not None and context.may(Rights.LISTEN, context.hub(name)):
            ui.link("Captured files", context.url(CAPTURED_PATH, hub=name))
        if context.may(Rights.SEND, context.hub(name)):
            ui.button("Send event", on_click=theme.action_handler(lambda: send_dialog(context, name))).props(
                "no-caps unelevated"
            )
    if context.may(Rights.LISTEN, context.hub(name)):
        _Events(context, name)
    else:
        theme.note("To see events, sign in with a key that has the Listen right.")


def _open_hub(context: PageContext, hub: str | None) -> None:
    if hub:
        ui.navigate.to(context.url("/explorer", hub=hub))


class _Form:
    """The fields of a search."""

    def __init__(self, hub: HubView, on_search: theme.Action) -> None:
        search_again = theme.action_handler(on_search)
        with theme.row():
            self.partition = ui.select([_ALL, *hub.entity.partition_ids], value=_ALL, label="Partition")
            self.kind = ui.select(_KINDS, value=_NEWEST, label="Search")
            self._value = ui.input("Value").on("keydown.enter", search_again)
            self._value.bind_visibility_from(self.kind, "value", lambda kind: kind not in _PLAIN_KINDS)
            self._text = ui.input("Contains text").on("keydown.enter", search_again)
            self._text.tooltip("In the body, the key, or a property")
            self._key = ui.input("Key").on("keydown.enter", search_again)
            self._until = ui.input("Until a time (UTC)").on("keydown.enter", search_again)
            self._last = ui.input("Until a sequence number").on("keydown.enter", search_again)
            for field in (self.partition, self.kind, self._value, self._text, self._key, self._until, self._last):
                field.props("outlined dense").style("min-width: 190px; flex: 1 1 190px; max-width: 300px")

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

    def event_filter(self) -> EventFilter:
        """The filter in the form."""
        until, last = (self._until.value or "").strip(), (self._last.value or "").strip()
        return EventFilter(
            text=(self._text.value or "").strip(),
            key=(self._key.value or "").strip(),
            until_ms=search.parse_position("time", until).value if until else None,
            until_sequence=search.parse_position("sequence", last).value if last else None,
        )


class _Events:
    """The table of events: pages of a search, or new events."""

    def __init__(self, context: PageContext, hub: str) -> None:
        self._context = context
        self._hub = hub
        self._events: dict[str, FoundEvent] = {}
        self._scan: Scan | None = None
        self._bookmarks: list[list[tuple[int, int, int]]] = []
        self._is_searching = False
        self._tail: Tail | None = None
        with theme.card():
            self._form = _Form(context.hub(hub), self._search)
            self._build_buttons()
            self._progress = ui.linear_progress(value=0.0, show_value=False)
            self._progress.props('aria-label="Progress of the search"').set_visibility(False)
            self._status = theme.note("").props('role="status"')
            self._table = event_table(self._open)
        self._timer = ui.timer(_TAIL_SECONDS, theme.action_handler(self._show_new_events), active=False)
        ui.timer(0.05, theme.action_handler(self._search), once=True)

    def _build_buttons(self) -> None:
        with theme.row():
            ui.button("Search", on_click=theme.action_handler(self._search)).props("no-caps unelevated")
            self._back = ui.button("Back", on_click=theme.action_handler(self._page_back)).props("no-caps outline")
            self._more = ui.button("More", on_click=theme.action_handler(self._page_on)).props("no-caps outline")
            self._stop = ui.button("Stop", on_click=self._stop_search).props("no-caps outline color=negative")
            self._stop.set_visibility(False)
            self._live = ui.switch("Live", on_change=theme.action_handler(self._switch_live))
            ui.space()
            for name in export.FORMATS:
                ui.button(f"Export {name}", on_click=theme.action_handler(self._exporter(name))).props(
                    "no-caps flat dense icon=download"
                )

    def _readable_hub(self) -> HubView:
        """The hub; refused if the person no longer has the Listen right."""
        hub = self._context.hub(self._hub)
        self._context.require(Rights.LISTEN, hub)
        return hub

    # --- search ---

    async def _new_scan(self) -> Scan:
        hub = self._readable_hub()
        scan = Scan(self._context, hub, self._form.event_filter(), newest_first=self._form.newest_first)
        position, partitions = self._form.position(), self._form.partitions(hub)
        await search.until_open(hub, partitions)
        scan.start(dict.fromkeys(partitions, position))
        return scan

    async def _search(self) -> None:
        scan = await self._new_scan()
        self._stop_search()
        self._live.value = False
        self._scan = scan
        self._bookmarks = []
        await self._show_page()

    async def _page_on(self) -> None:
        self._readable_hub()
        if self._scan is not None and not self._is_searching:
            await self._show_page()

    async def _page_back(self) -> None:
        self._readable_hub()
        if self._scan is not None and not self._is_searching and len(self._bookmarks) > 1:
            del self._bookmarks[-1]
            self._scan.return_to(self._bookmarks.pop())
            await self._show_page()

    async def _show_page(self) -> None:
        scan = self._scan
        assert scan is not None
        self._bookmarks.append(scan.bookmark())
        self._set_searching(True)

        def show_progress() -> None:
            self._progress.value = round(scan.progress, 2)

        try:
            hits = await scan.next_page(_PAGE_EVENTS, show_progress)
        finally:
            self._set_searching(False)
        if scan is self._scan:
            self._events = {row_key(hit): hit for hit in hits}
            self._table.show(hits)
            self._set_status(_page_text(scan, hits, len(self._bookmarks)))

    def _set_searching(self, is_searching: bool) -> None:
        self._is_searching = is_searching
        self._progress.set_visibility(is_searching)
        self._stop.set_visibility(is_searching)

    def _stop_search(self) -> None:
        if self._scan is not None:
            self._scan.stop()

    def _set_status(self, text: str) -> None:
        self._status.text = text
        is_live = self._tail is not None
        self._more.set_enabled(not is_live and self._scan is not None and self._scan.has_more)
        self._back.set_enabled(not is_live and len(self._bookmarks) > 1)

    # --- export ---

    def _exporter(self, name: str) -> theme.Action:
        async def run() -> None:
            scan, hits, size_bytes = await self._new_scan(), list[FoundEvent](), 0
            while scan.has_more and len(hits) < export.MAX_EXPORTED_EVENTS and size_bytes < export.MAX_EXPORTED_BYTES:
                found = await scan.next_page(_PAGE_EVENTS)
                size_bytes += sum(len(hit.event.body or b"") for hit in found)
                hits += found
                if not found:
                    break
            encode, media_type = export.FORMATS[name]
            ui.download.content(encode(hits), f"{self._hub}.{name.lower()}", media_type)
            rest = " The search has more events than one export holds." if scan.has_more else ""
            ui.notify(f"{len(hits):,} events were exported.{rest}", type="positive")

        return run

    # --- live tail ---

    def _switch_live(self) -> None:
        self._timer.active = bool(self._live.value)
        self._tail = None
        if self._live.value:
            hub = self._readable_hub()
            self._stop_search()
            self._tail = Tail(self._context, hub, self._form.partitions(hub))
            self._tail.start()
            self._set_status("Live: new events appear here.")

    def _show_new_events(self) -> None:
        tail, hub = self._tail, self._readable_hub()
        if tail is None or tail.hub is not hub:
            self._live.value = False
            return
        wanted = self._form.event_filter()
        self._add(hit for hit in tail.read_new() if wanted.matches(hit.event))
        if tail.skipped:
            self._set_status(f"Live: {tail.skipped:,} events were skipped because they arrived too fast.")

    def _add(self, hits: Iterable[FoundEvent]) -> None:
        added = {row_key(hit): hit for hit in hits}
        if not added:
            return
        self._events.update(added)
        newest = sorted(self._events.values(), key=lambda hit: (-hit.event.enqueued_ms, -hit.event.sequence))
        self._events = {row_key(hit): hit for hit in newest[: search.MAX_LISTED_EVENTS]}
        self._table.show(list(self._events.values()))

    def _open(self, key: str) -> None:
        self._readable_hub()
        hit = self._events.get(key)
        if hit is None:
            return
        may_send = self._context.may(Rights.SEND, self._context.hub(self._hub))
        open_event(self._hub, hit, on_resend=(lambda: send_dialog(self._context, self._hub, hit)) if may_send else None)


def _page_text(scan: Scan, hits: Sequence[FoundEvent], number: int) -> str:
    """What a page shows, and whether there is more. It never says that this is all if it is not."""
    count = f"Page {number}: {len(hits)} events, {scan.scanned:,} examined."
    if scan.has_more:
        return f"{count} There is more."
    return f"{count} No more events match."
