"""Explorer: look at events as they come, look some up, open one, send one."""

import asyncio
import json
from collections.abc import Iterable, Mapping

from fastapi import Request
from nicegui import ui

from hubmere.broker.live import LiveHub
from hubmere.model.entity import Rights
from hubmere.model.errors import InvalidArgument
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.portal import search, texts, theme
from hubmere.portal.pages.event import open_event
from hubmere.portal.pages.routes import page
from hubmere.portal.search import Found, Tail
from hubmere.portal.tables import Column, PagedTable
from hubmere.portal.theme import Place
from hubmere.records.header import seal
from hubmere.translate import HttpEvent, publication_from_http

_ALL = "all"
_PAGE_EVENTS = 100
_KINDS = {
    "last": "Last events",
    "first": "From the oldest",
    "sequence": "From a sequence number",
    "offset": "From an offset",
    "time": "From a time (UTC)",
    "key": "With a partition key",
}
_PLAIN_KINDS = ("last", "first")
_TAIL_SECONDS = 0.5


@page("/explorer", "Explorer")
def explorer(place: Place, request: Request) -> None:
    """A hub, its events, and a way to send one."""
    names = [str(hub.name) for hub in place.desk.hubs(place.namespace)]
    if not names:
        theme.note("There is no event hub here yet.")
        return
    asked = request.query_params.get("hub") or names[0]
    name = str(place.hub(asked).name)
    with theme.card(), theme.row():
        hub = ui.select(
            names, value=name, label="Event hub", with_input=True, on_change=lambda event: _go(place, event.value)
        )
        hub.props("outlined dense").style("min-width: 220px")
        ui.space()
        if place.may(Rights.SEND, place.hub(name)):
            ui.button("Send an event", on_click=theme.acting(lambda: _send_dialog(place, name))).props(
                "no-caps unelevated"
            )
    if place.may(Rights.LISTEN, place.hub(name)):
        _Events(place, name)
    else:
        theme.note("To see events, sign in with a key that has the Listen right.")


def _go(place: Place, hub: str | None) -> None:
    if hub:
        ui.navigate.to(place.url("/explorer", hub=hub))


class _Events:
    """The events that were looked up, or come by."""

    def __init__(self, place: Place, hub: str) -> None:
        self._place = place
        self._hub = hub
        self._found: dict[str, Found] = {}
        self._next: dict[int, Position] = {}
        self._tail: Tail | None = None
        with theme.card():
            self._controls()
            self._told = theme.note("")
            self._table = PagedTable[Found](
                (
                    Column("partition", "Partition", lambda hit: hit.partition),
                    Column("sequence", "Sequence", lambda hit: hit.event.sequence, is_number=True),
                    Column("offset", "Offset", lambda hit: str(hit.event.offset), is_number=True),
                    Column("enqueued", "Enqueued (UTC)", lambda hit: texts.instant(hit.event.enqueued_ms)),
                    Column("key", "Key", _key),
                    Column("size", "Size", lambda hit: texts.size(len(hit.event.body or b"")), is_number=True),
                    Column("body", "Body", lambda hit: texts.preview(hit.event.body)),
                ),
                key=_name_of,
                actions=lambda _: ["Open"],
                on_act=self._open,
                actions_first=True,
            )
        self._timer = ui.timer(_TAIL_SECONDS, theme.acting(self._more_of_tail), active=False)
        ui.timer(0.05, theme.acting(self._look_up), once=True)

    def _controls(self) -> None:
        hub = self._place.hub(self._hub)
        with theme.row():
            self._partition = ui.select([_ALL, *hub.entity.partition_ids], value=_ALL, label="Partition")
            self._kind = ui.select(_KINDS, value="last", label="Look up")
            self._value = ui.input("Value").on("keydown.enter", theme.acting(self._look_up))
            self._value.bind_visibility_from(self._kind, "value", lambda kind: kind not in _PLAIN_KINDS)
            for field in (self._partition, self._kind, self._value):
                field.props("outlined dense").style("min-width: 130px")
            ui.button("Look up", on_click=theme.acting(self._look_up)).props("no-caps unelevated")
            self._more = ui.button("More", on_click=theme.acting(self._look_further)).props("no-caps outline")
            self._live = ui.switch("Live", on_change=theme.acting(self._switch_live))

    def _listening(self) -> LiveHub:
        """The hub as it is now, for someone who may still listen."""
        hub = self._place.hub(self._hub)
        self._place.desk.require(Rights.LISTEN, self._place.namespace, hub)
        return hub

    def _partitions(self, hub: LiveHub) -> tuple[int, ...]:
        chosen = self._partition.value
        return tuple(range(hub.entity.partition_count)) if chosen == _ALL else (int(chosen),)

    # --- looking up ---

    async def _look_up(self) -> None:
        hub = self._listening()
        self._live.value = False
        kind, value = self._kind.value, self._value.value or ""
        self._found.clear()
        self._next.clear()
        if kind == "key":
            await self._find_key(hub, value, Position.first())
            return
        partitions = self._partitions(hub)
        count = max(_PAGE_EVENTS // len(partitions), 1)
        starts = {
            partition: search.last(hub, partition, count) if kind == "last" else search.parse_position(kind, value)
            for partition in partitions
        }
        await self._look(hub, starts)

    async def _look_further(self) -> None:
        hub = self._listening()
        self._found.clear()
        if self._kind.value == "key":
            await self._find_key(hub, self._value.value or "", next(iter(self._next.values())))
        else:
            await self._look(hub, dict(self._next))

    async def _look(self, hub: LiveHub, starts: Mapping[int, Position]) -> None:
        pages = await search.look_up(self._place.desk.broker, hub, starts, _PAGE_EVENTS)
        self._next = {
            partition: Position.sequence(page.next_sequence, inclusive=True)
            for partition, page in pages.items()
            if not page.is_end
        }
        self._keep(hit for page in pages.values() for hit in page.events)
        self._tell(f"{len(self._found)} events" + ("" if self._next else "; that is all"))

    async def _find_key(self, hub: LiveHub, key: str, start: Position) -> None:
        if not key:
            raise InvalidArgument("partition key", key, "at least one character")
        page = await search.find_key(self._place.desk.broker, hub, key, start, _PAGE_EVENTS)
        self._next = {} if page.is_end else {0: Position.sequence(page.next_sequence, inclusive=True)}
        self._keep(page.events)
        self._tell(f"{len(self._found)} events with this key" + ("" if self._next else "; that is all"))

    def _keep(self, hits: Iterable[Found]) -> None:
        self._found.update({_name_of(hit): hit for hit in hits})
        while len(self._found) > search.TAIL_EVENTS:
            del self._found[next(iter(self._found))]
        ordered = sorted(
            self._found.values(), key=lambda hit: (hit.event.enqueued_ms, hit.event.sequence), reverse=True
        )
        self._table.show(ordered)

    def _tell(self, text: str) -> None:
        self._told.text = text
        self._more.set_enabled(bool(self._next))

    # --- the live tail ---

    def _switch_live(self) -> None:
        self._timer.active = bool(self._live.value)
        self._tail = None
        if self._live.value:
            hub = self._listening()
            self._tail = Tail(self._place.desk.broker, hub, self._partitions(hub))
            self._tail.start()
            self._next.clear()
            self._tell("Live: new events appear as they come.")

    def _more_of_tail(self) -> None:
        tail, hub = self._tail, self._listening()
        if tail is None or tail.hub is not hub:
            self._live.value = False
            return
        hits = tail.more()
        if hits:
            self._keep(hits)
        if tail.skipped:
            self._tell(f"Live: {tail.skipped:,} events went by too fast to be shown.")

    def _open(self, _action: str, key: str) -> None:
        self._listening()
        hit = self._found.get(key)
        if hit is not None:
            open_event(self._hub, hit)


def _name_of(hit: Found) -> str:
    return f"{hit.partition}/{hit.event.sequence}"


def _key(hit: Found) -> str:
    event = hit.event
    return event.partition_key if event.partition_key is not None else texts.preview(event.key) if event.key else ""


# --- sending ---------------------------------------------------------------------------------------------------------


def _send_dialog(place: Place, name: str) -> None:
    """Ask for an event and publish it."""
    ids = place.hub(name).entity.partition_ids
    with theme.dialog(f"Send an event to {name}") as dialog:
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
            receipt = await _publish(place, name, event, None if partition.value == "any" else partition.value)
            dialog.close()
            ui.notify(f"Sent: it is event {receipt.sequence_number}.", type="positive")

        theme.dialog_buttons(dialog, "Send", send)


def _properties(text: str) -> dict[str, str | int | float | bool]:
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(value, (str, int, float, bool)) for value in given.values()):
        raise InvalidArgument("properties", text, "a JSON object of texts, numbers and true or false")
    return given


async def _publish(place: Place, name: str, event: HttpEvent, partition: str | None) -> Receipt:
    """Publish as any client would, and wait until the event is durable."""
    hub = place.hub(name)
    place.desk.require(Rights.SEND, place.namespace, hub)
    publication = publication_from_http([event])
    seal(publication.batch)
    waiting: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    def settled(receipt: Receipt) -> None:
        if receipt.error is None:
            waiting.set_result(receipt)
        else:
            waiting.set_exception(receipt.error)

    clock = place.desk.clock
    place.desk.broker.open_publisher(hub, partition=partition).publish(
        publication.batch,
        count=publication.count,
        size_bytes=len(event.body),
        key=publication.partition_key,
        now=clock.monotonic(),
        now_ms=clock.now_ms(),
        callback=settled,
    )
    return await waiting
