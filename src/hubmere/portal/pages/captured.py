"""Captured files page: the files of a hub by partition and time, and the events of one file as Explorer shows them."""

import asyncio
from collections.abc import Sequence

from fastapi import Request
from nicegui import ui

from hubmere.broker import HubView
from hubmere.model.captured_files import CapturedHub, FileFilter, StoredFile
from hubmere.model.entity import Rights
from hubmere.model.errors import NotFound
from hubmere.portal import export, formatting, search, theme
from hubmere.portal.captured_scan import CapturedScan
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.capture import status
from hubmere.portal.pages.event import open_event
from hubmere.portal.pages.event_table import event_table, row_key
from hubmere.portal.pages.routes import CAPTURED_PATH, page
from hubmere.portal.portal_session import PageContext
from hubmere.portal.scan import EventFilter
from hubmere.portal.search import FoundEvent

_ALL = "all"
_MS = 1000
_PAGE_EVENTS = 100
_EXPORTED_AT_ONCE = 1000
_OPEN = "Open"
_FIELD = "min-width: 190px; flex: 1 1 190px; max-width: 300px"


@page(CAPTURED_PATH, "Captured files")
def captured_files(context: PageContext, request: Request) -> None:
    """The files of a hub, or the events of one of them."""
    hub = _readable_hub(context, request.query_params.get("hub", ""))
    name = request.query_params.get("file")
    if hub.entity.capture is None:
        theme.note(f"Capture has never been switched on for the event hub {hub.name}, so it has no files.")
    elif name is None:
        _Files(context, str(hub.name))
    else:
        _FileEvents(context, str(hub.name), name, _partition_of(request))


def _partition_of(request: Request) -> int:
    text = request.query_params.get("partition", "")
    return int(text) if text.isdecimal() else 0


def _readable_hub(context: PageContext, name: str) -> HubView:
    """The hub; refused if the person does not have the Listen right, which events of files need, too."""
    hub = context.hub(name)
    context.require(Rights.LISTEN, hub)
    return hub


def _captured_hub(context: PageContext, name: str) -> CapturedHub:
    hub = _readable_hub(context, name)
    described = hub.entity.capture
    if described is None:
        raise NotFound(name)
    return CapturedHub(
        namespace=context.namespace_name, hub=hub.name, described=described, url=status(context, hub).url
    )


# --- files -----------------------------------------------------------------------------------------------------------


class _Files:
    """The list of files, with a filter."""

    def __init__(self, context: PageContext, hub: str) -> None:
        self._context = context
        self._hub = hub
        list_again = theme.action_handler(self._list)
        with theme.card():
            with theme.row():
                ids = context.hub(hub).entity.partition_ids
                self._partition = ui.select([_ALL, *ids], value=_ALL, label="Partition", on_change=list_again)
                self._from = ui.input("From a time (UTC)").on("keydown.enter", list_again)
                self._until = ui.input("Until a time (UTC)").on("keydown.enter", list_again)
                for field in (self._partition, self._from, self._until):
                    field.props("outlined dense").style(_FIELD)
                ui.button("List", on_click=list_again).props("no-caps unelevated")
                ui.space()
                ui.link(f"Events in {hub}", context.url("/explorer", hub=hub))
            self._status = theme.note("").props('role="status"')
            self._table = _file_table(context, hub)
        ui.timer(0.05, list_again, once=True)

    async def _list(self) -> None:
        hub = _captured_hub(self._context, self._hub)
        chosen = self._partition.value
        wanted = FileFilter(
            partition=None if chosen == _ALL else int(chosen),
            from_s=_second(self._from.value),
            until_s=_second(self._until.value),
        )
        found = await asyncio.to_thread(self._context.session.captured.list_files, hub, wanted)
        self._table.show(found.files)
        rest = "" if found.is_complete else " There are more: choose a partition or a time to see them."
        self._status.text = f"{len(found.files):,} files, the newest first.{rest}"


def _second(text: str | None) -> int | None:
    return search.parse_position("time", text.strip()).value // _MS if text and text.strip() else None


def _file_table(context: PageContext, hub: str) -> PagedTable[StoredFile]:
    partitions: dict[str, int] = {}

    def key(file: StoredFile) -> str:
        partitions[file.name] = file.partition
        return file.name

    def open_file(_action: str, name: str) -> None:
        partition = str(partitions.get(name, 0))
        ui.navigate.to(context.url(CAPTURED_PATH, hub=hub, file=name, partition=partition))

    return PagedTable[StoredFile](
        (
            Column("partition", "Partition", lambda file: file.partition, lambda file: file.partition),
            Column(
                "window",
                "Window from (UTC)",
                lambda file: formatting.timestamp(file.second * _MS),
                lambda file: file.second,
            ),
            Column("size", "Size", lambda file: formatting.size(file.size_bytes), lambda file: file.size_bytes, True),
            Column("name", "File", lambda file: file.name),
        ),
        key=key,
        actions=lambda _: [_OPEN],
        on_act=open_file,
        on_row=lambda name: open_file(_OPEN, name),
        actions_first=True,
    )


# --- events of a file ------------------------------------------------------------------------------------------------


class _FileEvents:
    """The events of one file: pages of a search."""

    def __init__(self, context: PageContext, hub: str, name: str, partition: int) -> None:
        self._context = context
        self._hub = hub
        self._name = name
        self._partition = partition
        self._events: dict[str, FoundEvent] = {}
        self._scan: CapturedScan | None = None
        self._starts: list[int] = []
        self._is_searching = False
        with theme.card():
            with theme.row():
                ui.link(f"All captured files of {hub}", context.url(CAPTURED_PATH, hub=hub))
            ui.label(name).classes("h-mono")
            self._build_form()
            self._build_buttons()
            self._progress = ui.linear_progress(value=0.0, show_value=False)
            self._progress.props('aria-label="Progress of the search"').set_visibility(False)
            self._status = theme.note("").props('role="status"')
            self._table = event_table(self._open)
        ui.timer(0.05, theme.action_handler(self._search), once=True)

    def _build_form(self) -> None:
        search_again = theme.action_handler(self._search)
        with theme.row():
            self._text = ui.input("Contains text").on("keydown.enter", search_again)
            self._text.tooltip("In the body, the key, or a property")
            self._key = ui.input("Key").on("keydown.enter", search_again)
            self._until = ui.input("Until a time (UTC)").on("keydown.enter", search_again)
            self._last = ui.input("Until a sequence number").on("keydown.enter", search_again)
            for field in (self._text, self._key, self._until, self._last):
                field.props("outlined dense").style(_FIELD)

    def _build_buttons(self) -> None:
        with theme.row():
            ui.button("Search", on_click=theme.action_handler(self._search)).props("no-caps unelevated")
            self._back = ui.button("Back", on_click=theme.action_handler(self._page_back)).props("no-caps outline")
            self._more = ui.button("More", on_click=theme.action_handler(self._page_on)).props("no-caps outline")
            self._stop = ui.button("Stop", on_click=self._stop_search).props("no-caps outline color=negative")
            self._stop.set_visibility(False)
            ui.space()
            for name in export.FORMATS:
                ui.button(f"Export {name}", on_click=theme.action_handler(self._exporter(name))).props(
                    "no-caps flat dense icon=download"
                )

    def _filter(self) -> EventFilter:
        until, last = (self._until.value or "").strip(), (self._last.value or "").strip()
        return EventFilter(
            text=(self._text.value or "").strip(),
            key=(self._key.value or "").strip(),
            until_ms=search.parse_position("time", until).value if until else None,
            until_sequence=search.parse_position("sequence", last).value if last else None,
        )

    def _new_scan(self, first: int = 0) -> CapturedScan:
        hub = _captured_hub(self._context, self._hub)
        files = self._context.session.captured
        return CapturedScan(files, hub, self._name, self._partition, self._filter(), first)

    async def _search(self) -> None:
        scan = self._new_scan()
        self._stop_search()
        self._scan, self._starts = scan, []
        await self._show_page()

    async def _page_on(self) -> None:
        _readable_hub(self._context, self._hub)
        if self._scan is not None and not self._is_searching and self._scan.has_more:
            await self._show_page()

    async def _page_back(self) -> None:
        if self._scan is not None and not self._is_searching and len(self._starts) > 1:
            del self._starts[-1]
            self._scan = self._new_scan(self._starts.pop())
            await self._show_page()

    async def _show_page(self) -> None:
        scan = self._scan
        assert scan is not None
        self._starts.append(scan.position)
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
            self._set_status(scan, hits)

    def _set_status(self, scan: CapturedScan, hits: Sequence[FoundEvent]) -> None:
        end = "There is more." if scan.has_more else "No more events match."
        self._status.text = (
            f"Page {len(self._starts)}: {len(hits)} events, {scan.position:,} of {scan.total:,} examined. {end}"
        )
        self._more.set_enabled(scan.has_more)
        self._back.set_enabled(len(self._starts) > 1)

    def _set_searching(self, is_searching: bool) -> None:
        self._is_searching = is_searching
        self._progress.set_visibility(is_searching)
        self._stop.set_visibility(is_searching)

    def _stop_search(self) -> None:
        if self._scan is not None:
            self._scan.stop()

    def _exporter(self, name: str) -> theme.Action:
        async def run() -> None:
            scan, hits, size_bytes = self._new_scan(), list[FoundEvent](), 0
            while scan.has_more and len(hits) < export.MAX_EXPORTED_EVENTS and size_bytes < export.MAX_EXPORTED_BYTES:
                found = await scan.next_page(_EXPORTED_AT_ONCE)
                size_bytes += sum(len(hit.event.body or b"") for hit in found)
                hits += found
                if not found:
                    break
            encode, media_type = export.FORMATS[name]
            ui.download.content(encode(hits), f"{self._hub}-captured.{name.lower()}", media_type)
            rest = " The file has more events than one export holds." if scan.has_more else ""
            ui.notify(f"{len(hits):,} events were exported.{rest}", type="positive")

        return run

    def _open(self, key: str) -> None:
        _readable_hub(self._context, self._hub)
        hit = self._events.get(key)
        if hit is not None:
            open_event(self._hub, hit, is_captured=True)
