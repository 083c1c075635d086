"""Overview of a namespace: what flows now, what flowed in the last minutes, and its hubs."""

from collections.abc import Sequence

from fastapi import Request
from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from hubmere.broker.live import LiveHub
from hubmere.model.entity import CleanupPolicy, Rights
from hubmere.model.errors import Refusal
from hubmere.model.names import hub_name
from hubmere.model.spec import HubSpec
from hubmere.portal import charts, texts, theme
from hubmere.portal.charts import Line, LineChart
from hubmere.portal.pages.routes import HUB_PATH, page
from hubmere.portal.sampler import FLOWS, Sample
from hubmere.portal.tables import Column, PagedTable
from hubmere.portal.theme import Place

_IN, _OUT = "in", "out"
_IN_RATE, _OUT_RATE = FLOWS.index("incoming_messages"), FLOWS.index("outgoing_messages")
# Logs that may be opened for their size in one refresh: each costs up to a millisecond of the node's loop.
_OPENED_PER_REFRESH = 16


@page("", "Overview")
def overview(place: Place, _: Request) -> None:
    """Tiles, charts, hubs."""
    tiles = _Tiles()
    history_charts = _Charts()
    hubs = _Hubs(place)

    def refresh() -> None:
        namespace = place.namespace
        # The holder of a hub's key sees that hub's flow and no other's.
        only = None if place.desk.sees_all(namespace) else next(iter(place.desk.hubs(namespace)), None)
        place.desk.sampler.look(namespace, only)
        history: Sequence[Sample] = ()
        if only is not None or place.desk.sees_all(namespace):
            history = place.desk.sampler.history(namespace, only)
        tiles.show(history)
        history_charts.show(history)
        hubs.show()

    theme.follow(refresh)


class _Tiles:
    """The newest numbers."""

    def __init__(self) -> None:
        with ui.element("div").classes("h-tiles"):
            self._incoming = theme.tile("Events in /s")
            self._outgoing = theme.tile("Events out /s")
            self._bytes_in = theme.tile("Data in /s")
            self._bytes_out = theme.tile("Data out /s")
            self._throttled = theme.tile("Throttled /s")
            self._connections = theme.tile("Connections")

    def show(self, history: Sequence[Sample]) -> None:
        """Take the last sample."""
        last = history[-1] if history else None
        shown = (
            (self._incoming, "incoming_messages", texts.rate),
            (self._outgoing, "outgoing_messages", texts.rate),
            (self._bytes_in, "incoming_bytes", texts.size),
            (self._bytes_out, "outgoing_bytes", texts.size),
            (self._throttled, "throttled_requests", texts.rate),
        )
        for label, flow, text in shown:
            label.text = text(0.0 if last is None else last.rate(flow))
        self._connections.text = texts.number(0 if last is None else last.connections)


class _Charts:
    """The last minutes."""

    def __init__(self) -> None:
        both = (Line(_IN, charts.ACCENT), Line(_OUT, charts.SECOND))
        with ui.element("div").classes("h-grid"):
            self._events = LineChart("Events per second", both)
            self._bytes = LineChart("Data per second", both, is_bytes=True)
            self._requests = LineChart(
                "Requests per second", (Line("all", charts.ACCENT), Line("successful", charts.SECOND))
            )
            self._throttled = LineChart("Throttled requests per second", (Line("throttled", charts.WARNING),))
            self._errors = LineChart("Errors per second", (Line("server", charts.WRONG), Line("user", charts.SECOND)))
            self._connections = LineChart("Connections to the node", (Line("open", charts.ACCENT),))

    def show(self, history: Sequence[Sample]) -> None:
        """Draw the history."""
        drawn = (
            (self._events, {_IN: "incoming_messages", _OUT: "outgoing_messages"}),
            (self._bytes, {_IN: "incoming_bytes", _OUT: "outgoing_bytes"}),
            (self._requests, {"all": "incoming_requests", "successful": "successful_requests"}),
            (self._throttled, {"throttled": "throttled_requests"}),
            (self._errors, {"server": "server_errors", "user": "user_errors"}),
        )
        for chart, lines in drawn:
            chart.show({name: charts.points(history, flow) for name, flow in lines.items()})
        self._connections.show({"open": [(sample.at_ms, float(sample.connections)) for sample in history]})


class _Hubs:
    """The hubs, a page at a time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._wanted = ""
        rates = place.desk.sampler.rates
        with theme.card():
            with theme.row(between=True):
                theme.heading("Event hubs")
                ui.space()
                search = ui.input(placeholder="Find a hub", on_change=self._find)
                search.props('dense outlined clearable debounce=200 aria-label="Find a hub"')
                if place.may(Rights.MANAGE):
                    ui.button("New event hub", on_click=lambda: _new_hub(place)).props("no-caps unelevated")
            self._table = PagedTable[LiveHub](
                (
                    Column("name", "Name", lambda hub: hub.name, lambda hub: hub.name.lower()),
                    Column(
                        "in",
                        "In /s",
                        lambda hub: texts.rate(rates(hub)[_IN_RATE]),
                        lambda hub: rates(hub)[_IN_RATE],
                        True,
                    ),
                    Column(
                        "out",
                        "Out /s",
                        lambda hub: texts.rate(rates(hub)[_OUT_RATE]),
                        lambda hub: rates(hub)[_OUT_RATE],
                        True,
                    ),
                    Column("size", "Size", _shown_size, _size, True),
                    Column("partitions", "Partitions", _partitions, _partitions),
                    Column("retention", "Retention", lambda hub: texts.hours(hub.entity.retention.hours)),
                    Column("capture", "Capture", self._capture_state, self._capture_state),
                    Column("status", "Status", lambda hub: str(hub.entity.status), lambda hub: str(hub.entity.status)),
                ),
                key=lambda hub: str(hub.name),
                href=lambda hub: place.prefix + place.url(HUB_PATH, hub=hub.name),
                sorted_by="name",
            )

    def _capture_state(self, hub: LiveHub) -> str:
        """Told by the job for all of it, so that a thousand hubs cost nothing; the Capture page says more."""
        captures = self._place.desk.broker.captures
        return str(captures.job_standing(self._place.desk.clock.monotonic()).state) if hub.entity.is_captured else "off"

    def _find(self, event: ValueChangeEventArguments[str | None]) -> None:
        self._wanted = (event.value or "").strip().lower()
        self.show()

    def show(self) -> None:
        """Show what the person may see and asked for."""
        hubs = [hub for hub in self._place.desk.hubs(self._place.namespace) if self._wanted in hub.name.lower()]
        _open_some(self._table.visible(hubs))
        self._table.show(hubs)


def _partitions(hub: LiveHub) -> int:
    return hub.entity.partition_count


def _is_open(hub: LiveHub) -> bool:
    return len(hub.open_logs()) == hub.entity.partition_count


def _size(hub: LiveHub) -> int:
    """What the open logs of a hub hold; one that is offline is not counted."""
    total = 0
    for log in hub.open_logs():
        try:
            total += log.state.size_bytes
        except Refusal:
            continue
    return total


def _shown_size(hub: LiveHub) -> str:
    return texts.size(_size(hub)) if _is_open(hub) else "…"


def _open_some(hubs: Sequence[LiveHub]) -> None:
    """Open a few logs of the hubs that are shown, so that their sizes become known without holding the node up."""
    left = _OPENED_PER_REFRESH
    for hub in hubs:
        if _is_open(hub):
            continue
        for partition in range(hub.entity.partition_count):
            before = len(hub.open_logs())
            try:
                hub.log(partition)
            except Refusal:
                continue
            left -= len(hub.open_logs()) - before
            if left <= 0:
                return


def _new_hub(place: Place) -> None:
    """Ask what the hub should be, and make it."""
    with theme.dialog("New event hub") as dialog:
        name = ui.input("Name").props("outlined dense autofocus")
        count = ui.number("Partitions", value=4, min=1, precision=0).props("outlined dense")
        kept = ui.number("Retention in hours (empty: the tier's default)", min=1, precision=0).props("outlined dense")
        policy = ui.select(
            [str(each) for each in CleanupPolicy], value=str(CleanupPolicy.DELETE), label="Cleanup policy"
        )
        policy.props("outlined dense")

        async def create() -> None:
            place.desk.require(Rights.MANAGE, place.namespace)
            wanted = CleanupPolicy(policy.value)
            spec = HubSpec(
                partition_count=None if count.value is None else int(count.value),
                retention_hours=None if kept.value is None else int(kept.value),
                cleanup_policy=wanted,
            )
            checked = hub_name((name.value or "").strip())
            manager, namespace = place.desk.broker.manager, place.namespace_name
            await place.desk.carry_out(lambda actor, done: manager.create_hub(namespace, checked, spec, actor, done))
            dialog.close()
            ui.notify(f"Event hub {checked} is there.", type="positive")

        theme.dialog_buttons(dialog, "Create", create)
