"""One hub: its partitions, who reads it and how far behind they are, its settings, and how clients reach it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fastapi import Request
from nicegui import ui

from hubmere.broker.live import LiveHub
from hubmere.broker.management.capture import PartitionStanding
from hubmere.model.entity import Rights, Status
from hubmere.model.errors import Refusal
from hubmere.model.names import group_name
from hubmere.model.spec import HubSpec
from hubmere.portal import charts, texts, theme
from hubmere.portal.charts import Line, LineChart
from hubmere.portal.pages.capture import shown_state, standing
from hubmere.portal.pages.routes import HUB_PATH, page
from hubmere.portal.snippets import VARIABLE, snippets
from hubmere.portal.standings import Standing, standings
from hubmere.portal.tables import Column, PagedTable
from hubmere.portal.theme import Place

_DELETE = "Delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    """A row of the table of partitions."""

    number: int
    first: int
    last: int
    size_bytes: int
    rate: float
    last_enqueued_ms: int
    trouble: str


@page(HUB_PATH, "Event hub")
def hub(place: Place, request: Request) -> None:
    """Everything about a hub."""
    name = str(place.hub(request.query_params.get("hub", "")).name)
    _header(place, name)
    flow = LineChart("Events per second", (Line("in", charts.ACCENT), Line("out", charts.SECOND)))
    partitions = _partition_table()
    groups = _Groups(place, name)
    captured = _Captured(place, name)
    snippets_card(place, name)
    if place.may(Rights.MANAGE, place.hub(name)):
        _settings(place, name)

    def refresh() -> None:
        live = place.hub(name)
        track = place.desk.sampler.look(place.namespace, live).hubs[live.entity.uid]
        flow.show(
            {
                "in": charts.points(track.samples, "incoming_messages"),
                "out": charts.points(track.samples, "outgoing_messages"),
            }
        )
        partitions.show(_partitions(live, track.partition_rates))
        groups.show(live, track.lags)
        captured.show(live)

    theme.follow(refresh)


def _header(place: Place, name: str) -> None:
    entity = place.hub(name).entity
    with theme.row():
        for text in (
            f"{entity.partition_count} partitions",
            f"kept {texts.hours(entity.retention.hours)}",
            str(entity.retention.policy),
            str(entity.status),
            "captured" if entity.is_captured else "not captured",
        ):
            ui.label(text).classes("h-badge h-soft")
        ui.space()
        ui.link("Open in the explorer", place.url("/explorer", hub=name))


# --- partitions ------------------------------------------------------------------------------------------------------


def _partition_table() -> PagedTable[_Partition]:
    with theme.card("Partitions"):
        return PagedTable[_Partition](
            (
                Column("number", "Partition", lambda row: row.number, lambda row: row.number),
                Column("first", "First", lambda row: row.first, is_number=True),
                Column("last", "Last", lambda row: row.last, lambda row: row.last, True),
                Column("rate", "In /s", lambda row: texts.rate(row.rate), lambda row: row.rate, True),
                Column("size", "Size", lambda row: texts.size(row.size_bytes), lambda row: row.size_bytes, True),
                Column(
                    "enqueued", "Last enqueued (UTC)", lambda row: row.trouble or texts.instant(row.last_enqueued_ms)
                ),
            ),
            key=lambda row: str(row.number),
            sorted_by="number",
        )


def _partitions(hub: LiveHub, rates: Sequence[float]) -> list[_Partition]:
    return [_partition(hub, number, rates) for number in range(hub.entity.partition_count)]


def _partition(hub: LiveHub, number: int, rates: Sequence[float]) -> _Partition:
    try:
        state = hub.log(number).state
    except Refusal as refusal:
        return _Partition(
            number=number, first=-1, last=-1, size_bytes=0, rate=0, last_enqueued_ms=-1, trouble=refusal.text()
        )
    return _Partition(
        number=number,
        first=state.log_start,
        last=state.committed - 1,
        size_bytes=state.size_bytes,
        rate=rates[number] if number < len(rates) else 0.0,
        last_enqueued_ms=state.last_enqueued_ms,
        trouble="",
    )


# --- consumer groups -------------------------------------------------------------------------------------------------


class _Groups:
    """Readers of every protocol, their lag over time, and the hub's consumer groups."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name
        with theme.card("Consumer groups"):
            self._standings = PagedTable[Standing](
                (
                    Column("group", "Group", lambda row: row.group, lambda row: row.group),
                    Column("protocol", "Actor", lambda row: row.protocol, lambda row: row.protocol),
                    Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
                    Column("reader", "Owner or reader", lambda row: row.reader),
                    Column("epoch", "Epoch", lambda row: "" if row.epoch is None else row.epoch, is_number=True),
                    Column(
                        "position",
                        "Next event",
                        lambda row: "" if row.position is None else row.position,
                        is_number=True,
                    ),
                    Column("lag", "Lag", lambda row: texts.number(row.lag), lambda row: row.lag, True),
                ),
                key=lambda row: f"{row.group}/{row.protocol}/{row.partition}/{row.reader}",
            )
            self._beside = ui.element("div")
            self._names = ui.element("div").classes("h-row")
            if place.may(Rights.MANAGE, place.hub(name)):
                with theme.row():
                    ui.button("New consumer group", on_click=self._new).props("no-caps outline")
        self._lag = LineChart("Lag in events", ())
        self._shown: list[str] | None = None

    def show(self, hub: LiveHub, lags: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Show who reads and how far behind they are."""
        self._standings.show(standings(self._place.desk.broker, hub))
        self._lag.set_lines(sorted(lags))
        self._lag.show({group: [(at_ms, float(lag)) for at_ms, lag in history] for group, history in lags.items()})
        names = [str(group.name) for group in self._place.desk.broker.catalog.view.groups(hub.entity)]
        if names != self._shown:
            self._shown = names
            self._draw_names(hub, names)

    def _draw_names(self, hub: LiveHub, names: Sequence[str]) -> None:
        may_delete = self._place.may(Rights.MANAGE, hub)
        self._names.clear()
        with self._names:
            for name in names:
                chip = ui.chip(name, icon="groups", removable=may_delete and name != "$Default", color=None)
                chip.props('outline remove-aria-label="Delete"').on("remove", theme.acting(self._deleter(name)))

    def _deleter(self, group: str) -> theme.Action:
        async def delete() -> None:
            # Beside the chips, not among them: those are drawn anew while the question is open.
            with self._beside:
                try:
                    if await theme.confirmed(f"Delete the consumer group {group} with its checkpoints?", _DELETE):
                        await self._delete(group)
                finally:
                    # The chip has left the page already; whatever was decided, it is drawn from what there is.
                    self._shown = None

        return delete

    async def _delete(self, group: str) -> None:
        hub = self._place.hub(self._name)
        self._place.desk.require(Rights.MANAGE, self._place.namespace, hub)
        manager, namespace = self._place.desk.broker.manager, self._place.namespace_name
        await self._place.desk.carry_out(
            lambda actor, done: manager.delete_group(namespace, self._name, group, actor, done)
        )
        ui.notify(f"Consumer group {group} is gone.", type="positive")

    def _new(self) -> None:
        with theme.dialog("New consumer group") as dialog:
            wanted = ui.input("Name").props("outlined dense autofocus")

            async def create() -> None:
                hub = self._place.hub(self._name)
                self._place.desk.require(Rights.MANAGE, self._place.namespace, hub)
                checked = group_name((wanted.value or "").strip())
                manager, namespace = self._place.desk.broker.manager, self._place.namespace_name
                await self._place.desk.carry_out(
                    lambda actor, done: manager.create_group(namespace, self._name, checked, "", actor, done)
                )
                dialog.close()
                ui.notify(f"Consumer group {checked} is there.", type="positive")

            theme.dialog_buttons(dialog, "Create", create)


# --- capture ---------------------------------------------------------------------------------------------------------


class _Captured:
    """How far each partition is captured; not on the page while the hub is not."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._part = ui.element("div").style("width: 100%")
        with self._part, theme.card("Capture"):
            self._state = theme.note("")
            self._table = PagedTable[PartitionStanding](
                (
                    Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
                    Column("captured", "Captured before", lambda row: row.captured, is_number=True),
                    Column(
                        "lag",
                        "PendingResponse",
                        lambda row: texts.number(row.lag_events),
                        lambda row: row.lag_events,
                        True,
                    ),
                    Column(
                        "backlog",
                        "Data",
                        lambda row: texts.size(row.backlog_bytes),
                        lambda row: row.backlog_bytes,
                        True,
                    ),
                    Column("file", "Last file", lambda row: "" if row.last_file is None else row.last_file.name),
                    Column(
                        "events",
                        "Its events",
                        lambda row: "" if row.last_file is None else texts.number(row.last_file.event_count),
                        is_number=True,
                    ),
                ),
                key=lambda row: str(row.partition),
                sorted_by="partition",
            )

    def show(self, hub: LiveHub) -> None:
        """Show where the job stands."""
        self._part.set_visibility(hub.entity.is_captured)
        if hub.entity.is_captured:
            now = standing(self._place, hub)
            # Where it is on the machine is for those who manage the hub.
            is_told = bool(now.url) and self._place.may(Rights.MANAGE, hub)
            self._state.text = f"{shown_state(now)}, to {now.url}" if is_told else shown_state(now)
            self._table.show(now.partitions)


# --- how clients reach it --------------------------------------------------------------------------------------------


def snippets_card(place: Place, name: str) -> None:
    """Code for every family of clients, and for managers the connection strings."""
    shown = snippets(place.desk.addresses, place.namespace_name, name)
    with theme.card("Connect"):
        theme.note(f"The code reads the connection string from the variable {VARIABLE}.")
        with ui.tabs().props("dense no-caps align=left outside-arrows mobile-arrows") as tabs:
            for snippet in shown:
                ui.tab(snippet.title)
        with ui.tab_panels(tabs, value=shown[0].title, animated=False).style("background: transparent; width: 100%"):
            for snippet in shown:
                with ui.tab_panel(snippet.title).style("padding: 8px 0"):
                    theme.code(snippet.code)
                    text, title = snippet.code, snippet.title
                    ui.button("Copy", on_click=lambda text=text, title=title: theme.copied(text, title)).props(
                        "no-caps flat dense icon=content_copy"
                    )
        if place.may(Rights.MANAGE, place.hub(name)):
            ui.link("Connection strings are on the Access page", place.url("/access", hub=name))


# --- settings --------------------------------------------------------------------------------------------------------


def _settings(place: Place, name: str) -> None:
    entity = place.hub(name).entity
    with theme.card("Settings"):
        with theme.row():
            kept = ui.number("Retention in hours", value=entity.retention.hours, min=1, precision=0)
            count = ui.number("Partitions", value=entity.partition_count, min=1, precision=0)
            status = ui.select(
                [str(each) for each in Status if each.is_settable], value=str(entity.status), label="Status"
            )
            for field in (kept, count, status):
                field.props("outlined dense").style("min-width: 160px")

        async def save() -> None:
            current = place.hub(name)
            place.desk.require(Rights.MANAGE, place.namespace, current)
            spec = replace(
                HubSpec.of(current.entity),
                retention_hours=None if kept.value is None else int(kept.value),
                partition_count=None if count.value is None else int(count.value),
                status=Status(status.value),
            )
            manager, namespace = place.desk.broker.manager, place.namespace_name
            await place.desk.carry_out(lambda actor, done: manager.update_hub(namespace, name, spec, actor, done))
            ui.notify("Saved.", type="positive")

        async def delete() -> None:
            if not await theme.confirmed(f"Delete the event hub {name} and all its events?", _DELETE, typed=name):
                return
            place.desk.require(Rights.MANAGE, place.namespace, place.hub(name))
            manager, namespace = place.desk.broker.manager, place.namespace_name
            await place.desk.carry_out(lambda actor, done: manager.delete_hub(namespace, name, actor, done))
            ui.navigate.to(place.url(""))

        with theme.row():
            ui.button("Save", on_click=theme.acting(save)).props("no-caps unelevated")
            ui.space()
            ui.button("Delete this event hub", on_click=theme.acting(delete)).props("no-caps flat color=negative")
