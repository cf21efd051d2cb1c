"""A chart of a claim as an SVG file of its own, for a README or slides: title, legend and drawing on white.

picture(chart)   the chart of a document (see chart.py) -> text of a .svg file, no script, no style sheet
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from .axes import TEXT
from .chart import description, drawing
from .chart_lines import WIDTH, Look

MARGIN, LINE = 14, 20
INK, PAPER = "#1c2128", "#ffffff"
LETTER = 0.56  # width of a letter in sizes of the text, on average


def picture(chart: Mapping[str, Any]) -> str:
    """The whole file."""
    inside, height, looks = drawing(chart)
    if not inside:
        raise ValueError(f"the chart {chart['title']!r} has no value to draw; choose another")
    keys, top = _legend(looks, chart.get("kind") == "bars", 2 * LINE + MARGIN)
    whole = top + height + MARGIN
    title = f'<text x="{MARGIN}" y="{MARGIN + TEXT}" font-weight="600">{escape(chart["title"])}</text>'
    words = f'fill="{INK}" color="{INK}" font-size="{TEXT}" font-family="system-ui, sans-serif"'
    box = f"0 0 {WIDTH + 2 * MARGIN} {whole}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{WIDTH + 2 * MARGIN}" height="{whole}" '
        f'role="img" {words}><title>{escape(chart["title"])}</title><desc>{description(chart)}</desc>'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>{title}{keys}'
        f'<g transform="translate({MARGIN} {top})">{inside}</g></svg>\n'
    )


def _legend(looks: Mapping[str, Look], bars: bool, y: int) -> tuple[str, int]:
    """A swatch and a name for each series, in as many lines as they need; and where they end."""
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
