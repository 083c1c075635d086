"""Boards: charts of the recorded history with one choice of the time range.

A board loads the range from the recorder when it is opened and when the person chooses another range. While the range
is the shortest, new points are pushed every second; longer ranges are loaded again every few points.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from hubmere.broker import HubView
from hubmere.model.monitoring.history import RINGS, Values
from hubmere.portal import theme
from hubmere.portal.history.charts import Line, LineChart, Point
from hubmere.portal.history.consumer_lag import amqp_label, consumer_positions, kafka_label
from hubmere.portal.history.recorder import (
    CONNECTIONS,
    LAG_WIDTH,
    MAX_POINTS,
    RECENT_SECONDS,
    downsample,
    fill_idle,
    hub_series,
    lag_series,
    namespace_series,
)
from hubmere.portal.history.sampler import COUNTERS
from hubmere.portal.sign_in.portal_session import PageContext

_HOUR = 3600
RANGES = {
    RECENT_SECONDS: "5 min",
    _HOUR: "1 h",
    6 * _HOUR: "6 h",
    24 * _HOUR: "24 h",
    7 * 24 * _HOUR: "7 d",
    30 * 24 * _HOUR: "30 d",
}
# The name of a column of rows beside COUNTERS.
OPEN_CONNECTIONS = "connections"
_COLUMNS = {**{name: index for index, name in enumerate(COUNTERS)}, OPEN_CONNECTIONS: CONNECTIONS}
# A gap of this many steps in the rows means that the node was down: the line is broken.
_GAP_STEPS = 4
_LAG_SECONDS = 10
# Maximum number of groups in a lag chart; more lines would be unreadable.
MAX_LAG_LINES = 12

Rows = Sequence[tuple[int, Values]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSpec:
    """One chart: its lines, each with the counter that it shows, and the value of its limit line."""

    title: str
    lines: Mapping[str, tuple[str, str]]
    is_bytes: bool = False
    limit: Callable[[], float | None] = field(default=lambda: None)


class RangeChoice:
    """The choice of the time range."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.seconds = RECENT_SECONDS
        with theme.row():
            theme.note("Time range (UTC)")
            ui.toggle(RANGES, value=RECENT_SECONDS, on_change=self._choose).props(
                'no-caps dense unelevated toggle-color=primary aria-label="Time range"'
            ).classes("h-range")

    @property
    def is_live(self) -> bool:
        """Whether new points are pushed every second."""
        return self.seconds == RECENT_SECONDS

    @property
    def step_s(self) -> int:
        """The distance of the points."""
        ring = next((ring for ring in RINGS if self.seconds <= ring.range_s), RINGS[-1])
        return max(self.seconds // MAX_POINTS, ring.step_s)

    def _choose(self, event: ValueChangeEventArguments[int]) -> None:
        self.seconds = int(event.value)
        self._on_change()


class Board:
    """Charts of the rates of a namespace, or of one of its hubs."""

    def __init__(self, context: PageContext, specs: Sequence[ChartSpec], hub: Callable[[], HubView] | None) -> None:
        self._context = context
        self._hub = hub
        self._sent_s: int | None = None
        self._load_at = 0.0
        self.range = RangeChoice(self._on_range)
        with ui.element("div").classes("h-grid"):
            self._charts = [
                (spec, LineChart(spec.title, [Line(n, c) for n, (_, c) in spec.lines.items()], is_bytes=spec.is_bytes))
                for spec in specs
            ]
        self._loader = ui.timer(0.05, theme.action_handler(self._load), once=True)

    def show(self) -> None:
        """Called every second: add new points, or load the range again when that is due."""
        now = self._context.session.clock.monotonic()
        has_limits = all(chart.has_limit(spec.limit()) for spec, chart in self._charts)
        if self._sent_s is None:
            return
        if not has_limits or (not self.range.is_live and now >= self._load_at):
            self._start_loading()
        elif self.range.is_live:
            self._push()

    def _on_range(self) -> None:
        self._sent_s = None
        self._start_loading()

    def _start_loading(self) -> None:
        session = self._context.session
        self._load_at = session.clock.monotonic() + max(self.range.step_s, 5)
        self._loader = ui.timer(0.01, theme.action_handler(self._load), once=True)

    def _push(self) -> None:
        """Add the rows since the last call."""
        assert self._sent_s is not None
        session = self._context.session
        recorder, namespace = session.recorder, self._context.namespace
        rows: Rows = recorder.recent(namespace_series(namespace), self._sent_s)
        if not rows:
            return
        if self._hub is not None:
            own = recorder.recent(hub_series(self._hub()), self._sent_s)
            rows = fill_idle(own, [second for second, _ in rows])
        self._sent_s = rows[-1][0]
        first_ms, last_ms = self._bounds_ms(self._sent_s)
        for spec, chart in self._charts:
            chart.push(_points(rows, spec, step_s=None), first_ms, last_ms)

    async def _load(self) -> None:
        range_s, recorder = self.range.seconds, self._context.session.recorder
        rows: Rows = await recorder.read(namespace_series(self._context.namespace), range_s)
        if self._hub is not None:
            own = await recorder.read(hub_series(self._hub()), range_s)
            rows = fill_idle(own, [second for second, _ in rows])
        if range_s != self.range.seconds:
            # Another range was chosen while this one was read.
            return
        self._sent_s = rows[-1][0] if rows else self._context.session.clock.now_ms() // 1000
        step_s = self.range.step_s
        thin = downsample(rows, range_s)
        first_ms, last_ms = self._bounds_ms(self._context.session.clock.now_ms() // 1000)
        for spec, chart in self._charts:
            chart.draw(_points(thin, spec, step_s=step_s), first_ms, last_ms, spec.limit())

    def _bounds_ms(self, last_s: int) -> tuple[int, int]:
        return (last_s - self.range.seconds) * 1000, last_s * 1000


def _points(rows: Rows, spec: ChartSpec, step_s: int | None) -> dict[str, list[Point]]:
    """The points of each line of a chart; with `step_s`, lines are broken where the node was down."""
    points: dict[str, list[Point]] = {name: [] for name in spec.lines}
    previous_s = None
    for second, values in rows:
        is_gap = step_s is not None and previous_s is not None and second - previous_s > _GAP_STEPS * step_s
        for name, (column, _) in spec.lines.items():
            if is_gap and previous_s is not None:
                points[name].append((previous_s * 1000 + 1, None))
            points[name].append((second * 1000, round(values[_COLUMNS[column]], 2)))
        previous_s = second
    return points


class LagBoard:
    """A chart of the lag of the consumer groups of a hub."""

    def __init__(
        self,
        context: PageContext,
        hub: Callable[[], HubView],
        *,
        only: str | None = None,
        title: str = "Lag in events",
    ) -> None:
        self._context = context
        self._hub = hub
        self._only = only
        self._load_at = 0.0
        self._range = RangeChoice(self._start_loading)
        self._chart = LineChart(title, ())
        self._start_loading()

    def show(self) -> None:
        """Called every second: load again when a new value is due."""
        if self._context.session.clock.monotonic() >= self._load_at:
            self._start_loading()

    def _start_loading(self) -> None:
        session = self._context.session
        self._load_at = session.clock.monotonic() + max(self._range.step_s, _LAG_SECONDS)
        ui.timer(0.05, theme.action_handler(self._load), once=True)

    async def _load(self) -> None:
        hub, range_s, session = self._hub(), self._range.seconds, self._context.session
        labels = {
            kafka_label(row.group) if row.protocol == "Kafka" else amqp_label(row.group): row.group
            for row in consumer_positions(session.broker, hub, session.clock.now_ms())
            if self._only is None or row.group == self._only
        }
        points: dict[str, list[Point]] = {}
        for label, group in sorted(labels.items())[:MAX_LAG_LINES]:
            rows = await session.recorder.read(lag_series(hub.uid, label), range_s, width=LAG_WIDTH)
            name = group if list(labels.values()).count(group) == 1 else f"{group} ({label.partition('/')[0]})"
            points[name] = [(second * 1000, values[0]) for second, values in downsample(rows, range_s)]
        self._chart.set_lines(sorted(points))
        now_s = session.clock.now_ms() // 1000
        self._chart.draw(points, (now_s - range_s) * 1000, now_s * 1000)
