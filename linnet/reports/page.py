"""One HTML file that needs nothing else: text, tables and inline SVG, in light and dark, on a phone as on a desk.

    page("Title", [section("What", paragraph("..."), table(["a"], [["1"]]), figure(svg(draw, "one"), "caption"))])

Whatever is passed as text is escaped. Figures are drawn by matplotlib, which is imported when the first one is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

INK = "#010203"  # drawn in this colour, a line takes on the colour of the page's text
COLOURS = ("#3d85d1", "#d9822b", "#3a9e68", "#cf5650", "#8f6ccb", "#8a8f98")  # readable on white and on black
LOOK = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",  # text stays text
}
STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --soft: #59616b; --line: #d5dae0; --back: #ffffff; --card: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ed; --soft: #a0a8b2; --line: #3a414a; --back: #15181c; --card: #1e2328; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; font: 16px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--back); }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
p { max-width: 46rem; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 1rem;
  align-items: start; margin: 1rem 0; }
figure { margin: 0; padding: .75rem; background: var(--card); border-radius: .5rem; color: var(--ink); }
svg { width: 100%; height: auto; display: block; }
ol { max-width: 46rem; padding-left: 1.4rem; } li { margin: .4rem 0; }
"""


def page(title: str, sections: Iterable[str], style: str = "") -> str:
    """The whole file; style is added to the common style sheet."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n" + "\n".join(parts) + "</section>"


def paragraph(text: str, soft: bool = False) -> str:
    opening = '<p class="soft">' if soft else "<p>"
    return f"{opening}{prose(text)}</p>"


def numbered(lines: Iterable[str]) -> str:
    return "<ol>" + "".join(f"<li>{prose(line)}</li>" for line in lines) + "</ol>"


def prose(text: str) -> str:
    """Escaped, and never broken between a number and its sign."""
    for sign in (" %", " = "):
        text = text.replace(sign, sign.replace(" ", "\u00a0"))
    return escape(text)


def sentence(words: str) -> str:
    """The words with a capital and a full stop, however they were written; names such as float64 stay as they are."""
    words = words.strip()
    first = words.partition(" ")[0].rstrip(".,;:?!")
    begin = words[:1].upper() if first.isalpha() else words[:1]
    return begin + words[1:] + ("" if not words or words.endswith((".", "!", "?", ":", ".)")) else ".")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls sideways where it is wider than the screen."""
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def figures(*shown: str) -> str:
    return f'<div class="figures">{"".join(shown)}</div>'


def figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{prose(caption)}</figcaption></figure>"


def svg(draw: Callable[[Any], None], name: str, height: float = 3.2) -> str:
    """What `draw` puts on an empty matplotlib figure, 5 inches wide; `name` keeps its ids apart from other figures'."""
    import matplotlib
    from matplotlib.figure import Figure

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
    look: dict[Any, Any] = {**dict.fromkeys(inked, INK), **LOOK, "svg.hashsalt": name}
    with matplotlib.rc_context(look):
        canvas = Figure(figsize=(5, height), layout="constrained")
        draw(canvas)
        file = io.StringIO()
        canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(file.getvalue(), name)


def _inline(text: str, name: str) -> str:
    """The SVG element alone, its ids made its own, its ink that of the page."""
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    return text.replace(INK, "currentColor")
