"""Charts: values over time, drawn by the browser from a bounded history.

A chart is given its history once; from then on the node pushes what is new, and the browser keeps the last minutes. To
send all of it every second would grow with the history, most of it in the page library's watch over every single point.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from hubmere.portal.sampler import FLOWS, HISTORY_SAMPLES, Sample
from hubmere.portal.theme import card

# Readable on light and on dark ground.
ACCENT, SECOND, WARNING, WRONG = "#12a594", "#e08700", "#c98a00", "#d64545"
_AXIS = "#8a9a9d"

_BYTES_FORMATTER = (
    "v => v >= 1073741824 ? (v/1073741824).toFixed(1)+' GB' : v >= 1048576 ? (v/1048576).toFixed(1)+' MB' "
    ": v >= 1024 ? (v/1024).toFixed(1)+' KB' : Math.round(v)+' B'"
)
_NUMBER_FORMATTER = "v => v >= 1e6 ? (v/1e6).toFixed(1)+' M' : v >= 1e4 ? (v/1e3).toFixed(0)+' k' : +(+v).toFixed(1)+''"

# Points of a line that one push may hold: a page that was busy for longer misses some, and shows a straight line there.
MAX_PUSHED = 10
# Adds the new points of each line to those that the browser has, and lets the oldest go.
_PUSH = (
    "(() => { const chart = getElement(%d)?.chart; if (!chart) return; const fresh = %s; "
    "chart.setOption({ series: chart.getOption().series.map((line, place) => "
    "({ data: line.data.concat(fresh[place] ?? []).slice(-%d) })) }); })()"
)

Point = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    colour: str


class LineChart:
    """Values over time."""

    def __init__(self, title: str, lines: Sequence[Line], *, is_bytes: bool = False) -> None:
        self._limit: float | None = None
        # Between which times points were sent; nothing was while there is none.
        self._sent: tuple[int, int] | None = None
        formatter = _BYTES_FORMATTER if is_bytes else _NUMBER_FORMATTER
        with card(title):
            self._chart = ui.echart(_chart_options(lines, formatter)).classes("h-chart")
            self._chart.props(f'role="img" aria-label="{title}"')

    def show(self, points: Mapping[str, Sequence[Point]], *, limit: float | None = None) -> None:
        """Draw lines by name; a limit is drawn across the first one."""
        times = [point[0] for line in points.values() for point in (*line[:1], *line[-1:])]
        if not times:
            return
        first, last = min(times), max(times)
        # A history that begins behind what was sent last is another one.
        if self._sent is None or limit != self._limit or first > self._sent[1]:
            self._draw_all(points, limit)
        elif last > self._sent[1]:
            self._push(points, self._sent[1])
        self._sent = (first, last)

    def _draw_all(self, points: Mapping[str, Sequence[Point]], limit: float | None) -> None:
        self._limit = limit
        series = self._chart.options["series"]
        for drawn in series:
            drawn["data"] = [list(point) for point in points.get(drawn["name"], ())]
        if limit is not None and series:
            series[0]["markLine"] = _limit_line(limit)
        self._chart.update()

    def _push(self, points: Mapping[str, Sequence[Point]], after_ms: int) -> None:
        names = [drawn["name"] for drawn in self._chart.options["series"]]
        fresh = [[point for point in points.get(name, ())[-MAX_PUSHED:] if point[0] > after_ms] for name in names]
        self._chart.client.run_javascript(_PUSH % (self._chart.id, json.dumps(fresh), HISTORY_SAMPLES))

    def set_lines(self, names: Sequence[str]) -> None:
        """Take another set of lines, each in a colour of its own."""
        if [drawn["name"] for drawn in self._chart.options["series"]] != list(names):
            self._chart.options["series"] = [
                _series(Line(name, PALETTE[place % len(PALETTE)])) for place, name in enumerate(names)
            ]
            self._sent = None


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
        "lineStyle": {"color": WRONG, "type": "dashed"},
        "label": {"formatter": "limit", "color": WRONG, "position": "insideEndTop"},
        "data": [{"yAxis": limit}],
    }


def points(samples: Sequence[Sample], flow: str) -> list[Point]:
    """One flow of a history as a line."""
    place = FLOWS.index(flow)
    return [(sample.at_ms, round(sample.rates[place], 2)) for sample in samples]
