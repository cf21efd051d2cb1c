"""Bar charts and heat maps as SVG: horizontal groups of bars, so that long names fit a phone; a table of shades.

Bars begin at zero, or at the edge of a logarithmic axis, with their value at the end; [x, y, low, high] adds an error
bar. A shade is proportional to its value, red below zero; a missing value is a dash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .axes import LETTER, Axis, fitting, reach, short, shortened, tick_label, usable
from .chart_lines import WIDTH, Look, Point, label, points, tooltip
from .page import COLOURS

GUTTER = 118  # names up to this width are left of their bars, longer ones above
TOP, BOTTOM, GAP = 20, 36, 9
DEEPEST = 0.72  # so that the number on it stays readable
BELOW, RING = COLOURS[3], "#ff2bd6"  # a value below zero; a ring that stands out on every shade


def bars(chart: Mapping[str, Any], looks: Mapping[str, Look]) -> tuple[str, int]:
    """Return the content of the SVG element and its height; "" if there is nothing to draw."""
    series, names = points(chart, words=True)
    shown = [point for line in series.values() for point in line if point.y is not None]
    if not shown:
        return "", 0
    thick = 16 if len(series) == 1 else 12
    above = max(len(name) for name in names) * LETTER > GUTTER
    left = 2.0 if above else 8 + LETTER * max(len(name) for name in names)
    tall = thick * len(series) + (14 if above else 0) + GAP
    height = TOP + tall * len(names) + BOTTOM
    low, high = reach([v for point in shown for v in point[1:4] if v is not None], chart["log_y"], zero=True)
    room = 10 + LETTER * max(len(short(point.y)) for point in shown)
    axis = Axis(low, high, chart["log_y"], left, WIDTH - room)
    parts = [_frame(chart, axis, height)]
    for i, name in enumerate(names):
        top = TOP + i * tall
        middle = top + thick * len(series) / 2 + 4
        at = label(left, top + 10, shortened(name, WIDTH - left)) if above else label(left - 6, middle, name, "end")
        parts.append(at)
    first = TOP + (14 if above else 0)
    for i, (name, line) in enumerate(series.items()):
        drawn = "".join(_bar(name, looks[name], p, axis, first + p.x * tall + i * thick, thick - 2) for p in line)
        parts.append(f'<g class="s{looks[name].number}">{drawn}</g>')
    return "".join(parts), round(height)


def _frame(chart: Mapping[str, Any], axis: Axis, height: float) -> str:
    ticks = axis.ticks()
    places, words = [axis.place(tick) for tick in ticks], [tick_label(tick) for tick in ticks]
    bottom = height - BOTTOM
    grid = "".join(f"M{place:.1f} {TOP - 4}V{bottom:.1f}" for place in places)
    parts = [f'<path d="{grid}" stroke="currentColor" stroke-opacity=".14"/>']
    parts += [label(places[i], bottom + 14, words[i], "middle") for i in fitting(places, words)]
    parts.append(f'<path d="M{_base(axis):.1f} {TOP - 4}V{bottom:.1f}" stroke="currentColor" stroke-opacity=".5"/>')
    parts.append(label(2, 11, shortened(chart["x"], WIDTH - 4), bold=True))
    parts.append(label(WIDTH - 2, height - 4, shortened(chart["y"], WIDTH - 4), "end", bold=True))
    return "".join(parts)


def _base(axis: Axis) -> float:
    return axis.start if axis.log else axis.place(0)


def _bar(name: str, look: Look, point: Point, axis: Axis, top: float, thick: float) -> str:
    middle = top + thick / 2
    if point.y is None:
        return label(_base(axis) + 4, middle + 4, "-")
    begin, end = sorted((_base(axis), axis.place(point.y)))
    outline = f'x="{begin:.1f}" y="{top:.1f}" width="{max(end - begin, 1):.1f}" height="{thick}"'
    parts = [f'<rect class="p" {outline} fill="{look.colour}"{look.lighter()}>{tooltip(name, point)}</rect>']
    if point.low is not None and point.high is not None:
        low, high = axis.place(point.low), axis.place(point.high)
        bar = f"M{low:.1f} {middle:.1f}H{high:.1f}m0 -3v6M{low:.1f} {middle - 3:.1f}v6"
        parts.append(f'<path d="{bar}" fill="none" stroke="currentColor" stroke-width="1.2"/>')
        end = max(end, high)
    parts.append(label(end + 5, middle + 4, short(point.y)))
    return "".join(parts)


def heat(chart: Mapping[str, Any]) -> tuple[str, int]:
    """Return the content of the SVG element and its height; "" if there is nothing to draw."""
    rows, columns = [str(row) for row in chart["rows"]], [str(column) for column in chart["columns"]]
    if not rows or not columns:
        return "", 0
    left = 8 + min(LETTER * max(map(len, rows)), 1.2 * GUTTER)
    wide = (WIDTH - left) / len(columns)
    tall = min(max(wide, 22.0), 26.0) if wide > 12 else wide
    turned = max(map(len, columns)) * LETTER > wide - 4
    top = 8 + (min(LETTER * max(map(len, columns)), GUTTER) * 0.75 + 8 if turned else 14)
    parts = [_head(columns, left, wide, top, turned)]
    for i, (row, values) in enumerate(zip(rows, chart["values"], strict=False)):
        y = top + i * tall
        if tall >= 10 or i % 4 == 0:
            parts.append(label(left - 6, y + tall / 2 + 4, shortened(row, left - 8), "end"))
        for j, (column, value) in enumerate(zip(columns, values, strict=False)):
            parts.append(_shade(f"{row}, {column}", value, chart.get("most"), left + j * wide, y, wide, tall))
    for i, j in chart.get("marked", ()):
        parts.append(_ring(left + (j + 0.5) * wide, top + (i + 0.5) * tall, min(wide, tall)))
    return "".join(parts), round(top + tall * len(rows) + 6)


def _head(columns: Sequence[str], left: float, wide: float, top: float, turned: bool) -> str:
    parts = []
    places = [left + (j + 0.5) * wide for j in range(len(columns))]
    step = 1 if wide >= 12 else 4
    for place, column in list(zip(places, columns, strict=True))[::step]:
        words = shortened(column, GUTTER)
        turn = f' transform="rotate(-45 {place:.1f} {top - 5:.1f})"' if turned else ""
        anchor = "start" if turned else "middle"
        parts.append(f'<text x="{place:.1f}" y="{top - 5:.1f}" text-anchor="{anchor}"{turn}>{escape(words)}</text>')
    return "".join(parts)


def _ring(x: float, y: float, size: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{max(0.42 * size, 2.5):.1f}" fill="none" stroke="{RING}"/>'


def _shade(name: str, value: Any, most: float | None, x: float, y: float, wide: float, tall: float) -> str:
    known = usable(value, False)
    share = 0.0 if not known else value if most is None else abs(value) / (most or 1.0)
    deep = DEEPEST * min(1.0, max(0.0, share))
    colour = BELOW if most is not None and known and value < 0 else COLOURS[0]
    gap = 1 if wide > 12 else 0
    box = f'x="{x:.1f}" y="{y:.1f}" width="{wide - gap:.1f}" height="{tall - gap:.1f}"'
    look = f'fill="{colour}" fill-opacity="{deep:.2f}" stroke="currentColor" stroke-opacity=".15"'
    words = f"{value:.2f}" if known else "-"
    cell = f'<rect class="p" {box} {look}><title>{escape(f"{name}: {short(value)}")}</title></rect>'
    return cell + (label(x + wide / 2, y + tall / 2 + 4, words, "middle") if wide > LETTER * len(words) + 2 else "")
