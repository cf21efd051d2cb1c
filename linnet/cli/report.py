"""`linnet report`: the page of a finished, running or copied `linnet reproduce` folder again, from its rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ..atomic import atomic
from ..data.files import read_text
from ..errors import StateError
from ..reports.chart import drawing
from ..reports.picture import picture
from ..reports.reproduce import csv as csv_of
from ..reports.reproduce import html, scoreboard
from ..reports.reproduce import markdown as markdown_of
from . import reproduce_show
from .bench import SEVERAL
from .bench_show import deliver
from .reproduce import PAGE, way_on

FLAG = Parameter(negative="")
BEGIN, END = "<!-- scoreboard -->", "<!-- end -->"

report = App(name="report", help_format="plaintext")
report.help = "The page of a reproduce folder, made again from its rows; markdown and CSV too."


@report.default
def run_report(
    folder: Path,
    *,
    html_file: Annotated[Path | None, Parameter(name="--html")] = None,
    markdown: Path | None = None,
    csv: Path | None = None,
    into: Annotated[list[Path] | None, SEVERAL] = None,
    figures: Path | None = None,
    skip_damaged: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """Nothing is run. Without an option the page is written to FOLDER/report.html.

    Parameters
    ----------
    folder
        The --out folder of `linnet reproduce`.
    html_file
        Write the page to this file.
    markdown
        Write scoreboard and claims as markdown to this file.
    csv
        Write every number, one to a line, to this file.
    into
        Put the scoreboard between the lines <!-- scoreboard --> and <!-- end --> of these markdown files.
    figures
        Write every chart as an SVG file, NAME-1.svg and so on, to this folder.
    skip_damaged
        Leave out the lines of the results file that cannot be read; they stay in it.
    json
        The whole document on standard output, and nothing else there.
    """
    from ..experiments.claims.document import document

    try:
        found = document(folder, skip_damaged=skip_damaged)
    except StateError as error:
        raise way_on(error) from None
    texts = {html_file: html, markdown: markdown_of, csv: csv_of}
    made = {path: make(found) for path, make in texts.items() if path is not None}
    made |= {path: with_scoreboard(path, scoreboard(found)) for path in into or ()}
    made |= {figures / name: text for name, text in pictures(found).items()} if figures else {}
    for path, text in (made or {folder / PAGE: html(found)}).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            file.write(text.encode())
    deliver(found, json, reproduce_show.show)


def with_scoreboard(path: Path, scoreboard: str) -> str:
    """The text of a markdown file with this scoreboard in its place."""
    text = read_text(path)
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no {BEGIN} with {END} after it; add these two lines where the scoreboard goes")
    return f"{before}{BEGIN}\n{scoreboard}\n{END}{after}"


def pictures(document: dict[str, Any]) -> dict[str, str]:
    """File name -> SVG of every chart that has something to draw."""
    named = {
        f"{claim['name']}-{i}.svg": chart for claim in document["claims"] for i, chart in enumerate(claim["charts"], 1)
    }
    return {name: picture(chart) for name, chart in named.items() if drawing(chart)[0]}
