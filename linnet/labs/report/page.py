"""A self-contained HTML file: text, tables and inline SVG, light and dark, for phones and large screens.

    page("Title", [section("What", paragraph("..."), table(["a"], [["1"]]), figures(...))])

Every text passed in is escaped. Figures are drawn by chart.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

COLOURS = ("#3d85d1", "#d9822b", "#3a9e68", "#cf5650", "#8f6ccb", "#8a8f98")  # readable on white and on black
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
    """Return the whole file; style is added to the common style sheet."""
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
    """Escape text, with no line break between a number and its sign."""
    for sign in (" %", " = "):
        text = text.replace(sign, sign.replace(" ", "\u00a0"))
    return escape(text)


def sentence(words: str) -> str:
    """Return the words with a capital and a full stop; names such as float64 keep their case."""
    words = words.strip()
    first = words.partition(" ")[0].rstrip(".,;:?!")
    begin = words[:1].upper() if first.isalpha() else words[:1]
    return begin + words[1:] + ("" if not words or words.endswith((".", "!", "?", ":", ".)")) else ".")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls sideways if it is wider than the screen."""
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def figures(*shown: str) -> str:
    return f'<div class="figures">{"".join(shown)}</div>'
