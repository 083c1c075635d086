"""Page of a hub: partitions, consumer groups and their lag, capture, code snippets, and settings."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from hubmere.broker import HubView, PartitionCaptureStatus
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.model.names import group_name
from hubmere.portal import formatting, theme
from hubmere.portal.history import charts
from hubmere.portal.history.boards import Board, ChartSpec, LagBoard
from hubmere.portal.history.consumer_lag import AMQP, KAFKA, ConsumerPosition, consumer_positions
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.capture import state_text, status
from hubmere.portal.pages.parts.hub_settings import settings_card
from hubmere.portal.pages.routes import CAPTURED_PATH, GROUP_PATH, HUB_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext
from hubmere.portal.snippets import VARIABLE, snippets

_DELETE = "Delete"
_CHARTS = (
    ChartSpec(
        title="Events per second",
        lines={"in": ("incoming_messages", charts.ACCENT), "out": ("outgoing_messages", charts.SECOND)},
    ),
    ChartSpec(
        title="Data per second",
        lines={"in": ("incoming_bytes", charts.ACCENT), "out": ("outgoing_bytes", charts.SECOND)},
        is_bytes=True,
    ),
    ChartSpec(
        title="Throttled and refused requests per second",
        lines={"throttled": ("throttled_requests", charts.WARNING), "refused": ("user_errors", charts.ERROR)},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    """A row of the table of partitions."""

    number: int
    first: int
    last: int
    size_bytes: int
    rate: float
    last_enqueued_ms: int
    error: str

    @property
    def event_count(self) -> int:
        """The number of stored events; compaction and transactions leave gaps, so there may be fewer."""
        return self.last - self.first + 1 if self.last >= self.first else 0


@page(HUB_PATH, "Event hub")
def hub(context: PageContext, request: Request) -> None:
    """All sections of the page."""
    name = str(context.hub(request.query_params.get("hub", "")).name)
    _header(context, name)
    tiles = _Tiles(context)
    board = Board(context, _CHARTS, lambda: context.hub(name))
    partitions = _partition_table(context)
    groups = _Groups(context, name)
    captured = _Captured(context, name)
    snippets_card(context, name)
    if context.may(Rights.MANAGE, context.hub(name)):
        settings_card(context, name)

    def refresh() -> None:
        live = context.hub(name)
        history = context.session.sampler.sample(context.namespace, live).hubs[live.uid]
        board.show()
        rows = _partitions(live, history.partition_rates)
        tiles.show(rows)
        partitions.show(rows)
        groups.show(live)
        captured.show(live)

    theme.refresh_regularly(refresh)


def _header(context: PageContext, name: str) -> None:
    entity = context.hub(name).entity
    with theme.row():
        for text in (
            formatting.quantity(entity.partition_count, "partition"),
            f"retention: {formatting.hours(entity.retention.hours)}",
            f"cleanup: {entity.retention.policy}",
            str(entity.status),
            "capture on" if entity.is_captured else "capture off",
            f"created {formatting.timestamp(entity.created_ms)[:10]}",
        ):
            ui.label(text).classes("h-badge h-soft")
        ui.space()
        ui.link("Open in Explorer", context.url("/explorer", hub=name))


class _Tiles:
    """What the hub holds, and what it gets."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        with ui.element("div").classes("h-tiles"):
            self._events = theme.tile("Events stored")
            self._size = theme.tile("Size")
            self._rate = theme.tile("Events in /s")
            self._last = theme.tile("Last event")

    def show(self, rows: Sequence[_Partition]) -> None:
        """Display the sums of all partitions."""
        self._events.text = formatting.number(sum(row.event_count for row in rows))
        self._size.text = self._context.stored_size_text(sum(row.size_bytes for row in rows))
        self._rate.text = formatting.rate(sum(row.rate for row in rows))
        last_ms = max((row.last_enqueued_ms for row in rows), default=-1)
        now_ms = self._context.session.clock.now_ms()
        self._last.text = formatting.age((now_ms - last_ms) / 1000) if last_ms >= 0 else "none"


# --- partitions ------------------------------------------------------------------------------------------------------


def _partition_table(context: PageContext) -> PagedTable[_Partition]:
    with theme.card("Partitions"):
        return PagedTable[_Partition](
            (
                Column("number", "Partition", lambda row: row.number, lambda row: row.number),
                Column("first", "First", lambda row: row.first if row.event_count else "–", is_number=True),  # noqa: RUF001
                Column("last", "Last", lambda row: row.last if row.event_count else "–", lambda row: row.last, True),  # noqa: RUF001
                Column(
                    "events",
                    "Events",
                    lambda row: formatting.number(row.event_count),
                    lambda row: row.event_count,
                    True,
                ),
                Column("rate", "In /s", lambda row: formatting.rate(row.rate), lambda row: row.rate, True),
                Column(
                    "size",
                    "Size",
                    lambda row: context.stored_size_text(row.size_bytes),
                    lambda row: row.size_bytes,
                    True,
                ),
                Column(
                    "enqueued",
                    "Last enqueued (UTC)",
                    lambda row: row.error or formatting.timestamp(row.last_enqueued_ms),
                ),
            ),
            key=lambda row: str(row.number),
            sorted_by="number",
        )


def _partitions(hub: HubView, rates: Sequence[float]) -> list[_Partition]:
    return [_partition(hub, number, rates) for number in range(hub.partition_count)]


def _partition(hub: HubView, number: int, rates: Sequence[float]) -> _Partition:
    try:
        state = hub.partition(number).state
    except Refusal as refusal:
        return _Partition(
            number=number, first=-1, last=-1, size_bytes=0, rate=0, last_enqueued_ms=-1, error=refusal.text()
        )
    return _Partition(
        number=number,
        first=state.log_start,
        last=state.committed - 1,
        size_bytes=state.size_bytes,
        rate=rates[number] if number < len(rates) else 0.0,
        last_enqueued_ms=state.last_enqueued_ms,
        error="",
    )


# --- consumer groups -------------------------------------------------------------------------------------------------


def _group_url(context: PageContext, hub: str, row: ConsumerPosition) -> str:
    protocol = KAFKA if row.protocol == KAFKA else AMQP
    return context.url(GROUP_PATH, protocol=protocol, group=row.group, hub="" if protocol == KAFKA else hub)


class _Groups:
    """Consumers of all protocols, their lag over time, and the consumer groups of the hub."""

    def __init__(self, context: PageContext, name: str) -> None:
        self._context = context
        self._name = name
        with theme.card("Consumer groups"):
            self._positions = PagedTable[ConsumerPosition](
                (
                    Column("group", "Group", lambda row: row.group, lambda row: row.group, wraps=True),
                    Column("protocol", "Protocol", lambda row: row.protocol, lambda row: row.protocol),
                    Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
                    Column("reader", "Owner or reader", lambda row: row.reader, wraps=True),
                    Column("epoch", "Epoch", lambda row: "" if row.epoch is None else row.epoch, is_number=True),
                    Column(
                        "position",
                        "Next event",
                        lambda row: "" if row.position is None else row.position,
                        is_number=True,
                    ),
                    Column("lag", "Lag", lambda row: row.lag_text, lambda row: row.lag, True),
                ),
                key=lambda row: f"{row.group}/{row.protocol}/{row.partition}/{row.reader}",
                href=lambda row: context.prefix + _group_url(context, name, row),
                empty_text="No consumer is connected, and no offset or checkpoint is stored.",
            )
            self._dialogs = ui.element("div")
            self._names = ui.element("div").classes("h-row")
            if context.may(Rights.MANAGE, context.hub(name)):
                with theme.row():
                    ui.button("New consumer group", on_click=self._new).props("no-caps outline")
        self._lag = LagBoard(context, lambda: context.hub(name))
        self._shown: list[str] | None = None

    def show(self, hub: HubView) -> None:
        """Display positions and lag of all consumers."""
        session = self._context.session
        readers = self._context.reader_names(hub)
        self._positions.show(consumer_positions(session.broker, hub, session.clock.now_ms(), readers))
        self._lag.show()
        names = [str(group.name) for group in self._context.session.broker.entities.groups(hub.entity)]
        if names != self._shown:
            self._shown = names
            self._draw_names(hub, names)

    def _draw_names(self, hub: HubView, names: Sequence[str]) -> None:
        may_delete = self._context.may(Rights.MANAGE, hub)
        self._names.clear()
        with self._names:
            for name in names:
                chip = ui.chip(name, icon="groups", removable=may_delete and name != "$Default", color=None)
                chip.props["remove-aria-label"] = f"Delete {name}"
                chip.props("outline").on("remove", theme.action_handler(self._deleter(name)))

    def _deleter(self, group: str) -> theme.Action:
        async def delete() -> None:
            # Outside the element with the chips, which may be redrawn while the dialog is open.
            with self._dialogs:
                try:
                    question = f"Delete the consumer group {group}? Its readers are disconnected."
                    if await theme.confirm(question, _DELETE):
                        await self._delete(group)
                finally:
                    # The browser has already removed the chip: redraw the chips in any case.
                    self._shown = None

        return delete

    async def _delete(self, group: str) -> None:
        hub = self._context.hub(self._name)
        self._context.require(Rights.MANAGE, hub)
        manager, namespace = self._context.session.broker.manager, self._context.namespace_name
        await self._context.session.submit(
            lambda actor, on_done: manager.delete_group(namespace, self._name, group, actor, on_done)
        )
        ui.notify(f"Consumer group {group} was deleted.", type="positive")

    def _new(self) -> None:
        with theme.dialog("New consumer group") as dialog:
            name = ui.input("Name").props("outlined dense autofocus")

            async def create() -> None:
                hub = self._context.hub(self._name)
                self._context.require(Rights.MANAGE, hub)
                checked = group_name((name.value or "").strip())
                manager, namespace = self._context.session.broker.manager, self._context.namespace_name
                await self._context.session.submit(
                    lambda actor, on_done: manager.create_group(namespace, self._name, checked, "", actor, on_done)
                )
                dialog.close()
                ui.notify(f"Consumer group {checked} was created.", type="positive")

            theme.dialog_buttons(dialog, "Create", create)


# --- capture ---------------------------------------------------------------------------------------------------------


class _Captured:
    """Capture progress of each partition; hidden while the hub is not captured."""

    def __init__(self, context: PageContext, name: str) -> None:
        self._context = context
        self._part = ui.element("div").style("width: 100%")
        with self._part, theme.card("Capture"):
            self._state = theme.note("")
            if context.may(Rights.LISTEN, context.hub(name)):
                ui.link("Captured files", context.url(CAPTURED_PATH, hub=name))
            self._table = PagedTable[PartitionCaptureStatus](
                (
                    Column("partition", "Partition", lambda row: row.partition, lambda row: row.partition),
                    Column("captured", "Captured up to", lambda row: row.captured, is_number=True),
                    Column(
                        "lag",
                        "Pending events",
                        lambda row: formatting.number(row.lag_events),
                        lambda row: row.lag_events,
                        True,
                    ),
                    Column(
                        "backlog",
                        "Pending data",
                        lambda row: formatting.size(row.backlog_bytes),
                        lambda row: row.backlog_bytes,
                        True,
                    ),
                    Column(
                        "file", "Last file", lambda row: "" if row.last_file is None else row.last_file.name, wraps=True
                    ),
                    Column(
                        "events",
                        "Events in last file",
                        lambda row: "" if row.last_file is None else formatting.number(row.last_file.event_count),
                        is_number=True,
                    ),
                ),
                key=lambda row: str(row.partition),
                sorted_by="partition",
            )

    def show(self, hub: HubView) -> None:
        """Display the progress of the capture job."""
        self._part.set_visibility(hub.entity.is_captured)
        if hub.entity.is_captured:
            state = status(self._context, hub)
            # The location on the machine is shown only with the Manage right.
            has_url = bool(state.url) and self._context.may(Rights.MANAGE, hub)
            self._state.text = f"{state_text(state)}, destination {state.url}" if has_url else state_text(state)
            self._table.show(state.partitions)


# --- code snippets ---------------------------------------------------------------------------------------------------


def snippets_card(context: PageContext, name: str) -> None:
    """Code for every family of clients, and a link to the connection strings."""
    all_snippets = snippets(context.session.addresses, context.namespace_name, name)
    with theme.card("Connect"):
        theme.note(f"The code reads the connection string from the environment variable {VARIABLE}.")
        with ui.tabs().props("dense no-caps align=left outside-arrows mobile-arrows") as tabs:
            for snippet in all_snippets:
                ui.tab(snippet.title)
        with ui.tab_panels(tabs, value=all_snippets[0].title, animated=False).style(
            "background: transparent; width: 100%"
        ):
            for snippet in all_snippets:
                with ui.tab_panel(snippet.title).style("padding: 8px 0"):
                    theme.code(snippet.code)
                    text, title = snippet.code, snippet.title
                    ui.button(
                        "Copy", on_click=lambda text=text, title=title: theme.copy_to_clipboard(text, title)
                    ).props("no-caps flat dense icon=content_copy")
        if context.may(Rights.MANAGE, context.hub(name)):
            ui.link("Connection strings: see the Access page", context.url("/access", hub=name))
