"""Captured files page: the files of a hub by partition and time, and the events of one file as Explorer shows them."""

import asyncio

from fastapi import Request
from nicegui import ui

from hubmere.broker import HubView
from hubmere.model.capture.files import CapturedHub, FileFilter, StoredFile
from hubmere.model.entity import Rights
from hubmere.model.errors import NotFound
from hubmere.portal import formatting, theme
from hubmere.portal.events import search
from hubmere.portal.events.captured_scan import CapturedScan
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.capture import status
from hubmere.portal.pages.parts.event import open_event
from hubmere.portal.pages.parts.event_search import FIELD_STYLE, EventSearch, FilterFields
from hubmere.portal.pages.routes import CAPTURED_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext

_ALL = "all"
_MS = 1000
# Larger than a page: each read opens the file again.
_EXPORTED_AT_ONCE = 1000
_OPEN = "Open"


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
                    field.props("outlined dense").style(FIELD_STYLE)
                ui.button("List", on_click=list_again).props("no-caps unelevated")
                ui.space()
                ui.link(f"Events in {hub}", context.url("/explorer", hub=hub))
            self._status = theme.status()
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
        self._status.text = f"{formatting.quantity(len(found.files), 'file')}, the newest first.{rest}"


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
            Column("name", "File", lambda file: file.name, wraps=True),
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
        with theme.card():
            with theme.row():
                ui.link(f"All captured files of {hub}", context.url(CAPTURED_PATH, hub=hub))
            ui.label(name).classes("h-mono")
            with theme.row():
                self._filter = FilterFields(self._search_again)
            self._search = EventSearch[int](
                new_scan=self._new_scan,
                require_right=lambda: _readable_hub(context, hub),
                on_open=lambda hit: open_event(hub, hit, is_captured=True),
                file_name=f"{hub}-captured",
                exported_at_once=_EXPORTED_AT_ONCE,
            )
        ui.timer(0.05, theme.action_handler(self._search.search), once=True)

    async def _search_again(self) -> None:
        await self._search.search()

    async def _new_scan(self) -> CapturedScan:
        hub, files = _captured_hub(self._context, self._hub), self._context.session.captured
        return CapturedScan(files, hub, self._name, self._partition, self._filter.event_filter())
