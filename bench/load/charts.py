"""Line charts as SVG: a few lines over a logarithmic or linear x axis, without a library.

Colours follow the reader's light or dark preference; every point has its value as a tooltip and the lines are labelled
at their ends, so that nothing depends on colour alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 680, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 40, 44
_COLOURS = ("#2563c9", "#c2570c", "#15803d", "#9333a8", "#b91c1c")
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 }
.title { font-size: 14px; font-weight: 600 }
.grid { stroke: #ddd; stroke-width: 1 }
.line { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #444 } }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture: lines over a common x axis."""

    title: str
    x_title: str
    y_title: str
    lines: Sequence[Line]
    # Whether the y axis is logarithmic, for values over several decades.
    has_log_y: bool = False

    def write(self, path: Path) -> None:
        """Write the picture as SVG."""
        path.write_text(self._svg(), encoding="utf-8")

    def _svg(self) -> str:
        shown = [line for line in self.lines if line.points]
        xs = sorted({x for line in shown for x, _ in line.points})
        scale = _Scale([y for line in shown for _, y in line.points], is_log=self.has_log_y)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{escape(self.title)}">',
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="{_LEFT}" y="18">{escape(self.title)}</text>',
            f'<text x="{_LEFT}" y="34">{escape(self.y_title)}</text>',
            f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">'
            f"{escape(self.x_title)}</text>",
            *_grid(xs, scale),
        ]
        ends: list[float] = []
        coloured = list(zip(shown, _COLOURS, strict=False))
        # Start with the lowest label, so that labels that are moved up keep their order.
        for line, colour in sorted(coloured, key=lambda each: each[0].points[-1][1]):
            parts += _drawn(line, colour, xs, scale, ends)
        return "\n".join((*parts, "</svg>", ""))


class _Scale:
    """Maps values to y coordinates, and chooses the values with grid lines."""

    def __init__(self, values: Sequence[float], *, is_log: bool) -> None:
        self._is_log = is_log
        highest, lowest = max(values, default=1.0), min((value for value in values if value > 0), default=0.1)
        if is_log:
            self._low, self._high = math.floor(math.log10(lowest)), math.ceil(math.log10(max(highest, lowest * 1.01)))
            self.marks = [10.0**power for power in range(self._low, self._high + 1)]
        else:
            top = _round_up(highest)
            self._low, self._high = 0, 1
            self.marks = [top * step / 4 for step in range(5)]

    def place(self, value: float) -> float:
        """The y coordinate of a value."""
        if self._is_log:
            part = (math.log10(max(value, 10.0**self._low)) - self._low) / (self._high - self._low)
        else:
            part = min(value / self.marks[-1], 1.0)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP - 6) * part


def _grid(xs: Sequence[float], scale: _Scale) -> list[str]:
    parts = []
    for value in scale.marks:
        y = scale.place(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>')
    parts += [
        f'<text x="{_x(x, xs):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{_number(x)}</text>' for x in xs
    ]
    return parts


def _drawn(line: Line, colour: str, xs: Sequence[float], scale: _Scale, ends: list[float]) -> list[str]:
    places = [(_x(x, xs), scale.place(y), x, y) for x, y in line.points]
    path = " ".join(f"{'ML'[index > 0]}{x:.1f} {y:.1f}" for index, (x, y, _, _) in enumerate(places))
    parts = [f'<path class="line" stroke="{colour}" d="{path}"/>']
    for x, y, at, value in places:
        tip = escape(f"{line.name}, {_number(at)}: {_number(value)}")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{tip}</title></circle>')
    # Labels at the ends of the lines keep a distance from each other.
    label_y = places[-1][1] + 4
    while any(abs(label_y - other) < 14 for other in ends):
        label_y -= 14
    ends.append(label_y)
    parts.append(f'<text x="{_WIDTH - _RIGHT + 10}" y="{label_y:.1f}" style="fill:{colour}">{escape(line.name)}</text>')
    return parts


def _x(x: float, xs: Sequence[float]) -> float:
    """Logarithmic, since every curve goes over decades; a single value is in the middle."""
    width = _WIDTH - _LEFT - _RIGHT
    if len(xs) < 2:
        return _LEFT + width / 2
    low, high = math.log(max(xs[0], 0.5)), math.log(max(xs[-1], 0.5))
    return _LEFT + width * (math.log(max(x, 0.5)) - low) / (high - low)


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5 or 8 times a power of ten: quarters of it are short numbers."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value * 0.999)


def _number(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
