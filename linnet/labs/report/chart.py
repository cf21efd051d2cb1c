"""Charts as HTML: a figure with its title, a legend that toggles curves, inline SVG, and the values.

    figure({"type": "chart", "kind": "lines", "title", "x", "y", "series": {name: [[x, y, low, high]]}, ...}, "copy-0")

No script is needed. A legend entry is the label of a checkbox, and the style sheet hides the curve of an unchecked
one; without the style sheet, and in print, every curve is shown. Hovering over a marker shows its value, and so does
the table under the drawing, for touch screens and screen readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .axes import TEXT, short, usable
from .chart_bars import bars, heat
from .chart_lines import WIDTH, Look, lines, looks, points, valued
from .page import COLOURS, paragraph, prose, sentence, table

MOST = 24  # series that can be switched off
OFF = ", ".join(f".k{i}:not(:checked) ~ svg .s{i}" for i in range(MOST))
STYLE = f"""
.plot {{ position: relative; }} .plot p {{ margin: .4rem 0; }}
.plot figcaption {{ margin: 0 0 .35rem; font-size: .95rem; font-weight: 600; line-height: 1.3; color: var(--ink); }}
.plot > svg {{ overflow: visible; }} .plot .p {{ stroke: transparent; stroke-width: 9; pointer-events: all; }}
.plot .p:hover {{ stroke: currentColor; stroke-width: 1.5; }} .plot rect.p {{ stroke-width: 0; }}
.plot input {{ position: absolute; opacity: 0; width: 1px; height: 1px; margin: 0; }}
.key {{ display: inline-flex; align-items: center; gap: .3rem; margin: 0 .8rem .3rem 0; font-size: .82rem;
  line-height: 1.5; max-width: 100%; overflow-wrap: anywhere; }}
.key svg {{ width: 26px; height: 12px; flex: none; }} label.key {{ cursor: pointer; }}
input:focus-visible + .key {{ outline: 2px solid {COLOURS[0]}; outline-offset: 2px; border-radius: 3px; }}
details.values {{ font-size: .82rem; margin-top: .3rem; }} details.values table {{ font-size: .8rem; }}
@media screen {{ {OFF} {{ display: none; }}
  input:not(:checked) + .key {{ text-decoration: line-through; opacity: .55; }} }}
@media print {{ details.values {{ display: none; }} }}
"""


def figure(chart: Mapping[str, Any], name: str, look: Mapping[str, Look] | None = None) -> str:
    """Return the whole figure. name: prefix of its ids. look: of the series, to share looks between charts."""
    inside, height, used = drawing(chart, look)
    parts = [f'<figcaption id="{name}-title">{prose(chart["title"])}</figcaption>']
    if inside:
        parts += [legend(used, name, chart.get("kind") == "bars"), _svg(inside, height, name, description(chart))]
    notes = [chart["caption"], left_out(chart), "" if inside else "There is nothing to draw: no value was found."]
    parts += [paragraph(" ".join(map(sentence, filter(None, notes))), soft=True)] if any(notes) else []
    parts += [values(chart)] if inside else []
    return f'<figure class="plot">{"".join(parts)}</figure>'


def drawing(chart: Mapping[str, Any], look: Mapping[str, Look] | None = None) -> tuple[str, int, dict[str, Look]]:
    """Return the content of the SVG element, "" if there is nothing to draw; its height; the look of each series."""
    names = chart.get("series", {})
    used = {name: (look or looks(names))[name] for name in names}
    if chart["type"] == "heat":
        return *heat(chart), used
    return *(bars if chart["kind"] == "bars" else lines)(chart, used), used


def _svg(inside: str, height: int, name: str, described: str) -> str:
    words = f'fill="currentColor" font-size="{TEXT}" font-family="system-ui, sans-serif"'
    read = f'role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc"'
    return f'<svg viewBox="0 0 {WIDTH} {height}" {read} {words}><desc id="{name}-desc">{described}</desc>{inside}</svg>'


def legend(used: Mapping[str, Look], name: str, bars: bool = False) -> str:
    """Return a checkbox and its label for each series; only the label for a single one."""
    parts = []
    for series, one in used.items():
        shown = f"{_swatch(one, bars)}<span>{escape(series)}</span>"
        if len(used) == 1 or one.number >= MOST:
            parts.append(f'<span class="key">{shown}</span>')
            continue
        at = f"{name}-k{one.number}"
        parts.append(f'<input type="checkbox" id="{at}" class="k{one.number}" checked autocomplete="off">')
        parts.append(f'<label class="key" for="{at}">{shown}</label>')
    return "".join(parts)


def _swatch(look: Look, bars: bool) -> str:
    if bars:
        box = f'<rect x="6" width="14" height="12" rx="2" fill="{look.colour}"{look.lighter()}/>'
        return f'<svg viewBox="0 0 26 12" aria-hidden="true">{box}</svg>'
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    line = f'<path d="M1 6H25" stroke="{look.colour}" stroke-width="1.8"{dash}/>'
    marker = f'<path d="{look.marker(13, 6, 4)}" fill="{look.colour}"{look.lighter()}/>'
    return f'<svg viewBox="0 0 26 12" aria-hidden="true">{line}{marker}</svg>'


def description(chart: Mapping[str, Any]) -> str:
    """Return the text for screen readers: what is drawn, and where every series begins and ends."""
    if chart["type"] == "heat":
        return escape(f"Shades of {len(chart['rows'])} rows by {len(chart['columns'])} columns.")
    series, _ = points(chart, words=chart["kind"] == "bars")
    ends = []
    for name, line in series.items():
        known = [point for point in line if point.y is not None]
        first, last = (f"{short(point.y)} at {point.name}" for point in (known[0], known[-1])) if known else ("", "")
        ends.append(f"{name}: {first} to {last}" if first != last else f"{name}: {first or 'no value'}")
    return escape(f"{chart['y']} against {chart['x']}. {'; '.join(ends)}.")


def values(chart: Mapping[str, Any]) -> str:
    """Return the numbers of the drawing in a table, initially collapsed."""
    head, rows = heat_values(chart) if chart["type"] == "heat" else series_values(chart)
    return f'<details class="values"><summary>Values</summary>{table(head, rows)}</details>'


def heat_values(chart: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = [[str(row), *map(short, cells)] for row, cells in zip(chart["rows"], chart["values"], strict=False)]
    return ["", *map(str, chart["columns"])], rows


def series_values(chart: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    series, _ = points(chart, words=chart["kind"] == "bars")
    names = {point.x: point.name for line in series.values() for point in line}
    cells = {name: {point.x: valued(point) for point in line} for name, line in series.items()}
    rows = [[names[x], *(cells[name].get(x, "") for name in series)] for x in sorted(names)]
    return [chart["x"], *series], rows


def left_out(chart: Mapping[str, Any]) -> str:
    """Say how many values a logarithmic axis could not show."""
    every: Sequence[Sequence[Any]] = [point for line in chart.get("series", {}).values() for point in line]
    logs = [(0, chart.get("log_x") and chart["kind"] == "lines"), (1, chart.get("log_y"))]
    lost = sum(any(log and usable(p[i], False) and not usable(p[i], True) for i, log in logs) for p in every)
    if not lost:
        return ""
    return f"{lost} value{'s' if lost > 1 else ''} at or below zero cannot stand on a logarithmic axis."
