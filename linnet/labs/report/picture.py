"""Charts as a standalone SVG file, for a README or slides: title, legend and drawing on white.

picture(chart)             one chart of a document (see chart.py) -> text of a .svg file, no script, no style sheet
sheet(title, charts)       several, two in a row under a common title
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .axes import TEXT
from .chart import description, drawing
from .chart_lines import WIDTH, Look

MARGIN, LINE = 14, 20
INK, PAPER = "#1c2128", "#ffffff"
BACK = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
ACROSS = 2  # charts in a row of a sheet
LETTER = 0.56  # average width of a letter, in font sizes


def picture(chart: Mapping[str, Any]) -> str:
    """Return the whole file."""
    inside, height = _panel(chart)
    words = f"<title>{escape(chart['title'])}</title><desc>{description(chart)}</desc>"
    return _file(WIDTH + 2 * MARGIN, height, f"{words}{BACK}{inside}")


def sheet(title: str, charts: Sequence[Mapping[str, Any]]) -> str:
    """Return the whole file."""
    across, top = min(ACROSS, len(charts)), LINE + MARGIN
    parts = [f"<title>{escape(title)}</title>{BACK}"]
    parts.append(f'<text x="{MARGIN}" y="{MARGIN + TEXT}" font-weight="600">{escape(title)}</text>')
    for i in range(0, len(charts), across):
        panels = [_panel(chart) for chart in charts[i : i + across]]
        for j, (inside, _) in enumerate(panels):
            parts.append(f'<g transform="translate({j * (WIDTH + 2 * MARGIN)} {top})">{inside}</g>')
        top += max(height for _, height in panels)
    return _file(across * (WIDTH + 2 * MARGIN), top, "".join(parts))


def _file(width: int, height: int, inside: str) -> str:
    words = f'fill="{INK}" color="{INK}" font-size="{TEXT}" font-family="system-ui, sans-serif"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" {words}>{inside}</svg>\n'
    )


def _panel(chart: Mapping[str, Any]) -> tuple[str, int]:
    """Return title, legend and drawing of one chart, and their height."""
    inside, height, looks = drawing(chart)
    if not inside:
        raise ValueError(f"the chart {chart['title']!r} has no value to draw; choose another")
    keys, top = _legend(looks, chart.get("kind") == "bars", 2 * LINE + MARGIN)
    title = f'<text x="{MARGIN}" y="{MARGIN + TEXT}" font-weight="600">{escape(chart["title"])}</text>'
    return f'{title}{keys}<g transform="translate({MARGIN} {top})">{inside}</g>', top + height + MARGIN


def _legend(looks: Mapping[str, Look], bars: bool, y: int) -> tuple[str, int]:
    """Return a swatch and a name for each series, in as many lines as they need, and where they end."""
    x, parts = MARGIN, []
    for name, look in looks.items():
        width = round(34 + len(name) * TEXT * LETTER + 12)
        if x > MARGIN and x + width > WIDTH + MARGIN:
            x, y = MARGIN, y + LINE
        parts.append(f'<g transform="translate({x} {y})">{_swatch(look, bars)}')
        parts.append(f'<text x="32" y="4">{escape(name)}</text></g>')
        x += width
    return "".join(parts), y + LINE if looks else y


def _swatch(look: Look, bars: bool) -> str:
    if bars:
        return f'<rect x="8" y="-6" width="16" height="12" rx="2" fill="{look.colour}"{look.lighter()}/>'
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    line = f'<path d="M2 0H28" stroke="{look.colour}" stroke-width="1.8"{dash}/>'
    return f'{line}<path d="{look.marker(15, 0, 4)}" fill="{look.colour}"{look.lighter()}/>'
