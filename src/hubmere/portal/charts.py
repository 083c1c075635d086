"""Line charts of values over time, drawn by the browser from a bounded history.

The node sends the history once and then only the new points; the browser keeps the last five minutes. Sending the whole
history every second would cost time in proportion to its length, mostly in the page library's change tracking.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from hubmere.portal.sampler import COUNTERS, HISTORY_SAMPLES, Sample
from hubmere.portal.theme import card

# Readable on a light and on a dark background.
ACCENT, SECOND, WARNING, ERROR = "#12a594", "#e08700", "#c98a00", "#d64545"
_AXIS = "#8a9a9d"

_BYTES_FORMATTER = (
    "v => v >= 1073741824 ? (v/1073741824).toFixed(1)+' GB' : v >= 1048576 ? (v/1048576).toFixed(1)+' MB' "
    ": v >= 1024 ? (v/1024).toFixed(1)+' KB' : Math.round(v)+' B'"
)
_NUMBER_FORMATTER = "v => v >= 1e6 ? (v/1e6).toFixed(1)+' M' : v >= 1e4 ? (v/1e3).toFixed(0)+' k' : +(+v).toFixed(1)+''"

# Maximum new points per line in one push. A page that was blocked for longer skips points and shows a straight line.
MAX_PUSHED = 10
# Appends the new points of each line to those in the browser and drops the oldest.
_PUSH = (
    "(() => { const chart = getElement(%d)?.chart; if (!chart) return; const added = %s; "
    "chart.setOption({ series: chart.getOption().series.map((line, index) => "
    "({ data: line.data.concat(added[index] ?? []).slice(-%d) })) }); })()"
)

Point = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Line:
    """Name and colour of one line of a chart."""

    name: str
    colour: str


class LineChart:
    """A card with a chart of values over time."""

    def __init__(self, title: str, lines: Sequence[Line], *, is_bytes: bool = False) -> None:
        self._limit: float | None = None
        # Times of the first and the last point in the browser; None before the first points are sent.
        self._sent_range_ms: tuple[int, int] | None = None
        formatter = _BYTES_FORMATTER if is_bytes else _NUMBER_FORMATTER
        with card(title):
            self._chart = ui.echart(_chart_options(lines, formatter)).classes("h-chart")
            self._chart.props(f'role="img" aria-label="{title}"')

    def show(self, points: Mapping[str, Sequence[Point]], *, limit: float | None = None) -> None:
        """Draw the points of each line, by name. `limit` adds a horizontal line."""
        times = [point[0] for line in points.values() for point in (*line[:1], *line[-1:])]
        if not times:
            return
        first, last = min(times), max(times)
        # No overlap with the points in the browser means that the history was restarted: draw everything.
        if self._sent_range_ms is None or limit != self._limit or first > self._sent_range_ms[1]:
            self._draw_all(points, limit)
        elif last > self._sent_range_ms[1]:
            self._push_new(points, self._sent_range_ms[1])
        self._sent_range_ms = (first, last)

    def _draw_all(self, points: Mapping[str, Sequence[Point]], limit: float | None) -> None:
        self._limit = limit
        series = self._chart.options["series"]
        for drawn in series:
            drawn["data"] = [list(point) for point in points.get(drawn["name"], ())]
        if limit is not None and series:
            series[0]["markLine"] = _limit_line(limit)
        self._chart.update()

    def _push_new(self, points: Mapping[str, Sequence[Point]], after_ms: int) -> None:
        names = [drawn["name"] for drawn in self._chart.options["series"]]
        added = [[point for point in points.get(name, ())[-MAX_PUSHED:] if point[0] > after_ms] for name in names]
        self._chart.client.run_javascript(_PUSH % (self._chart.id, json.dumps(added), HISTORY_SAMPLES))

    def set_lines(self, names: Sequence[str]) -> None:
        """Replace the lines of the chart; each gets a colour of the palette."""
        if [drawn["name"] for drawn in self._chart.options["series"]] != list(names):
            self._chart.options["series"] = [
                _series(Line(name, PALETTE[index % len(PALETTE)])) for index, name in enumerate(names)
            ]
            self._sent_range_ms = None


PALETTE = (ACCENT, SECOND, "#5b8def", "#c060c0", "#7aa92c", "#d64545", "#8b6fd6", "#4aa3c0")


def _series(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "type": "line",
        "showSymbol": False,
        "data": [],
        "lineStyle": {"width": 1.8},
        "itemStyle": {"color": line.colour},
        "areaStyle": {"opacity": 0.08},
    }


def _chart_options(lines: Sequence[Line], formatter: str) -> dict[str, Any]:
    axis = {"axisLabel": {"color": _AXIS}, "axisLine": {"lineStyle": {"color": _AXIS}}}
    return {
        "animation": False,
        "grid": {"left": 62, "right": 14, "top": 30, "bottom": 24},
        "legend": {"top": 0, "left": 0, "textStyle": {"color": _AXIS}, "itemWidth": 14, "itemHeight": 8},
        "tooltip": {"trigger": "axis", ":valueFormatter": formatter},
        "xAxis": {
            "type": "time",
            **axis,
            "splitLine": {"show": False},
            "axisLabel": {"color": _AXIS, "hideOverlap": True},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 1,
            "splitNumber": 3,
            "splitLine": {"lineStyle": {"color": _AXIS, "opacity": 0.2}},
            "axisLabel": {"color": _AXIS, ":formatter": formatter},
        },
        "series": [_series(line) for line in lines],
    }


def _limit_line(limit: float) -> dict[str, Any]:
    return {
        "silent": True,
        "symbol": "none",
        "lineStyle": {"color": ERROR, "type": "dashed"},
        "label": {"formatter": "limit", "color": ERROR, "position": "insideEndTop"},
        "data": [{"yAxis": limit}],
    }


def points(samples: Sequence[Sample], counter: str) -> list[Point]:
    """The rates of one counter as points of a line."""
    index = COUNTERS.index(counter)
    return [(sample.at_ms, round(sample.rates[index], 2)) for sample in samples]
