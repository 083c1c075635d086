"""A search for events, page by page: the filter, the buttons, the progress, the table and the export.

Explorer and the page of captured files share it. A page gives it a function that makes a scan of what it searches.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from nicegui import ui

from hubmere.portal import formatting, theme
from hubmere.portal.events import export, search
from hubmere.portal.events.scan import EventFilter
from hubmere.portal.events.search import FoundEvent
from hubmere.portal.pages.parts.event_table import event_table, row_key

FIELD_STYLE = "min-width: 190px; flex: 1 1 190px; max-width: 300px"
_PAGE_EVENTS = 100
_NO_QUERY: Mapping[str, str] = {}

B = TypeVar("B")


class PagedScan(Protocol[B]):
    """A search that gives one page after another. `B` marks where a page begins."""

    @property
    def has_more(self) -> bool:
        """Whether there are events that were not examined or not shown yet."""

    @property
    def progress(self) -> float:
        """The examined part, from 0 to 1."""

    @property
    def examined_text(self) -> str:
        """How many events were examined, for people."""

    def stop(self) -> None:
        """End the current page early."""

    def bookmark(self) -> B:
        """Where the next page begins."""

    def return_to(self, bookmark: B) -> None:
        """Begin the next page at a bookmark."""

    async def next_page(self, limit: int, on_progress: Callable[[], None] = ...) -> list[FoundEvent]:
        """The next matches, at most `limit`."""


class FilterFields:
    """The fields by which events are filtered; they are added to the row in which they are built.

    `query` has their values at the beginning, by the names that `query` gives them.
    """

    def __init__(self, on_search: theme.Action, query: Mapping[str, str] = _NO_QUERY) -> None:
        search_again = theme.action_handler(on_search)
        self._text = ui.input("Contains text").on("keydown.enter", search_again)
        self._text.tooltip("In the body, the key, or a property")
        self._key = ui.input("Key").on("keydown.enter", search_again)
        self._until = ui.input("Until a time (UTC)").on("keydown.enter", search_again)
        self._last = ui.input("Until a sequence number").on("keydown.enter", search_again)
        self._fields = {"text": self._text, "key": self._key, "until": self._until, "last": self._last}
        for name, field in self._fields.items():
            field.props("outlined dense").style(FIELD_STYLE)
            field.value = query.get(name, "")

    def query(self) -> dict[str, str]:
        """The fields that have a value, as parameters of the address of the page."""
        values = {name: (field.value or "").strip() for name, field in self._fields.items()}
        return {name: value for name, value in values.items() if value}

    def event_filter(self) -> EventFilter:
        """The filter in the fields."""
        until, last = (self._until.value or "").strip(), (self._last.value or "").strip()
        return EventFilter(
            text=(self._text.value or "").strip(),
            key=(self._key.value or "").strip(),
            until_ms=search.parse_position("time", until).value if until else None,
            until_sequence=search.parse_position("sequence", last).value if last else None,
        )


class EventSearch(Generic[B]):
    """Buttons and table of a search.

    `new_scan` makes a scan by the filter of the page. `require_right` is asked before a page or an event is shown, and
    raises if the person lost the right. `add_controls` builds what a page has beside the buttons. `on_search` is called
    when a search begins.
    """

    def __init__(
        self,
        *,
        new_scan: Callable[[], Awaitable[PagedScan[B]]],
        require_right: Callable[[], object],
        on_open: Callable[[FoundEvent], None],
        file_name: str,
        exported_at_once: int = _PAGE_EVENTS,
        add_controls: Callable[[], object] = lambda: None,
        on_search: Callable[[], object] = lambda: None,
    ) -> None:
        self._new_scan = new_scan
        self._require_right = require_right
        self._on_open = on_open
        self._file_name = file_name
        self._exported_at_once = exported_at_once
        self._on_search = on_search
        self._events: dict[str, FoundEvent] = {}
        self._scan: PagedScan[B] | None = None
        self._bookmarks: list[B] = []
        self._is_searching = False
        self._build_buttons(add_controls)
        self._progress = ui.linear_progress(value=0.0, show_value=False)
        self._progress.props('aria-label="Progress of the search"').set_visibility(False)
        self._status = theme.status()
        self._table = event_table(self._open)

    def _build_buttons(self, add_controls: Callable[[], object]) -> None:
        with theme.row():
            ui.button("Search", on_click=theme.action_handler(self.search)).props("no-caps unelevated")
            self._back = ui.button("Back", on_click=theme.action_handler(self._page_back)).props("no-caps outline")
            self._more = ui.button("More", on_click=theme.action_handler(self._page_on)).props("no-caps outline")
            self._stop = ui.button("Stop", on_click=self.stop).props("no-caps outline color=negative")
            self._stop.set_visibility(False)
            add_controls()
            ui.space()
            for name in export.FORMATS:
                ui.button(f"Export {name}", on_click=theme.action_handler(self._exporter(name))).props(
                    "no-caps flat dense icon=download"
                )

    # --- pages ---

    async def search(self) -> None:
        """Begin a new search with the filter of the page."""
        scan = await self._new_scan()
        self.stop()
        self._on_search()
        self._scan, self._bookmarks = scan, []
        await self._show_page()

    def stop(self) -> None:
        """End the page that is being searched."""
        if self._scan is not None:
            self._scan.stop()

    async def _page_on(self) -> None:
        self._require_right()
        if self._scan is not None and not self._is_searching and self._scan.has_more:
            await self._show_page()

    async def _page_back(self) -> None:
        self._require_right()
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
            self.show(hits)
            self.set_status(self._page_text(scan, len(hits)))

    def _page_text(self, scan: PagedScan[B], count: int) -> str:
        """What a page shows, and whether there is more. It never says that this is all if it is not."""
        is_only_page = len(self._bookmarks) == 1
        nothing = "No events match." if is_only_page and not count else "No more events match."
        end = "There is more." if scan.has_more else nothing
        found = formatting.quantity(count, "event")
        return f"Page {len(self._bookmarks)}: {found}, {scan.examined_text} examined. {end}"

    def _set_searching(self, is_searching: bool) -> None:
        self._is_searching = is_searching
        self._progress.set_visibility(is_searching)
        self._stop.set_visibility(is_searching)

    # --- the table ---

    @property
    def events(self) -> Sequence[FoundEvent]:
        """The events in the table."""
        return list(self._events.values())

    def show(self, hits: Sequence[FoundEvent]) -> None:
        """Show these events instead of the others."""
        self._events = {row_key(hit): hit for hit in hits}
        self._table.show(hits)

    def set_status(self, text: str, *, is_live: bool = False) -> None:
        """Show a text above the table; a page that shows new events has no other pages."""
        self._status.text = text
        self._more.set_enabled(not is_live and self._scan is not None and self._scan.has_more)
        self._back.set_enabled(not is_live and len(self._bookmarks) > 1)

    def _open(self, key: str) -> None:
        self._require_right()
        hit = self._events.get(key)
        if hit is not None:
            self._on_open(hit)

    # --- export ---

    def _exporter(self, name: str) -> theme.Action:
        async def run() -> None:
            scan, hits, size_bytes = await self._new_scan(), list[FoundEvent](), 0
            while scan.has_more and len(hits) < export.MAX_EXPORTED_EVENTS and size_bytes < export.MAX_EXPORTED_BYTES:
                found = await scan.next_page(self._exported_at_once)
                size_bytes += sum(len(hit.event.body or b"") for hit in found)
                hits += found
                if not found:
                    break
            encode, media_type = export.FORMATS[name]
            ui.download.content(encode(hits), f"{self._file_name}.{name.lower()}", media_type)
            rest = " The search has more events than one export holds." if scan.has_more else ""
            ui.notify(f"Exported {formatting.quantity(len(hits), 'event')}.{rest}", type="positive")

        return run
