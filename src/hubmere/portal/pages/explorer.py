"""Explorer page: search events, follow new events, display one, send one."""

import json
from collections.abc import Iterable, Mapping

from fastapi import Request
from nicegui import ui

from hubmere.broker import HubView
from hubmere.model.entity import Rights
from hubmere.model.errors import InvalidArgument
from hubmere.model.position import Position
from hubmere.portal import formatting, search, theme
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.event import open_event
from hubmere.portal.pages.routes import page
from hubmere.portal.portal_session import PageContext
from hubmere.portal.publishing import publish
from hubmere.portal.search import FoundEvent, Tail
from hubmere.translate import HttpEvent

_ALL = "all"
_PAGE_EVENTS = 100
_KINDS = {
    "last": "Newest events",
    "first": "Oldest events",
    "sequence": "From a sequence number",
    "offset": "From an offset",
    "time": "From a time (UTC)",
    "key": "With a partition key",
}
_PLAIN_KINDS = ("last", "first")
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
        if context.may(Rights.SEND, context.hub(name)):
            ui.button("Send event", on_click=theme.action_handler(lambda: _send_dialog(context, name))).props(
                "no-caps unelevated"
            )
    if context.may(Rights.LISTEN, context.hub(name)):
        _Events(context, name)
    else:
        theme.note("To see events, sign in with a key that has the Listen right.")


def _open_hub(context: PageContext, hub: str | None) -> None:
    if hub:
        ui.navigate.to(context.url("/explorer", hub=hub))


class _Events:
    """The table of events: results of a search, or new events."""

    def __init__(self, context: PageContext, hub: str) -> None:
        self._context = context
        self._hub = hub
        self._events: dict[str, FoundEvent] = {}
        self._next: dict[int, Position] = {}
        self._tail: Tail | None = None
        with theme.card():
            self._build_controls()
            self._status = theme.note("")
            self._table = PagedTable[FoundEvent](
                (
                    Column("partition", "Partition", lambda hit: hit.partition),
                    Column("sequence", "Sequence", lambda hit: hit.event.sequence, is_number=True),
                    Column("offset", "Offset", lambda hit: str(hit.event.offset), is_number=True),
                    Column("enqueued", "Enqueued (UTC)", lambda hit: formatting.timestamp(hit.event.enqueued_ms)),
                    Column("key", "Key", _key),
                    Column("size", "Size", lambda hit: formatting.size(len(hit.event.body or b"")), is_number=True),
                    Column("body", "Body", lambda hit: formatting.preview(hit.event.body)),
                ),
                key=_row_key,
                actions=lambda _: ["Open"],
                on_act=self._open,
                actions_first=True,
            )
        self._timer = ui.timer(_TAIL_SECONDS, theme.action_handler(self._show_new_events), active=False)
        ui.timer(0.05, theme.action_handler(self._search), once=True)

    def _build_controls(self) -> None:
        hub = self._context.hub(self._hub)
        with theme.row():
            self._partition = ui.select([_ALL, *hub.entity.partition_ids], value=_ALL, label="Partition")
            self._kind = ui.select(_KINDS, value="last", label="Search")
            self._value = ui.input("Value").on("keydown.enter", theme.action_handler(self._search))
            self._value.bind_visibility_from(self._kind, "value", lambda kind: kind not in _PLAIN_KINDS)
            for field in (self._partition, self._kind, self._value):
                field.props("outlined dense").style("min-width: 130px")
            ui.button("Search", on_click=theme.action_handler(self._search)).props("no-caps unelevated")
            self._more = ui.button("More", on_click=theme.action_handler(self._search_further)).props("no-caps outline")
            self._live = ui.switch("Live", on_change=theme.action_handler(self._switch_live))

    def _readable_hub(self) -> HubView:
        """The hub; refused if the person no longer has the Listen right."""
        hub = self._context.hub(self._hub)
        self._context.require(Rights.LISTEN, hub)
        return hub

    def _partitions(self, hub: HubView) -> tuple[int, ...]:
        chosen = self._partition.value
        return tuple(range(hub.partition_count)) if chosen == _ALL else (int(chosen),)

    # --- search ---

    async def _search(self) -> None:
        hub = self._readable_hub()
        self._live.value = False
        kind, value = self._kind.value, self._value.value or ""
        self._events.clear()
        self._next.clear()
        if kind == "key":
            await search.until_open(hub, range(hub.partition_count))
            await self._find_key(hub, value, Position.first())
            return
        partitions = self._partitions(hub)
        await search.until_open(hub, partitions)
        count = max(_PAGE_EVENTS // len(partitions), 1)
        starts = {
            partition: search.position_of_last(hub, partition, count)
            if kind == "last"
            else search.parse_position(kind, value)
            for partition in partitions
        }
        await self._read(hub, starts)

    async def _search_further(self) -> None:
        hub = self._readable_hub()
        self._events.clear()
        if self._kind.value == "key":
            await self._find_key(hub, self._value.value or "", next(iter(self._next.values())))
        else:
            await self._read(hub, dict(self._next))

    async def _read(self, hub: HubView, starts: Mapping[int, Position]) -> None:
        pages = await search.read_pages(self._context, hub, starts, _PAGE_EVENTS)
        self._next = {
            partition: Position.sequence(page.next_sequence, inclusive=True)
            for partition, page in pages.items()
            if not page.is_end
        }
        self._add(hit for page in pages.values() for hit in page.events)
        self._set_status(f"{len(self._events)} events" + ("" if self._next else "; end reached"))

    async def _find_key(self, hub: HubView, key: str, start: Position) -> None:
        if not key:
            raise InvalidArgument("partition key", key, "at least one character")
        page = await search.find_key(self._context, hub, key, start, _PAGE_EVENTS)
        self._next = {} if page.is_end else {0: Position.sequence(page.next_sequence, inclusive=True)}
        self._add(page.events)
        self._set_status(f"{len(self._events)} events with this key" + ("" if self._next else "; end reached"))

    def _add(self, hits: Iterable[FoundEvent]) -> None:
        self._events.update({_row_key(hit): hit for hit in hits})
        while len(self._events) > search.MAX_LISTED_EVENTS:
            del self._events[next(iter(self._events))]
        ordered = sorted(
            self._events.values(), key=lambda hit: (hit.event.enqueued_ms, hit.event.sequence), reverse=True
        )
        self._table.show(ordered)

    def _set_status(self, text: str) -> None:
        self._status.text = text
        self._more.set_enabled(bool(self._next))

    # --- live tail ---

    def _switch_live(self) -> None:
        self._timer.active = bool(self._live.value)
        self._tail = None
        if self._live.value:
            hub = self._readable_hub()
            self._tail = Tail(self._context, hub, self._partitions(hub))
            self._tail.start()
            self._next.clear()
            self._set_status("Live: new events appear here.")

    def _show_new_events(self) -> None:
        tail, hub = self._tail, self._readable_hub()
        if tail is None or tail.hub is not hub:
            self._live.value = False
            return
        hits = tail.read_new()
        if hits:
            self._add(hits)
        if tail.skipped:
            self._set_status(f"Live: {tail.skipped:,} events were skipped because they arrived too fast.")

    def _open(self, _action: str, key: str) -> None:
        self._readable_hub()
        hit = self._events.get(key)
        if hit is not None:
            open_event(self._hub, hit)


def _row_key(hit: FoundEvent) -> str:
    return f"{hit.partition}/{hit.event.sequence}"


def _key(hit: FoundEvent) -> str:
    event = hit.event
    return (
        event.partition_key if event.partition_key is not None else formatting.preview(event.key) if event.key else ""
    )


# --- send -------------------------------------------------------------------------------------------------------------


def _send_dialog(context: PageContext, name: str) -> None:
    """Show the dialog that publishes an event."""
    ids = context.hub(name).entity.partition_ids
    with theme.dialog(f"Send event to {name}") as dialog:
        body = ui.textarea("Body", value='{"hello": "world"}').props("outlined dense autofocus input-class=h-mono")
        content_type = ui.input("Content type", value="application/json")
        key = ui.input("Partition key (optional)")
        partition = ui.select(["any", *ids], value="any", label="Partition")
        properties = ui.input("Properties as a JSON object (optional)", placeholder='{"room": "kitchen"}')
        for field in (content_type, key, partition, properties):
            field.props("outlined dense")

        async def send() -> None:
            event = HttpEvent(
                body=(body.value or "").encode(),
                properties=_properties(properties.value or ""),
                partition_key=key.value or None,
                content_type=content_type.value or None,
            )
            receipt = await publish(context, name, event, None if partition.value == "any" else partition.value)
            dialog.close()
            ui.notify(f"Event {receipt.sequence_number} was sent.", type="positive")

        theme.dialog_buttons(dialog, "Send", send)


def _properties(text: str) -> dict[str, str | int | float | bool]:
    if not text.strip():
        return {}
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not all(isinstance(value, (str, int, float, bool)) for value in parsed.values()):
        raise InvalidArgument("properties", text, "a JSON object with strings, numbers and booleans")
    return parsed
