"""Line charts as SVG: lines with markers that show their value, a bar or a band from low to high, linear or log axes.

A point is [x, y] or [x, y, low, high]. Where y is missing the line has a gap; if x is a word, the axis is categorical.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

from .axes import LETTER, Axis, at_values, fitting, reach, short, shortened, tick_label, usable
from .page import COLOURS

WIDTH, HEIGHT = 360, 236
RIGHT, TOP, BOTTOM = 12, 24, 38
FEW = 8  # up to this many points have separate error bars; more have a band
DASHES = ("", "6 3", "9 2 2 2")
PAPER = re.compile(r"[\s,(]*\b(the\s+)?paper('s)?\b.*", re.IGNORECASE)
Series = Mapping[str, Sequence[Sequence[Any]]]


class Point(NamedTuple):
    x: float
    y: float | None
    low: float | None
    high: float | None
    name: str  # of x


class Look(NamedTuple):
    """The look of a series: colour and marker, and dashes once the colours repeat."""

    number: int
    colour: str
    dash: str

    def lighter(self) -> str:
        """Return the counterpart of dashes for a bar or a marker: a lighter fill."""
        return ' fill-opacity=".55"' if self.dash else ""

    def marker(self, x: float, y: float, size: float = 3.4) -> str:
        """Return the outline of its marker: disc, square, triangle, diamond, inverted triangle."""
        s, t, half = round(size, 1), round(2 * size, 1), round(1.3 * size, 1)
        shapes = (
            f"m{-s} 0a{s} {s} 0 1 0 {t} 0a{s} {s} 0 1 0 {-t} 0",
            f"m{-s} {-s}h{t}v{t}h{-t}z",
            f"m0 {-half}l{half} {t}h{-2 * half:.1f}z",
            f"m0 {-half}l{half} {half}l{-half} {half}l{-half} {-half}z",
            f"m0 {half}l{half} {-t}h{-2 * half:.1f}z",
        )
        return f"M{x:.1f} {y:.1f}{shapes[self.number % len(shapes)]}"


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each series. A paper's series, "ridge paper" or "ridge, the paper's", is drawn like its
    counterpart "ridge", but dashed; without a counterpart, in the colour of the text."""
    named = list(dict.fromkeys(names))
    ours = [name for name in named if not PAPER.search(name)]
    styles = {}
    for number, name in enumerate(named):
        counterpart = PAPER.sub("", name)
        at = ours.index(counterpart) if counterpart in ours else None
        colour = "currentColor" if at is None else COLOURS[at % len(COLOURS)]
        dash = DASHES[(at or 0) // len(COLOURS) % len(DASHES)] if name in ours else "2 3"
        styles[name] = Look(number, colour, dash)
    return styles


def lines(chart: Mapping[str, Any], looks: Mapping[str, Look]) -> tuple[str, int]:
    """Return the content of the SVG element and its height; "" if there is nothing to draw."""
    series, names = points(chart)
    shown = [point for line in series.values() for point in line if point.y is not None]
    if not shown:
        return "", 0
    levels, y_range = chart.get("levels") or {}, chart.get("y_range")
    heights = [v for point in shown for v in point[1:4] if v is not None] + [*levels.values()]
    y_low, y_high = y_range or reach(heights, chart["log_y"])
    y = Axis(y_low, y_high, chart["log_y"], HEIGHT - BOTTOM, TOP)
    left = 8 + LETTER * max(len(tick_label(tick)) for tick in y.ticks())
    x_low, x_high = (-0.5, len(names) - 0.5) if names else reach([p.x for p in shown], chart["log_x"])
    x = Axis(x_low, x_high, chart["log_x"] and not names, left, WIDTH - RIGHT)
    drawn = "".join(curve(name, looks[name], line, x, y, levels.get(name)) for name, line in series.items())
    return frame(chart, x, y, [point.x for point in shown], names) + drawn, HEIGHT


def points(chart: Mapping[str, Any], words: bool = False) -> tuple[dict[str, list[Point]], list[str]]:
    """Return the points of every series, and the words at 0, 1, 2 ... of a categorical x axis."""
    given = {
        name: [(*point, None, None)[:4] for point in line if point[0] is not None]
        for name, line in chart["series"].items()
    }
    every = [point[0] for line in given.values() for point in line]
    names = list(dict.fromkeys(map(str, every))) if words or any(isinstance(x, str) for x in every) else []
    series: dict[str, list[Point]] = {}
    for name, line in given.items():
        series[name] = []
        for x, *rest in line:
            y, low, high = (value if usable(value, chart["log_y"]) else None for value in rest)
            at = names.index(str(x)) if names else x
            if usable(at, chart["log_x"] and not names):
                series[name].append(Point(at, y, low, high, str(x) if names else short(x)))
    return series, names


def frame(chart: Mapping[str, Any], x: Axis, y: Axis, values: Sequence[float], names: Sequence[str]) -> str:
    """Return axes, grid, ticks and labels."""
    ticks = [*map(float, range(len(names)))] if names else at_values(x, values)
    room = (x.end - x.start) / max(1, len(ticks)) - 4
    words = [shortened(name, max(room, 40)) for name in names] or [tick_label(tick) for tick in ticks]
    places = [x.place(tick) for tick in ticks]
    parts = [
        _shade(x, y, chart.get("shade")),
        f'<g stroke="currentColor" stroke-opacity=".14"><path d="{"".join(_level(x, y, t) for t in y.ticks())}"/></g>',
    ]
    parts += [label(x.start - 5, y.place(tick) + 4, tick_label(tick), "end") for tick in y.ticks()]
    for i in fitting(places, words):
        parts.append(f'<path d="M{places[i]:.1f} {y.start}v4" stroke="currentColor" stroke-opacity=".5"/>')
        parts.append(label(places[i], y.start + 16, words[i], "middle"))
    parts.append(f'<path d="M{x.start:.1f} {y.start}H{x.end:.1f}" stroke="currentColor" stroke-opacity=".5"/>')
    parts.append(label(x.start, 11, shortened(chart["y"], x.end - x.start), bold=True))
    parts.append(label(x.end, HEIGHT - 4, shortened(chart["x"], x.end - x.start), "end", bold=True))
    return "".join(parts)


def _level(x: Axis, y: Axis, tick: float) -> str:
    return f"M{x.start:.1f} {y.place(tick):.1f}H{x.end:.1f}"


def _shade(x: Axis, y: Axis, between: tuple[float, float] | None) -> str:
    if between is None:
        return ""
    left, right = (x.place(min(max(value, x.low), x.high)) for value in between)
    box = f'x="{left:.1f}" y="{y.end}" width="{right - left:.1f}" height="{y.start - y.end}"'
    return f'<rect {box} fill="currentColor" fill-opacity=".07"/>'


def curve(name: str, look: Look, line_points: Sequence[Point], x: Axis, y: Axis, level: float | None = None) -> str:
    """Return one series: its level and interval below its line below its markers."""
    parts = []
    if level is not None:
        parts.append(f'<path d="{_level(x, y, level)}" stroke="{look.colour}" stroke-dasharray="4 3"/>')
    for run in runs(line_points):
        parts.append(_interval(run, look, x, y))
        line = _line([(x.place(p.x), y.place(p.y or 0)) for p in run], y)
        if line:
            dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
            parts.append(f'<path d="{line}" fill="none" stroke="{look.colour}" stroke-width="1.8"{dash}/>')
    size = 3.4 if len(line_points) <= 3 * FEW else 2.0
    for point in line_points:
        if point.y is not None and y.low <= point.y <= y.high:
            outline = look.marker(x.place(point.x), y.place(point.y), size)
            parts.append(
                f'<path class="p" d="{outline}" fill="{look.colour}"{look.lighter()}>{tooltip(name, point)}</path>'
            )
    return f'<g class="s{look.number}">{"".join(parts)}</g>'


def _line(places: Sequence[tuple[float, float]], y: Axis) -> str:
    """Return a path through the places, clipped to the y axis; "" for a single place."""
    if all(y.end - 0.1 <= at <= y.start + 0.1 for _, at in places):
        return "M" + "L".join(f"{x:.1f} {at:.1f}" for x, at in places) if len(places) > 1 else ""
    parts = []
    for (x0, y0), (x1, y1) in pairwise(places):
        crossings = sorted((edge - y0) / (y1 - y0) for edge in (y.start, y.end)) if y1 != y0 else [0.0, 1.0]
        first, last = max(0.0, crossings[0]), min(1.0, crossings[1])
        if first < last and (y1 != y0 or y.end <= y0 <= y.start):
            ends = (f"{x0 + t * (x1 - x0):.1f} {y0 + t * (y1 - y0):.1f}" for t in (first, last))
            parts.append("M" + "L".join(ends))
    return "".join(parts)


def runs(line: Sequence[Point]) -> list[list[Point]]:
    """Split points at gaps."""
    every: list[list[Point]] = [[]]
    for point in line:
        if point.y is None:
            every.append([])
        else:
            every[-1].append(point)
    return [run for run in every if run]


def _interval(run: Sequence[Point], look: Look, x: Axis, y: Axis) -> str:
    known = [
        (x.place(p.x), *(y.place(min(max(end, y.low), y.high)) for end in (p.low, p.high)))
        for p in run
        if p.low is not None and p.high is not None
    ]
    if len(known) > FEW:
        edge = [f"{at:.1f} {high:.1f}" for at, _, high in known] + [f"{at:.1f} {low:.1f}" for at, low, _ in known[::-1]]
        return f'<path d="M{"L".join(edge)}z" fill="{look.colour}" fill-opacity=".18"/>'
    bars = "".join(f"M{at:.1f} {low:.1f}V{high:.1f}m-3 0h6M{at - 3:.1f} {low:.1f}h6" for at, low, high in known)
    return f'<path d="{bars}" fill="none" stroke="{look.colour}" stroke-width="1.2"/>' if bars else ""


def tooltip(name: str, point: Point) -> str:
    """Return the text shown when the pointer rests on a marker."""
    return f"<title>{escape(f'{name}, {point.name}: {valued(point)}')}</title>"


def valued(point: Point) -> str:
    spread = "" if point.low is None or point.high is None else f" [{short(point.low)}, {short(point.high)}]"
    return short(point.y) + spread


def label(x: float, y: float, words: str, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
