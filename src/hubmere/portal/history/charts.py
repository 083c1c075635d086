"""Line charts of values over time, drawn by the browser.

The node sends the points of a range once and then only the new ones. Sending everything every second would cost time in
proportion to its length, mostly in the page library's change tracking. The value axis is computed on the node: it
always includes the limit line, and its ticks are round numbers in the units of their labels.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from hubmere.portal.formatting import value_axis
from hubmere.portal.theme import card

# Readable on a light and on a dark background.
ACCENT, SECOND, WARNING, ERROR = "#12a594", "#e08700", "#c98a00", "#d64545"
_AXIS = "#75868a"
PALETTE = (ACCENT, SECOND, "#5b8def", "#c060c0", "#7aa92c", "#d64545", "#8b6fd6", "#4aa3c0")

_BYTES_FORMATTER = (
    "v => v >= 1073741824 ? +(v/1073741824).toFixed(1)+' GB' : v >= 1048576 ? +(v/1048576).toFixed(1)+' MB' "
    ": v >= 1024 ? +(v/1024).toFixed(1)+' KB' : Math.round(v)+' B'"
)
_NUMBER_FORMATTER = (
    "v => v == null ? '' : v >= 1e6 ? +(v/1e6).toFixed(1)+' M' : v >= 1e4 ? +(v/1e3).toFixed(1)+' k' "
    ": +(+v).toFixed(1)+''"
)

# Appends the new points of each line to those in the browser, drops those before the range, and moves both axes.
_PUSH = (
    "(() => { const chart = getElement(%d)?.chart; if (!chart) return; const added = %s, from = %d, to = %d; "
    "chart.setOption({ xAxis: { min: from, max: to }, yAxis: { max: %s, interval: %s }, "
    "series: chart.getOption().series.map((line, index) => "
    "({ data: line.data.filter(point => point[0] >= from).concat(added[index] ?? []) })) }); })()"
)

# Time in milliseconds and value; None breaks the line.
Point = tuple[int, float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """Name and colour of one line of a chart."""

    name: str
    colour: str


class LineChart:
    """A card with a chart of values over time."""

    def __init__(self, title: str, lines: Sequence[Line], *, is_bytes: bool = False) -> None:
        self._is_bytes = is_bytes
        self._limit: float | None = None
        self._points: dict[str, list[Point]] = {}
        formatter = _BYTES_FORMATTER if is_bytes else _NUMBER_FORMATTER
        with card(title):
            self._chart = ui.echart(_chart_options(lines, formatter)).classes("h-chart")
            self._chart.props(f'role="img" aria-label="{title}"')

    def draw(
        self, points: Mapping[str, Sequence[Point]], first_ms: int, last_ms: int, limit: float | None = None
    ) -> None:
        """Draw the points of each line, by name, over a range of time. `limit` adds a horizontal line."""
        self._points = {name: list(line) for name, line in points.items()}
        self._limit = limit
        options = self._chart.options
        for drawn in options["series"]:
            drawn["data"] = [list(point) for point in points.get(drawn["name"], ())]
        if options["series"]:
            options["series"][0]["markLine"] = _limit_line(limit)
        options["xAxis"].update(min=first_ms, max=last_ms)
        top, step = self._value_axis()
        options["yAxis"].update(max=top, interval=step)
        self._chart.update()

    def push(self, points: Mapping[str, Sequence[Point]], first_ms: int, last_ms: int) -> None:
        """Add new points and drop those before `first_ms`."""
        for name, line in points.items():
            known = self._points.setdefault(name, [])
            known += line
            while known and known[0][0] < first_ms:
                del known[0]
        names = [drawn["name"] for drawn in self._chart.options["series"]]
        added = [list(points.get(name, ())) for name in names]
        script = _PUSH % (self._chart.id, json.dumps(added), first_ms, last_ms, *map(json.dumps, self._value_axis()))
        self._chart.client.run_javascript(script)

    def has_limit(self, limit: float | None) -> bool:
        """Whether this limit is drawn."""
        return limit == self._limit

    def set_lines(self, names: Sequence[str]) -> bool:
        """Replace the lines of the chart; each gets a colour of the palette. Returns whether they have changed."""
        if [drawn["name"] for drawn in self._chart.options["series"]] == list(names):
            return False
        self._chart.options["series"] = [
            _series(Line(name, PALETTE[index % len(PALETTE)])) for index, name in enumerate(names)
        ]
        return True

    def _value_axis(self) -> tuple[float, float]:
        top = max((value or 0.0 for line in self._points.values() for _, value in line), default=0.0)
        return value_axis(max(top, self._limit or 0.0), is_bytes=self._is_bytes)


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
        # As all other times of the portal: a peak is compared with the times of events and of log lines.
        "useUTC": True,
        "grid": {"left": 62, "right": 14, "top": 30, "bottom": 24},
        "legend": {
            "type": "scroll",
            "top": 0,
            "left": 0,
            "textStyle": {"color": _AXIS},
            "itemWidth": 14,
            "itemHeight": 8,
        },
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
            "splitLine": {"lineStyle": {"color": _AXIS, "opacity": 0.2}},
            "axisLabel": {"color": _AXIS, ":formatter": formatter},
        },
        "series": [_series(line) for line in lines],
    }


def _limit_line(limit: float | None) -> dict[str, Any]:
    return {
        "silent": True,
        "symbol": "none",
        "lineStyle": {"color": ERROR, "type": "dashed"},
        "label": {"formatter": "limit", "color": ERROR, "position": "insideEndBottom"},
        "data": [] if limit is None else [{"yAxis": limit}],
    }
