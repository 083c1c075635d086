"""Overview page of a namespace: essentials, first steps, what needs attention, rates, charts and hubs."""

from collections.abc import Sequence

from fastapi import Request
from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from hubmere.broker import HubView
from hubmere.model.entity import CleanupPolicy, Rights
from hubmere.model.names import hub_name
from hubmere.model.spec import HubSpec
from hubmere.portal import formatting, theme
from hubmere.portal.doctor.findings_card import Doctor, FindingsCard
from hubmere.portal.history import charts
from hubmere.portal.history.boards import OPEN_CONNECTIONS, Board, ChartSpec
from hubmere.portal.history.sampler import COUNTERS, Sample
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.parts.essentials import Essentials, FirstSteps
from hubmere.portal.pages.routes import HUB_PATH, page
from hubmere.portal.sign_in.portal_session import PageContext

_IN, _OUT = "in", "out"
_IN_RATE, _OUT_RATE = COUNTERS.index("incoming_messages"), COUNTERS.index("outgoing_messages")
# Maximum number of logs opened per refresh to find their sizes; each blocks the node's loop for up to a millisecond.
_MAX_OPENED_PER_REFRESH = 16
_EXAMINE_SECONDS = 15.0


@page("", "Overview")
def overview(context: PageContext, _: Request) -> None:
    """Tiles, charts and hubs."""
    essentials = Essentials(context)
    first_steps = FirstSteps(context, lambda: _new_hub(context))
    attention = _Attention(context)
    tiles = _Tiles()
    single = _only_hub(context)
    board = Board(context, _CHARTS, None if single is None else lambda: context.hub(single))
    hubs = _Hubs(context)

    def refresh() -> None:
        namespace = context.namespace
        only = context.hub(single) if single else None
        context.session.sampler.sample(namespace, only)
        history: Sequence[Sample] = ()
        if only is not None or single is None:
            history = context.session.sampler.history(namespace, only)
            board.show()
        tiles.show(history, context.session.broker.loop_lag.longest_s(context.session.clock.monotonic()))
        hubs.show()
        essentials.show()
        first_steps.show()
        attention.show()

    theme.refresh_regularly(refresh)


class _Attention:
    """What needs attention: the findings of the doctor, every few seconds."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._examine_at = 0.0
        may_listen = any(context.may_view(hub) for hub in context.hubs()[:1]) or context.may_view()
        self._doctor = Doctor(context) if may_listen else None
        self._card = FindingsCard("Needs attention") if may_listen else None

    def show(self) -> None:
        """Examine the namespace if that is due, and display the findings."""
        now = self._context.session.clock.monotonic()
        if self._doctor is not None and self._card is not None and now >= self._examine_at:
            self._examine_at = now + _EXAMINE_SECONDS
            self._card.show(self._doctor.examine())


def _only_hub(context: PageContext) -> str | None:
    """The hub whose rates are shown to a credential of a single hub; None if it covers the namespace."""
    if context.covers_namespace:
        return None
    return next((hub.name for hub in context.hubs()), "")


class _Tiles:
    """The current rates."""

    def __init__(self) -> None:
        with ui.element("div").classes("h-tiles"):
            self._incoming = theme.tile("Events in /s")
            self._outgoing = theme.tile("Events out /s")
            self._bytes_in = theme.tile("Data in /s")
            self._bytes_out = theme.tile("Data out /s")
            self._throttled = theme.tile("Throttled /s")
            self._connections = theme.tile("Connections")
            self._lag = theme.tile("Longest loop delay, 1 min")

    def show(self, history: Sequence[Sample], longest_lag_s: float) -> None:
        """Display the last sample."""
        last = history[-1] if history else None
        tiles = (
            (self._incoming, "incoming_messages", formatting.rate),
            (self._outgoing, "outgoing_messages", formatting.rate),
            (self._bytes_in, "incoming_bytes", formatting.size),
            (self._bytes_out, "outgoing_bytes", formatting.size),
            (self._throttled, "throttled_requests", formatting.rate),
        )
        for label, counter, text in tiles:
            label.text = text(0.0 if last is None else last.rate(counter))
        self._connections.text = formatting.number(0 if last is None else last.connections)
        self._lag.text = formatting.milliseconds(longest_lag_s)


_CHARTS = (
    ChartSpec(
        title="Events per second",
        lines={_IN: ("incoming_messages", charts.ACCENT), _OUT: ("outgoing_messages", charts.SECOND)},
    ),
    ChartSpec(
        title="Data per second",
        lines={_IN: ("incoming_bytes", charts.ACCENT), _OUT: ("outgoing_bytes", charts.SECOND)},
        is_bytes=True,
    ),
    ChartSpec(
        title="Requests per second",
        lines={"all": ("incoming_requests", charts.ACCENT), "successful": ("successful_requests", charts.SECOND)},
    ),
    ChartSpec(title="Throttled requests per second", lines={"throttled": ("throttled_requests", charts.WARNING)}),
    ChartSpec(
        title="Errors per second",
        lines={"server": ("server_errors", charts.ERROR), "user": ("user_errors", charts.SECOND)},
    ),
    ChartSpec(title="Connections", lines={"open": (OPEN_CONNECTIONS, charts.ACCENT)}),
)


class _Hubs:
    """The table of hubs."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._search_text = ""
        rates = context.session.sampler.rates
        with theme.card():
            with theme.row(between=True):
                theme.heading("Event hubs")
                ui.space()
                search = ui.input(placeholder="Search event hubs", on_change=self._find)
                search.props('dense outlined clearable debounce=200 aria-label="Search event hubs"')
                if context.may(Rights.MANAGE):
                    ui.button("New event hub", on_click=lambda: _new_hub(context)).props("no-caps unelevated")
            self._table = PagedTable[HubView](
                (
                    Column("name", "Name", lambda hub: hub.name, lambda hub: hub.name.lower(), wraps=True),
                    Column(
                        "in",
                        "In /s",
                        lambda hub: formatting.rate(rates(hub)[_IN_RATE]),
                        lambda hub: rates(hub)[_IN_RATE],
                        True,
                    ),
                    Column(
                        "out",
                        "Out /s",
                        lambda hub: formatting.rate(rates(hub)[_OUT_RATE]),
                        lambda hub: rates(hub)[_OUT_RATE],
                        True,
                    ),
                    Column("size", "Size", self._size_text, _size, True),
                    Column("partitions", "Partitions", _partitions, _partitions, True),
                    Column("retention", "Retention", lambda hub: formatting.hours(hub.entity.retention.hours)),
                    Column("capture", "Capture", self._capture_state, self._capture_state),
                    Column("status", "Status", lambda hub: str(hub.entity.status), lambda hub: str(hub.entity.status)),
                ),
                key=lambda hub: str(hub.name),
                href=lambda hub: context.prefix + context.url(HUB_PATH, hub=hub.name),
                sorted_by="name",
                empty_text="There are no event hubs yet, or none has this name.",
            )

    def _size_text(self, hub: HubView) -> str:
        return self._context.stored_size_text(hub.size_bytes) if hub.is_fully_open else "…"

    def _capture_state(self, hub: HubView) -> str:
        """The state of the capture job, which is the same for all hubs and cheap; the Capture page has more."""
        captures = self._context.session.broker.captures
        return (
            str(captures.job_status(self._context.session.clock.monotonic()).state) if hub.entity.is_captured else "off"
        )

    def _find(self, event: ValueChangeEventArguments[str | None]) -> None:
        self._search_text = (event.value or "").strip().lower()
        self.show()

    def show(self) -> None:
        """Display the hubs that match the search."""
        hubs = [hub for hub in self._context.hubs() if self._search_text in hub.name.lower()]
        _open_logs(self._table.visible(hubs))
        self._table.show(hubs)


def _partitions(hub: HubView) -> int:
    return hub.partition_count


def _size(hub: HubView) -> int:
    return hub.size_bytes


def _open_logs(hubs: Sequence[HubView]) -> None:
    """Open a few logs of the visible hubs to find their sizes, without blocking the node."""
    left = _MAX_OPENED_PER_REFRESH
    for hub in hubs:
        if left <= 0:
            return
        if not hub.is_fully_open:
            left -= hub.open_partitions(left)


def _new_hub(context: PageContext) -> None:
    """Show the dialog that creates a hub."""
    with theme.dialog("New event hub") as dialog:
        name = ui.input("Name").props("outlined dense autofocus")
        count = ui.number("Partitions", value=4, min=1, precision=0).props("outlined dense")
        retention = ui.number("Retention in hours", placeholder="default of the tier", min=1, precision=0).props(
            "outlined dense"
        )
        policy = ui.select(
            [str(each) for each in CleanupPolicy], value=str(CleanupPolicy.DELETE), label="Cleanup policy"
        )
        policy.props("outlined dense")

        async def create() -> None:
            context.require(Rights.MANAGE)
            wanted = CleanupPolicy(policy.value)
            spec = HubSpec(
                partition_count=None if count.value is None else int(count.value),
                retention_hours=None if retention.value is None else int(retention.value),
                cleanup_policy=wanted,
            )
            checked = hub_name((name.value or "").strip())
            manager, namespace = context.session.broker.manager, context.namespace_name
            await context.session.submit(
                lambda actor, on_done: manager.create_hub(namespace, checked, spec, actor, on_done)
            )
            dialog.close()
            ui.notify(f"Event hub {checked} was created.", type="positive")

        theme.dialog_buttons(dialog, "Create", create)
